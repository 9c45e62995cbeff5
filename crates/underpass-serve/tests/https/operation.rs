//! HTTPS for operators: log, metrics, checks, certificates, tickets.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, IsCa, Issuer,
    KeyPair, RsaKeySize,
};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::pki_types::ServerName;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore,
    StreamOwned, version,
};
use serde_json::{Value, json};
use underpass_net::{TlsOptions, TlsVersion};
use underpass_serve::rules::HostName;
use underpass_serve::{
    Access, Error, Explain, HttpListen, LogFormat, Scheme, ServerOptions, SiteOptions, check,
    warnings,
};
use underpass_testkit::{HttpClient, WAIT_MAX, assert_same, content, wait_for, wait_until};

use crate::support::Server;
use crate::tls::{Authority, ClientBuilder, connect, serve, shake};

/// Returns options that serve metrics on the socket `status` in this folder.
fn with_status(folder: &Path) -> impl FnOnce(&mut ServerOptions) {
    let status = folder.join("status");
    move |options| options.status.listen = Some(status.into())
}

fn metrics(folder: &Path) -> String {
    let mut scrape = HttpClient::connect_unix(&folder.join("status"));
    scrape.get("/metrics").text().to_owned()
}

/// Waits for a line of the metrics, and returns all of them.
fn await_metric(folder: &Path, line: &str) -> String {
    wait_for(line, || {
        Some(metrics(folder)).filter(|text| text.lines().any(|one| one == line))
    })
}

/// Stops the server and returns the lines of its log.
fn stopped_log(server: Server, log: &Path) -> Vec<Value> {
    server.stop();
    let lines = fs::read_to_string(log).unwrap();
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn log_and_explanation_name_version_suite_name_kind_client_and_who_sealed() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = serve(&authority, |options| {
        options.log.access = Access::File(log.clone());
        options.log.format = LogFormat::Json;
        options.explain = Explain::On;
        options.tls.client_ca = Some(authority.path("ca.pem"));
    });
    server.write("f", "content");
    let builder = ClientBuilder {
        identity: Some(authority.issue("client", &["me"])),
        ..authority.client()
    };
    let mut config = Arc::unwrap_or_clone(builder.config());
    config.resumption = Resumption::in_memory_sessions(8);
    let config = Arc::new(config);
    for kind in ["full", "resumed"] {
        let mut client = connect(&config, server.address(), "localhost");
        let response = client.get("/f");
        let said = response.field("Underpass-TLS").unwrap();
        let expected = format!(
            "TLSv1.3, TLS_AES_256_GCM_SHA384, {kind} handshake; sealed in user space; name \
             localhost; client CN=rcgen self signed cert"
        );
        assert_eq!(said, expected);
    }
    let plain = server.get("/f");
    assert_eq!(plain.field("Underpass-TLS"), None);
    let lines = stopped_log(server, &log);
    let agreed: Vec<_> = lines.iter().map(|line| line["tls"].clone()).collect();
    let of = |kind| {
        json!({
            "version": "TLSv1.3", "cipher": "TLS_AES_256_GCM_SHA384", "name": "localhost",
            "handshake": kind, "client": "CN=rcgen self signed cert", "sealed_by": "user_space",
        })
    };
    assert_eq!(agreed, [of("full"), of("resumed"), Value::Null]);
}

