//! HTTPS: bodies, handshakes, certificates, and plain HTTP on the same server.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rcgen::SanType;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, ClientConnection, HandshakeKind, version};
use underpass_net::{CertificateFiles, ListenAt, TlsOptions, TlsVersion};
use underpass_serve::{Error, HttpListen, Scheme, ServerOptions};
use underpass_testkit::{HttpClient, WAIT_MAX, assert_same, content, free_address, within};

use crate::support::Server;
use crate::tls::{Authority, ClientBuilder, SUITES, connect, serve, shake};

#[test]
fn bodies_arrive_whole_in_every_suite() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    let sizes = [
        0, 1, 1000, 16_383, 16_384, 16_385, 65_535, 65_536, 70_000, 3_000_000,
    ];
    let bodies = sizes.map(|size| content(7, size));
    for (size, body) in sizes.iter().zip(&bodies) {
        server.write(size.to_string(), body);
    }
    for (version, suite) in SUITES {
        let builder = ClientBuilder {
            versions: vec![version],
            suite: Some(suite),
            ..authority.client()
        };
        let mut client = connect(&builder.config(), server.address(), "localhost");
        for (size, body) in sizes.iter().zip(&bodies) {
            let response = client.get(&format!("/{size}"));
            assert_same(&response.body, body, &format!("{suite:?}"));
            client.send(format!(
                "GET /{size} HTTP/1.1\r\nHost: a\r\nRange: bytes=1-20000\r\n\r\n"
            ));
            let part = client.response().body;
            if *size > 1 {
                assert_same(&part, &body[1..body.len().min(20_001)], "a range");
            }
        }
        assert_eq!(
            client.ask_head("/1000").field("Content-Length"),
            Some("1000")
        );
    }
}

#[test]
fn a_slow_reader_gets_every_byte_once() {
    within(|| {
        let authority = Authority::new();
        let server = serve(&authority, |_| {});
        let body = content(8, 20_000_000);
        server.write("f", &body);
        for version in [&version::TLS13, &version::TLS12] {
            let builder = ClientBuilder {
                versions: vec![version],
                ..authority.client()
            };
            let mut client = connect(&builder.config(), server.address(), "localhost");
            client.ask("/f");
            let head = client.head();
            assert_eq!(head.field("Content-Length"), Some("20000000"));
            let mut got = Vec::new();
            // In pieces of odd sizes, so that the socket becomes full many times.
            while got.len() < body.len() {
                let most = (got.len() % 7919 + 1).min(body.len() - got.len());
                got.extend(client.read_exact(most).unwrap());
            }
            assert_same(&got, &body, "the body");
        }
    });
}

#[test]
fn the_end_of_a_connection_is_announced_and_a_truncated_body_is_not() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    server.write("f", "content");
    let config = authority.client().config();
    let mut client = connect(&config, server.address(), "localhost");
    client.send("GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().body, b"content");
    // With a close_notify; without one, rustls reports an unexpected end.
    assert_eq!(client.read_to_end().unwrap(), b"");

    let long = server.site().join("shrinks");
    fs::write(&long, vec![7; 50_000_000]).unwrap();
    let mut client = connect(&config, server.address(), "localhost");
    client.ask("/shrinks");
    client.head();
    client.read_exact(1).unwrap();
    fs::File::options()
        .write(true)
        .open(&long)
        .unwrap()
        .set_len(1000)
        .unwrap();
    // The socket's error, not rustls's about an end without close_notify.
    let error = client.read_to_end().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

#[test]
fn http_on_a_port_of_https_leads_to_https() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    server.write("f", "secret");
    let port = server.address().port();
    let mut client = server.connect();
    let response = client.get("/f?a=%20b");
    assert!(
        response.head.starts_with("HTTP/1.1 308 "),
        "{}",
        response.head
    );
    let location = format!("https://a:{port}/f?a=%20b");
    assert_eq!(response.field("Location"), Some(&*location));
    let mut client = server.connect();
    let request = "HEAD /f?a=%20b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.send(request);
    let head = client.head();
    assert_eq!(
        (head.status, head.field("Location")),
        (308, Some(&*location))
    );
    client.assert_closed();
    for request in [
        "POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "GET /f HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET /f HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET /f HTTP/1.1\r\nHost: a@b\r\n\r\n",
        "GET /f HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "HEAD /f HTTP/1.1\r\nHost: a:b\r\n\r\n",
        "GET /f HTTP/1.0\r\n\r\n",
        "\0\0\0\0",
    ] {
        let mut client = server.connect();
        client.send(request);
        let method = request.split(' ').next().unwrap();
        let response = client.try_response(method).unwrap();
        assert_eq!(response.status, 400, "{request}: {}", response.head);
        assert_eq!(response.field("Location"), None);
        assert!(!response.text().contains("secret"));
    }
}

