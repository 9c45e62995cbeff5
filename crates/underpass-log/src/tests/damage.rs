//! Data folders with damaged files and leftovers: a start recovers the data, or names the file that
//! prevents it. Nothing is lost without a message, and nothing panics.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use rustix::io::Errno;

use crate::batch::tests::{batch, batch_of};
use crate::batch::{self, BatchHeader, HEADER_BYTES};
use crate::files::trace::{Call, plan};
use crate::recovery::Before;
use crate::segment::{LOG, file_path, parse_name};
use crate::tests::{append_all, opened, read, small_segments};
use crate::*;

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const CLEANED: &str = "cleaner-offset-checkpoint";
const EPOCHS: &str = "t-0/leader-epoch-checkpoint";
const CLEAN: &str = ".kafka_cleanshutdown";

/// The number of batches from a producer in a data folder with one partition, and of other batches.
const BATCHES: usize = 24;
const END: i64 = 4 * BATCHES as i64;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Cleanly,
    ByCrash,
}

struct Folder {
    folder: tempfile::TempDir,
    /// The base offsets of the segments.
    bases: Vec<i64>,
    content: Vec<u8>,
}

/// The files and segments after a clean end.
struct Written {
    files: Vec<(PathBuf, Vec<u8>)>,
    bases: Vec<i64>,
    content: Vec<u8>,
}

static WRITTEN: LazyLock<Written> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (manager, _) = opened(folder.path());
    let name = TopicPartition::new("t", 0);
    let log = manager.create(name, "id", small_segments()).unwrap();
    for number in 0..BATCHES {
        let bytes = batch_of(7, 0, 2 * number as i32, 2);
        super::appended(&manager, &log, bytes);
        super::appended(&manager, &log, batch(2, 600, number as i64));
    }
    let content = served(&log);
    let segments = log.published().segments.clone();
    manager.close().unwrap();
    drop((manager, log));
    let bases: Vec<_> = segments.iter().map(|segment| segment.base).collect();
    assert!(bases.len() > 4);
    let mut files = Vec::new();
    for place in ["", "t-0"] {
        for entry in fs::read_dir(folder.path().join(place)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.strip_prefix(folder.path()).unwrap();
                files.push((name.to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    Written {
        files,
        bases,
        content,
    }
});

impl Folder {
    /// A partition with several segments.
    fn written(ended: Ended) -> Folder {
        let written = &*WRITTEN;
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("t-0")).unwrap();
        for (path, content) in &written.files {
            fs::write(folder.path().join(path), content).unwrap();
        }
        if ended == Ended::ByCrash {
            fs::remove_file(folder.path().join(CLEAN)).unwrap();
        }
        Folder {
            folder,
            bases: written.bases.clone(),
            content: written.content.clone(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn partition(&self) -> PathBuf {
        self.path("t-0")
    }

    /// Returns the path of a file of the segment with this number.
    fn file(&self, segment: usize, extension: &str) -> PathBuf {
        file_path(&self.partition(), self.bases[segment], extension)
    }

    fn open(&self) -> (Arc<LogManager>, FoundPartition) {
        let (manager, mut found) = opened(self.folder.path());
        assert_eq!(found.len(), 1);
        (manager, found.remove(0))
    }

    /// Opens it twice, and expects all appended batches and that appends succeed.
    fn has_everything(&self, what: &str) {
        for turn in 0..2 {
            let (manager, found) = self.open();
            assert!(!found.repairs.lost_something(), "{what}, {turn}");
            assert_eq!(found.log.offsets().start, 0, "{what}, {turn}");
            assert!(served(&found.log) == self.content, "{what}, {turn}");
            let again = batch_of(7, 0, 2 * BATCHES as i32 - 2, 2);
            let again = super::appended(&manager, &found.log, again);
            assert!(again.base_offset < END, "{what}, {turn}");
        }
    }

    fn refusal(&self) -> String {
        let options = DataFolderOptions::default();
        let config = |_: &str| small_segments();
        let refused = LogManager::open(self.folder.path(), options, &config, Box::new(|_| ()));
        refused.map(|_| ()).unwrap_err().to_string()
    }
}

/// Returns everything that consumers get.
fn served(log: &PartitionLog) -> Vec<u8> {
    let (mut content, mut offset) = (Vec::new(), log.offsets().start);
    loop {
        let bytes = read(log, offset, 1 << 20);
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest).filter(|header| header.size <= rest.len())
        {
            assert!(header.next_offset() > offset);
            offset = header.next_offset();
            content.extend_from_slice(&rest[..header.size]);
            rest = &rest[header.size..];
        }
        if bytes.is_empty() {
            return content;
        }
    }
}

fn garbage(count: usize) -> Vec<u8> {
    (0..count).map(|number| (number * 37 % 251) as u8).collect()
}

#[test]
fn damaged_checkpoints_are_found_out_again() {
    let large = format!("0\n1\nt 0 {}\n", i64::MAX);
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        for name in [RECOVERY_POINTS, LOG_STARTS, EPOCHS] {
            for content in [
                "",
                "0",
                "0\n2\nt 0 96\n",
                "0\n1\nt 0 96\nt 1 3\n",
                "0\n99999999999999999999999\nt 0 1\n",
                "0\n1\nt 0 -5\n",
                "0\n1\nt 0 99999999999999999999999\n",
                "0\n1\n-1 -1\n",
                "0\n1\n2147483648 0\n",
                "0\n1\n0 9223372036854775807\n",
                &large,
                "\0\0\0\0\0\0\0\0",
            ] {
                let folder = Folder::written(ended);
                fs::write(folder.path(name), content).unwrap();
                folder.has_everything(&format!("{name} {content:?} {ended:?}"));
            }
            let folder = Folder::written(ended);
            fs::write(folder.path(name), garbage(5000)).unwrap();
            folder.has_everything(name);
            let folder = Folder::written(ended);
            let file = File::create(folder.path(name)).unwrap();
            file.set_len(1 << 40).unwrap();
            folder.has_everything(name);
        }
    }
}

#[test]
fn a_log_start_behind_the_end_hides_nothing_after_a_clean_end() {
    let folder = Folder::written(Ended::Cleanly);
    fs::write(folder.path(LOG_STARTS), "0\n1\nt 0 4800\n").unwrap();
    folder.has_everything("log start");
}

#[test]
fn offsets_that_were_synced_and_are_gone_are_reported() {
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        let folder = Folder::written(ended);
        let last = folder.bases.len() - 1;
        fs::remove_file(folder.file(last, LOG)).unwrap();
        let (_manager, found) = folder.open();
        let missing = END - folder.bases[last];
        assert_eq!(found.repairs.missing_offsets, missing.unsigned_abs());
        assert!(found.repairs.lost_something());
        assert_eq!(found.log.offsets().end, folder.bases[last]);
        assert_eq!(found.log.offsets().leader_epoch, 1);
    }
}

#[test]
fn damaged_indexes_and_snapshots_are_made_again() {
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        for extension in ["index", "timeindex", "snapshot", "checkpoint"] {
            for (what, damage) in damages() {
                let folder = Folder::written(ended);
                for segment in 0..folder.bases.len() {
                    let path = folder.file(segment, extension);
                    damage(&path, &fs::read(&path).unwrap_or_default());
                }
                folder.has_everything(&format!("{extension} {what} {ended:?}"));
            }
        }
    }
}

