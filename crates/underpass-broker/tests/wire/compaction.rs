//! Topics with `cleanup.policy=compact`.

use kafka_protocol::messages::IncrementalAlterConfigsRequest;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use underpass_log::batch::{BatchHeader, BatchRecord};
use underpass_testkit::wait_until;

use crate::support::batch::{ATTRIBUTES, LENGTH, MAGIC, RECORDS, batch, keyed_batch, put, seal};
use crate::support::broker::BrokerProcess;
use crate::support::client::{Client, produce_request};
use crate::{MEMORY_MAX, create, text};

const INVALID_RECORD: i16 = 87;

fn produced(client: &mut Client, version: i16, batch: &[u8]) -> PartitionProduceResponse {
    let request: ProduceRequest = produce_request(-1, &[("t", 0, Some(batch.to_vec()))]);
    let mut response = client.ask(version, &request);
    response.responses.remove(0).partition_responses.remove(0)
}

/// Returns the numbers of the records that a response blames.
fn blamed(response: &PartitionProduceResponse) -> Vec<i32> {
    let errors = response.record_errors.iter();
    errors.map(|error| error.batch_index).collect()
}

/// Compresses the records of a batch.
fn gzipped(plain: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut to, &plain[RECORDS..]).unwrap();
    let mut batch = [&plain[..RECORDS], &to.finish().unwrap()].concat();
    let length = (batch.len() - MAGIC + 4) as i32;
    put(&mut batch, LENGTH, &length.to_be_bytes());
    put(&mut batch, ATTRIBUTES, &[0, 1]);
    seal(&mut batch);
    batch
}

#[test]
fn records_without_keys_are_refused_and_named() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    create(&mut client, "t", 1, &[("cleanup.policy", "compact")]);
    let some = keyed_batch(&[Some("a"), None, Some(""), None], b"value");
    for bytes in [some.clone(), gzipped(&some)] {
        let refused = produced(&mut client, 9, &bytes);
        assert_eq!(
            (refused.error_code, refused.base_offset),
            (INVALID_RECORD, -1)
        );
        assert_eq!(blamed(&refused), [1, 3]);
        let message = refused.record_errors[0].batch_index_error_message.as_ref();
        assert!(message.unwrap().contains("no key"), "{refused:?}");
        assert!(refused.error_message.unwrap().contains("no key"));
        // Before version 8 there is only the code.
        assert_eq!(produced(&mut client, 7, &bytes).error_code, INVALID_RECORD);
    }
    // However many there are, the response is small.
    let many = produced(&mut client, 9, &batch(5000, 1));
    assert_eq!(
        (many.error_code, blamed(&many).len()),
        (INVALID_RECORD, 1000)
    );
    let good = keyed_batch(&[Some("a"), Some("")], b"value");
    for bytes in [good.clone(), gzipped(&good)] {
        assert_eq!(produced(&mut client, 9, &bytes).error_code, 0);
    }
    // The rule follows the configuration.
    set_policy(&mut client, "delete");
    assert_eq!(produced(&mut client, 9, &some).error_code, 0);
    set_policy(&mut client, "compact,delete");
    assert_eq!(produced(&mut client, 9, &some).error_code, INVALID_RECORD);
    broker.end_well(MEMORY_MAX);
}

#[track_caller]
fn set_policy(client: &mut Client, policy: &str) {
    let change = AlterableConfig::default()
        .with_name("cleanup.policy".into())
        .with_value(Some(text(policy)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name("t".into())
        .with_configs(vec![change]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.ask(1, &request).responses[0].error_code, 0);
}

/// Returns the offsets and keys of all records.
fn records(client: &mut Client) -> Vec<(i64, String)> {
    let (mut offset, mut found) = (0, Vec::new());
    loop {
        let mut fetched = client.fetch("t", 0, offset);
        let partition = fetched.responses.remove(0).partitions.remove(0);
        assert_eq!(partition.error_code, 0);
        let bytes = partition.records.unwrap_or_default();
        let mut rest = &bytes[..];
        while let Some(header) = BatchHeader::parse(rest).filter(|it| it.size <= rest.len()) {
            let mut records = &rest[RECORDS..header.size];
            while let Some((record, behind)) = BatchRecord::split(records) {
                let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                found.push((header.base_offset + record.offset_delta, key));
                records = behind;
            }
            offset = header.next_offset();
            rest = &rest[header.size..];
        }
        if offset >= partition.high_watermark {
            return found;
        }
    }
}

#[test]
fn the_latest_record_of_each_key_is_left() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    let configs = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "1048576"),
        ("min.cleanable.dirty.ratio", "0"),
    ];
    create(&mut client, "t", 1, &configs);
    let value = vec![b'v'; 600 << 10];
    for number in 0..9 {
        let key = ["a", "b", "c"][number % 3];
        let appended = produced(&mut client, 9, &keyed_batch(&[Some(key)], &value));
        assert_eq!(
            (appended.error_code, appended.base_offset),
            (0, number as i64)
        );
    }
    let left = [(5, "c"), (6, "a"), (7, "b"), (8, "c")];
    let left: Vec<_> = left.map(|(offset, key)| (offset, key.to_owned())).into();
    wait_until("compaction", || records(&mut client) == left);
    broker.hear("compacted up to offset 8");
    let folder = broker.kill();
    let broker = BrokerProcess::start_in(folder);
    let mut client = broker.connect();
    assert_eq!(records(&mut client), left);
    broker.end_well(MEMORY_MAX);
}
