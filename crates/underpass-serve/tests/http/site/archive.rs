//! Folders as tar files: included and excluded files, and files that change meanwhile.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use underpass_testkit::HttpClient;

use crate::support::{Probe, Server, State, pattern};
use crate::{LARGE, noise};

/// A member of an archive without pax records.
#[derive(Debug)]
struct Member {
    name: String,
    flag: u8,
    content: Vec<u8>,
    target: String,
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0);
    String::from_utf8(field[..end.unwrap_or(field.len())].to_vec()).unwrap()
}

/// Parses an archive whose names are short, without its pax headers.
fn members(archive: &[u8]) -> Vec<Member> {
    let mut members = Vec::new();
    let mut rest = archive;
    loop {
        let (head, behind) = rest.split_at(512);
        if head.iter().all(|&byte| byte == 0) {
            assert_eq!(behind, [0; 512], "two empty blocks end it");
            members.sort_by(|one: &Member, other| one.name.cmp(&other.name));
            return members;
        }
        let size = usize::from_str_radix(&text(&head[124..136]), 8).unwrap();
        let (content, padding) = behind[..size.next_multiple_of(512)].split_at(size);
        assert!(padding.iter().all(|&byte| byte == 0));
        rest = &behind[size.next_multiple_of(512)..];
        if head[156] != b'x' {
            members.push(Member {
                name: text(&head[..100]),
                flag: head[156],
                content: content.to_vec(),
                target: text(&head[157..257]),
            });
        }
    }
}

fn names(members: &[Member]) -> Vec<&str> {
    members.iter().map(|member| &member.name[..]).collect()
}

/// Links and files swapped while an archive is made do not damage it.
#[test]
fn names_that_change_their_kind_meanwhile_do_not_end_an_archive() {
    let server = Server::start();
    server.write("probe", "probe");
    let folder = server.site().join("d");
    for number in 0..20 {
        server.write(format!("d/file-{number}"), "file");
        symlink("file-0", folder.join(format!("link-{number}"))).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            let swap = |number: usize| {
                let [file, link] =
                    ["file", "link"].map(|kind| folder.join(format!("{kind}-{number}")));
                renameat_with(CWD, file, CWD, link, RenameFlags::EXCHANGE).unwrap();
            };
            while !is_over.load(Ordering::Relaxed) {
                (1..20).for_each(swap);
            }
        });
        let mut client = server.connect();
        let whole = (0..300).all(|_| {
            client.ask("/d/?download=tar");
            let archive = client.try_response("GET");
            archive.is_ok_and(|archive| !members(&archive.body).is_empty())
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(whole, "an archive broke off");
    });
}

#[test]
fn a_folder_with_an_index_is_an_archive_where_one_is_asked_for() {
    let server = Server::start();
    server.write("d/index.html", "index");
    let archive = server.get("/d/?download=tar");
    assert_eq!(archive.field("content-type"), Some("application/x-tar"));
    let members = members(&archive.body);
    assert!(members.iter().any(|member| member.content == b"index"));
    assert_eq!(server.get("/d/").body, b"index");
}

fn site() -> Server {
    let server = Server::start();
    server.write("probe", "probe");
    server.write("d/small", "small");
    server.write("d/sub/empty", "");
    server.write("d/sub/large", pattern(1 << 20));
    server.write("d/.hidden", "hidden");
    server.write("d/.git/config", "hidden");
    server.write("other", "other");
    fs::write(server.outside().join("secret"), "secret").unwrap();
    let folder = server.site().join("d");
    symlink("sub/large", folder.join("inside")).unwrap();
    symlink("../other", folder.join("beside")).unwrap();
    symlink("../../secret", folder.join("outside")).unwrap();
    symlink("/etc/passwd", folder.join("absolute")).unwrap();
    symlink("..", folder.join("sub/up")).unwrap();
    server
}

#[test]
fn an_archive_has_what_lies_in_the_folder_and_nothing_else() {
    let server = site();
    let answer = server.get("/d/?download=tar");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-type"), Some("application/x-tar"));
    assert_eq!(
        answer.field("content-disposition"),
        Some("attachment; filename=\"d.tar\"")
    );
    let members = members(&answer.body);
    let expected = [
        "d/",
        "d/beside",
        "d/inside",
        "d/small",
        "d/sub/",
        "d/sub/empty",
        "d/sub/large",
        "d/sub/up",
    ];
    assert_eq!(names(&members), expected);
    assert_eq!(members[1].content, b"other");
    assert_eq!(members[2].flag, b'2');
    assert_eq!(members[2].target, "sub/large");
    assert_eq!(members[3].content, b"small");
    assert!(members[6].content == pattern(1 << 20), "another content");
}

