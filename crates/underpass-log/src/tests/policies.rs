//! Tests when records are synced, when a new segment is started, and when segments are deleted.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use underpass_testkit::wait_until;

use super::*;
use crate::batch::tests::seal;
use crate::segment::{INDEX, SNAPSHOT, TIME_INDEX, lock};

/// Opens a log with a changed configuration of small segments.
fn kept(folder: &Path, change: impl FnOnce(&mut TopicConfig)) -> Arc<PartitionLog> {
    let (log, _) = alone(folder, LastEnd::Unclean);
    configure(&log, change);
    log
}

fn configure(log: &PartitionLog, change: impl FnOnce(&mut TopicConfig)) {
    let mut config = TopicConfig::clone(&small_segments());
    change(&mut config);
    log.set_config(Arc::new(config));
}

/// Queues and writes a batch of one record.
fn write(threads: &LogThreads, log: &Arc<PartitionLog>, acks: Acks) -> Answer {
    let (append, answer) = append(log, batch(1, 10, 0), acks);
    threads.append(append);
    threads.write_queued();
    answer
}

#[test]
fn what_nobody_waits_for_is_due_within_a_second_or_as_the_topic_has_it() {
    use FlushPolicy::{Acks as All, Interval, Never};
    for (flush, acks, flush_ms, promised_ms) in [
        (All, Acks::Leader, u64::MAX, 1000),
        (All, Acks::None, u64::MAX, 1000),
        (Interval, Acks::Leader, u64::MAX, 1000),
        (Interval, Acks::All, u64::MAX, 1000),
        (Interval, Acks::All, 5000, 1000),
        (All, Acks::Leader, 50, 50),
        (Interval, Acks::Leader, 50, 50),
        (Never, Acks::Leader, 50, 50),
        (Never, Acks::All, 5000, 5000),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let log = kept(folder.path(), |config| config.flush_ms = flush_ms);
        let threads = LogThreads::new(flush, Box::new(|_| ()));
        let promised = Duration::from_millis(promised_ms);
        let before = Instant::now();
        let answer = write(&threads, &log, acks);
        let promised = before + promised..=Instant::now() + promised;
        assert!(answer.try_recv().unwrap().is_ok());
        let due = threads.sync_due().unwrap();
        assert!(promised.contains(&due), "{flush:?} {acks:?} {flush_ms}");
        // Later records do not postpone the sync.
        write(&threads, &log, acks);
        assert_eq!(threads.sync_due(), Some(due));
        assert!(!threads.sync_due_at(due - Duration::from_nanos(1)));
        assert_eq!((log.offsets().synced, log.offsets().end), (0, 2));
        assert!(threads.sync_due_at(due));
        assert_eq!(log.offsets().synced, 2);
        assert_eq!(threads.sync_due(), None);
    }
}

#[test]
fn the_topic_that_waits_least_says_when_all_are_synced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    ["slow", "quick"]
        .map(at)
        .iter()
        .for_each(|at| fs::create_dir(at).unwrap());
    let slow = kept(&at("slow"), |_| ());
    let quick = kept(&at("quick"), |config| config.flush_ms = 50);
    let threads = LogThreads::new(FlushPolicy::Interval, Box::new(|_| ()));
    write(&threads, &slow, Acks::Leader);
    let late = threads.sync_due().unwrap();
    write(&threads, &quick, Acks::Leader);
    let now = Instant::now();
    let due = threads.sync_due().unwrap();
    assert!(due <= now + Duration::from_millis(50) && due <= late);
    while threads.sync_due_at(due) {}
    assert_eq!((slow.offsets().synced, quick.offsets().synced), (1, 1));
}

#[test]
fn nothing_is_due_where_the_kernel_decides() {
    let folder = tempfile::tempdir().unwrap();
    let log = kept(folder.path(), |_| ());
    let threads = LogThreads::new(FlushPolicy::Never, Box::new(|_| ()));
    let answer = write(&threads, &log, Acks::All);
    assert!(answer.try_recv().unwrap().is_ok());
    let a_year = Duration::from_secs(365 * 86_400);
    assert!(!threads.sync_due_at(Instant::now() + a_year));
    assert_eq!((log.offsets().synced, log.offsets().end), (0, 1));
}

