//! Random worlds: sources of every kind, and destinations with existing files.
//!
//!     WORLD/here/        the working directory of cp
//!               SOURCE…  three to six
//!               dst      a folder, in which some of the sources' names are taken
//!               to-…     one destination of every kind
//!     WORLD/beside/      for paths with `..`

use super::trees::{Content, Fill, Kind, Node, Piece, join};
use super::xattrs::{self, Bearer};

use underpass_testkit::SeededRandom;

/// The user that runs cp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    Nobody,
}

impl User {
    pub(crate) fn id(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Nobody => 65_534,
        }
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    /// Names in `here`; the first is a file, the second a folder.
    pub(crate) sources: Vec<Vec<u8>>,
    /// Destinations, as names in `here`.
    pub(crate) targets: Vec<Vec<u8>>,
}

const NAMES: [&[u8]; 22] = [
    b"a",
    b"b",
    b"c",
    b"file",
    b"tree",
    b"a b",
    b" ",
    b"it's",
    b"say \"so\"",
    b"two\nlines",
    b"\xff\xfe",
    b"-r",
    b"-",
    b"--x",
    "\u{e9}t\u{e9}".as_bytes(),
    b"tab\tbed",
    b"$HOME",
    b"*?[",
    b"back\\slash",
    b".hidden",
    b"~",
    b"a~",
];

/// The times in a world are long ago, so that every newer time was set by cp.
const EPOCH: i64 = 1_000_000_000;

pub(crate) fn generate(rng: &mut SeededRandom, user: User) -> World {
    let mut maker = Maker {
        rng,
        user,
        nodes: Vec::new(),
    };
    maker.plain_folder(b"");
    maker.plain_folder(b"here");
    maker.plain_folder(b"beside");
    maker.add(b"beside/other", Kind::File(Content::plain(77, 3)));
    let sources = maker.sources();
    maker.links_across();
    maker.destination(&sources);
    let targets = maker.targets(&sources);
    World {
        nodes: maker.nodes,
        sources,
        targets,
    }
}

struct Maker<'a> {
    rng: &'a mut SeededRandom,
    user: User,
    nodes: Vec<Node>,
}