#[test]
fn an_index_that_leads_elsewhere_is_not_followed() {
    let changes: [fn(&mut [u8]); 4] = [
        |entry| entry[7] ^= 1,
        |entry| entry[3] ^= 1,
        |entry| entry[4..].copy_from_slice(&1u32.to_be_bytes()),
        |entry| entry[..4].copy_from_slice(&0u32.to_be_bytes()),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let folder = Folder::written(Ended::Cleanly);
        let largest = folder.open().1.log.largest_timestamp().unwrap();
        let folder = Folder::written(Ended::Cleanly);
        for segment in 0..folder.bases.len() - 1 {
            let path = folder.file(segment, "index");
            let mut index = fs::read(&path).unwrap();
            // The last entry shows at a start that the index is wrong.
            let last = index.len() - 8;
            assert!(last > 0);
            index[..last].chunks_mut(8).for_each(change);
            fs::write(path, index).unwrap();
            let path = folder.file(segment, "timeindex");
            let mut times = fs::read(&path).unwrap();
            times.chunks_mut(12).for_each(|entry| entry[7] = 0);
            fs::write(path, times).unwrap();
        }
        let (manager, found) = folder.open();
        assert!(served(&found.log) == folder.content, "{number}");
        for offset in 0..END {
            let batch = read(&found.log, offset, 1);
            let header = BatchHeader::parse(&batch).unwrap();
            assert!((header.base_offset..=header.last_offset()).contains(&offset));
        }
        assert_eq!(found.log.largest_timestamp().unwrap(), largest);
        drop((manager, found));
        folder.has_everything(&format!("change {number}"));
    }
}

/// Damages the second batch of a full segment, with the offsets 18 and 19.
fn with_damaged_batch(ended: Ended, damage: impl Fn(&mut [u8])) -> Folder {
    let folder = Folder::written(ended);
    let path = folder.file(1, LOG);
    let mut content = fs::read(&path).unwrap();
    let size = BatchHeader::parse(&content).unwrap().size;
    damage(&mut content[size..]);
    fs::write(path, content).unwrap();
    folder
}

