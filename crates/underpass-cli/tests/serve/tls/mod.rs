//! `underpass serve` with TLS: self-signed certificates, and the state kept by an upgrade.

mod traced;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustix::process::Signal;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use underpass_testkit::{
    ExitReport, HttpClient, ServerProcess, WAIT_MAX, assert_contains, content, run, sha256,
};

use crate::support::{Server, serve, text, underpass};

type Client = HttpClient<StreamOwned<ClientConnection, TcpStream>>;

/// Returns the tool, with a folder for its state.
fn with_state(state: &Path) -> Command {
    let mut tool = underpass();
    tool.env("STATE_DIRECTORY", state);
    tool
}

fn start(state: &Path) -> Server {
    let server = Server::by(with_state(state), &["--tls-self-signed"]);
    server.write("f", "content");
    server
}

fn certificate(state: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(state.join("self-signed.crt")).unwrap()
}

/// Returns a client that trusts the certificate in this folder.
fn client(state: &Path) -> Arc<ClientConfig> {
    trusting(certificate(state))
}

/// Returns a client that trusts only this certificate.
fn trusting(certificate: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(64);
    Arc::new(config)
}

fn connect(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> Client {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    HttpClient::over(StreamOwned::new(
        ClientConnection::new(Arc::clone(config), name).unwrap(),
        socket,
    ))
}

/// Gets `/f` on a new connection. Returns the kind of handshake.
fn get(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> HandshakeKind {
    let mut client = connect(config, address, name);
    assert_eq!(client.get("/f").body, b"content");
    client.socket.conn.handshake_kind().unwrap()
}

#[test]
fn a_certificate_is_made_announced_and_kept() {
    let state = tempfile::tempdir().unwrap();
    let mut pins = Vec::new();
    for _ in 0..2 {
        let server = start(state.path());
        let fingerprint = server.hear("certificate made by this server");
        let hash = Sha256::digest(certificate(state.path()));
        let pairs: Vec<_> = hash.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_contains(&fingerprint, &[&pairs.join(":")]);
        let curl = server.hear("--pinnedpubkey");
        let url = format!("https://{}/", server.address());
        assert_contains(&curl, &["curl --insecure --pinnedpubkey 'sha256//", &url]);
        pins.push(curl.split(' ').nth(3).map(str::to_owned));
        let config = client(state.path());
        for name in ["localhost", "127.0.0.1"] {
            get(&config, server.address(), name);
        }
        // Its memory holds the key.
        let limits = format!("/proc/{}/limits", server.pid().as_raw_nonzero());
        let limits = fs::read_to_string(limits).unwrap();
        let cores = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let soft = cores.and_then(|line| line.split_whitespace().nth(4));
        assert_eq!(soft, Some("0"), "{limits}");
        server.stop();
    }
    assert_eq!(pins[0], pins[1]);
}

#[test]
fn a_named_certificate_beside_and_a_key_in_a_served_folder_are_refused() {
    let output = serve(&["--tls-self-signed", "--cert", "a", "--key", "b"]);
    assert_contains(&output.errors, &["cannot be used with"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("underpass.toml");
    let both = "[tls]\nself-signed = true\n[[tls.certificate]]\ncert = 'a'\nkey = 'b'\n";
    fs::write(&file, both).unwrap();
    let check = |file: &Path| {
        run(with_state(folder.path())
            .args(["serve", "--check"])
            .arg(file))
    };
    let output = check(&file);
    assert_contains(&output.errors, &["leave out either tls.self-signed or"]);
    // The folder of the configuration is served.
    fs::write(&file, "[tls]\nself-signed = true\n[[site]]\nroot = '.'\n").unwrap();
    for _ in 0..2 {
        let output = check(&file);
        assert_contains(&output.errors, &["self-signed.key is in the served folder"]);
        let mut tool = with_state(folder.path());
        let output = run(tool.args(["serve", "--config"]).arg(&file));
        assert_contains(&output.errors, &["self-signed.key is in the served folder"]);
        assert!(!fs::exists(folder.path().join("self-signed.key")).unwrap());
    }
}

#[test]
fn sessions_are_resumed_after_reloads_and_upgrades() {
    let state: TempDir = tempfile::tempdir().unwrap();
    let mut server = start(state.path());
    let address = server.address();
    let config = client(state.path());
    assert_eq!(get(&config, address, "localhost"), HandshakeKind::Full);
    for number in 0..100 {
        match number {
            20 | 60 => server.upgrade(),
            40 | 80 => server.reload(),
            _ => {}
        }
        let kind = get(&config, address, "localhost");
        assert_eq!(kind, HandshakeKind::Resumed, "{number}");
    }
    let end = server.stop();
    assert!(!end.errors.contains("ERROR"), "{end:?}");
}

/// Writes a new certificate and its key to the files `crt` and `key`.
fn renew(folder: &Path) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    fs::write(folder.join("crt"), certificate.pem()).unwrap();
    fs::write(folder.join("key"), key.serialize_pem()).unwrap();
    certificate.der().clone()
}

/// Up to sixteen generations of workers may be alive.
#[test]
fn signals_renew_certificates_however_many_downloads_keep_earlier_workers() {
    const SIGNALS: usize = 20;
    const GENERATIONS_MAX: usize = 16;
    let folder = tempfile::tempdir().unwrap();
    let first = renew(folder.path());
    let [cert, key] = ["crt", "key"].map(|name| folder.path().join(name));
    let server = Server::with(&["--cert", text(&cert), "--key", text(&key)]);
    let body = content(5, 30_000_000);
    server.write("f", "content");
    server.write("body", &body);
    let download = |certificate| {
        let mut client = connect(&trusting(certificate), server.address(), "localhost");
        client.ask("/body");
        assert_eq!(client.head().length().unwrap(), body.len());
        client
    };
    let mut long = download(first);
    let mut others = Vec::new();
    for number in 1..=SIGNALS {
        let renewed = renew(folder.path());
        server.signal(Signal::HUP);
        let words = match number < GENERATIONS_MAX {
            true => "reloaded; ",
            false => "only the certificates were renewed: 15 earlier configurations",
        };
        assert_contains(&server.hear("reload"), &[words]);
        get(&trusting(renewed.clone()), server.address(), "localhost");
        // Keeps the workers alive that have just been started.
        others.push(download(renewed));
    }
    let got = long.read_exact(body.len()).unwrap();
    assert_eq!(sha256(&got), sha256(&body));
}

#[test]
fn a_mistake_in_the_configuration_does_not_keep_a_certificate_from_being_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path();
    let first = renew(state);
    fs::create_dir(state.join("site")).unwrap();
    fs::write(state.join("site/f"), "content").unwrap();
    let file = state.join("underpass.toml");
    let good = "listen = ['127.0.0.1:0']\n[[tls.certificate]]\ncert = 'crt'\nkey = 'key'\n\
                [[site]]\nroot = 'site'\n";
    fs::write(&file, good).unwrap();
    let server = ServerProcess::spawn(underpass().args(["serve", "--config"]).arg(&file));
    get(&trusting(first), server.address(), "localhost");
    for wrong in [
        format!("{good}nonsense = 1\n"),
        good.replace("'site'", "'missing'"),
    ] {
        fs::write(&file, wrong).unwrap();
        let renewed = renew(state);
        server.signal(Signal::HUP);
        let line = server.hear("only the certificates were renewed");
        assert_contains(&line, &["the previous configuration stays in effect"]);
        get(&trusting(renewed), server.address(), "localhost");
    }
}

#[test]
#[ignore = "needs curl; run by cargo xtask test"]
fn the_announced_command_line_gets_the_page_and_another_pin_does_not() {
    let state = tempfile::tempdir().unwrap();
    let server = start(state.path());
    let line = server.hear("--pinnedpubkey");
    let line = line.replacen("curl", "curl --silent --show-error", 1);
    let shell = |line: &str| shell(line, state.path());
    assert_contains(&shell(&line).output, &["<bdi>f</bdi>"]);
    let (before, after) = line.split_once("sha256//").unwrap();
    let other = if after.starts_with('A') { "B" } else { "A" };
    let wrong = shell(&format!("{before}sha256//{other}{}", &after[1..]));
    assert_contains(&wrong.errors, &["public key"]);
}

/// Returns the indented lines of a section of the page on HTTPS.
fn documented(section: &str) -> String {
    let page = include_str!("../../../../../docs/tls.md");
    let (_, rest) = page.split_once(&format!("# {section}\n")).unwrap();
    let end = rest.find("\n#").unwrap();
    let lines = rest[..end].lines();
    let lines = lines.filter_map(|line| line.strip_prefix("    "));
    lines.map(|line| format!("{line}\n")).collect()
}

fn shell(script: &str, folder: &Path) -> ExitReport {
    run(Command::new("sh")
        .args(["-e", "-c", script])
        .current_dir(folder))
}

#[test]
#[ignore = "needs curl and openssl; run by cargo xtask test"]
fn documented_certificates_of_clients_are_accepted_by_a_server_with_the_documented_files() {
    let folder = tempfile::tempdir().unwrap();
    let commands = documented("Certificates of clients");
    let (openssl, curl) = commands.split_once("curl ").unwrap();
    shell(openssl, folder.path()).assert_success();
    // The renewed certificate of certbot, copied by the hook.
    let renewed = folder.path().join("live/example.org");
    fs::create_dir_all(&renewed).unwrap();
    let pair = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a \
                -addext subjectAltName=DNS:example.org -addext basicConstraints=CA:FALSE \
                -keyout privkey.pem -out fullchain.pem";
    shell(pair, &renewed).assert_success();
    let tls = folder.path().join("tls");
    let page = documented("certbot");
    let (_, hook) = page.split_once("#!/bin/sh\n").unwrap();
    let hook = hook.replace("/etc/underpass/tls", text(&tls));
    let hook = hook.replace("www-data", "$(id -g)");
    shell(
        &format!("RENEWED_LINEAGE={}\n{hook}", text(&renewed)),
        folder.path(),
    )
    .assert_success();
    let pair = ["fullchain.pem", "privkey.pem"].map(|name| format!("tls/example.org/{name}"));
    let [cert, key, ca] =
        [&*pair[0], &pair[1], "ca.pem"].map(|name| folder.path().join(name).display().to_string());
    let ca = format!("tls.client-ca={ca}");
    let server = Server::with(&["--cert", &cert, "--key", &key, "--set", &ca]);
    server.write("index.html", "content");
    let port = server.address().port();
    let curl = curl
        .trim()
        .replace("example.org", &format!("example.org:{port}"));
    let to = format!("curl -sS --cacert {cert} --connect-to ::127.0.0.1:{port} {curl}");
    assert_eq!(shell(&to, folder.path()).output, "content");
    let without = to.replace("--cert alice.pem --key alice.key", "");
    assert_contains(
        &shell(&without, folder.path()).errors,
        &["certificate required"],
    );
}