#[test]
fn alerts_connections_bytes_and_reloads_are_counted() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&authority, with_status(folder.path()));
    server.write("f", vec![7; 100_000]);
    let mut client = connect(&authority.client().config(), server.address(), "localhost");
    client.send("GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().body.len(), 100_000);
    client.read_to_end().unwrap();
    // A client rejects an unknown authority; data that is not a hello gets an alert.
    let stranger = Authority::new();
    shake(&stranger.client().config(), server.address()).unwrap_err();
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    socket
        .write_all(b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00")
        .unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    server.server().reload_certificates().unwrap();
    authority.issue("server", &["localhost"]);
    server.server().reload_certificates().unwrap();
    fs::write(authority.path("server.key"), "").unwrap();
    server.server().reload_certificates().unwrap_err();

    let alert =
        "underpass_tls_alerts_total{direction=\"received\",description=\"decrypt_error\"} 1";
    let text = await_metric(folder.path(), alert);
    for line in [
        "underpass_tls_alerts_total{direction=\"sent\",description=\"close_notify\"} 1",
        "underpass_tls_alerts_total{direction=\"sent\",description=\"decode_error\"} 1",
        "underpass_tls_connections_total{sealer=\"user_space\"} 1",
        "underpass_tls_reloads_total{outcome=\"same\"} 1",
        "underpass_tls_reloads_total{outcome=\"changed\"} 1",
        "underpass_tls_reloads_total{outcome=\"failed\"} 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
    let bytes = "underpass_tls_sent_bytes_total{sealer=\"user_space\"} ";
    let bytes = text.lines().find_map(|line| line.strip_prefix(bytes));
    let bytes: u64 = bytes.unwrap().parse().unwrap();
    assert!((100_000..101_000).contains(&bytes), "{bytes}");
}

#[test]
fn ends_without_close_notify_are_counted() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&authority, with_status(folder.path()));
    server.write("f", "f");
    let config = authority.client().config();
    for is_announced in [false, true, false] {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let socket = TcpStream::connect(server.address()).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        assert_eq!(HttpClient::over(&mut stream).get("/f").body, b"f");
        if is_announced {
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
    }
    let received = "{direction=\"received\",description=\"close_notify\"} 1";
    await_metric(
        folder.path(),
        &format!("underpass_tls_alerts_total{received}"),
    );
    await_metric(folder.path(), "underpass_tls_unannounced_ends_total 2");
}

/// A certificate for 2024 to 2099, customized, signed by `issuer` or by itself.
struct Issued {
    pem: String,
    key: KeyPair,
    params: CertificateParams,
}

fn issued(issuer: Option<&Issued>, change: impl FnOnce(&mut CertificateParams)) -> Issued {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2099, 1, 1);
    change(&mut params);
    let certificate = match issuer {
        None => params.self_signed(&key),
        Some(issuer) => params.signed_by(&key, &Issuer::from_params(&issuer.params, &issuer.key)),
    };
    let pem = certificate.unwrap().pem();
    Issued { pem, key, params }
}

fn authority(name: &str) -> impl FnOnce(&mut CertificateParams) {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    move |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = subject;
    }
}

/// Returns the errors and warnings about these certificates in one file.
fn checked(chain: &[&Issued]) -> (Vec<String>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert", "key"].map(|name| folder.path().join(name));
    fs::write(&cert, chain.iter().map(|one| &*one.pem).collect::<String>()).unwrap();
    fs::write(&key, chain[0].key.serialize_pem()).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    let options = ServerOptions {
        tls: TlsOptions::of(&cert, &key),
        ..ServerOptions::of(&site)
    };
    let mistakes = check(&options).iter().map(Error::to_string).collect();
    (mistakes, warnings(&options))
}

