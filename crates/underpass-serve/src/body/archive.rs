//! A folder as a tar file, produced while it is sent.
//!
//! ```text
//!  walk ─► next name ─► looked at and opened ─► head in memory ─► Batch ─► outbox
//!   ▲ (a stack of open folders)                 content: a range of the open file
//!   └──────────────────────────────────────────────────────────────────────────
//! ```
//!
//! An archive holds folders, files, and links to members. A link to anything else that a GET would
//! send becomes a copy of its target. Names that are hidden, forbidden to the requester or neither
//! file, folder nor link are left out. Names that the server cannot read, and dangling links, are
//! listed in a last file next to the folder. Each name is opened relative to its open folder,
//! without following links. Contents are never read into memory: they are ranges, cut at the size
//! that their header announced. A file that shrinks meanwhile ends the connection with a reset.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use tokio::sync::OwnedSemaphorePermit;
use underpass::{FileRange, SharedFile};
use underpass_tar::{END, Member, MemberKind, TarTime, padding};

use crate::body::producer::{BodyProducer, BodyProgress, Chunk};
use crate::limits::{
    ARCHIVE_DEPTH_MAX, ARCHIVE_RANGES_PER_BATCH, LEFT_OUT_BYTES_MAX, LOOKS_PER_BATCH,
};
use crate::rules::{Symlinks, Visibility};
use crate::site::beneath::{self, look_through, open_file, open_place};
use crate::site::folder::{FolderRestriction, SiteFolder, is_dots};
use crate::site::settle::{joined, names, settle};

/// An archive in production.
#[derive(Debug)]
pub(crate) struct Archive {
    base: OwnedFd,
    /// The names to include.
    sight: Visibility,
    /// The root of the site, the path of the folder in it, and the folder's restriction.
    root: Arc<OwnedFd>,
    place: Vec<u8>,
    restriction: Option<FolderRestriction>,
    /// The prefix of the members' names.
    name: Vec<u8>,
    state: ArchiveState,
    /// The open folders, from the base to the current one.
    levels: Vec<ArchiveLevel>,
    left_out: Vec<u8>,
    /// Limits the number of archives that a worker produces concurrently.
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ArchiveState {
    Fresh,
    Walking,
    Walked,
}

/// An open folder and its path below the base, with a trailing slash unless it is the base.
#[derive(Debug)]
struct ArchiveLevel {
    dir: Dir,
    path: Vec<u8>,
    /// The path in the site.
    place: Vec<u8>,
    /// The target of the link through which this folder or a parent was entered.
    linked: Option<Vec<u8>>,
}

/// Open flags that neither wait for the other end of a FIFO nor follow a link.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Archive {
    /// Creates an archive of `folder`, which it calls `name`.
    pub(crate) fn new(folder: SiteFolder, name: &[u8], permit: OwnedSemaphorePermit) -> Archive {
        let sight = folder.sight();
        let path = folder.path.bytes().to_vec();
        let (base, root, restriction) = folder.into_parts();
        let settled = restriction.as_ref().map(|known| known.settled.clone());
        Archive {
            base,
            sight,
            root,
            place: settled.unwrap_or(path),
            restriction,
            name: name.to_vec(),
            state: ArchiveState::Fresh,
            levels: Vec::new(),
            left_out: Vec::new(),
            _permit: permit,
        }
    }

    fn begin(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let stat = fstat(&self.base)?;
        self.member(b"", MemberKind::Folder, &stat)
            .write(chunk.bytes());
        self.levels.push(ArchiveLevel {
            dir: Dir::read_from(&self.base)?,
            path: Vec::new(),
            place: self.place.clone(),
            linked: None,
        });
        Ok(())
    }

    /// Adds names of the innermost folder, until the batch is full or a folder starts or ends.
    fn walk(&mut self, chunk: &mut Chunk) -> io::Result<ArchiveState> {
        for _ in 0..LOOKS_PER_BATCH {
            let Some(level) = self.levels.last_mut() else {
                return Ok(ArchiveState::Walked);
            };
            let name = match level.dir.read() {
                Some(Ok(entry)) => entry.file_name().to_bytes().to_vec(),
                // A folder deleted meanwhile ends too.
                None | Some(Err(Errno::NOENT)) => {
                    self.levels.pop();
                    continue;
                }
                Some(Err(errno)) => return Err(errno.into()),
            };
            if !is_dots(&name) && !self.sight.hides(&name) {
                self.add(&name, chunk)?;
            }
            if chunk.is_full() || chunk.ranges() >= ARCHIVE_RANGES_PER_BATCH {
                break;
            }
        }
        Ok(ArchiveState::Walking)
    }

