//! From a path to an open file, beneath the root.
//!
//! Everything after opening is decided on the open descriptor, so nothing can change between
//! looking and sending.

use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;

use crate::request::path::{PathForm, SitePath};
use crate::site::beneath::{OPEN, open};
use crate::site::file::SiteFile;
use crate::site::folder::SiteFolder;
use crate::site::rules::RepresentationHeaders;
use crate::site::sites::ServedSite;

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Resolved {
    File(SiteFile),
    /// A folder that was asked for without its slash.
    Folder(SitePath),
    /// A folder, open: one without an index, or one that was asked for as itself.
    NoIndex(SiteFolder),
    /// Nothing that is served: no such name, hidden, no regular file, outside the root.
    Nothing,
    /// Permission is missing.
    Forbidden,
    /// Descriptors or memory are exhausted, or renames are faster than the resolution.
    Busy(Errno),
    /// The file system failed.
    Failed(Errno),
}

/// Opens what a path leads to, at the time `now`.
pub(crate) fn find(site: &ServedSite, path: SitePath, now: SystemTime) -> Resolved {
    match path.form() {
        PathForm::File => named(site, path, now),
        PathForm::Folder => index(site, path, now),
    }
}

/// Opens a folder to be read, whether it has an index or not.
pub(crate) fn folder(site: &ServedSite, path: SitePath) -> Resolved {
    let name = match path.bytes() {
        b"" => b".",
        name => name,
    };
    let flags = OPEN | OFlags::DIRECTORY;
    let opened = open(site.root(), name, flags, site.rules.symlinks);
    let opened = opened.and_then(|opened| SiteFolder::new(opened, site, path));
    opened.map_or_else(missing, Resolved::NoIndex)
}

/// The file of the very name; where pretty paths are asked for, the one with `.html` behind; the
/// folder of the name.
fn named(site: &ServedSite, path: SitePath, now: SystemTime) -> Resolved {
    let page = site.rules.pretty.then(|| path.with_suffix(".html"));
    let found = at(site, path, now);
    match (found, page) {
        (found @ (Resolved::Folder(_) | Resolved::Nothing), Some(page)) => {
            match at(site, page, now) {
                Resolved::Folder(_) | Resolved::Nothing => found,
                page => page,
            }
        }
        (found, _) => found,
    }
}

/// Opens the first index of a folder that is there; where none is, the folder.
fn index(site: &ServedSite, folder: SitePath, now: SystemTime) -> Resolved {
    for name in &site.rules.index {
        let index = folder.join(name.as_str().as_bytes(), PathForm::File);
        match at(site, index, now) {
            Resolved::Folder(_) | Resolved::Nothing => {}
            found => return found,
        }
    }
    self::folder(site, folder)
}

/// What has this very name.
fn at(site: &ServedSite, path: SitePath, now: SystemTime) -> Resolved {
    open_file(site, path, now, |path| site.rules.label(path, None))
}

/// Opens what has exactly this name; `label` describes it.
pub(crate) fn open_file(
    site: &ServedSite,
    path: SitePath,
    now: SystemTime,
    label: impl FnOnce(&[u8]) -> RepresentationHeaders,
) -> Resolved {
    match open(site.root(), path.bytes(), OPEN, site.rules.symlinks) {
        Ok(opened) => known(opened, path, now, label),
        Err(errno) => missing(errno),
    }
}

/// Looks at what was opened.
fn known(
    opened: OwnedFd,
    path: SitePath,
    now: SystemTime,
    label: impl FnOnce(&[u8]) -> RepresentationHeaders,
) -> Resolved {
    let stat = match fstat(&opened) {
        Ok(stat) => stat,
        Err(errno) => return missing(errno),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let label = label(path.bytes());
            Resolved::File(SiteFile::new(opened, path, &stat, label, now))
        }
        FileType::Directory => Resolved::Folder(path),
        _ => Resolved::Nothing,
    }
}

/// What it means that a name could not be opened. ENXIO is a socket, ENODEV or ENXIO a device
/// without driver, EXDEV and ELOOP are what leads outside or in circles.
fn missing(errno: Errno) -> Resolved {
    match errno {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG
        | Errno::NXIO
        | Errno::NODEV
        | Errno::INVAL
        | Errno::STALE => Resolved::Nothing,
        Errno::ACCESS | Errno::PERM => Resolved::Forbidden,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR => {
            Resolved::Busy(errno)
        }
        _ => Resolved::Failed(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_its_meaning() {
        assert!(matches!(missing(Errno::XDEV), Resolved::Nothing));
        assert!(matches!(missing(Errno::ACCESS), Resolved::Forbidden));
        assert!(matches!(missing(Errno::MFILE), Resolved::Busy(_)));
        assert!(matches!(missing(Errno::IO), Resolved::Failed(_)));
    }
}
