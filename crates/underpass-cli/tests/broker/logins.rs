//! Logins and rights: the files and options of operators, and clients with a certificate.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use kafka_protocol::messages::MetadataRequest;
use rustix::process::Signal;
use underpass_testkit::{ServerProcess, disk_folder, free_address, run_with_input};

use crate::server::{BINARY, Broker, tcp_addresses};
use crate::support::batch::batch;
use crate::support::client::Client;
use crate::tls::{Identity, connect};

const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
const SASL_AUTHENTICATION_FAILED: i16 = 58;

/// Returns the lines of a user for a file.
#[track_caller]
pub(crate) fn hashed(user: &str, password: &str) -> String {
    let mut command = Command::new(BINARY);
    let report = run_with_input(
        command.args(["broker", "hash", user]),
        format!("{password}\n").as_bytes(),
    );
    report.assert_success();
    report.output
}

/// Logs in; returns the error code.
fn log_in(broker: &Broker, user: &str, password: &str) -> i16 {
    broker.connect().log_in(user, password)
}

#[test]
fn users_of_a_file_log_in_and_a_reload_changes_them() {
    let folder = disk_folder();
    let file = folder.path().join("users");
    fs::write(&file, hashed("anna", "secret")).unwrap();
    let broker = Broker::start(&["--users", &file.display().to_string()]);
    let mut connected = broker.connect();
    assert_eq!(connected.log_in("anna", "secret"), 0);
    connected.behave();
    assert_eq!(log_in(&broker, "ben", "0ther"), SASL_AUTHENTICATION_FAILED);
    // Without TLS there is no PLAIN.
    let (_, mechanisms) = broker.connect().handshake("PLAIN");
    assert_eq!(mechanisms, ["SCRAM-SHA-256", "SCRAM-SHA-512"]);
    fs::write(&file, hashed("anna", "changed") + &hashed("ben", "0ther")).unwrap();
    broker.signal(Signal::HUP);
    broker.hear("reloaded");
    assert_eq!(log_in(&broker, "ben", "0ther"), 0);
    assert_eq!(log_in(&broker, "anna", "changed"), 0);
    assert_eq!(
        log_in(&broker, "anna", "secret"),
        SASL_AUTHENTICATION_FAILED
    );
    connected.behave();
    // A mistake changes nothing.
    fs::write(&file, hashed("ben", "again") + "anna:secret\n").unwrap();
    broker.signal(Signal::HUP);
    let line = broker.hear("reload failed");
    assert!(line.contains("users: line 3: "), "{line}");
    assert_eq!(log_in(&broker, "ben", "0ther"), 0);
    let (report, _) = broker.stop();
    report.assert_success();
    for secret in ["secret", "0ther", "changed", "again"] {
        assert!(!report.errors.contains(&format!("{secret} ")), "{report:?}");
    }
}

#[test]
fn passwords_and_files_that_cannot_be_used_are_refused() {
    let folder = disk_folder();
    let file = folder.path().join("underpass.toml");
    fs::write(folder.path().join("users"), "anna:secret\n").unwrap();
    for (text, words) in [
        (
            "[[listener]]\nat = '127.0.0.1:0'\nsasl = ['PLAIN']\n",
            ["in clear", "passwords-in-clear"],
        ),
        (
            "[[listener]]\nat = '127.0.0.1:0'\nsasl = ['GSSAPI']\n",
            ["GSSAPI", "SCRAM-SHA-256"],
        ),
        ("[sasl]\nusers = 'users'\n", ["users: line 1", "expected"]),
        ("[sasl]\nusers = 'missing'\n", ["missing", "No such file"]),
        ("[sasl]\nuser = 'x'\n", ["unknown field `user`", "users"]),
    ] {
        fs::write(&file, text).unwrap();
        let mut command = Command::new(BINARY);
        let command = command.args(["broker", "--config"]).arg(&file);
        run_with_input(command, b"").assert_failed(1, &words);
    }
    for (user, password, words) in [
        ("a:b", "x", "without a colon"),
        ("anna", "", "the password is empty"),
    ] {
        let mut command = Command::new(BINARY);
        let command = command.args(["broker", "hash", user]);
        run_with_input(command, password.as_bytes()).assert_failed(1, &[words]);
    }
}

/// Starts a broker with `underpass.toml` and the files of an identity in a folder.
fn configured(folder: &Path, identity: &Identity, text: &str) -> ServerProcess {
    identity.write(folder);
    fs::write(folder.join("underpass.toml"), text).unwrap();
    let mut command = Command::new(BINARY);
    command
        .args(["broker", "--config"])
        .arg(folder.join("underpass.toml"));
    ServerProcess::spawn(command.stdin(Stdio::null()))
}