#[test]
fn chains_and_dates_are_checked() {
    let root = issued(None, authority("root"));
    let between = issued(Some(&root), authority("between"));
    // The same name with another key: renewed at the wrong time.
    let other = issued(Some(&root), authority("between"));
    let leaf = issued(Some(&between), |_| {});
    for right in [&[&leaf, &between][..], &[&leaf, &between, &root], &[&leaf]] {
        assert_eq!(checked(right), (vec![], vec![]));
    }
    let order = "certificate 1 is not signed by certificate 2";
    for (wrong, words) in [
        (&[&leaf, &other][..], order),
        (&[&leaf, &root, &between], order),
        (
            &[&leaf, &between, &between],
            "certificate 2 is not signed by certificate 3",
        ),
    ] {
        let (mistakes, _) = checked(wrong);
        assert!(
            mistakes.len() == 1 && mistakes[0].contains(words),
            "{mistakes:?}"
        );
    }
    let now = SystemTime::now();
    let day = Duration::from_secs(86_400);
    let old = issued(Some(&root), |params| {
        params.not_after = rcgen::date_time_ymd(2025, 2, 3);
    });
    let (mistakes, _) = checked(&[&old]);
    assert!(
        mistakes[0].contains("expired on 2025-02-03 00:00 UTC"),
        "{mistakes:?}"
    );
    let future = issued(Some(&root), |params| params.not_before = (now + day).into());
    let (mistakes, _) = checked(&[&future]);
    assert!(
        mistakes[0].contains("is not valid before 20"),
        "{mistakes:?}"
    );
    for (days, count) in [(13, 1), (15, 0)] {
        let soon = issued(Some(&root), |params| {
            params.not_after = (now + day * days).into();
        });
        let (mistakes, warnings) = checked(&[&soon]);
        assert!(
            mistakes.is_empty() && warnings.len() == count,
            "{warnings:?}"
        );
        assert!(
            warnings.iter().all(|one| one.contains("expires on 20")),
            "{warnings:?}"
        );
    }
    let (mistakes, warnings) = checked(&[&root]);
    assert!(
        mistakes.is_empty() && warnings[0].contains("of an authority"),
        "{warnings:?}"
    );
    // It contains the URL of its issuer's certificate, http://a/.
    let access = b"\x30\x17\x30\x15\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86\x09http://a/";
    let public = issued(Some(&between), |params| {
        let access = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access.into());
        params.custom_extensions = vec![access];
    });
    let (mistakes, warnings) = checked(&[&public]);
    assert!(
        mistakes.is_empty() && warnings[0].contains("fullchain.pem"),
        "{warnings:?}"
    );
    assert_eq!(checked(&[&public, &between]), (vec![], vec![]));
}

#[test]
fn names_without_a_certificate_and_files_of_the_wrong_mode_are_warned_of() {
    let authority = Authority::new();
    let files = authority.issue("server", &["a.example", "*.b.example", "192.0.2.1", "::1"]);
    let text = "[[site]]\nnames = ['a.example', 'x.b.example', '*.b.example', '192.0.2.1', '[::1]']
        [[site]]\nnames = ['c.example', 'b.example', '192.0.2.2']";
    let mut options = ServerOptions::parse(text).unwrap();
    options.tls.certificates = vec![files.clone()];
    let folder = tempfile::tempdir().unwrap();
    options
        .sites
        .iter_mut()
        .for_each(|site| site.root = folder.path().to_owned());
    let of_mode = |mode| {
        fs::set_permissions(&files.key, Permissions::from_mode(mode)).unwrap();
        warnings(&options)
    };
    let said = of_mode(0o640);
    assert_eq!(said.len(), 3, "{said:?}");
    for (one, name) in said.iter().zip(["c.example", "b.example", "192.0.2.2"]) {
        let words = format!("no certificate is for the name {name} of a site");
        assert!(one.contains(&words), "{one}");
    }
    let said = of_mode(0o644);
    assert!(
        said[0].contains("every user of this machine may read the private key"),
        "{said:?}"
    );
    fs::set_permissions(authority.path(""), Permissions::from_mode(0o700)).unwrap();
    options.user = Some("65533:65533".parse().unwrap());
    // A reload would fail.
    let refused = || {
        let errors = check(&options);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let said = refused();
    for file in [&files.cert, &files.key] {
        let words = format!("{}: 65533:65533 may not read it", file.display());
        assert!(said.iter().any(|one| one.contains(&words)), "{said:?}");
    }
    let open = Permissions::from_mode(0o711);
    fs::set_permissions(authority.path(""), open).unwrap();
    assert_eq!(refused(), [""; 0]);
    fs::set_permissions(&files.key, Permissions::from_mode(0o600)).unwrap();
    let said = refused();
    assert!(said.len() == 1 && said[0].contains("every reload and upgrade will fail"));
    assert!(
        !warnings(&options)
            .iter()
            .any(|one| one.contains("may not read"))
    );
}

#[test]
fn names_of_certificates_that_no_site_has_are_warned_of() {
    let authority = Authority::new();
    let names = ["a.example", "www.a.example", "*.b.example", "*.c.example"];
    let mut options = ServerOptions::parse(
        "[[site]]\nnames = ['a.example']\n[[site]]\nnames = ['x.b.example', '*.d.example']",
    )
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    for site in &mut options.sites {
        site.root = folder.path().to_owned();
    }
    // The second one has the same names, like one with another kind of key.
    let more = [&names[..], &["y.d.example", "d.example"]].concat();
    options.tls.certificates = vec![
        authority.issue("first", &names),
        authority.issue("second", &more),
    ];
    let unplaced = |options: &ServerOptions| {
        let mut said = warnings(options);
        said.retain(|one| one.contains("which no site has"));
        said
    };
    let said = unplaced(&options);
    assert_eq!(said.len(), 3, "{said:?}");
    for (one, (file, name)) in said.iter().zip([
        ("first", "www.a.example"),
        ("first", "*.c.example"),
        ("second", "d.example"),
    ]) {
        assert!(
            one.contains(&format!("{file}.crt is for the name {name},")),
            "{one}"
        );
        assert!(one.contains(folder.path().to_str().unwrap()), "{one}");
    }
    options.sites[0].names.clear();
    assert_eq!(unplaced(&options), [""; 0]);
}

fn resuming(builder: &ClientBuilder) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(builder.config());
    config.resumption = Resumption::in_memory_sessions(64);
    Arc::new(config)
}

