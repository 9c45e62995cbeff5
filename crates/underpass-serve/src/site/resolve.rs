//! From a path to an open file, beneath the root.
//!
//! Everything after opening is decided on the open descriptor, so nothing can change between
//! looking and sending.
//!
//! Copies of a file in a content coding lie beside it: `app.js.br` for `app.js`. One that is older
//! than the file was made of another state of it and is not used. What is beside a file is looked
//! up when a client accepts that coding, and remembered, missing or not, for as long as the file is
//! kept open; for each answer the copy is looked at anew, as the file is.

use std::rc::Rc;
use std::time::SystemTime;

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;

use crate::http::coding::Coding;
use crate::request::path::{PathForm, SitePath};
use crate::site::beneath::{self, OPEN, open};
use crate::site::file::{Precompressed, Resolved, SiteFile};
use crate::site::folder::SiteFolder;
use crate::site::rules::RepresentationHeaders;
use crate::site::sites::ServedSite;

/// Opens what a path leads to, at the time `now`.
pub(crate) fn find(site: &ServedSite, path: SitePath, now: SystemTime) -> Resolved {
    site.watch_root(now);
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
    let opened = open(site.root(), name, flags, site.rules.options.symlinks);
    opened.map_or_else(missing, |opened| {
        Resolved::NoIndex(SiteFolder::new(opened, site, path))
    })
}

/// The file of the very name; where pretty paths are asked for, the one with `.html` behind; the
/// folder of the name.
fn named(site: &ServedSite, path: SitePath, now: SystemTime) -> Resolved {
    let page = site.rules.options.pretty.then(|| path.with_suffix(".html"));
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
    for name in &site.rules.options.index {
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
    match beneath::open_file(site.root(), path.bytes(), site.rules.options.symlinks) {
        Ok((stat, Some(opened))) => {
            let label = label(path.bytes());
            Resolved::File(SiteFile::new(opened, path, &stat, label, now))
        }
        Ok((stat, None)) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Resolved::Folder(path),
            _ => Resolved::Nothing,
        },
        Err(errno) => missing(errno),
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

/// The copy of `file` in a coding, if there is one of this state of it, at the time `now`.
pub(crate) fn precompressed(
    site: &ServedSite,
    file: &SiteFile,
    coding: Coding,
    now: SystemTime,
) -> Option<SiteFile> {
    let mut copies = file.state.copies.borrow_mut();
    let copy = &mut copies[coding.index()];
    copy.look_again(now);
    if matches!(copy, Precompressed::Unknown) {
        *copy = look_for(site, file, coding, now);
    }
    match copy {
        Precompressed::There(state) if state.stamp.modified >= file.state.stamp.modified => {
            Some(SiteFile {
                path: file.path.with_suffix(coding.suffix()),
                state: Rc::clone(state),
                save_as: file.save_as.clone(),
            })
        }
        _ => None,
    }
}

impl Precompressed {
    fn look_again(&mut self, now: SystemTime) {
        if let Precompressed::There(state) = self {
            *self = match fstat(&state.descriptor) {
                Ok(stat) if stat.st_nlink > 0 => {
                    Precompressed::There(state.looked_at_again(&stat, now))
                }
                _ => Precompressed::Unknown,
            };
        }
    }
}

fn look_for(site: &ServedSite, file: &SiteFile, coding: Coding, now: SystemTime) -> Precompressed {
    let path = file.path.with_suffix(coding.suffix());
    let label = |_: &[u8]| site.rules.label(file.path.bytes(), Some(coding));
    match open_file(site, path, now, label) {
        Resolved::File(copy) => Precompressed::There(copy.state),
        _ => Precompressed::Missing,
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
