//! Small text files with numbers: what Kafka calls checkpoints.
//!
//! ```text
//!  0                       0
//!  2                       2
//!  orders 0 1500           0 0
//!  orders 1 900            1 1200
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::files::disk;
use crate::position::TopicPartition;

const VERSION: &str = "0";

/// An offset of each partition, under a name such as `recovery-point-offset-checkpoint`.
pub(crate) type OffsetCheckpoint = BTreeMap<TopicPartition, i64>;

/// Reads offsets; none where the file does not exist or is damaged: what is missing is found out
/// again.
pub(crate) fn read_offsets(path: &Path) -> OffsetCheckpoint {
    let entries = read(path).unwrap_or_default();
    let parsed = entries.iter().filter_map(|entry| match &entry[..] {
        [topic, partition, offset] => {
            let of = TopicPartition::new(topic, partition.parse().ok()?);
            Some((of, offset.parse().ok()?))
        }
        _ => None,
    });
    parsed.collect()
}

/// Replaces a file of offsets.
pub(crate) fn write_offsets(path: &Path, offsets: &OffsetCheckpoint) -> io::Result<()> {
    let entries = offsets
        .iter()
        .map(|(of, offset)| format!("{} {} {offset}", of.topic, of.partition));
    write(path, entries)
}

/// The lines behind version and count, as words; nothing if the file is missing or damaged.
pub(crate) fn read(path: &Path) -> Option<Vec<Vec<String>>> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    if lines.next()? != VERSION {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let entries: Vec<_> = lines.map(words).collect();
    (entries.len() == count).then_some(entries)
}

/// Replaces a file.
pub(crate) fn write(path: &Path, entries: impl Iterator<Item = String>) -> io::Result<()> {
    let entries: Vec<_> = entries.collect();
    let mut text = format!("{VERSION}\n{}\n", entries.len());
    for entry in entries {
        text.push_str(&entry);
        text.push('\n');
    }
    disk::replace(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recovery-point-offset-checkpoint");
        assert!(read_offsets(&path).is_empty());
        let offsets = [("orders", 0, 1500), ("orders", 1, 900), ("a", 10, 0)];
        let offsets: OffsetCheckpoint = offsets
            .into_iter()
            .map(|(topic, partition, offset)| (TopicPartition::new(topic, partition), offset))
            .collect();
        write_offsets(&path, &offsets).unwrap();
        assert_eq!(read_offsets(&path), offsets);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "0\n3\na 10 0\norders 0 1500\norders 1 900\n");
    }

    #[test]
    fn a_damaged_file_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for text in ["", "1\n0\n", "0\n", "0\n2\na 0 1\n", "0\nx\n"] {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path), None, "{text:?}");
        }
        fs::write(&path, "0\n2\na 0 x\nb 0 1\n").unwrap();
        assert_eq!(read_offsets(&path).len(), 1);
    }
}
