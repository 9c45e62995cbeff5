//! What is served: folders and everything beneath them, each under its names.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::error::Error;
use crate::host::split_port;
use crate::options::SiteOptions;
use crate::resolve;

/// A folder that is served. It is held open: renaming it does not change what is served.
#[derive(Debug)]
pub(crate) struct Site {
    root: OwnedFd,
    /// What there is beside its files.
    pub(crate) extras: Extras,
    /// What its root is called where a folder is called by its name.
    pub(crate) called: String,
}

/// What a site offers beside the files as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    pub(crate) listing: Listings,
    pub(crate) archives: Archives,
    pub(crate) hashes: Hashes,
}

/// Whether folders without an index are listed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Listings {
    Offered,
    Off,
}

/// Whether folders may be asked for as archives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Archives {
    Offered,
    Off,
}

/// Whether files may be asked for their hashes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hashes {
    Offered,
    Off,
}

impl Extras {
    fn of(options: &SiteOptions) -> Extras {
        Extras {
            listing: match options.listing {
                true => Listings::Offered,
                false => Listings::Off,
            },
            archives: match options.archives {
                true => Archives::Offered,
                false => Archives::Off,
            },
            hashes: match options.hashes {
                true => Hashes::Offered,
                false => Hashes::Off,
            },
        }
    }
}

/// All that one server serves. The first site answers for every name that none has.
#[derive(Debug)]
pub(crate) struct Sites {
    sites: Vec<Site>,
    /// By name, in lower case.
    names: HashMap<Vec<u8>, usize>,
}

impl Site {
    /// Opens the folder and makes sure that names can be kept beneath it.
    fn open(options: &SiteOptions) -> Result<Site, Error> {
        let failed = |path: PathBuf, errno| Err(Error::Root { path, errno });
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match open(&options.root, flags, Mode::empty()) {
            Ok(root) => root,
            Err(errno) => return failed(options.root.clone(), errno),
        };
        match resolve::probe(root.as_fd()) {
            Ok(()) => Ok(Site {
                root,
                extras: Extras::of(options),
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
    let usable = |name: &&String| !name.is_empty() && !name.contains(['/', '\0']);
    let name = options.names.first().filter(usable);
    name.map_or_else(|| "files".to_owned(), String::clone)
}

impl Sites {
    /// Opens all of them.
    pub(crate) fn open(options: &[SiteOptions]) -> Result<Sites, Error> {
        let mut names = HashMap::new();
        for (number, site) in options.iter().enumerate() {
            for name in &site.names {
                let key = name.to_ascii_lowercase().into_bytes();
                if names.insert(key, number).is_some() {
                    return Err(Error::NameTaken { name: name.clone() });
                }
            }
        }
        let sites: Vec<_> = options.iter().map(Site::open).collect::<Result<_, _>>()?;
        match sites.is_empty() {
            true => Err(Error::NoSite),
            false => Ok(Sites { sites, names }),
        }
    }

    /// The number of the site that answers for an authority: its port doesn't matter.
    pub(crate) fn number_of(&self, authority: Option<&[u8]>) -> usize {
        if self.names.is_empty() {
            return 0;
        }
        let (name, _port) = split_port(authority.unwrap_or_default());
        let number = self.names.get(&name.to_ascii_lowercase());
        number.copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> &[Site] {
        &self.sites
    }
}
