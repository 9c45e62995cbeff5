//! Handshakes that are truncated, fragmented, joined with later data, or endless.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, ContentType, HandshakeKind, ServerConfig,
    ServerConnection, version,
};
use underpass_testkit::{HttpClient, within};

use super::client::{
    CLOSE_NOTIFY, KEY_UPDATE_REQUEST, LastFlight, RawClient, config, shake, socket,
};
use super::{Attacked, CONTENT, REQUEST};
use crate::tls::ClientBuilder;

/// Returns the handshake message of a ClientHello, without its record header.
fn hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes.split_off(5)
}

/// Splits a handshake message into records of this size.
fn records(message: &[u8], part: usize) -> Vec<u8> {
    let record = |part: &[u8]| {
        let length = (part.len() as u16).to_be_bytes();
        [&[22, 3, 1], &length[..], part].concat()
    };
    message.chunks(part).flat_map(record).collect()
}

/// Returns a configuration for each version.
fn versions(attacked: &Attacked) -> [Arc<ClientConfig>; 2] {
    [&version::TLS13, &version::TLS12].map(|version| {
        config(&ClientBuilder {
            versions: vec![version],
            ..attacked.authority.client()
        })
    })
}

/// Reads until the server closes, which may be with a reset.
fn rest(mut socket: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut room = [0; 4096];
    while let Ok(1..) = socket
        .read(&mut room)
        .inspect(|read| all.extend(&room[..*read]))
    {}
    all
}

#[test]
fn a_hello_in_parts_is_one() {
    within(|| {
        let attacked = Attacked::new();
        for config in versions(&attacked) {
            for (record, segment) in [(usize::MAX, 1), (1, usize::MAX), (7, 3), (100, 1_000)] {
                let socket = socket(attacked.server.address());
                let shaken = shake(&config, &socket, |flight, bytes| match flight {
                    0 => {
                        let hello = records(&bytes[5..], record.min(bytes.len()));
                        let mut segments = hello.chunks(segment.min(hello.len()));
                        segments.try_for_each(|segment| (&socket).write_all(segment))
                    }
                    _ => (&socket).write_all(bytes),
                });
                shaken.unwrap();
            }
        }
        // The bystander's is one, and in TLS 1.2 the first handshake gets a ticket.
        attacked.await_handshakes("full", 1 + 4 + 1);
        attacked.await_handshakes("resumed", 3);
        attacked.stop();
    });
}

/// Replaces the last suite of a hello, which signals secure renegotiation.
fn with_suite(mut hello: Vec<u8>, suite: u16) -> Vec<u8> {
    // A type, a length, a version, 32 random bytes; then the session and the suites.
    let session = 4 + 2 + 32;
    let suites = session + 1 + usize::from(hello[session]);
    let bytes = u16::from_be_bytes([hello[suites], hello[suites + 1]]);
    let end = suites + 2 + usize::from(bytes);
    hello[end - 2..end].copy_from_slice(&suite.to_be_bytes());
    hello
}

/// Makes the extension for signature algorithms name one that no certificate has.
fn without_signatures(mut hello: Vec<u8>) -> Vec<u8> {
    let header = hello
        .windows(4)
        .position(|bytes| bytes[..2] == [0, 13] && bytes[2] == 0 && bytes[3] > 4)
        .unwrap();
    let length = usize::from(hello[header + 3]) - 2;
    for scheme in hello[header + 6..header + 6 + length].chunks_mut(2) {
        scheme.copy_from_slice(&[2, 2]);
    }
    hello
}

