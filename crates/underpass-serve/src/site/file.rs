//! An open regular file of the site, with everything a response says about it; and the cache of
//! files that a worker keeps open for a short time between requests.
//!
//! Resolving a name and opening it is half the kernel's work for a small response, and popular
//! files are requested again immediately. So a worker keeps the files it opened, each for
//! [`OPEN_FILE_KEPT`] at most, and calls `fstat` on the open file for every response: size and date
//! are read each time, and the link count shows that a file was deleted or replaced. Changes that
//! show only after [`OPEN_FILE_KEPT`] are listed in docs/serve.md, "How bodies are sent".
//!
//! If inotify reports changes of a file ([`crate::site::watcher`]), `fstat` is called only after an
//! event; a name that still leads to the same file keeps its watch.
//!
//! The content of a small file that is requested more than once is cached too, as long as neither
//! its size nor its times change: a hot response is then one `recv` and one `send`.
//!
//! Every response is one state of one file that had this name within that time. An open file that
//! was deleted keeps its space on disk; a sweep closes files that were not requested for a while.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{Stat, fstat};
use rustix::io::Errno;
use underpass::SharedFile;
use underpass::drive::tokio::read_cached;
use underpass_http::fields::coding::Coding;
use underpass_http::fields::validator::Validators;
use underpass_http::fields::writer::push_field;
use underpass_http::path::SitePath;

use crate::access::rules::AccessRefusal;
use crate::limits::{CONTENT_BYTES_MAX, OPEN_FILE_KEPT, OPEN_FILES_MAX};
use crate::metrics::worker_metrics::WorkerMetrics;
use crate::rules::EtagRecipe;
use crate::site::folder::SiteFolder;
use crate::site::site_rules::RepresentationHeaders;
use crate::site::stamp::FileStamp;
use crate::site::watcher::{WatchedFile, WorkerWatcher};

/// The result of resolving a path.
#[derive(Debug)]
pub(crate) enum Resolved {
    File(SiteFile),
    /// A folder requested without its trailing slash.
    Folder(SitePath),
    /// An open folder: one without an index, or one that was requested itself.
    NoIndex(SiteFolder),
    /// Nothing that is served: no such name, hidden, not a regular file, or outside the root.
    Nothing,
    /// The server lacks the permission.
    Forbidden,
    /// The rules of the site deny the requester this name, whether or not it exists.
    Refused(AccessRefusal),
    /// Descriptors or memory are exhausted, or renames are faster than the resolution.
    Busy(Errno),
    /// The file system failed.
    Failed(Errno),
}

/// An open file under the path that led to it.
#[derive(Clone, Debug)]
pub(crate) struct SiteFile {
    pub(crate) path: SitePath,
    /// The path without links, if known and different.
    pub(crate) settled: Option<Rc<[u8]>>,
    pub(crate) state: Rc<FileSnapshot>,
    /// The name under which browsers save the file, if it is a download.
    pub(crate) save_as: Option<Box<[u8]>>,
}

/// The properties of a file when it was last examined.
#[derive(Debug)]
pub(crate) struct FileSnapshot {
    pub(crate) descriptor: Arc<SharedFile>,
    pub(crate) stamp: FileStamp,
    pub(crate) validators: Validators,
    pub(crate) label: Rc<RepresentationHeaders>,
    /// The formatted fields of every response with content of this file: most responses to most
    /// requests differ only in their date.
    pub(crate) fields: Vec<u8>,
    /// Copies of the file in content codings, if requested so far.
    pub(crate) copies: PrecompressedCopies,
    /// The content, once it has been worth caching.
    content: OnceCell<Arc<Vec<u8>>>,
}

/// The cached copies of one state of a file.
pub(crate) type PrecompressedCopies = RefCell<[Precompressed; Coding::ALL.len()]>;

/// The cached state of one copy.
#[derive(Debug, Default)]
pub(crate) enum Precompressed {
    #[default]
    Unknown,
    Missing,
    There(Rc<FileSnapshot>),
}

impl SiteFile {
    /// Creates a file that was just opened, at the time `now`.
    pub(crate) fn new(
        opened: OwnedFd,
        path: SitePath,
        stat: &Stat,
        label: RepresentationHeaders,
        now: SystemTime,
    ) -> SiteFile {
        let state = FileSnapshot::new(SharedFile::new(opened), stat, Rc::new(label), now);
        SiteFile::known(path, Rc::new(state))
    }

    /// Creates a file with a known state.
    pub(crate) fn known(path: SitePath, state: Rc<FileSnapshot>) -> SiteFile {
        SiteFile {
            path,
            settled: None,
            state,
            save_as: None,
        }
    }

