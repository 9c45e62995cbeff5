//! Compaction against a naive model, and on a failing disk.

mod crash;
mod faults;
mod rules;

use std::collections::BTreeMap;
use std::ops::Range;

use super::*;
use crate::batch::tests::{Entry, entries, keyed, seal};
use crate::segment::{SNAPSHOT, lock};
use crate::tests::image::temporary_folder;

const HOUR_MS: i64 = 3_600_000;

/// The settings of a history.
#[derive(Clone, Debug)]
struct Settings {
    segment_bytes: u64,
    map_bytes: usize,
    /// Whether a tombstone may go with the second compaction.
    forgets: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Plain,
    Producer(i64),
    Transactional,
    Control,
}

#[derive(Clone, Debug)]
enum Step {
    /// Records with these keys, and the sizes of their values; `None` for a tombstone.
    Append(Kind, i16, Vec<(Option<u8>, Option<usize>)>),
    Clean,
    Restart,
    /// A crash, and the loss of the snapshots of producers.
    Crash,
    Delete(prop::sample::Index),
    Retain(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        10 => Just(Kind::Plain),
        4 => (0i64..3).prop_map(Kind::Producer),
        1 => Just(Kind::Transactional),
        1 => Just(Kind::Control),
    ];
    let key = prop_oneof![30 => (0u8..12).prop_map(Some), 1 => Just(None)];
    let value = prop_oneof![4 => (0usize..300).prop_map(Some), 1 => Just(None)];
    let records = prop::collection::vec((key, value), 1..8);
    let append = (kind, 0i16..5, records);
    prop_oneof![
        24 => append.prop_map(|(kind, codec, records)| Step::Append(kind, codec, records)),
        4 => Just(Step::Clean),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
        1 => any::<prop::sample::Index>().prop_map(Step::Delete),
        1 => (0u64..8000).prop_map(Step::Retain),
    ]
}

fn history() -> impl Strategy<Value = (Settings, Vec<Step>)> {
    let settings = (600u64..4000, 0usize..1500, any::<bool>());
    let settings = settings.prop_map(|(segment_bytes, map_bytes, forgets)| Settings {
        segment_bytes,
        map_bytes,
        forgets,
    });
    (settings, prop::collection::vec(step(), 1..70))
}

fn config(settings: &Settings) -> Arc<TopicConfig> {
    Arc::new(TopicConfig {
        cleanup_policy: CleanupPolicy::Compact,
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: if settings.forgets { 0 } else { HOUR_MS },
        segment_bytes: settings.segment_bytes,
        ..TopicConfig::clone(&small_segments())
    })
}

/// Opens a data folder without threads.
fn prepared(folder: &Path, settings: &Settings) -> (Arc<LogManager>, Vec<FoundPartition>) {
    let options = DataFolderOptions {
        cleaner: CleanerOptions {
            dedupe_buffer_bytes: settings.map_bytes,
            ..CleanerOptions::default()
        },
        // The timestamps of the batches are in 1970.
        producer_id_expiration: Duration::from_secs(u64::MAX / 1000),
        ..DataFolderOptions::default()
    };
    let of_topic = |_: &str| config(settings);
    LogManager::prepare(folder, options, &of_topic, Box::new(|_| ()), 1).unwrap()
}

/// A record of the model.
#[derive(Clone, Debug)]
struct Known {
    entry: Entry,
    is_opaque: bool,
    /// Whether the log may have removed it.
    may_be_gone: bool,
}

/// A log, and the records that it should have.
struct Modelled {
    folder: tempfile::TempDir,
    settings: Settings,
    manager: Option<Arc<LogManager>>,
    log: Arc<PartitionLog>,
    records: BTreeMap<i64, Known>,
    /// The range of the last batch of each producer, and its next sequence number.
    producers: BTreeMap<i64, (Range<i64>, i32)>,
    end: i64,
}

impl Modelled {
    fn new(settings: Settings) -> Modelled {
        let folder = temporary_folder();
        let (manager, _) = prepared(folder.path(), &settings);
        let name = TopicPartition::new("t", 0);
        let log = manager.create(name, "id", config(&settings)).unwrap();
        Modelled {
            folder,
            settings,
            manager: Some(manager),
            log,
            records: BTreeMap::new(),
            producers: BTreeMap::new(),
            end: 0,
        }
    }