fn kind(config: &Arc<ClientConfig>, address: SocketAddr) -> HandshakeKind {
    let client = shake(config, address).unwrap();
    client.handshake_kind().unwrap()
}

#[test]
fn sessions_are_resumed_by_all_workers_after_renewals_and_not_under_other_rules() {
    let authority = Authority::new();
    let server = serve(&authority, |options| options.workers = NonZeroUsize::new(3));
    server.write("f", "content");
    let other = serve(&authority, |_| {});
    for version in [&version::TLS13, &version::TLS12] {
        let builder = ClientBuilder {
            versions: vec![version],
            ..authority.client()
        };
        let config = resuming(&builder);
        assert_eq!(kind(&config, server.address()), HandshakeKind::Full);
        for number in 0..100 {
            if number % 25 == 10 {
                authority.issue("server", &["localhost"]);
                server.server().reload(server.options()).unwrap();
            }
            let kind = kind(&config, server.address());
            assert_eq!(kind, HandshakeKind::Resumed, "{version:?}, {number}");
        }
        // This server does not have the ticket key.
        assert_eq!(kind(&config, other.address()), HandshakeKind::Full);
    }
    let config = resuming(&authority.client());
    kind(&config, server.address());
    let mut options = server.options().clone();
    options.tls.min_version = TlsVersion::Tls13;
    server.server().reload(&options).unwrap();
    assert_eq!(kind(&config, server.address()), HandshakeKind::Full);
    assert_eq!(kind(&config, server.address()), HandshakeKind::Resumed);
}

#[test]
fn no_session_of_tls_1_2_is_resumed_by_its_identifier() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    let mut config = Arc::unwrap_or_clone(
        ClientBuilder {
            versions: vec![&version::TLS12],
            ..authority.client()
        }
        .config(),
    );
    let sessions = Resumption::in_memory_sessions(64);
    config.resumption = sessions.tls12_resumption(Tls12Resumption::SessionIdOnly);
    let config = Arc::new(config);
    for _ in 0..3 {
        assert_eq!(kind(&config, server.address()), HandshakeKind::Full);
    }
}

