//! `underpass serve` as a process: its output, its failures and its end.

use std::fs::{self, OpenOptions};
use std::process::Command;

use rustix::process::Signal;
use underpass::limits::PIPES_MAX;
use underpass_testkit::{HttpResponse, assert_contains, assert_same, content};

use crate::support::{BINARY, Server, serve};

const SIZE: usize = 24 << 20;

#[test]
fn the_greeting_and_the_summary_are_complete() {
    let server = Server::with(&["-v"]);
    server.write("small", "small");
    server.write("large", vec![b'l'; SIZE]);
    assert_contains(server.greeting(), &["Ctrl-C"]);
    assert_contains(server.greeting(), &["bodies are sent by sendfile: "]);
    let mut socket = server.connect();
    assert_eq!(socket.get("/small").body, b"small");
    assert!(socket.get("/large").body == vec![b'l'; SIZE]);
    let end = server.stop();
    end.assert_success();
    assert_eq!(end.errors, "");
    assert!(
        end.output.starts_with("stopped after 2 requests: "),
        "{}",
        end.output
    );
    end.assert_output(&[&format!("{SIZE} bytes by splice")]);
    end.assert_output(&["5 bytes by read_write"]);
}

/// Returns `NoNewPrivs` of every thread with its name: true if the thread has confined itself.
fn confined_threads(server: &Server) -> Vec<(String, bool)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid().as_raw_nonzero())).unwrap();
    let of = |status: &str, name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    tasks
        .map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap())
        .map(|status| (of(&status, "Name:"), of(&status, "NoNewPrivs:") == "1"))
        .collect()
}

#[test]
fn workers_are_confined_as_reported_and_serve() {
    let server = Server::with(&["-v"]);
    let holds = server.greeting().contains("confined by Landlock (ABI ");
    let why = server.greeting().contains("workers are not confined: ");
    assert!(holds != why, "{}", server.greeting());
    server.write("large", vec![b'l'; SIZE]);
    let mut socket = server.connect();
    assert!(socket.get("/large").body == vec![b'l'; SIZE]);
    for (thread, is_confined) in confined_threads(&server) {
        match thread.starts_with("worker-") || thread.starts_with("tokio") {
            true => assert!(is_confined || !holds, "{thread}"),
            false => assert!(!is_confined, "{thread}"),
        }
    }
    let free = Server::with(&["-v", "--confine", "off"]);
    assert!(free.greeting().contains("not confined, as configured"));
    assert!(
        confined_threads(&free)
            .iter()
            .all(|(_, confined)| !confined)
    );
}

/// Sizes that are joined by default, and others that are not.
const SIZES: [usize; 4] = [1, 5000, 100_000, 3 << 20];

#[test]
fn by_only_one_mechanism_bodies_are_right_and_travel_by_no_other() {
    for only in ["sendfile", "splice", "read_write"] {
        let server = Server::with(&["-v", "--only", only]);
        let greeting = server.greeting();
        let alone = greeting.contains(&format!("bodies are sent by {only}: "))
            && !greeting.contains("falls back to");
        assert!(alone, "{greeting}");
        let mut socket = server.connect();
        for size in SIZES {
            server.write("file", content(1, size));
            assert_same(&socket.get("/file").body, &content(1, size), only);
        }
        let end = server.stop();
        end.assert_clean();
        let all = format!("{} bytes by {only}", SIZES.iter().sum::<usize>());
        end.assert_output(&[&all]);
        for other in ["sendfile", "splice", "read_write"] {
            let travelled = end.output.contains(&format!("bytes by {other}"));
            assert_eq!(travelled, other == only, "{}", end.output);
        }
    }
}

#[test]
fn a_mechanism_that_no_body_can_leave_by_is_refused_at_the_start() {
    let output = serve(&["--listen", "127.0.0.1:0", "--only", "clone"]);
    output.assert_failed(1, &["clone cannot send bodies: "]);
    let unknown = serve(&["--only", "teleport"]);
    unknown.assert_failed(2, &["sendfile"]);
}

#[test]
fn bodies_that_fit_with_their_head_leave_in_one_write_and_no_others() {
    for (join, joined) in [("0", 0), ("4000", 1), ("8192", 5001), ("1048576", 105_001)] {
        let server = Server::with(&["--join", join]);
        let mut socket = server.connect();
        for size in SIZES {
            server.write("file", content(1, size));
            assert_same(&socket.get("/file").body, &content(1, size), join);
        }
        let large = SIZES[3];
        let sent = SIZES.iter().sum::<usize>() - large - joined;
        let end = server.stop();
        for (bytes, by) in [
            (joined, "read_write"),
            (sent, "sendfile"),
            (large, "splice"),
        ] {
            let unit = if bytes == 1 { "byte" } else { "bytes" };
            let reported = end.output.contains(&format!("{bytes} {unit} by {by}"));
            assert_eq!(reported, bytes > 0, "{}", end.output);
        }
    }
    serve(&["--join", "1048577"]).assert_failed(2, &[]);
}

