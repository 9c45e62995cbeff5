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
//! | permissions are taken away | after [`OPEN_FILE_KEPT`] |
//!
//! Whatever is answered is one state of one file that had this name within that time. An open file
//! that was deleted keeps its space on disk; a sweep closes what is too old even if nobody asks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::fstat;
use rustix::io::Errno;

use crate::file::{File, State};
use crate::limits::{OPEN_FILE_KEPT, OPEN_FILES_MAX};
use crate::path::{Form, SitePath};
use crate::resolve::{Found, find};
use crate::tally::Tally;

/// The files one worker keeps open.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    tally: Arc<Tally>,
    kept: RefCell<HashMap<Vec<u8>, Kept>>,
}

#[derive(Debug)]
struct Kept {
    state: Rc<State>,
    opened: SystemTime,
}

impl OpenFiles {
    /// None yet; what happens to them is counted there.
    pub(crate) fn counted(tally: Arc<Tally>) -> Rc<OpenFiles> {
        Rc::new(OpenFiles {
            tally,
            kept: RefCell::default(),
        })
    }

    /// What a path leads to, at the time `now`. Call it within a runtime of local tasks.
    pub(crate) fn find(
        self: &Rc<OpenFiles>,
        root: BorrowedFd<'_>,
        path: SitePath,
        now: SystemTime,
    ) -> Found {
        if path.is_hidden() {
            return Found::Nothing;
        }
        if path.form() == Form::Folder {
            let index = path.clone().into_index();
            if let Some(state) = self.kept(&index, now) {
                self.tally.files.hits.add(1);
                return Found::File(File { path: index, state });
            }
        } else if let Some(state) = self.kept(&path, now) {
            self.tally.files.hits.add(1);
            return Found::File(File { path, state });
        }
        self.tally.files.misses.add(1);
        match find(root, path.clone(), now) {
            Found::File(file) => {
                self.keep(&file, now);
                Found::File(file)
            }
            // Descriptors ran out: those kept here are the first to go.
            Found::Busy(Errno::MFILE | Errno::NFILE) if self.give_up() => find(root, path, now),
            found => found,
        }
    }

    /// The file of this path, if it is kept and still has a name.
    fn kept(&self, path: &SitePath, now: SystemTime) -> Option<Rc<State>> {
        let mut kept = self.kept.borrow_mut();
        let entry = kept.get_mut(path.bytes())?;
        if !entry.is_fresh(now) {
            return None;
        }
        match fstat(&entry.state.descriptor) {
            Ok(stat) if stat.st_nlink > 0 => {
                entry.state = entry.state.looked_at_again(&stat, now);
                Some(Rc::clone(&entry.state))
            }
            _ => {
                kept.remove(path.bytes());
                self.count_closed(1);
                None
            }
        }
    }

    fn keep(self: &Rc<OpenFiles>, file: &File, now: SystemTime) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= OPEN_FILES_MAX && !kept.contains_key(file.path.bytes()) {
            return;
        }
        if kept.is_empty() {
            tokio::task::spawn_local(sweep(Rc::downgrade(self)));
        }
        let entry = Kept {
            state: Rc::clone(&file.state),
            opened: now,
        };
        match kept.insert(file.path.bytes().to_vec(), entry) {
            None => self.tally.files.kept.add(1),
            Some(_old) => self.tally.files.closed.add(1),
        }
    }

    /// Closes all that is not being sent. Says whether there was any.
    fn give_up(&self) -> bool {
        let mut kept = self.kept.borrow_mut();
        let count = kept.len();
        kept.clear();
        self.count_closed(count);
        count > 0
    }

    fn count_closed(&self, count: usize) {
        let (tally, count) = (&self.tally.files, count as u64);
        tally.closed.add(count);
        tally.kept.set(tally.kept.value().saturating_sub(count));
    }
}

impl Kept {
    /// A clock that was set back ends it too.
    fn is_fresh(&self, now: SystemTime) -> bool {
        now.duration_since(self.opened)
            .is_ok_and(|age| age < OPEN_FILE_KEPT)
    }
}

/// Closes what is too old, until there is nothing left to close.
async fn sweep(files: Weak<OpenFiles>) {
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
        if kept.is_empty() {
            return;
        }
    }
}