#[test]
fn a_ticket_ends_with_the_authority_of_its_client() {
    let (authority, next) = (Authority::new(), Authority::new());
    let server = serve(&authority, |options| {
        options.tls.client_ca = Some(authority.path("ca.pem"));
    });
    let by = |issuer: &Authority| {
        let builder = ClientBuilder {
            identity: Some(issuer.issue("client", &["me"])),
            ..authority.client()
        };
        resuming(&builder)
    };
    let client = by(&authority);
    assert_eq!(kind(&client, server.address()), HandshakeKind::Full);
    assert_eq!(kind(&client, server.address()), HandshakeKind::Resumed);
    let own = fs::read(authority.path("ca.pem")).unwrap();
    fs::copy(next.path("ca.pem"), authority.path("ca.pem")).unwrap();
    server.server().reload_certificates().unwrap();
    shake(&client, server.address()).unwrap_err();
    assert_eq!(kind(&by(&next), server.address()), HandshakeKind::Full);
    // If the file is broken, the previous authority stays in use.
    fs::write(authority.path("ca.pem"), "no certificate").unwrap();
    server.server().reload_certificates().unwrap_err();
    assert_eq!(kind(&by(&next), server.address()), HandshakeKind::Full);
    fs::write(authority.path("ca.pem"), own).unwrap();
    server.server().reload_certificates().unwrap();
    assert_eq!(kind(&by(&authority), server.address()), HandshakeKind::Full);
}