#[test]
fn damaged_batches_within_a_segment_are_an_error_and_those_around_them_are_served() {
    type Change = fn(&mut [u8]);
    let damages: [(&str, Change); 5] = [
        ("no magic", |batch| batch[16] = 0),
        ("zeros", |batch| batch[..HEADER_BYTES].fill(0)),
        ("an offset before", |batch| {
            batch::tests::put_place(batch, 3, 0);
        }),
        ("an offset further on", |batch| {
            batch::tests::put_place(batch, 19, 0);
        }),
        ("an offset of the next segment", |batch| {
            batch::tests::put_place(batch, END - 1, 0);
        }),
    ];
    for (what, damage) in damages {
        for ended in [Ended::Cleanly, Ended::ByCrash] {
            let folder = with_damaged_batch(ended, damage);
            assert_eq!(folder.bases[1], 16);
            for turn in 0..3 {
                let what = format!("{what}, {ended:?}, start {turn}");
                let (_manager, found) = folder.open();
                // A start that rebuilds the index detects the damage, or else a fetch does.
                let gap = 18..20;
                let gaps = std::slice::from_ref(&gap);
                assert_eq!(
                    found.repairs.gaps,
                    if turn == 2 { gaps } else { &[] },
                    "{what}"
                );
                assert_eq!(found.log.offsets().end, END, "{what}");
                for offset in [17, 18, 19, 20, 18] {
                    let read =
                        found
                            .log
                            .read(offset, 1 << 20, FirstBatch::Whole, DiskWait::Allowed);
                    match read {
                        Err(ReadError::Lost { gap }) => assert_eq!(gap, 18..20, "{what}"),
                        Ok(LogRead::Records(..)) => {
                            let batch = super::read(&found.log, offset, 1);
                            let header = BatchHeader::parse(&batch).unwrap();
                            let offsets = header.base_offset..=header.last_offset();
                            assert!(offsets.contains(&offset) && offset != 18, "{what}");
                        }
                        other => panic!("{what}: {other:?}"),
                    }
                }
                // From now on a fetch from an earlier offset ends at the gap.
                let before = super::read(&found.log, 16, 1 << 20);
                let header = BatchHeader::parse(&before).unwrap();
                assert_eq!(
                    (header.next_offset(), header.size),
                    (18, before.len()),
                    "{what}"
                );
                let served = served_around(&found.log, gaps);
                assert_eq!(served, left_of(&folder, &gap), "{what}");
                if turn == 1 {
                    fs::remove_file(folder.file(1, "index")).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_header_that_leads_elsewhere_takes_nothing_intact_with_it() {
    type Change = fn(&mut [u8], [usize; 2]);
    let damages: [(&str, Change); 5] = [
        ("the next one, too", |batch, [first, second]| {
            set_size(batch, first + second);
        }),
        ("too much", |batch, [first, _]| {
            set_size(batch, first + (1 << 20));
        }),
        ("too little", |batch, [first, _]| set_size(batch, first - 1)),
        ("fewer records", |batch, _| batch[26] = 0),
        ("more records", |batch, _| batch[26] = 9),
    ];
    let last = Folder::written(Ended::Cleanly).bases[2] - 2;
    for (what, damage) in damages {
        // A batch in the middle, and the last one of the segment.
        for damaged in [18, last] {
            for indexed in [true, false] {
                let folder = Folder::written(Ended::ByCrash);
                let path = folder.file(1, LOG);
                let mut content = fs::read(&path).unwrap();
                let at = position_of(&content, damaged);
                let size = |at: usize| BatchHeader::parse(&content[at..]).map(|one| one.size);
                let first = size(at).unwrap();
                let sizes = [first, size(at + first).unwrap_or(0)];
                damage(&mut content[at..], sizes);
                fs::write(&path, content).unwrap();
                if !indexed {
                    fs::remove_file(folder.file(1, "index")).unwrap();
                }
                let (_manager, found) = folder.open();
                let what = format!("{what}, {damaged}, {indexed}");
                assert_eq!(found.log.offsets().end, END, "{what}");
                for offset in (16..damaged).chain(damaged + 2..END) {
                    let bytes = read(&found.log, offset, 1);
                    let header = BatchHeader::parse(&bytes).unwrap();
                    let offsets = header.base_offset..=header.last_offset();
                    assert!(offsets.contains(&offset), "{what}: {offset} is {offsets:?}");
                    assert_eq!(bytes.len(), header.size, "{what}: {offset}");
                }
                // The damaged batch is an error, or is sent unchanged.
                let read = found
                    .log
                    .read(damaged + 1, 1, FirstBatch::Whole, DiskWait::Allowed);
                match read {
                    Err(ReadError::Lost { gap }) => {
                        assert!(gap == (damaged..damaged + 2) || gap == (damaged + 1..damaged + 2));
                    }
                    read => assert!(matches!(read, Ok(LogRead::Records(..))), "{what}: {read:?}"),
                }
            }
        }
    }
}

fn set_size(batch: &mut [u8], size: usize) {
    let length = u32::try_from(size - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
}

fn position_of(content: &[u8], offset: i64) -> usize {
    let mut at = 0;
    loop {
        let header = BatchHeader::parse(&content[at..]).unwrap();
        if header.base_offset == offset {
            return at;
        }
        at += header.size;
    }
}

#[test]
fn a_batch_in_the_value_of_a_record_is_none_of_the_log() {
    for base in [3, 5, 30, 1_000_000] {
        for ended in [recovery::LastEnd::Clean, recovery::LastEnd::Unclean] {
            let folder = tempfile::tempdir().unwrap();
            let (log, _) = super::alone(folder.path(), recovery::LastEnd::Clean);
            log.set_config(Arc::new(TopicConfig::default()));
            let mut batches: Vec<_> = (0..8).map(|time| batch(1, 1000, time)).collect();
            let mut at = batches[4].len() - 900;
            for offset in [base, base + 1] {
                let mut inner = batch(1, 50, 9);
                batch::tests::put_place(&mut inner, offset, 0);
                batches[4][at..at + inner.len()].copy_from_slice(&inner);
                at += inner.len();
            }
            let crc = crc32c::crc32c(&batches[4][21..]);
            batches[4][17..21].copy_from_slice(&crc.to_be_bytes());
            append_all(&log, &batches);
            let path = file_path(folder.path(), 0, LOG);
            let file = File::options().write(true).open(path).unwrap();
            let damaged = 4 * batches[0].len() as u64;
            file.write_all_at(&[0; HEADER_BYTES], damaged).unwrap();
            let gap = 4..5;
            drop(log);
            let before = Before {
                last_end: ended,
                recovery_point: 8,
                ..Before::new(300)
            };
            let opened = recovery::open(folder.path(), before).unwrap();
            assert_eq!(opened.repairs.gaps, std::slice::from_ref(&gap), "{base}");
            assert_eq!(opened.published.end.offset, 8, "{base}");
        }
    }
}

#[test]
fn times_behind_damage_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = super::alone(folder.path(), recovery::LastEnd::Clean);
    let batches: Vec<_> = (0..6).map(|time| batch(1, 50, time)).collect();
    append_all(&log, &batches);
    let end = log.published().end;
    log.show_until(end);
    let path = file_path(folder.path(), 0, LOG);
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0], 2 * batches[0].len() as u64 + 16)
        .unwrap();
    for (time, offset) in [(0, 0), (1, 1), (2, 3), (3, 3), (5, 5)] {
        let found = log.offset_of_time(time).unwrap();
        assert_eq!(found, Some((offset, offset)), "{time}");
    }
}

#[test]
fn what_was_synced_behind_damage_of_the_last_segment_is_kept() {
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        let folder = Folder::written(ended);
        let last = folder.bases.len() - 1;
        let path = folder.file(last, LOG);
        let mut content = fs::read(&path).unwrap();
        let first = BatchHeader::parse(&content).unwrap();
        content[first.size + 16] = 0;
        fs::write(&path, content).unwrap();
        fs::remove_file(folder.file(last, "checkpoint")).unwrap();
        let gap = first.next_offset()..first.next_offset() + 2;
        for turn in 0..3 {
            let (manager, found) = folder.open();
            // Later starts skip the segment and detect the damage in fetches.
            assert!(turn > 0 || found.repairs.gaps == std::slice::from_ref(&gap));
            assert_eq!(found.log.offsets().end, END);
            let served = served_around(&found.log, std::slice::from_ref(&gap));
            assert!(served == left_of(&folder, &gap), "{ended:?}, start {turn}");
            match turn {
                0 => drop(manager),
                _ => manager.close().unwrap(),
            }
        }
    }
}

type Damage = fn(&Path, &[u8]);

fn damages() -> Vec<(&'static str, Damage)> {
    fn change(path: &Path, content: &[u8], change: impl Fn(&mut Vec<u8>)) {
        let mut content = content.to_vec();
        change(&mut content);
        fs::write(path, content).unwrap();
    }
    vec![
        ("missing", |path, _| drop(fs::remove_file(path))),
        ("empty", |path, _| fs::write(path, "").unwrap()),
        ("cut", |path, old| {
            fs::write(path, &old[..(old.len() / 2 + 3).min(old.len())]).unwrap();
        }),
        ("zeros", |path, old| {
            fs::write(path, vec![0; old.len()]).unwrap();
        }),
        ("garbage", |path, _| fs::write(path, garbage(240)).unwrap()),
        ("ones", |path, old| {
            fs::write(path, vec![0xff; old.len().max(24)]).unwrap();
        }),
        ("too long", |path, old| {
            change(path, old, |content| content.extend(garbage(100_000)));
        }),
        ("far too long", |path, _| {
            File::create(path).unwrap().set_len(1 << 40).unwrap();
        }),
        ("a link to an endless file", |path, _| {
            let _ = fs::remove_file(path);
            symlink("/dev/zero", path).unwrap();
        }),
        ("a huge count", |path, old| {
            change(path, old, |content| {
                content.resize(content.len().max(10), 0);
                content[6..10].copy_from_slice(&i32::MAX.to_be_bytes());
            });
        }),
    ]
}

#[test]
fn a_start_does_not_look_through_what_was_known_of_the_active_segment() {
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        let folder = Folder::written(ended);
        let last = folder.bases.len() - 1;
        let path = folder.file(last, LOG);
        let mut content = fs::read(&path).unwrap();
        let size = BatchHeader::parse(&content).unwrap().size;
        // A scan of this batch would find the end of the log.
        content[size + 16] = 0;
        fs::write(&path, content).unwrap();
        let (manager, found) = folder.open();
        assert!(!found.repairs.lost_something());
        assert_eq!(found.log.offsets().end, END);
        let again = batch_of(7, 0, 2 * BATCHES as i32 - 2, 2);
        assert!(super::appended(&manager, &found.log, again).base_offset < END);
        super::appended(&manager, &found.log, batch(1, 10, 0));
        assert_eq!(found.log.largest_timestamp().unwrap().unwrap().1, 23);
    }
}

#[test]
fn what_is_known_of_other_batches_is_not_believed() {
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        let mut folder = Folder::written(ended);
        let last = folder.bases.len() - 1;
        let path = folder.file(last, LOG);
        let mut content = fs::read(&path).unwrap();
        let (mut at, size) = (0, content.len());
        while at < size {
            let batch = &mut content[at..];
            at += BatchHeader::parse(batch).unwrap().size;
            batch[HEADER_BYTES] ^= 1;
            let end = BatchHeader::parse(batch).unwrap().size;
            let crc = crc32c::crc32c(&batch[21..end]);
            batch[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        let before = folder.content.len() - size;
        folder.content.truncate(before);
        folder.content.extend_from_slice(&content);
        fs::write(&path, content).unwrap();
        folder.has_everything("others");
    }
}

/// A snapshot with one entry of these numbers and a correct checksum.
fn snapshot(id: i64, epoch: i16, sequence: i32, offset: i64, delta: i32) -> Vec<u8> {
    let mut file = vec![0; 6];
    file[1] = 1;
    file.extend(1i32.to_be_bytes());
    file.extend(id.to_be_bytes());
    file.extend(epoch.to_be_bytes());
    file.extend(sequence.to_be_bytes());
    file.extend(offset.to_be_bytes());
    file.extend(delta.to_be_bytes());
    file.extend([0xff; 20]);
    let crc = crc32c::crc32c(&file[6..]);
    file[2..6].copy_from_slice(&crc.to_be_bytes());
    file
}

#[test]
fn numbers_of_a_snapshot_that_cannot_be_are_no_snapshot() {
    for (sequence, offset, delta) in [
        (0, 5, i32::MIN),
        (0, i64::MAX, 0),
        (0, i64::MIN, 1),
        (5, 3, 4),
        (i32::MAX, -1, i32::MAX),
    ] {
        let folder = Folder::written(Ended::Cleanly);
        for entry in fs::read_dir(folder.partition()).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "snapshot")
            {
                fs::write(path, snapshot(7, 0, sequence, offset, delta)).unwrap();
            }
        }
        folder.has_everything(&format!("{sequence} {offset} {delta}"));
    }
}