/// Returns members as `NAME=CONTENT` or `NAME>TARGET`.
fn shown(archive: &[u8]) -> Vec<String> {
    let shown = members(archive).into_iter().map(|member| {
        let content = String::from_utf8_lossy(&member.content).into_owned();
        match member.flag {
            b'2' => format!("{}>{}", member.name, member.target),
            _ => format!("{}={content}", member.name),
        }
    });
    shown.collect()
}

/// The layout of releases and of Kubernetes volumes: a GET follows the visible links.
fn links_to_hidden_folders(server: &Server) {
    server.write("app/.releases/3/page", "page");
    server.write("app/.releases/3/sub/part", "part");
    server.write("app/.releases/3/.env", "hidden");
    server.write("app/..2026/config", "config");
    server.write("other/f", "other");
    let folder = server.site().join("app");
    for (target, link) in [
        (".releases/3", "current"),
        ("..2026", "..data"),
        ("..data/config", "config"),
        ("current/sub/part", "through"),
        ("..", "up"),
        ("../other", "beside"),
        ("nowhere", "dangling"),
        ("sub/part", ".releases/3/inner"),
        ("../page", ".releases/3/sub/back"),
        (".env", ".releases/3/env"),
        ("../../../other/f", ".releases/3/away"),
    ] {
        symlink(target, folder.join(link)).unwrap();
    }
}

#[test]
fn an_archive_has_what_links_to_hidden_folders_lead_to() {
    let server = Server::start();
    links_to_hidden_folders(&server);
    let archive = server.get("/app/?download=tar").body;
    let (note, others): (Vec<_>, Vec<_>) = shown(&archive)
        .into_iter()
        .partition(|shown| shown.starts_with("app.left-out"));
    let expected = [
        "app/=",
        "app/beside/=",
        "app/beside/f=other",
        "app/config=config",
        "app/current/=",
        "app/current/inner>sub/part",
        "app/current/page=page",
        "app/current/sub/=",
        "app/current/sub/back>../page",
        "app/current/sub/part=part",
        "app/through=part",
    ];
    assert_eq!(others, expected);
    let mut named: Vec<_> = note[0].lines().skip(1).collect();
    named.sort_unstable();
    assert_eq!(named, ["current/away", "current/env", "up"]);
    for path in ["current/sub/part", "config", "beside/f", "current/away"] {
        assert_eq!(server.get(&format!("/app/{path}")).status, 200, "{path}");
    }
}

#[test]
fn an_archive_has_nothing_behind_links_that_the_asker_may_not_read() {
    let server = Server::configured(
        "access.rule = [{paths = ['/app/.releases/3/sub', '/other', '/app/*/page'], allow = []}, \
         {allow = ['everyone']}]",
    );
    links_to_hidden_folders(&server);
    let archive = server.get("/app/?download=tar").body;
    let expected = ["app/=", "app/config=config", "app/current/="];
    let all = shown(&archive);
    let (note, others) = all.split_first().unwrap();
    assert_eq!(others, expected);
    let mut named: Vec<_> = note.lines().skip(1).collect();
    named.sort_unstable();
    assert_eq!(named, ["current/env", "up"]);
    for path in ["current/sub/part", "through", "beside/f", "current/page"] {
        assert_eq!(server.get(&format!("/app/{path}")).status, 403, "{path}");
    }
}

