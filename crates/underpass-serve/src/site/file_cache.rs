//! Files kept open between requests, for a moment.
//!
//! Resolving a name and opening it is half of what a small answer costs the kernel, and popular
//! files are asked for again at once. So a worker keeps the files it opened, each for
//! [`OPEN_FILE_KEPT`] at most, and looks at the open file anew (`fstat`) for every answer:
//!
//! | what happens | when it shows |
//! |---|---|
//! | the file is written in place or truncated | at once: size and date are read each time |
//! | it is deleted, or replaced by rename | at once: nothing links to the open file any more |
//! | the same, while another name links to it | after [`OPEN_FILE_KEPT`] |
//! | a folder or link on its path is replaced | after [`OPEN_FILE_KEPT`] |
//! | a file appears that would be preferred (another index) | after [`OPEN_FILE_KEPT`] |
//! | a copy in a content coding appears beside it | after [`OPEN_FILE_KEPT`] |
//! | permissions are taken away | after [`OPEN_FILE_KEPT`] |
//! | it is written through a mapping | with its date, which the kernel may set later |
//!
//! Where inotify reports changes of a file ([`crate::site::watcher`]), it is looked at
//! again only after one.
//!
//! Of a small file that is asked for more than once the content is kept too, as long as neither its
//! size nor its times change: a hot answer is then one `recv` and one `send`.
//!
//! Whatever is answered is one state of one file that had this name within that time. An open file
//! that was deleted keeps its space on disk; a sweep closes what is too old without a request.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::fstat;
use rustix::io::Errno;

use crate::limits::{CONTENTS_BYTES_MAX, OPEN_FILE_KEPT, OPEN_FILES_MAX};
use crate::metrics::worker_metrics::WorkerMetrics;
use crate::request::path::SitePath;
use crate::site::file::{FileSnapshot, SiteFile};
use crate::site::resolve::{Resolved, find};
use crate::site::sites::ServedSite;
use crate::site::watcher::{WatchedFile, WorkerWatcher};

/// The files one worker keeps open.
#[derive(Debug, Default)]
pub(crate) struct OpenFileCache {
    metrics: Arc<WorkerMetrics>,
    /// By [`SitePath::key`] of what was asked for.
    kept: RefCell<HashMap<Vec<u8>, CachedFile>>,
    /// Bytes of contents that were kept since there were no files.
    contents: Cell<usize>,
    watcher: Rc<WorkerWatcher>,
}

#[derive(Debug)]
struct CachedFile {
    /// Its own path, where another one leads to it: a folder's, or one without `.html`.
    path: Option<SitePath>,
    state: Rc<FileSnapshot>,
    opened: SystemTime,
    watched: Option<Rc<WatchedFile>>,
}

impl OpenFileCache {
    /// None yet; what happens to them is counted in `metrics` and reported by `watcher`.
    pub(crate) fn new(
        metrics: Arc<WorkerMetrics>,
        watcher: Rc<WorkerWatcher>,
    ) -> Rc<OpenFileCache> {
        Rc::new(OpenFileCache {
            metrics,
            watcher,
            ..OpenFileCache::default()
        })
    }

    /// What a path leads to, at the time `now`. Call it within a runtime of local tasks.
    pub(crate) fn find(
        self: &Rc<OpenFileCache>,
        site: &ServedSite,
        path: SitePath,
        now: SystemTime,
    ) -> Resolved {
        if let Some((own, state)) = self.kept(&path, now) {
            self.metrics.files.hits.add(1);
            return Resolved::File(SiteFile::known(own.unwrap_or(path), state));
        }
        self.metrics.files.misses.add(1);
        match find(site, path.clone(), now) {
            Resolved::File(file) => {
                self.keep(&path, &file, now);
                Resolved::File(file)
            }
            // Descriptors ran out: those kept here are the first to go.
            Resolved::Busy(Errno::MFILE | Errno::NFILE) if self.give_up() => find(site, path, now),
            found => found,
        }
    }

