//! When a log is compacted, and how much of it.

use super::*;
use crate::files::times::unix_ms;

/// A log without threads, with one record per batch and two batches per segment.
struct Small {
    _folder: tempfile::TempDir,
    manager: Arc<LogManager>,
    log: Arc<PartitionLog>,
}

const KEEPS: Settings = Settings {
    segment_bytes: 450,
    map_bytes: 10_000,
    forgets: false,
};

impl Small {
    fn new(change: impl FnOnce(&mut TopicConfig)) -> Small {
        let folder = temporary_folder();
        let (manager, _) = prepared(folder.path(), &KEEPS);
        let name = TopicPartition::new("t", 0);
        let log = manager.create(name, "id", config(&KEEPS)).unwrap();
        let small = Small {
            _folder: folder,
            manager,
            log,
        };
        small.configure(change);
        small
    }

    fn configure(&self, change: impl FnOnce(&mut TopicConfig)) {
        let mut changed = TopicConfig::clone(&config(&KEEPS));
        change(&mut changed);
        self.log.set_config(Arc::new(changed));
    }

    /// Appends one record with each key, which takes half of a segment, or a tombstone for a key
    /// with a minus.
    fn append(&self, keys: &[&str], timestamp: i64) {
        for key in keys {
            let (key, value) = match key.strip_prefix('-') {
                Some(key) => (key, None),
                None => (*key, Some(vec![b' '; 120])),
            };
            let entry = (Some(key.as_bytes().to_vec()), value, timestamp);
            assert!(append_all(&self.log, &[keyed(0, &[entry])])[0].is_ok());
        }
        let end = self.log.sync().unwrap();
        self.log.show_until(end);
        self.log.finish_sealed().unwrap();
    }

    fn clean(&self) -> u64 {
        let before = self.manager.cleaner_stats().passes;
        self.manager.clean();
        self.manager.cleaner_stats().passes - before
    }

    /// Returns the keys in order, a tombstone with a minus.
    fn keys(&self) -> String {
        let entries = all_entries(&self.log, i64::MAX).into_values();
        let keys = entries.map(|(key, value, _)| {
            let key = String::from_utf8(key.unwrap()).unwrap();
            if value.is_none() {
                format!("-{key}")
            } else {
                key
            }
        });
        Vec::from_iter(keys).join(" ")
    }

    fn bases(&self) -> Vec<i64> {
        let segments = self.log.published().segments.clone();
        segments.iter().map(|segment| segment.base).collect()
    }
}

#[test]
fn only_closed_segments_are_compacted_and_small_ones_are_merged() {
    let small = Small::new(|_| ());
    small.append(&["a", "a", "a", "b", "a", "c", "a"], 7);
    assert_eq!(small.bases(), [0, 2, 4, 6]);
    assert_eq!(small.clean(), 1);
    assert_eq!(small.keys(), "b a c a");
    // The last batch of a compacted segment is kept, if only its header.
    assert_eq!(small.bases(), [0, 2, 4, 6]);
    let size = |number: usize| small.log.published().segments[number].size();
    assert_eq!(size(0), HEADER_BYTES as u64);
    // It is not sent, since later batches have records.
    let first = BatchHeader::parse(&read(&small.log, 0, 1)).unwrap();
    assert_eq!((first.base_offset, first.count), (3, 1));
    assert_eq!(small.clean(), 0);
    small.append(&["b"; 2], 7);
    assert_eq!(small.bases(), [0, 2, 4, 6, 8]);
    assert_eq!(small.clean(), 1);
    assert_eq!(small.keys(), "c a b b");
    assert_eq!(small.bases(), [0, 4, 6, 8]);
}

#[test]
fn the_dirty_part_has_to_be_larger_than_the_topic_says() {
    let small = Small::new(|config| config.min_cleanable_dirty_ratio = 0.6);
    small.append(&["a", "b", "c", "d", "e"], 7);
    assert_eq!(small.clean(), 1);
    // Four records are compacted; with two more segments half of the bytes are not.
    small.append(&["f", "g", "h", "i"], 7);
    assert_eq!(small.clean(), 0);
    small.append(&["j", "a", "l", "m"], 7);
    assert_eq!(small.clean(), 1);
    assert_eq!(small.keys(), "b c d e f g h i j a l m");
}

#[test]
fn young_records_wait_and_old_ones_do_not() {
    let small = Small::new(|config| config.min_compaction_lag_ms = HOUR_MS);
    let now = unix_ms();
    small.append(&["a", "a"], now - 2 * HOUR_MS);
    small.append(&["a", "a", "a"], now);
    assert_eq!(small.clean(), 1);
    assert_eq!(small.keys(), "a a a a");
    // Records older than the largest lag do not wait for others.
    let small = Small::new(|config| {
        config.min_cleanable_dirty_ratio = 1.0;
        config.max_compaction_lag_ms = HOUR_MS;
        config.segment_ms = i64::MAX;
    });
    small.append(&["a", "a", "a"], now - HOUR_MS / 2);
    assert_eq!(small.clean(), 0);
    small.configure(|config| {
        config.min_cleanable_dirty_ratio = 1.0;
        config.max_compaction_lag_ms = HOUR_MS / 3;
    });
    assert_eq!(small.clean(), 1);
    assert_eq!(small.keys(), "a a");
    // A segment spans no more time, so that it can be compacted.
    let segments = small.bases().len();
    small.append(&["b"], now);
    assert_eq!(small.bases().len(), segments + 1);
}

