//! Properties that hold for any bytes in a data folder: functions that panic if one is violated,
//! for the tests below and for fuzzers (`fuzz/` in the repository).
//!
//! This is not a public interface: it is included in tests and with the feature `fuzz`.

#![allow(missing_docs, reason = "hidden; what each promises stands beside it")]

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::{
    DataFolderOptions, DiskWait, FirstBatch, FoundPartition, LogManager, LogOffsets, LogRead,
    PartitionLog, TopicConfig,
};

/// The extensions of the files of a partition. Those of batches come first.
const EXTENSIONS: [&str; 11] = [
    "log",
    "log",
    "log.swap",
    "log.cleaned",
    "index",
    "timeindex",
    "snapshot",
    "index.swap",
    "log.deleted",
    "log.cut",
    "checkpoint",
];

const CHECKPOINTS: [&str; 5] = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
];

/// The name and the content of a file.
type Named = (String, Vec<u8>);

/// For any files in a data folder, a start either opens a log or reports the error. The log serves
/// whole batches of these files with rising offsets. The next start finds the same batches, and
/// those appended meanwhile.
///
/// The first byte says whether the last end was clean. Files follow: one byte for the kind, one for
/// the offset in the name, two for the length, and as many bytes. A kind from 128 on means that the
/// content is made from the bytes: batches, four bytes each, and files with correct checksums.
pub fn log_recovery(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else {
        return;
    };
    let files = files(rest);
    let folder = PromisedFolder::new();
    let partition = folder.0.join("t-0");
    fs::create_dir_all(&partition).expect("a folder");
    for (name, content) in &files {
        fs::write(folder.0.join(name), content).expect("a file");
    }
    if flags & 1 == 1 {
        fs::write(folder.0.join(".kafka_cleanshutdown"), "").expect("a file");
    }
    let Some((manager, log)) = started(&folder.0) else {
        return;
    };
    let first = Served::of(&log);
    for batch in &first.batches {
        let mut contents = files.iter().map(|(_, content)| content);
        assert!(contents.any(|content| holds(content, batch)));
    }
    let _ = (log.offset_of_time(7), log.offset_of_time(i64::MAX));
    let _ = (
        log.largest_timestamp(),
        log.end_of_epoch(3),
        log.largest_producer_id(),
    );
    let appended = log.append_all(&[batch(3, 0, 5, -1, 0).into()]);
    let appended = *appended[0].as_ref().expect("room for a batch");
    log.sync().expect("a disk");
    drop((manager, log));
    let (manager, log) = started(&folder.0).expect("a folder that was in order before");
    let second = Served::of(&log);
    assert_eq!(second.offsets.start, first.offsets.start);
    assert_eq!(second.offsets.end, appended.next_offset);
    assert!(first.error || second.batches.starts_with(&first.batches));
    assert!(first.error || second.batches.len() == first.batches.len() + 1);
    drop((manager, log));
}

fn files(mut data: &[u8]) -> Vec<Named> {
    let mut files = Vec::new();
    while let Some((&[kind, offset, long, short], rest)) = data.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([long, short]));
        let (content, rest) = rest.split_at(length.min(rest.len()));
        data = rest;
        let (is_made, kind) = (kind >= 128, usize::from(kind % 16));
        let Some(extension) = EXTENSIONS.get(kind) else {
            let name = CHECKPOINTS[kind - EXTENSIONS.len()];
            files.push((name.to_owned(), content.to_vec()));
            continue;
        };
        let content = match (is_made, extension) {
            (true, extension) if extension.starts_with("log") => batches(content, offset.into()),
            (true, &"snapshot") => snapshot(content),
            (true, &"checkpoint") => {
                let crc = crc32c::crc32c(content);
                [&crc.to_be_bytes()[..], content].concat()
            }
            _ => content.to_vec(),
        };
        files.push((format!("t-0/{offset:020}.{extension}"), content));
    }
    files
}

/// Makes valid and nearly valid batches.
fn batches(data: &[u8], mut next: i64) -> Vec<u8> {
    let mut batches = Vec::new();
    for four in data.chunks_exact(4) {
        let &[count, gap, producer, bytes] = four else {
            continue;
        };
        let id = i64::from(producer % 4) - 1;
        let base = next + i64::from(gap % 8);
        let mut made = batch(
            1 + i32::from(count % 16),
            bytes.into(),
            base,
            id,
            gap.into(),
        );
        if gap >= 250 {
            let last = made.len() - 1;
            made[last] ^= 1;
        }
        next = base + 1 + i64::from(count % 16);
        batches.extend(made);
    }
    batches
}