#[test]
fn what_has_nothing_in_common_and_a_fallback_get_the_alerts_of_the_rfcs() {
    const HANDSHAKE_FAILURE: u8 = 40;
    const INAPPROPRIATE_FALLBACK: u8 = 86;
    within(|| {
        let mut attacked = Attacked::new();
        let [tls13, tls12] = versions(&attacked);
        let refused = |hello: Vec<u8>| {
            let mut client = socket(attacked.server.address());
            client.write_all(&records(&hello, 16_384)).unwrap();
            let said = rest(&client);
            assert_eq!((said[0], said.len()), (21, 7), "an alert alone: {said:?}");
            said[6]
        };
        for config in [&tls13, &tls12] {
            let alert = refused(without_signatures(hello(config)));
            assert_eq!(alert, HANDSHAKE_FAILURE);
        }
        // TLS_FALLBACK_SCSV: this client also supports TLS 1.3.
        let alert = refused(with_suite(hello(&tls12), 0x5600));
        assert_eq!(alert, INAPPROPRIATE_FALLBACK);
        // From a client that offers the highest version it is acceptable.
        let mut client = socket(attacked.server.address());
        let hello = with_suite(hello(&tls13), 0x5600);
        client.write_all(&records(&hello, 16_384)).unwrap();
        let mut first = [0];
        client.read_exact(&mut first).unwrap();
        assert_eq!(first, [22]);
        // The same when resuming a session: the server's whole flight is ready then.
        let mut client = HttpClient::over(RawClient::connect(&tls12, attacked.server.address()));
        assert_eq!(client.get("/f").body, CONTENT);
        drop(client);
        let alert = refused(with_suite(self::hello(&tls12), 0x5600));
        assert_eq!(alert, INAPPROPRIATE_FALLBACK);
        attacked.serves_others();
        attacked.stop();
    });
}

#[test]
fn a_record_that_none_may_be_gets_its_alert_before_anything_is_encrypted() {
    const CASES: [(&str, &[u8], AlertDescription); 6] = [
        (
            "too long",
            &[22, 3, 1, 0xff, 0xff],
            AlertDescription::RecordOverflow,
        ),
        (
            "a byte too long",
            &[22, 3, 1, 0x48, 0x01],
            AlertDescription::RecordOverflow,
        ),
        (
            "of another protocol",
            &[22, 2, 0, 0, 1, 1],
            AlertDescription::ProtocolVersion,
        ),
        (
            "without content",
            &[22, 3, 1, 0, 0],
            AlertDescription::UnexpectedMessage,
        ),
        (
            "of a type that nobody knows",
            &[99, 3, 1, 0, 1, 1],
            AlertDescription::UnexpectedMessage,
        ),
        (
            "data",
            &[23, 3, 1, 0, 1, 1],
            AlertDescription::UnexpectedMessage,
        ),
    ];
    within(|| {
        let mut attacked = Attacked::new();
        let hello = hello(&versions(&attacked)[0]);
        let mut failed = Vec::new();
        for (name, record, alert) in CASES {
            // Alone, if it looks like a handshake, and after the start of a hello.
            let behind = [&records(&hello[..40], 40), record].concat();
            let alone = (record[0] == 22).then(|| record.to_vec());
            for bytes in alone.into_iter().chain([behind]) {
                let mut client = socket(attacked.server.address());
                client.write_all(&bytes).unwrap();
                let said = rest(&client);
                if said != [21, 3, 3, 0, 2, 2, u8::from(alert)] {
                    failed.push(format!("{name}, {} bytes: {said:?}", bytes.len()));
                }
            }
        }
        assert!(failed.is_empty(), "{failed:#?}");
        attacked.serves_others();
        attacked.stop();
    });
}

#[test]
fn an_alert_is_not_answered() {
    within(|| {
        let mut attacked = Attacked::new();
        let [_, tls12] = versions(&attacked);
        let socket = socket(attacked.server.address());
        let mut said = Vec::new();
        let failed = shake(&tls12, &socket, |flight, bytes| match flight {
            0 => (&socket).write_all(bytes),
            _ => {
                // unknown_ca: the client rejects the certificate.
                (&socket).write_all(&[21, 3, 3, 0, 2, 2, 48])?;
                said = rest(&socket);
                Err(std::io::ErrorKind::Interrupted.into())
            }
        });
        failed.map(drop).unwrap_err();
        assert!(said.is_empty(), "{said:?}");
        attacked.await_handshakes("alert", 1);
        attacked.serves_others();
        attacked.stop();
    });
}

#[test]
fn a_client_that_never_ends_its_part_of_a_handshake_gets_an_alert() {
    within(|| {
        let mut attacked = Attacked::new();
        let [_, tls12] = versions(&attacked);
        let socket = socket(attacked.server.address());
        let mut said = Vec::new();
        let failed = shake(&tls12, &socket, |flight, bytes| match flight {
            0 => (&socket).write_all(bytes),
            _ => {
                // A ClientKeyExchange of 60,000 bytes, one byte per record.
                let message = [&[16, 0, 0xea, 0x60][..], &[0; 30_000]].concat();
                let _may_be_closed = (&socket).write_all(&records(&message, 1));
                said = rest(&socket);
                Err(std::io::ErrorKind::Interrupted.into())
            }
        });
        failed.map(drop).unwrap_err();
        assert_eq!(
            said,
            [21, 3, 3, 0, 2, 2, u8::from(AlertDescription::DecodeError)]
        );
        attacked.serves_others();
        attacked.stop();
    });
}

