//! Resolves a path to an open file beneath the root.
//!
//! If access rules exist, links are followed before anything is opened ([`crate::site::settle`]),
//! and the rules are checked for the final name.
//!
//! Everything after opening is decided on the open descriptor, so nothing can change between
//! checking and sending.
//!
//! Copies of a file in a content coding are in the same folder: `app.js.br` for `app.js`. One that
//! is older than the file was made from another state of it and is not used. A copy is looked up
//! when a client accepts that coding, and its presence or absence is cached for as long as the file
//! is kept open; for each response the copy is examined again, as the file is.

use std::rc::Rc;
use std::time::SystemTime;

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;
use underpass_http::fields::coding::Coding;
use underpass_http::path::{PathForm, SitePath};

use crate::access::audience::Audience;
use crate::access::permits::Permits;
use crate::rules::Symlinks;
use crate::site::beneath::{self, OPEN, open};
use crate::site::file::{Precompressed, Resolved, SiteFile};
use crate::site::folder::{FolderRestriction, SiteFolder};
use crate::site::settle::settle;
use crate::site::site_rules::RepresentationHeaders;
use crate::site::sites::ServedSite;

/// A site at one moment, and the permits of the requester.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteView<'s> {
    pub(crate) site: &'s ServedSite,
    /// `None` if everyone may read everything.
    pub(crate) permits: Option<&'s Permits>,
    pub(crate) now: SystemTime,
}

/// Opens the target of a path.
pub(crate) fn find(view: SiteView<'_>, path: SitePath) -> Resolved {
    view.site.watch_root(view.now);
    match path.form() {
        PathForm::File => named(view, path),
        PathForm::Folder => index(view, path),
    }
}

/// Opens a folder for reading, whether or not it has an index.
pub(crate) fn folder(view: SiteView<'_>, path: SitePath) -> Resolved {
    let place = match view.place(&path) {
        Ok(place) => place,
        Err(resolved) => return resolved,
    };
    let name = match place.name.as_deref().unwrap_or(path.bytes()) {
        b"" => b".",
        name => name,
    };
    let flags = OPEN | OFlags::DIRECTORY;
    match open(view.site.root(), name, flags, place.symlinks) {
        Ok(opened) => {
            let restriction = view.permits.map(|permits| FolderRestriction {
                permits: permits.clone(),
                settled: place.name.as_deref().unwrap_or(path.bytes()).to_vec(),
            });
            Resolved::NoIndex(SiteFolder::new(opened, view.site, path, restriction))
        }
        Err(errno) => missing(errno),
    }
}

/// Resolves a name to the file of that name; with pretty paths, to the one with `.html` appended;
/// or to the folder.
fn named(view: SiteView<'_>, path: SitePath) -> Resolved {
    let pretty = view.site.rules.options.pretty;
    let page = pretty.then(|| path.with_suffix(".html"));
    let found = at(view, path);
    match (found, page) {
        (found @ (Resolved::Folder(_) | Resolved::Nothing), Some(page)) => match at(view, page) {
            Resolved::Folder(_) | Resolved::Nothing => found,
            page => page,
        },
        (found, _) => found,
    }
}

/// Opens the first existing index of a folder, or else the folder.
fn index(view: SiteView<'_>, folder: SitePath) -> Resolved {
    for name in &view.site.rules.options.index {
        let index = folder.join(name.as_str().as_bytes(), PathForm::File);
        match at(view, index) {
            Resolved::Folder(_) | Resolved::Nothing => {}
            found => return found,
        }
    }
    self::folder(view, folder)
}

/// Resolves exactly this name.
fn at(view: SiteView<'_>, path: SitePath) -> Resolved {
    let rules = &view.site.rules;
    open_file(view, path, |path, settled| {
        rules.label(path, None, view.audience(path, settled))
    })
}

