//! Crashes while a log is compacted: images from recorded operations, compared with what was
//! appended.

use std::thread;

use super::*;
use crate::files::trace::{Operation, Trace};
use crate::tests::image::{Disk, Random, Tree};

const KEYS: usize = 10;

/// A recorded use of a compacted log.
struct Recording {
    settings: Settings,
    operations: Vec<Operation>,
    appended: BTreeMap<i64, Entry>,
    /// The moments since which records before an offset are safe.
    durable: Vec<(usize, i64)>,
    /// The moments at which deletions of records before an offset began.
    starts: Vec<(usize, i64)>,
    /// The number of replaced segments.
    replaced: usize,
}

/// A log that is being recorded.
struct Recorder {
    root: std::path::PathBuf,
    trace: Trace,
    manager: Option<Arc<LogManager>>,
    log: Arc<PartitionLog>,
    random: Random,
    made: Recording,
}

impl Recorder {
    fn begin(folder: &Path, settings: Settings, random: Random) -> Recorder {
        let root = folder.to_owned();
        let trace = Trace::begin(&root);
        let (manager, _) = prepared(&root.join("data"), &settings);
        let name = TopicPartition::new("t", 0);
        let log = manager.create(name, "id", config(&settings)).unwrap();
        let made = Recording {
            settings,
            operations: Vec::new(),
            appended: BTreeMap::new(),
            durable: vec![(trace.len(), 0)],
            starts: Vec::new(),
            replaced: 0,
        };
        Recorder {
            root,
            trace,
            manager: Some(manager),
            log,
            random,
            made,
        }
    }

    fn manager(&self) -> &LogManager {
        self.manager.as_ref().unwrap()
    }

    fn append(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            let base = self.log.offsets().end;
            let records = generated(base, &mut self.random);
            let batch = keyed(self.random.below(5) as i16, &records);
            assert!(append_all(&self.log, &[batch])[0].is_ok());
            self.made.appended.extend((base..).zip(records));
        }
    }

    fn sync(&mut self) {
        let end = self.log.sync().unwrap();
        self.log.show_until(end);
        self.log.finish_sealed().unwrap();
        self.made.durable.push((self.trace.len(), end.offset));
    }

    fn clean(&mut self) {
        self.sync();
        self.manager().clean();
        self.made.replaced = self.manager().cleaner_stats().passes as usize;
    }

    fn delete(&mut self) {
        let offsets = self.log.offsets();
        let visible = (offsets.high_watermark - offsets.start) as usize;
        let before = offsets.start + self.random.below(visible / 3 + 1) as i64;
        self.made.starts.push((self.trace.len(), before));
        let asked = [(Arc::clone(&self.log), before)];
        self.manager().delete_records(&asked).unwrap();
        self.manager().retain();
    }

    fn restart(&mut self) {
        self.sync();
        self.manager().close().unwrap();
        self.manager = None;
        let (manager, mut found) = prepared(&self.root.join("data"), &self.made.settings);
        self.log = found.remove(0).log;
        self.manager = Some(manager);
    }

    fn work(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.below(16) {
                0 => self.restart(),
                1 => self.delete(),
                2 => self.manager().tend(&mut Duration::from_secs(3600)),
                3..6 => self.sync(),
                6..9 => self.clean(),
                _ => self.append(),
            }
        }
    }

    fn end(mut self) -> Recording {
        self.clean();
        self.made.operations = self.trace.operations();
        self.made
    }
}

fn generated(base: i64, random: &mut Random) -> Vec<Entry> {
    let count = 1 + random.below(4) as i64;
    let records = (base..base + count).map(|offset| {
        let key = format!("key-{}", random.below(KEYS)).into_bytes();
        let mut value = offset.to_string().into_bytes();
        value.resize(value.len() + random.below(250), b' ');
        let value = (!random.once_in(5)).then_some(value);
        (Some(key), value, 1_000_000 + offset)
    });
    records.collect()
}

impl Recording {
    /// Opens the image of a moment, and uses it.
    fn check_image(&self, tree: &Tree, moment: usize, random: &mut Random) {
        let folder = temporary_folder();
        tree.write_to(folder.path());
        let data = folder.path().join("data");
        let latest = |entries: &[(usize, i64)]| {
            let before = entries.iter().filter(|(since, _)| *since <= moment);
            before.map(|(_, offset)| *offset).max()
        };
        let (durable, start_max) = (latest(&self.durable), latest(&self.starts));
        if !data.join("t-0").exists() && durable.is_none() {
            return;
        }
        let (manager, mut found) = prepared(&data, &self.settings);
        let Some(found) = found.pop() else {
            assert!(durable.is_none());
            return;
        };
        let (log, repairs) = (found.log, found.repairs);
        assert!(repairs.gaps.is_empty(), "{repairs}");
        assert_eq!(
            (repairs.missing_offsets, &repairs.missing_start),
            (0, &None)
        );
        let offsets = log.offsets();
        assert!(
            offsets.end >= durable.unwrap_or(0),
            "{offsets:?} {durable:?}"
        );
        assert!(offsets.start <= start_max.unwrap_or(0), "{offsets:?}");
        let mut expected = self.appended.clone();
        self.check_content(&log, durable.unwrap_or(0), &mut expected);
        for _ in 0..2 + random.below(12) {
            let base = log.offsets().end;
            let records = generated(base, random);
            let batch = keyed(0, &records);
            assert!(append_all(&log, &[batch])[0].is_ok());
            expected.split_off(&base);
            expected.extend((base..).zip(records));
        }
        let end = log.sync().unwrap();
        log.show_until(end);
        log.finish_sealed().unwrap();
        manager.clean();
        let after = self.check_content(&log, end.offset, &mut expected);
        manager.close().unwrap();
        drop((manager, log));
        let (_manager, found) = prepared(&data, &self.settings);
        assert_eq!(found[0].repairs, Repairs::default());
        assert_eq!(all_entries(&found[0].log, durable.unwrap_or(0)), after);
        let leftover = ["cleaned", "swap"];
        let left = fs::read_dir(data.join("t-0")).unwrap().find(|entry| {
            let path = entry.as_ref().unwrap().path();
            path.extension()
                .is_some_and(|it| leftover.iter().any(|name| it == *name))
        });
        assert!(left.is_none(), "{left:?}");
    }

