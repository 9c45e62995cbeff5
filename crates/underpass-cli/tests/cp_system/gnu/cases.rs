//! A case: a world, the user that runs cp in it, and the arguments.

use super::options::{self, Drawn};
use super::trees::{Content, Kind, join};
use super::worlds::{self, User, World};

use underpass_testkit::SeededRandom;

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) number: u64,
    pub(crate) world: World,
    pub(crate) user: User,
    pub(crate) umask: &'static str,
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    /// Options and operands; `@/` is replaced by the world's path.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The answers to the questions of `-i`.
    pub(crate) answers: &'static str,
    pub(crate) drawn: Drawn,
    /// Whether our cp copies several files at a time.
    pub(crate) jobs: Jobs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jobs {
    AsItIs,
    Four,
}

impl Case {
    /// Returns the case with a number, which is always the same.
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let rng = &mut SeededRandom::of_case(seed, number);
        let user = if rng.chance(65) {
            User::Root
        } else {
            User::Nobody
        };
        let umask = rng.weighted(&[(70, "022"), (15, "000"), (15, "077")]);
        let mut world = worlds::generate(rng, user);
        let mut drawn = options::draw(rng);
        let operands = operands(rng, &world, &mut drawn);
        unblock(rng, &mut world, &drawn);
        let answers = answers(rng, &drawn);
        let is_parallel = drawn.is_recursive() && !drawn.has("-i") && rng.chance(35);
        Self {
            number,
            world,
            user,
            umask,
            environment: environment(rng),
            arguments: arguments(rng, &drawn, operands),
            answers,
            drawn,
            jobs: if is_parallel {
                Jobs::Four
            } else {
                Jobs::AsItIs
            },
        }
    }

    /// Returns whether both programs write the lines of standard output in the same order.
    pub(crate) fn is_ordered(&self) -> bool {
        !self.drawn.is_recursive()
    }
}

fn answers(rng: &mut SeededRandom, drawn: &Drawn) -> &'static str {
    match (drawn.is_recursive(), rng.below(4)) {
        (_, 0) => "",
        (_, 1) => "n\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\nn\n",
        (false, 2) => "y\nno\nYes\nx\ny\n",
        _ => "y\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\ny\n",
    }
}

fn environment(rng: &mut SeededRandom) -> Vec<(&'static str, &'static str)> {
    let mut environment = Vec::new();
    if rng.chance(6) {
        environment.push(("POSIXLY_CORRECT", "1"));
    }
    if rng.chance(4) {
        environment.push((
            "VERSION_CONTROL",
            rng.pick(&["numbered", "simple", "none", "bad"]),
        ));
    }
    if rng.chance(4) {
        environment.push(("SIMPLE_BACKUP_SUFFIX", rng.pick(&[".env", "/x", ""])));
    }
    environment
}

/// Replaces most FIFOs, since reading one without a writer blocks for ever; a few cases test that
/// both programs do. Replaces many of the other files that can't be read, too.
fn unblock(rng: &mut SeededRandom, world: &mut World, drawn: &Drawn) {
    if drawn.is_recursive() && !drawn.has("--copy-contents") {
        return;
    }
    let stays = rng.chance(3);
    for node in &mut world.nodes {
        match node.kind {
            Kind::Fifo if !stays => node.kind = Kind::Null,
            Kind::Socket | Kind::Block if rng.chance(70) => {
                node.kind = Kind::File(Content::plain(99, 1));
            }
            _ => {}
        }
    }
}

/// Puts the options before the operands, in most cases.
fn arguments(rng: &mut SeededRandom, drawn: &Drawn, operands: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut arguments = drawn.arguments.clone();
    if rng.chance(12) && !drawn.has("-S") {
        let at = rng.below(operands.len() + 1);
        let (before, after) = operands.split_at(at);
        return [before, &arguments, after].concat();
    }
    if rng.chance(8) {
        arguments.push(b"--".to_vec());
    }
    arguments.extend(operands);
    arguments
}

