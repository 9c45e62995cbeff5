//! Downloads during which a client misbehaves.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustls::{AlertDescription, ContentType};
use underpass_testkit::{
    Cases, HttpClient, SeededRandom, assert_same, content, sha256, wait_until, within,
};

use super::client::{
    CLOSE_NOTIFY, KEY_UPDATE, KEY_UPDATE_REQUEST, LastFlight, RawClient, config, slow_socket,
};
use super::{Attacked, CONTENT, REQUEST};
use crate::support::Server;
use crate::tls::{Authority, ClientBuilder, SUITES, serve};

const ALERT: ContentType = ContentType::Alert;

/// More than all buffers between a server and a client that does not read.
const LONG: usize = 100_000_000;

/// Returns clients of both versions that have started to download [`LONG`] zeros. The second
/// download starts on demand: a client that waits acknowledges nothing and is disconnected.
fn downloading(attacked: &Attacked) -> impl Iterator<Item = RawClient> {
    let file = File::create(attacked.server.site().join("long")).unwrap();
    file.set_len(LONG as u64).unwrap();
    let builders = attacked.suites();
    let both = [0, 3].map(|suite| config(&builders[suite]));
    let address = attacked.server.address();
    both.into_iter().map(move |config| {
        let socket = slow_socket(address);
        let mut client = RawClient::shake(&config, socket, LastFlight::Sent).unwrap();
        let mut http = HttpClient::over(&mut client);
        http.ask("/long");
        assert_eq!(http.head().length().unwrap(), LONG);
        http.read_exact(1).unwrap();
        client
    })
}

/// Reads data to its end. Returns its length, and whether the end was announced.
fn read_to_end(client: &mut RawClient) -> (usize, bool) {
    let (mut all, mut room) = (0, vec![0; 64 << 10]);
    loop {
        match client.read(&mut room) {
            Ok(0) => return (all, true),
            Ok(read) => all += read,
            Err(_) => return (all, false),
        }
    }
}

#[test]
fn a_client_that_sends_nothing_more_gets_all() {
    let ends: [fn(&mut RawClient); 2] = [
        |client| client.socket.shutdown(Shutdown::Write).unwrap(),
        |client| {
            client.send(ALERT, &CLOSE_NOTIFY);
            client.send_data(REQUEST);
        },
    ];
    within(move || {
        let attacked = Attacked::new();
        for end in ends {
            for mut client in downloading(&attacked) {
                end(&mut client);
                let (count, is_announced) = read_to_end(&mut client);
                // One record has been read before.
                assert!(count > LONG - (17 << 10), "{count}");
                assert!(is_announced);
            }
        }
        attacked.stop();
    });
}

#[test]
fn a_client_that_fails_gets_no_more() {
    let failures: [fn(&mut RawClient); 4] = [
        |client| client.send(ALERT, &[2, 20]),
        |client| client.send_raw(&[23, 3, 3, 0, 3, 1, 2, 3]),
        |client| client.send(ContentType::Handshake, &[20, 0, 0, 0]),
        |client| (0..5_000).for_each(|_| client.send_data("")),
    ];
    within(move || {
        let mut attacked = Attacked::new();
        for fail in failures {
            for mut client in downloading(&attacked) {
                fail(&mut client);
                let (count, is_announced) = read_to_end(&mut client);
                assert!(count < LONG * 9 / 10, "{count}");
                assert!(!is_announced);
            }
            attacked.serves_others();
        }
        for client in downloading(&attacked) {
            set_socket_linger(&client.socket, Some(Duration::ZERO)).unwrap();
        }
        attacked.serves_others();
        attacked.stop();
    });
}

#[test]
fn data_behind_the_announced_end_is_ignored() {
    within(|| {
        let attacked = Attacked::new();
        for builder in attacked.suites() {
            let mut client = RawClient::connect(&config(&builder), attacked.server.address());
            let data = client.seal(ContentType::ApplicationData, REQUEST);
            let end = client.seal(ALERT, &CLOSE_NOTIFY);
            let more = client.seal(ContentType::ApplicationData, REQUEST);
            client.send_raw(&[data, end, more, vec![23, 9, 9, 9, 9]].concat());
            let mut http = HttpClient::over(&mut client);
            assert_eq!(http.response().body, CONTENT);
            assert_eq!(http.read_to_end().unwrap(), b"");
            // A truncated request is ignored.
            let mut client = RawClient::connect(&config(&builder), attacked.server.address());
            client.send_data(&REQUEST[..REQUEST.len() - 1]);
            client.socket.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.last_alert(), Some(AlertDescription::CloseNotify));
        }
        attacked.stop();
    });
}

