//! Tests of whole logs: against a model, truncated at every byte, and on a failing disk.

mod compaction;
mod crash;
mod damage;
mod image;
mod policies;
mod session;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use proptest::prelude::*;
use rustix::io::Errno;
use underpass_testkit::WAIT_MAX;

use crate::batch::tests::{batch, batch_of};
use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::cleanup::retention::{self, DeletedFiles};
use crate::files::trace::{Call, plan};
use crate::recovery::{Before, LastEnd, Opened};
use crate::segment::{LOG, file_path};
use crate::threads::LogThreads;
use crate::*;

fn small_segments() -> Arc<TopicConfig> {
    Arc::new(TopicConfig {
        segment_bytes: 3000,
        index_interval_bytes: 300,
        // The timestamps of the batches are in 1970.
        retention_ms: -1,
        file_delete_delay_ms: 0,
        ..TopicConfig::default()
    })
}

fn opened(folder: &Path) -> (Arc<LogManager>, Vec<FoundPartition>) {
    let options = DataFolderOptions {
        retention_check_interval: Duration::from_secs(86_400),
        ..DataFolderOptions::default()
    };
    LogManager::open(folder, options, &|_| small_segments(), Box::new(|_| ())).unwrap()
}

type Answer = Receiver<Result<Appended, AppendError>>;

fn append(log: &Arc<PartitionLog>, batch: Vec<u8>, acks: Acks) -> (Append, Answer) {
    let (sender, answer) = mpsc::channel();
    let done = Box::new(move |outcome| drop(sender.send(outcome)));
    let log = Arc::clone(log);
    (
        Append {
            log,
            batch: batch.into(),
            acks,
            done,
        },
        answer,
    )
}

fn appended(manager: &LogManager, log: &Arc<PartitionLog>, batch: Vec<u8>) -> Appended {
    let (append, answer) = append(log, batch, Acks::All);
    manager.append(append);
    answer.recv_timeout(WAIT_MAX).unwrap().unwrap()
}

/// Reads the batches from an offset on that fit.
fn read(log: &PartitionLog, offset: i64, bytes_max: u64) -> Vec<u8> {
    match log
        .read(offset, bytes_max, FirstBatch::Whole, DiskWait::Allowed)
        .unwrap()
    {
        LogRead::Records(range, _) => {
            let mut bytes = vec![0; usize::try_from(range.len).unwrap()];
            let file = fs::File::from(
                std::os::fd::AsFd::as_fd(&*range.file)
                    .try_clone_to_owned()
                    .unwrap(),
            );
            file.read_exact_at(&mut bytes, range.offset).unwrap();
            bytes
        }
        LogRead::Empty => Vec::new(),
        LogRead::NeedsDisk => unreachable!("it may wait"),
    }
}

/// Returns a batch without the fields that the log writes.
fn content(batch: &[u8]) -> &[u8] {
    &batch[16..]
}

