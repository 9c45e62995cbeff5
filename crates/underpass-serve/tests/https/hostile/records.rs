//! Records that no correct client sends, and unusual ones that some do.

use rustls::{AlertDescription, ContentType};
use underpass_testkit::{HttpClient, within};

use super::client::{KEY_UPDATE, KEY_UPDATE_REQUEST, RawClient, config};
use super::{Attacked, CONTENT, REQUEST};

const DATA: ContentType = ContentType::ApplicationData;
const HANDSHAKE: ContentType = ContentType::Handshake;
const ALERT: ContentType = ContentType::Alert;

/// More records than any client has a reason to send.
const FLOOD: usize = 3_000;

/// The required reaction of the server.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// It ends the connection with this alert.
    Alert(AlertDescription),
    /// It answers the next request.
    Served,
    /// It ends the connection without an alert, since the client has sent one.
    Ended,
}

use Expected::{Alert, Ended, Served};

/// A client's action after its handshake.
type Deed = (&'static str, fn(&mut RawClient), Expected);

const UNEXPECTED: Expected = Alert(AlertDescription::UnexpectedMessage);
const BAD_MAC: Expected = Alert(AlertDescription::BadRecordMac);
const OVERFLOW: Expected = Alert(AlertDescription::RecordOverflow);

/// Actions in both versions.
const DEEDS: &[Deed] = &[
    ("nothing", |_| {}, Served),
    (
        "a wrong tag",
        |client| {
            let mut record = client.seal(DATA, REQUEST);
            *record.last_mut().unwrap() ^= 1;
            client.send_raw(&record);
        },
        BAD_MAC,
    ),
    (
        "another length than was sealed",
        |client| {
            let mut record = client.seal(DATA, REQUEST);
            record[4] -= 1;
            client.send_raw(&record);
        },
        BAD_MAC,
    ),
    (
        "a record twice",
        |client| {
            let record = client.seal(DATA, b"G");
            client.send_raw(&[&record[..], &record].concat());
        },
        BAD_MAC,
    ),
    (
        "a record left out",
        |client| {
            client.seal(DATA, b"G");
            client.send(DATA, REQUEST);
        },
        BAD_MAC,
    ),
    (
        "no room for a tag",
        |client| client.send_raw(&[23, 3, 3, 0, 3, 1, 2, 3]),
        BAD_MAC,
    ),
    (
        "an empty ciphertext",
        |client| client.send_raw(&[23, 3, 3, 0, 0]),
        BAD_MAC,
    ),
    (
        "plain data",
        |client| client.send_raw(&[&[23, 3, 3, 0, 28], REQUEST].concat()),
        BAD_MAC,
    ),
    (
        "another protocol",
        |client| {
            client.send_raw(&[23, 2, 0, 0, 20]);
        },
        Alert(AlertDescription::ProtocolVersion),
    ),
    (
        "a length that no record has",
        |client| client.send_raw(&[23, 3, 3, 0xff, 0xff]),
        OVERFLOW,
    ),
    (
        "a byte too much",
        |client| client.send(DATA, &[b'a'; 16_385]),
        OVERFLOW,
    ),
    (
        "as much as there may be",
        |client| {
            let head = "POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n";
            let mut full = head.as_bytes().to_vec();
            full.resize(16_384, b'b');
            client.send_data(&full);
            client.send_data(vec![b'b'; head.len() + 20_000 - full.len()]);
            assert_eq!(HttpClient::over(client).response().status, 405);
        },
        Served,
    ),
    (
        "a few empty records",
        |client| (0..8).for_each(|_| client.send_data("")),
        Served,
    ),
    (
        "many empty records",
        |client| flood(client, |client| client.seal(DATA, b"")),
        UNEXPECTED,
    ),
    (
        "ChangeCipherSpec in the clear",
        |client| client.send_raw(&[20, 3, 3, 0, 1, 1]),
        UNEXPECTED,
    ),
    (
        "ChangeCipherSpec",
        |client| client.send(ContentType::ChangeCipherSpec, &[1]),
        UNEXPECTED,
    ),
    (
        "a heartbeat",
        |client| client.send(ContentType::Heartbeat, &[1, 0, 0]),
        UNEXPECTED,
    ),
    (
        "a type that nobody knows",
        |client| client.send(99.into(), b"a"),
        UNEXPECTED,
    ),
    ("no alert", |client| client.send(ALERT, b""), UNEXPECTED),
    (
        "half an alert",
        |client| client.send(ALERT, &[1]),
        UNEXPECTED,
    ),
    (
        "two alerts in a record",
        |client| client.send(ALERT, &[1, 90, 1, 90]),
        UNEXPECTED,
    ),
    (
        "a fatal alert",
        |client| client.send(ALERT, &[2, 20]),
        Ended,
    ),
    (
        "a fatal alert that nobody knows",
        |client| client.send(ALERT, &[2, 213]),
        Ended,
    ),
    (
        "a few announcements of an end",
        |client| {
            (0..4).for_each(|_| client.send(ALERT, &[1, 90]));
        },
        Served,
    ),
    (
        "many announcements of an end",
        |client| {
            flood(client, |client| client.seal(ALERT, &[1, 90]));
        },
        UNEXPECTED,
    ),
    (
        "an empty handshake message",
        |client| client.send(HANDSHAKE, b""),
        UNEXPECTED,
    ),
    (
        "HelloRequest",
        |client| client.send(HANDSHAKE, &[0, 0, 0, 0]),
        UNEXPECTED,
    ),
    (
        "NewSessionTicket",
        |client| client.send(HANDSHAKE, &[4, 0, 0, 4, 0, 0, 0, 0]),
        UNEXPECTED,
    ),
    (
        "Certificate",
        |client| client.send(HANDSHAKE, &[11, 0, 0, 4, 0, 0, 0, 0]),
        UNEXPECTED,
    ),
    (
        "Finished",
        |client| client.send(HANDSHAKE, &[&[20, 0, 0, 12][..], &[7; 12]].concat()),
        UNEXPECTED,
    ),
    (
        "a request in many records",
        |client| {
            let records: Vec<_> = b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n"
                .iter()
                .flat_map(|byte| client.seal(DATA, &[*byte]))
                .collect();
            client.send_raw(&records);
            assert_eq!(response(client), CONTENT);
        },
        Served,
    ),
    (
        "a request byte by byte",
        |client| {
            let record = client.seal(DATA, REQUEST);
            record.iter().for_each(|byte| client.send_raw(&[*byte]));
            assert_eq!(response(client), CONTENT);
        },
        Served,
    ),
    (
        "many requests in a record",
        |client| {
            client.send_data(REQUEST.repeat(100));
            let mut client = HttpClient::over(client);
            (0..100).for_each(|_| assert_eq!(client.response().body, CONTENT));
        },
        Served,
    ),
    (
        "a body that nobody wants",
        |client| {
            client.send_data("POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n");
            (0..50).for_each(|_| client.send_data([7; 1000]));
            assert_eq!(HttpClient::over(client).response().status, 405);
        },
        Served,
    ),
];

/// Actions in TLS 1.3.
const DEEDS_13: &[Deed] = &[
    (
        "an alert in the clear",
        |client| client.send_raw(&[21, 3, 3, 0, 2, 2, 0]),
        UNEXPECTED,
    ),
    (
        "a warning that is none",
        |client| client.send(ALERT, &[1, 100]),
        Ended,
    ),
    (
        "only padding",
        |client| client.send(0.into(), &[0; 40]),
        UNEXPECTED,
    ),
    (
        "padding",
        |client| {
            client.send(0.into(), &[REQUEST, &[23], &[0; 1000]].concat());
            assert_eq!(response(client), CONTENT);
        },
        Served,
    ),
    (
        "as much padding as there may be",
        |client| {
            let mut padded = [REQUEST, &[23]].concat();
            padded.resize(16_384, 0);
            client.send(0.into(), &padded);
            assert_eq!(response(client), CONTENT);
        },
        Served,
    ),
    (
        "a byte of padding too much",
        |client| {
            let mut padded = [REQUEST, &[23]].concat();
            padded.resize(16_385, 0);
            client.send(0.into(), &padded);
        },
        OVERFLOW,
    ),
    (
        "ClientHello",
        |client| client.send(HANDSHAKE, &[1, 0, 0, 4, 3, 3, 0, 0]),
        UNEXPECTED,
    ),
    (
        "KeyUpdate",
        |client| {
            let update = client.seal_key_update(&KEY_UPDATE);
            client.send_raw(&update);
            assert_eq!(response_to_request(client), CONTENT);
            assert_eq!(client.key_updates, 0);
        },
        Served,
    ),
    (
        "KeyUpdate that asks for one",
        |client| {
            let update = client.seal_key_update(&KEY_UPDATE_REQUEST);
            client.send_raw(&update);
            assert_eq!(response_to_request(client), CONTENT);
            assert_eq!(client.key_updates, 1);
        },
        Served,
    ),
    (
        "KeyUpdate before data in one go",
        |client| {
            let update = client.seal_key_update(&KEY_UPDATE_REQUEST);
            let data = client.seal(DATA, REQUEST);
            client.send_raw(&[update, data].concat());
            assert_eq!(response(client), CONTENT);
        },
        Served,
    ),
    (
        "KeyUpdate in two records",
        |client| {
            client.send(HANDSHAKE, &KEY_UPDATE[..1]);
            let rest = client.seal_key_update(&KEY_UPDATE[1..]);
            client.send_raw(&rest);
        },
        Served,
    ),
    (
        "KeyUpdate in five records",
        |client| {
            KEY_UPDATE[..4]
                .iter()
                .for_each(|byte| client.send(HANDSHAKE, &[*byte]));
            let rest = client.seal_key_update(&KEY_UPDATE[4..]);
            client.send_raw(&rest);
        },
        Served,
    ),
    (
        "KeyUpdate with data within",
        |client| {
            client.send(HANDSHAKE, &KEY_UPDATE[..3]);
            client.send(DATA, REQUEST);
        },
        UNEXPECTED,
    ),
    (
        "KeyUpdate with an alert within",
        |client| {
            client.send(HANDSHAKE, &KEY_UPDATE[..3]);
            client.send(ALERT, &[1, 90]);
        },
        UNEXPECTED,
    ),
    (
        "two KeyUpdates in a record",
        |client| {
            client.send(HANDSHAKE, &[KEY_UPDATE, KEY_UPDATE].concat());
        },
        UNEXPECTED,
    ),
    (
        "KeyUpdate with the beginning of a message",
        |client| {
            client.send(HANDSHAKE, &[&KEY_UPDATE[..], &[24]].concat());
        },
        UNEXPECTED,
    ),
    (
        "KeyUpdate, and data under the old key",
        |client| {
            client.send(HANDSHAKE, &KEY_UPDATE);
            client.send(DATA, REQUEST);
        },
        BAD_MAC,
    ),
    (
        "KeyUpdate that asks for nothing known",
        |client| {
            client.send(HANDSHAKE, &[24, 0, 0, 1, 2]);
        },
        Alert(AlertDescription::IllegalParameter),
    ),
    (
        "KeyUpdate of two bytes",
        |client| {
            client.send(HANDSHAKE, &[24, 0, 0, 2, 0, 0]);
        },
        Alert(AlertDescription::DecodeError),
    ),
    (
        "KeyUpdate of no byte",
        |client| {
            client.send(HANDSHAKE, &[24, 0, 0, 0]);
        },
        Alert(AlertDescription::DecodeError),
    ),
    (
        "many KeyUpdates",
        |client| {
            flood(client, |client| client.seal_key_update(&KEY_UPDATE));
        },
        UNEXPECTED,
    ),
    (
        "many KeyUpdates that ask for one",
        |client| {
            flood(client, |client| client.seal_key_update(&KEY_UPDATE_REQUEST));
        },
        UNEXPECTED,
    ),
];

/// Actions in TLS 1.2.
const DEEDS_12: &[Deed] = &[
    (
        "an alert in the clear",
        |client| client.send_raw(&[21, 3, 3, 0, 2, 2, 0]),
        BAD_MAC,
    ),
    (
        "warnings",
        |client| (90..94).for_each(|alert| client.send(ALERT, &[1, alert])),
        Served,
    ),
    (
        "a fatal user_canceled",
        |client| client.send(ALERT, &[2, 90]),
        Ended,
    ),
    (
        "KeyUpdate",
        |client| client.send(HANDSHAKE, &KEY_UPDATE),
        UNEXPECTED,
    ),
    (
        "a renegotiation",
        |client| {
            client.send(HANDSHAKE, &[1, 0, 0, 4, 3, 3, 0, 0]);
            let refusal = client.record().unwrap().unwrap();
            assert_eq!(refusal, (ALERT, vec![1, 100]), "no_renegotiation");
        },
        Served,
    ),
    (
        "many renegotiations",
        |client| {
            flood(client, |client| {
                client.seal(HANDSHAKE, &[1, 0, 0, 4, 3, 3, 0, 0])
            });
        },
        UNEXPECTED,
    ),
];

/// Sends many records in a single write.
fn flood(client: &mut RawClient, seal: fn(&mut RawClient) -> Vec<u8>) {
    let records: Vec<_> = (0..FLOOD).flat_map(|_| seal(client)).collect();
    client.send_raw(&records);
}

fn response(client: &mut RawClient) -> Vec<u8> {
    HttpClient::over(client).response().body
}

fn response_to_request(client: &mut RawClient) -> Vec<u8> {
    client.send_data(REQUEST);
    response(client)
}

fn plays(deeds: &[Deed], is_played: impl Fn(&RawClient) -> bool) {
    let mut attacked = Attacked::new();
    for builder in attacked.suites() {
        for (name, deed, expected) in deeds {
            let what = format!("{name}, {:?}", builder.suite);
            let mut client = RawClient::connect(&config(&builder), attacked.server.address());
            if !is_played(&client) {
                continue;
            }
            deed(&mut client);
            match expected {
                Alert(alert) => assert_eq!(client.last_alert(), Some(*alert), "{what}"),
                Served => {
                    let body = response_to_request(&mut client);
                    assert_eq!(body, CONTENT, "{what}");
                }
                Ended => assert_eq!(client.last_alert(), None, "{what}"),
            }
        }
        attacked.serves_others();
    }
    attacked.stop();
}

#[test]
fn wrong_records_end_the_connection_with_the_alert_that_says_why() {
    within(|| plays(DEEDS, |_| true));
}

#[test]
fn wrong_records_of_tls_13_do_as_well() {
    within(|| plays(DEEDS_13, RawClient::is_tls13));
}

#[test]
fn wrong_records_of_tls_12_do_as_well() {
    within(|| plays(DEEDS_12, |client| !client.is_tls13()));
}
