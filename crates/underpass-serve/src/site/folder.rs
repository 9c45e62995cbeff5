//! An open folder and its visible entries.
//!
//! ```text
//!  getdents ─► hidden? ─► statx of the name ─┬─► folder, file          ─► Entry
//!              out             │             ├─► link: what it leads to by the site's rule, or out
//!              of the list ◄───┴─ vanished   └─► all else is out of the list
//! ```
//!
//! All of it waits for disks: call it on blocking threads.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use rustix::io::Errno;

use crate::http::validator::FileTime;
use crate::request::path::SitePath;
use crate::site::beneath::look_through;
use crate::site::rules::Visibility;
use crate::site::sites::ServedSite;

/// An open folder of a site.
#[derive(Debug)]
pub(crate) struct SiteFolder {
    pub(crate) path: SitePath,
    descriptor: OwnedFd,
    /// Where its links are followed from: the site's own descriptor.
    root: Arc<OwnedFd>,
    sight: Visibility,
}

/// Something in a folder, by the name it has there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FolderEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: FolderEntryKind,
    pub(crate) changed: FileTime,
}

/// The kind of an entry; a link has the kind of its target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FolderEntryKind {
    Folder,
    File { size: u64 },
}

/// The entries of a folder, one after the other, in the order the file system has.
#[derive(Debug)]
pub(crate) struct FolderEntries {
    dir: Dir,
    root: Arc<OwnedFd>,
    sight: Visibility,
    /// The folder's path, with a slash behind where it is not the root; a name is put there.
    prefix: Vec<u8>,
}

impl SiteFolder {
    pub(crate) fn new(descriptor: OwnedFd, site: &ServedSite, path: SitePath) -> SiteFolder {
        SiteFolder {
            path,
            descriptor,
            root: Arc::clone(&site.root),
            sight: site.rules.sight(),
        }
    }

    /// Which of its names may be seen.
    pub(crate) fn sight(&self) -> Visibility {
        self.sight
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    pub(crate) fn into_entries(self) -> Result<FolderEntries, Errno> {
        let mut prefix = self.path.bytes().to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        Ok(FolderEntries {
            dir: Dir::new(self.descriptor)?,
            root: self.root,
            sight: self.sight,
            prefix,
        })
    }
}

impl FolderEntries {
    /// The next entry that may be seen and passes `filter`, looked at; `NextEntry::Passed` for one
    /// that is not, so that the caller can bound the work.
    ///
    /// # Errors
    /// The folder cannot be read on.
    pub(crate) fn next(&mut self, filter: impl FnOnce(&[u8]) -> bool) -> Result<NextEntry, Errno> {
        let name = match self.dir.read() {
            Some(Ok(entry)) => entry.file_name().to_bytes().to_vec(),
            // It was deleted meanwhile, which is its end too.
            None | Some(Err(Errno::NOENT)) => return Ok(NextEntry::End),
            Some(Err(errno)) => return Err(errno),
        };
        if is_dots(&name) || self.sight.hides(&name) || !filter(&name) {
            return Ok(NextEntry::Passed);
        }
        let stat = match statat(self.dir.fd()?, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_link(&stat) => self.target(&name),
            other => other,
        };
        let seen = stat.ok().and_then(|stat| FolderEntry::of(name, &stat));
        Ok(seen.map_or(NextEntry::Passed, NextEntry::Seen))
    }

    /// A link's target. One that leads out or nowhere, or has become something else, is an error.
    fn target(&mut self, name: &[u8]) -> Result<Stat, Errno> {
        let length = self.prefix.len();
        self.prefix.extend_from_slice(name);
        let found = look_through(self.root.as_fd(), &self.prefix, self.sight.symlinks);
        self.prefix.truncate(length);
        found
    }
}

/// What became of one name.
#[derive(Debug)]
pub(crate) enum NextEntry {
    Seen(FolderEntry),
    /// Hidden, vanished, outside, or nothing that is served.
    Passed,
    End,
}

impl FolderEntry {
    fn of(name: Vec<u8>, stat: &Stat) -> Option<FolderEntry> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => FolderEntryKind::Folder,
            FileType::RegularFile => FolderEntryKind::File {
                size: u64::try_from(stat.st_size).unwrap_or(0),
            },
            _ => return None,
        };
        let changed = FileTime::of(stat);
        Some(FolderEntry {
            name,
            kind,
            changed,
        })
    }

    pub(crate) fn size(&self) -> u64 {
        match self.kind {
            FolderEntryKind::Folder => 0,
            FolderEntryKind::File { size } => size,
        }
    }

    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<FolderEntry>() + self.name.capacity()
    }
}

/// Whether a name is that of the folder itself or of the one above.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}