#[test]
fn the_threads_sync_what_nobody_waits_for() {
    for (flush, flush_ms) in [
        (FlushPolicy::Acks, u64::MAX),
        (FlushPolicy::Interval, u64::MAX),
        (FlushPolicy::Never, 50),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = DataFolderOptions {
            flush,
            ..DataFolderOptions::default()
        };
        let config = |_: &str| small_segments();
        let opened = LogManager::open(folder.path(), options, &config, Box::new(|_| ()));
        let (manager, _) = opened.unwrap();
        let name = TopicPartition::new("t", 0);
        let log = manager.create(name, "id", small_segments()).unwrap();
        configure(&log, |config| config.flush_ms = flush_ms);
        // The second append comes when the threads are idle.
        for end in 1..3 {
            let (append, answer) = append(&log, batch(1, 10, 0), Acks::Leader);
            manager.append(append);
            let appended = answer.recv_timeout(WAIT_MAX).unwrap().unwrap();
            assert_eq!(appended.next_offset, end);
            wait_until("sync", || log.offsets().synced == end);
        }
        manager.close().unwrap();
    }
}

#[test]
fn so_many_records_as_the_topic_has_it_are_synced_before_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let log = kept(folder.path(), |config| config.flush_messages = 3);
    let threads = LogThreads::new(FlushPolicy::Never, Box::new(|_| ()));
    for end in [3, 6] {
        for _ in 0..2 {
            let answer = write(&threads, &log, Acks::Leader);
            assert!(answer.try_recv().unwrap().is_ok());
            assert!(!threads.sync_due_at(Instant::now()));
            assert_eq!(log.offsets().synced, end - 3);
        }
        let third = write(&threads, &log, Acks::Leader);
        assert!(third.try_recv().is_err());
        assert!(threads.sync_due_at(Instant::now()));
        assert_eq!(third.try_recv().unwrap().unwrap().next_offset, end);
        assert_eq!(log.offsets().synced, end);
    }
    // The limit counts records, not batches.
    let (three, answer) = append(&log, batch(3, 10, 0), Acks::Leader);
    threads.append(three);
    threads.write_queued();
    assert!(answer.try_recv().is_err());
    assert!(threads.sync_due_at(Instant::now()));
    assert_eq!(log.offsets().synced, 9);
}

fn bases(log: &PartitionLog) -> Vec<i64> {
    let segments = log.published().segments.clone();
    segments.iter().map(|segment| segment.base).collect()
}

/// Appends one record with each timestamp, in sequence.
fn append_times(log: &PartitionLog, bytes: usize, timestamps: &[i64]) {
    for timestamp in timestamps {
        append_together(log, bytes, &[*timestamp]);
    }
}

/// Appends one record with each timestamp, all in one call.
fn append_together(log: &PartitionLog, bytes: usize, timestamps: &[i64]) {
    let batches = timestamps.iter();
    let batches = batches.map(|timestamp| batch(1, bytes, *timestamp));
    let outcomes = append_all(log, &Vec::from_iter(batches));
    assert!(outcomes.iter().all(Result::is_ok));
}

#[test]
fn a_segment_is_followed_by_another_one_when_its_first_record_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let by_age = |config: &mut TopicConfig| config.segment_ms = 1000;
    let log = kept(folder.path(), by_age);
    append_times(&log, 10, &[5000, 4000, 6000, 6001, 7001]);
    assert_eq!(bases(&log), [0, 3]);
    // After a restart, the timestamp of the first record is still known.
    drop(log);
    let log = kept(folder.path(), by_age);
    append_times(&log, 10, &[7001, 7002, 8002]);
    assert_eq!(bases(&log), [0, 3, 6]);
    configure(&log, |_| ());
    append_times(&log, 10, &[9003]);
    assert_eq!(bases(&log), [0, 3, 6]);
    let folder = tempfile::tempdir().unwrap();
    let log = kept(folder.path(), by_age);
    append_together(&log, 10, &[5000, 4000, 6000, 6001, 7001]);
    assert_eq!(bases(&log), [0, 3]);
}

