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
//!
//! Whatever is answered is one state of one file that had this name within that time. An open file
//! that was deleted keeps its space on disk; a sweep closes what is too old even if nobody asks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::SystemTime;

use rustix::fs::fstat;
use rustix::io::Errno;

use crate::file::{File, State};
use crate::limits::{OPEN_FILE_KEPT, OPEN_FILES_MAX};
use crate::path::SitePath;
use crate::resolve::{Found, find};
use crate::site::Site;

/// The files one worker keeps open.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    /// By [`SitePath::key`] of what was asked for.
    kept: RefCell<HashMap<Vec<u8>, Kept>>,
}

#[derive(Debug)]
struct Kept {
    /// Its own path, where another one leads to it: a folder's, or one without `.html`.
    path: Option<SitePath>,
    state: Rc<State>,
    opened: SystemTime,
}

impl OpenFiles {
    /// What a path leads to, at the time `now`. Call it within a runtime of local tasks.
    pub(crate) fn find(
        self: &Rc<OpenFiles>,
        site: &Site,
        path: SitePath,
        now: SystemTime,
    ) -> Found {
        if let Some((own, state)) = self.kept(&path, now) {
            return Found::File(File::known(own.unwrap_or(path), state));
        }
        match find(site, path.clone(), now) {
            Found::File(file) => {
                self.keep(&path, &file, now);
                Found::File(file)
            }
            // Descriptors ran out: those kept here are the first to go.
            Found::Busy(Errno::MFILE | Errno::NFILE) if self.give_up() => find(site, path, now),
            found => found,
        }
    }

    /// The file that this path leads to, if it is kept and still has a name.
    fn kept(&self, path: &SitePath, now: SystemTime) -> Option<(Option<SitePath>, Rc<State>)> {
        let key = path.key();
        let mut kept = self.kept.borrow_mut();
        let entry = kept.get_mut(&*key)?;
        if !entry.is_fresh(now) {
            return None;
        }
        match fstat(&entry.state.descriptor) {
            Ok(stat) if stat.st_nlink > 0 => {
                entry.state = entry.state.looked_at_again(&stat, now);
                Some((entry.path.clone(), Rc::clone(&entry.state)))
            }
            _ => {
                kept.remove(&*key);
                None
            }
        }
    }

    fn keep(self: &Rc<OpenFiles>, asked: &SitePath, file: &File, now: SystemTime) {
        let key = asked.key();
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= OPEN_FILES_MAX && !kept.contains_key(&*key) {
            return;
        }
        if kept.is_empty() {
            tokio::task::spawn_local(sweep(Rc::downgrade(self)));
        }
        let entry = Kept {
            path: (*asked != file.path).then(|| file.path.clone()),
            state: Rc::clone(&file.state),
            opened: now,
        };
        kept.insert(key.into_owned(), entry);
    }

    /// Closes all that is not being sent. Says whether there was any.
    fn give_up(&self) -> bool {
        let mut kept = self.kept.borrow_mut();
        let any = !kept.is_empty();
        kept.clear();
        any
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
        kept.retain(|_, entry| entry.is_fresh(now));
        if kept.is_empty() {
            return;
        }
    }
}