/// Makes a batch of `count` empty records with this base offset.
fn batch(count: i32, bytes: usize, base: i64, producer: i64, sequence: i32) -> Vec<u8> {
    let mut batch = vec![0; HEADER_BYTES + bytes];
    let length = (batch.len() - 12) as i32;
    let mut put = |at: usize, field: &[u8]| batch[at..at + field.len()].copy_from_slice(field);
    put(0, &base.to_be_bytes());
    put(8, &length.to_be_bytes());
    put(16, &[2]);
    put(23, &(count - 1).to_be_bytes());
    put(27, &base.to_be_bytes());
    put(35, &base.to_be_bytes());
    put(43, &producer.to_be_bytes());
    put(53, &sequence.to_be_bytes());
    put(57, &count.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// Makes a snapshot of these entries.
fn snapshot(entries: &[u8]) -> Vec<u8> {
    let count = (entries.len() / 46) as i32;
    let mut file = vec![0, 1, 0, 0, 0, 0];
    file.extend(count.to_be_bytes());
    file.extend(&entries[..46 * (entries.len() / 46)]);
    let crc = crc32c::crc32c(&file[6..]);
    file[2..6].copy_from_slice(&crc.to_be_bytes());
    file
}

fn started(folder: &Path) -> Option<(Arc<LogManager>, Arc<PartitionLog>)> {
    let config = |_: &str| {
        Arc::new(TopicConfig {
            index_interval_bytes: 100,
            ..TopicConfig::default()
        })
    };
    let options = DataFolderOptions::default();
    let prepared = LogManager::prepare(folder, options, &config, Box::new(|_| ()), 1);
    match prepared {
        Ok((manager, mut found)) => {
            let FoundPartition { log, .. } = found.pop().expect("the partition");
            Some((manager, log))
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains(&*folder.to_string_lossy()), "{error}");
            None
        }
    }
}

/// The batches that consumers get.
struct Served {
    offsets: LogOffsets,
    batches: Vec<Vec<u8>>,
    /// Whether it ended with an error: data that the start did not scan is damaged.
    error: bool,
}

impl Served {
    fn of(log: &PartitionLog) -> Served {
        let offsets = log.offsets();
        let mut served = Served {
            offsets,
            batches: Vec::new(),
            error: false,
        };
        let mut next = offsets.start;
        while next < offsets.end {
            let read = log.read(next, 1, FirstBatch::Whole, DiskWait::Allowed);
            let range = match read {
                Ok(LogRead::Records(range, _)) => range,
                Ok(other) => {
                    assert!(matches!(other, LogRead::Empty));
                    break;
                }
                Err(_) => {
                    served.error = true;
                    break;
                }
            };
            let mut batch = vec![0; usize::try_from(range.len).expect("a size")];
            let file = range
                .file
                .as_fd()
                .try_clone_to_owned()
                .expect("a descriptor");
            let file = fs::File::from(file);
            file.read_exact_at(&mut batch, range.offset)
                .expect("what was promised");
            let header = BatchHeader::parse(&batch).expect("a batch");
            assert_eq!(header.size, batch.len());
            assert!(
                header.last_offset() >= next,
                "each is behind the one before"
            );
            next = header.next_offset();
            served.batches.push(batch);
        }
        served
    }
}

fn holds(content: &[u8], batch: &[u8]) -> bool {
    content.windows(batch.len()).any(|part| part == batch)
}

/// A data folder that is removed on drop.
struct PromisedFolder(PathBuf);

impl PromisedFolder {
    fn new() -> PromisedFolder {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("underpass-log-promises-{}-{number}", process::id());
        PromisedFolder(env::temp_dir().join(name))
    }
}

impl Drop for PromisedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn file() -> impl Strategy<Value = Vec<u8>> {
        let checkpoint = "0\n[0-2]\n(t 0 [0-9]{1,3}\n|[0-3] [0-9]{1,3}\n){0,2}";
        let text = prop_oneof![
            2 => vec(any::<u8>(), 0..300),
            1 => checkpoint.prop_map(String::into_bytes),
        ];
        let offset = prop_oneof![4 => 0u8..20, 1 => any::<u8>()];
        let kind = prop_oneof![3 => 128u8..130, 1 => 128u8..144, 2 => 0u8..16];
        (kind, offset, text).prop_map(|(kind, offset, content)| {
            let mut file = vec![kind, offset];
            file.extend((content.len() as u16).to_be_bytes());
            file.extend(content);
            file
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn a_start_makes_a_log_of_any_files(flags in 0u8..2, files in vec(file(), 0..8)) {
            let mut data = vec![flags];
            data.extend(files.concat());
            log_recovery(&data);
        }
    }

    /// Inputs found by fuzzers.
    #[test]
    fn findings_stay_mended() {
        for data in [&b"\x00"[..], b"\x01\x80\x00\x00\x04\x00\x00\x00\x00"] {
            log_recovery(data);
        }
    }
}