#[test]
fn a_record_without_an_end_is_ended_by_the_deadline() {
    within(|| {
        let authority = Authority::new();
        let server = serve(&authority, |options| {
            options.connections.idle_timeout = Duration::from_millis(300);
            options.requests.head_timeout = Duration::from_millis(300);
        });
        for (version, suite) in SUITES {
            let config = config(&ClientBuilder {
                versions: vec![version],
                suite: Some(suite),
                ..authority.client()
            });
            let mut client = RawClient::connect(&config, server.address());
            let record = client.seal(ContentType::ApplicationData, REQUEST);
            client.send_raw(&record[..record.len() - 1]);
            assert_eq!(client.last_alert(), Some(AlertDescription::CloseNotify));

            let mut client = RawClient::connect(&config, server.address());
            client.send_data("GET / H");
            client.send_raw(&[23, 3, 3, 1, 0, 7]);
            assert_eq!(HttpClient::over(&mut client).response().status, 408);
        }
        server.stop();
    });
}

#[test]
fn who_asks_for_keys_and_reads_nothing_is_stopped() {
    within(|| {
        let mut attacked = Attacked::new();
        let mut client = downloading(&attacked).next().unwrap();
        // Until the socket is full: data that the server has not read waits in the kernel.
        client
            .socket
            .set_write_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        loop {
            let update = client.seal_key_update(&KEY_UPDATE_REQUEST);
            if client.socket.write_all(&update).is_err() {
                break;
            }
        }
        attacked.serves_others();
        // The client has sent more updates than it was sent records.
        let (count, is_announced) = read_to_end(&mut client);
        assert!(count < LONG && !is_announced, "{count}");
        attacked.serves_others();
        attacked.stop();
    });
}

