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
//! each batch of entries that will be sends a line end, which both formats allow for, so that a
//! client that went away is noticed. Entries that are left out send nothing: how many there are is
//! nobody's business.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod view;

use std::io;
use std::sync::Arc;
use std::vec;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::listing::view::{ListingTotals, ListingView, Sorting};
use crate::body::producer::{BodyProducer, BodyProgress, Chunk};
use crate::limits::{LISTED_ENTRIES_MAX, LOOKS_PER_BATCH};
use crate::request::query::ListingFormat;
use crate::site::folder::{FolderEntries, FolderEntry, NextEntry, SiteFolder};

/// A part of the memory that the listings of a worker have for entries, by bytes.
#[derive(Debug)]
struct MemoryShare {
    room: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

/// A listing being made.
#[derive(Debug)]
pub(crate) struct FolderListing {
    view: ListingView,
    /// Until all of them are read: a page that waits for its client keeps no folder open.
    entries: Option<FolderEntries>,
    state: ListingState,
    tally: ListingTotals,
    share: MemoryShare,
}

#[derive(Debug)]
enum ListingState {
    Collecting(Vec<FolderEntry>),
    /// What was collected, in the order of its rows.
    Collected(vec::IntoIter<FolderEntry>, Sorting),
    /// Rows as they are read.
    Reading,
}

impl FolderListing {
    /// Begins a listing; `opening` is what can be said before the folder is read.
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

    /// Rows of what was collected, until the batch is full. Says whether that were all.
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

    /// Rows as they are read. Says whether those were the last.
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

    /// What stands before the rows of `collected`, which follow.
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
    /// Takes the room of one entry more, where there is any left.
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
            changed: crate::http::validator::FileTime {
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