#[test]
fn a_listener_without_tls_beside_one_with_redirects_but_for_challenges() {
    let authority = Authority::new();
    let free = free_address();
    let server = serve(&authority, |options| {
        let plain: HttpListen = SocketAddr::from(([127, 0, 0, 1], 0)).into();
        options.listen = vec![
            HttpListen {
                scheme: Some(Scheme::Http),
                ..plain
            },
            ListenAt::Tcp(free).into(),
        ];
    });
    server.write("f", "content");
    server.write(".well-known/acme-challenge/token", "thumbprint");
    let response = server.get("/f");
    let location = format!("https://a:{}/f", free.port());
    assert_eq!(response.field("Location"), Some(&*location));
    assert_eq!(
        server.get("/.well-known/acme-challenge/token").body,
        b"thumbprint"
    );
    assert!(
        server
            .get("/.well-known/acme-challenge/../../f")
            .head
            .contains(" 308 ")
    );
    let mut client = connect(&authority.client().config(), free, "localhost");
    assert_eq!(client.get("/f").body, b"content");
}

#[test]
fn a_url_in_a_request_has_the_scheme_that_is_spoken() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    server.write("f", "content");
    let config = authority.client().config();
    for (target, status) in [("https://localhost/f", 200), ("http://localhost/f", 421)] {
        let mut client = connect(&config, server.address(), "localhost");
        let response = client.get(target);
        assert!(
            response.head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{}",
            response.head
        );
    }
}

/// Returns the certificate presented to a client.
fn presented(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut socket).unwrap();
    }
    client.peer_certificates().unwrap()[0].to_vec()
}

fn der(files: &CertificateFiles) -> Vec<u8> {
    CertificateDer::from_pem_file(&files.cert).unwrap().to_vec()
}

#[test]
fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
    let authority = Authority::new();
    let first = authority.issue("first", &["localhost", "one.example"]);
    let second = authority.issue("second", &["two.example", "*.three.example"]);
    let rsa = authority.issue_with("rsa", &["two.example"], &rcgen::PKCS_RSA_SHA256);
    let files = [first, second, rsa];
    let server = Server::with(|options| options.tls.certificates = files.to_vec());
    let config = authority.client().config();
    for (name, number) in [
        ("one.example", 0),
        ("TWO.example", 1),
        ("a.three.example", 1),
        ("localhost", 0),
    ] {
        let got = presented(&config, server.address(), name);
        assert_eq!(got, der(&files[number]), "{name}");
    }
    let only_rsa = ClientBuilder {
        versions: vec![&version::TLS12],
        suite: Some(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        ..authority.client()
    };
    let got = presented(&only_rsa.config(), server.address(), "two.example");
    assert_eq!(
        got,
        der(&files[2]),
        "one whose signature the client understands"
    );
}

