//! Certificates that change frequently, and tickets that are not valid elsewhere.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use rustls::client::Resumption;
use rustls::{ClientConfig, version};
use underpass_net::CertificateFiles;
use underpass_testkit::{Cases, SeededRandom, assert_same, content};

use super::{CONTENT, REQUEST};
use crate::tls::{Authority, ClientBuilder, connect, serve, shake};

/// Number of certificate replacements, unless `UNDERPASS_TLS_SWAP_CASES` sets another.
const SWAPS: u64 = 1000;

const BODY_BYTES: usize = 30_000_000;

#[test]
fn certificates_are_replaced_during_a_long_download_and_no_request_fails() {
    let swaps = Cases::from_env("UNDERPASS_TLS_SWAP", SWAPS);
    let authority = Authority::new();
    let server = serve(&authority, |_| {});
    let body = content(4, BODY_BYTES);
    server.write("body", &body);
    server.write("f", CONTENT);
    let algorithms = [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_RSA_SHA256,
        &rcgen::PKCS_ED25519,
    ];
    let pairs: Vec<_> = algorithms
        .iter()
        .enumerate()
        .map(|(number, algorithm)| {
            authority.issue_with(&format!("pair-{number}"), &["localhost"], algorithm)
        })
        .collect();
    let mut config = Arc::unwrap_or_clone(authority.client().config());
    // A resumed session would not use the certificate.
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    let mut download = connect(&config, server.address(), "localhost");
    download.ask("/body");
    assert_eq!(download.head().length().unwrap(), body.len());
    let mut got = Vec::with_capacity(body.len());
    let part = body.len() / swaps.numbers.clone().count();
    let used = &server.options().tls.certificates[0];
    let replace = |from: &CertificateFiles, key: &CertificateFiles| {
        fs::copy(&from.cert, &used.cert).unwrap();
        fs::copy(&key.key, &used.key).unwrap();
        server.server().reload_certificates()
    };
    // Returns the number of swaps during a request.
    let swapped = AtomicU64::new(0);
    let request = || {
        let before = swapped.load(Ordering::SeqCst);
        let mut client = connect(&config, server.address(), "localhost");
        assert_eq!(client.get("/f").body, CONTENT);
        swapped.load(Ordering::SeqCst) - before
    };
    let mut swap = |number| {
        let mut random = SeededRandom::of_case(swaps.seed, number);
        let pair = &pairs[random.below(pairs.len())];
        let other = &pairs[random.below(pairs.len())];
        let is_broken = pair != other && random.chance(50);
        let replaced = replace(pair, if is_broken { other } else { pair });
        assert_eq!(replaced.is_err(), is_broken);
        swapped.fetch_add(1, Ordering::SeqCst);
        got.extend(download.read_exact(part).unwrap());
        u32::from(is_broken)
    };
    let (broken, overlapped) = thread::scope(|scope| {
        let (begin, begun) = sync_channel(1);
        let requests = scope.spawn(|| {
            let all = begun.into_iter().map(|()| request());
            all.filter(|swaps| *swaps > 0).count()
        });
        let mut broken = 0;
        for number in swaps.numbers.clone() {
            // Not one request per swap: the machine has more to test.
            if number % 3 == 0 {
                let _busy = begin.try_send(());
            }
            broken += swap(number);
        }
        drop(begin);
        (broken, requests.join().unwrap())
    });
    assert!(broken > 0 && overlapped > 0, "{broken}, {overlapped}");
    got.extend(download.read_exact(body.len() - got.len()).unwrap());
    assert_same(&got, &body, "the download");
    assert_eq!(download.get("/f").body, CONTENT);
    drop(download);
    server.stop();
}

/// Returns a configuration that stores tickets.
fn keeping(builder: &ClientBuilder) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(builder.config());
    config.resumption = Resumption::in_memory_sessions(64);
    Arc::new(config)
}

#[test]
fn neither_a_ticket_nor_a_host_name_replaces_the_certificate_of_a_client() {
    for version in [&version::TLS13, &version::TLS12] {
        let authority = Authority::new();
        let server = serve(&authority, |_| {});
        server.write("f", CONTENT);
        let stranger = ClientBuilder {
            versions: vec![version],
            ..authority.client()
        };
        let known = ClientBuilder {
            identity: Some(authority.issue("known", &["me"])),
            ..stranger.clone()
        };
        let (stranger, known) = (keeping(&stranger), keeping(&known));
        // Each has a ticket from before certificates were required.
        for config in [&stranger, &known] {
            shake(config, server.address()).unwrap();
        }
        let mut options = server.options().clone();
        options.tls.client_ca = Some(authority.path("ca.pem"));
        server.server().reload(&options).unwrap();
        let refused = shake(&stranger, server.address()).unwrap_err();
        assert!(
            refused.to_string().contains("CertificateRequired")
                || refused.to_string().contains("HandshakeFailure"),
            "{refused}"
        );
        for name in ["localhost", "127.0.0.1"] {
            let mut client = connect(&stranger, server.address(), name);
            client.send(REQUEST);
            client.try_response("GET").unwrap_err();
            let mut client = connect(&known, server.address(), name);
            client.send("GET /f HTTP/1.1\r\nHost: another.example\r\n\r\n");
            assert_eq!(client.response().body, CONTENT);
        }
        server.stop();
    }
}