    /// Returns the name on which access rules are checked.
    pub(crate) fn settled(&self) -> &[u8] {
        self.settled.as_deref().unwrap_or(self.path.bytes())
    }

    /// Returns the same file, to be compressed while it is sent.
    pub(crate) fn into_compressed(self, coding: Coding) -> SiteFile {
        let state = Rc::new(self.state.compressed(coding));
        SiteFile { state, ..self }
    }

    /// Returns the same file, to be saved under its own name.
    pub(crate) fn into_download(self) -> SiteFile {
        let save_as = Some(self.path.name().into());
        SiteFile { save_as, ..self }
    }
}

impl FileSnapshot {
    fn new(
        descriptor: Arc<SharedFile>,
        stat: &Stat,
        label: Rc<RepresentationHeaders>,
        now: SystemTime,
    ) -> FileSnapshot {
        let stamp = FileStamp::of(stat);
        let inode = match label.etag {
            EtagRecipe::MtimeSizeInode => Some(stamp.identity.1),
            EtagRecipe::MtimeSize => None,
        };
        let validators = Validators::new(stamp.modified, stamp.size, inode, label.coding, now);
        let (ranges, coding) = (&b"\r\nAccept-Ranges: bytes"[..], label.coding);
        FileSnapshot {
            fields: written(&validators, ranges, &label, coding),
            descriptor,
            stamp,
            validators,
            label,
            content: OnceCell::new(),
            copies: PrecompressedCopies::default(),
        }
    }

    /// Returns the same state for compression while it is sent: of unknown length, no ranges.
    fn compressed(&self, coding: Coding) -> FileSnapshot {
        let validators = self.validators.compressed(coding);
        FileSnapshot {
            fields: written(&validators, b"", &self.label, Some(coding)),
            descriptor: Arc::clone(&self.descriptor),
            stamp: self.stamp,
            validators,
            label: Rc::clone(&self.label),
            content: OnceCell::new(),
            copies: PrecompressedCopies::default(),
        }
    }

    /// Returns the current state of the open file: this one if unchanged and its date has settled.
    pub(crate) fn looked_at_again(
        self: &Rc<FileSnapshot>,
        stat: &Stat,
        now: SystemTime,
    ) -> Rc<FileSnapshot> {
        if self.stamp == FileStamp::of(stat) && self.validators.modified.is_some() {
            return Rc::clone(self);
        }
        let (descriptor, label) = (Arc::clone(&self.descriptor), Rc::clone(&self.label));
        Rc::new(FileSnapshot::new(descriptor, stat, label, now))
    }

    /// Whether the open file still has this state, according to `fstat`.
    pub(crate) fn is_still_so(&self) -> bool {
        fstat(&self.descriptor).is_ok_and(|stat| self.stamp == FileStamp::of(&stat))
    }

    /// Returns the cached content.
    pub(crate) fn content(&self) -> Option<&Arc<Vec<u8>>> {
        self.content.get()
    }

    /// Caches the content, if it is small, in the page cache, and the date has settled (a change
    /// that no date shows could go unnoticed otherwise).
    pub(crate) fn keep_content(&self) {
        if (1..=CONTENT_BYTES_MAX).contains(&self.stamp.size)
            && self.validators.modified.is_some()
            && self.content.get().is_none()
            && let Some(content) = read_cached(&self.descriptor, self.stamp.size as usize)
        {
            let _ = self.content.set(Arc::new(content));
        }
    }
}

/// Formats the fields of every response with content of a file.
fn written(
    validators: &Validators,
    ranges: &[u8],
    label: &RepresentationHeaders,
    coding: Option<Coding>,
) -> Vec<u8> {
    let mut fields = Vec::with_capacity(FIELDS_BYTES + label.fields.len());
    validators.push_to(&mut fields);
    fields.extend_from_slice(ranges);
    fields.extend_from_slice(&label.fields);
    if let Some(coding) = coding {
        push_field(&mut fields, "Content-Encoding", coding.name());
    }
    fields
}

/// The typical maximum size of the formatted fields.
const FIELDS_BYTES: usize = 192;

/// The files that one worker keeps open.
#[derive(Debug, Default)]
pub(crate) struct OpenFileCache {
    metrics: Arc<WorkerMetrics>,
    /// By [`SitePath::key`] of the requested path.
    kept: RefCell<HashMap<Vec<u8>, CachedFile>>,
    watcher: Rc<WorkerWatcher>,
}

#[derive(Debug)]
struct CachedFile {
    /// The file's path, if it differs from the requested one: an index, or a path with `.html`.
    path: Option<SitePath>,
    settled: Option<Rc<[u8]>>,
    state: Rc<FileSnapshot>,
    opened: SystemTime,
    watched: Option<Rc<WatchedFile>>,
}