#[test]
fn a_renewed_certificate_is_used_while_downloads_go_on_and_a_broken_one_is_not() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    let body = content(9, 20_000_000);
    server.write("f", &body);
    let mut config = Arc::unwrap_or_clone(authority.client().config());
    // A resumed session would keep its original certificate.
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    let mut download = connect(&config, server.address(), "localhost");
    download.ask("/f");
    download.head();
    let mut got = download.read_exact(1000).unwrap();
    let before = der(&server.options().tls.certificates[0]);
    assert_eq!(presented(&config, server.address(), "localhost"), before);
    for _ in 0..20 {
        let renewed = authority.issue("server", &["localhost"]);
        server.server().reload_certificates().unwrap();
        assert_eq!(
            presented(&config, server.address(), "localhost"),
            der(&renewed)
        );
    }
    let good = der(&server.options().tls.certificates[0]);
    let other = authority.issue("other", &["localhost"]);
    fs::copy(&other.key, &server.options().tls.certificates[0].key).unwrap();
    let error = server
        .server()
        .reload_certificates()
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not that of the certificate"), "{error}");
    server.server().reload(server.options()).unwrap_err();
    assert_eq!(presented(&config, server.address(), "localhost"), good);
    got.extend(download.read_exact(body.len() - got.len()).unwrap());
    assert_same(&got, &body, "the download");
}

#[test]
fn sessions_are_resumed_on_every_worker_and_after_a_reload() {
    let authority = Authority::new();
    let server = serve(&authority, |options| options.workers = NonZeroUsize::new(3));
    server.write("f", "content");
    for version in [&version::TLS13, &version::TLS12] {
        let builder = ClientBuilder {
            versions: vec![version],
            ..authority.client()
        };
        let mut config = Arc::unwrap_or_clone(builder.config());
        config.resumption = Resumption::in_memory_sessions(64);
        let config = Arc::new(config);
        let kinds: Vec<_> = (0..100)
            .map(|number| {
                if number == 50 {
                    server.server().reload(server.options()).unwrap();
                }
                let client = shake(&config, server.address()).unwrap();
                client.handshake_kind().unwrap()
            })
            .collect();
        assert_eq!(kinds[0], HandshakeKind::Full);
        assert!(
            kinds[1..]
                .iter()
                .all(|kind| *kind == HandshakeKind::Resumed),
            "{kinds:?}"
        );
    }
}

#[test]
fn clients_need_a_certificate_where_an_authority_is_named_and_a_ticket_does_not_replace_it() {
    let authority = Authority::new();
    let open = serve(&authority, |_| {});
    let closed = serve(&authority, |options| {
        options.tls.client_ca = Some(authority.path("ca.pem"));
    });
    let mut config = Arc::unwrap_or_clone(authority.client().config());
    config.resumption = Resumption::in_memory_sessions(64);
    let config = Arc::new(config);
    shake(&config, open.address()).unwrap();
    let refused = shake(&config, closed.address()).unwrap_err();
    assert!(
        refused.to_string().contains("CertificateRequired"),
        "{refused}"
    );
    let another = Authority::new();
    let stranger = another.issue("stranger", &["me"]);
    let known = authority.issue("known", &["me"]);
    for (files, is_known) in [(known, true), (stranger, false)] {
        let builder = ClientBuilder {
            identity: Some(files),
            ..authority.client()
        };
        assert_eq!(shake(&builder.config(), closed.address()).is_ok(), is_known);
    }
}

#[test]
fn rules_know_clients_by_the_subjects_of_their_certificates() {
    let authority = Authority::new();
    // The subject of the tests' certificates.
    let text = "[[site]]\n[site.access]\n\
                [[site.access.rule]]\npaths = ['/mine']\n\
                allow = ['certificate:CN=rcgen self signed cert']\n\
                [[site.access.rule]]\npaths = ['/other']\nallow = ['certificate:CN=other']\n\
                [[site.access.rule]]\nallow = ['certificates']\n";
    let access = ServerOptions::parse(text).unwrap().sites.remove(0).access;
    let server = serve(&authority, |options| {
        options.tls.client_ca = Some(authority.path("ca.pem"));
        options.sites[0].access = access;
    });
    let builder = ClientBuilder {
        identity: Some(authority.issue("known", &["me"])),
        ..authority.client()
    };
    let mut client = connect(&builder.config(), server.address(), "localhost");
    for (name, status) in [("mine", 200), ("other", 403), ("all", 200)] {
        server.write(name, name);
        assert_eq!(client.get(&format!("/{name}")).status, status, "{name}");
    }
}

