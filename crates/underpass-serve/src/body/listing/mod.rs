//! What is in a folder, as a page for people or as JSON for programs.
//!
//! ```text
//!  opening (no disk) ─► collect ──── all of it ────► sort ─► rows … ─► closing
//!                          └── more than there is room for ─► rows as they come … ─► closing
//! ```
//!
//! The first bytes leave before the folder is read. A folder of up to [`LISTED_ENTRIES_MAX`]
//! entries is sorted; beyond that, or where the worker's listings together have no room left, the
//! rows come in the order of the file system, and the page says so. While nothing can be shown yet
//! each batch sends a line end, which both formats allow for, so that a client that went away is
//! noticed.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod order;
pub(crate) mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec;

use crate::body::feed::{Batch, Feed, Progress};
use crate::body::listing::view::{Sorting, Totals, View};
use crate::limits::{LISTED_BYTES_MAX, LISTED_ENTRIES_MAX, LOOKS_PER_BATCH};
use crate::request::query::Format;
use crate::site::folder::{Entries, Entry, Folder, Look};

/// Room in memory for the entries of all listings of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room(Arc<AtomicUsize>);

/// A part of it. Dropping it gives it back.
#[derive(Debug)]
struct Share {
    room: Room,
    bytes: usize,
}

/// A listing being made.
#[derive(Debug)]
pub(crate) struct Listing {
    view: View,
    entries: Entries,
    state: State,
    tally: Totals,
    share: Share,
}

#[derive(Debug)]
enum State {
    Collecting(Vec<Entry>),
    /// What was collected, in the order of its rows.
    Collected(vec::IntoIter<Entry>, Sorting),
    /// Rows as they are read.
    Reading,
}

impl Listing {
    /// Begins a listing; `opening` is what can be said before the folder is read.
    pub(crate) fn new(view: View, folder: Folder, room: &Room) -> io::Result<(Listing, Batch)> {
        let mut opening = Batch::new();
        match view.format {
            Format::Html => html::open(opening.bytes(), &view),
            Format::Json => json::open(opening.bytes(), &view),
        }
        let listing = Listing {
            view,
            entries: folder.into_entries()?,
            state: State::Collecting(Vec::new()),
            tally: Totals::default(),
            share: Share {
                room: room.clone(),
                bytes: 0,
            },
        };
        Ok((listing, opening))
    }

    fn collect(&mut self, mut collected: Vec<Entry>, batch: &mut Batch) -> io::Result<State> {
        for _ in 0..LOOKS_PER_BATCH {
            match self.look()? {
                Look::Passed => {}
                Look::End => return Ok(self.sort(collected, batch)),
                Look::Seen(entry) => {
                    let fits = collected.len() < LISTED_ENTRIES_MAX && self.share.take(&entry);
                    collected.push(entry);
                    if !fits {
                        self.begin(Sorting::Unsorted, batch);
                        return Ok(State::Collected(collected.into_iter(), Sorting::Unsorted));
                    }
                }
            }
        }
        batch.bytes().push(b'\n');
        Ok(State::Collecting(collected))
    }

    fn sort(&mut self, mut collected: Vec<Entry>, batch: &mut Batch) -> State {
        self.view.order.sort(&mut collected);
        self.begin(Sorting::Sorted, batch);
        State::Collected(collected.into_iter(), Sorting::Sorted)
    }

    fn look(&mut self) -> io::Result<Look> {
        let search = &self.view.search;
        Ok(self.entries.next(|name| contains(name, search))?)
    }

    /// Rows of what was collected, until the batch is full. Says whether that were all.
    fn pour(&mut self, rows: &mut vec::IntoIter<Entry>, batch: &mut Batch) -> Progress {
        while !batch.is_full() {
            match rows.next() {
                Some(entry) => self.row(&entry, batch),
                None => return Progress::End,
            }
        }
        Progress::More
    }

    /// Rows as they are read. Says whether those were the last.
    fn read(&mut self, batch: &mut Batch) -> io::Result<Progress> {
        for _ in 0..LOOKS_PER_BATCH {
            match self.look()? {
                Look::Seen(entry) => self.row(&entry, batch),
                Look::Passed => {}
                Look::End => return Ok(Progress::End),
            }
            if batch.is_full() {
                break;
            }
        }
        batch.bytes().push(b'\n');
        Ok(Progress::More)
    }

    fn begin(&self, sorting: Sorting, batch: &mut Batch) {
        match self.view.format {
            Format::Html => html::begin(batch.bytes(), &self.view, sorting),
            Format::Json => json::begin(batch.bytes(), sorting),
        }
    }

    fn row(&mut self, entry: &Entry, batch: &mut Batch) {
        match self.view.format {
            Format::Html => html::row(batch.bytes(), entry),
            Format::Json => json::row(batch.bytes(), entry, self.tally.entries()),
        }
        self.tally.count(entry);
    }

    fn close(&self, batch: &mut Batch) {
        match self.view.format {
            Format::Html => html::close(batch.bytes(), &self.view, self.tally),
            Format::Json => json::close(batch.bytes(), self.tally),
        }
    }
}

impl Feed for Listing {
    fn next(&mut self, batch: &mut Batch) -> io::Result<Progress> {
        match std::mem::replace(&mut self.state, State::Reading) {
            State::Collecting(collected) => {
                self.state = self.collect(collected, batch)?;
                return Ok(Progress::More);
            }
            State::Collected(mut rows, sorting) => match (self.pour(&mut rows, batch), sorting) {
                (Progress::More, _) => {
                    self.state = State::Collected(rows, sorting);
                    return Ok(Progress::More);
                }
                (Progress::End, Sorting::Unsorted) => {
                    self.share.give_back();
                    return Ok(Progress::More);
                }
                (Progress::End, Sorting::Sorted) => {}
            },
            State::Reading => match self.read(batch)? {
                Progress::More => return Ok(Progress::More),
                Progress::End => {}
            },
        }
        self.close(batch);
        Ok(Progress::End)
    }
}

impl Share {
    /// Takes the room of one entry more, where there is any left.
    fn take(&mut self, entry: &Entry) -> bool {
        let bytes = entry.bytes();
        let taken = self.room.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        taken + bytes <= LISTED_BYTES_MAX
    }

    fn give_back(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Whether a name contains what is searched for, letters of ASCII without their case.
fn contains(name: &[u8], search: &[u8]) -> bool {
    search.is_empty()
        || name
            .windows(search.len())
            .any(|window| window.eq_ignore_ascii_case(search))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::folder::Kind;

    #[test]
    fn a_search_is_in_any_letter_case() {
        assert!(contains(b"README.md", b"readme"));
        assert!(contains(b"x", b""));
        assert!(!contains(b"x", b"xx"));
        assert!(contains("M\u{fc}ll".as_bytes(), "\u{fc}".as_bytes()));
    }

    #[test]
    fn room_is_given_back() {
        let room = Room::default();
        let entry = Entry {
            name: vec![b'a'; 100],
            kind: Kind::Folder,
            changed: crate::http::validator::FileTime {
                seconds: 0,
                nanoseconds: 0,
            },
        };
        let mut share = Share {
            room: room.clone(),
            bytes: 0,
        };
        let mut taken = 0;
        while share.take(&entry) {
            taken += 1;
        }
        assert!(taken > 1000, "{taken}");
        drop(share);
        assert_eq!(room.0.load(Ordering::Relaxed), 0);
    }
}
