//! Small text files of numbers, which Kafka calls checkpoints.
//!
//! ```text
//!  0                       0
//!  2                       2
//!  orders 0 1500           0 0
//!  orders 1 900            1 1200
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::files::disk;
use crate::position::{TopicPartition, parse_offset};

const VERSION: &str = "0";

/// The largest file that is read, in bytes: one line for each of 100,000 partitions.
const BYTES_MAX: u64 = 32 << 20;

/// An offset for each partition, from a file such as `recovery-point-offset-checkpoint`.
pub(crate) type OffsetCheckpoint = BTreeMap<TopicPartition, i64>;

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
/// The offsets up to which partitions are compacted, of those that ever were.
const CLEANED: &str = "cleaner-offset-checkpoint";

/// Offsets of all partitions, as stored in four files of the data folder.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Checkpoints(pub(crate) [OffsetCheckpoint; 4]);

/// The names of the files, in the same order.
const CHECKPOINTS: [&str; 4] = [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED];

impl Checkpoints {
    /// Returns the offsets up to which everything is synced.
    pub(crate) fn synced(&self) -> &OffsetCheckpoint {
        &self.0[0]
    }

    pub(crate) fn read(folder: &Path) -> Checkpoints {
        Checkpoints(CHECKPOINTS.map(|name| read_offsets(&folder.join(name))))
    }

    /// Writes the files that have changed or are missing.
    pub(crate) fn replace(&mut self, present: Checkpoints, folder: &Path) -> io::Result<()> {
        let pairs = self.0.iter_mut().zip(present.0).zip(CHECKPOINTS);
        for ((written, present), name) in pairs {
            let path = folder.join(name);
            if *written != present || !path.exists() {
                write_offsets(&path, &present)?;
                *written = present;
            }
        }
        Ok(())
    }

    /// Removes a partition. Otherwise the offsets of a deleted partition would hide new records of
    /// a partition with the same name, and count them as synced.
    pub(crate) fn forget(&mut self, name: &TopicPartition, folder: &Path) -> io::Result<()> {
        if self.0.iter().all(|offsets| !offsets.contains_key(name)) {
            return Ok(());
        }
        let mut without = Checkpoints(self.0.clone());
        for offsets in &mut without.0 {
            offsets.remove(name);
        }
        self.replace(without, folder)
    }
}

/// Reads offsets. Returns none if the file is missing or damaged: recovery finds the values again.
fn read_offsets(path: &Path) -> OffsetCheckpoint {
    let entries = read(path, |words| match words {
        [topic, partition, offset] => {
            let partition = partition.parse().ok().filter(|number| *number >= 0)?;
            Some((TopicPartition::new(topic, partition), parse_offset(offset)?))
        }
        _ => None,
    });
    entries.into_iter().flatten().collect()
}

/// Replaces a file of offsets.
fn write_offsets(path: &Path, offsets: &OffsetCheckpoint) -> io::Result<()> {
    let entries = offsets
        .iter()
        .map(|(of, offset)| format!("{} {} {offset}", of.topic, of.partition));
    write(path, entries)
}

/// Reads a file and parses the lines after the version and the count with `entry`. Returns `None`
/// if the file is missing, empty or damaged, even in one line, and logs a warning if it is damaged.
pub(crate) fn read<T>(path: &Path, entry: impl FnMut(&[&str]) -> Option<T>) -> Option<Vec<T>> {
    let content = match disk::read(path, BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        // Kafka creates some of the files empty.
        Ok(content) if content.is_empty() => return None,
        content => content.map_err(|error| error.to_string()),
    };
    match content.and_then(|content| parse(&content, entry)) {
        Ok(entries) => Some(entries),
        Err(wrong) => {
            let path = path.display();
            tracing::warn!("{path}: {wrong}; nothing of it is used");
            None
        }
    }
}

fn parse<T>(content: &[u8], mut entry: impl FnMut(&[&str]) -> Option<T>) -> Result<Vec<T>, String> {
    let text = str::from_utf8(content).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    match lines.next() {
        Some(VERSION) => {}
        other => {
            let version = other.unwrap_or_default();
            return Err(format!("the version is {version:?}, not {VERSION}"));
        }
    }
    let count = lines.next().and_then(|count| count.parse::<usize>().ok());
    let count = count.ok_or("there is no number of entries in line 2")?;
    let mut entries = Vec::new();
    for line in lines {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = entries.len() + 3;
        entries.push(entry(&words).ok_or_else(|| format!("line {number} is wrong"))?);
    }
    match entries.len() == count {
        true => Ok(entries),
        false => Err(format!("{} entries are there, not {count}", entries.len())),
    }
}

/// Replaces a file of numbers.
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
    use std::fs;

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
        for text in [
            "",
            "1\n0\n",
            "0\n",
            "0\n2\na 0 1\n",
            "0\n1\na 0 1\nb 0 1\n",
            "0\nx\n",
            "0\n-1\n",
            "0\n99999999999999999999\na 0 1\n",
            "0\n2\na 0 x\nb 0 1\n",
            "0\n1\na 0 -1\n",
            "0\n1\na -1 1\n",
            "0\n1\na 0 9223372036854775807\n",
            "0\n1\na 0\n",
        ] {
            fs::write(&path, text).unwrap();
            assert!(read_offsets(&path).is_empty(), "{text:?}");
        }
        fs::write(&path, b"0\n1\na 0 \xff\n").unwrap();
        assert!(read_offsets(&path).is_empty());
    }

    #[test]
    fn what_is_no_regular_file_or_too_large_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_offsets(folder.path()).is_empty());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert!(read_offsets(&link).is_empty());
        let large = folder.path().join("large");
        fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
        assert!(read_offsets(&large).is_empty());
    }
}