/// As in Kafka, records without timestamps are as old as their segment.
#[test]
fn a_segment_without_timestamps_is_followed_by_another_one_when_it_is_old_itself() {
    let folder = tempfile::tempdir().unwrap();
    let log = kept(folder.path(), |config| config.segment_ms = 60_000);
    append_times(&log, 10, &[-1, -1, 1_700_000_000_000]);
    assert_eq!(bases(&log), [0]);
    let long_ago = Instant::now().checked_sub(Duration::from_secs(61));
    lock(&log.appender).active_since = long_ago.expect("a machine that runs for a minute");
    append_times(&log, 10, &[-1, -1]);
    assert_eq!(bases(&log), [0, 3]);
}

#[test]
fn a_segment_is_followed_by_another_one_when_an_index_is_full() {
    // Every batch but the first of a segment has an entry, and one more time entry always fits.
    type Append = fn(&PartitionLog, usize, &[i64]);
    for (rise, batches, sizes, append) in [
        (0, 6, [40, 12], append_times as Append),
        (1, 3, [16, 24], append_times),
        (0, 6, [40, 12], append_together),
        (1, 3, [16, 24], append_together),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let log = kept(folder.path(), |config| {
            config.segment_bytes = 1 << 20;
            config.index_interval_bytes = 100;
            config.segment_index_bytes = 40;
        });
        let timestamps: Vec<_> = (0..2 * batches + 1).map(|number| number * rise).collect();
        append(&log, 200, &timestamps);
        assert_eq!(bases(&log), [0, batches, 2 * batches], "{rise}");
        log.sync().unwrap();
        log.finish_sealed().unwrap();
        for base in [0, batches] {
            let size = |extension| {
                let path = file_path(folder.path(), base, extension);
                fs::metadata(path).unwrap().len()
            };
            assert_eq!([INDEX, TIME_INDEX].map(size), sizes);
        }
    }
}

#[test]
fn whichever_write_fails_between_segments_what_was_appended_is_there() {
    // Two batches fit in a segment.
    let batches: Vec<_> = (0..9).map(|number| batch(1, 239, number)).collect();
    let mut failures = 0;
    for skipped in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let log = kept(folder.path(), |config| config.segment_bytes = 700);
        plan(Call::Write, skipped, Errno::NOSPC);
        let outcomes = append_all(&log, &batches);
        plan(Call::Write, usize::MAX, Errno::NOSPC);
        failures += outcomes.iter().filter(|outcome| outcome.is_err()).count();
        let appended = || batches.iter().zip(&outcomes).filter(|(_, it)| it.is_ok());
        let end = log.sync().unwrap();
        assert_eq!(usize::try_from(end.offset).unwrap(), appended().count());
        log.finish_sealed().unwrap();
        drop(log);
        let (log, _) = alone(folder.path(), LastEnd::Unclean);
        log.show_until(end);
        for (offset, (batch, _)) in (0..).zip(appended()) {
            let found = read(&log, offset, 1);
            assert_eq!(content(&found), content(batch), "{skipped}: {offset}");
        }
    }
    assert!(failures > 9, "{failures}");
}

/// Returns the existing index and snapshot files of the full segments.
fn finished_files(log: &PartitionLog) -> Vec<PathBuf> {
    let bases = bases(log);
    let full = bases.iter().zip(&bases[1..]);
    let names = full.flat_map(|(base, next)| [(base, INDEX), (base, TIME_INDEX), (next, SNAPSHOT)]);
    let paths = names.map(|(base, extension)| file_path(&log.folder, *base, extension));
    paths.filter(|path| path.exists()).collect()
}