    /// The file that this path leads to, if it is kept and still has a name.
    fn kept(
        &self,
        path: &SitePath,
        now: SystemTime,
    ) -> Option<(Option<SitePath>, Rc<FileSnapshot>)> {
        let key = path.key();
        let mut kept = self.kept.borrow_mut();
        let entry = kept.get_mut(&*key)?;
        if !entry.is_fresh(now) {
            return None;
        }
        if entry.is_unchanged() {
            return Some((entry.path.clone(), Rc::clone(&entry.state)));
        }
        if entry.watched.is_none() {
            // Before it is looked at for the second time.
            entry.watched = self.watcher.add(&*entry.state.descriptor);
        }
        match fstat(&entry.state.descriptor) {
            Ok(stat) if stat.st_nlink > 0 => {
                entry.state = entry.state.looked_at_again(&stat, now);
                self.keep_content(&entry.state);
                Some((entry.path.clone(), Rc::clone(&entry.state)))
            }
            _ => {
                kept.remove(&*key);
                self.count_closed(1);
                None
            }
        }
    }

    fn keep_content(&self, state: &FileSnapshot) {
        if self.contents.get() < CONTENTS_BYTES_MAX {
            let bytes = state.keep_content();
            self.contents.set(self.contents.get() + bytes);
        }
    }

    fn keep(self: &Rc<OpenFileCache>, asked: &SitePath, file: &SiteFile, now: SystemTime) {
        let key = asked.key();
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= OPEN_FILES_MAX && !kept.contains_key(&*key) {
            return;
        }
        if kept.is_empty() {
            tokio::task::spawn_local(sweep(Rc::downgrade(self)));
        }
        let entry = CachedFile {
            path: (*asked != file.path).then(|| file.path.clone()),
            state: Rc::clone(&file.state),
            opened: now,
            watched: None,
        };
        match kept.insert(key.into_owned(), entry) {
            None => self.metrics.files.kept.add(1),
            Some(_old) => self.metrics.files.closed.add(1),
        }
    }

    /// Closes all that is not being sent. Says whether there was any.
    fn give_up(&self) -> bool {
        let mut kept = self.kept.borrow_mut();
        let count = kept.len();
        kept.clear();
        self.contents.set(0);
        self.count_closed(count);
        count > 0
    }

    fn count_closed(&self, count: usize) {
        let (metrics, count) = (&self.metrics.files, count as u64);
        metrics.closed.add(count);
        metrics.kept.set(metrics.kept.value().saturating_sub(count));
    }
}

impl CachedFile {
    /// Whether the last look at the file still holds: no event reported a change since, and its
    /// date has settled, so that responses do not depend on the time.
    fn is_unchanged(&self) -> bool {
        let is_quiet = |watched: &Rc<WatchedFile>| !watched.changed.replace(false);
        self.state.validators.modified.is_some() && self.watched.as_ref().is_some_and(is_quiet)
    }

    /// A clock that was set back ends it too.
    fn is_fresh(&self, now: SystemTime) -> bool {
        now.duration_since(self.opened)
            .is_ok_and(|age| age < OPEN_FILE_KEPT)
    }
}

/// Closes what is too old, until there is nothing left to close.
async fn sweep(files: Weak<OpenFileCache>) {
    loop {
        tokio::time::sleep(OPEN_FILE_KEPT).await;
        let Some(files) = files.upgrade() else {
            return;
        };
        let now = SystemTime::now();
        let mut kept = files.kept.borrow_mut();
        let before = kept.len();
        kept.retain(|_, entry| entry.is_fresh(now));
        files.count_closed(before - kept.len());
        let contents = kept.values().filter_map(|entry| entry.state.content());
        files.contents.set(contents.map(<[u8]>::len).sum());
        if kept.is_empty() {
            return;
        }
    }
}