    fn add(&mut self, name: &[u8], chunk: &mut Chunk) -> io::Result<()> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let path = [&level.path[..], name].concat();
        if let Some(restriction) = &self.restriction {
            let is_place_allowed = || (restriction.permits).allow(&joined(&level.place, name));
            if !restriction.allows(&path) || level.linked.is_some() && !is_place_allowed() {
                return Ok(());
            }
        }
        let folder = level.dir.fd()?;
        let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return self.leave_out(&path, errno),
        };
        let added = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.add_folder(name, &path, chunk),
            FileType::RegularFile => self.add_file(name, &path, chunk),
            FileType::Symlink => self.add_link(name, &path, &stat, chunk),
            _ => Ok(()),
        };
        added.or_else(|errno| self.leave_out(&path, errno))
    }

    fn add_folder(&mut self, name: &[u8], path: &[u8], chunk: &mut Chunk) -> Result<(), Errno> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let (place, linked) = (joined(&level.place, name), level.linked.clone());
        let folder = self.open(name, OPEN | OFlags::DIRECTORY)?;
        self.enter(folder, path, (place, linked), chunk)
    }

    fn enter(
        &mut self,
        folder: OwnedFd,
        path: &[u8],
        (place, linked): (Vec<u8>, Option<Vec<u8>>),
        chunk: &mut Chunk,
    ) -> Result<(), Errno> {
        if self.levels.len() >= ARCHIVE_DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let stat = fstat(&folder)?;
        let path = [path, b"/"].concat();
        self.member(&path, MemberKind::Folder, &stat)
            .write(chunk.bytes());
        self.levels.push(ArchiveLevel {
            dir: Dir::new(folder)?,
            path,
            place,
            linked,
        });
        Ok(())
    }

    fn add_file(&self, name: &[u8], path: &[u8], chunk: &mut Chunk) -> Result<(), Errno> {
        let place = self.open(name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        self.put_file(open_place(&place, || self.open(name, OPEN))?, path, chunk);
        Ok(())
    }

    fn put_file(&self, found: (Stat, Option<OwnedFd>), path: &[u8], chunk: &mut Chunk) {
        let (stat, Some(opened)) = found else {
            return;
        };
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.member(path, MemberKind::File { size }, &stat)
            .write(chunk.bytes());
        chunk.push_range(FileRange {
            file: SharedFile::new(opened),
            offset: 0,
            len: size,
        });
        chunk.bytes().extend_from_slice(padding(size));
    }

    /// Adds a link, or its target, if links are followed and a GET would send the target.
    fn add_link(
        &mut self,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
        chunk: &mut Chunk,
    ) -> Result<(), Errno> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        if self.sight.symlinks == Symlinks::None {
            return Ok(());
        }
        let target = match readlinkat(level.dir.fd()?, name, Vec::new()) {
            // The name is no longer a link.
            Err(Errno::INVAL) => Err(Errno::AGAIN),
            target => target,
        }?;
        let place = self.leads_to(&joined(&level.place, name))?;
        if self.goes_in(level, target.to_bytes(), &place) {
            let target = MemberKind::Symlink(target.into_bytes());
            self.member(path, target, stat).write(chunk.bytes());
            return Ok(());
        }
        // Following links in linked folders, or to a parent of the archived one, could recurse.
        if level.linked.is_some() || beneath_folder(&self.place, &place).is_some() {
            return Err(Errno::XDEV);
        }
        let root = Arc::clone(&self.root);
        let found = open_file(root.as_fd(), &place, Symlinks::None)?;
        if FileType::from_raw_mode(found.0.st_mode) != FileType::Directory {
            self.put_file(found, path, chunk);
            return Ok(());
        }
        let flags = OPEN | OFlags::DIRECTORY;
        let folder = beneath::open(root.as_fd(), &place, flags, Symlinks::None)?;
        self.enter(folder, path, (place.clone(), Some(place)), chunk)
    }

    /// Returns the resolved path of a link's target, if a GET would send it.
    fn leads_to(&self, link: &[u8]) -> Result<Vec<u8>, Errno> {
        let root = self.root.as_fd();
        match look_through(root, link, self.sight.symlinks) {
            Err(errno @ (Errno::AGAIN | Errno::ACCESS | Errno::PERM)) => return Err(errno),
            Err(_) => return Err(Errno::NOENT),
            Ok(_) => {}
        }
        let settled = settle(root, link, Symlinks::Inside)?;
        let restriction = self.restriction.as_ref();
        match restriction.is_none_or(|known| known.permits.allow(&settled.name)) {
            true => settled.missing.map_or(Ok(settled.name), Err),
            false => Err(Errno::NOENT),
        }
    }

    /// Whether `place`, to which a link in this folder leads by `target`, is in the archive, and so
    /// are all folders that `target` passes through.
    fn goes_in(&self, level: &ArchiveLevel, target: &[u8], place: &[u8]) -> bool {
        let base = level.linked.as_ref().unwrap_or(&self.place);
        let is_in = |place: &[u8]| {
            let within = beneath_folder(place, base);
            let restriction = self.restriction.as_ref();
            within.is_some_and(|within| names(within).all(|name| !self.sight.hides(name)))
                && restriction.is_none_or(|known| known.permits.allow(place))
        };
        let mut way = level.place.clone();
        let mut is_all_in = !target.starts_with(b"/") && is_in(place);
        let mut descends = false;
        for name in names(target) {
            match name {
                b".." if descends => return false,
                b".." => way.truncate(way.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
                name => {
                    descends = true;
                    way = joined(&way, name);
                }
            }
            is_all_in &= is_in(&way);
        }
        is_all_in
    }

    fn open(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let folder: BorrowedFd<'_> = match self.levels.last() {
            Some(level) => level.dir.fd()?,
            None => self.base.as_fd(),
        };
        openat(folder, name, flags, Mode::empty())
    }

    /// Returns a member that belongs to root: the owners of the files are not disclosed.
    fn member(&self, path: &[u8], kind: MemberKind, stat: &Stat) -> Member {
        let path = [&self.name[..], b"/", path].concat();
        Member::new(path, kind, stat.st_mode & 0o777, modified(stat))
    }

    /// Notes a name that may not be read. A name that has vanished or changed its type meanwhile is
    /// ignored; any other error ends the archive.
    fn leave_out(&mut self, path: &[u8], errno: Errno) -> io::Result<()> {
        match errno {
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => {}
            Errno::ACCESS | Errno::PERM | Errno::NAMETOOLONG | Errno::AGAIN | Errno::XDEV => {
                if self.left_out.len() < LEFT_OUT_BYTES_MAX {
                    self.left_out.extend_from_slice(path);
                    self.left_out.push(b'\n');
                }
            }
            _ => return Err(errno.into()),
        }
        Ok(())
    }

    /// Adds the list of omitted names, and two empty blocks.
    fn end(&mut self, chunk: &mut Chunk) {
        if !self.left_out.is_empty() {
            let count = self.left_out.iter().filter(|byte| **byte == b'\n').count();
            let name = self.name.escape_ascii();
            tracing::info!("the archive {name} names {count} files and links that it lacks");
            let note = [NOTE, &self.left_out].concat();
            let size = note.len() as u64;
            let path = [&self.name[..], b".left-out.txt"].concat();
            let member = Member::new(path, MemberKind::File { size }, 0o644, TarTime::default());
            member.write(chunk.bytes());
            chunk.bytes().extend_from_slice(&note);
            chunk.bytes().extend_from_slice(padding(size));
        }
        chunk.bytes().extend_from_slice(&END);
    }
}

fn modified(stat: &Stat) -> TarTime {
    TarTime {
        seconds: stat.st_mtime,
        nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    }
}

const NOTE: &[u8] =
    b"These are not here: the server cannot read them, they lie too deep, or they are links that \
      would lead nowhere:\n";

/// Returns the part of `place` beneath `folder`, or `None` if it is elsewhere.
fn beneath_folder<'p>(place: &'p [u8], folder: &[u8]) -> Option<&'p [u8]> {
    let rest = place.strip_prefix(folder)?;
    match rest {
        [] => Some(rest),
        _ if folder.is_empty() => Some(rest),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

impl BodyProducer for Archive {
    fn next(&mut self, chunk: &mut Chunk) -> io::Result<BodyProgress> {
        self.state = match self.state {
            ArchiveState::Fresh => {
                self.begin(chunk)?;
                ArchiveState::Walking
            }
            ArchiveState::Walking => self.walk(chunk)?,
            ArchiveState::Walked => {
                self.end(chunk);
                return Ok(BodyProgress::End);
            }
        };
        Ok(BodyProgress::More)
    }

    fn made(&self) -> &'static str {
        "produced while it is sent: contents leave as files do, the rest from memory"
    }
}