    /// Compares the records of a log with those that were appended: of each key the latest one is
    /// there. Records from `durable` on may be missing.
    fn check_content(
        &self,
        log: &PartitionLog,
        durable: i64,
        expected: &mut BTreeMap<i64, Entry>,
    ) -> BTreeMap<i64, Entry> {
        let found = all_entries(log, durable);
        let start = log.offsets().start;
        for (offset, entry) in &found {
            assert_eq!(expected.get(offset), Some(entry), "{offset}");
        }
        expected.retain(|offset, _| *offset < durable || found.contains_key(offset));
        let mut latest = BTreeMap::new();
        for (offset, entry) in expected.range(start..) {
            latest.insert(&entry.0, (*offset, entry.1.is_none()));
        }
        for (key, (offset, is_tombstone)) in latest {
            let mut of_key = found.iter().filter(|(_, entry)| entry.0 == *key);
            match is_tombstone && self.settings.forgets && !found.contains_key(&offset) {
                true => assert_eq!(of_key.next(), None, "{offset} was deleted"),
                false => assert!(found.contains_key(&offset), "{offset} is missing"),
            }
        }
        found
    }

    /// Opens images of these moments, which are sorted.
    fn check(&self, moments: &[usize], random: &mut Random) {
        let mut disk = Disk::of(&Tree::empty());
        let mut made = 0;
        for moment in moments {
            disk.apply_all(&self.operations[made..*moment]);
            made = *moment;
            let _context = Context(*moment, &self.operations);
            let tree = match random.once_in(4) {
                true => disk.after_kill(),
                false => disk.after_crash(random),
            };
            self.check_image(&tree, *moment, random);
        }
    }
}

/// Prints the moment when a test fails.
struct Context<'c>(usize, &'c [Operation]);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let last = self.0.checked_sub(1).map(|last| match &self.1[last] {
                Operation::Write(path, offset, _) => format!("write {path:?} at {offset}"),
                call => format!("{call:?}"),
            });
            eprintln!("crash after call {}: {last:?}", self.0);
        }
    }
}

fn recorded(seed: u64, steps: usize) -> (Recording, Random) {
    let mut random = Random(seed);
    let settings = Settings {
        segment_bytes: 800 + random.below(2500) as u64,
        map_bytes: random.below(600),
        forgets: random.once_in(2),
    };
    let folder = temporary_folder();
    let mut recorder = Recorder::begin(folder.path(), settings, Random(random.next()));
    recorder.work(steps);
    (recorder.end(), random)
}

fn check_seeds(seeds: Range<u64>, images: usize) {
    let mut replaced = 0;
    for seed in seeds {
        eprintln!("seed {seed}");
        let (recording, mut random) = recorded(seed, 60);
        replaced += recording.replaced;
        let calls = recording.operations.len();
        let moments = (0..images).map(|_| random.below(calls + 1));
        let mut moments: Vec<_> = moments.collect();
        moments.sort_unstable();
        recording.check(&moments, &mut random);
    }
    assert!(replaced > 3, "{replaced}");
}

#[test]
fn what_is_acknowledged_survives_a_crash_of_a_compaction() {
    check_seeds(0..6, 50);
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn what_is_acknowledged_survives_many_crashes_of_compactions() {
    check_seeds(100..200, 60);
}

#[test]
fn every_call_of_a_compaction_may_be_the_last() {
    let (recording, mut random) = {
        let mut random = Random(7);
        let settings = Settings {
            segment_bytes: 900,
            map_bytes: 10_000,
            forgets: true,
        };
        let folder = temporary_folder();
        let mut recorder = Recorder::begin(folder.path(), settings, Random(random.next()));
        for _ in 0..2 {
            for _ in 0..6 {
                recorder.append();
            }
            recorder.clean();
        }
        (recorder.end(), random)
    };
    assert!(recording.replaced > 1);
    let calls = 0..=recording.operations.len();
    let moments: Vec<_> = calls.flat_map(|moment| [moment; 2]).collect();
    recording.check(&moments, &mut random);
}