#[test]
fn rules_know_clients_without_a_subject_by_their_first_alternative_name() {
    let authority = Authority::new();
    let names = [
        "DNS:build.example.org",
        "email:anna@example.org",
        "URI:spiffe://example.org/ci",
    ];
    let rules = names.iter().enumerate().map(|(number, name)| {
        format!("[[site.access.rule]]\npaths = ['/{number}']\nallow = ['certificate:{name}']\n")
    });
    let text = format!("[[site]]\n[site.access]\n{}", String::from_iter(rules));
    let access = ServerOptions::parse(&text).unwrap().sites.remove(0).access;
    let server = serve(&authority, |options| {
        options.tls.client_ca = Some(authority.path("ca.pem"));
        options.sites[0].access = access;
    });
    for number in 0..names.len() {
        server.write(number.to_string(), "f");
    }
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let email = SanType::Rfc822Name("anna@example.org".try_into().unwrap());
    let uri = SanType::URI("spiffe://example.org/ci".try_into().unwrap());
    let known = dns("build.example.org");
    let without_subject = |file, names: &[SanType]| authority.issue_without_subject(file, names);
    for (files, expected) in [
        (
            without_subject("1", &[known.clone(), email.clone()]),
            [200, 403, 403],
        ),
        (without_subject("2", &[email, known]), [403, 200, 403]),
        (without_subject("3", &[uri]), [403, 403, 200]),
        (
            without_subject("4", &[dns("build.example.org.evil")]),
            [403; 3],
        ),
        // Only its subject alternative name is this name.
        (authority.issue("client", &["build.example.org"]), [403; 3]),
    ] {
        let builder = ClientBuilder {
            identity: Some(files),
            ..authority.client()
        };
        let mut client = connect(&builder.config(), server.address(), "localhost");
        let statuses = [0, 1, 2].map(|number| client.get(&format!("/{number}")).status);
        assert_eq!(statuses, expected);
    }
}

#[test]
fn the_oldest_version_is_the_one_that_is_configured() {
    let authority = Authority::new();
    let server = serve(&authority, |options| {
        options.tls.min_version = TlsVersion::Tls13;
    });
    let old = ClientBuilder {
        versions: vec![&version::TLS12],
        ..authority.client()
    };
    let refused = shake(&old.config(), server.address()).unwrap_err();
    assert!(refused.to_string().contains("ProtocolVersion"), "{refused}");
    shake(&authority.client().config(), server.address()).unwrap();
}

#[test]
fn what_is_no_handshake_is_ended_by_an_alert_and_a_late_one_by_its_deadline() {
    let authority = Authority::new();
    let server = serve(&authority, |options| {
        options.connections.handshake_timeout = Duration::from_millis(200);
    });
    server.write("f", "content");
    let raw = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    };
    // A record that is too long, and a message that is not a ClientHello.
    for wrong in [
        &b"\x16\x03\x01\xff\xff"[..],
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
    ] {
        let mut answer = Vec::new();
        raw(wrong).read_to_end(&mut answer).unwrap();
        assert_eq!(answer.first(), Some(&21), "an alert: {answer:?}");
    }
    // Nothing, part of a hello, its start without an end, and application data within it.
    for silent in [
        &b""[..],
        b"\x16",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"\x16\x03\x01\x00\x02\x01\x00\x17\x03\x03\x00\x01a",
    ] {
        let mut socket = raw(silent);
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
    }
    // Other clients are served meanwhile.
    let waiting: Vec<_> = (0..50).map(|_| raw(b"\x16\x03")).collect();
    let mut client = connect(&authority.client().config(), server.address(), "localhost");
    assert_eq!(client.get("/f").body, b"content");
    drop(waiting);
}