#[derive(Clone, Debug)]
enum Step {
    Append(i32, usize),
    Read(prop::sample::Index, u64),
    Restart,
    Crash,
    Retain(u64),
    /// Deletes the records before an offset.
    Delete(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        10 => (1i32..9, 0usize..900).prop_map(|(count, bytes)| Step::Append(count, bytes)),
        6 => (any::<prop::sample::Index>(), 1u64..5000).prop_map(|(at, max)| Step::Read(at, max)),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
        1 => (0u64..20_000).prop_map(Step::Retain),
        1 => any::<prop::sample::Index>().prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_log_has_what_was_appended(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let (mut manager, _) = opened(folder.path());
        let name = TopicPartition::new("t", 0);
        let mut log = manager.create(name, "id", small_segments()).unwrap();
        // Base offsets and batches.
        let mut model: Vec<(i64, Vec<u8>)> = Vec::new();
        let (mut end, mut epoch, mut deleted) = (0, 0, 0);
        for step in steps {
            match step {
                Step::Append(count, bytes) => {
                    let bytes = batch(count, bytes, end);
                    let place = appended(&manager, &log, bytes.clone());
                    prop_assert_eq!(place, Appended {
                        base_offset: end,
                        next_offset: end + i64::from(count),
                    });
                    model.push((end, bytes));
                    end = place.next_offset;
                }
                Step::Read(at, max) if end > log.offsets().start => {
                    let start = log.offsets().start;
                    let offset = start + at.index((end - start) as usize) as i64;
                    let bytes = read(&log, offset, max);
                    let number = model.partition_point(|(base, _)| *base <= offset) - 1;
                    let mut rest = &bytes[..];
                    for (base, expected) in &model[number..] {
                        if rest.len() < expected.len() {
                            break;
                        }
                        let (one, behind) = rest.split_at(expected.len());
                        let header = BatchHeader::parse(one).unwrap();
                        prop_assert_eq!(header.base_offset, *base);
                        prop_assert_eq!(content(one), content(expected));
                        rest = behind;
                    }
                    prop_assert!(bytes.len() >= model[number].1.len());
                    prop_assert!(bytes.len() as u64 <= max.max(model[number].1.len() as u64));
                }
                Step::Read(..) => prop_assert!(read(&log, end, 10).is_empty()),
                Step::Restart => {
                    manager.close().unwrap();
                    drop((manager, log));
                    let found;
                    (manager, found) = opened(folder.path());
                    prop_assert_eq!(&found[0].repairs, &Repairs::default());
                    log = Arc::clone(&found[0].log);
                }
                Step::Crash => {
                    // The maintenance thread may hold the manager for a moment longer.
                    manager.stop();
                    drop((manager, log));
                    let found;
                    (manager, found) = opened(folder.path());
                    prop_assert!(!found[0].repairs.lost_something());
                    log = Arc::clone(&found[0].log);
                    epoch += 1;
                }
                Step::Delete(at) => {
                    let start = log.offsets().start;
                    deleted = start + at.index((end - start + 1) as usize) as i64;
                    let before = [(Arc::clone(&log), deleted)];
                    prop_assert_eq!(manager.delete_records(&before).unwrap(), [deleted]);
                }
                Step::Retain(bytes) => {
                    let config = TopicConfig {
                        retention_bytes: i64::try_from(bytes).unwrap(),
                        ..TopicConfig::clone(&small_segments())
                    };
                    log.set_config(Arc::new(config));
                    manager.retain();
                    log.set_config(small_segments());
                    let start = log.offsets().start;
                    // The start may be within a batch.
                    let gone = model.partition_point(|(base, _)| *base <= start);
                    model.drain(..if start < end { gone.saturating_sub(1) } else { gone });
                    let left: usize = model.iter().map(|(_, batch)| batch.len()).sum();
                    prop_assert!(deleted > 0 || left as u64 >= bytes.min(log.size()));
                    prop_assert!(left as u64 <= bytes + 3000 || bytes == 0);
                }
            }
            let offsets = log.offsets();
            prop_assert_eq!((offsets.end, offsets.high_watermark, offsets.synced), (end, end, end));
            let first = model.first().map_or(end, |(base, _)| *base);
            prop_assert!((deleted..=first.max(deleted)).contains(&offsets.start));
            prop_assert_eq!(offsets.leader_epoch, epoch);
        }
        drop((manager, log));
    }
}

/// Applies retention as of a time.
fn retain(log: &PartitionLog, now_ms: i64) {
    let expired = retention::take_expired(log, now_ms).unwrap();
    retention::delete(log, &expired, &DeletedFiles::default()).unwrap();
}

/// Opens a log without threads.
fn alone(folder: &Path, last_end: LastEnd) -> (Arc<PartitionLog>, Repairs) {
    let before = Before {
        last_end,
        recovery_point: 0,
        log_start: 0,
        numbering: Default::default(),
        index_interval: 300,
        replaces_lost: false,
    };
    let Opened {
        published,
        appender,
        repairs,
    } = recovery::open(folder, before).unwrap();
    let name = TopicPartition::new("t", 0);
    let parts = (published, appender);
    let log = PartitionLog::new(
        name,
        "id".into(),
        folder.to_owned(),
        small_segments(),
        parts,
    );
    (Arc::new(log), repairs)
}

fn append_all(log: &PartitionLog, batches: &[Vec<u8>]) -> Vec<Result<Appended, AppendError>> {
    let batches = batches.iter().cloned().map(batch::BatchBytes::from);
    log.append_all(&batches.collect::<Vec<_>>())
}

#[test]
fn what_is_no_whole_batch_is_cut_off_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Unclean);
    let batches = [batch(3, 50, 1), batch(2, 40, 2), batch(4, 30, 3)];
    assert!(append_all(&log, &batches).iter().all(Result::is_ok));
    drop(log);
    let path = file_path(folder.path(), 0, LOG);
    let whole = fs::read(&path).unwrap();
    let whole = &whole[..batches.iter().map(Vec::len).sum()];
    for length in batches[0].len()..whole.len() {
        let copy = tempfile::tempdir().unwrap();
        fs::write(file_path(copy.path(), 0, LOG), &whole[..length]).unwrap();
        let (log, repairs) = alone(copy.path(), LastEnd::Unclean);
        let second = length >= batches[0].len() + batches[1].len();
        let (end, kept) = match second {
            true => (5, batches[0].len() + batches[1].len()),
            false => (3, batches[0].len()),
        };
        assert_eq!(log.offsets().end, end, "{length}");
        // Zeros at the end may be reserved blocks.
        let is_reserved = whole[kept..length].iter().all(|byte| *byte == 0);
        let cut = if is_reserved { 0 } else { length - kept };
        assert_eq!(repairs.cut_bytes, cut as u64, "{length}");
        assert!(!repairs.is_damaged, "{length}");
        if cut > 0 {
            let file = fs::read(file_path(copy.path(), 0, "log.cut")).unwrap();
            assert_eq!(file, &whole[kept..kept + cut]);
        }
        let next = append_all(&log, &[batch(1, 5, 9)]);
        assert_eq!(next[0].as_ref().unwrap().base_offset, end);
        assert_eq!(log.offsets().leader_epoch, 1);
        assert_eq!(log.end_of_epoch(0), Some((0, end)));
    }
}

