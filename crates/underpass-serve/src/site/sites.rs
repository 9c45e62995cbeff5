//! The served sites: folders and everything beneath them, each under its names.

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
use crate::site::upload_area::UploadArea;

/// A served folder and its rules. It is held open: a later change of its path does not change the
/// served files, because workers are confined to this very folder, and because an incomplete
/// deployment should not be visible.
#[derive(Debug)]
pub(crate) struct ServedSite {
    pub(crate) root: Arc<OwnedFd>,
    /// The time of the last comparison with the path's current target, in seconds, and its result.
    compared: AtomicU64,
    reported: AtomicU8,
    pub(crate) rules: SiteRules,
    /// The access control of the site; `None` if everyone may read everything.
    pub(crate) access: Option<SiteAccess>,
    /// The name of the site in metrics: its first host name, or else its folder.
    pub(crate) label: Arc<str>,
    /// The name of the root in downloads, which otherwise are named after their folder.
    pub(crate) called: String,
    /// The folders that take files in, the longest paths first.
    pub(crate) uploads: Vec<UploadArea>,
}

/// All sites of a server. The first site serves every name that none has.
#[derive(Debug)]
pub(crate) struct ServedSites {
    pub(crate) all: Vec<ServedSite>,
    pub(crate) names: HostNames,
    /// Whether any site has restricted access.
    pub(crate) is_restricted: bool,
    /// The root of the file system, if links of a site may lead anywhere.
    everything: Option<OwnedFd>,
}

impl ServedSite {
    /// Opens the folder and checks that names can be confined to it.
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

    /// Warns once when the path of the root leads elsewhere. Checks once a second at most.
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

/// The current target of an open root's path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RootState {
    Same,
    Elsewhere,
    /// The path does not exist: the root has another name.
    Missing,
    /// The path does not exist: the root was removed.
    Removed,
}

impl RootState {
    /// Compares root and path; `None` if that fails, for example because the user may not search.
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

/// Returns the site's first name that can be a file name, if any.
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
    /// Opens all sites.
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

    /// Returns the folders beneath which files may be opened.
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