#[test]
fn a_tombstone_stays_for_some_time_and_then_goes() {
    let small = Small::new(|_| ());
    small.append(&["a", "b", "-a", "c", "d"], 7);
    small.clean();
    assert_eq!(small.keys(), "b -a c d");
    let with_horizon = read(&small.log, 2, 1);
    let header = BatchHeader::parse(&with_horizon).unwrap();
    let horizon = header.delete_horizon().unwrap();
    assert!((unix_ms() + HOUR_MS / 2..=unix_ms() + HOUR_MS).contains(&horizon));
    assert_eq!(header.max_timestamp, 7);
    // The time begins with the first compaction that has met it.
    small.configure(|config| config.delete_retention_ms = 0);
    small.append(&["-b", "e"], 7);
    small.clean();
    assert_eq!(small.keys(), "-a c d -b e");
    small.append(&["f", "g", "h"], 7);
    small.clean();
    assert_eq!(small.keys(), "-a c d e f g h");
}

#[test]
fn what_is_not_safe_yet_is_not_compacted() {
    let small = Small::new(|_| ());
    small.append(&["a", "a"], 7);
    let entry: Entry = (Some(b"a".to_vec()), Some(vec![b' '; 120]), 7);
    for _ in 0..5 {
        append_all(&small.log, &[keyed(0, std::slice::from_ref(&entry))]);
    }
    assert_eq!(small.bases(), [0, 2, 4, 6]);
    assert_eq!(small.clean(), 1);
    assert_eq!(small.log.compacted(), Some(2));
}

#[test]
fn a_topic_that_is_not_compacted_any_more_still_has_its_gaps() {
    let small = Small::new(|_| ());
    small.append(&["a", "b", "a", "b", "c"], 7);
    small.clean();
    assert_eq!(small.keys(), "a b c");
    small.configure(|config| config.cleanup_policy = CleanupPolicy::Delete);
    small.append(&["a", "a", "a"], 7);
    assert_eq!(small.clean(), 0);
    let Small {
        _folder: folder,
        manager,
        log,
    } = small;
    manager.close().unwrap();
    drop((manager, log));
    let deletes = |_: &str| small_segments();
    let options = DataFolderOptions::default();
    let opened = LogManager::prepare(folder.path(), options, &deletes, Box::new(|_| ()), 1);
    let (_manager, found) = opened.unwrap();
    assert_eq!(found[0].repairs, Repairs::default());
    assert_eq!(all_entries(&found[0].log, i64::MAX).len(), 6);
}

#[test]
fn readers_of_replaced_segments_keep_their_files() {
    let small = Small::new(|_| ());
    small.append(&["a", "b", "a", "b", "c"], 7);
    let content = read(&small.log, 0, 1 << 20);
    let read = small
        .log
        .read(0, 1 << 20, FirstBatch::Whole, DiskWait::Allowed);
    let LogRead::Records(range, _) = read.unwrap() else {
        panic!("there are records");
    };
    // Another reader has found the segments, and has not opened them yet.
    let old = small.log.published().segments.clone();
    old.iter().take(2).for_each(|segment| segment.close());
    small.clean();
    assert_eq!(small.keys(), "a b c");
    let mut bytes = vec![0; content.len()];
    let whole = crate::files::disk::read_exact(&*range.file, &mut bytes, 0, DiskWait::Allowed);
    whole.unwrap();
    assert_eq!(bytes, content);
    old[0].close();
    old[0].close_unused();
    let open = old[0].open().unwrap();
    let first = open.find(0, (old[0].size(), Some(2)), DiskWait::Allowed);
    assert_eq!(first.unwrap().unwrap().last_offset, 0);
}

#[test]
fn the_end_of_a_log_is_reached_though_its_last_records_are_gone() {
    let small = Small::new(|config| config.delete_retention_ms = 0);
    small.append(&["-a", "-b", "-c", "-d", "e"], 7);
    small.clean();
    // Only deletions make the active segment empty.
    let mut appender = crate::segment::lock(&small.log.appender);
    small.log.roll(&mut appender).unwrap();
    drop(appender);
    small.append(&[], 7);
    small.append(&["e", "-e", "f"], 7);
    small.clean();
    assert_eq!(small.keys(), "-e f");
    let (mut offset, end) = (0, small.log.offsets().end);
    while offset < end {
        offset = BatchHeader::parse(&read(&small.log, offset, 1))
            .unwrap()
            .next_offset();
    }
}