#[test]
fn damage_is_told_from_a_torn_end() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Unclean);
    let batches = [batch(3, 50, 1), batch(2, 40, 2), batch(4, 30, 3)];
    append_all(&log, &batches);
    drop(log);
    let path = file_path(folder.path(), 0, LOG);
    let mut bytes = fs::read(&path).unwrap();
    bytes[batches[0].len() + HEADER_BYTES] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (log, repairs) = alone(folder.path(), LastEnd::Unclean);
    assert_eq!(log.offsets().end, 3);
    assert!(repairs.is_damaged);
    assert_eq!(
        repairs.cut_bytes as usize,
        batches[1].len() + batches[2].len()
    );
}

#[test]
fn segments_behind_a_cut_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Unclean);
    let batches: Vec<_> = (0..20).map(|number| batch(2, 500, number)).collect();
    append_all(&log, &batches);
    let bases: Vec<_> = log
        .published()
        .segments
        .iter()
        .map(|segment| segment.base)
        .collect();
    assert!(bases.len() > 3);
    drop(log);
    let path = file_path(folder.path(), bases[1], LOG);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 1);
    fs::write(&path, &bytes).unwrap();
    let (log, repairs) = alone(folder.path(), LastEnd::Unclean);
    assert_eq!(log.offsets().end, bases[2] - 2);
    assert_eq!(repairs.dropped_segments, bases.len() - 2);
    append_all(&log, &batches);
    drop(log);
    let (log, repairs) = alone(folder.path(), LastEnd::Unclean);
    assert_eq!(log.offsets().end, bases[2] - 2 + 40);
    assert!(!repairs.lost_something());
}