#[test]
fn zeros_behind_the_end_are_no_loss() {
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        for segment in [0, 2, usize::MAX] {
            let folder = Folder::written(ended);
            let path = folder.file(segment.min(folder.bases.len() - 1), LOG);
            let file = File::options().append(true).open(path).unwrap();
            let size = file.metadata().unwrap().len();
            file.set_len(size + 10_000).unwrap();
            let (manager, found) = folder.open();
            // Otherwise later segments are dropped, but their files are kept.
            let is_last = segment == usize::MAX;
            assert_eq!(found.repairs.cut_bytes, 0);
            if is_last || ended == Ended::Cleanly {
                assert_eq!(served(&found.log), folder.content);
            }
            drop((manager, found));
        }
    }
}

/// Returns everything that consumers get if they continue after gaps.
fn served_around(log: &PartitionLog, gaps: &[Range<i64>]) -> Vec<u8> {
    let (mut content, mut offset) = (Vec::new(), log.offsets().start);
    while offset < log.offsets().end {
        let read = log.read(offset, 1, FirstBatch::Whole, DiskWait::Allowed);
        if let Err(ReadError::Lost { gap }) = &read {
            assert!(gaps.contains(gap) && gap.contains(&offset));
            offset = gap.end;
            continue;
        }
        let bytes = super::read(log, offset, 1);
        offset = BatchHeader::parse(&bytes).unwrap().next_offset();
        content.extend(bytes);
    }
    content
}