#[test]
fn every_response_by_https_has_browsers_come_back_by_it_and_none_by_http() {
    let authority = Authority::new();
    let plain: HttpListen = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    let folder = tempfile::tempdir().unwrap();
    let secured = folder.path().join("secured");
    let server = serve(&authority, |options| {
        let secured = HttpListen::resolve(&format!("unix:{}", secured.display()), None).unwrap();
        let plain = HttpListen {
            scheme: Some(Scheme::Http),
            ..plain.clone()
        };
        options.listen = [secured, vec![plain]].concat();
        options.tls.hsts = Some("365d; includeSubDomains".to_owned());
    });
    server.write("f", "content");
    server.write("long", vec![7; 100_000]);
    let name = ServerName::try_from("localhost").unwrap();
    let config = authority.client().config();
    for (request, status, body) in [
        (
            "GET /f HTTP/1.1\r\nHost: a\r\n\r\n",
            200,
            Some(&b"content"[..]),
        ),
        ("HEAD /f HTTP/1.1\r\nHost: a\r\n\r\n", 200, None),
        (
            "GET /long HTTP/1.1\r\nHost: a\r\n\r\n",
            200,
            Some(&[7; 100_000]),
        ),
        ("GET /none HTTP/1.1\r\nHost: a\r\n\r\n", 404, None),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200, None),
        (
            "POST /f HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            405,
            None,
        ),
        ("nonsense\r\n\r\n", 400, None),
    ] {
        let socket = UnixStream::connect(&secured).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let connection = ClientConnection::new(Arc::clone(&config), name.clone()).unwrap();
        let mut client = HttpClient::over(StreamOwned::new(connection, socket));
        client.send(request);
        let response = match request.starts_with("HEAD") {
            true => client.head(),
            false => client.response(),
        };
        assert_eq!(response.status, status, "{request}");
        let field = "Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n";
        assert_eq!(response.head.matches(field).count(), 1, "{}", response.head);
        assert!(body.is_none_or(|body| response.body == body), "{request}");
    }
    for target in ["/f", "/.well-known/acme-challenge/x"] {
        let response = server.get(target);
        assert_eq!(response.field("Strict-Transport-Security"), None);
    }
    let text = "[tls]\nhsts = '1y'\n[[site]]\nheader = [{paths = ['*'], name = \
                'strict-transport-security', value = 'max-age=1'}]";
    for (text, words) in [
        (
            "[tls]\nhsts = '1y; all'\n[[site]]",
            "tls.hsts: unknown directive",
        ),
        (text, "choose one"),
    ] {
        let mut options = ServerOptions::parse(text).unwrap();
        options.listen = vec![plain.clone()];
        let wrong = check(&options);
        assert!(
            wrong.iter().any(|one| one.to_string().contains(words)),
            "{wrong:?}"
        );
        let error = underpass_serve::serve(&options).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn cipher_suites_are_those_that_are_listed() {
    let authority = Authority::new();
    let listed = |names: &[&str]| {
        let names = names.iter().map(ToString::to_string).collect();
        serve(&authority, |options| options.tls.cipher_suites = names)
    };
    let builder = authority.client();
    let agreed = |server: &Server| {
        let client = shake(&builder.config(), server.address()).unwrap();
        client.negotiated_cipher_suite().unwrap().suite()
    };
    let server = listed(&["TLS_CHACHA20_POLY1305_SHA256"]);
    assert_eq!(agreed(&server), CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    let old = ClientBuilder {
        versions: vec![&version::TLS12],
        ..builder.clone()
    };
    shake(&old.config(), server.address()).unwrap_err();
    // A client that also supports TLS 1.3 gets the only version offered.
    let name = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let suite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    assert_eq!(agreed(&listed(&[name])), suite);
    let mut options = server.options().clone();
    options.tls.cipher_suites = vec!["AES128-SHA".to_owned()];
    let error = server.server().reload(&options).unwrap_err().to_string();
    let words = "unknown cipher suite \"AES128-SHA\"; expected one of TLS_AES_256_GCM_SHA384, ";
    assert!(error.contains(words), "{error}");
    options.tls.cipher_suites = vec![name.to_owned()];
    options.tls.min_version = TlsVersion::Tls13;
    let error = server.server().reload(&options).unwrap_err().to_string();
    assert!(
        error.contains("none of the cipher suites is for TLSv1.3"),
        "{error}"
    );
}

/// Returns the number of bytes that a server sends until the client's handshake is complete.
fn flight(config: ClientConfig, address: SocketAddr) -> (usize, ClientConnection) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut received = 0;
    while client.is_handshaking() {
        while client.wants_write() {
            client.write_tls(&mut socket).unwrap();
        }
        // Byte by byte, so that data after the handshake is not counted.
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        client.read_tls(&mut &byte[..]).unwrap();
        client.process_new_packets().unwrap();
        received += 1;
    }
    (received, client)
}

#[test]
fn handshakes_are_post_quantum_compressed_and_without_early_data() {
    let authority = Authority::new();
    let names: Vec<_> = (0..40)
        .map(|number| format!("name-{number}.example.org"))
        .collect();
    let names: Vec<_> = names
        .iter()
        .map(String::as_str)
        .chain(["localhost"])
        .collect();
    let server = serve(&authority, |options| {
        options.tls.certificates = vec![authority.issue("server", &names)];
    });
    let mut config = Arc::unwrap_or_clone(authority.client().config());
    config.enable_early_data = true;
    let (compressed, client) = flight(config.clone(), server.address());
    let group = client.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, NamedGroup::X25519MLKEM768);
    let mut uncompressing = config.clone();
    uncompressing.cert_decompressors = Vec::new();
    let (whole, _) = flight(uncompressing, server.address());
    assert!(compressed + 500 < whole, "{compressed} and {whole} bytes");
    // The session has a ticket that does not allow early data.
    shake(&Arc::new(config.clone()), server.address()).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    assert!(client.early_data().is_none());
}

