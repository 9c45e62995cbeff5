//! A regular file of the site, open, with everything an answer says about it; and the files that a
//! worker keeps open between requests, for a moment.
//!
//! Resolving a name and opening it is half of what a small answer costs the kernel, and popular
//! files are asked for again at once. So a worker keeps the files it opened, each for
//! [`OPEN_FILE_KEPT`] at most, and looks at the open file anew (`fstat`) for every answer: size and
//! date are read each time, and nothing links to a file any more that was deleted or replaced. What
//! shows only after [`OPEN_FILE_KEPT`] is listed in docs/serve.md, "How bodies are sent".
//!
//! Where inotify reports changes of a file ([`crate::site::watcher`]), it is looked at
//! again only after one; a name that still leads to the same file keeps its watch.
//!
//! Of a small file that is asked for more than once the content is kept too, as long as neither its
//! size nor its times change: a hot answer is then one `recv` and one `send`.
//!
//! Whatever is answered is one state of one file that had this name within that time. An open file
//! that was deleted keeps its space on disk; a sweep closes what nobody has asked for in a while.

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

use crate::access::rules::AccessRefusal;
use crate::http::coding::Coding;
use crate::http::fields::push_field;
use crate::http::validator::{FileStamp, Validators};
use crate::limits::{CONTENT_BYTES_MAX, OPEN_FILE_KEPT, OPEN_FILES_MAX};
use crate::metrics::worker_metrics::WorkerMetrics;
use crate::request::path::SitePath;
use crate::site::folder::SiteFolder;
use crate::site::rules::{EtagRecipe, RepresentationHeaders};
use crate::site::watcher::{WatchedFile, WorkerWatcher};

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
    /// The server's permission is missing.
    Forbidden,
    /// The rules of the site do not let the asker read what has this name, whether it exists or
    /// not.
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
    /// What it is called without links, where that is known and not its path.
    pub(crate) settled: Option<Rc<[u8]>>,
    pub(crate) state: Rc<FileSnapshot>,
    /// The name it is to be saved under, if it is not to be shown.
    pub(crate) save_as: Option<Box<[u8]>>,
}

/// What was true of a file when it was last looked at.
#[derive(Debug)]
pub(crate) struct FileSnapshot {
    pub(crate) descriptor: Arc<SharedFile>,
    pub(crate) stamp: FileStamp,
    pub(crate) validators: Validators,
    pub(crate) label: Rc<RepresentationHeaders>,
    /// The fields of every answer with content of this file, written out: most answers to most
    /// requests are the same but for their date.
    pub(crate) fields: Vec<u8>,
    /// Copies of it in content codings, as far as anybody asked for them.
    pub(crate) copies: PrecompressedCopies,
    /// What it holds, once that has been worth keeping.
    content: OnceCell<Arc<Vec<u8>>>,
}

/// What is known of the copies of one state of a file.
pub(crate) type PrecompressedCopies = RefCell<[Precompressed; Coding::ALL.len()]>;

/// What is known of one copy.
#[derive(Debug, Default)]
pub(crate) enum Precompressed {
    #[default]
    Unknown,
    Missing,
    There(Rc<FileSnapshot>),
}

impl SiteFile {
    /// A file that was just opened, at the time `now`.
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

    /// A file whose state is known.
    pub(crate) fn known(path: SitePath, state: Rc<FileSnapshot>) -> SiteFile {
        SiteFile {
            path,
            settled: None,
            state,
            save_as: None,
        }
    }

    /// The name that decides who may read it.
    pub(crate) fn settled(&self) -> &[u8] {
        self.settled.as_deref().unwrap_or(self.path.bytes())
    }

    /// The same file, to be compressed while it is sent.
    pub(crate) fn into_compressed(self, coding: Coding) -> SiteFile {
        let state = Rc::new(self.state.compressed(coding));
        SiteFile { state, ..self }
    }

    /// The same, to be saved under its own name.
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

    /// The same state, to be compressed while it is sent: of unknown length, without ranges.
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

    /// The same open file, as it is now: this one if nothing has changed, its date having settled.
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

    /// Whether the open file still looks as this says: it is asked.
    pub(crate) fn is_still_so(&self) -> bool {
        fstat(&self.descriptor).is_ok_and(|stat| self.stamp == FileStamp::of(&stat))
    }

    /// What the file holds, if that is in memory.
    pub(crate) fn content(&self) -> Option<&Arc<Vec<u8>>> {
        self.content.get()
    }

    /// Keeps what the file holds, if it is small, its date has settled (or a change that no date
    /// shows could go unseen), and it is in the page cache.
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

/// What every answer with content of a file says.
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

/// What the written fields need at most, about.
const FIELDS_BYTES: usize = 192;

/// The files one worker keeps open.
#[derive(Debug, Default)]
pub(crate) struct OpenFileCache {
    metrics: Arc<WorkerMetrics>,
    /// By [`SitePath::key`] of what was asked for.
    kept: RefCell<HashMap<Vec<u8>, CachedFile>>,
    watcher: Rc<WorkerWatcher>,
}

#[derive(Debug)]
struct CachedFile {
    /// Its own path, where another one leads to it: a folder's, or one without `.html`.
    path: Option<SitePath>,
    settled: Option<Rc<[u8]>>,
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

    /// What a path leads to, at the time `now`; `open` looks where none is kept. Call it within a
    /// runtime of local tasks.
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

    /// The file that this path leads to, if it is kept and still has a name; else the path.
    fn kept(&self, path: SitePath, now: SystemTime) -> Result<SiteFile, SitePath> {
        let mut kept = self.kept.borrow_mut();
        let entry = kept.get_mut(&*path.key());
        let Some(entry) = entry.filter(|it| it.is_younger(it.lifetime(), now)) else {
            return Err(path);
        };
        if !entry.is_unchanged() {
            if entry.watched.is_none() {
                // Before it is looked at for the second time.
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

    /// Closes all that is not being sent.
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
    /// Whether the last look at the file still holds: no event reported a change since, and its
    /// date has settled, so that responses do not depend on the time.
    fn is_unchanged(&self) -> bool {
        let is_quiet = |watched: &Rc<WatchedFile>| !watched.changed.replace(false);
        self.state.validators.modified.is_some() && self.watched.as_ref().is_some_and(is_quiet)
    }

    /// How long it is used before its name is resolved again. It differs by file: many that were
    /// opened at once are not all opened again at once.
    fn lifetime(&self) -> Duration {
        OPEN_FILE_KEPT - Duration::from_millis(self.state.stamp.identity.1 % 256)
    }

    /// A clock that was set back makes it old too.
    fn is_younger(&self, limit: Duration, now: SystemTime) -> bool {
        now.duration_since(self.opened).is_ok_and(|age| age < limit)
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
        // The next request for a popular one may be about to take over its watch.
        kept.retain(|_, entry| entry.is_younger(2 * OPEN_FILE_KEPT, now));
        files.count_closed(before - kept.len());
        if kept.is_empty() {
            return;
        }
    }
}
