//! The system calls that move records to consumers.

use std::io::{Read, Write};
use std::path::Path;

use underpass_testkit::{TracedCall, bytes_by, content, disk_folder, traced_calls};

use crate::server::Broker;
use crate::support::batch::batch_with;
use crate::support::client::Client;
use crate::tls::{Identity, connect};

/// Every call that could move payload, and mmap.
const PAYLOAD_CALLS: &str = "trace=read,readv,pread64,preadv,preadv2,write,writev,pwrite64,\
     pwritev,pwritev2,sendto,sendmsg,sendmmsg,recvfrom,recvmsg,recvmmsg,sendfile,splice,\
     vmsplice,tee,copy_file_range,mmap";

const READS: [&str; 5] = ["read", "readv", "pread64", "preadv", "preadv2"];
const RECEIVES: [&str; 5] = ["recvfrom", "recvmsg", "recvmmsg", "read", "readv"];
const SENDS: [&str; 5] = ["sendto", "sendmsg", "sendmmsg", "write", "writev"];

/// Batches of a producer, and the size of the record in each.
const BATCHES: u64 = 8;
const RECORD_BYTES: usize = 500_000;

/// More than all headers, requests and file look-ups take; less than a batch.
const HEADS_MAX: u64 = 64 << 10;

const TOPIC: &str = "traced";

/// Appends batches of non-repeating content and returns them.
fn produce<S: Read + Write>(client: &mut Client<S>, seeds: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    client.create_topic(TOPIC);
    let batches = seeds.map(|seed| batch_with(1, &content(seed, RECORD_BYTES)));
    let batches = Vec::from_iter(batches);
    for batch in &batches {
        assert_eq!(client.produce(TOPIC, 0, batch.clone()).0, 0);
    }
    batches
}

/// Fetches as many batches as were produced, and checks that they are the same except for the
/// fields that a broker sets: the base offset, and the leader epoch after the length.
fn fetch<S: Read + Write>(client: &mut Client<S>, produced: &[Vec<u8>]) -> u64 {
    let (mut offset, mut bytes) = (0, 0);
    while offset < produced.len() {
        let fetched = client.fetch(TOPIC, 0, offset as i64);
        let partition = &fetched.responses[0].partitions[0];
        assert_eq!(partition.error_code, 0);
        let records = partition.records.as_ref().unwrap();
        bytes += records.len() as u64;
        let mut rest = &records[..];
        // The last batch may be truncated.
        while let Some(expected) = produced.get(offset).filter(|it| it.len() <= rest.len()) {
            let (batch, behind) = rest.split_at(expected.len());
            assert_eq!(batch[..8], (offset as i64).to_be_bytes());
            assert_eq!(batch[8..12], expected[8..12]);
            assert!(batch[16..] == expected[16..], "another batch at {offset}");
            (rest, offset) = (behind, offset + 1);
        }
    }
    bytes
}

fn is_socket(call: &TracedCall) -> bool {
    call.argument(0).contains("<TCP:")
}

fn is_log(call: &TracedCall) -> bool {
    call.argument(0).contains(".log>")
}

fn sum(calls: &[TracedCall], names: &[&str], matching: fn(&TracedCall) -> bool) -> u64 {
    names
        .iter()
        .map(|name| bytes_by(calls, name, matching))
        .sum()
}

fn is_log_mapped(calls: &[TracedCall]) -> bool {
    let mut calls = calls.iter();
    calls.any(|call| call.name == "mmap" && call.arguments.contains(".log>"))
}

/// Starts a traced broker on a folder that already has records.
fn traced(log: &Path, options: &[&str]) -> (Broker, Vec<Vec<u8>>) {
    let before = Broker::start(&[]);
    let produced = produce(&mut before.connect(), 0..BATCHES);
    let (report, folder) = before.stop();
    report.assert_success();
    let broker = Broker::by(Broker::tracer(log, &[PAYLOAD_CALLS]), folder, options);
    (broker, produced)
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn no_payload_is_read_on_a_fetch() {
    let log = disk_folder();
    let log = log.path().join("calls");
    let (broker, mut produced) = traced(&log, &[]);
    // Records present at the start, and records just written.
    produced.extend(produce(&mut broker.connect(), BATCHES..2 * BATCHES));
    let fetched = fetch(&mut broker.connect(), &produced);
    broker.stop().0.assert_success();

    let calls = traced_calls(&log);
    let moved = bytes_by(&calls, "sendfile", is_socket)
        + bytes_by(&calls, "splice", |call| call.argument(2).contains("<TCP:"));
    assert_eq!(moved, fetched);
    assert!(
        sum(&calls, &SENDS, is_socket) < HEADS_MAX,
        "sent from memory"
    );
    assert!(sum(&calls, &READS, is_log) < HEADS_MAX, "read from the log");
    assert!(!is_log_mapped(&calls), "mapped");
    let appended = BATCHES * (RECORD_BYTES as u64 + 100);
    let received = sum(&calls, &RECEIVES, is_socket);
    assert!(received < appended + HEADS_MAX, "{received} received");
}

/// Without kernel TLS, payload has to be encrypted in memory: it is read once and sent once.
#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn tls_reads_and_sends_each_record_once() {
    let files = disk_folder();
    let log = files.path().join("calls");
    let identity = Identity::new(&["kafka.example.org"]);
    let options = identity.write(files.path());
    let (broker, produced) = traced(&log, &options.each_ref().map(String::as_str));
    let address = broker.address();
    let mut client = connect(address, "kafka.example.org", &identity.certificate, None);
    let fetched = fetch(&mut client, &produced);
    broker.stop().0.assert_success();

    let calls = traced_calls(&log);
    let read = sum(&calls, &READS, is_log);
    assert!(
        (fetched..fetched + HEADS_MAX).contains(&read),
        "{read} read"
    );
    let sent = sum(&calls, &SENDS, is_socket);
    // A TLS record has at most 16 KiB; its header and tag take about 22 bytes.
    let records = fetched / 200;
    assert!(
        (fetched..fetched + records + HEADS_MAX).contains(&sent),
        "{sent} sent"
    );
    assert!(!is_log_mapped(&calls), "mapped");
}
