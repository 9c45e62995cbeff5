//! Operation: failing starts, a second broker, shutdown under load, and `check`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use kafka_protocol::messages::CreateTopicsRequest;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use rustix::process::Signal;
use underpass_testkit::{
    ChildProcess, ExitReport, ServerProcess, TracedCall, WAIT_MAX, assert_contains,
    assert_private_mounts, disk_folder, free_address, mount, run, run_with_input, strace,
    traced_calls, wait_until,
};

use crate::server::{BINARY, Broker, start_in, tcp_addresses};
use crate::support::batch::batch;
use crate::support::client::{Client, encoded, framed, produce_request, topic_name};

fn start_fails(data: &Path, options: &[&str]) -> ExitReport {
    let mut command = Command::new(BINARY);
    run(command
        .arg("broker")
        .arg(data)
        .args(["-l", "127.0.0.1:0"])
        .args(options))
}

fn check(at: &str) -> ExitReport {
    run(Command::new(BINARY).args(["broker", "check", "--timeout", "60", at]))
}

#[test]
fn a_folder_has_one_broker() {
    let broker = Broker::start(&[]);
    let (data, address) = (broker.folder().join("data"), broker.address());
    start_fails(&data, &[]).assert_failed(1, &["data", "in use by another process"]);
    broker.connect().behave();
    let other = disk_folder();
    let same_port = Command::new(BINARY)
        .args(["broker", "-l", &address.to_string()])
        .arg(other.path().join("data"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8(same_port.stderr).unwrap();
    assert!(errors.contains("is in use by another process"), "{errors}");
    broker.stop().0.assert_clean();
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_the_reason() {
    let foreign = "underpass-metadata.json";
    for (file, content, words) in [
        (
            "meta.properties",
            "version=0\nbroker.id=1\n",
            ["meta.properties", "ZooKeeper"],
        ),
        (
            "meta.properties",
            "version=2\nnode.id=1\n",
            ["version=\"2\"", "reads version=1"],
        ),
        (
            "meta.properties",
            "version=1\nnode.id=7\n",
            ["node.id=7", "set node-id = 7"],
        ),
        (foreign, "{", [foreign, "restore it"]),
        (
            foreign,
            "{\"version\":9,\"next_producer_id\":0,\"topics\":{}}",
            [foreign, "version 9"],
        ),
    ] {
        let folder = disk_folder();
        fs::write(folder.path().join(file), content).unwrap();
        start_fails(folder.path(), &[]).assert_failed(1, &words);
        assert_eq!(
            fs::read_to_string(folder.path().join(file)).unwrap(),
            content
        );
    }
    let folder = disk_folder();
    let configuration = folder.path().join("broker.toml");
    fs::write(&configuration, "node-id = -1").unwrap();
    let words = ["node-id=-1", "expected a number from 0"];
    start_fails(
        folder.path(),
        &["--config", configuration.to_str().unwrap()],
    )
    .assert_failed(1, &words);
    let missing = start_fails(folder.path(), &["--config", "/nowhere"]);
    missing.assert_failed(1, &["cannot read the configuration /nowhere"]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    start_fails(&file, &[]).assert_failed(1, &["cannot use the data folder", "Not a directory"]);
}

/// A client sees only that the connection is closed, and retries for ever.
#[test]
fn who_speaks_something_else_is_in_the_log_with_what_to_try() {
    let sasl = b"\0\0\0\x13\0\x11\0\x01\0\0\0\x07\0\x02me\0\x05PLAIN";
    let old = [0, 0, 0, 12, 0, 1, 0, 3, 0, 0, 0, 7, 0, 2, b'm', b'e'];
    for (sent, words) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], "this is HTTP"),
        (
            &[22, 3, 1, 2, 0, 1, 0, 1, 252],
            "set security.protocol=PLAINTEXT",
        ),
        (&[0xff; 8], "-1 is not the length of a request"),
        (sasl, "this listener has no SASL; set security.protocol"),
        (&old, "Fetch version 3 is not supported, versions 4 to"),
    ] {
        let broker = Broker::start(&[]);
        let mut client = TcpStream::connect(broker.address()).unwrap();
        let address = client.local_addr().unwrap().to_string();
        client.write_all(sent).unwrap();
        let line = broker.hear(words);
        assert!(line.contains("WARN") && line.contains(&address), "{line}");
    }
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_folder_without_permission_or_room_is_named_with_what_to_try() {
    assert_private_mounts();
    let folder = disk_folder();
    mount(&["-t", "tmpfs", "none"], folder.path());
    let (broker, mut client) = start_in(folder.path(), "acks");
    client.behave();
    broker.stop().assert_success();
    mount(&["-o", "remount,ro"], folder.path());
    let report = start_fails(&folder.path().join("data"), &[]);
    report.assert_failed(
        1,
        &["data/.lock", "Read-only file system", "has to be writable"],
    );
    mount(&["-o", "remount,rw"], folder.path());
    let mut other = Command::new("setpriv");
    other.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        BINARY,
        "broker",
    ]);
    let report = run(other
        .args(["-l", "127.0.0.1:0"])
        .arg(folder.path().join("data")));
    report.assert_failed(
        1,
        &["data/.lock", "Permission denied", "has to be writable"],
    );
}

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn it_serves_without_proc() {
    assert_private_mounts();
    // `/proc` is an empty folder there.
    let folder = disk_folder();
    let script = "mount -t tmpfs none /proc && exec \"$0\" \"$@\"";
    let mut shell = Command::new("unshare");
    shell.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        BINARY,
    ]);
    shell
        .args(["broker", "-l", "127.0.0.1:0"])
        .arg(folder.path().join("data"));
    let broker = ServerProcess::spawn(shell.stdin(Stdio::null()));
    let address = tcp_addresses(broker.greeting())[0];
    Client::connect(address).behave();
    broker.stop().assert_success();
}