impl OpenFileCache {
    /// Creates an empty cache, counted in `metrics`, whose files are watched by `watcher`.
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

    /// Resolves a path, at the time `now`; calls `open` if it is not cached. Must be called within
    /// a runtime of local tasks.
    pub(crate) fn find(
        self: &Rc<OpenFileCache>,
        path: SitePath,
        now: SystemTime,
        open: impl Fn(SitePath) -> Resolved,
    ) -> Resolved {
        let path = match self.kept(path, now) {
            Ok(file) => {
                self.metrics.files.hits.add(1);
                return Resolved::File(file);
            }
            Err(path) => path,
        };
        self.metrics.files.misses.add(1);
        match open(path.clone()) {
            Resolved::File(file) => {
                self.keep(&path, &file, now);
                Resolved::File(file)
            }
            found => found,
        }
    }

    /// Returns the file of this path, if it is cached and still has a name; else the path.
    fn kept(&self, path: SitePath, now: SystemTime) -> Result<SiteFile, SitePath> {
        let mut kept = self.kept.borrow_mut();
        let entry = kept.get_mut(&*path.key());
        let Some(entry) = entry.filter(|it| it.is_younger(it.lifetime(), now)) else {
            return Err(path);
        };
        if !entry.is_unchanged() {
            if entry.watched.is_none() {
                // Watched before it is examined for the second time.
                entry.watched = self.watcher.add(&*entry.state.descriptor);
            }
            match fstat(&entry.state.descriptor) {
                Ok(stat) if stat.st_nlink > 0 => {
                    entry.state = entry.state.looked_at_again(&stat, now);
                    entry.state.keep_content();
                }
                _ => {
                    kept.remove(&*path.key());
                    self.count_closed(1);
                    return Err(path);
                }
            }
        }
        Ok(SiteFile {
            path: entry.path.clone().unwrap_or(path),
            settled: entry.settled.clone(),
            state: Rc::clone(&entry.state),
            save_as: None,
        })
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
        // While the former one is open, no other file can have its inode.
        let identity = file.state.stamp.identity;
        let former = kept.get(&*key);
        let former = former.filter(|it| it.state.stamp.identity == identity);
        let watched = former.and_then(|it| it.watched.clone());
        if watched.is_some() {
            file.state.keep_content();
        }
        let entry = CachedFile {
            path: (*asked != file.path).then(|| file.path.clone()),
            settled: file.settled.clone(),
            state: Rc::clone(&file.state),
            opened: now,
            watched,
        };
        match kept.insert(key.into_owned(), entry) {
            None => self.metrics.files.kept.add(1),
            Some(_old) => self.metrics.files.closed.add(1),
        }
    }

    /// Closes all files that are not being sent.
    pub(crate) fn give_up(&self) {
        let mut kept = self.kept.borrow_mut();
        let count = kept.len();
        kept.clear();
        self.count_closed(count);
    }

    fn count_closed(&self, count: usize) {
        let (metrics, count) = (&self.metrics.files, count as u64);
        metrics.closed.add(count);
        metrics.kept.set(metrics.kept.value().saturating_sub(count));
    }
}

impl CachedFile {
    /// Whether the last examination of the file still holds: no event has reported a change since,
    /// and its date has settled, so that responses do not depend on the time.
    fn is_unchanged(&self) -> bool {
        let is_quiet = |watched: &Rc<WatchedFile>| !watched.changed.replace(false);
        self.state.validators.modified.is_some() && self.watched.as_ref().is_some_and(is_quiet)
    }

    /// Returns how long the file is used before its name is resolved again. It differs by file, so
    /// that many files opened together are not all reopened together.
    fn lifetime(&self) -> Duration {
        OPEN_FILE_KEPT - Duration::from_millis(self.state.stamp.identity.1 % 256)
    }

    /// Whether the file is younger than `limit`; a clock that was set back makes it old too.
    fn is_younger(&self, limit: Duration, now: SystemTime) -> bool {
        now.duration_since(self.opened).is_ok_and(|age| age < limit)
    }
}

/// Closes expired files until none are left.
async fn sweep(files: Weak<OpenFileCache>) {
    loop {
        tokio::time::sleep(OPEN_FILE_KEPT).await;
        let Some(files) = files.upgrade() else {
            return;
        };
        let now = SystemTime::now();
        let mut kept = files.kept.borrow_mut();
        let before = kept.len();
        // The next request for a popular file may be about to take over its watch.
        kept.retain(|_, entry| entry.is_younger(2 * OPEN_FILE_KEPT, now));
        files.count_closed(before - kept.len());
        if kept.is_empty() {
            return;
        }
    }
}