/// The configuration with logins in the documentation, with free ports.
#[test]
fn the_documented_configuration_lets_super_users_do_everything() {
    let page = include_str!("../../../../docs/broker.md");
    let (_, section) = page.split_once("### What each user may do\n").unwrap();
    let lines = section
        .lines()
        .take_while(|line| !line.starts_with("Rules"));
    let lines = lines.filter_map(|line| line.strip_prefix("    "));
    let mut text = Vec::from_iter(lines).join("\n").replace("/srv/log", "data");
    let [plain, secured] = [(); 2].map(|()| free_address());
    for (documented, ours) in [
        ("127.0.0.1:9092", plain.to_string()),
        (":9093", secured.to_string()),
        ("fullchain.pem", "cert.pem".to_owned()),
        ("privkey.pem", "key.pem".to_owned()),
    ] {
        text = text.replace(documented, &ours);
    }
    let folder = disk_folder();
    let users = hashed("anna", "secret") + &hashed("ben", "0ther");
    fs::write(folder.path().join("users"), users).unwrap();
    let identity = Identity::new(&["kafka.example.org"]);
    let broker = configured(folder.path(), &identity, &text);
    let mut anna = Client::connect(plain);
    assert_eq!(anna.log_in("anna", "secret"), 0);
    anna.behave();
    let secured = || connect(secured, "kafka.example.org", &identity.certificate, None);
    let mut anna = secured();
    assert_eq!(anna.log_in_plainly("anna", "secret"), 0);
    anna.behave();
    let mut ben = secured();
    assert_eq!(ben.log_in_plainly("ben", "0ther"), 0);
    let (code, _) = ben.produce("good", 0, batch(1, 10));
    assert_eq!(code, TOPIC_AUTHORIZATION_FAILED);
    assert!(
        ben.ask(9, &MetadataRequest::default().with_topics(None))
            .topics
            .is_empty()
    );
    broker.stop().assert_success();
}

#[test]
fn the_subject_of_a_certificate_is_the_principal() {
    let folder = disk_folder();
    let [server, client] = ["kafka.example.org", "client"].map(|name| Identity::new(&[name]));
    client.write(folder.path());
    fs::rename(folder.path().join("cert.pem"), folder.path().join("ca.pem")).unwrap();
    for (principal, code) in [("User:CN=rcgen self signed cert", 0), ("User:CN=other", 29)] {
        let text = format!(
            "data = 'data-{code}'\n[[listener]]\nat = '127.0.0.1:0'\n\
             [tls]\nclient-ca = 'ca.pem'\n\
             [[tls.certificate]]\ncert = 'cert.pem'\nkey = 'key.pem'\n\
             [authorizer]\n\"super.users\" = ['{principal}']\n"
        );
        let broker = configured(folder.path(), &server, &text);
        let address = tcp_addresses(broker.greeting())[0];
        let name = "kafka.example.org";
        let mut client = connect(address, name, &server.certificate, Some(&client));
        let asked = MetadataRequest::default().with_topics(Some(vec![
            kafka_protocol::messages::metadata_request::MetadataRequestTopic::default()
                .with_name(Some(crate::support::client::topic_name("t"))),
        ]));
        let asked = asked.with_allow_auto_topic_creation(true);
        assert_eq!(
            client.ask(9, &asked).topics[0].error_code,
            code,
            "{principal}"
        );
        broker.stop().assert_success();
    }
}

/// Runs kcat as a user.
fn kcat(at: &str, mechanism: &str, (user, password): (&str, &str), more: &[&str]) -> Command {
    let mut command = Command::new("kcat");
    command.args(["-b", at, "-X", "security.protocol=sasl_plaintext"]);
    for property in [
        format!("sasl.mechanisms={mechanism}"),
        format!("sasl.username={user}"),
        format!("sasl.password={password}"),
    ] {
        command.args(["-X", &property]);
    }
    command.args(more);
    command
}

#[test]
#[ignore = "needs kcat; run by cargo xtask test"]
fn librdkafka_logs_in_by_every_mechanism() {
    let folder = disk_folder();
    let users = hashed("anna", "secret") + &hashed("ben", "0ther");
    fs::write(folder.path().join("users"), users).unwrap();
    let text = "data = 'data'\n[[listener]]\nat = '127.0.0.1:0'\npasswords-in-clear = true\n\
                sasl = ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512']\n[sasl]\nusers = 'users'\n\
                [authorizer]\n\"super.users\" = ['User:anna']\n";
    let broker = configured(folder.path(), &Identity::new(&["unused"]), text);
    let at = tcp_addresses(broker.greeting())[0].to_string();
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let anna = ("anna", "secret");
        let write = &["-P", "-t", mechanism];
        run_with_input(&mut kcat(&at, mechanism, anna, write), b"record\n").assert_success();
        let read = &["-C", "-e", "-q", "-t", mechanism];
        let report = run_with_input(&mut kcat(&at, mechanism, anna, read), b"");
        assert_eq!(report.output, "record\n");
        let denied = run_with_input(&mut kcat(&at, mechanism, ("ben", "0ther"), write), b"r\n");
        denied.assert_failed(1, &["Topic authorization failed"]);
        for wrong in [("anna", "wrong"), ("carl", "secret")] {
            let refused = run_with_input(&mut kcat(&at, mechanism, wrong, &["-L"]), b"");
            refused.assert_failed(1, &["invalid username or password"]);
        }
    }
    let report = broker.stop();
    report.assert_success();
    assert!(
        !report.errors.contains("secret") && !report.errors.contains("0ther"),
        "{report:?}"
    );
}
