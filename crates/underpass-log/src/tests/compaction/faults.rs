//! Compaction on a failing disk, of damaged segments, and while other things happen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use underpass_testkit::wait_until;

use super::*;
use crate::cleanup::{CleanPass, CleanablePart, Pace};

/// Appends records of few keys, in several segments.
fn fill(log: &PartitionLog) {
    for number in 0..60 {
        let key = format!("key-{}", number % 7).into_bytes();
        let entry = (Some(key), Some(vec![b' '; 100]), number);
        assert!(append_all(log, &[keyed(0, &[entry])])[0].is_ok());
    }
    let end = log.sync().unwrap();
    log.show_until(end);
    log.finish_sealed().unwrap();
}

const SETTINGS: Settings = Settings {
    segment_bytes: 1500,
    map_bytes: 10_000,
    forgets: false,
};

fn filled(folder: &Path) -> (Arc<LogManager>, Arc<PartitionLog>) {
    let (manager, _) = prepared(folder, &SETTINGS);
    let name = TopicPartition::new("t", 0);
    let log = manager.create(name, "id", config(&SETTINGS)).unwrap();
    fill(&log);
    (manager, log)
}

/// Returns the latest offset of each key.
fn latest(entries: &BTreeMap<i64, Entry>) -> BTreeMap<Option<Vec<u8>>, i64> {
    let offsets = entries
        .iter()
        .map(|(offset, entry)| (entry.0.clone(), *offset));
    offsets.collect()
}

fn has_leftovers(log: &PartitionLog) -> bool {
    let names = fs::read_dir(&log.folder).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.any(|name| name.ends_with(".cleaned") || name.ends_with(".swap"))
}

#[test]
fn whatever_fails_the_log_is_whole_and_is_compacted_later() {
    let mut failures = 0;
    let kinds = [
        (Call::Open, 8),
        (Call::Write, 14),
        (Call::Sync, 20),
        (Call::Rename, 40),
    ];
    for (call, calls) in kinds {
        for (skipped, errno) in (0..calls).flat_map(|at| [(at, Errno::NOSPC), (at, Errno::IO)]) {
            let folder = temporary_folder();
            let (manager, log) = filled(folder.path());
            let before = all_entries(&log, i64::MAX);
            plan(call, skipped, errno);
            manager.clean();
            plan(call, usize::MAX, errno);
            let context = format!("{call:?} {skipped}");
            assert!(!has_leftovers(&log), "{context}");
            failures += manager.cleaner_stats().failed_partitions;
            assert_eq!(
                latest(&all_entries(&log, i64::MAX)),
                latest(&before),
                "{context}"
            );
            manager.cleaning.retry();
            manager.clean();
            assert_eq!(manager.cleaner_stats().failed_partitions, 0);
            let after = all_entries(&log, i64::MAX);
            assert_eq!(latest(&after), latest(&before), "{context}");
            assert!(after.len() < before.len() / 2, "{context}");
            // As after a crash.
            drop((manager, log));
            let (_manager, found) = prepared(folder.path(), &SETTINGS);
            assert!(!found[0].repairs.lost_something(), "{context}");
            assert_eq!(all_entries(&found[0].log, i64::MAX), after, "{context}");
        }
    }
    assert!(failures > 60, "{failures}");
}

#[test]
fn a_pass_over_many_segments_has_few_files_open() {
    let folder = temporary_folder();
    let tiny = Settings {
        segment_bytes: 200,
        ..SETTINGS
    };
    let (manager, _) = prepared(folder.path(), &tiny);
    let name = TopicPartition::new("t", 0);
    let log = manager.create(name, "id", config(&tiny)).unwrap();
    fill(&log);
    let segments = log.published().segments.clone();
    assert!(segments.len() > 50);
    segments.iter().for_each(|segment| segment.close());
    drop(segments);
    let part = CleanablePart::of(&log, 0).unwrap().unwrap();
    let never = AtomicBool::new(false);
    let pass = CleanPass {
        log: &log,
        part: &part,
        now_ms: 0,
        map_bytes_max: 1000,
        deleted: &DeletedFiles::default(),
    };
    let open_files = || {
        let files = fs::read_dir("/proc/self/fd").unwrap();
        let files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.filter(|path| path.starts_with(&log.folder)).count()
    };
    let mut most = 0;
    let mut count = || {
        most = most.max(open_files());
        Ok(())
    };
    let pace = &mut Pace::new(&never, u64::MAX);
    let cleaned = pass.run(pace, &mut count).unwrap();
    assert!(cleaned.segments.0 > 50 && (1..10).contains(&most), "{most}");
}