/// As many clients as a worker has pipes, and some more.
#[test]
fn when_slow_clients_have_all_the_pipes_others_are_sent_files_all_the_same() {
    const SIZE: usize = 16 << 20;
    let server = Server::start();
    let content = content(1, SIZE);
    server.write("file", &content);
    let mut slow: Vec<_> = (0..PIPES_MAX).map(|_| server.connect()).collect();
    for client in &mut slow {
        client.ask("/file");
        assert_eq!(client.head().length().unwrap(), SIZE);
        client.read_exact(300_000).unwrap();
    }
    assert!(server.get("/file").body == content);
    for mut client in slow {
        let rest = client.read_exact(SIZE - 300_000).unwrap();
        assert!(rest == content[300_000..]);
    }
    assert!(server.get("/file").body == content);
    let end = server.stop();
    let (lent, last) = (SIZE * PIPES_MAX, SIZE);
    for reported in [
        format!("{} bytes by splice", lent + last),
        format!("{SIZE} bytes by sendfile"),
    ] {
        end.assert_output(&[&reported]);
    }
}

#[test]
fn a_taken_port_is_reported_with_what_to_do() {
    let server = Server::start();
    let address = server.address().to_string();
    let second = serve(&["--listen", &address]);
    let port = format!("port {} is in use", server.address().port());
    second.assert_failed(1, &[&port, "--port"]);
}

#[test]
fn what_cannot_be_served_is_reported() {
    for (folder, said) in [
        ("/nowhere", "No such file"),
        ("/proc/version", "Not a directory"),
    ] {
        let output = serve(&["--listen", "127.0.0.1:0", folder]);
        output.assert_failed(1, &[folder, said]);
    }
    serve(&["--listen", "192.0.2.1:8080"]).assert_failed(1, &["no such address"]);
    for usage in [["--listen", "80808"], ["--port", "x"], ["--workers", "0"]] {
        serve(&usage).assert_failed(2, &[]);
    }
}

#[test]
fn a_file_that_shrinks_is_reported_with_path_offset_and_size() {
    let server = Server::start();
    server.write("shrinks", vec![b'l'; SIZE]);
    let mut socket = server.connect();
    socket.ask("/shrinks");
    socket.head();
    let file = OpenOptions::new()
        .write(true)
        .open(server.path("shrinks"))
        .unwrap();
    file.set_len(SIZE as u64 / 2).unwrap();
    assert!(socket.rest().len() < SIZE);
    let end = server.stop();
    let reported = format!(
        "shrinks ends at offset {} or before, expected {SIZE} bytes",
        SIZE / 2
    );
    assert_contains(&end.errors, &[&reported]);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::start();
    server.write("large", vec![b'l'; SIZE]);
    let mut socket = server.connect();
    socket.ask("/large");
    socket.head();
    let mut idle = server.connect();
    idle.get("/none");
    server.signal(Signal::TERM);
    // The idle connection shows that the first signal has arrived.
    idle.assert_closed();
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn it_lives_through_a_want_of_descriptors() {
    const LIMIT: usize = 70;
    let mut limited = Command::new("sh");
    let script = format!("ulimit -n {LIMIT}; exec \"$0\" \"$@\"");
    limited.args(["-c", &script, BINARY]);
    let server = Server::by(limited, &[]);
    server.write("f", "f");
    let crowd: Vec<_> = (0..LIMIT * 2).map(|_| server.connect()).collect();
    drop(crowd);
    assert_eq!(server.get("/f").body, b"f");
    server.stop().assert_success();
}

/// What newcomers type, and a part of the cure that they read.
#[test]
fn other_spellings_of_upload_are_told_the_right_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for (typed, cure) in [
        (&["--upload-dir", "/in"][..], "--upload=/FOLDER"),
        (&["--upload-dir=/in"], "--upload=/FOLDER"),
        (&["--uploads"], "'--upload'"),
        (&["--upload-files"], "'--upload'"),
        (&["--allow-upload"], "'--upload'"),
        (&["--writable"], "'--upload'"),
        (&["--allow-delete"], "--upload=overwrite,delete"),
        (&["--overwrite"], "--upload=overwrite,delete"),
        (&["--max-upload-size", "1G"], "file-bytes-max"),
        (&["--webdav"], "WebDAV is not spoken"),
        (&["--upload=yes"], "--upload alone"),
        (&["--upload=true"], "--upload alone"),
        (&["--upload=no"], "omit it"),
        (&["--upload=rw"], "--upload=overwrite"),
        (&["--upload=rename"], "--upload=delete"),
        (&["--upload=incoming"], "/incoming"),
        (&["--upload=./incoming"], "/incoming"),
        (&["--upload=10GB"], "file-bytes-max"),
        (&["--upload=/a,/b"], "a [[site.upload]] each"),
        (&["-u=/missing"], "/missing does not exist; make it"),
    ] {
        let end = serve(&[typed, &["-p", "0", folder]].concat());
        assert!(matches!(end.code, Some(1 | 2)), "{typed:?}: {end:?}");
        assert_contains(&end.errors, &[cure]);
    }
    for typed in ["/missing", "overwrite", "delete", "yes"] {
        let cure = format!("--upload={typed}");
        serve(&["-p", "0", "--upload", typed]).assert_failed(1, &[&cure]);
    }
}