#[test]
fn it_goes_on_when_nobody_listens_to_it() {
    let folder = disk_folder();
    let port = free_address();
    for redirection in ["</dev/null >&- 2>&-", "</dev/null >/dev/full 2>/dev/full"] {
        let mut shell = Command::new("sh");
        shell
            .args([
                "-c",
                &format!("exec \"$0\" \"$@\" {redirection}"),
                BINARY,
                "broker",
            ])
            .args(["-l", &port.to_string()])
            .arg(folder.path().join("data"));
        let process = ChildProcess::spawn(shell.stdin(Stdio::null()));
        wait_until("broker", || TcpStream::connect(port).is_ok());
        Client::connect(port).behave();
        process.signal(Signal::TERM);
        process.end().assert_success();
    }
}

#[test]
fn an_end_under_load_loses_nothing_and_is_clean() {
    let mut folder = disk_folder();
    let mut count = 0;
    for _ in 0..5 {
        let broker = Broker::start_in(folder, &[]);
        let mut client = broker.connect();
        client.create_topic("load");
        let end = client.fetch("load", 0, 0).responses[0].partitions[0].high_watermark;
        assert_eq!(end, count);
        let mut producer = broker.connect();
        let producer = thread::spawn(move || {
            let request = produce_request(-1, &[("load", 0, Some(batch(1, 100)))]);
            let request = encoded(9, &request);
            let frame = framed(&request);
            let mut answered = 0;
            while producer.try_write(&frame).is_ok() && producer.receive().is_some() {
                answered += 1;
            }
            answered
        });
        wait_until("load", || {
            let read = client.fetch("load", 0, 0);
            read.responses[0].partitions[0].high_watermark > count + 20
        });
        let report;
        (report, folder) = broker.stop();
        report.assert_clean();
        assert_contains(&report.output, &["stopped: all is synced"]);
        count += producer.join().unwrap();
        assert!(folder.path().join("data/.kafka_cleanshutdown").exists());
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_slow_end_says_how_much_is_left_and_may_be_killed() {
    let options = ["--partitions", "20"];
    let broker = Broker::start(&options);
    broker.connect().create_topic("t");
    let (report, folder) = broker.stop();
    report.assert_clean();
    // One sync of the shutdown takes longer than the test.
    let delay = 10 * WAIT_MAX.as_micros();
    let delay = format!("inject=fdatasync:delay_enter={delay}");
    let mut tool = strace(&folder.path().join("calls"), &["trace=fdatasync", &delay]);
    let index = folder
        .path()
        .join("data/t-0/00000000000000000000.index.tmp");
    tool.arg("-P").arg(index).arg(BINARY);
    let broker = Broker::by(tool, folder, &options);
    let mut client = broker.connect();
    for number in 0..20 {
        assert_eq!(client.produce("t", number, batch(1, 100)).0, 0);
    }
    broker.signal(Signal::TERM);
    broker.hear("stopping: 1 of 20 partitions left");
    let broker = Broker::start_in(broker.kill_traced(), &options);
    let mut client = broker.connect();
    for number in 0..20 {
        let fetched = client.fetch("t", number, 0);
        let partition = &fetched.responses[0].partitions[0];
        assert_eq!((partition.error_code, partition.high_watermark), (0, 1));
    }
    broker.stop().0.assert_clean();
}

#[test]
#[ignore = "needs kcat; run by cargo xtask test"]
fn a_transaction_fails_immediately_with_the_reason() {
    let broker = Broker::start(&[]);
    let mut kcat = Command::new("kcat");
    // It starts a transaction without a time limit.
    kcat.args(["-P", "-t", "t", "-X", "transactional.id=id", "-b"])
        .arg(broker.address().to_string());
    let report = run_with_input(&mut kcat, b"record\n");
    let reason = "transactions are not supported by this broker";
    report.assert_failed(1, &[reason]);
    let (report, _folder) = broker.stop();
    assert_eq!(report.errors.matches(reason).count(), 1, "{report:?}");
}

#[test]
fn a_partition_with_little_in_it_takes_little_room() {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    client.create_topic("t");
    assert_eq!(client.produce("t", 0, batch(1, 100)).0, 0);
    let log = broker.folder().join("data/t-0/00000000000000000000.log");
    let blocks_bytes = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    assert!(blocks_bytes(&log) <= 256 << 10, "{}", blocks_bytes(&log));
    broker.stop().0.assert_clean();
}

fn sync_ms(greeting: &str, words: &str) -> Option<f64> {
    let found = greeting.lines().find_map(|line| line.strip_prefix(words));
    let measured = found?.strip_prefix("; one sync of this disk takes ")?;
    measured.strip_suffix(" ms")?.parse().ok()
}

const ACKNOWLEDGED: &str = "records acknowledged with acks=all survive a power failure";

#[test]
fn the_greeting_says_what_a_power_failure_loses_and_how_long_a_sync_takes() {
    let [last_second, unwritten] = [
        "a power failure loses at most the last second of records",
        "a power failure loses what the kernel has not written yet",
    ];
    for (options, words) in [
        (&[][..], ACKNOWLEDGED),
        (&["--fsync", "acks"], ACKNOWLEDGED),
        (&["--fsync", "interval"], last_second),
        (&["--fsync", "never"], unwritten),
    ] {
        let broker = Broker::start(options);
        let measured = sync_ms(broker.greeting(), words);
        assert!(measured.is_some(), "{options:?}: {}", broker.greeting());
        broker.stop().0.assert_clean();
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn producers_that_wait_at_once_share_syncs() {
    const PRODUCERS: usize = 8;
    const BATCHES: usize = 10;
    let folder = disk_folder();
    let calls = folder.path().join("calls");
    // While a sync takes this long, all other requests queue for the next one.
    let slow = "inject=fdatasync:delay_enter=100000";
    let tool = Broker::tracer(&calls, &["trace=fdatasync", slow]);
    let broker = Broker::by(tool, folder, &[]);
    let measured = sync_ms(broker.greeting(), ACKNOWLEDGED);
    assert!(measured.is_some_and(|ms| ms >= 100.0), "{measured:?}");
    broker.connect().create_topic("shared");
    thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| {
                let mut client = broker.connect();
                for _ in 0..BATCHES {
                    assert_eq!(client.produce("shared", 0, batch(1, 100)).0, 0);
                }
            });
        }
    });
    let read = broker.connect().fetch("shared", 0, 0);
    let end = read.responses[0].partitions[0].high_watermark;
    assert_eq!(usize::try_from(end).unwrap(), PRODUCERS * BATCHES);
    let (report, _folder) = broker.stop();
    report.assert_clean();
    let calls = traced_calls(&calls);
    let is_of_log = |call: &&TracedCall| call.argument(0).contains("shared-0/0");
    let syncs = calls.iter().filter(is_of_log).count();
    // A producer sends the next batch when the one before is synced.
    assert!(syncs >= BATCHES, "{syncs}");
    assert!(syncs * 2 < PRODUCERS * BATCHES, "{syncs}");
}

