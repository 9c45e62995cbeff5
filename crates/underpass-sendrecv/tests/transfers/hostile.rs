//! Peers that do not have the ticket, or do what they should not.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use underpass_sendrecv::{Encryption, Error, Secret, Security, Ticket};
use underpass_testkit::{WAIT_MAX, within};

use super::kit::{Folders, Waiting, items, options, receive, send};

#[test]
fn a_wrong_key_secret_or_address_has_its_own_error_and_code() {
    within(|| {
        let folders = Folders::new();
        let path = folders.from().join("secret");
        fs::write(&path, "content").unwrap();
        let items = items(&[path]);
        for encryption in [Encryption::Tls, Encryption::None] {
            let waiting = folders.receiver(encryption);
            let right = &waiting.ticket;
            let wrong_secret = Ticket {
                secret: Secret::of([1; 16]),
                ..right.clone()
            };
            let mut wrong = vec![(wrong_secret, 5)];
            if let Security::Encrypted { mut key_sha256 } = right.security {
                key_sha256[0] ^= 1;
                let security = Security::Encrypted { key_sha256 };
                wrong.push((
                    Ticket {
                        security,
                        ..right.clone()
                    },
                    4,
                ));
            }
            let nobody = Ticket {
                port: 1,
                ..right.clone()
            };
            wrong.push((nobody, 7));
            for (ticket, code) in wrong {
                let failed = send(&options(&ticket, None), &items).unwrap_err();
                assert_eq!(failed.exit_code(), code, "{failed}");
                let failed = receive(&options(&ticket, None), &folders.target()).unwrap_err();
                assert_eq!(failed.exit_code(), code, "{failed}");
            }
            assert!(folders.received().is_empty());
            waiting.stop();
        }
    });
}

/// Sends a request as it is to a side without encryption, and returns its response.
fn raw(waiting: &Waiting, request: &str) -> String {
    let mut socket = TcpStream::connect(waiting.address()).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn names_stay_within_the_folder() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::None);
        let token = waiting.ticket.secret.token();
        let outside = folders.to().parent().unwrap().to_owned();
        let before = fs::read_dir(&outside).unwrap().count();
        for name in [
            "../x",
            "..%2fx",
            "%2e%2e/x",
            "%2e%2e%2fx",
            "a/../../x",
            "%2fetc%2fx",
            ".profile",
            "%2eprofile",
            "a%5cb",
            "a%00b",
            "a%0ab",
            "..",
            ".",
            "%ff",
            "a/b",
            "..;/x",
            ".underpass-uploads/x",
            &"x".repeat(300),
        ] {
            let put = |target: &str| {
                format!(
                    "PUT /{token}/{target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                     Content-Length: 3\r\n\r\nabc"
                )
            };
            let response = raw(&waiting, &put(name));
            let status = &response[9..12];
            assert!(
                ["400", "403", "404", "409"].contains(&status),
                "{name}: {response}"
            );
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), before);
        assert!(folders.received().is_empty());
        for wrong in ["", "/", "/x/f", "/-/f"] {
            let request = format!(
                "PUT {wrong} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            );
            assert!(
                !raw(&waiting, &request).starts_with("HTTP/1.1 2"),
                "{wrong}"
            );
        }
        waiting.stop();
    });
}

#[test]
fn lengths_that_no_file_has_are_the_senders_fault() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::None);
        let token = waiting.ticket.secret.token();
        let put = |target: &str, framing: &str| {
            let request = format!(
                "PUT /{token}/{target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{framing}"
            );
            raw(&waiting, &request)[9..12].to_owned()
        };
        for size in ["ffffffffffffffff", "8000000000000000"] {
            let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{size}\r\nabc");
            for target in ["f", "f/", ""] {
                assert_eq!(put(target, &chunked), "400", "{size} {target}");
            }
        }
        // A length is compared with the space.
        for length in [u64::MAX, i64::MAX as u64 + 1, i64::MAX as u64] {
            let known = format!("Content-Length: {length}\r\n\r\nabc");
            let status = put("f", &known);
            assert!(["400", "507"].contains(&&*status), "{length}: {status}");
        }
        assert!(folders.received().is_empty());
        waiting.stop();
    });
}

#[test]
fn a_proof_is_for_one_request_of_one_connection() {
    within(|| {
        let folders = Folders::new();
        let waiting = folders.receiver(Encryption::None);
        let nonce = "00".repeat(16);
        let hello = format!(
            "GET /-/ HTTP/1.1\r\nHost: x\r\nUnderpass-Nonce: {nonce}\r\nConnection: close\r\n\r\n"
        );
        let (one, other) = (raw(&waiting, &hello), raw(&waiting, &hello));
        let proof = |response: &str| {
            let mut lines = response.lines();
            lines
                .find(|line| line.starts_with("Underpass-Proof: "))
                .map(str::to_owned)
        };
        assert!(
            proof(&one).is_some() && proof(&one) != proof(&other),
            "{one}{other}"
        );
        // What the listener has proven is of no use to somebody who replays it.
        let request = format!(
            "PUT /-/f HTTP/1.1\r\nHost: x\r\n{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            proof(&one).unwrap()
        );
        assert!(raw(&waiting, &request).starts_with("HTTP/1.1 404"));
        assert!(folders.received().is_empty());
        waiting.stop();
    });
}

#[test]
fn a_server_that_knows_nothing_of_the_profile_is_told_apart() {
    within(|| {
        let folders = Folders::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut head = [0; 1000];
            let _ = socket.read(&mut head).unwrap();
            socket
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
        });
        let ticket = Ticket {
            security: Security::Plain,
            secret: Secret::of([1; 16]),
            port: address.port(),
            addresses: vec![address.ip()],
        };
        let failed = receive(&options(&ticket, None), &folders.target()).unwrap_err();
        assert!(matches!(failed, Error::Refused { .. }), "{failed}");
        assert!(
            failed.to_string().contains("another HTTP server"),
            "{failed}"
        );
        server.join().unwrap();
    });
}