#[test]
fn a_batch_that_is_sent_again_is_appended_once_also_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut sequence = 0;
    let mut sent = Vec::new();
    for _ in 0..4 {
        let (log, _) = alone(folder.path(), LastEnd::Unclean);
        for (bytes, place) in sent.iter().rev().take(1) {
            let again = append_all(&log, &[Vec::clone(bytes)]);
            assert_eq!(again[0].as_ref().unwrap(), place);
        }
        for _ in 0..30 {
            let bytes = batch_of(7, 0, sequence, 3);
            sequence += 3;
            let place = *append_all(&log, std::slice::from_ref(&bytes))[0]
                .as_ref()
                .unwrap();
            assert_eq!(place.base_offset, i64::from(sequence) - 3);
            let again = append_all(&log, std::slice::from_ref(&bytes));
            assert_eq!(again[0].as_ref().unwrap(), &place);
            sent.push((bytes, place));
        }
        let gap = append_all(&log, &[batch_of(7, 0, sequence + 1, 1)]);
        assert!(matches!(gap[0], Err(AppendError::Sequence(_))));
        assert_eq!(log.offsets().end, i64::from(sequence));
        log.finish_sealed().unwrap();
    }
}

#[test]
fn what_cannot_be_written_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Clean);
    append_all(&log, &[batch_of(7, 0, 0, 3)]);
    for errno in [Errno::NOSPC, Errno::IO, Errno::DQUOT] {
        let before = log.offsets();
        let two = [batch_of(7, 0, 3, 2), batch_of(7, 0, 5, 2)];
        plan(Call::Write, 0, errno);
        for outcome in append_all(&log, &two) {
            assert!(matches!(outcome, Err(AppendError::Disk(_))));
        }
        assert_eq!(log.offsets(), before);
    }
    let healed = append_all(&log, &[batch_of(7, 0, 3, 2)]);
    assert_eq!(healed[0].as_ref().unwrap().base_offset, 3);
    // A duplicate of a batch whose write failed is appended.
    let before = log.offsets();
    let twice = [
        batch_of(7, 0, 5, 2),
        batch_of(7, 0, 5, 2),
        batch_of(7, 0, 7, 1),
    ];
    plan(Call::Write, 0, Errno::NOSPC);
    let outcomes = append_all(&log, &twice);
    assert!(matches!(outcomes[0], Err(AppendError::Disk(_))));
    assert_eq!(outcomes[1].as_ref().unwrap().base_offset, 5);
    assert_eq!(outcomes[2].as_ref().unwrap().next_offset, 8);
    assert_eq!(log.offsets().end, before.end + 3);
    // If a segment cannot be created, only the batch that needed it fails.
    let large: Vec<_> = (0..3).map(|number| batch_of(7, 0, 8 + number, 1)).collect();
    log.set_config(Arc::new(TopicConfig {
        segment_bytes: 300,
        ..TopicConfig::default()
    }));
    plan(Call::Open, 0, Errno::MFILE);
    let outcomes = append_all(&log, &large);
    assert!(outcomes.iter().any(Result::is_err));
    drop(log);
    let (log, repairs) = alone(folder.path(), LastEnd::Unclean);
    assert!(!repairs.lost_something());
    assert!(log.offsets().end >= 8);
}

#[test]
fn a_segment_that_is_deleted_before_it_is_synced_is_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Clean);
    let batches: Vec<_> = (0..20).map(|number| batch(2, 500, number)).collect();
    append_all(&log, &batches);
    let end = log.published().end;
    log.show_until(end);
    log.set_config(Arc::new(TopicConfig {
        retention_ms: 1,
        file_delete_delay_ms: 0,
        ..TopicConfig::clone(&small_segments())
    }));
    retain(&log, 1_000_000);
    let offsets = log.offsets();
    assert_eq!((offsets.start, offsets.end), (40, 40));
    assert_eq!(log.sync().unwrap().offset, 40);
    append_all(&log, &batches);
    assert_eq!(log.offsets().end, 80);
}