#[test]
fn bytes_that_are_tampered_with_end_the_connection_with_an_alert() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    server.write("f", "content");
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(authority.client().config(), name).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut socket).unwrap();
    }
    while client.wants_write() {
        client.write_tls(&mut socket).unwrap();
    }
    client
        .writer()
        .write_all(b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut record = Vec::new();
    client.write_tls(&mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    socket.write_all(&record).unwrap();
    let error = loop {
        match client.read_tls(&mut socket) {
            Ok(0) => panic!("no alert"),
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
        if let Err(error) = client.process_new_packets() {
            break error;
        }
    };
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
}

#[test]
fn keys_are_updated_in_mid_connection() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    let body = content(10, 300_000);
    server.write("f", &body);
    let config = authority.client().config();
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(config, name).unwrap();
    connection.complete_io(&mut socket).unwrap();
    for _ in 0..5 {
        connection.refresh_traffic_keys().unwrap();
        connection
            .writer()
            .write_all(b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut client = HttpClient::over(rustls::Stream::new(&mut connection, &mut socket));
        assert_same(
            &client.response().body,
            &body,
            "after an update of the keys",
        );
    }
}

#[test]
fn a_peer_that_closes_without_an_alert_is_not_waited_for() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    server.write("f", "content");
    let client = shake(&authority.client().config(), server.address()).unwrap();
    drop(client);
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    socket.write_all(b"\x16\x03\x01").unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    server.stop();
}

#[test]
fn certificates_that_cannot_be_used_are_refused_with_the_file_and_the_reason() {
    let authority = Authority::new();
    let good = authority.issue("good", &["localhost"]);
    let other = authority.issue("other", &["localhost"]);
    let empty = authority.path("empty");
    fs::write(&empty, "").unwrap();
    let encrypted = authority.path("encrypted");
    fs::write(
        &encrypted,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    let site = authority.path("site");
    fs::create_dir(&site).unwrap();
    let served = site.join("key");
    fs::copy(&good.key, &served).unwrap();
    let refused = |cert: &Path, key: &Path| {
        let options = ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            tls: TlsOptions::of(cert, key),
            ..ServerOptions::of(&site)
        };
        let error = underpass_serve::serve(&options).unwrap_err().to_string();
        let checked: Vec<_> = underpass_serve::check(&options)
            .iter()
            .map(Error::to_string)
            .collect();
        assert_eq!(checked, std::slice::from_ref(&error));
        error
    };
    for (cert, key, words) in [
        (&good.cert, &other.key, "is not that of the certificate in"),
        (&good.cert, &empty, "empty: holds no private key"),
        (&empty, &good.key, "empty: holds no certificate"),
        (&good.key, &good.key, "good.key: holds no certificate"),
        (&good.cert, &encrypted, "encrypted: the key is encrypted"),
        (
            &good.cert,
            &authority.path("missing"),
            "missing: No such file",
        ),
        (&good.cert, &served, "is in the served folder"),
    ] {
        let error = refused(cert, key);
        assert!(error.contains(words), "{words}: {error}");
    }
}

/// `openssl x509 -req` makes X.509 version 1 if no extensions are given.
#[test]
#[ignore = "needs openssl; run by cargo xtask test"]
fn certificates_and_keys_that_openssl_makes_are_refused_with_what_makes_good_ones() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let mut openssl = Command::new("openssl");
        openssl
            .args(arguments.split(' '))
            .current_dir(folder.path());
        assert!(openssl.output().unwrap().status.success(), "{arguments}");
    };
    openssl("req -newkey rsa:2048 -nodes -keyout key -out csr -subj /CN=a");
    openssl("x509 -req -in csr -signkey key -out cert -days 3");
    let site = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        tls: TlsOptions::of(folder.path().join("cert"), folder.path().join("key")),
        ..ServerOptions::of(site.path())
    };
    let refused = || underpass_serve::serve(&options).unwrap_err().to_string();
    let error = refused();
    for words in ["/cert: ", "X.509 version 1", "openssl x509 -req"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    // A key that is too short, and a key of an unknown kind.
    for new in ["rsa:1024", "ed448"] {
        openssl(&format!(
            "req -x509 -newkey {new} -nodes -keyout key -out cert -subj /CN=a -addext \
             subjectAltName=DNS:a"
        ));
        let error = refused();
        for words in ["/key: ", "P-256", "openssl ecparam"] {
            assert!(error.contains(words), "{words}: {error}");
        }
    }
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -subj /CN=a");
    let said = underpass_serve::warnings(&options);
    let is_nameless = |one: &String| one.contains("subjectAltName=DNS:NAME");
    assert!(said.iter().any(is_nameless), "{said:?}");
}

