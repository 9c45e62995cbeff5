//! The real server with 1,024 descriptors, and clients that take all of them: plain files are still
//! served.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use underpass_testkit::{ChildProcess, HttpClient, wait_until};

use crate::support::{BINARY, Server};

fn server(options: &[&str]) -> Server {
    limited(1024, options)
}

fn limited(descriptors: usize, options: &[&str]) -> Server {
    let mut limited = Command::new("sh");
    let script = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    limited.args(["-c", &script, BINARY]);
    let server = Server::by(limited, options);
    write(&server, "small", "small");
    server
}

fn write(server: &Server, name: &str, content: impl AsRef<[u8]>) {
    fs::create_dir_all(server.path(name).parent().unwrap()).unwrap();
    server.write(name, content);
}

/// Sends a request and reads only the head of the response. Returns the client and the status.
fn ask(server: &Server, target: &str, fields: &str) -> (HttpClient, u16) {
    let mut client = HttpClient::connect_slow(server.address());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let head = client.head();
    if head.status == 503 {
        assert!(head.field("retry-after").is_some(), "{}", head.head);
    }
    (client, head.status)
}

/// It serves, or reports the shortage.
#[test]
fn with_few_descriptors_it_serves_or_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f"), "f").unwrap();
    let socket = folder.path().join("socket");
    let is_served = || {
        let mut answer = String::new();
        let asked = UnixStream::connect(&socket).and_then(|mut client| {
            client.write_all(b"GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
            client.read_to_string(&mut answer)
        });
        asked.is_ok() && answer.starts_with("HTTP/1.1 200 ")
    };
    for options in [&[][..], &["--status", "127.0.0.1:0"]] {
        let mut refused = 0;
        for limit in 8.. {
            let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
            let mut limited = Command::new("sh");
            limited.args(["-c", &script, BINARY, "serve", "--workers=2", "--listen"]);
            limited
                .arg(format!("unix:{}", socket.display()))
                .args(options);
            let mut server = ChildProcess::spawn(limited.arg(folder.path()));
            let mut serves = false;
            wait_until("a file, or the end", || {
                serves = is_served();
                serves || server.is_over()
            });
            if serves {
                break;
            }
            let end = server.end();
            if end.errors.contains("error while loading") {
                // The program has not started.
                continue;
            }
            end.assert_failed(1, &["Too many open files"]);
            assert!(!end.errors.contains("panicked"), "{limit}: {end:?}");
            refused += 1;
        }
        assert!((5..60).contains(&refused), "{refused}");
    }
}

#[test]
fn unread_listings_leave_room_for_plain_files() {
    let server = server(&[]);
    for number in 0..1_500 {
        let name = format!("listed/{number:04}{}", "n".repeat(200));
        write(&server, &name, "");
    }
    let unread: Vec<_> = (0..390).map(|_| ask(&server, "/listed/", "")).collect();
    assert!(unread.iter().all(|(_, status)| *status == 200));
    for _ in 0..20 {
        assert_eq!(server.get("/small").body, b"small");
    }
    // A listing that is read is complete.
    let page = server.get("/listed/?format=json");
    assert_eq!(page.text().matches("\"name\"").count(), 1_500);
}

#[test]
fn unread_archives_leave_room_for_plain_files_and_for_listings() {
    let server = server(&[]);
    let deep = "d/".repeat(60);
    for number in 0..20 {
        write(&server, &format!("{deep}{number}"), vec![7; 4 << 20]);
    }
    let ask_all = |format: &str| -> Vec<_> {
        let target = format!("/d/?download={format}");
        (0..20).map(|_| ask(&server, &target, "")).collect()
    };
    let mut unread = ask_all("tar");
    unread.extend(ask_all("tar.zst"));
    let count = |wanted| {
        unread
            .iter()
            .filter(|(_, status)| *status == wanted)
            .count()
    };
    assert!(count(200) > 0 && count(503) > 0, "{}", count(200));
    assert_eq!(count(200) + count(503), unread.len());
    wait_until("all of it is open", || server.descriptors() > 200);
    let others: Vec<_> = (0..200).map(|_| ask(&server, "/d/", "").0).collect();
    assert_eq!(server.get("/small").body, b"small");
    drop((unread, others));
    wait_until("room for an archive", || {
        ask(&server, "/d/?download=tar", "").1 == 200
    });
    let end = server.stop();
    end.assert_success();
    assert_eq!(end.errors, "");
}

#[test]
fn unread_bodies_of_all_kinds_leave_room_for_plain_files() {
    let server = server(&["--compress", "br,gzip", "--set", "site.hashes=true"]);
    let line = "a line of a story that goes on and on, and has an end\n";
    let mut noise = vec![0; 8 << 20];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| std::io::Read::read_exact(&mut random, &mut noise))
        .unwrap();
    for number in 0..100 {
        write(&server, &format!("story/{number}.txt"), line.repeat(100));
    }
    write(&server, "noise.txt", &noise);
    let mut unread = Vec::new();
    for _ in 0..80 {
        unread.push(ask(&server, "/noise.txt", "Accept-Encoding: br\r\n"));
        unread.push(ask(&server, "/noise.txt", "Range: bytes=0-3,9-4000000\r\n"));
        unread.push(ask(
            &server,
            "/noise.txt",
            "Want-Repr-Digest: sha-256=1\r\n",
        ));
        unread.push(ask(&server, "/story/", ""));
    }
    assert!(unread.iter().all(|(_, status)| [200, 206].contains(status)));
    for number in 0..100 {
        let name = format!("/story/{number}.txt");
        assert_eq!(server.get(&name).status, 200);
    }
}

#[test]
fn unfinished_bodies_of_uploads_leave_room_for_plain_files() {
    let server = limited(64, &["--upload"]);
    let boundary = "Content-Type: multipart/form-data; boundary=b\r\n";
    let start = |number: usize| {
        let line = match number % 2 {
            0 => format!("PUT /{number} HTTP/1.1\r\n"),
            _ => format!("POST / HTTP/1.1\r\n{boundary}"),
        };
        let mut client = HttpClient::connect_slow(server.address());
        client.send(format!(
            "{line}Host: a\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
        ));
        let head = client.head();
        (number, client, head)
    };
    let mut running = Vec::new();
    for number in 0..60 {
        let (number, client, head) = start(number);
        match head.status {
            100 => running.push((number, client)),
            503 => assert!(head.field("retry-after").is_some(), "{}", head.head),
            _ => panic!("{}", head.head),
        }
    }
    assert!((1..10).contains(&running.len()), "{}", running.len());
    for _ in 0..50 {
        assert_eq!(server.get("/small").body, b"small");
    }
    for (number, client) in &mut running {
        let form = "--b\r\nContent-Disposition: form-data; name=f; filename=form\r\n\r\n";
        let (start, end) = match *number % 2 {
            0 => ("", ""),
            _ => (form, "\r\n--b--\r\n"),
        };
        client.send(start);
        client.send(vec![b'x'; 100_000 - start.len() - end.len()]);
        client.send(end);
        let stored = client.response();
        // Several forms bring the same name.
        assert!([201, 409].contains(&stored.status), "{}", stored.head);
    }
    let end = server.stop();
    end.assert_success();
    assert!(!end.errors.contains("panicked"), "{end:?}");
}
