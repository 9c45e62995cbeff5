//! Notices changes of open files by inotify, instead of `fstat` for every response.
//!
//! The kernel queues an event (inotify(7)) before a call that changes a file returns, and the event
//! loop reads the queue before it reads a request that was sent after that. So as long as no event
//! was reported for a file, its last known state still holds:
//!
//! ```text
//!  write(2) ─► event queued ─► returns ─► request sent ─► loop: events, then requests ─► answer
//! ```
//!
//! A request that is read without waiting for the loop (the first one of a connection, or a
//! pipelined one) may be more recent than the events that the loop has reported. The queue is read
//! before it is served: [`WorkerWatcher::read_events`].
//!
//! Used only on file systems whose every change goes through this kernel. Changes without an event
//! (writing through a mapping, by `io_submit` or through a loop device; a renamed folder on the
//! path) show when the name is resolved again, as they do without a watch.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{FsWord, fstatfs};
use rustix::io::Errno;
use tokio::io::Interest;
use underpass_net::Registered;

use crate::limits::WATCH_EVENTS_BYTES;

/// The watches of one worker, for all of its sites; started when a file is first watched.
#[derive(Debug, Default)]
pub(crate) struct WorkerWatcher(OnceCell<Option<Rc<FileWatcher>>>);

impl WorkerWatcher {
    /// Watches an open file, within a runtime of local tasks. `None` if events are incomplete or
    /// not available.
    pub(crate) fn add(&self, file: impl AsFd) -> Option<Rc<WatchedFile>> {
        self.0.get_or_init(FileWatcher::start).as_ref()?.add(file)
    }

    /// Reads the events that are queued now. Does not wait.
    pub(crate) fn read_events(&self) {
        if let Some(Some(watcher)) = self.0.get() {
            // The queue is empty, or the task that reads it meets the same error.
            let Err(_empty) = watcher.read();
        }
    }
}

/// An inotify queue and the files it reports on.
#[derive(Debug)]
struct FileWatcher {
    inotify: Registered,
    watched: RefCell<HashMap<i32, Weak<WatchedFile>>>,
}

/// A watched file; the watch ends when this is dropped.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    watch: Rc<FileWatcher>,
    number: i32,
    /// Whether an event reported a change that was not examined yet.
    pub(crate) changed: Cell<bool>,
}

/// Events for content, size, times, links and names of the file, and its removal.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF);

/// Local file systems (statfs(2)): ext2 to ext4, XFS, Btrfs, tmpfs.
const BELIEVED: [FsWord; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

impl FileWatcher {
    /// Starts listening, within a runtime of local tasks. `None` if the kernel's limit
    /// `fs.inotify.max_user_instances` is reached.
    fn start() -> Option<Rc<FileWatcher>> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let inotify = underpass_net::register(&Rc::new(inotify), Interest::READABLE).ok()?;
        let watch = Rc::new(FileWatcher {
            inotify,
            watched: RefCell::default(),
        });
        tokio::task::spawn_local(listen(Rc::clone(&watch)));
        Some(watch)
    }

    fn add(self: &Rc<FileWatcher>, file: impl AsFd) -> Option<Rc<WatchedFile>> {
        let file = file.as_fd();
        if !BELIEVED.contains(&fstatfs(file).ok()?.f_type) {
            return None;
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let number = inotify::add_watch(self.inotify.get_ref(), path, CHANGES).ok()?;
        let mut watched = self.watched.borrow_mut();
        if watched
            .get(&number)
            .is_some_and(|other| other.strong_count() > 0)
        {
            // The same file under another name.
            return None;
        }
        let file = Rc::new(WatchedFile {
            watch: Rc::clone(self),
            number,
            changed: Cell::new(false),
        });
        watched.insert(number, Rc::downgrade(&file));
        Some(file)
    }

    /// Reports all queued events to the watched files.
    fn read(&self) -> Result<Infallible, Errno> {
        let mut buffer = [MaybeUninit::uninit(); WATCH_EVENTS_BYTES];
        let mut events = Reader::new(self.inotify.get_ref(), &mut buffer);
        loop {
            let event = events.next()?;
            let watched = self.watched.borrow();
            match event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                true => watched.values().for_each(tell),
                false => watched.get(&event.wd()).into_iter().for_each(tell),
            }
        }
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        self.watch.watched.borrow_mut().remove(&self.number);
        // The watch of a removed file is gone already.
        let _ = inotify::remove_watch(self.watch.inotify.get_ref(), self.number);
    }
}

fn tell(watched: &Weak<WatchedFile>) {
    if let Some(watched) = watched.upgrade() {
        watched.changed.set(true);
    }
}

/// Reads events as they arrive, until the runtime ends.
async fn listen(watch: Rc<FileWatcher>) {
    while let Ok(mut ready) = watch.inotify.readable().await {
        match watch.read() {
            Err(Errno::AGAIN | Errno::INTR) => ready.clear_ready(),
            Err(_) => return,
        }
    }
}
