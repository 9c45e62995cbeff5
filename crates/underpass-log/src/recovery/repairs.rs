//! The repairs of a partition at a start.

use std::fmt;
use std::ops::Range;

/// The number of gaps that a message lists after the first.
const NAMED_GAPS_MAX: usize = 30;

/// The repairs and losses that are worth a message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Repairs {
    /// Bytes after the last whole batch, moved to a separate file.
    pub cut_bytes: u64,
    /// Whether the bytes contained whole batches: the disk damaged data before them.
    pub is_damaged: bool,
    /// The number of segments after the cut-off end that were renamed.
    pub dropped_segments: usize,
    /// The number of segments whose indexes were rebuilt.
    pub indexed_segments: usize,
    /// The number of offsets at the end that were synced but are missing.
    pub missing_offsets: u64,
    /// Offsets at the beginning that are missing but were not deleted.
    pub missing_start: Option<Range<i64>>,
    /// Offsets before the end that were synced, but are missing or in damaged batches.
    pub gaps: Vec<Range<i64>>,
}

impl fmt::Display for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.cut_bytes > 0 {
            let damaged = match self.is_damaged {
                true => ", whole batches among them: the disk has damaged what is before",
                false => "",
            };
            parts.push(format!(
                "{} bytes behind the last whole batch were cut off, into a file *.cut beside the \
                 segment{damaged}",
                self.cut_bytes
            ));
        }
        if self.dropped_segments > 0 {
            parts.push(format!(
                "{} later segments were renamed to *.cut",
                self.dropped_segments
            ));
        }
        if self.missing_offsets > 0 {
            parts.push(format!(
                "{} records at the end were synced and are not there",
                self.missing_offsets
            ));
        }
        if let Some(missing) = &self.missing_start {
            parts.push(format!(
                "the log begins at {}, and its records from {} on are not there",
                missing.end, missing.start
            ));
        }
        if let [first, others @ ..] = &self.gaps[..] {
            let mut records = format!("the records from {} to {}", first.start, first.end - 1);
            let (named, others) = others.split_at(others.len().min(NAMED_GAPS_MAX));
            for gap in named {
                records += &format!(", {} to {}", gap.start, gap.end - 1);
            }
            if !others.is_empty() {
                let count: u64 = others.iter().map(|gap| gap.start.abs_diff(gap.end)).sum();
                records += &format!(", and {count} in {} ranges behind,", others.len());
            }
            parts.push(format!(
                "{records} were synced, and are missing or damaged: consumers get an error there"
            ));
        }
        f.write_str(&parts.join("; "))
    }
}

impl Repairs {
    /// Whether anything was lost.
    pub fn lost_something(&self) -> bool {
        self.lost_end() || self.missing_start.is_some() || !self.gaps.is_empty()
    }

    /// Whether the log may end earlier than before, so that new records reuse offsets.
    pub(super) fn lost_end(&self) -> bool {
        self.cut_bytes > 0 || self.dropped_segments > 0 || self.missing_offsets > 0
    }
}