/// Draws sources and destination; `-t` and `-T` are added to the options.
fn operands(rng: &mut SeededRandom, world: &World, drawn: &mut Drawn) -> Vec<Vec<u8>> {
    let mut sources = sources(rng, world, drawn.is_recursive());
    if rng.chance(1) {
        sources.clear();
    }
    match rng.below(100) {
        0..=9 => {
            drawn.names.push("-t");
            let folder = folder(rng, world);
            match rng.below(3) {
                0 => drawn
                    .arguments
                    .push([b"--target-directory=", folder.as_slice()].concat()),
                1 => drawn.arguments.push([b"-t", folder.as_slice()].concat()),
                _ => drawn.arguments.extend([b"-t".to_vec(), folder]),
            }
            if rng.chance(6) {
                drawn.names.push("-T");
                drawn.arguments.push(b"-T".to_vec());
            }
        }
        10..=24 => {
            drawn.names.push("-T");
            let spelling = rng.pick(&["-T", "--no-target-directory"]);
            drawn.arguments.insert(0, spelling.into());
            let target = target(rng, world, &sources);
            sources.push(target);
        }
        25..=54 if sources.len() == 1 => {
            let target = target(rng, world, &sources);
            sources.push(target);
        }
        _ => {
            let folder = folder(rng, world);
            sources.push(folder);
        }
    }
    sources
}

fn sources(rng: &mut SeededRandom, world: &World, is_recursive: bool) -> Vec<Vec<u8>> {
    let count = rng.weighted(&[(60, 1), (20, 2), (12, 3), (8, 6)]);
    let mut sources = Vec::new();
    for _ in 0..count.min(world.sources.len()) {
        let source = source(rng, world, is_recursive);
        if rng.chance(3) {
            sources.push(source.clone());
        }
        sources.push(source);
    }
    sources
}

fn source(rng: &mut SeededRandom, world: &World, is_recursive: bool) -> Vec<u8> {
    let mut name = rng.pick(&world.sources);
    let is_folder = |name: &[u8]| {
        let path = join(b"here", name);
        world
            .nodes
            .iter()
            .any(|node| node.path == path && node.kind == Kind::Folder)
    };
    if !is_recursive && is_folder(&name) && rng.chance(75) {
        name.clone_from(&world.sources[0]);
    }
    let name = match rng.below(100) {
        0..=2 => b"missing".to_vec(),
        3 => b".".to_vec(),
        4 => b"..".to_vec(),
        5 => b"../beside".to_vec(),
        6 => b"../beside/other".to_vec(),
        7 => rng.pick(&world.targets),
        8..=19 => below_here(rng, world),
        _ => name,
    };
    match rng.below(100) {
        0..=6 => join(b".", &name),
        7..=11 => join(&name, b""),
        12 => [name.as_slice(), b"//"].concat(),
        13..=16 => join(b"@/here", &name),
        17..=19 => join(b"../here", &name),
        20..=23 => join(&name, b"."),
        24 => [b".//./", name.as_slice()].concat(),
        _ => undashed(rng, name),
    }
}

/// Draws a path further down.
fn below_here(rng: &mut SeededRandom, world: &World) -> Vec<u8> {
    let below: Vec<&[u8]> = world
        .nodes
        .iter()
        .filter_map(|node| node.path.strip_prefix(b"here/"))
        .collect();
    rng.pick(&below).to_vec()
}

/// Prefixes a name that looks like an option with `./`, except in a few cases.
fn undashed(rng: &mut SeededRandom, name: Vec<u8>) -> Vec<u8> {
    match name.first() {
        Some(b'-') if rng.chance(90) => join(b".", &name),
        _ => name,
    }
}

/// Draws a folder to copy into, or a name that is not a folder.
fn folder(rng: &mut SeededRandom, world: &World) -> Vec<u8> {
    let folders: [(u32, &[u8]); 11] = [
        (60, b"dst"),
        (6, b"dst/"),
        (4, b"./dst"),
        (5, b"@/here/dst"),
        (4, b"to-folder-link"),
        (4, b"to-folder"),
        (3, b"../beside"),
        (2, b"."),
        (2, b"missing"),
        (2, b"missing/"),
        (2, b"to-file"),
    ];
    match rng.below(40) {
        0 => undashed(rng, world.sources[1].clone()),
        _ => rng.weighted(&folders).to_vec(),
    }
}

/// Draws the name of a copy.
fn target(rng: &mut SeededRandom, world: &World, sources: &[Vec<u8>]) -> Vec<u8> {
    let names: [&[u8]; 6] = [
        b"new",
        b"dst/new",
        b"new/",
        b"missing/new",
        b"@/here/new",
        b"dst/.",
    ];
    match rng.below(100) {
        0..=29 => b"new".to_vec(),
        30..=44 => rng.pick(&names).to_vec(),
        45..=74 => rng.pick(&world.targets),
        75..=79 => [&rng.pick(&world.targets)[..], b"/"].concat(),
        80..=83 => sources.first().cloned().unwrap_or_default(),
        84..=86 => join(sources.first().map_or(b"x", Vec::as_slice), b"inside"),
        87..=89 => undashed(rng, world.sources[2].clone()),
        90..=92 => Vec::new(),
        _ => join(b"dst", &world.sources[0]),
    }
}