    fn manager(&self) -> &LogManager {
        self.manager.as_ref().unwrap()
    }

    fn append(&mut self, kind: Kind, codec: i16, records: &[(Option<u8>, Option<usize>)]) {
        let base = self.end;
        let numbered = (base..).zip(records);
        let of_record = |(offset, (key, value)): (i64, &(Option<u8>, Option<usize>))| {
            let key = key.map(|key| format!("key-{key}").into_bytes());
            let value = value.map(|length| {
                let mut value = offset.to_string().into_bytes();
                value.resize(value.len() + length, b' ');
                value
            });
            // Not all timestamps rise.
            (key, value, 1_000_000 + offset * 10 - offset % 7 * 15)
        };
        let batch_entries: Vec<Entry> = numbered.map(of_record).collect();
        let mut batch = keyed(codec, &batch_entries);
        let count = records.len() as i32;
        match kind {
            Kind::Plain => {}
            Kind::Producer(id) => {
                let next = self.producers.get(&id).map_or(0, |(_, next)| *next);
                batch[43..51].copy_from_slice(&id.to_be_bytes());
                batch[51..53].copy_from_slice(&0i16.to_be_bytes());
                batch[53..57].copy_from_slice(&next.to_be_bytes());
                let range = base..base + i64::from(count);
                self.producers.insert(id, (range, next + count));
            }
            Kind::Transactional => batch[22] |= 1 << 4,
            Kind::Control => batch[22] |= 3 << 4,
        }
        seal(&mut batch);
        let outcomes = append_all(&self.log, &[batch]);
        self.end = outcomes[0].as_ref().unwrap().next_offset;
        let is_opaque = matches!(kind, Kind::Transactional | Kind::Control);
        for (offset, entry) in (base..).zip(batch_entries) {
            let known = Known {
                entry,
                is_opaque,
                may_be_gone: false,
            };
            self.records.insert(offset, known);
        }
    }

    /// Makes all that was appended safe, so that it can be compacted.
    fn settle(&self) {
        let end = self.log.sync().unwrap();
        self.log.show_until(end);
        self.log.finish_sealed().unwrap();
    }

    fn clean(&mut self) {
        self.settle();
        self.manager().clean();
        let active = self.log.published().segments.last().unwrap().base;
        let start = self.log.offsets().start;
        let mut latest = BTreeMap::new();
        for (offset, known) in self.records.range(..active) {
            if !known.is_opaque && *offset >= start {
                latest.insert(known.entry.0.clone(), *offset);
            }
        }
        let forgets = self.settings.forgets;
        let mut visible = self.records.range(start..);
        let first_opaque = visible.find(|(_, known)| known.is_opaque);
        let first_opaque = first_opaque.map_or(i64::MAX, |(offset, _)| *offset);
        self.records.retain(|offset, known| {
            let is_closed = *offset < active && !known.is_opaque;
            let is_tombstone = known.entry.1.is_none();
            known.may_be_gone |= is_closed && is_tombstone && forgets && *offset < first_opaque;
            // Records before the log start are not visible.
            let latest = latest.get(&known.entry.0).copied().unwrap_or(*offset);
            !is_closed || known.entry.0.is_some() && latest == *offset
        });
    }

    fn reopen(&mut self, is_clean: bool) {
        self.settle();
        match is_clean {
            true => self.manager().close().unwrap(),
            false => self.manager().stop(),
        }
        self.manager = None;
        if !is_clean {
            for entry in fs::read_dir(&self.log.folder).unwrap() {
                let path = entry.unwrap().path();
                if path
                    .extension()
                    .is_some_and(|it| it == SNAPSHOT || it == "checkpoint")
                {
                    fs::remove_file(path).unwrap();
                }
            }
        }
        let (manager, mut found) = prepared(self.folder.path(), &self.settings);
        let found = found.remove(0);
        assert!(!found.repairs.lost_something(), "{}", found.repairs);
        (self.log, self.manager) = (found.log, Some(manager));
        let start = self.log.offsets().start;
        self.producers.retain(|id, (range, next)| {
            let remembered = lock(&self.log.appender).producers.next_sequence(*id);
            let is_deleted = range.start < start && !is_clean;
            assert!(
                remembered == Some(*next) || is_deleted,
                "{id}: {remembered:?}, not {next}"
            );
            remembered.is_some()
        });
    }

