//! What is served: folders and everything beneath them, each under its names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::error::Error;
use crate::options::SiteOptions;
use crate::site::beneath;
use crate::site::rules::{HostName, HostNames, SiteRules, Symlinks};

/// A folder that is served, and how. It is held open: renaming it does not change what is served.
#[derive(Debug)]
pub(crate) struct ServedSite {
    root: OwnedFd,
    pub(crate) rules: SiteRules,
    /// What its root is called where a folder is called by its name.
    pub(crate) called: String,
}

/// All that one server serves. The first site answers for every name that none has.
#[derive(Debug)]
pub(crate) struct ServedSites {
    pub(crate) all: Vec<ServedSite>,
    pub(crate) names: HostNames,
    /// The root of the file system, where links of a site may lead anywhere.
    everything: Option<OwnedFd>,
}

impl ServedSite {
    /// Opens the folder and makes sure that names can be kept beneath it.
    pub(crate) fn open(options: &SiteOptions) -> Result<ServedSite, Error> {
        let rules = SiteRules::new(options).map_err(|what| Error::Site {
            root: options.root.clone(),
            what,
        })?;
        let failed = |path: PathBuf, errno| Err(Error::Root { path, errno });
        let root = open_folder(&options.root)?;
        match beneath::probe(root.as_fd()) {
            Ok(()) => Ok(ServedSite {
                root,
                rules,
                called: called(options),
            }),
            Err(errno @ (Errno::NOSYS | Errno::PERM)) => Err(Error::NoBeneath { errno }),
            Err(errno) => failed(options.root.clone(), errno),
        }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// The site's first name, if it has one that can be a file's.
fn called(options: &SiteOptions) -> String {
    let mut names = options.names.iter().map(HostName::as_str);
    let name = names.find(|name| !name.contains('*'));
    name.unwrap_or("files").to_owned()
}

fn open_folder(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| Error::Root {
        path: path.to_owned(),
        errno,
    })
}

impl ServedSites {
    /// Opens all of them.
    pub(crate) fn open(options: &[SiteOptions]) -> Result<ServedSites, Error> {
        let names = HostNames::new(options.iter().map(|site| &site.names[..])).map_err(|name| {
            let name = name.to_string();
            Error::NameTaken { name }
        })?;
        let all: Vec<_> = options
            .iter()
            .map(ServedSite::open)
            .collect::<Result<_, _>>()?;
        if all.is_empty() {
            return Err(Error::NoSite);
        }
        let leads_anywhere = options.iter().any(|site| site.symlinks == Symlinks::All);
        let everything = match leads_anywhere {
            true => Some(open_folder(Path::new("/"))?),
            false => None,
        };
        Ok(ServedSites {
            all,
            names,
            everything,
        })
    }

    /// The folders beneath which everything is that may be opened.
    pub(crate) fn readable(&self) -> Vec<BorrowedFd<'_>> {
        let everything = self.everything.as_ref().map(OwnedFd::as_fd);
        match everything {
            Some(everything) => vec![everything],
            None => self.all.iter().map(ServedSite::root).collect(),
        }
    }
}
