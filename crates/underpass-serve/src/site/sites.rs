//! What is served: folders and everything beneath them, each under its names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;
use underpass_net::Reach;

use crate::access::store::SiteAccess;
use crate::error::Error;
use crate::options::SiteOptions;
use crate::site::beneath;
use crate::site::rules::{HostName, HostNames, SiteRules, Symlinks};
use crate::upload::areas::UploadArea;

/// A folder that is served, and how. It is held open: what its path leads to later does not change
/// what is served, because workers are confined to this very folder, and because a deployment in
/// mid-way should not be seen.
#[derive(Debug)]
pub(crate) struct ServedSite {
    pub(crate) root: Arc<OwnedFd>,
    /// When it was last compared with what its path leads to, in seconds, and what that was.
    compared: AtomicU64,
    reported: AtomicU8,
    pub(crate) rules: SiteRules,
    /// Who may read it; nothing if everyone may read everything.
    pub(crate) access: Option<SiteAccess>,
    /// The name of the site in metrics: its first host name, or else its folder.
    pub(crate) label: Arc<str>,
    /// What its root is called where a folder is called by its name.
    pub(crate) called: String,
    /// The folders that take files in, the longest paths first.
    pub(crate) uploads: Vec<UploadArea>,
}

/// All that one server serves. The first site answers for every name that none has.
#[derive(Debug)]
pub(crate) struct ServedSites {
    pub(crate) all: Vec<ServedSite>,
    pub(crate) names: HostNames,
    /// Whether there is one that not everyone may read.
    pub(crate) is_restricted: bool,
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
        let access = SiteAccess::open(&options.access)?;
        let failed = |path: PathBuf, errno| Err(Error::Root { path, errno });
        let root = open_folder(&options.root)?;
        match beneath::probe(root.as_fd()) {
            Ok(()) => Ok(ServedSite {
                uploads: UploadArea::open(options, root.as_fd())?,
                root: Arc::new(root),
                compared: AtomicU64::new(0),
                reported: AtomicU8::new(RootState::Same as u8),
                rules,
                access,
                label: label(options),
                called: called(options),
            }),
            Err(errno @ (Errno::NOSYS | Errno::PERM)) => Err(Error::NoBeneath { errno }),
            Err(errno) => failed(options.root.clone(), errno),
        }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Warns once when the path of the root leads elsewhere. Looks once a second at the most.
    pub(crate) fn watch_root(&self, now: SystemTime) {
        let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (compared, order) = (&self.compared, Ordering::Relaxed);
        if compared.load(order) == second || compared.swap(second, order) == second {
            return;
        }
        let path = &self.rules.options.root;
        let Some(state) = RootState::of(self.root(), path) else {
            return;
        };
        let before = self.reported.swap(state as u8, Ordering::Relaxed);
        let what = match state {
            _ if before == state as u8 => return,
            RootState::Same => "is the served folder again",
            RootState::Elsewhere => "leads to another folder now; the former one is still served",
            RootState::Missing => "does not exist any more; the renamed folder is still served",
            RootState::Removed => "was removed; nothing is served any more",
        };
        let path = path.display();
        match state {
            RootState::Same => tracing::warn!("{path} {what}"),
            _ => tracing::warn!("{path} {what}. SIGHUP opens it anew"),
        }
    }
}

/// What the path of an open root leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RootState {
    Same,
    Elsewhere,
    /// Nothing: the root has another name.
    Missing,
    /// Nothing: the root was removed.
    Removed,
}

impl RootState {
    /// `None` where that cannot be found out: the server's user may not look, for example.
    fn of(root: BorrowedFd<'_>, path: &Path) -> Option<RootState> {
        let held = fstat(root).ok()?;
        match stat(path) {
            Ok(found) if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino) => {
                Some(RootState::Same)
            }
            Ok(_) | Err(Errno::NOTDIR) => Some(RootState::Elsewhere),
            Err(Errno::NOENT) if held.st_nlink == 0 => Some(RootState::Removed),
            Err(Errno::NOENT) => Some(RootState::Missing),
            Err(_) => None,
        }
    }
}

fn label(options: &SiteOptions) -> Arc<str> {
    match options.names.first() {
        Some(name) => name.as_str().into(),
        None => options.root.display().to_string().into(),
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
            is_restricted: all.iter().any(|site| site.access.is_some()),
            all,
            names,
            everything,
        })
    }

    /// The folders beneath which everything is that may be opened.
    pub(crate) fn reach(&self) -> Reach<'_> {
        let everything = self.everything.as_ref().map(OwnedFd::as_fd);
        let uploads = self.all.iter().flat_map(|site| &site.uploads);
        Reach {
            readable: match everything {
                Some(everything) => vec![everything],
                None => self.all.iter().map(ServedSite::root).collect(),
            },
            writable: uploads.map(UploadArea::folder).collect(),
        }
    }
}