/// Returns the appended batches without those in a gap.
fn left_of(folder: &Folder, gap: &Range<i64>) -> Vec<u8> {
    let mut rest = &folder.content[..];
    let mut left = Vec::new();
    while let Some(header) = BatchHeader::parse(rest) {
        let (one, behind) = rest.split_at(header.size);
        if !gap.contains(&header.base_offset) {
            left.extend_from_slice(one);
        }
        rest = behind;
    }
    left
}

/// Expects the undamaged batches of a folder, at this start and the next ones, and an error in
/// place of the lost ones.
fn has_all_but(folder: &Folder, gap: &Range<i64>, what: &str) {
    let expected = left_of(folder, gap);
    let mut appended = Vec::new();
    for turn in 0..3i32 {
        let (manager, found) = folder.open();
        let what = format!("{what}, start {turn}");
        assert_eq!(found.repairs.gaps, std::slice::from_ref(gap), "{what}");
        assert!(found.repairs.lost_something(), "{what}");
        assert_eq!(found.log.offsets().end, END + i64::from(turn), "{what}");
        let served = served_around(&found.log, &found.repairs.gaps);
        assert!(served == [&expected[..], &appended].concat(), "{what}");
        super::appended(&manager, &found.log, batch(1, 10, 0));
        appended.extend(super::read(&found.log, END + i64::from(turn), 1));
        match turn {
            0 => drop(manager),
            _ => manager.close().unwrap(),
        }
    }
}