/// Gets the client a ticket from another server, which accepts early data.
fn give_early_data(attacked: &Attacked, config: &Arc<ClientConfig>) {
    let files = attacked.authority.issue("early", &["localhost"]);
    let certificate = CertificateDer::from_pem_file(&files.cert).unwrap();
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = aws_lc_rs::ALL_KX_GROUPS.to_vec();
    let mut server = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    server.max_early_data_size = 100_000;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    for _ in 0..4 {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut there).unwrap();
        }
        server.read_tls(&mut &there[..]).unwrap();
        server.process_new_packets().unwrap();
        while server.wants_write() {
            server.write_tls(&mut back).unwrap();
        }
        let mut back = &back[..];
        while !back.is_empty() {
            client.read_tls(&mut back).unwrap();
            client.process_new_packets().unwrap();
        }
    }
}

#[test]
fn early_data_by_a_ticket_of_another_server_is_skipped() {
    within(|| {
        let attacked = Attacked::new();
        let mut config = Arc::unwrap_or_clone(versions(&attacked)[0].clone());
        config.enable_early_data = true;
        skips_early_data(&attacked, &Arc::new(config));
        // The server lacks the group of its key share, and requests another hello.
        let mut provider = aws_lc_rs::default_provider();
        provider.kx_groups = vec![kx_group::MLKEM1024, kx_group::X25519];
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .with_root_certificates(attacked.authority.client().roots)
            .with_no_client_auth();
        config.enable_early_data = true;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let client = skips_early_data(&attacked, &Arc::new(config));
        let kind = client.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::FullWithHelloRetryRequest));
        attacked.stop();
    });
}

/// Sends early data that the server cannot decrypt, and then a request.
fn skips_early_data(attacked: &Attacked, config: &Arc<ClientConfig>) -> ClientConnection {
    give_early_data(attacked, config);
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    let early = vec![b'x'; 40_000];
    let mut writer = client.early_data().expect("a ticket that allows it");
    assert_eq!(writer.write(&early).unwrap(), early.len());
    let mut socket = socket(attacked.server.address());
    let mut stream = rustls::Stream::new(&mut client, &mut socket);
    stream.write_all(REQUEST).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert!(!client.is_early_data_accepted());
    client
}

#[test]
fn a_hello_that_is_too_long_is_refused() {
    within(|| {
        let mut attacked = Attacked::new();
        let length = 70_000_u32;
        let mut long = vec![1];
        long.extend(&length.to_be_bytes()[1..]);
        long.resize(4 + length as usize, 0);
        let full = hello(&versions(&attacked)[0]);
        let mut padded = full.clone();
        padded[1..4].copy_from_slice(&(1_u32 << 20).to_be_bytes()[1..]);
        for (message, part) in [(&long, 16_384), (&long, 100), (&padded, 16_384)] {
            let mut client = socket(attacked.server.address());
            let _may_be_closed = client.write_all(&records(message, part));
            let said = rest(&client);
            assert_eq!(said.first(), Some(&21), "an alert: {said:?}");
        }
        attacked.await_handshakes("failed", 3);
        attacked.serves_others();
        attacked.stop();
    });
}

#[test]
fn a_handshake_that_stops_anywhere_ends_with_its_deadline() {
    within(|| {
        let mut attacked = Attacked::with(|options| {
            options.connections.handshake_timeout = Duration::from_secs(1);
        });
        let mut stopped = 0;
        for config in versions(&attacked) {
            // Before the hello, within it, after it, and within the next flight.
            for (last, bytes_max) in [(0, 0), (0, 20), (0, usize::MAX), (1, 3), (1, 60)] {
                let socket = socket(attacked.server.address());
                let failed = shake(&config, &socket, |flight, bytes| {
                    let most = match flight == last {
                        true => bytes_max.min(bytes.len()),
                        false => bytes.len(),
                    };
                    (&socket).write_all(&bytes[..most])?;
                    if flight == last {
                        rest(&socket);
                        return Err(std::io::ErrorKind::Interrupted.into());
                    }
                    Ok(())
                });
                failed.map(drop).unwrap_err();
                stopped += 1;
            }
            attacked.serves_others();
        }
        attacked.await_handshakes("late", stopped);
        attacked.stop();
    });
}

