//! The contents of a folder, as a page for people or as JSON for programs.
//!
//! ```text
//!  opening (no disk) ─► collect ──── all of it ────► sort ─► rows … ─► closing
//!                          └── more than there is room for ─► rows as they come … ─► closing
//! ```
//!
//! The first bytes are sent before the folder is read. A folder of up to [`LISTED_ENTRIES_MAX`]
//! entries is sorted; beyond that, or when the memory for all listings of the worker is used up,
//! the rows are in the order of the file system, and the page says so. While entries are being
//! collected, each batch with entries to be shown sends a line end, which both formats allow, to
//! detect a client that has disconnected. Omitted entries send nothing, so that their number is not
//! disclosed.

pub(crate) mod embedded;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod upload_form;
pub(crate) mod view;

use std::io;
use std::sync::Arc;
use std::vec;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::listing::view::{ListingTotals, ListingView, Sorting};
use crate::body::producer::{BodyProducer, BodyProgress, Chunk};
use crate::body::query::ListingFormat;
use crate::limits::{LISTED_ENTRIES_MAX, LOOKS_PER_BATCH};
use crate::site::folder::{FolderEntries, FolderEntry, NextEntry, SiteFolder};

/// The share of a listing in the memory that a worker's listings have for entries, in bytes.
#[derive(Debug)]
struct MemoryShare {
    room: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

/// A listing in production.
#[derive(Debug)]
pub(crate) struct FolderListing {
    view: ListingView,
    /// `None` once all are read: a page that waits for its client keeps no folder open.
    entries: Option<FolderEntries>,
    state: ListingState,
    tally: ListingTotals,
    share: MemoryShare,
}

#[derive(Debug)]
enum ListingState {
    Collecting(Vec<FolderEntry>),
    /// The collected entries, in the order of their rows.
    Collected(vec::IntoIter<FolderEntry>, Sorting),
    /// Rows are written as they are read.
    Reading,
}

impl FolderListing {
    /// Starts a listing and returns the part that is sent before the folder is read.
    pub(crate) fn new(
        view: ListingView,
        folder: SiteFolder,
        memory: &Arc<Semaphore>,
    ) -> io::Result<(FolderListing, Chunk)> {
        let mut opening = Chunk::new();
        match view.format {
            ListingFormat::Html => html::open(opening.bytes(), &view)?,
            ListingFormat::Json => json::open(opening.bytes(), &view)?,
        }
        let listing = FolderListing {
            view,
            entries: Some(folder.into_entries()?),
            state: ListingState::Collecting(Vec::new()),
            tally: ListingTotals::default(),
            share: MemoryShare {
                room: Arc::clone(memory),
                taken: None,
            },
        };
        Ok((listing, opening))
    }

    fn collect(
        &mut self,
        mut collected: Vec<FolderEntry>,
        chunk: &mut Chunk,
    ) -> io::Result<ListingState> {
        let before = collected.len();
        for _ in 0..LOOKS_PER_BATCH {
            match self.look()? {
                NextEntry::Passed => {}
                NextEntry::End => {
                    self.view.query.order().sort(&mut collected);
                    return self.begin(collected, Sorting::Sorted, chunk);
                }
                NextEntry::Seen(entry) => {
                    let fits = collected.len() < LISTED_ENTRIES_MAX && self.share.take(&entry);
                    collected.push(entry);
                    if !fits {
                        return self.begin(collected, Sorting::Unsorted, chunk);
                    }
                }
            }
        }
        if collected.len() / LOOKS_PER_BATCH > before / LOOKS_PER_BATCH {
            chunk.bytes().push(b'\n');
        }
        Ok(ListingState::Collecting(collected))
    }

    fn look(&mut self) -> io::Result<NextEntry> {
        let Some(entries) = &mut self.entries else {
            return Ok(NextEntry::End);
        };
        let next = entries.next(|name| contains(name, &self.view.query.search))?;
        if let NextEntry::End = next {
            self.entries = None;
        }
        Ok(next)
    }

    /// Writes rows of collected entries until the batch is full. Returns `End` after the last.
    fn pour(
        &mut self,
        rows: &mut vec::IntoIter<FolderEntry>,
        chunk: &mut Chunk,
    ) -> io::Result<BodyProgress> {
        while !chunk.is_full() {
            match rows.next() {
                Some(entry) => self.row(&entry, chunk)?,
                None => return Ok(BodyProgress::End),
            }
        }
        Ok(BodyProgress::More)
    }

