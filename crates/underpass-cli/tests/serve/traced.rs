//! The number of system calls of `underpass serve`, and its behaviour if one is missing.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use underpass_testkit::{HttpClient, assert_contains, run, strace, wait_until};

use crate::support::{BINARY, Server};

/// Returns the names of the calls between the first and the last request's `recvfrom`, in order.
fn calls(log: &str) -> Vec<&str> {
    let names: Vec<_> = log
        .lines()
        .filter_map(|line| line.split_once(' ')?.1.trim_start().split_once('('))
        .map(|(name, _)| name)
        // A debug build looks at a descriptor before it closes it.
        .filter(|name| !name.starts_with('<') && *name != "fcntl")
        .collect();
    let first = names.iter().position(|name| *name == "recvfrom").unwrap();
    let last = names.iter().rposition(|name| *name == "recvfrom").unwrap();
    names[first..last].to_vec()
}

/// Starts a traced server with the file `f` of this size, whose content is cached.
fn with_popular_file(log: &Path, size: usize) -> Server {
    let server = Server::traced(log, &["trace=!futex"], &[]);
    server.write("f", vec![b'f'; size]);
    // Content is cached once its modification time is old enough.
    let file = fs::File::open(server.path("f")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    server
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_popular_small_file_costs_three_calls() {
    const REQUESTS: usize = 100;
    /// Traced requests are slow; each second the file is reopened.
    const SECONDS_MAX: usize = 5;
    // Content too large to be copied after the head is sent from the cache.
    for (size, send) in [(1 << 10, "sendto"), (10 << 10, "sendmsg")] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let server = with_popular_file(log.path(), size);
        let mut socket = server.connect();
        for _ in 0..REQUESTS {
            assert_eq!(socket.get("/f").body, vec![b'f'; size]);
        }
        server.stop().assert_success();
        let log = fs::read_to_string(log.path()).unwrap();
        let calls = calls(&log);
        let count = |name: &str| calls.iter().filter(|call| **call == name).count();
        for name in ["recvfrom", send] {
            let times = count(name);
            assert!(
                times.abs_diff(REQUESTS) <= 2 + SECONDS_MAX,
                "{name}: {times}"
            );
        }
        for name in ["openat2", "inotify_add_watch", "preadv2"] {
            assert!(count(name) <= 2 * SECONDS_MAX, "{name} again and again");
        }
        // The fixed cost of a connection does not grow with the requests.
        let total = calls.len();
        assert!(
            total <= 3 * REQUESTS + 40 + 12 * SECONDS_MAX,
            "{total}: {:?}",
            &calls[total - 20..]
        );
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_name_that_still_leads_to_its_file_is_opened_again_but_watched_once() {
    /// Number of times the name is resolved, a second apart.
    const OPENED: usize = 3;
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = with_popular_file(log.path(), 1024);
    let count = |name: &str| {
        let log = fs::read_to_string(log.path()).unwrap();
        calls(&log).iter().filter(|call| **call == name).count()
    };
    let mut socket = server.connect();
    wait_until("its name to be resolved again", || {
        assert_eq!(socket.get("/f").body, vec![b'f'; 1024]);
        count("openat2") >= OPENED
    });
    assert_eq!(count("inotify_add_watch"), 1);
    assert_eq!(count("inotify_rm_watch"), 0);
    let other = server.path("other");
    fs::write(&other, "new").unwrap();
    fs::rename(&other, server.path("f")).unwrap();
    assert_eq!(socket.get("/f").body, b"new");
    server.stop().assert_success();
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_connection_for_one_request_costs_seven_calls() {
    const CONNECTIONS: usize = 100;
    const SECONDS_MAX: usize = 5;
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = with_popular_file(log.path(), 1024);
    for _ in 0..CONNECTIONS {
        let mut socket = server.connect();
        socket.send("GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(socket.response().body, vec![b'f'; 1024]);
    }
    server.stop().assert_success();
    let log = fs::read_to_string(log.path()).unwrap();
    let calls = calls(&log);
    let count = |name: &str| calls.iter().filter(|call| **call == name).count();
    // Some requests arrive later than their connections, which are then registered with epoll.
    let late = count("epoll_ctl") / 2;
    let of_each = [
        "accept4",
        "ppoll",
        "recvfrom",
        "read",
        "sendto",
        "close",
        "epoll_wait",
    ];
    let of_late = ["epoll_ctl", "epoll_ctl", "epoll_wait", "recvfrom"];
    // The last bytes are sent together with the end of the stream.
    let mut sent = log.lines().filter(|line| line.contains("HTTP/1.1 200"));
    assert_eq!(sent.find(|line| !line.contains("MSG_MORE")), None);
    let most = of_each.len() * CONNECTIONS + of_late.len() * late + 40 + 12 * SECONDS_MAX;
    let total = calls.len();
    assert!(
        total <= most,
        "{total}, {late} of them late: {:?}",
        &calls[total - 20..]
    );
}

/// Additional calls for a popular path, compared with a file under its own name.
#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn indexes_and_pretty_paths_cost_no_more_and_copies_one_fstat() {
    const REQUESTS: usize = 100;
    const SECONDS_MAX: usize = 5;
    /// A second look-up at each opening: for the missing name before it, and for the copy.
    const OPENED_MAX: usize = 3 * SECONDS_MAX;
    for (options, target, fstats) in [
        (&["--index", "none,i.html"][..], "/", 1),
        (&["--pretty"], "/i", 1),
        (&["--precompressed", "br"], "/i.html", 2),
        (&["--precompressed", "zstd,gzip"], "/i.html", 1),
    ] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let server = Server::traced(log.path(), &["trace=!futex"], options);
        for (name, content) in [("i.html", "plain"), ("i.html.br", "other")] {
            server.write(name, content);
            let file = fs::File::open(server.path(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
                .unwrap();
        }
        let mut socket = server.connect();
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: *\r\n\r\n");
        for _ in 0..REQUESTS {
            socket.send(&request);
            let answer = socket.response();
            assert_eq!(answer.body.len(), 5);
            let is_copy = answer.field("content-encoding") == Some("br");
            assert_eq!(is_copy, fstats == 2, "{answer:?}");
        }
        server.stop().assert_success();
        let log = fs::read_to_string(log.path()).unwrap();
        let calls = calls(&log);
        let count = |name: &str| calls.iter().filter(|call| **call == name).count();
        assert!(
            count("fstat") <= fstats * REQUESTS + OPENED_MAX,
            "{options:?}"
        );
        assert!(count("openat2") <= OPENED_MAX, "{options:?}");
    }
}

/// Checks that content consisting of `f` went through splice and not through the process.
#[track_caller]
fn assert_spliced_past(log: &Path) {
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains(" splice("), "{log}");
    let content = log.lines().find(|line| line.contains("ffffffff"));
    assert_eq!(content, None, "content passed through the process");
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn the_content_of_a_large_file_never_comes_near() {
    const SIZE: usize = 8 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Server::traced(log.path(), &["trace=!futex"], &[]);
    server.write("f", vec![b'f'; SIZE]);
    let mut socket = server.connect();
    assert!(socket.get("/f").body == vec![b'f'; SIZE]);
    server.stop().assert_success();
    assert_spliced_past(log.path());
}

/// A cork that stays would delay the next small response by 200 milliseconds, and one that is set
/// late would send the head in a separate packet.
#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_large_response_is_corked_from_before_its_head_to_its_last_byte() {
    // Large enough under bbr, too.
    const LARGE: usize = 256 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    let trace = "trace=recvfrom,sendto,splice,sendfile,setsockopt";
    let server = Server::traced(log.path(), &[trace], &[]);
    let file = fs::File::create(server.path("large")).unwrap();
    file.set_len(LARGE as u64).unwrap();
    server.write("small", "s");
    let mut socket = server.connect();
    socket.ask("/large");
    assert_eq!(socket.response().body.len(), LARGE);
    // In one segment or in two: the cork is pulled before the next response starts.
    let get = |name: &str| format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n");
    socket.send([get("large"), get("small")].concat());
    assert_eq!(socket.response().body.len(), LARGE);
    assert_eq!(socket.response().body, b"s");
    server.stop().assert_success();
    let log = fs::read_to_string(log.path()).unwrap();
    let seen: String = log.lines().filter_map(letter).collect();
    // Skips the probe of splice at the start, and merges the many calls for content.
    let begin = seen.find('r').unwrap();
    // In between, the cork is pulled before waiting for the socket.
    let seen = seen[begin..].replace('r', "").replace("][m", "m");
    let mut seen: Vec<_> = seen.chars().collect();
    seen.dedup();
    assert_eq!(seen.iter().collect::<String>(), "[hm][hm]s", "{log}");
}

/// Maps a traced line to a letter: `r`eceive, `h`ead with MSG_MORE, `m`oved content, `s`mall
/// response, `[` for setting a cork and `]` for pulling it.
fn letter(line: &str) -> Option<char> {
    let named = [
        ("TCP_CORK, [1]", '['),
        ("TCP_CORK, [0]", ']'),
        ("MSG_MORE", 'h'),
        ("sendto(", 's'),
        ("splice(", 'm'),
        ("sendfile(", 'm'),
        ("recvfrom(", 'r'),
    ];
    let mut named = named.into_iter();
    named.find_map(|(part, letter)| line.contains(part).then_some(letter))
}

/// A socket that accepted less than it was given is polled before the next send. One that accepted
/// everything is not.
#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn hardly_any_call_for_a_slow_reader_fails() {
    const SIZE: usize = 16 << 20;
    const READ: usize = 64 << 10;
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Server::traced(log.path(), &["trace=splice,sendfile,ppoll"], &[]);
    server.write("f", vec![b'f'; SIZE]);
    let mut client = HttpClient::connect_slow(server.address());
    client.send("GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let count = |part: &str| {
        let log = fs::read_to_string(log.path()).unwrap();
        log.lines().filter(|line| line.contains(part)).count()
    };
    wait_until("a full socket", || count("POLLOUT") > 0);
    let mut received = Vec::new();
    while count("POLLOUT") < 4 {
        received.extend(client.read_exact(READ).unwrap());
    }
    received.extend(client.read_to_end().unwrap());
    assert!(received.ends_with(&vec![b'f'; SIZE]));
    drop(client);
    server.stop().assert_success();
    assert!(count("EAGAIN") < count("POLLOUT"));
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn the_contents_of_an_archive_never_come_near() {
    const SIZE: usize = 4 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Server::traced(log.path(), &["trace=!futex"], &[]);
    for name in ["one", "two", "three"] {
        server.write(name, vec![b'f'; SIZE]);
    }
    let archive = server.get("/?download=tar").body;
    let contents = archive.iter().filter(|&&byte| byte == b'f').count();
    assert!(contents >= 3 * SIZE, "{contents}");
    let end = server.stop();
    end.assert_success();
    end.assert_output(&["splice"]);
    assert_spliced_past(log.path());
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn without_openat2_it_refuses_to_start() {
    for errno in ["ENOSYS", "EPERM"] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let inject = format!("inject=openat2:error={errno}");
        let mut traced = strace(log.path(), &["trace=openat2", &inject]);
        let serve = traced.args([BINARY, "serve", "--listen", "127.0.0.1:0", "."]);
        run(serve).assert_failed(1, &["openat2", "Linux 5.6"]);
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn it_lives_through_failing_accepts() {
    let log = tempfile::NamedTempFile::new().unwrap();
    for errno in [
        "EMFILE",
        "ENFILE",
        "ENOMEM",
        "ENOBUFS",
        "ECONNABORTED",
        "EPROTO",
    ] {
        let inject = format!("inject=accept4:error={errno}:when=1..3");
        let server = Server::traced(log.path(), &["trace=accept4", &inject], &[]);
        server.write("f", "f");
        assert_eq!(server.get("/f").body, b"f", "{errno}");
        let end = server.stop();
        end.assert_success();
        let reported = end.errors.matches("connections have to wait").count();
        let expected = usize::from(!matches!(errno, "ECONNABORTED" | "EPROTO"));
        assert_eq!(reported, expected, "{errno}: {}", end.errors);
    }
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_fallback_is_reported_once_and_the_body_is_right() {
    const SIZE: usize = 3 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    // The first call is the probe at the start, which finds splice.
    let inject = "inject=splice:error=EINVAL:when=2+";
    let server = Server::traced(log.path(), &["trace=splice", inject], &[]);
    server.write("f", vec![b'f'; SIZE]);
    let mut socket = server.connect();
    for _ in 0..3 {
        assert!(socket.get("/f").body == vec![b'f'; SIZE]);
    }
    let end = server.stop();
    end.assert_success();
    let reported = "fell back: splice refused this once";
    assert_eq!(end.errors.matches(reported).count(), 1, "{}", end.errors);
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_refused_mechanism_that_is_the_only_one_is_an_error() {
    const SIZE: usize = 3 << 20;
    let log = tempfile::NamedTempFile::new().unwrap();
    let inject = "inject=sendfile:error=EINVAL:when=2+";
    let traced = ["trace=sendfile", inject];
    let server = Server::traced(log.path(), &traced, &["--only", "sendfile"]);
    server.write("f", vec![b'f'; SIZE]);
    let mut socket = server.connect();
    socket.ask("/f");
    assert!(socket.read_to_end().is_err(), "no reset");
    assert!(
        socket.rest().len() < SIZE,
        "the body came in some other way"
    );
    let end = server.stop();
    assert_contains(&end.errors, &["connection closed: "]);
    assert_contains(&end.errors, &["sendfile"]);
}