#[test]
fn a_peer_that_leaves_during_its_handshake_is_counted() {
    within(|| {
        let mut attacked = Attacked::new();
        let [config, _] = versions(&attacked);
        let hello = records(&hello(&config), usize::MAX >> 1);
        for bytes in [&hello[..0], &hello[..20], &hello[..]] {
            let mut client = socket(attacked.server.address());
            client.write_all(bytes).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            rest(&client);
        }
        attacked.await_handshakes("peer_gone", 3);
        let mut client = socket(attacked.server.address());
        client.write_all(&hello).unwrap();
        client.write_all(&[21, 3, 3, 0, 2, 2, 42]).unwrap();
        rest(&client);
        drop(client);
        attacked.await_handshakes("alert", 1);
        attacked.serves_others();
        attacked.stop();
    });
}

#[test]
fn a_wrong_end_of_the_handshake_is_refused() {
    within(|| {
        let mut attacked = Attacked::new();
        for (number, config) in versions(&attacked).iter().enumerate() {
            let socket = socket(attacked.server.address());
            let failed = shake(config, &socket, |flight, bytes| {
                let mut bytes = bytes.to_vec();
                if flight == 1 {
                    *bytes.last_mut().unwrap() ^= 1;
                }
                (&socket).write_all(&bytes)
            });
            // A TLS 1.3 client completes before the server has seen its last flight.
            let said = match failed {
                Ok(_) => rest(&socket),
                Err(error) => error.to_string().into_bytes(),
            };
            let is_alert = said.starts_with(&[23, 3, 3]) || said.starts_with(&[21, 3, 3]);
            let is_reported = String::from_utf8_lossy(&said).contains("BadRecordMac");
            assert!(is_alert || is_reported, "{said:?}");
            attacked.await_handshakes("failed", number as u64 + 1);
        }
        attacked.serves_others();
        attacked.stop();
    });
}

#[test]
fn what_comes_with_the_end_of_the_handshake_is_the_sessions() {
    type Deed = fn(&mut RawClient);
    let deeds: [(&str, Deed); 4] = [
        ("a request", |client| client.send_data(REQUEST)),
        ("a request in parts", |client| {
            let records: Vec<_> = REQUEST
                .chunks(3)
                .flat_map(|part| client.seal(ContentType::ApplicationData, part))
                .collect();
            client.send_raw(&records);
        }),
        ("a new key and a request", |client| {
            let update = match client.is_tls13() {
                true => client.seal_key_update(&KEY_UPDATE_REQUEST),
                false => Vec::new(),
            };
            let data = client.seal(ContentType::ApplicationData, REQUEST);
            client.send_raw(&[update, data].concat());
        }),
        ("a request and the end", |client| {
            let data = client.seal(ContentType::ApplicationData, REQUEST);
            let end = client.seal(ContentType::Alert, &CLOSE_NOTIFY);
            client.send_raw(&[data, end].concat());
        }),
    ];
    within(move || {
        let mut attacked = Attacked::new();
        let [tls13, tls12] = versions(&attacked);
        // In TLS 1.2 the server ends a full handshake, and the client a resumed one.
        let mut client = HttpClient::over(RawClient::connect(&tls12, attacked.server.address()));
        assert_eq!(client.get("/f").body, CONTENT);
        drop(client);
        for config in [tls13, tls12] {
            for (name, deed) in deeds {
                let socket = socket(attacked.server.address());
                let mut client = RawClient::shake(&config, socket, LastFlight::Held).unwrap();
                deed(&mut client);
                assert_eq!(
                    HttpClient::over(&mut client).response().body,
                    CONTENT,
                    "{name}"
                );
            }
            // A close_notify alone is not a failure.
            let socket = socket(attacked.server.address());
            let mut client = RawClient::shake(&config, socket, LastFlight::Held).unwrap();
            client.send(ContentType::Alert, &CLOSE_NOTIFY);
            assert_eq!(client.last_alert(), Some(AlertDescription::CloseNotify));
        }
        attacked.await_handshakes("failed", 0);
        attacked.await_handshakes("peer_gone", 0);
        attacked.serves_others();
        attacked.stop();
    });
}