#[test]
fn what_is_missing_before_the_end_is_reported_and_nothing_behind_it_is_given_up() {
    let whole = Folder::written(Ended::Cleanly);
    let second = fs::read(whole.file(2, LOG)).unwrap();
    let first = BatchHeader::parse(&second).unwrap();
    let from = whole.bases[2];
    let damages: [(&str, i64, Damage); 5] = [
        ("removed", 0, |path, _| fs::remove_file(path).unwrap()),
        ("emptied", 0, |path, _| fs::write(path, "").unwrap()),
        ("zeros", 0, |path, old| {
            fs::write(path, vec![0; old.len()]).unwrap();
        }),
        ("cut within a batch", 2, |path, old| {
            let size = BatchHeader::parse(old).unwrap().size;
            fs::write(path, &old[..size + 30]).unwrap();
        }),
        ("cut between batches", 2, |path, old| {
            let size = BatchHeader::parse(old).unwrap().size;
            fs::write(path, &old[..size]).unwrap();
        }),
    ];
    assert_eq!(first.next_offset(), from + 2);
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        for (what, left, damage) in &damages {
            for (indexes, remove) in [("indexes", false), ("no indexes", true)] {
                let folder = Folder::written(ended);
                damage(&folder.file(2, LOG), &second);
                if remove {
                    fs::remove_file(folder.file(2, "index")).unwrap();
                }
                let gap = from + left..folder.bases[3];
                has_all_but(&folder, &gap, &format!("{what}, {indexes}, {ended:?}"));
            }
        }
    }
}

#[test]
fn what_kafka_has_compacted_is_no_gap() {
    let folder = Folder::written(Ended::Cleanly);
    let last = folder.bases.len() - 1;
    let behind = fs::read(folder.file(last, LOG)).unwrap();
    let before = fs::read(folder.file(0, LOG)).unwrap();
    for segment in 1..last {
        fs::write(folder.file(segment, LOG), "").unwrap();
    }
    let cleaned = format!("0\n1\nt 0 {}\n", folder.bases[last]);
    fs::write(folder.path(CLEANED), &cleaned).unwrap();
    for _ in 0..2 {
        let (_manager, found) = folder.open();
        assert!(!found.repairs.lost_something());
        // A fetch skips any number of empty segments.
        assert!(served(&found.log) == [&before[..], &behind].concat());
        for offset in folder.bases[1]..folder.bases[last] {
            let bytes = read(&found.log, offset, 1);
            let header = BatchHeader::parse(&bytes).unwrap();
            assert_eq!(header.base_offset, folder.bases[last]);
        }
    }
    assert_eq!(fs::read_to_string(folder.path(CLEANED)).unwrap(), cleaned);
    fs::remove_file(folder.path(CLEANED)).unwrap();
    let (_manager, found) = folder.open();
    let gap = folder.bases[1]..folder.bases[last];
    assert_eq!(found.repairs.gaps, std::slice::from_ref(&gap));
}