    /// Writes rows as they are read. Returns `End` after the last.
    fn read(&mut self, chunk: &mut Chunk) -> io::Result<BodyProgress> {
        for _ in 0..LOOKS_PER_BATCH {
            match self.look()? {
                NextEntry::Seen(entry) => self.row(&entry, chunk)?,
                NextEntry::Passed => {}
                NextEntry::End => return Ok(BodyProgress::End),
            }
            if chunk.is_full() {
                break;
            }
        }
        Ok(BodyProgress::More)
    }

    /// Writes the part before the rows of `collected`.
    fn begin(
        &self,
        collected: Vec<FolderEntry>,
        sorting: Sorting,
        chunk: &mut Chunk,
    ) -> io::Result<ListingState> {
        match self.view.format {
            ListingFormat::Html => html::begin(chunk.bytes(), &self.view, sorting)?,
            ListingFormat::Json => json::begin(chunk.bytes(), sorting)?,
        }
        Ok(ListingState::Collected(collected.into_iter(), sorting))
    }

    fn row(&mut self, entry: &FolderEntry, chunk: &mut Chunk) -> io::Result<()> {
        match self.view.format {
            ListingFormat::Html => html::row(chunk.bytes(), &self.view, entry)?,
            ListingFormat::Json => json::row(chunk.bytes(), entry, self.tally.entries())?,
        }
        self.tally.count(entry);
        Ok(())
    }

    fn close(&self, chunk: &mut Chunk) -> io::Result<()> {
        match self.view.format {
            ListingFormat::Html => html::close(chunk.bytes(), &self.view, self.tally),
            ListingFormat::Json => json::close(chunk.bytes(), self.tally),
        }
    }
}

impl BodyProducer for FolderListing {
    fn next(&mut self, chunk: &mut Chunk) -> io::Result<BodyProgress> {
        match std::mem::replace(&mut self.state, ListingState::Reading) {
            ListingState::Collecting(collected) => {
                self.state = self.collect(collected, chunk)?;
                return Ok(BodyProgress::More);
            }
            ListingState::Collected(mut rows, sorting) => {
                match (self.pour(&mut rows, chunk)?, sorting) {
                    (BodyProgress::More, _) => {
                        self.state = ListingState::Collected(rows, sorting);
                        return Ok(BodyProgress::More);
                    }
                    (BodyProgress::End, Sorting::Unsorted) => {
                        self.share.taken = None;
                        return Ok(BodyProgress::More);
                    }
                    (BodyProgress::End, Sorting::Sorted) => {}
                }
            }
            ListingState::Reading => match self.read(chunk)? {
                BodyProgress::More => return Ok(BodyProgress::More),
                BodyProgress::End => {}
            },
        }
        self.close(chunk)?;
        Ok(BodyProgress::End)
    }
}

impl MemoryShare {
    /// Reserves memory for one more entry; returns whether it was available.
    fn take(&mut self, entry: &FolderEntry) -> bool {
        let bytes = u32::try_from(entry.bytes()).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.room).try_acquire_many_owned(bytes) else {
            return false;
        };
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        true
    }
}

/// Whether a name contains the search text, ignoring the case of ASCII letters.
fn contains(name: &[u8], search: &[u8]) -> bool {
    search.is_empty()
        || name
            .windows(search.len())
            .any(|window| window.eq_ignore_ascii_case(search))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LISTED_BYTES_MAX;
    use crate::site::folder::FolderEntryKind;

    #[test]
    fn a_search_is_in_any_letter_case() {
        assert!(contains(b"README.md", b"readme"));
        assert!(contains(b"x", b""));
        assert!(!contains(b"x", b"xx"));
        assert!(contains("M\u{fc}ll".as_bytes(), "\u{fc}".as_bytes()));
    }

    #[test]
    fn room_is_given_back() {
        let room = Arc::new(Semaphore::new(LISTED_BYTES_MAX));
        let entry = FolderEntry {
            name: vec![b'a'; 100],
            kind: FolderEntryKind::Folder,
            changed: underpass_http::fields::validator::FileTime {
                seconds: 0,
                nanoseconds: 0,
            },
        };
        let mut share = MemoryShare {
            room: Arc::clone(&room),
            taken: None,
        };
        let mut taken = 0;
        while share.take(&entry) {
            taken += 1;
        }
        assert!(taken > 1000, "{taken}");
        drop(share);
        assert_eq!(room.available_permits(), LISTED_BYTES_MAX);
    }
}
