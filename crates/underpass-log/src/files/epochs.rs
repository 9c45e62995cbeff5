//! The start offsets of leader epochs. A broker has one epoch until it ends uncleanly. Later
//! records get a new epoch, so that a consumer that has read lost records can detect the loss.

use std::io;
use std::path::Path;

use crate::files::checkpoints;
use crate::position::parse_offset;

/// The epochs of a partition and their first offsets, both ascending.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct LeaderEpochs(Vec<(i32, i64)>);

/// The name of the file in the folder of the partition.
pub(crate) const NAME: &str = "leader-epoch-checkpoint";

impl LeaderEpochs {
    /// Reads the file of a partition; `None` if it is missing or damaged.
    pub(crate) fn read(folder: &Path) -> Option<LeaderEpochs> {
        let mut epochs = LeaderEpochs::default();
        checkpoints::read(&folder.join(NAME), |words| {
            let [epoch, offset] = words else { return None };
            let (epoch, offset) = (epoch.parse().ok()?, parse_offset(offset)?);
            let is_behind = epochs.0.last().is_none_or(|(_, begin)| *begin < offset);
            (is_behind && epochs.begin(epoch, offset)).then_some(())
        })?;
        Some(epochs)
    }

    /// Replaces the file of a partition.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let entries = self.0.iter();
        let entries = entries.map(|(epoch, offset)| format!("{epoch} {offset}"));
        checkpoints::write(&folder.join(NAME), entries)
    }

    /// Returns the start of the first epoch: the log start, unless the start of the log was lost.
    pub(crate) fn start(&self) -> Option<i64> {
        self.0.first().map(|(_, begin)| *begin)
    }

    /// Returns the latest epoch.
    pub(crate) fn latest(&self) -> Option<i32> {
        self.0.last().map(|(epoch, _)| *epoch)
    }

    /// Starts an epoch at an offset, unless it or a later one has started. Forgets epochs without
    /// records. Returns whether anything changed.
    pub(crate) fn begin(&mut self, epoch: i32, offset: i64) -> bool {
        if self.latest().is_some_and(|latest| latest >= epoch) || epoch < 0 {
            return false;
        }
        self.0.retain(|(_, begin)| *begin < offset);
        self.0.push((epoch, offset));
        true
    }

    /// Forgets epochs that start at or after the end of the log.
    pub(crate) fn cut_end(&mut self, end: i64) {
        self.0.retain(|(_, begin)| *begin < end);
    }

    /// Forgets epochs before the start of the log. The epoch that contains the start begins there.
    pub(crate) fn cut_start(&mut self, start: i64) {
        let before = self.0.iter().rposition(|(_, begin)| *begin <= start);
        if let Some(before) = before {
            self.0.drain(..before);
            self.0[0].1 = start;
        }
    }

    /// Returns the latest epoch up to `epoch` and the offset after it, for a log that ends at
    /// `end`; `None` for epochs before the first or after the latest.
    pub(crate) fn end_of(&self, epoch: i32, end: i64) -> Option<(i32, i64)> {
        let latest = self.latest()?;
        if epoch > latest {
            return None;
        }
        let number = self.0.iter().rposition(|(known, _)| *known <= epoch)?;
        let next = self.0.get(number + 1);
        Some((self.0[number].0, next.map_or(end, |(_, begin)| *begin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_end_where_the_next_one_begins() {
        let mut epochs = LeaderEpochs::default();
        assert!(epochs.begin(0, 0) && epochs.begin(2, 10) && epochs.begin(3, 25));
        assert!(!epochs.begin(3, 30) && !epochs.begin(1, 30));
        for (asked, expected) in [
            (0, Some((0, 10))),
            (1, Some((0, 10))),
            (2, Some((2, 25))),
            (3, Some((3, 40))),
            (4, None),
            (-1, None),
        ] {
            assert_eq!(epochs.end_of(asked, 40), expected, "{asked}");
        }
        epochs.cut_start(12);
        assert_eq!(epochs, LeaderEpochs(vec![(2, 12), (3, 25)]));
        epochs.cut_end(25);
        assert_eq!(epochs, LeaderEpochs(vec![(2, 12)]));
    }

    #[test]
    fn an_epoch_without_records_is_replaced() {
        let mut epochs = LeaderEpochs::default();
        assert!(epochs.begin(0, 0) && epochs.begin(1, 10) && epochs.begin(2, 10));
        assert_eq!(epochs, LeaderEpochs(vec![(0, 0), (2, 10)]));
    }

    #[test]
    fn epochs_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(LeaderEpochs::read(folder.path()), None);
        let mut epochs = LeaderEpochs::default();
        epochs.begin(5, 100);
        epochs.begin(7, 200);
        epochs.write(folder.path()).unwrap();
        assert_eq!(LeaderEpochs::read(folder.path()).as_ref(), Some(&epochs));
        for damaged in ["5 x", "7 200\n5 100", "5 100\n7 100", "5 -1", "5", "5 1 2"] {
            let count = damaged.lines().count();
            let text = format!("0\n{count}\n{damaged}\n");
            std::fs::write(folder.path().join(NAME), text).unwrap();
            assert_eq!(LeaderEpochs::read(folder.path()), None, "{damaged:?}");
        }
    }
}
