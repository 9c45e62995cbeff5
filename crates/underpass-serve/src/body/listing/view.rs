//! What a listing is asked to be, and what it came to.

use crate::request::path::SitePath;
use crate::request::query::{ListingFormat, SortOrder};
use crate::site::folder::{FolderEntry, FolderEntryKind};
use crate::site::rules::Offer;

/// What a listing is asked to be.
#[derive(Clone, Debug)]
pub(crate) struct ListingView {
    pub(crate) path: SitePath,
    pub(crate) format: ListingFormat,
    pub(crate) order: SortOrder,
    /// Only names that contain this are listed.
    pub(crate) search: Vec<u8>,
    pub(crate) archives: Offer,
}

/// Whether the rows have the order that was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sorting {
    Sorted,
    Unsorted,
}

/// What was listed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ListingTotals {
    pub(crate) folders: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl ListingTotals {
    pub(crate) fn count(&mut self, entry: &FolderEntry) {
        match entry.kind {
            FolderEntryKind::Folder => self.folders += 1,
            FolderEntryKind::File { size } => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(size);
            }
        }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.folders + self.files
    }
}