impl Maker<'_> {
    fn sources(&mut self) -> Vec<Vec<u8>> {
        let count = 3 + self.rng.below(4);
        let mut sources = Vec::new();
        while sources.len() < count {
            let name = self.name();
            if sources.contains(&name) {
                continue;
            }
            let path = join(b"here", &name);
            match sources.len() {
                0 => self.file(&path),
                1 => self.folder(&path, 3),
                _ => self.anything(&path, 3),
            }
            sources.push(name);
        }
        sources
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(40) {
            0 => vec![b'l'; 255],
            1 => vec![b'l'; 254],
            _ => self.rng.pick(&NAMES).to_vec(),
        }
    }

    fn anything(&mut self, path: &[u8], depth: usize) {
        match self.rng.weighted(&[(40, 0), (20, 1), (20, 2), (10, 3)]) {
            0 => self.file(path),
            1 => self.folder(path, depth),
            2 => self.symlink(path),
            _ => self.special(path),
        }
    }

    fn file(&mut self, path: &[u8]) {
        let content = self.content();
        self.add(path, Kind::File(content));
    }

    fn content(&mut self) -> Content {
        const BLOCK: u64 = 4096;
        let seed = self.rng.next_u64() as u8;
        let noise = |offset, len| Piece {
            offset,
            len,
            fill: Fill::Noise(seed),
        };
        let zeros = |offset, len| Piece {
            offset,
            len,
            fill: Fill::Zeros,
        };
        let blocks = |count: u64| count * BLOCK;
        match self.rng.below(16) {
            0 | 1 => Content::default(),
            2 => Content::plain(70_001, seed),
            3 => Content {
                len: blocks(40) + 5,
                pieces: Vec::new(),
            },
            4 => Content {
                len: blocks(64),
                pieces: vec![noise(blocks(48), 4096 * 16)],
            },
            5 => Content {
                len: blocks(64),
                pieces: vec![noise(0, 4096 * 16)],
            },
            6 => Content {
                len: blocks(80) + 100,
                pieces: vec![noise(0, 4096 * 16), noise(blocks(48), 4096 * 32 + 100)],
            },
            7 => Content {
                len: blocks(64),
                pieces: vec![
                    noise(0, 4096 * 16),
                    zeros(blocks(16), 4096 * 32),
                    noise(blocks(48), 4096 * 16),
                ],
            },
            8 => Content {
                len: blocks(48),
                pieces: vec![zeros(0, 4096 * 48)],
            },
            9 => Content::plain(4096, seed),
            _ => Content::plain(1 + self.rng.below(300), seed),
        }
    }

    fn folder(&mut self, path: &[u8], depth: usize) {
        self.add(path, Kind::Folder);
        if depth == 3 && self.rng.chance(4) {
            self.deep(path);
        }
        let count = if depth == 0 { 0 } else { self.rng.below(5) };
        for _ in 0..count {
            let child = join(path, &self.name());
            if child.len() < 1200 && !self.is_there(&child) {
                self.anything(&child, depth - 1);
            }
        }
    }

    /// Adds deeply nested folders.
    fn deep(&mut self, path: &[u8]) {
        let mut path = path.to_vec();
        for _ in 0..40 {
            path = join(&path, b"deep");
            self.plain_folder(&path);
        }
        self.file(&join(&path, b"bottom"));
    }

    fn symlink(&mut self, path: &[u8]) {
        let targets: [&[u8]; 9] = [
            b"a",
            b"../beside/other",
            b"@/beside/other",
            b"@/beside",
            b"nowhere",
            b"@/nowhere/at/all",
            b"..",
            b".",
            b"dst",
        ];
        let itself = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let target = match self.rng.below(10) {
            0 => itself.to_vec(),
            1..=3 if !self.nodes.is_empty() => {
                let other = self.rng.below(self.nodes.len());
                [b"@/", self.nodes[other].path.as_slice()].concat()
            }
            _ => self.rng.pick(&targets).to_vec(),
        };
        self.add(path, Kind::Symlink(target));
    }

    fn special(&mut self, path: &[u8]) {
        let kind = self
            .rng
            .pick(&[Kind::Fifo, Kind::Socket, Kind::Null, Kind::Block])
            .clone();
        self.add(path, kind);
    }

    /// Adds second names of files, in other folders too.
    fn links_across(&mut self) {
        for _ in 0..self.rng.below(4) {
            let is_file = |node: &&Node| !matches!(node.kind, Kind::Folder | Kind::HardLink(_));
            let files: Vec<_> = self
                .nodes
                .iter()
                .filter(is_file)
                .map(|node| node.path.clone())
                .collect();
            let is_folder = |node: &&Node| node.kind == Kind::Folder && node.path.len() > 4;
            let folders: Vec<_> = self
                .nodes
                .iter()
                .filter(is_folder)
                .map(|node| node.path.clone())
                .collect();
            let folder = self.rng.pick(&folders);
            let path = join(&folder, b"second");
            if !self.is_there(&path) {
                let other: Vec<u8> = self.rng.pick(&files);
                self.add(&path, Kind::HardLink(other));
            }
        }
    }

    /// Adds the folder `dst`, where some of the sources' names are taken.
    fn destination(&mut self, sources: &[Vec<u8>]) {
        self.add(b"here/dst", Kind::Folder);
        let dst = self.nodes.len() - 1;
        if self.rng.chance(75) {
            self.nodes[dst].mode |= 0o700;
            self.nodes[dst].owner = (self.user.id(), self.user.id());
        }
        if self.rng.chance(20) {
            let list = xattrs::list(self.rng, 0o750);
            self.nodes[dst]
                .xattrs
                .retain(|(name, _)| *name != xattrs::DEFAULT_ACL);
            self.nodes[dst].xattrs.push((xattrs::DEFAULT_ACL, list));
        }
        for source in sources {
            if self.rng.chance(50) {
                self.in_the_way(&join(b"here", source), &join(b"here/dst", source));
            }
        }
        if self.rng.chance(15) {
            let name = join(b"here/dst", &[sources[0].as_slice(), b".~1~"].concat());
            if sources[0].len() < 250 && !self.is_there(&name) {
                self.file(&name);
            }
        }
    }

    /// Adds a file at the destination of `source`; for folders often a folder.
    fn in_the_way(&mut self, source: &[u8], path: &[u8]) {
        let below = join(source, b"");
        let inside: Vec<Vec<u8>> = self
            .nodes
            .iter()
            .filter_map(|node| node.path.strip_prefix(below.as_slice()))
            .filter(|rest| !rest.contains(&b'/'))
            .map(<[u8]>::to_vec)
            .collect();
        let is_folder = self
            .nodes
            .iter()
            .any(|node| node.path == source && node.kind == Kind::Folder);
        if !is_folder || self.rng.chance(25) {
            return self.obstacle(source, path);
        }
        self.add(path, Kind::Folder);
        for name in inside {
            if self.rng.chance(60) && path.len() < 600 {
                self.in_the_way(&join(source, &name), &join(path, &name));
            }
        }
    }

    fn obstacle(&mut self, source: &[u8], path: &[u8]) {
        let is_file = self.nodes.iter().any(|node| {
            node.path == source && !matches!(node.kind, Kind::Folder | Kind::HardLink(_))
        });
        let kind = match self.rng.below(20) {
            0 | 1 => Kind::Folder,
            2 => Kind::Symlink(b"@/beside/other".to_vec()),
            3 => Kind::Symlink(b"@/beside".to_vec()),
            4 => Kind::Symlink(b"@/nowhere".to_vec()),
            5 => Kind::Symlink([b"@/", source].concat()),
            6 | 7 if is_file => Kind::HardLink(source.to_vec()),
            8 => Kind::Socket,
            9 => Kind::Null,
            10 if self.rng.chance(8) => Kind::Fifo,
            _ => Kind::File(self.content()),
        };
        self.add(path, kind);
    }

    /// Adds a destination of every kind for a single source.
    fn targets(&mut self, sources: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let first = join(b"here", &sources[0]);
        let kinds: [(&[u8], Kind); 9] = [
            (b"to-file", Kind::File(Content::plain(500, 9))),
            (b"to-locked", Kind::File(Content::plain(5, 8))),
            (b"to-folder", Kind::Folder),
            (b"to-link", Kind::Symlink(b"to-file".to_vec())),
            (b"to-folder-link", Kind::Symlink(b"dst".to_vec())),
            (b"to-nowhere", Kind::Symlink(b"not-there".to_vec())),
            (b"to-second", Kind::HardLink(first.clone())),
            (b"to-source", Kind::Symlink(sources[0].clone())),
            (b"to-null", Kind::Null),
        ];
        let mut names = Vec::new();
        for (name, kind) in kinds {
            self.add(&join(b"here", name), kind);
            if name == b"to-locked" {
                self.nodes.last_mut().expect("just added").mode = 0o444;
            }
            names.push(name.to_vec());
        }
        if self.rng.chance(5) {
            self.add(b"here/to-fifo", Kind::Fifo);
            names.push(b"to-fifo".to_vec());
        }
        names
    }

    fn is_there(&self, path: &[u8]) -> bool {
        self.nodes.iter().any(|node| node.path == path)
    }

    /// Adds a folder that every user of cp may use.
    fn plain_folder(&mut self, path: &[u8]) {
        self.add(path, Kind::Folder);
        let id = self.user.id();
        let node = self.nodes.last_mut().expect("just added");
        (node.mode, node.owner, node.xattrs) = (0o755, (id, id), Vec::new());
    }

    fn add(&mut self, path: &[u8], kind: Kind) {
        let bearer = match kind {
            Kind::Folder => Bearer::Folder,
            Kind::File(_) => Bearer::File,
            Kind::Symlink(_) => Bearer::Symlink,
            _ => Bearer::Special,
        };
        let mode = self.mode(bearer);
        let xattrs = match kind {
            Kind::HardLink(_) => Vec::new(),
            _ => xattrs::some(self.rng, bearer, mode),
        };
        let owner = self.owner();
        let times = [self.time(), self.time()];
        self.nodes.push(Node {
            path: path.to_vec(),
            kind,
            mode,
            owner,
            times,
            xattrs,
        });
    }

    fn mode(&mut self, bearer: Bearer) -> u32 {
        let rare = self.rng.chance(25);
        let modes: &[u32] = match (bearer, rare) {
            (Bearer::Folder, false) => &[0o755, 0o755, 0o775, 0o700, 0o777],
            (Bearer::Folder, true) => &[0o2775, 0o1777, 0o555, 0o500, 0o4711, 0o300, 0],
            (_, false) => &[0o644, 0o644, 0o600, 0o664, 0o755],
            (_, true) => &[
                0o4755, 0o2755, 0o6711, 0o1644, 0o444, 0o200, 0, 0o777, 0o4644,
            ],
        };
        self.rng.pick(modes)
    }

    fn owner(&mut self) -> (u32, u32) {
        let id = self.user.id();
        let other = self.rng.pick(&[0, 1000, 65_534, 3_000_000_000]);
        let group = self.rng.pick(&[0, 1000, 65_534, 7]);
        self.rng
            .weighted(&[(70, (id, id)), (15, (other, group)), (15, (id, group))])
    }

    /// Draws one of a few seconds, so that some times are equal.
    fn time(&mut self) -> (i64, i64) {
        let second = EPOCH + 1000 * self.rng.below(4) as i64;
        let nanosecond = self.rng.pick(&[0, 0, 1, 123_456_789, 999_999_999]);
        (second, nanosecond)
    }
}
