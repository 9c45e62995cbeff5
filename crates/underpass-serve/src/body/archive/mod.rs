//! A folder as one tar file, made while it is sent.
//!
//! ```text
//!  walk ─► next name ─► looked at and opened ─► head in memory ─► Batch ─► outbox
//!   ▲ (a stack of open folders)                 content: a range of the open file
//!   └──────────────────────────────────────────────────────────────────────────
//! ```
//!
//! Folders, files and links that stay within the folder go in; what is hidden, leads out, is no
//! file, or is not for the asker does not. What the server may not read is left out too and named
//! in a last file beside the folder. No path is resolved twice: each name is opened in its open
//! folder, without following links. Contents never come into memory: they are ranges, cut at the
//! size that their head announced. A file that shrinks meanwhile ends the connection with a reset.

pub(crate) mod header;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use tokio::sync::OwnedSemaphorePermit;
use underpass::{FileRange, SharedFile};

use crate::body::archive::header::{Member, MemberKind, padding};
use crate::body::producer::{BodyProducer, BodyProgress, Chunk};
use crate::http::validator::FileTime;
use crate::limits::{
    ARCHIVE_DEPTH_MAX, ARCHIVE_RANGES_PER_BATCH, LEFT_OUT_BYTES_MAX, LOOKS_PER_BATCH,
};
use crate::site::beneath::{look_through, open_place};
use crate::site::folder::{FolderRestriction, SiteFolder, is_dots};
use crate::site::rules::{Symlinks, Visibility};

/// A tar file being made.
#[derive(Debug)]
pub(crate) struct Archive {
    /// The folder, which links may not lead out of.
    base: OwnedFd,
    /// Which names go in.
    sight: Visibility,
    /// The root of the site, and what may be read of the folder.
    root: Arc<OwnedFd>,
    restriction: Option<FolderRestriction>,
    /// What the members' names begin with.
    name: Vec<u8>,
    state: ArchiveState,
    /// The folders between the base and here.
    levels: Vec<ArchiveLevel>,
    left_out: Vec<u8>,
    /// Bounds the archives that a worker produces at once.
    _place: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ArchiveState {
    Fresh,
    Walking,
    Walked,
}

/// An open folder and its path below the base, with a slash behind where it is not the base.
#[derive(Debug)]
struct ArchiveLevel {
    dir: Dir,
    path: Vec<u8>,
}

/// Without waiting for a FIFO's other end, without following a link.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Archive {
    /// Of `folder`, whose name in the archive is `name`.
    pub(crate) fn new(folder: SiteFolder, name: &[u8], place: OwnedSemaphorePermit) -> Archive {
        let sight = folder.sight();
        let (base, root, restriction) = folder.into_parts();
        Archive {
            base,
            sight,
            root,
            restriction,
            name: name.to_vec(),
            state: ArchiveState::Fresh,
            levels: Vec::new(),
            left_out: Vec::new(),
            _place: place,
        }
    }

    fn begin(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let stat = fstat(&self.base)?;
        self.member(b"", MemberKind::Folder, &stat)
            .write(chunk.bytes());
        self.levels.push(ArchiveLevel {
            dir: Dir::read_from(&self.base)?,
            path: Vec::new(),
        });
        Ok(())
    }

    /// Names of the innermost folder, until the batch is full or a folder begins or ends.
    fn walk(&mut self, chunk: &mut Chunk) -> io::Result<ArchiveState> {
        for _ in 0..LOOKS_PER_BATCH {
            let Some(level) = self.levels.last_mut() else {
                return Ok(ArchiveState::Walked);
            };
            let name = match level.dir.read() {
                Some(Ok(entry)) => entry.file_name().to_bytes().to_vec(),
                // It was deleted meanwhile, which is its end too.
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
        if let Some(restriction) = &self.restriction
            && !restriction.allows(&path)
        {
            return Ok(());
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
        if self.levels.len() >= ARCHIVE_DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let opened = self.open(name, OPEN | OFlags::DIRECTORY)?;
        let stat = fstat(&opened)?;
        let path = [path, b"/"].concat();
        self.member(&path, MemberKind::Folder, &stat)
            .write(chunk.bytes());
        self.levels.push(ArchiveLevel {
            dir: Dir::new(opened)?,
            path,
        });
        Ok(())
    }

    fn add_file(&mut self, name: &[u8], path: &[u8], chunk: &mut Chunk) -> Result<(), Errno> {
        let place = self.open(name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        let (stat, Some(opened)) = open_place(&place, || self.open(name, OPEN))? else {
            return Ok(());
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
        Ok(())
    }

    /// A link goes in as it is, if links are followed and what it leads to lies within the folder
    /// that is sent.
    fn add_link(
        &self,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
        chunk: &mut Chunk,
    ) -> Result<(), Errno> {
        if self.sight.symlinks == Symlinks::None {
            return Ok(());
        }
        if let Some(restriction) = &self.restriction
            && let Err(errno) = restriction.target(self.root.as_fd(), path, Symlinks::Inside)
        {
            return match errno {
                Errno::AGAIN => Err(errno),
                _ => Ok(()),
            };
        }
        match look_through(self.base.as_fd(), path, Symlinks::Inside) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Err(Errno::AGAIN),
            Err(_) => return Ok(()),
        }
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let target = match readlinkat(level.dir.fd()?, name, Vec::new()) {
            // Something else has the name by now.
            Err(Errno::INVAL) => Err(Errno::AGAIN),
            target => target,
        }?;
        let target = MemberKind::Link(target.to_bytes());
        self.member(path, target, stat).write(chunk.bytes());
        Ok(())
    }

    fn open(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let folder: BorrowedFd<'_> = match self.levels.last() {
            Some(level) => level.dir.fd()?,
            None => self.base.as_fd(),
        };
        openat(folder, name, flags, Mode::empty())
    }

    fn member<'m>(&self, path: &[u8], kind: MemberKind<'m>, stat: &Stat) -> Member<'m> {
        Member {
            path: [&self.name[..], b"/", path].concat(),
            kind,
            mode: stat.st_mode & 0o777,
            modified: FileTime::of(stat),
        }
    }

    /// What may not be read is remembered, what has vanished or become something else meanwhile is
    /// not; everything else that goes wrong ends the archive.
    fn leave_out(&mut self, path: &[u8], errno: Errno) -> io::Result<()> {
        match errno {
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => {}
            Errno::ACCESS | Errno::PERM | Errno::NAMETOOLONG | Errno::AGAIN => {
                if self.left_out.len() < LEFT_OUT_BYTES_MAX {
                    self.left_out.extend_from_slice(path);
                    self.left_out.push(b'\n');
                }
            }
            _ => return Err(errno.into()),
        }
        Ok(())
    }

    /// The note of what was left out, and two empty blocks.
    fn end(&mut self, chunk: &mut Chunk) {
        if !self.left_out.is_empty() {
            let note = [NOTE, &self.left_out].concat();
            let member = Member {
                path: [&self.name[..], b".left-out.txt"].concat(),
                kind: MemberKind::File {
                    size: note.len() as u64,
                },
                mode: 0o644,
                modified: FileTime {
                    seconds: 0,
                    nanoseconds: 0,
                },
            };
            member.write(chunk.bytes());
            chunk.bytes().extend_from_slice(&note);
            let padding = padding(note.len() as u64);
            chunk.bytes().extend_from_slice(padding);
        }
        chunk.bytes().extend_from_slice(&[0; 1024]);
    }
}

const NOTE: &[u8] = b"The server cannot read these, or they lie too deep, and they are not here:\n";

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