#[test]
fn consumers_see_what_is_synced_or_was_not_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Clean);
    let (sender, moved) = mpsc::channel();
    let observer = Box::new(move |moved: &[u64]| drop(sender.send(moved.to_vec())));
    let threads = LogThreads::new(FlushPolicy::Acks, observer);
    let (all, answer) = append(&log, batch(3, 10, 0), Acks::All);
    threads.append(all);
    threads.write_queued();
    assert!(answer.try_recv().is_err());
    assert_eq!((log.offsets().high_watermark, log.offsets().end), (0, 3));
    assert!(moved.try_recv().is_err());
    threads.sync_dirty();
    assert_eq!(answer.try_recv().unwrap().unwrap().next_offset, 3);
    assert_eq!(log.offsets().high_watermark, 3);
    assert_eq!(moved.try_recv(), Ok(vec![log.number()]));
    let (leader, first) = append(&log, batch(2, 10, 0), Acks::Leader);
    let (all, second) = append(&log, batch(2, 10, 0), Acks::All);
    threads.append(leader);
    threads.append(all);
    threads.write_queued();
    assert_eq!(first.try_recv().unwrap().unwrap().next_offset, 5);
    assert!(second.try_recv().is_err());
    assert_eq!((log.offsets().high_watermark, log.offsets().end), (5, 7));
    assert_eq!(read(&log, 3, 10_000).len(), batch(2, 10, 0).len());
    threads.sync_dirty();
    assert!(second.try_recv().unwrap().is_ok());
    assert_eq!(log.offsets().synced, 7);
}

#[test]
fn a_producer_that_has_its_answer_finds_its_records() {
    for (flush, acks) in [
        (FlushPolicy::Never, Acks::All),
        (FlushPolicy::Acks, Acks::Leader),
        (FlushPolicy::Acks, Acks::All),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (log, _) = alone(folder.path(), LastEnd::Clean);
        let threads = LogThreads::new(flush, Box::new(|_| ()));
        let (mut one, _) = append(&log, batch(3, 10, 0), acks);
        let (sender, shown) = mpsc::channel();
        let asked = Arc::clone(&log);
        one.done = Box::new(move |_| {
            let _ = sender.send(asked.offsets().high_watermark);
        });
        threads.append(one);
        threads.write_queued();
        threads.sync_dirty();
        assert_eq!(shown.recv(), Ok(3), "{flush:?} {acks:?}");
    }
}

#[test]
fn after_a_sync_that_failed_nothing_is_appended() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Clean);
    let threads = LogThreads::new(FlushPolicy::Acks, Box::new(|_| ()));
    let (one, answer) = append(&log, batch(3, 10, 0), Acks::All);
    threads.append(one);
    threads.write_queued();
    plan(Call::Sync, 0, Errno::IO);
    threads.sync_dirty();
    assert!(matches!(
        answer.try_recv().unwrap(),
        Err(AppendError::Offline)
    ));
    let (other, answer) = append(&log, batch(3, 10, 0), Acks::Leader);
    threads.append(other);
    threads.write_queued();
    assert!(matches!(
        answer.try_recv().unwrap(),
        Err(AppendError::Offline)
    ));
    assert_eq!(log.offsets().high_watermark, 0);
}

#[test]
fn what_was_acknowledged_unsynced_is_synced_when_that_is_asked_for() {
    for flush in [FlushPolicy::Acks, FlushPolicy::Interval, FlushPolicy::Never] {
        let folder = tempfile::tempdir().unwrap();
        let (log, _) = alone(folder.path(), LastEnd::Clean);
        let threads = LogThreads::new(flush, Box::new(|_| ()));
        let asked = |offset: i64| {
            let (sender, answer) = mpsc::channel();
            let done = Box::new(move |outcome| drop(sender.send(outcome)));
            threads.when_safe(&log, offset, done);
            answer
        };
        assert!(asked(0).try_recv().unwrap().is_ok());
        assert!(asked(9).try_recv().unwrap().is_ok(), "nothing is there");
        let (leader, first) = append(&log, batch(3, 10, 0), Acks::Leader);
        threads.append(leader);
        threads.write_queued();
        assert!(first.try_recv().unwrap().is_ok());
        assert_eq!(log.offsets().synced, 0);
        let (within, beyond) = (asked(1), asked(9));
        if flush != FlushPolicy::Acks {
            assert!(within.try_recv().unwrap().is_ok() && beyond.try_recv().unwrap().is_ok());
            assert_eq!(log.offsets().synced, 0);
            continue;
        }
        assert!(within.try_recv().is_err() && beyond.try_recv().is_err());
        threads.sync_dirty();
        assert_eq!(log.offsets().synced, 3);
        assert!(within.try_recv().unwrap().is_ok() && beyond.try_recv().unwrap().is_ok());
        assert!(asked(3).try_recv().unwrap().is_ok(), "it is synced");
    }
}

