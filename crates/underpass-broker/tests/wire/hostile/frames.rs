//! Invalid and incomplete frames.

use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};

use crate::MEMORY_MAX;
use crate::support::broker::BrokerProcess;
use crate::support::client::{encoded, framed};

/// The longest request (`socket.request.max.bytes` of Kafka).
const FRAME_BYTES_MAX: i32 = 100 * 1024 * 1024;

#[test]
fn lengths_that_no_request_has_end_the_connection_with_a_line_in_the_log() {
    let broker = BrokerProcess::start();
    for length in [0, -1, i32::MIN, i32::MAX, FRAME_BYTES_MAX + 1] {
        let mut client = broker.connect();
        client.write(&length.to_be_bytes());
        client.expect_end();
        broker.hear(&format!("{length} is not the length of a request"));
    }
    // Greetings of other protocols.
    for hello in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut client = broker.connect();
        client.write(hello);
        client.expect_end();
        broker.hear("is not the length of a request");
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_frame_that_is_too_short_for_a_header_ends_the_connection_with_a_line_in_the_log() {
    let broker = BrokerProcess::start();
    let whole = encoded(3, &ApiVersionsRequest::default());
    for length in 1..whole.len() {
        let mut client = broker.connect();
        client.send(&whole[..length]);
        // The client ID is the last part of the header, and the body of ApiVersions is not checked.
        if length < whole.len() - 3 {
            client.expect_end();
            broker.hear("cannot be read");
        }
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_frame_may_arrive_byte_by_byte() {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    for byte in framed(&encoded(9, &MetadataRequest::default())) {
        client.write(&[byte]);
    }
    client.response::<MetadataRequest>(9);
    // The next request starts in the same packet.
    let two = framed(&encoded(9, &MetadataRequest::default())).repeat(2);
    let (first, rest) = two.split_at(two.len() / 2 + 2);
    client.write(first);
    client.response::<MetadataRequest>(9);
    client.write(rest);
    client.response::<MetadataRequest>(9);
    broker.end_well(MEMORY_MAX);
}

#[test]
fn half_frames_take_what_has_arrived_and_no_more() {
    let broker = BrokerProcess::start();
    let half: Vec<_> = (0..500)
        .map(|number| {
            let mut client = broker.connect();
            let length = match number % 2 {
                0 => FRAME_BYTES_MAX,
                _ => 16 * 1024,
            };
            client.write(&[&length.to_be_bytes()[..], &[0, 3, 0, 9, 0]].concat());
            client
        })
        .collect();
    broker.connect().behave();
    assert!(broker.peak_bytes() < MEMORY_MAX);
    // Half of these clients shut down their sending side, the others disconnect.
    for (number, mut client) in half.into_iter().enumerate() {
        if number % 2 == 1 {
            client.finish();
            client.expect_end();
        }
    }
    broker.end_well(MEMORY_MAX);
}

#[test]
fn a_connection_may_be_cut_anywhere_in_a_produce_request() {
    let broker = BrokerProcess::start();
    broker.connect().create_topic("cut");
    let batch = crate::support::batch::batch(5, 2000);
    let request = crate::support::client::produce_request(-1, &[("cut", 0, Some(batch))]);
    let frame = framed(&encoded(9, &request));
    for cut in (1..frame.len()).step_by(frame.len() / 50) {
        let mut client = broker.connect();
        client.write(&frame[..cut]);
    }
    // The responses are not received, but the log contains only whole batches.
    for _ in 0..20 {
        broker.connect().write(&frame);
    }
    let mut client = broker.connect();
    let (code, offset) = client.produce("cut", 0, crate::support::batch::batch(1, 1));
    assert_eq!((code, offset % 5), (0, 0));
    broker.end_well(MEMORY_MAX);
}

#[test]
fn requests_that_end_with_the_connection_are_given_up() {
    let broker = BrokerProcess::start();
    broker.connect().create_topic("t");
    let mut waiting = crate::support::client::fetch_request("t", 0, 0);
    waiting.max_wait_ms = i32::MAX;
    for turn in 0..100 {
        let mut client = broker.connect();
        client.send_request(11, &waiting);
        match turn % 2 {
            0 => drop(client),
            _ => {
                client.finish();
                client.expect_end();
            }
        }
    }
    broker.end_well(MEMORY_MAX);
}
