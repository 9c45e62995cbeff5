//! A broker that is repeatedly killed while it compacts a topic.

use std::collections::BTreeMap;
use std::env;

use underpass_log::batch::{BatchHeader, BatchRecord};
use underpass_testkit::{SeededRandom, wait_until};

use crate::create;
use crate::kills::PRODUCE;
use crate::support::batch::{RECORDS, keyed_batch};
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, encoded, produce_request};

const TOPIC: &str = "compacted";

const KEYS: usize = 20;

/// The numbers of the records that a key may have as its latest one: the last acknowledged, and
/// those sent afterwards.
type Possible = BTreeMap<String, Vec<u64>>;

/// A record whose value begins with its number.
fn numbered(key: &str, number: u64) -> Vec<u8> {
    let mut value = format!("{number} ").into_bytes();
    value.resize(16 << 10, b'v');
    keyed_batch(&[Some(key)], &value)
}

/// Returns the latest number of each key, and the number of records.
fn latest(client: &mut Client) -> (BTreeMap<String, u64>, usize) {
    let (mut offset, mut found, mut count) = (0, BTreeMap::new(), 0);
    loop {
        let mut fetched = client.fetch(TOPIC, 0, offset);
        let partition = fetched.responses.remove(0).partitions.remove(0);
        assert_eq!(partition.error_code, 0);
        if offset >= partition.high_watermark {
            return (found, count);
        }
        let bytes = partition.records.unwrap_or_default();
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest).filter(|it| it.size <= rest.len()) {
            let mut records = &rest[RECORDS..header.size];
            while let Some((record, behind)) = BatchRecord::split(records) {
                let text = |field: Option<&[u8]>| String::from_utf8(field.unwrap().to_vec());
                let value = text(record.value).unwrap();
                let number = value.split(' ').next().unwrap().parse().unwrap();
                found.insert(text(record.key).unwrap(), number);
                count += 1;
                records = behind;
            }
            assert!(header.next_offset() > offset);
            offset = header.next_offset();
            rest = &rest[header.size..];
        }
    }
}

/// Checks that each key has a possible record, which is the only one from now on.
fn check(client: &mut Client, possible: &mut Possible) {
    let (found, _) = latest(client);
    for (key, numbers) in possible {
        let number = found.get(key);
        assert!(
            number.is_some_and(|it| numbers.contains(it)),
            "{key}: {number:?}, {numbers:?}"
        );
        numbers.retain(|possible| Some(possible) == number);
    }
}

#[test]
fn kills_during_compactions_lose_nothing() {
    let kills = env::var("UNDERPASS_KILLS").map_or(25, |kills| kills.parse().unwrap());
    let mut random = SeededRandom::new(2);
    let mut broker = BrokerProcess::start();
    let configs = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "1048576"),
        ("min.cleanable.dirty.ratio", "0"),
    ];
    create(&mut broker.connect(), TOPIC, 1, &configs);
    let (mut possible, mut number) = (Possible::new(), 0);
    for _ in 0..kills {
        let mut client = broker.connect();
        for _ in 0..random.below(150) {
            let key = format!("key-{}", random.below(KEYS));
            number += 1;
            assert_eq!(client.produce(TOPIC, 0, numbered(&key, number)).0, 0);
            possible.insert(key, vec![number]);
        }
        let key = format!("key-{}", random.below(KEYS));
        number += 1;
        let request = produce_request(-1, &[(TOPIC, 0, Some(numbered(&key, number)))]);
        client.send_or_end(&encoded(PRODUCE, &request));
        // A key that has no record may stay without.
        if let Some(numbers) = possible.get_mut(&key) {
            numbers.push(number);
        }
        broker = BrokerProcess::start_in(broker.kill());
        check(&mut broker.connect(), &mut possible);
    }
    let mut client = broker.connect();
    // What the last compaction leaves: the active segment, and a record of each key.
    wait_until("compaction", || latest(&mut client).1 < 2 * 64 + KEYS);
    check(&mut client, &mut possible);
    broker.stop();
}
