//! Folders with more entries than a sorted page may have.

use std::fs;
use std::path::Path;

use underpass_testkit::{HttpClient, is_alone};

use crate::support::{Server, peak_kib};

const ENTRIES: usize = 100_000;
/// Memory for a listing, in addition to what this process needs anyway.
const GROWTH_KIB_MAX: u64 = 24 << 10;

fn fill(folder: &Path) {
    for number in 0..ENTRIES {
        fs::File::create(folder.join(format!("a file with a name of its own, number {number}")))
            .unwrap();
    }
}

fn ask(server: &Server, target: &str) -> HttpClient {
    let mut client = HttpClient::connect_slow(server.address());
    client.ask(target);
    client
}

/// Reads the rest of a chunked body, and returns its number of rows, each of which is a line, and
/// its end.
fn count(client: &mut HttpClient) -> (usize, Vec<u8>) {
    const ROW: &[u8] = b"<tr><th scope=\"row\">";
    let (mut rows, mut last) = (0, Vec::new());
    while let Some(chunk) = client.chunk().unwrap() {
        let lines = chunk.split(|&byte| byte == b'\n');
        rows += lines.filter(|line| line.starts_with(ROW)).count();
        last = chunk;
    }
    (rows, last)
}

#[test]
fn a_large_folder_is_sent_as_it_is_read() {
    if !is_alone(module_path!(), "a_large_folder_is_sent_as_it_is_read") {
        return;
    }
    // In memory, creating the files takes seconds instead of minutes.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let server = Server::with(|options| options.sites[0].root = folder.path().into());
    fill(folder.path());
    let before = peak_kib();

    // The whole folder, unsorted, as the page states.
    let mut client = ask(&server, "/?sort=size");
    let head = client.head();
    assert_eq!(head.status, 200);
    let opening = client.chunk().unwrap().unwrap();
    assert!(opening.ends_with(b"<main id=\"files\" tabindex=\"-1\">\n"));
    let (rows, last) = count(&mut client);
    assert_eq!(rows, ENTRIES);
    assert!(last.ends_with(b"</html>\n"));

    // Search results are sorted.
    let answer = server.get("/?search=number+9999&sort=name&order=desc");
    let page = String::from_utf8(answer.body).unwrap();
    let found: Vec<_> = page
        .split("<bdi>a file with a name of its own, number ")
        .skip(1)
        .map(|rest| rest.split('<').next().unwrap())
        .collect();
    assert_eq!(found[0], "99999");
    assert_eq!(found.len(), 11);
    assert_eq!(found[10], "9999");

    let growth = peak_kib() - before;
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");

    // Without a reader the server stops reading the folder: files deleted now are not listed.
    let mut client = ask(&server, "/");
    client.head();
    client.chunk().unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let (rows, last) = count(&mut client);
    assert!(rows < ENTRIES / 2, "{rows} rows were read ahead");
    assert!(
        last.ends_with(b"</html>\n"),
        "the page is complete all the same"
    );
}