#[test]
fn check_says_which_step_fails() {
    let broker = Broker::start(&[]);
    let report = check(&broker.address().to_string());
    report.assert_success();
    assert_eq!(report.output.matches("ok: ").count(), 4, "{report:?}");
    broker.stop().0.assert_clean();

    let wrong = Broker::start(&["--advertised", "nowhere.invalid:9"]);
    let report = check(&wrong.address().to_string());
    report.assert_failed(
        1,
        &[
            "nowhere.invalid:9",
            "broker 1 advertises",
            "try: clients go",
        ],
    );
    wrong.stop().0.assert_clean();

    check(&free_address().to_string()).assert_failed(1, &["Connection refused", "try: check that"]);
    check("no-such-name.invalid").assert_failed(1, &["looking up", "try: check the name"]);

    let http = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = http.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut socket, _) = http.accept().unwrap();
        BufReader::new(&socket).fill_buf().unwrap();
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
    });
    check(&at).assert_failed(
        1,
        &[
            "ApiVersions",
            "not begin as one of Kafka",
            "another protocol",
        ],
    );
    server.join().unwrap();
}

#[test]
fn check_takes_a_tls_listener_for_one() {
    let files = disk_folder();
    let options = crate::tls::Identity::new(&["localhost"]).write(files.path());
    let broker = Broker::start(&options.each_ref().map(String::as_str));
    let report = check(&broker.address().to_string());
    report.assert_failed(1, &["ApiVersions", "may speak TLS"]);
    broker.hear("no TLS, which this listener expects; set security.protocol=SSL");
    broker.stop().0.assert_success();
}