/// Opens the file with exactly this name; `label` describes it, by its path and its settled name.
fn open_file(
    view: SiteView<'_>,
    path: SitePath,
    label: impl FnOnce(&[u8], &[u8]) -> RepresentationHeaders,
) -> Resolved {
    let place = match view.place(&path) {
        Ok(place) => place,
        Err(resolved) => return resolved,
    };
    let name = place.name.as_deref().unwrap_or(path.bytes());
    match beneath::open_file(view.site.root(), name, place.symlinks) {
        Ok((stat, Some(opened))) => {
            let label = label(path.bytes(), name);
            let settled = place.name.map(Rc::from);
            let file = SiteFile::new(opened, path, &stat, label, view.now);
            Resolved::File(SiteFile { settled, ..file })
        }
        Ok((stat, None)) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Resolved::Folder(path),
            _ => Resolved::Nothing,
        },
        Err(errno) => missing(errno),
    }
}

/// The place where a file is opened.
struct Place {
    /// The name without links, if it differs from the path.
    name: Option<Vec<u8>>,
    /// The links that may still be followed.
    symlinks: Symlinks,
}

impl SiteView<'_> {
    /// Resolves `path`, if the requester may read both path and target. A denial by the path itself
    /// is returned before the disk is accessed, so that the time does not reveal whether it exists.
    fn place(&self, path: &SitePath) -> Result<Place, Resolved> {
        let symlinks = self.site.rules.options.symlinks;
        let Some(permits) = self.permits else {
            let name = None;
            return Ok(Place { name, symlinks });
        };
        permits.check(path.bytes()).map_err(Resolved::Refused)?;
        let settled = settle(self.site.root(), path.bytes(), symlinks).map_err(missing)?;
        permits.check(&settled.name).map_err(Resolved::Refused)?;
        match settled.missing {
            Some(errno) => Err(missing(errno)),
            None => Ok(Place {
                name: (settled.name != path.bytes()).then_some(settled.name),
                symlinks: Symlinks::None,
            }),
        }
    }

    /// Returns the audience of a file with this path, whose name without links is `settled`.
    fn audience(&self, path: &[u8], settled: &[u8]) -> Audience {
        match &self.site.access {
            Some(access) if !(access.rules.is_open(path) && access.rules.is_open(settled)) => {
                Audience::of(&access.options)
            }
            _ => Audience::Everyone,
        }
    }
}

/// Interprets an error of opening a name. ENXIO is a socket, ENODEV or ENXIO a device without a
/// driver; EXDEV means a path outside the root, ELOOP a cycle of links.
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

/// Returns the copy of `file` in a coding, if it is up to date and the requester may read it. If
/// access depends on names, neither the file nor the copy may have been reached through a link.
pub(crate) fn precompressed(
    view: SiteView<'_>,
    file: &SiteFile,
    coding: Coding,
) -> Option<SiteFile> {
    let path = file.path.with_suffix(coding.suffix());
    let is_allowed = |permits: &Permits| file.settled.is_none() && permits.allow(path.bytes());
    if !view.permits.is_none_or(is_allowed) {
        return None;
    }
    let mut copies = file.state.copies.borrow_mut();
    let copy = &mut copies[coding.index()];
    copy.look_again(view.now);
    if matches!(copy, Precompressed::Unknown) {
        *copy = look_for(view, file, coding);
    }
    match copy {
        Precompressed::There(state) if state.stamp.modified >= file.state.stamp.modified => {
            Some(SiteFile {
                path,
                settled: None,
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

fn look_for(view: SiteView<'_>, file: &SiteFile, coding: Coding) -> Precompressed {
    let path = file.path.with_suffix(coding.suffix());
    let rules = &view.site.rules;
    let label = |path: &[u8], settled: &[u8]| {
        rules.label(
            file.path.bytes(),
            Some(coding),
            view.audience(path, settled),
        )
    };
    match open_file(view, path, label) {
        Resolved::File(copy) if copy.settled.is_none() => Precompressed::There(copy.state),
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
