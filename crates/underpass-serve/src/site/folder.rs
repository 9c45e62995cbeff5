//! An open folder and its visible entries.
//!
//! ```text
//!  getdents ─► hidden? ─► statx of the name ─┬─► folder, file          ─► Entry
//!              out             │             ├─► link: what it leads to by the site's rule, or out
//!              of the list ◄───┴─ vanished   └─► all else is out of the list
//! ```
//!
//! All of it waits for disks: call it on blocking threads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use rustix::io::Errno;
use underpass_http::fields::validator::FileTime;
use underpass_http::path::SitePath;

use crate::access::permits::Permits;
use crate::rules::{Symlinks, Visibility};
use crate::site::beneath::look_through;
use crate::site::settle::{joined, settle};
use crate::site::sites::ServedSite;
use crate::site::stamp::modified;

/// An open folder of a site.
#[derive(Debug)]
pub(crate) struct SiteFolder {
    pub(crate) path: SitePath,
    descriptor: OwnedFd,
    /// The root descriptor of the site, from which links are followed.
    root: Arc<OwnedFd>,
    sight: Visibility,
    restriction: Option<FolderRestriction>,
}

/// The access restriction of a folder.
#[derive(Clone, Debug)]
pub(crate) struct FolderRestriction {
    pub(crate) permits: Permits,
    /// The folder's path without links.
    pub(crate) settled: Vec<u8>,
}

/// An entry of a folder, by its name there.
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

/// The entries of a folder, in the order of the file system.
#[derive(Debug)]
pub(crate) struct FolderEntries {
    dir: Dir,
    root: Arc<OwnedFd>,
    sight: Visibility,
    restriction: Option<FolderRestriction>,
    /// The folder's path, with a trailing slash unless it is the root; names are appended to it.
    prefix: Vec<u8>,
}

impl SiteFolder {
    pub(crate) fn new(
        descriptor: OwnedFd,
        site: &ServedSite,
        path: SitePath,
        restriction: Option<FolderRestriction>,
    ) -> SiteFolder {
        SiteFolder {
            path,
            descriptor,
            root: Arc::clone(&site.root),
            sight: site.rules.sight(),
            restriction,
        }
    }

    /// Returns which of its names are visible.
    pub(crate) fn sight(&self) -> Visibility {
        self.sight
    }

    /// Returns the folder, the root that its links may not leave, and its restriction.
    pub(crate) fn into_parts(self) -> (OwnedFd, Arc<OwnedFd>, Option<FolderRestriction>) {
        (self.descriptor, self.root, self.restriction)
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
            restriction: self.restriction,
            prefix,
        })
    }
}

impl FolderEntries {
    /// Returns the next entry that is visible and passes `filter`, with its metadata;
    /// `NextEntry::Passed` for one that is not, so that the caller can limit the work.
    ///
    /// # Errors
    /// The rest of the folder cannot be read.
    pub(crate) fn next(&mut self, filter: impl FnOnce(&[u8]) -> bool) -> Result<NextEntry, Errno> {
        let name = match self.dir.read() {
            Some(Ok(entry)) => entry.file_name().to_bytes().to_vec(),
            // A folder deleted meanwhile ends too.
            None | Some(Err(Errno::NOENT)) => return Ok(NextEntry::End),
            Some(Err(errno)) => return Err(errno),
        };
        if is_dots(&name) || self.sight.hides(&name) || !filter(&name) {
            return Ok(NextEntry::Passed);
        }
        if let Some(restriction) = &self.restriction {
            let called = [&self.prefix[..], &name].concat();
            if !restriction.permits.allow(&called) || !restriction.allows(&name) {
                return Ok(NextEntry::Passed);
            }
        }
        let stat = match statat(self.dir.fd()?, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_link(&stat) => self.target(&name),
            other => other,
        };
        let seen = stat.ok().and_then(|stat| FolderEntry::of(name, &stat));
        Ok(seen.map_or(NextEntry::Passed, NextEntry::Seen))
    }

    /// Returns a link's target, or an error if it leads out, dangles or is no longer a link.
    fn target(&mut self, name: &[u8]) -> Result<Stat, Errno> {
        if let Some(restriction) = &self.restriction {
            return restriction.target(self.root.as_fd(), name, self.sight.symlinks);
        }
        let length = self.prefix.len();
        self.prefix.extend_from_slice(name);
        let found = look_through(self.root.as_fd(), &self.prefix, self.sight.symlinks);
        self.prefix.truncate(length);
        found
    }
}

impl FolderRestriction {
    /// Returns the path without links of something beneath the folder.
    fn path(&self, beneath: &[u8]) -> Vec<u8> {
        joined(&self.settled, beneath)
    }

    /// Whether something beneath the folder may be read.
    pub(crate) fn allows(&self, beneath: &[u8]) -> bool {
        self.permits.allow(&self.path(beneath))
    }

    /// Returns the target of a link beneath the folder, if it may be read.
    pub(crate) fn target(
        &self,
        root: BorrowedFd<'_>,
        beneath: &[u8],
        symlinks: Symlinks,
    ) -> Result<Stat, Errno> {
        let settled = settle(root, &self.path(beneath), symlinks)?;
        match settled.missing {
            _ if !self.permits.allow(&settled.name) => Err(Errno::NOENT),
            Some(errno) => Err(errno),
            None => look_through(root, &settled.name, Symlinks::None),
        }
    }
}

/// The result of reading one name.
#[derive(Debug)]
pub(crate) enum NextEntry {
    Seen(FolderEntry),
    /// Hidden, vanished, outside the root, or of a kind that is not served.
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
        let changed = modified(stat);
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

    /// Returns the approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<FolderEntry>() + self.name.capacity()
    }
}

/// Whether a name is `.` or `..`.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}
