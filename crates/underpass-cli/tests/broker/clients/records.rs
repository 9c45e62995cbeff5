//! Records written by clients, and digests of those they read, both defined in `clients/README.md`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::SystemTime;

use serde_json::Value;
use underpass_testkit::sha256;

pub(crate) const PARTITIONS: u64 = 4;
pub(crate) const SEED: &str = "a seed";

/// The timestamp of record 0: an hour ago, in milliseconds since 1970. Retention spares it, and the
/// broker does not take it for one from the future.
pub(crate) static TIME: LazyLock<u64> = LazyLock::new(|| {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    u64::try_from(now.as_millis()).unwrap() - 3_600_000
});

/// The records read from a partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Part {
    /// The offset where reading started.
    pub(crate) start: u64,
    pub(crate) count: u64,
    pub(crate) sha256: String,
}

/// The records read from a topic, by partition.
pub(crate) type Reading = BTreeMap<u64, Part>;

/// A key and a payload.
pub(crate) type KeyValue = (String, String);

/// Returns the record with this index.
pub(crate) fn record(index: u64) -> KeyValue {
    let digest = sha256(format!("{SEED}:{index}"));
    let len = 1 + usize::from_str_radix(&digest[..4], 16).unwrap() % 1000;
    let payload = digest.repeat(len / digest.len() + 1)[..len].to_owned();
    (format!("k{index}"), payload)
}

/// Returns the records of a range that go to a partition, in order.
pub(crate) fn of_partition(partition: u64, indexes: Range<u64>) -> impl Iterator<Item = KeyValue> {
    let chosen = indexes.filter(move |index| index % PARTITIONS == partition);
    chosen.map(record)
}

/// The contents of a topic: the records of each partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents(BTreeMap<u64, Vec<KeyValue>>);

impl Contents {
    /// Returns the records of a range, by partition.
    pub(crate) fn of(indexes: Range<u64>) -> Contents {
        let mut contents = Contents::default();
        for partition in 0..PARTITIONS {
            contents.append(partition, of_partition(partition, indexes.clone()));
        }
        contents
    }

    pub(crate) fn append(&mut self, partition: u64, records: impl IntoIterator<Item = KeyValue>) {
        self.0.entry(partition).or_default().extend(records);
    }

    pub(crate) fn add(&mut self, other: Contents) {
        for (partition, records) in other.0 {
            self.append(partition, records);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Returns the expected reading of a client that starts at the same offset in each partition.
    pub(crate) fn read_from(&self, start: u64) -> Reading {
        let partitions = self.0.keys();
        let parts = partitions.map(|partition| (*partition, self.part_from(*partition, start)));
        parts.collect()
    }

    /// Returns the expected reading of a partition that starts at this offset.
    pub(crate) fn part_from(&self, partition: u64, start: u64) -> Part {
        let records = &self.0[&partition];
        let begin = records.len().min(usize::try_from(start).unwrap());
        part(start, &records[begin..])
    }
}

/// Sums up the records of a partition, starting at an offset.
pub(crate) fn part(start: u64, records: &[KeyValue]) -> Part {
    let text = records
        .iter()
        .map(|(key, payload)| format!("{key}\n{payload}\n"));
    Part {
        start,
        count: records.len() as u64,
        sha256: sha256(String::from_iter(text)),
    }
}

/// Parses the report of the scenario `consume`.
pub(crate) fn reading(report: &Value) -> Reading {
    let parts = report["partitions"].as_object().unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let one = |(partition, part): (&String, &Value)| {
        let part = Part {
            start: number(&part["start"]),
            count: number(&part["count"]),
            sha256: part["sha256"].as_str().unwrap().to_owned(),
        };
        (partition.parse().unwrap(), part)
    };
    parts.iter().map(one).collect()
}
