//! Archives unpacked by other programs: the result is the original tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use crate::support::{Server, make_old, pattern};

/// Returns type, modification time and hash of everything below a folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut tree = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let what = match metadata.file_type() {
                kind if kind.is_dir() => {
                    folders.push(path.clone());
                    "folder".to_owned()
                }
                kind if kind.is_symlink() => format!("link to {:?}", fs::read_link(&path).unwrap()),
                _ => format!(
                    "{:o} {}.{} {:?}",
                    metadata.mode(),
                    metadata.mtime(),
                    metadata.mtime_nsec(),
                    Sha256::digest(fs::read(&path).unwrap())
                ),
            };
            tree.insert(path.strip_prefix(folder).unwrap().to_owned(), what);
        }
    }
    tree
}

/// Starts a site with names and contents of all kinds.
fn site() -> Server {
    let server = Server::start();
    let long = "a name that is long ".repeat(12);
    for (number, size) in [0, 1, 511, 512, 513, 5000, 3 << 20].into_iter().enumerate() {
        server.write(format!("d/sizes/{number}"), pattern(size));
    }
    server.write(format!("d/{long}/{long}/f"), "deep");
    server.write("d/\u{fc}ml\u{e4}ut/\u{1f600}", "text");
    server.write("d/line\nend \\ \"quote\"", "odd");
    let folder = server.site().join("d");
    for name in [&b"\xff\xfe"[..], b"\x80 not text"] {
        let path = folder.join(OsStr::from_bytes(name));
        fs::write(&path, "bytes").unwrap();
        make_old(&path);
    }
    fs::create_dir(folder.join("empty")).unwrap();
    symlink("sizes/3", folder.join("link")).unwrap();
    symlink(format!("{long}/{long}/f"), folder.join("long link")).unwrap();
    server
}

/// Unpacks an archive with a command that reads standard input.
fn unpack(archive: &[u8], command: &str, arguments: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().with_extension("archive");
    fs::write(&file, archive).unwrap();
    let status = Command::new(command)
        .args(arguments)
        .current_dir(folder.path())
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::from(fs::File::open(&file).unwrap()))
        .status()
        .unwrap();
    fs::remove_file(&file).unwrap();
    assert!(status.success(), "{command}");
    folder
}

#[test]
#[ignore = "needs tar, bsdtar, zstd and curl; run by cargo xtask test"]
fn the_tree_that_comes_out_is_the_one_that_went_in() {
    let server = site();
    let expected = tree(&server.site());
    let plain = server.get("/d/?download=tar").body;
    let compressed = server.get("/d/?download=tar.zst").body;
    for (archive, command, arguments) in [
        (&plain, "tar", &["-xpf", "-"][..]),
        (&compressed, "tar", &["-xp", "--zstd", "-f", "-"]),
        (&plain, "bsdtar", &["-xpf", "-"]),
    ] {
        let unpacked = unpack(archive, command, arguments);
        assert_eq!(tree(unpacked.path()), expected, "{command} {arguments:?}");
    }
}

#[test]
#[ignore = "needs tar, bsdtar, zstd and curl; run by cargo xtask test"]
fn a_sparse_file_beyond_8_gib_has_its_size() {
    const SIZE: u64 = (8 << 30) + 12_345;
    let server = Server::start();
    fs::create_dir(server.site().join("d")).unwrap();
    let large = fs::File::create(server.site().join("d/large")).unwrap();
    large.set_len(SIZE).unwrap();
    let url = format!("http://{}/d/?download=tar", server.address());
    // Only the start is read, so tar complains about the missing rest.
    let script = "curl -s \"$0\" | head -c 8192 | tar --list --verbose --file=-";
    let listed = Command::new("sh").args(["-c", script, &url]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    assert!(listed.contains(&SIZE.to_string()), "{listed}");
}