    fn delete_before(&mut self, at: &prop::sample::Index) {
        self.settle();
        let start = self.log.offsets().start;
        let before = start + at.index((self.end - start + 1) as usize) as i64;
        let asked = [(Arc::clone(&self.log), before)];
        assert_eq!(self.manager().delete_records(&asked).unwrap(), [before]);
    }

    fn retain(&mut self, bytes: u64) {
        self.settle();
        let compacted = config(&self.settings);
        self.log.set_config(Arc::new(TopicConfig {
            cleanup_policy: CleanupPolicy::CompactAndDelete,
            retention_bytes: i64::try_from(bytes).unwrap(),
            ..TopicConfig::clone(&compacted)
        }));
        self.manager().retain();
        self.log.set_config(compacted);
    }

    /// Compares what consumers get with the model.
    fn check(&mut self) {
        self.settle();
        let offsets = self.log.offsets();
        assert_eq!((offsets.end, offsets.high_watermark), (self.end, self.end));
        self.records = self.records.split_off(&offsets.start);
        let found = all_entries(&self.log, self.end);
        self.records
            .retain(|offset, known| !known.may_be_gone || found.contains_key(offset));
        let known = self.records.iter();
        let known: BTreeMap<_, _> = known
            .map(|(at, known)| (*at, known.entry.clone()))
            .collect();
        assert_eq!(found, known);
        // Times are found, and so is the record after any offset.
        for (offset, entry) in known.iter().step_by(5) {
            let first = known.iter().find(|(_, other)| other.2 >= entry.2);
            let first = first.map(|(offset, entry)| (*offset, entry.2));
            assert_eq!(self.log.offset_of_time(entry.2).unwrap(), first, "{offset}");
        }
        for offset in (offsets.start..self.end).step_by(3) {
            let batch = read(&self.log, offset, 1);
            let header = BatchHeader::parse(&batch).unwrap();
            assert!(header.last_offset() >= offset);
            let between = known.range(offset..header.base_offset.max(offset));
            assert_eq!(between.count(), 0, "{offset}");
        }
        // Deleted records of a segment count.
        if offsets.start == 0 {
            let latest = known.values().map(|entry| entry.2).max();
            let largest = self.log.largest_timestamp().unwrap();
            assert_eq!(largest.map(|(_, time)| time), latest);
        }
    }
}

/// Returns all records that consumers get.
fn all_entries(log: &PartitionLog, durable: i64) -> BTreeMap<i64, Entry> {
    let (mut found, mut offset) = (BTreeMap::new(), log.offsets().start);
    let start = offset;
    while offset < log.offsets().end {
        let batch = read(log, offset, 1);
        let Some(header) = BatchHeader::parse(&batch) else {
            // Offsets may be missing at the end, too, where nothing was safe.
            assert!(offset >= durable, "no batch at {offset}");
            return found;
        };
        assert!(header.next_offset() > offset);
        offset = header.next_offset();
        found.extend(
            entries(&batch)
                .into_iter()
                .filter(|(offset, _)| *offset >= start),
        );
    }
    found
}

fn run(settings: Settings, steps: Vec<Step>) {
    let mut modelled = Modelled::new(settings);
    for step in steps {
        match step {
            Step::Append(kind, codec, records) => modelled.append(kind, codec, &records),
            Step::Clean => {
                modelled.clean();
                modelled.check();
            }
            Step::Restart => modelled.reopen(true),
            Step::Crash => modelled.reopen(false),
            Step::Delete(at) => modelled.delete_before(&at),
            Step::Retain(bytes) => modelled.retain(bytes),
        }
    }
    modelled.clean();
    modelled.check();
    modelled.reopen(false);
    modelled.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_compacted_log_has_what_the_model_has((settings, steps) in history()) {
        run(settings, steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    #[ignore = "needs a minute; run by cargo xtask test"]
    fn a_compacted_log_has_what_the_model_has_in_many_histories((settings, steps) in history()) {
        run(settings, steps);
    }
}