#[test]
fn what_cannot_be_written_of_full_segments_is_written_when_the_disk_has_room() {
    let mut missing = 0;
    for (call, calls) in [
        (Call::Open, 12),
        (Call::Write, 24),
        (Call::Sync, 12),
        (Call::Rename, 12),
    ] {
        for skipped in 0..calls {
            let folder = tempfile::tempdir().unwrap();
            let options = DataFolderOptions::default();
            let config = |_: &str| small_segments();
            let prepared =
                LogManager::prepare(folder.path(), options, &config, Box::new(|_| ()), 1);
            let (manager, _) = prepared.unwrap();
            let log = manager.create(TopicPartition::new("t", 0), "id", small_segments());
            let log = log.unwrap();
            configure(&log, |config| config.segment_bytes = 700);
            append_times(&log, 239, &[1; 9]);
            log.sync().unwrap();
            plan(call, skipped, Errno::NOSPC);
            assert!(log.finish_sealed().is_err(), "{call:?} {skipped}");
            let full = bases(&log).len() - 1;
            missing += 3 * full - finished_files(&log).len();
            let mut never = Duration::MAX;
            manager.tend(&mut never);
            assert_eq!(finished_files(&log).len(), 3 * full, "{call:?} {skipped}");
            assert!(!log.finish_rest().unwrap());
        }
    }
    assert!(missing > 60, "{missing}");
}

#[test]
fn of_a_segment_that_is_gone_nothing_is_written_but_the_producers_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = kept(folder.path(), |config| {
        config.segment_bytes = 700;
        config.retention_ms = 1000;
    });
    append_times(&log, 239, &[10, 20, 5000]);
    let end = log.sync().unwrap();
    plan(Call::Write, 0, Errno::NOSPC);
    assert!(log.finish_sealed().is_err());
    log.show_until(end);
    retain(&log, 5000);
    assert_eq!(bases(&log), [2]);
    assert!(log.finish_rest().unwrap());
    let is_there = |base, extension| file_path(folder.path(), base, extension).exists();
    assert!(!is_there(0, INDEX) && !is_there(0, TIME_INDEX));
    assert!(is_there(2, SNAPSHOT));
}

/// A log with two records per segment that are deleted after a second.
fn kept_for_a_second(folder: &Path, timestamps: &[i64]) -> Arc<PartitionLog> {
    let log = kept(folder, |config| {
        config.segment_bytes = 700;
        config.retention_ms = 1000;
    });
    append_times(&log, 239, timestamps);
    let end = log.sync().unwrap();
    log.finish_sealed().unwrap();
    log.show_until(end);
    log
}

#[test]
fn segments_go_whose_latest_record_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let timestamps = [10, 50, 2000, 20, 60, 40, 3000, 3001, 4000];
    let log = kept_for_a_second(folder.path(), &timestamps);
    assert_eq!(bases(&log), [0, 2, 4, 6, 8]);
    for (now, start) in [
        (1050, 0),
        (1051, 2),
        // An older segment after a younger one waits for it.
        (3000, 2),
        (3001, 6),
        (4001, 6),
        (4002, 8),
        (5000, 8),
    ] {
        retain(&log, now);
        assert_eq!((log.offsets().start, log.offsets().end), (start, 9));
        let is_there = |base: &i64| file_path(folder.path(), *base, LOG).exists();
        let there: Vec<_> = [0, 2, 4, 6, 8].into_iter().filter(is_there).collect();
        assert_eq!(there, bases(&log), "{now}");
        assert_eq!(there[0], start, "{now}");
    }
    // The active segment is deleted as well, and its offsets are not reused.
    retain(&log, 5001);
    assert_eq!((log.offsets().start, log.offsets().end), (9, 9));
    append_times(&log, 10, &[5000]);
    assert_eq!((log.offsets().start, log.offsets().end), (9, 10));
}