#[test]
fn a_client_that_offers_another_protocol_alone_is_told_so() {
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    for (offered, is_accepted) in [
        (&[&b"h2"[..]][..], false),
        (&[b"h2", b"http/1.1"], true),
        (&[b"http/1.0"], true),
        (&[], true),
    ] {
        let mut config = Arc::unwrap_or_clone(authority.client().config());
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let shaken = shake(&Arc::new(config), server.address());
        assert_eq!(shaken.is_ok(), is_accepted, "{offered:?}");
        if let Err(error) = shaken {
            assert!(
                error.to_string().contains("NoApplicationProtocol"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_download_goes_on_beside_a_flood_of_handshakes_with_a_long_key() {
    let key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_3072).unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [cert, key_file] = ["cert", "key"].map(|name| folder.path().join(name));
    fs::write(&cert, certificate.pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let server = Server::with(|options| options.tls = TlsOptions::of(&cert, &key_file));
    let body = content(12, 20_000_000);
    server.write("f", &body);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let mut builder = Authority::new().client();
    builder.roots = roots;
    let mut config = Arc::unwrap_or_clone(builder.config());
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    let address = server.address();
    let mut download = connect(&config, address, "localhost");
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    shake(&config, address).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("flood", || count.load(Ordering::Relaxed) > 8);
        assert_same(&download.get("/f").body, &body, "the download");
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_key_beneath_a_root_is_refused_by_whatever_names_and_links() {
    let authority = Authority::new();
    let files = authority.issue("server", &["localhost"]);
    let at = |name: &str| authority.path(name);
    fs::create_dir_all(at("www/.hidden/deep")).unwrap();
    fs::create_dir(at("other")).unwrap();
    fs::create_dir(at("keys")).unwrap();
    fs::copy(&files.key, at("www/.hidden/deep/key")).unwrap();
    fs::copy(&files.key, at("keys/key")).unwrap();
    symlink(at("www"), at("root-link")).unwrap();
    symlink("../www/.hidden/deep/key", at("keys/link")).unwrap();
    symlink("keys/link", at("chain")).unwrap();
    // A link below the root to a key outside of it.
    symlink("../keys/key", at("www/link")).unwrap();
    symlink("www/link", at("through")).unwrap();
    symlink(at("www/.hidden"), at("folder-link")).unwrap();
    for (key, is_served) in [
        ("www/.hidden/deep/key", true),
        ("keys/../www/.hidden/deep/key", true),
        ("keys/link", true),
        ("chain", true),
        ("www/link", true),
        ("through", true),
        ("folder-link/deep/key", true),
        ("keys/key", false),
    ] {
        for root in ["www", "root-link", "keys/../www"] {
            let mut options = ServerOptions::of(at("other"));
            let www = ServerOptions::of(at(root)).sites.remove(0);
            options.sites.push(SiteOptions {
                names: vec![HostName::parse("localhost").unwrap()],
                listing: false,
                ..www
            });
            options.tls = TlsOptions::of(&files.cert, at(key));
            let wrong = check(&options);
            let is_refused = wrong
                .iter()
                .any(|one| matches!(one, Error::SecretServed { .. }));
            assert_eq!(is_refused, is_served, "{key} beneath {root}: {wrong:?}");
        }
    }
}

#[test]
fn an_address_changes_to_https_and_back_while_downloads_go_on() {
    let authority = Authority::new();
    let files = authority.issue("server", &["localhost"]);
    let server = Server::start();
    let body = content(15, 20_000_000);
    server.write("f", &body);
    server.write("small", "content");
    let address = server.address();
    let config = authority.client().config();
    let plain = server.options().clone();
    let mut secured = plain.clone();
    secured.tls.certificates = vec![files];

    let mut download = server.connect();
    download.ask("/f");
    assert_eq!(download.head().length().unwrap(), body.len());
    server.server().reload(&secured).unwrap();
    assert_eq!(server.address(), address);
    assert_eq!(server.get("/small").status, 308);
    let mut second = connect(&config, address, "localhost");
    assert_eq!(second.get("/small").body, b"content");
    second.ask("/f");
    assert_eq!(second.head().length().unwrap(), body.len());

    server.server().reload(&plain).unwrap();
    assert_eq!(server.get("/small").body, b"content");
    shake(&config, address).unwrap_err();
    let got = download.read_exact(body.len()).unwrap();
    assert_same(&got, &body, "the download by HTTP");
    let got = second.read_exact(body.len()).unwrap();
    assert_same(&got, &body, "the download by HTTPS");
}