#[test]
fn what_kafka_was_compacting_when_it_was_killed_is_not_set_aside() {
    // Kafka writes recovery points once a minute, and cleaner offsets after a whole pass.
    for checkpoint in [None, Some(RECOVERY_POINTS)] {
        let folder = Folder::written(Ended::ByCrash);
        match checkpoint {
            None => fs::remove_file(folder.path(RECOVERY_POINTS)).unwrap(),
            Some(name) => fs::write(folder.path(name), "0\n1\nt 0 2\n").unwrap(),
        }
        fs::remove_file(folder.file(folder.bases.len() - 1, "checkpoint")).unwrap();
        let gap = folder.bases[1]..folder.bases[3];
        for segment in [1, 2] {
            fs::write(folder.file(segment, LOG), "").unwrap();
        }
        fs::write(folder.path(CLEANED), "0\n1\nt 0 2\n").unwrap();
        let (_manager, found) = folder.open();
        assert!(!found.repairs.lost_something());
        assert!(served(&found.log) == left_of(&folder, &gap));
        assert_eq!(found.log.offsets().end, END);
    }
}

#[test]
fn a_segment_that_was_removed_at_the_beginning_is_reported_once() {
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        let folder = Folder::written(ended);
        fs::remove_file(folder.file(0, LOG)).unwrap();
        let start = folder.bases[1];
        for missing in [Some(0..start), None] {
            let (_manager, found) = folder.open();
            assert_eq!(found.repairs.missing_start, missing);
            assert_eq!(found.log.offsets().start, start);
        }
    }
}

#[test]
fn a_segment_that_overlaps_others_does_not_end_the_log() {
    for ended in [Ended::Cleanly, Ended::ByCrash] {
        let folder = Folder::written(ended);
        fs::copy(folder.file(1, LOG), file_path(&folder.partition(), 1, LOG)).unwrap();
        let kept = |folder: &Folder| -> u64 {
            let entries = fs::read_dir(folder.partition()).unwrap();
            let logs = entries.map(|entry| entry.unwrap());
            let logs = logs.filter(|entry| {
                let name = entry.file_name().into_string().unwrap();
                parse_name(&name).is_some_and(|(_, extension)| extension.starts_with(LOG))
            });
            logs.map(|entry| entry.metadata().unwrap().len()).sum()
        };
        let before = kept(&folder);
        let (_manager, found) = folder.open();
        assert!(found.repairs.lost_something() && found.log.offsets().end == END);
        assert_eq!(kept(&folder), before);
        drop(_manager);
        // Without it everything is present again.
        fs::remove_file(file_path(&folder.partition(), 1, LOG)).unwrap();
        folder.has_everything("without it");
    }
}

#[test]
fn an_empty_segment_does_not_keep_others_from_being_deleted() {
    let folder = Folder::written(Ended::Cleanly);
    fs::write(folder.file(1, LOG), "").unwrap();
    let (_manager, found) = folder.open();
    found.log.set_config(Arc::new(TopicConfig {
        retention_bytes: 1,
        ..TopicConfig::clone(&small_segments())
    }));
    super::retain(&found.log, 0);
    assert_eq!(found.log.offsets().start, *folder.bases.last().unwrap());
}

#[test]
fn far_more_than_memory_is_cut_off_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = super::alone(folder.path(), recovery::LastEnd::Unclean);
    append_all(&log, &[batch(1, 10, 0)]);
    drop(log);
    let path = file_path(folder.path(), 0, LOG);
    let whole = fs::metadata(&path).unwrap().len();
    let file = File::options().write(true).open(&path).unwrap();
    // Reading the whole end would need 3 GiB of memory, and copying it 3 GiB of disk.
    let end = whole + (3 << 30);
    file.write_all_at(&[7; 1000], end - 1000).unwrap();
    let (log, repairs) = super::alone(folder.path(), recovery::LastEnd::Unclean);
    assert_eq!(repairs.cut_bytes, 3 << 30);
    assert_eq!((log.offsets().end, log.size()), (1, whole));
    let kept = File::open(file_path(folder.path(), 0, "log.cut")).unwrap();
    assert_eq!(kept.metadata().unwrap().len(), 3 << 30);
    assert!(kept.metadata().unwrap().blocks() * 512 < 1 << 20);
    let mut last = [0; 1001];
    kept.read_exact_at(&mut last, (3 << 30) - 1001).unwrap();
    assert_eq!((last[0], &last[1..]), (0, &[7; 1000][..]));
}

#[test]
fn what_is_cut_off_does_not_replace_what_was_cut_off_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_path(folder.path(), 0, LOG);
    for turn in 0..3 {
        let (log, _) = super::alone(folder.path(), recovery::LastEnd::Unclean);
        append_all(&log, &[batch(1, 10, 0)]);
        drop(log);
        let mut content = fs::read(&path).unwrap();
        content.extend(vec![turn + 1; 100]);
        fs::write(&path, content).unwrap();
        let (_, repairs) = super::alone(folder.path(), recovery::LastEnd::Unclean);
        assert_eq!(repairs.cut_bytes, 100);
    }
    for (name, byte) in [("log.cut", 1), ("log.1.cut", 2), ("log.2.cut", 3)] {
        let kept = fs::read(file_path(folder.path(), 0, name)).unwrap();
        assert_eq!(kept, [byte; 100]);
    }
}