#[test]
fn a_link_that_a_get_does_not_follow_is_in_no_archive() {
    for (symlinks, expected) in [
        ("none", &["d/=", "d/f=f"][..]),
        ("inside", &["d/=", "d/f=f"]),
        ("all", &["d.left-out", "d/=", "d/f=f"]),
    ] {
        let server = Server::configured(&format!("symlinks = '{symlinks}'"));
        server.write("d/f", "f");
        fs::write(server.outside().join("secret"), "secret").unwrap();
        symlink("../../secret", server.site().join("d/outside")).unwrap();
        let archive = server.get("/d/?download=tar").body;
        let shown = shown(&archive);
        let shown = shown.iter().map(|shown| match shown.split_once(".txt=") {
            Some((name, _)) => name,
            None => shown,
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{symlinks}");
    }
}

#[test]
fn an_archive_leaves_the_connection_open() {
    let server = site();
    let mut client = server.connect();
    for extension in ["tar", "tar.zst"] {
        let answer = client.get(&format!("/?download={extension}"));
        let name = format!("attachment; filename=\"files.{extension}\"");
        assert_eq!(answer.field("content-disposition"), Some(&name[..]));
        assert_eq!(client.state(), State::Open);
    }
}

#[test]
fn a_compressed_archive_is_the_same_one() {
    let server = site();
    let plain = server.get("/d/?download=tar").body;
    let answer = server.get("/d/?download=tar.zst");
    assert_eq!(answer.field("content-type"), Some("application/zstd"));
    assert!(answer.body.len() < plain.len());
    let unpacked = zstd::stream::decode_all(&answer.body[..]).unwrap();
    assert!(unpacked == plain, "another archive");
}

#[test]
fn an_old_client_gets_an_archive_to_the_end_of_the_connection() {
    let server = site();
    let plain = server.get("/d/?download=tar").body;
    let old = server.ask("GET /d/?download=tar HTTP/1.0\r\n\r\n");
    assert_eq!(old.field("connection"), Some("close"));
    assert!(old.body == plain, "another archive");
}

#[test]
fn what_may_not_be_read_is_named_in_a_note() {
    let server = site();
    let locked = server.site().join("d/small");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&locked).is_ok() {
        // Root may read everything; for root, folders nested too deeply are left out.
        let deep = server.site().join("d").join("x/".repeat(70));
        fs::create_dir_all(deep).unwrap();
    }
    let answer = server.get("/d/?download=tar");
    let members = members(&answer.body);
    let note = members
        .iter()
        .find(|member| member.name == "d.left-out.txt");
    let note = String::from_utf8(note.unwrap().content.clone()).unwrap();
    assert_eq!(note.lines().count(), 2, "{note}");
}

/// Returns a client that has the start of an archive with one large file, which the server has
/// already opened, and reads no further.
fn stalled(query: &str) -> (Server, HttpClient) {
    let server = Server::start();
    server.write("d/large", noise());
    let mut client = HttpClient::connect_slow(server.address());
    client.ask(&format!("/d/?{query}"));
    assert_eq!(client.head().status, 200);
    client.await_bytes(64 << 10);
    (server, client)
}

#[test]
fn a_file_that_shrinks_ends_the_connection() {
    for query in ["download=tar", "download=tar.zst"] {
        let (server, mut client) = stalled(query);
        let path = server.site().join("d/large");
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(LARGE as u64 / 2).unwrap();
        let body = client.rest();
        assert!(body.len() < LARGE, "nothing was missing");
        assert!(!body.ends_with(b"\r\n0\r\n\r\n"), "{query} looks complete");
    }
}

#[test]
fn a_file_that_grows_is_cut_at_its_announced_size() {
    let (server, mut client) = stalled("download=tar");
    let path = server.site().join("d/large");
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(LARGE as u64 * 2).unwrap();
    let mut archive = Vec::new();
    while let Some(chunk) = client.chunk().unwrap() {
        archive.extend_from_slice(&chunk);
    }
    let members = members(&archive);
    assert_eq!(names(&members), ["d/", "d/large"]);
    assert!(members[1].content == noise(), "another content");
}

#[test]
fn only_so_many_archives_are_made_at_once() {
    let server = Server::start();
    server.write("d/large", pattern(1 << 20).repeat(LARGE >> 20));
    let mut clients = Vec::new();
    let status = loop {
        let mut client = HttpClient::connect_slow(server.address());
        client.ask("/d/?download=tar");
        match client.head().status {
            200 => clients.push(client),
            status => break status,
        }
        assert!(clients.len() < 100, "there is no bound");
    };
    assert_eq!(status, 503);
    drop(clients.pop());
    // Its slot is free once the server has noticed that the client is gone.
    let is_free = || {
        let mut client = server.connect();
        client.send("HEAD /d/?download=tar HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head().status == 200
    };
    while !is_free() {}
}