#[test]
fn nobody_waits_for_a_sync_of_threads_that_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, _) = opened(folder.path());
    let name = TopicPartition::new("t", 0);
    let log = manager.create(name, "id", small_segments()).unwrap();
    manager.close().unwrap();
    let unsynced = append_all(&log, &[batch(2, 10, 0)]);
    assert_eq!(unsynced[0].as_ref().unwrap().next_offset, 2);
    let (sender, answer) = mpsc::channel();
    manager.when_safe(&log, 2, Box::new(move |outcome| drop(sender.send(outcome))));
    assert!(matches!(
        answer.try_recv().unwrap(),
        Err(AppendError::Closed)
    ));
}

#[test]
fn times_and_epochs_lead_to_offsets() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Clean);
    let batches: Vec<_> = (0..60).map(|number| batch(2, 200, number * 10)).collect();
    append_all(&log, &batches);
    log.sync().map(|end| log.show_until(end)).unwrap();
    for (timestamp, expected) in [(0, 0), (1, 2), (10, 2), (95, 20), (590, 118), (-5, 0)] {
        let found = log.offset_of_time(timestamp).unwrap();
        assert_eq!(
            found.map(|(offset, _)| offset),
            Some(expected),
            "{timestamp}"
        );
    }
    assert_eq!(log.offset_of_time(591).unwrap(), None);
    assert_eq!(log.largest_timestamp().unwrap(), Some((118, 590)));
    assert_eq!(log.end_of_epoch(0), Some((0, 120)));
    assert_eq!(log.end_of_epoch(1), None);
}

#[test]
fn questions_about_times_leave_full_segments_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = alone(folder.path(), LastEnd::Clean);
    let batches: Vec<_> = (0..60).map(|number| batch(2, 500, number)).collect();
    append_all(&log, &batches);
    log.sync().map(|end| log.show_until(end)).unwrap();
    log.finish_sealed().unwrap();
    let segments = log.published().segments.clone();
    let open = || segments.iter().filter(|one| one.opened().is_some()).count();
    segments.iter().for_each(|segment| segment.close_unused());
    assert_eq!(open(), 1);
    assert_eq!(log.largest_timestamp().unwrap(), Some((118, 59)));
    assert_eq!(log.offset_of_time(60).unwrap(), None);
    assert_eq!(open(), 1);
    assert_eq!(log.offset_of_time(20).unwrap(), Some((40, 20)));
    assert_eq!(open(), 2);
}

#[test]
fn a_folder_is_used_by_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, _) = opened(folder.path());
    let again = LogManager::open(
        folder.path(),
        DataFolderOptions::default(),
        &|_| small_segments(),
        Box::new(|_| ()),
    );
    assert!(matches!(again, Err(LogError::InUse { .. })));
    manager.close().unwrap();
}

#[test]
fn a_partition_that_is_deleted_is_gone_and_may_be_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, _) = opened(folder.path());
    let name = TopicPartition::new("t", 3);
    let log = manager
        .create(name.clone(), "one", small_segments())
        .unwrap();
    appended(&manager, &log, batch(2, 10, 0));
    assert!(
        manager
            .create(name.clone(), "two", small_segments())
            .is_err()
    );
    manager.delete(&name).unwrap();
    let (late, answer) = append(&log, batch(2, 10, 0), Acks::All);
    manager.append(late);
    let refused = answer.recv_timeout(WAIT_MAX).unwrap();
    assert!(matches!(refused, Err(AppendError::Closed)));
    let log = manager
        .create(name.clone(), "two", small_segments())
        .unwrap();
    assert_eq!(log.offsets().end, 0);
    appended(&manager, &log, batch(1, 10, 0));
    manager.close().unwrap();
    drop((manager, log));
    let (_manager, found) = opened(folder.path());
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].log.topic_id(), found[0].log.offsets().end),
        ("two", 1)
    );
}