#[test]
fn new_keys_are_welcome_during_a_long_download() {
    within(|| {
        let attacked = Attacked::new();
        let body = content(5, LONG);
        attacked.server.write("body", &body);
        let mut client =
            RawClient::connect(&config(&attacked.suites()[0]), attacked.server.address());
        client.send_data("GET /body HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut http = HttpClient::over(&mut client);
        assert_eq!(http.head().length().unwrap(), LONG);
        let mut got = Vec::with_capacity(LONG);
        let mut asked = 0;
        while got.len() < LONG {
            got.extend(http.read_exact((256 << 10).min(LONG - got.len())).unwrap());
            let message = match got.len() % 3 {
                0 => KEY_UPDATE,
                _ => KEY_UPDATE_REQUEST,
            };
            asked += u64::from(message == KEY_UPDATE_REQUEST);
            let update = http.socket.seal_key_update(&message);
            http.socket.send_raw(&update);
        }
        assert_same(&got, &body, "the body");
        assert_eq!(http.get("/f").body, CONTENT);
        assert!(
            (1..=asked).contains(&client.key_updates),
            "{}",
            client.key_updates
        );
        attacked.stop();
    });
}

/// As Java does once it has read as much as it wants to with one key.
#[test]
fn a_client_that_asks_with_every_record_until_it_is_heard_is_served() {
    within(|| {
        let attacked = Attacked::new();
        let body = content(6, 30_000_000);
        attacked.server.write("body", &body);
        let mut client =
            RawClient::connect(&config(&attacked.suites()[0]), attacked.server.address());
        client.send_data("GET /body HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (mut got, mut with_key, mut seen) = (Vec::new(), 0, 0);
        while let Some((kind, content)) = client.record().unwrap() {
            match kind {
                ContentType::ApplicationData => got.extend_from_slice(&content),
                ContentType::Alert => assert_eq!(content, CLOSE_NOTIFY),
                _ => {}
            }
            with_key += content.len();
            if client.key_updates > seen {
                (with_key, seen) = (0, client.key_updates);
            } else if with_key > 1_000_000 {
                let update = client.seal_key_update(&KEY_UPDATE_REQUEST);
                client.send_raw(&update);
            }
        }
        assert_same(&got[got.len() - body.len()..], &body, "the body");
        assert!(client.key_updates > 3, "{}", client.key_updates);
        attacked.stop();
    });
}

/// It arrives when everything was sent but not yet read.
#[test]
fn what_a_client_says_after_the_last_request_destroys_nothing() {
    within(|| {
        const SENT: &str = "underpass_tls_sent_bytes_total{sealer=\"user_space\"}";
        let attacked = Attacked::new();
        let body = content(7, 600_000);
        attacked.server.write("body", &body);
        for builder in [&attacked.suites()[0], &attacked.suites()[3]] {
            let sent = attacked.metric(SENT);
            let socket = slow_socket(attacked.server.address());
            let mut client = RawClient::shake(&config(builder), socket, LastFlight::Sent).unwrap();
            client.send_data("GET /body HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let is_sent = || attacked.metric(SENT) >= sent + body.len() as u64;
            wait_until("all to be sent", is_sent);
            // Allowed in every version.
            client.send_data("");
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            assert_same(&got[got.len() - body.len()..], &body, "the body");
        }
        attacked.stop();
    });
}

/// Number of connections; `UNDERPASS_TLS_CASES` sets another, `UNDERPASS_TLS_CASE` picks one.
const CASES: u64 = 60;

/// Draws a size around the edges of records and batches, or any in between.
fn size(random: &mut SeededRandom) -> usize {
    let edge = random.pick(&[1, 16_384, 65_536, 131_072, 1 << 20]);
    match random.chance(50) {
        true => (edge + random.below(400_usize)).saturating_sub(200).max(1),
        false => up_to(random, 24),
    }
}

/// Draws a number of at most `bits` bits; short and long ones are equally likely.
fn up_to(random: &mut SeededRandom, bits: u32) -> usize {
    let bits = random.below(bits);
    1 + random.below(1_usize << bits)
}

#[test]
fn every_record_has_its_number_and_every_body_its_bytes() {
    let cases = Cases::from_env("UNDERPASS_TLS", CASES);
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    let all = content(9, 8 << 20);
    server.write("body", &all);
    for number in cases.numbers {
        let mut random = SeededRandom::of_case(cases.seed, number);
        let (version, suite) = random.pick(&SUITES);
        let builder = ClientBuilder {
            versions: vec![version],
            suite: Some(suite),
            ..authority.client()
        };
        let mut client = play_client(&server, &builder, &mut random);
        for request in 0..=random.below(3_u32) {
            let what = format!("case {number} of seed {}, request {request}", cases.seed);
            let length = size(&mut random);
            let first = random.below(all.len() - length + 1);
            let last = first + length - 1;
            update_key(&mut client, &mut random);
            client.send_data(format!(
                "GET /body HTTP/1.1\r\nHost: a\r\nRange: bytes={first}-{last}\r\n\r\n"
            ));
            let mut http = HttpClient::over(&mut client);
            assert_eq!(http.head().length().unwrap(), length, "{what}");
            let mut got = Vec::with_capacity(length);
            while got.len() < length {
                let most = up_to(&mut random, 20);
                got.extend(http.read_exact(most.min(length - got.len())).expect(&what));
                if random.chance(5) {
                    update_key(http.socket, &mut random);
                }
            }
            assert_eq!(sha256(&got), sha256(&all[first..=last]), "{what}");
        }
    }
    server.stop();
}

/// Runs a client that reads a little at a time, or everything available.
fn play_client(server: &Server, builder: &ClientBuilder, random: &mut SeededRandom) -> RawClient {
    let socket = match random.chance(50) {
        true => slow_socket(server.address()),
        false => super::client::socket(server.address()),
    };
    let mut client = RawClient::shake(&config(builder), socket, LastFlight::Sent).unwrap();
    client.read_bytes = up_to(random, 18);
    client
}

fn update_key(client: &mut RawClient, random: &mut SeededRandom) {
    if client.is_tls13() && random.chance(30) {
        let message = random.pick(&[KEY_UPDATE, KEY_UPDATE_REQUEST]);
        let update = client.seal_key_update(&message);
        client.send_raw(&update);
    }
}