#[test]
fn what_is_in_the_way_is_named() {
    let directory: Damage = |path, _| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    let device: Damage = |path, _| {
        fs::remove_file(path).unwrap();
        symlink("/dev/zero", path).unwrap();
    };
    let dangling: Damage = |path, _| {
        fs::remove_file(path).unwrap();
        symlink("nowhere", path).unwrap();
    };
    for damage in [directory, device, dangling] {
        for segment in [0, usize::MAX] {
            let folder = Folder::written(Ended::ByCrash);
            let path = folder.file(segment.min(folder.bases.len() - 1), LOG);
            damage(&path, &[]);
            let refusal = folder.refusal();
            assert!(refusal.contains(path.to_str().unwrap()), "{refusal}");
        }
    }
    let folder = Folder::written(Ended::ByCrash);
    plan(Call::Open, 1, Errno::ACCESS);
    let refused = recovery::open(&folder.partition(), recovery::Before::new(300));
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains(".log: Permission denied"), "{refused}");
    assert!(refused.contains("the user of the broker"), "{refused}");
}

#[test]
fn what_only_looks_like_a_partition_is_left_alone() {
    let folder = Folder::written(Ended::Cleanly);
    fs::write(folder.path("backup-2026"), "a file").unwrap();
    fs::create_dir(folder.path("please-delete")).unwrap();
    symlink("nowhere", folder.path("gone-0")).unwrap();
    fs::create_dir(folder.partition().join("notes")).unwrap();
    fs::write(folder.partition().join("99999999999999999999.log"), "x").unwrap();
    folder.has_everything("others");
    for name in ["backup-2026", "please-delete", "t-0/notes"] {
        assert!(folder.path(name).exists(), "{name}");
    }
}

#[test]
fn a_segment_behind_a_link_is_one() {
    let folder = Folder::written(Ended::ByCrash);
    let elsewhere = folder.path("elsewhere");
    fs::rename(folder.file(1, LOG), &elsewhere).unwrap();
    symlink(&elsewhere, folder.file(1, LOG)).unwrap();
    folder.has_everything("link");
}

#[test]
fn leftovers_are_removed_or_completed_in_kafkas_order() {
    let folder = Folder::written(Ended::ByCrash);
    let at = |base: i64, extension: &str| file_path(&folder.partition(), base, extension);
    let first = fs::read(folder.file(0, LOG)).unwrap();
    let second = fs::read(folder.file(1, LOG)).unwrap();
    let both = [first, second].concat();
    // The first two segments were merged, and the third was being replaced.
    fs::write(at(0, "log.swap"), &both).unwrap();
    fs::write(at(folder.bases[2], "log.cleaned"), garbage(100)).unwrap();
    fs::write(at(folder.bases[3], "log.swap"), garbage(100)).unwrap();
    fs::write(at(folder.bases[1], "index.deleted"), "").unwrap();
    fs::write(at(5000, "index"), garbage(80)).unwrap();
    fs::write(at(0, "snapshot.tmp"), garbage(80)).unwrap();
    folder.has_everything("swap");
    assert_eq!(fs::read(folder.file(0, LOG)).unwrap(), both);
    assert!(!folder.file(1, LOG).exists());
    for entry in fs::read_dir(folder.partition()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_left = [".swap", ".cleaned", ".tmp", "5000.index"]
            .iter()
            .any(|suffix| name.ends_with(suffix));
        assert!(!is_left, "{name}");
    }
}

#[test]
fn a_replacement_that_is_not_whole_replaces_nothing() {
    let whole = fs::read(Folder::written(Ended::ByCrash).file(0, LOG)).unwrap();
    let mut wrong = whole.clone();
    wrong[HEADER_BYTES] ^= 1;
    let mut far = whole.clone();
    // The checksum does not cover the offset, so every segment would be replaced.
    batch::tests::put_place(&mut far, i64::MAX / 2 - 10, 0);
    for content in [&whole[..whole.len() - 1], &wrong, b"", &garbage(200)] {
        let folder = Folder::written(Ended::ByCrash);
        fs::write(file_path(&folder.partition(), 0, "log.swap"), content).unwrap();
        fs::write(file_path(&folder.partition(), 0, "index.swap"), content).unwrap();
        folder.has_everything("swap");
        let kept = fs::read(file_path(&folder.partition(), 0, "log.cut")).unwrap();
        assert_eq!(kept, content);
    }
    let folder = Folder::written(Ended::ByCrash);
    fs::write(file_path(&folder.partition(), 0, "log.swap"), far).unwrap();
    folder.has_everything("far");
}