/// Segments written by an earlier version have the unchecked headers of clients.
#[test]
fn a_segment_whose_headers_claim_old_times_stays_while_its_records_are_young() {
    let folder = tempfile::tempdir().unwrap();
    let log = kept_for_a_second(folder.path(), &[10]);
    let mut forged = batch(1, 239, 5000);
    forged[35..43].copy_from_slice(&50i64.to_be_bytes());
    seal(&mut forged);
    assert!(append_all(&log, &[forged]).iter().all(Result::is_ok));
    append_times(&log, 239, &[20, 60]);
    let end = log.sync().unwrap();
    log.finish_sealed().unwrap();
    log.show_until(end);
    assert_eq!(bases(&log), [0, 2]);
    for (now, start) in [(2000, 0), (6000, 0), (6001, 4)] {
        retain(&log, now);
        assert_eq!(log.offsets().start, start, "{now}");
    }
}

#[test]
fn what_nobody_has_seen_does_not_go() {
    let folder = tempfile::tempdir().unwrap();
    let log = kept(folder.path(), |config| {
        config.segment_bytes = 700;
        config.retention_ms = 1000;
    });
    append_times(&log, 239, &[10; 5]);
    assert_eq!(bases(&log), [0, 2, 4]);
    retain(&log, 1_000_000);
    assert_eq!(bases(&log), [0, 2, 4]);
    let end = log.published().end;
    log.show_until(end);
    retain(&log, 1_000_000);
    assert_eq!(bases(&log), [5]);
}

#[test]
fn records_without_times_are_as_old_as_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let log = kept_for_a_second(folder.path(), &[-1, -1, -1, 500, -1, -1, -1]);
    assert_eq!(bases(&log), [0, 2, 4, 6]);
    for (base, modified_ms) in [(0, 3000), (2, 9000), (4, 5000), (6, 9000)] {
        let path = file_path(folder.path(), base, LOG);
        let file = fs::File::options().write(true).open(path).unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(modified_ms);
        file.set_modified(modified).unwrap();
    }
    // Only the second segment has a timestamp.
    for (now, start) in [(4000, 0), (4001, 4), (6000, 4), (6001, 6), (10_000, 6)] {
        retain(&log, now);
        assert_eq!(log.offsets().start, start, "{now}");
    }
}

#[test]
fn deleted_records_are_hidden_at_once_and_for_good_and_their_files_go_with_retention() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, _) = opened(folder.path());
    let name = TopicPartition::new("t", 0);
    let log = manager.create(name, "id", small_segments()).unwrap();
    for _ in 0..20 {
        appended(&manager, &log, batch(10, 800, 0));
    }
    let delete = |before: i64| {
        manager
            .delete_records(&[(Arc::clone(&log), before)])
            .unwrap()
    };
    let segments = bases(&log).len();
    assert!(segments > 3);
    for (before, start) in [
        (0, 0),
        (-7, 0),
        (105, 105),
        (30, 105),
        (1000, 200),
        (105, 200),
    ] {
        assert_eq!(delete(before), [start], "{before}");
        assert_eq!(log.offsets().start, start);
    }
    assert_eq!(bases(&log).len(), segments);
    let earlier = log.read(199, 1, FirstBatch::Whole, DiskWait::Allowed);
    assert!(matches!(earlier, Err(ReadError::OutOfRange { .. })));
    // As after a crash.
    manager.stop();
    drop((manager, log));
    let (manager, found) = opened(folder.path());
    let log = &found[0].log;
    assert!(!found[0].repairs.lost_something());
    assert_eq!(log.offsets().start, 200);
    manager.retain();
    assert_eq!((bases(log), log.size()), (vec![200], 0));
    assert_eq!(appended(&manager, log, batch(1, 10, 0)).base_offset, 200);
}

#[test]
fn the_space_of_the_disk_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, _) = opened(folder.path());
    let (total, usable) = manager.disk_space().unwrap();
    assert!(0 < usable && usable <= total);
}