#[test]
fn a_damaged_segment_is_left_alone_and_other_partitions_are_compacted() {
    for damage in [HEADER_BYTES + 5, 8, 0] {
        let folder = temporary_folder();
        let (manager, log) = filled(folder.path());
        let other = TopicPartition::new("u", 0);
        let other = manager.create(other, "id", config(&SETTINGS)).unwrap();
        fill(&other);
        let base = log.published().segments[1].base;
        let path = file_path(&log.folder, base, LOG);
        let mut content = fs::read(&path).unwrap();
        content[damage + 3] ^= 1;
        fs::write(&path, &content).unwrap();
        manager.clean();
        assert_eq!(manager.cleaner_stats().failed_partitions, 1, "{damage}");
        assert_eq!(log.compacted(), None, "{damage}");
        assert_eq!(fs::read(&path).unwrap(), content, "{damage}");
        assert!(!has_leftovers(&log), "{damage}");
        assert!(all_entries(&other, i64::MAX).len() < 30);
        // A partition that is deleted does not count.
        manager.delete(log.name()).unwrap();
        manager.clean();
        assert_eq!(manager.cleaner_stats().failed_partitions, 0, "{damage}");
    }
}

/// Opens a data folder with threads that compact all the time.
fn running(folder: &Path, io_bytes_per_second_max: u64) -> (Arc<LogManager>, Arc<PartitionLog>) {
    let options = DataFolderOptions {
        cleaner: CleanerOptions {
            backoff: Duration::from_millis(1),
            io_bytes_per_second_max,
            ..CleanerOptions::default()
        },
        ..DataFolderOptions::default()
    };
    let of_topic = |_: &str| config(&SETTINGS);
    let opened = LogManager::open(folder, options, &of_topic, Box::new(|_| ()));
    let (manager, _) = opened.unwrap();
    let name = TopicPartition::new("t", 0);
    let log = manager.create(name, "id", config(&SETTINGS)).unwrap();
    (manager, log)
}

/// Ends the other thread, also when the test fails.
struct EndOnDrop<'e>(&'e AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn readers_and_writers_go_on_while_a_log_is_compacted() {
    let folder = temporary_folder();
    let (manager, log) = running(folder.path(), u64::MAX);
    let is_over = AtomicBool::new(false);
    let mut end = 0;
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut offset = 0;
            while !is_over.load(Ordering::Acquire) {
                let batch = read(&log, offset, 1);
                offset = match BatchHeader::parse(&batch) {
                    Some(header) => {
                        assert!(header.last_offset() >= offset);
                        let _ = entries(&batch);
                        header.next_offset()
                    }
                    None => 0,
                };
                log.offset_of_time(offset).unwrap();
            }
        });
        let _ends = EndOnDrop(&is_over);
        while manager.cleaner_stats().passes < 3 || end < 100 {
            assert!(end < 100_000 && !reader.is_finished());
            let key = format!("key-{}", end % 7).into_bytes();
            let entry = (Some(key), Some(vec![b' '; 100]), end);
            let appended = appended(&manager, &log, keyed(0, &[entry]));
            assert_eq!(appended.base_offset, end);
            end = appended.next_offset;
        }
    });
    manager.close().unwrap();
    let found = all_entries(&log, i64::MAX);
    let expected = (end - 7..end).map(|number| (Some(format!("key-{}", number % 7)), number));
    let expected = expected.map(|(key, offset)| (key.map(String::into_bytes), offset));
    assert_eq!(latest(&found), expected.collect());
}

#[test]
fn a_compaction_ends_when_the_broker_stops_or_the_topic_is_deleted() {
    for deletes in [false, true] {
        let folder = temporary_folder();
        // It would take hours.
        let (manager, log) = running(folder.path(), 1);
        for number in 0..60 {
            let entry = (Some(b"key".to_vec()), Some(vec![b' '; 100]), number);
            appended(&manager, &log, keyed(0, &[entry]));
        }
        wait_until("compaction", || manager.cleaning.is_active());
        if deletes {
            manager.delete(log.name()).unwrap();
        }
        let (sender, stopped) = mpsc::channel();
        let closing = Arc::clone(&manager);
        let closer = thread::spawn(move || sender.send(closing.close()));
        stopped.recv_timeout(WAIT_MAX).unwrap().unwrap();
        closer.join().unwrap().unwrap();
        assert_eq!(manager.cleaner_stats().passes, 0);
        assert_eq!(
            log.published()
                .segments
                .iter()
                .filter(|it| it.base == 0)
                .count(),
            1
        );
    }
}