#[test]
fn https_needs_a_certificate_and_a_mechanism_that_passes_user_space() {
    let site = tempfile::tempdir().unwrap();
    let mut options = ServerOptions::of(site.path());
    options.listen = HttpListen::resolve("https:127.0.0.1:0", None).unwrap();
    let error = underpass_serve::serve(&options).unwrap_err().to_string();
    assert!(error.contains("none is configured"), "{error}");
    let authority = Authority::new();
    let files = authority.issue("server", &["localhost"]);
    options.tls = TlsOptions::of(files.cert, files.key);
    options.policy = underpass::Policy::only(underpass::Mechanism::Sendfile);
    let error = underpass_serve::serve(&options).unwrap_err().to_string();
    assert!(error.contains("read_write"), "{error}");
}

#[test]
fn handshakes_and_certificates_are_counted_and_explained() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let status = folder.path().join("status");
    let server = serve(&authority, |options| {
        options.status.listen = Some(status.clone().into());
        options.explain = underpass_serve::Explain::On;
    });
    server.write("f", content(11, 100_000));
    let mut client = connect(&authority.client().config(), server.address(), "localhost");
    let response = client.get("/f");
    let plan = response.field("Underpass-Plan").unwrap();
    assert!(
        plan.starts_with("read_write") && plan.contains("TLS is in user space"),
        "{plan}"
    );
    let previous = client.get("/f");
    let previous = previous.field("Underpass-Previous").unwrap();
    assert!(
        previous.starts_with("100000 bytes by read_write"),
        "{previous}"
    );
    let mut scrape = HttpClient::connect_unix(&status);
    let text = scrape.get("/metrics");
    let text = text.text();
    assert!(
        text.contains("underpass_tls_handshakes_total{outcome=\"full\"} 1\n"),
        "{text}"
    );
    assert!(
        text.contains("underpass_tls_certificate_expiry_timestamp_seconds{file=\""),
        "{text}"
    );
}

/// A connection closed to make room must not occupy its slot until the client closes it, too.
#[test]
fn idle_connections_make_room_at_once() {
    within(|| {
        let authority = Authority::new();
        let server = serve(&authority, |options| {
            options.connections.connections_max = 8;
            options.connections.linger_timeout = Duration::from_secs(3600);
        });
        server.write("f", "content");
        let config = authority.client().config();
        let mut held = Vec::new();
        for _ in 0..40 {
            let mut client = connect(&config, server.address(), "localhost");
            assert_eq!(client.get("/f").body, b"content");
            held.push(client);
        }
        // With a close_notify; without one, rustls reports an unexpected end.
        assert_eq!(held[0].read_to_end().unwrap(), b"");
    });
}

#[test]
fn a_connection_that_says_nothing_keeps_no_stop_waiting() {
    within(|| {
        let authority = Authority::new();
        let server = serve(&authority, |options| {
            options.connections.linger_timeout = Duration::from_secs(3600);
        });
        let silent = TcpStream::connect(server.address()).unwrap();
        server.stop();
        drop(silent);
    });
}
