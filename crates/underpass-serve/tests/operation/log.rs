//! The lines of the access log, byte by byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use underpass_net::ShutdownPhase;
use underpass_serve::{Access, LogFormat, ServerOptions};
use underpass_testkit::{HttpClient, wait_until};

use crate::support::{Server, make_old, pattern};

const SIZE: usize = 24 << 20;
/// More than is sent in one turn.
const LARGE: usize = 6 << 20;
const LONG: Duration = Duration::from_secs(3600);

/// A server whose log is a file outside of the site.
struct Logged {
    server: Server,
    folder: TempDir,
}

impl Logged {
    fn start(format: LogFormat) -> Logged {
        Logged::with(format, |_| {})
    }

    fn with(format: LogFormat, change: impl FnOnce(&mut ServerOptions)) -> Logged {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::with(|options| {
            options.log.access = Access::File(folder.path().join("log"));
            options.log.format = format;
            change(options);
        });
        Logged { server, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Waits until there are so many lines.
    fn await_lines(&self, count: usize) {
        wait_until("line", || lines_so_far(&self.path()) >= count);
    }

    /// Stops the server and returns the lines of its log.
    fn lines(self) -> Vec<String> {
        let path = self.path();
        self.server.stop();
        lines(&path)
    }

    fn objects(self) -> Vec<Value> {
        let lines = self.lines();
        lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn lines_so_far(path: &Path) -> usize {
    fs::read_to_string(path).unwrap().lines().count()
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "a line is cut: {text:?}"
    );
    text.lines().map(str::to_owned).collect()
}

/// Returns a combined line without its time.
fn timeless(line: &str) -> String {
    let (before, rest) = line.split_once('[').unwrap();
    let (time, after) = rest.split_once(']').unwrap();
    let shape: String = time
        .chars()
        .map(|letter| match letter {
            '0'..='9' => '9',
            'A'..='Z' => 'A',
            'a'..='z' => 'a',
            other => other,
        })
        .collect();
    assert_eq!(shape, "99/Aaa/9999:99:99:99 +9999");
    format!("{before}[]{after}")
}

#[test]
fn a_combined_line_has_what_was_asked_and_what_was_sent() {
    let logged = Logged::start(LogFormat::Combined);
    logged.server.write("f", "0123456789");
    let mut client = logged.server.connect();
    let ask = |client: &mut HttpClient, method: &str, rest: &str| {
        client.send(format!("{method} {rest}\r\nHost: a\r\n\r\n"));
        client.try_response(method).unwrap()
    };
    let whole = "/f?q=1 HTTP/1.1\r\nReferer: http://r/\r\nUser-Agent: agent/1 (x)";
    assert_eq!(ask(&mut client, "GET", whole).body, b"0123456789");
    let part = ask(&mut client, "GET", "/f HTTP/1.1\r\nRange: bytes=2-4");
    let tag = part.field("etag").unwrap().to_owned();
    ask(
        &mut client,
        "GET",
        &format!("/f HTTP/1.1\r\nIf-None-Match: {tag}"),
    );
    let missing = ask(&mut client, "GET", "/none HTTP/1.1");
    ask(&mut client, "HEAD", "/f HTTP/1.1");
    ask(&mut client, "GET", "/f HTTP/1.0");
    let said: Vec<_> = logged.lines().iter().map(|line| timeless(line)).collect();
    let before = "127.0.0.1 - - [] ";
    let expected = [
        r#""GET /f?q=1 HTTP/1.1" 200 10 "http://r/" "agent/1 (x)""#.to_owned(),
        r#""GET /f HTTP/1.1" 206 3 "-" "-""#.to_owned(),
        r#""GET /f HTTP/1.1" 304 - "-" "-""#.to_owned(),
        format!(r#""GET /none HTTP/1.1" 404 {} "-" "-""#, missing.body.len()),
        r#""HEAD /f HTTP/1.1" 200 - "-" "-""#.to_owned(),
        r#""GET /f HTTP/1.0" 200 10 "-" "-""#.to_owned(),
    ];
    assert_eq!(said, expected.map(|line| format!("{before}{line}")));
}

/// Requests that try to forge lines of the log.
const HOSTILE: [&[u8]; 8] = [
    b"GET /\"-\" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /a\\\xff\xc3\xbc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: \" 200 1 \"\t\\\x80\xe2\x80\xae\r\n\
      Connection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nReferer: \xc2\x9b31m\"\r\nConnection: close\r\n\r\n",
    b"GET /a\rb HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: a\x1b[31mb\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\"\n127.0.0.1 - - [] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n\r\n",
    b"nothing at all\r\n\r\n",
];

#[test]
fn no_request_writes_more_than_one_line_or_ends_its_quotes() {
    let logged = Logged::start(LogFormat::Combined);
    for request in HOSTILE {
        logged.server.ask(request);
    }
    let lines = logged.lines();
    assert_eq!(lines.len(), HOSTILE.len(), "{lines:#?}");
    for line in &lines {
        assert!(
            line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{line}"
        );
        let unescaped = line.replace("\\\\", "").replace("\\\"", "");
        assert_eq!(unescaped.matches('"').count(), 6, "{line}");
    }
    assert!(
        lines[1].contains(r#""GET /a\\\xff\xc3\xbc HTTP/1.1""#),
        "{}",
        lines[1]
    );
    assert!(
        lines[2].contains(r#""\" 200 1 \"\x09\\\x80\xe2\x80\xae""#),
        "{}",
        lines[2]
    );
    assert!(
        lines[6].contains(r#" "\x16\x03\x01\x02\x00\x01\"" 400 "#),
        "{}",
        lines[6]
    );
}

#[test]
fn every_request_is_one_object_whatever_its_bytes() {
    let logged = Logged::start(LogFormat::Json);
    for request in HOSTILE {
        logged.server.ask(request);
    }
    let objects = logged.objects();
    assert_eq!(objects.len(), HOSTILE.len());
    assert_eq!(objects[1]["target"], "/a\\%FF%C3%BC");
    assert_eq!(objects[2]["agent"], "\" 200 1 \"\t\\\u{fffd}\u{202e}");
    assert_eq!(objects[3]["referer"], "\u{9b}31m\"");
    assert_eq!(objects[7]["method"], "nothing at all");
    assert_eq!(objects[7]["target"], Value::Null);
    assert_eq!(objects[7]["status"], 400);
}

#[test]
fn an_object_names_how_the_body_travelled_and_what_else_is_known() {
    let logged = Logged::start(LogFormat::Json);
    logged.server.write("small", "0123456789");
    logged.server.write("large", pattern(LARGE));
    make_old(&logged.server.site().join("large"));
    let mut client = logged.server.connect();
    // Two requests in one packet: numbering continues, and each has its own line.
    client.send(
        "GET /small HTTP/1.1\r\nHost: a:1\r\nUser-Agent: x\r\n\r\n\
         GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(client.response().body, b"0123456789");
    assert!(client.response().body == pattern(LARGE));
    let missing = logged.server.get("/none");
    let parts = logged
        .server
        .ask("GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9999,1000000-1019999\r\n\r\n");
    let objects = logged.objects();
    let moved = |object: &Value, by: &str| object["moved"][by]["bytes"].as_u64();
    let [small, large, none, several] = &objects[..] else {
        panic!("{objects:#?}");
    };
    for object in &objects {
        assert_eq!(object["client"], "127.0.0.1");
        assert_eq!(object["aborted"], Value::Null);
        assert_eq!(object["sent"], object["promised"], "{object}");
        assert_eq!(object["refusals"], Value::Array(Vec::new()));
        let time = object["time"].as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z'), "{time}");
        let microseconds = |name: &str| object[name].as_u64().unwrap();
        assert!(
            microseconds("ready_us") <= microseconds("duration_us"),
            "{object}"
        );
        assert!(microseconds("cpu_us") < 20_000_000);
    }
    assert_eq!(
        (&small["host"], &small["agent"]),
        (&"a:1".into(), &"x".into())
    );
    assert_eq!(
        (&small["version"], &small["method"]),
        (&"HTTP/1.1".into(), &"GET".into())
    );
    assert_eq!(
        (moved(small, "read_write"), small["sent"].as_u64()),
        (Some(10), Some(10))
    );
    assert_eq!(moved(large, "splice"), Some(LARGE as u64));
    assert_eq!(large["sent"], LARGE);
    assert!(large["moved"]["splice"]["calls"].as_u64() > Some(1));
    assert_eq!(
        (&small["connection"], &small["request"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        (&large["connection"], &large["request"]),
        (&1.into(), &2.into())
    );
    assert_eq!(
        (&none["connection"], &none["request"]),
        (&2.into(), &1.into())
    );
    assert_eq!(none["sent"], missing.body.len());
    assert_eq!(none["moved"], Value::Object(serde_json::Map::new()));
    assert_eq!(several["sent"], parts.body.len());
    assert_eq!(moved(several, "sendfile"), Some(30_000), "{several}");
}

#[test]
fn a_request_body_and_what_asks_for_it_are_no_part_of_the_answer() {
    let logged = Logged::start(LogFormat::Json);
    logged.server.write("f", "0123456789");
    let mut client = logged.server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(client.response().body, b"0123456789");
    let objects = logged.objects();
    assert_eq!(
        (&objects[0]["sent"], &objects[0]["promised"]),
        (&10.into(), &10.into())
    );
}

#[test]
fn an_unfinished_answer_is_logged_with_its_reason() {
    let logged = Logged::with(LogFormat::Json, |options| {
        options.connections.stop_timeout = LONG;
    });
    logged.server.write("f", vec![0; SIZE]);
    logged.server.write("shrinks", vec![0; SIZE]);
    let begin = |target: &str| {
        let mut client = HttpClient::connect_slow(logged.server.address());
        client.ask(target);
        client.head();
        client
    };
    drop(begin("/f?gone"));
    let mut shrinking = begin("/shrinks");
    let path = logged.server.site().join("shrinks");
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(SIZE as u64 / 2).unwrap();
    assert!(shrinking.rest().len() < SIZE);
    let mut stopped = begin("/f?stopped");
    let shutdown = logged.server.running().shutdown();
    shutdown.advance(ShutdownPhase::Now);
    assert!(stopped.rest().len() < SIZE);
    let mut reported: Vec<_> = logged
        .objects()
        .iter()
        .map(|object| {
            assert!(object["sent"].as_u64() < Some(SIZE as u64), "{object}");
            assert_eq!(object["promised"], SIZE);
            let text = |name: &str| object[name].as_str().unwrap().to_owned();
            (text("target"), text("aborted"))
        })
        .collect();
    reported.sort();
    let expected = [
        ("/f?gone", "peer_gone"),
        ("/f?stopped", "stopped"),
        ("/shrinks", "truncated"),
    ];
    assert_eq!(
        reported,
        expected.map(|(target, why)| (target.into(), why.into()))
    );
}

#[test]
fn rotating_under_load_loses_no_line_and_cuts_none() {
    const CLIENTS: usize = 3;
    const REQUESTS: usize = 200;
    const ROTATIONS: usize = 3;
    let logged = Logged::with(LogFormat::Combined, |options| {
        options.workers = std::num::NonZeroUsize::new(2);
    });
    logged.server.write("f", "f");
    // The handle for reopening the file; a clone of it is in the options.
    let (path, folder) = (logged.path(), logged.folder.path().to_owned());
    let reopen = logged.server.options().log.reopen.clone();
    let address = logged.server.address();
    let rotations = AtomicUsize::new(0);
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (rotations, sent) = (&rotations, &sent);
                scope.spawn(move || {
                    let mut client = HttpClient::connect(address);
                    // Until enough rotations have happened, however busy the machine is.
                    let goes_on = |request: usize| {
                        request < REQUESTS || rotations.load(Ordering::Relaxed) < ROTATIONS
                    };
                    for request in (0..).take_while(|request| goes_on(*request)) {
                        sent.fetch_add(1, Ordering::Relaxed);
                        let target = format!("/f?{number}-{request}");
                        assert_eq!(client.get(&target).body, b"f");
                    }
                })
            })
            .collect();
        while !clients.iter().all(|client| client.is_finished()) {
            // The file exists again once the writer has reopened it.
            if path.exists() {
                let number = rotations.fetch_add(1, Ordering::Relaxed);
                fs::rename(&path, folder.join(format!("log.{number}"))).unwrap();
                reopen.ask();
            }
            std::thread::yield_now();
        }
    });
    logged.server.stop();
    let mut targets: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .flat_map(|entry| lines(&entry.unwrap().path()))
        .map(|line| {
            let line = timeless(&line);
            let (_, rest) = line.split_once("GET ").unwrap();
            let (target, rest) = rest.split_once(' ').unwrap();
            assert_eq!(rest, r#"HTTP/1.1" 200 1 "-" "-""#);
            target.to_owned()
        })
        .collect();
    let sent = sent.into_inner();
    assert!(sent >= CLIENTS * REQUESTS);
    assert_eq!(targets.len(), sent);
    targets.sort();
    targets.dedup();
    assert_eq!(targets.len(), sent, "a line stands twice");
}

#[test]
fn a_log_that_cannot_be_written_stops_no_request() {
    let server = Server::with(|options| {
        options.log.access = Access::File("/dev/full".into());
    });
    server.write("f", "f");
    for _ in 0..3 {
        assert_eq!(server.get("/f").body, b"f");
    }
    server.stop();
}

/// Returns the number of access log lines with this `outcome`.
fn counted(status: &Path, outcome: &str) -> usize {
    let page = HttpClient::connect_unix(status).get("/metrics");
    let sample = format!("underpass_log_lines_total{{outcome=\"{outcome}\"}} ");
    let value = page
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(&sample));
    value.unwrap().parse().unwrap()
}

#[test]
fn lines_for_a_log_that_was_deleted_are_counted_until_it_can_be_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, status) = (folder.path().join("logs"), folder.path().join("status"));
    fs::create_dir(&logs).unwrap();
    let log = logs.join("log");
    let server = Server::with(|options| {
        options.log.access = Access::File(log.clone());
        options.status.listen = Some(status.clone().into());
    });
    server.write("f", "f");
    server.get("/f");
    wait_until("line", || counted(&status, "written") == 1);
    fs::remove_dir_all(&logs).unwrap();
    for failed in 1..=3 {
        assert_eq!(server.get("/f").body, b"f");
        wait_until("failure", || counted(&status, "failed") == failed);
    }
    assert_eq!(counted(&status, "written"), 1);
    fs::create_dir(&logs).unwrap();
    server.get("/f?again");
    wait_until("line", || counted(&status, "written") == 2);
    server.stop();
    let [line] = &lines(&log)[..] else {
        panic!("one line: {:?}", lines(&log));
    };
    assert!(line.contains("/f?again"), "{line}");
}

#[test]
fn lines_that_a_pipe_does_not_take_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, status) = (folder.path().join("pipe"), folder.path().join("status"));
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, 0o600.into(), 0).unwrap();
    // A process that has it open and reads nothing.
    let mut reader = fs::OpenOptions::new();
    let mut reader = reader.read(true).write(true).open(&pipe).unwrap();
    let server = Server::with(|options| {
        options.log.access = Access::File(pipe.clone());
        options.status.listen = Some(status.clone().into());
    });
    server.write("f", "f");
    let mut client = server.connect();
    let target = format!("/f?{}", "q".repeat(16_000));
    let mut asked = 0;
    while counted(&status, "dropped") == 0 {
        assert_eq!(client.get(&target).body, b"f");
        asked += 1;
        assert!(asked < 10_000, "nothing is dropped");
    }
    // A reader that resumes gets all queued lines, none of them truncated.
    let reading = std::thread::spawn(move || {
        let mut lines = Vec::new();
        let mut buffer = [0; 4096];
        while !lines.ends_with(b"end HTTP/1.1\" 200 1 \"-\" \"-\"\n") {
            let count = std::io::Read::read(&mut reader, &mut buffer).unwrap();
            lines.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8(lines).unwrap()
    });
    let written = || counted(&status, "written") + counted(&status, "dropped");
    wait_until("rest", || written() == asked);
    client.get("/f?end");
    let read = underpass_testkit::within(move || reading.join().unwrap());
    let dropped = counted(&status, "dropped");
    assert_eq!(read.lines().count(), asked - dropped + 1);
    assert!(
        read.lines()
            .all(|line| line.ends_with(" 200 1 \"-\" \"-\""))
    );
    server.stop();
}

#[test]
fn a_log_that_cannot_be_opened_is_reported_at_the_start() {
    let mut options = ServerOptions::of("/");
    options.log.access = Access::File("/nowhere/log".into());
    let error = underpass_serve::serve(&options).unwrap_err().to_string();
    assert!(error.contains("/nowhere/log"), "{error}");
}

#[test]
fn a_body_that_is_made_is_one_line_of_the_log() {
    const LENGTH: usize = 300 << 10;
    let logged = Logged::with(LogFormat::Json, |options| options.sites[0].hashes = true);
    logged.server.write("d/f", vec![b'x'; LENGTH]);
    let mut client = logged.server.connect();
    let mut bodies = Vec::new();
    for (method, target) in [
        ("GET", "/d/"),
        ("GET", "/d/?download=tar"),
        ("HEAD", "/d/?download=tar"),
        ("GET", "/d/f?hash=blake3"),
        ("GET", "/d/f"),
    ] {
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        bodies.push(client.try_response(method).unwrap().body.len() as u64);
    }
    let objects = logged.objects();
    assert_eq!(objects.len(), bodies.len());
    for (number, (object, body)) in objects.iter().zip(&bodies).enumerate() {
        assert_eq!(object["status"], 200);
        assert_eq!(object["aborted"], Value::Null, "{object}");
        assert_eq!(object["request"], number + 1);
        // Chunk sizes and their line ends are counted as sent, too.
        let sent = object["sent"].as_u64().unwrap();
        let framing = if number < 2 { 512 } else { 0 };
        assert!((*body..=body + framing).contains(&sent), "{object}");
        match number < 2 {
            true => assert_eq!(object["promised"], Value::Null, "{object}"),
            false => assert_eq!(object["promised"], *body, "{object}"),
        }
    }
    let moved = |object: &Value| {
        let moved = object["moved"].as_object().unwrap().values();
        moved.map(|way| way["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let expected = [0, LENGTH as u64, 0, 0, LENGTH as u64];
    assert_eq!(objects.iter().map(moved).collect::<Vec<_>>(), expected);
}

#[test]
fn a_client_that_goes_before_its_answer_is_complete_is_one_line_too() {
    let logged = Logged::with(LogFormat::Json, |options| options.sites[0].hashes = true);
    logged.server.write("probe", "probe");
    let huge = fs::File::create(logged.server.site().join("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    for target in ["/huge?hash=blake3", "/?download=tar"] {
        let mut client = logged.server.connect();
        client.ask(target);
        if target.contains("tar") {
            client.head();
        }
        drop(client);
    }
    logged.await_lines(2);
    let objects = logged.objects();
    let reported = |object: &Value| (object["status"].clone(), object["aborted"].clone());
    let mut reported: Vec<_> = objects.iter().map(reported).collect();
    reported.sort_by_key(|(status, _)| status.as_u64());
    assert_eq!(reported.len(), 2, "{objects:?}");
    assert_eq!(reported[0], (200.into(), "peer_gone".into()));
    assert_eq!(reported[1], (499.into(), "peer_gone".into()));
}

#[test]
fn a_cut_upload_is_a_line_with_what_has_arrived() {
    let uploads = |options: &mut ServerOptions| {
        options.sites[0].uploads = vec![underpass_serve::UploadOptions::default()];
    };
    let logged = Logged::with(LogFormat::Json, uploads);
    let begin = |length: usize, sent: usize| {
        let mut client = logged.server.connect();
        client.send(format!(
            "PUT /{length} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        ));
        client.send(vec![b'x'; sent]);
        client
    };
    begin(7, 7).response();
    let partial = logged.server.site().join(".underpass-uploads");
    let cut = begin(100_000, 60_000);
    wait_until("bytes in the partial file", || {
        let mut files = fs::read_dir(&partial).unwrap().map(|file| file.unwrap());
        files.any(|file| file.metadata().is_ok_and(|file| file.len() >= 60_000))
    });
    drop(cut);
    logged.await_lines(2);
    let objects = logged.objects();
    let told = |object: &Value| ["status", "received", "aborted"].map(|name| object[name].clone());
    assert_eq!(told(&objects[0]), [201.into(), 7.into(), Value::Null]);
    let expected: [Value; 3] = [499.into(), 60_000.into(), "peer_gone".into()];
    assert_eq!(told(&objects[1]), expected);
}