#[test]
fn the_greeting_tells_where_uploads_go() {
    let server = Server::with(&["--upload"]);
    assert_contains(server.greeting(), &["uploads: anywhere (--upload=/FOLDER "]);
    let server = Server::with(&["--upload=delete"]);
    assert_contains(server.greeting(), &["uploads: anywhere", ", delete\n"]);
    assert!(!Server::start().greeting().contains("uploads"));
}

/// Sends a request on a new connection. The server may close it before it has read the body.
fn send(server: &Server, head: &str, body: &[u8]) -> HttpResponse {
    let mut client = server.connect();
    client.send(format!(
        "{head}\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(body);
    client.response()
}

#[test]
fn a_limit_on_the_size_of_files_is_an_answer_and_not_the_end() {
    let mut limited = Command::new("sh");
    // Blocks of 512 bytes: 1 MiB.
    limited.args(["-c", "ulimit -f 2048; exec \"$0\" \"$@\"", BINARY]);
    let server = Server::by(limited, &["--upload=overwrite,delete"]);
    let (half, large) = (vec![b'x'; 600 << 10], vec![b'x'; 2 << 20]);
    server.write("large", &large);
    let refused = |answer: HttpResponse| {
        assert_eq!(answer.status, 413, "{} {}", answer.head, answer.text());
        assert!(answer.text().contains("ulimit -f"), "{}", answer.text());
    };
    refused(send(&server, "PUT /f HTTP/1.1", &large));
    let chunked = [
        format!("{:x}\r\n", large.len()).as_bytes(),
        &large,
        b"\r\n0\r\n\r\n",
    ]
    .concat();
    let mut client = server.connect();
    client.send("PUT /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunked);
    refused(client.response());
    let part = b"--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n";
    let form = [&part[..], &large, b"\r\n--b--\r\n"].concat();
    let head = "POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b";
    refused(send(&server, head, &form));
    refused(send(
        &server,
        "COPY /large HTTP/1.1\r\nDestination: /f",
        b"",
    ));

    let tus = "Tus-Resumable: 1.0.0\r\nContent-Type: application/offset+octet-stream";
    let create = |fields: &str, body: &[u8]| {
        send(
            &server,
            &format!("POST / HTTP/1.1\r\n{tus}\r\n{fields}"),
            body,
        )
    };
    let created = create(
        "Upload-Length: 2097152\r\nUpload-Metadata: filename Zg==",
        b"",
    );
    let location = created.field("location").unwrap().to_owned();
    let head = format!("PATCH /{location} HTTP/1.1\r\n{tus}\r\nUpload-Offset: 0");
    refused(send(&server, &head, &large));
    let parts = [(); 2].map(|()| {
        let fields = format!("Upload-Concat: partial\r\nUpload-Length: {}", half.len());
        let created = create(&fields, &half);
        assert_eq!(created.status, 201, "{}", created.text());
        created.field("location").unwrap().to_owned()
    });
    let [one, two] = parts;
    let whole = format!("Upload-Concat: final;{one} {two}\r\nUpload-Metadata: filename Zg==");
    refused(create(&whole, b""));

    assert_eq!(send(&server, "PUT /half HTTP/1.1", &half).status, 201);
    assert!(server.get("/half").body == half);
    assert_eq!(server.get("/f").status, 404);
    server.stop().assert_success();
}