/// Creates a topic and returns the error code.
fn create(client: &mut Client, name: &str, replicas: i16, in_sync: Option<&str>) -> i16 {
    let in_sync = in_sync.map(|count| {
        CreatableTopicConfig::default()
            .with_name("min.insync.replicas".into())
            .with_value(Some(count.to_owned().into()))
    });
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(1)
        .with_replication_factor(replicas)
        .with_configs(in_sync.into_iter().collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    let answer = &client.ask(5, &request).topics[0];
    let expected = if answer.error_code == 0 { 1 } else { -1 };
    assert_eq!(answer.replication_factor, expected);
    answer.error_code
}

#[test]
fn replicas_that_one_broker_does_not_have_are_taken_as_one_or_refused() {
    const TOPIC_ALREADY_EXISTS: i16 = 36;
    const INVALID_REPLICATION_FACTOR: i16 = 38;
    const INVALID_CONFIG: i16 = 40;
    for policy in ["clamp", "reject"] {
        let folder = disk_folder();
        let file = folder.path().join("underpass.toml");
        fs::write(&file, format!("replication = '{policy}'\n")).unwrap();
        let broker = Broker::start_in(folder, &["--config", file.to_str().unwrap()]);
        let mut client = broker.connect();
        let refused = |code: i16| if policy == "reject" { code } else { 0 };
        let mut create = |name: &str, replicas: i16, in_sync: Option<&str>| {
            create(&mut client, name, replicas, in_sync)
        };
        let code = create("both", 3, Some("2"));
        assert_eq!(code, refused(INVALID_REPLICATION_FACTOR));
        let code = create("factor", 3, None);
        assert_eq!(code, refused(INVALID_REPLICATION_FACTOR));
        let code = create("minimum", -1, Some("2"));
        assert_eq!(code, refused(INVALID_CONFIG));
        assert_eq!(create("single", 1, Some("1")), 0);
        assert_eq!(create("single", 1, Some("1")), TOPIC_ALREADY_EXISTS);
        for wrong in ["0", "-1", "two", ""] {
            assert_eq!(create("wrong", 1, Some(wrong)), INVALID_CONFIG, "{wrong:?}");
        }
        if policy == "reject" {
            broker.stop().0.assert_clean();
            continue;
        }
        // Each causes one warning, and works with one replica.
        assert_eq!(create("both", 3, Some("2")), TOPIC_ALREADY_EXISTS);
        assert_eq!(client.produce("both", 0, batch(1, 100)).0, 0);
        let (report, folder) = broker.stop();
        let lines = Vec::from_iter(report.errors.lines());
        assert_eq!(lines.len(), 3, "{lines:?}");
        for (line, words) in lines.iter().zip([
            [
                "\"both\"",
                "replication factor 3 and min.insync.replicas 2 taken as 1",
            ],
            ["\"factor\"", "replica: replication factor 3 taken as 1"],
            ["\"minimum\"", "replica: min.insync.replicas 2 taken as 1"],
        ]) {
            assert_contains(line, &words);
        }
        // The stored configuration can be read.
        Broker::start_in(folder, &[]).stop().0.assert_clean();
    }
}

/// The configuration in the documentation, with free ports.
#[test]
fn the_documented_configuration_is_accepted() {
    let page = include_str!("../../../../docs/broker.md");
    let (_, section) = page.split_once("## Configuration\n").unwrap();
    let lines = section.lines().take_while(|line| !line.starts_with('`'));
    let lines = lines.filter_map(|line| line.strip_prefix("    "));
    let text = Vec::from_iter(lines).join("\n");
    let folder = disk_folder();
    let mut names = text.replace("/srv/log", "data");
    let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [plain, secured] = free.map(|listener| listener.local_addr().unwrap());
    for (documented, ours) in [
        (":9092", format!(":{}", plain.port())),
        (":9093", format!(":{}", secured.port())),
        ("fullchain.pem", "cert.pem".to_owned()),
        ("privkey.pem", "key.pem".to_owned()),
    ] {
        names = names.replace(documented, &ours);
    }
    fs::write(folder.path().join("underpass.toml"), names).unwrap();
    let identity = crate::tls::Identity::new(&["kafka.example.org"]);
    identity.write(folder.path());
    let mut command = Command::new(BINARY);
    command
        .args(["broker", "--config"])
        .arg(folder.path().join("underpass.toml"));
    let broker = ServerProcess::spawn(command.stdin(Stdio::null()));
    Client::connect(plain).behave();
    crate::tls::connect(secured, "kafka.example.org", &identity.certificate, None).behave();
    broker.stop().assert_success();
}

#[test]
fn wrong_options_are_named() {
    let folder = disk_folder();
    let file = folder.path().join("underpass.toml");
    for (text, words) in [
        ("[x]\n", ["line 1, column 2", "unknown field `x`"]),
        (
            "[topics]\n\"num.partitions\" = 0\n",
            ["num.partitions=0", "1 to 10000"],
        ),
        (
            "[topics]\nconfig = {\"retention.ms\" = \"soon\"}\n",
            ["retention.ms=soon", "a number"],
        ),
        (
            "[[listener]]\nat = '127.0.0.1:0'\ntls = true\n",
            ["TLS", "certificate"],
        ),
        ("listener = []\n", ["[[listener]]", "nobody could connect"]),
    ] {
        fs::write(&file, text).unwrap();
        let mut command = Command::new(BINARY);
        let report = run(command.args(["broker", "--config"]).arg(&file));
        report.assert_failed(1, &words);
    }
    let report = run_with_input(Command::new(BINARY).args(["broker", "--fsync", "x"]), b"");
    report.assert_failed(2, &["acks, interval, never"]);
}
