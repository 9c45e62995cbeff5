//! Which system calls payload travels by, counted by strace: a promise of zero copies to user
//! space is one only where nothing went through read and write.

#[path = "support/served.rs"]
mod served;
#[path = "support/strace.rs"]
mod strace;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use served::{Served, curl};
use sha2::{Digest, Sha256};
use strace::{Call, bytes, calls, strace};

const GIB: u64 = 1 << 30;
const MIB: usize = 1 << 20;

/// More than any head, less than any body here.
const HEADS_MAX: u64 = 16 << 10;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name of letters")
}

/// A block of which no 4 KiB are like the others.
fn block(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut block = Vec::with_capacity(MIB);
    while block.len() < MIB {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        block.extend_from_slice(&(state | 0x0101_0101_0101_0101).to_le_bytes());
    }
    block
}

fn hash(mut from: impl Read) -> (u64, Vec<u8>) {
    let (mut hash, mut len, mut buffer) = (Sha256::new(), 0, vec![0; MIB]);
    loop {
        match from.read(&mut buffer).expect("reads") {
            0 => return (len, hash.finalize().to_vec()),
            read => {
                hash.update(&buffer[..read]);
                len += read as u64;
            }
        }
    }
}

fn is_socket(argument: &str) -> bool {
    argument.contains("<TCP:") || argument.contains("<TCPv6:")
}

/// Bytes that crossed between user space and anything but the tool's own files.
fn crossed(calls: &[Call], is_ours: impl Fn(&str) -> bool) -> u64 {
    let crossing = [
        "read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev",
        "pwritev2", "sendto", "sendmsg", "recvfrom", "recvmsg", "vmsplice",
    ];
    let of = |name: &&str| bytes(calls, name, |call| is_ours(call.argument(0)));
    crossing.iter().map(of).sum()
}

fn is_mapped(calls: &[Call], path: &Path) -> bool {
    calls
        .iter()
        .any(|call| call.name == "mmap" && call.arguments.contains(text(path)))
}

/// A folder below that of the site, which then has no file that the server could try at its start.
fn inside(site: &Path) -> PathBuf {
    let inside = site.join("inside");
    std::fs::create_dir_all(&inside).expect("a folder");
    inside
}

#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn a_download_of_a_gibibyte_is_splice_alone() {
    let folder = folder();
    let (site, log) = (folder.path().join("site"), folder.path().join("log"));
    let big = inside(&site).join("big");
    let mut file = File::create(&big).expect("a file");
    for number in 0..GIB / MIB as u64 {
        file.write_all(&block(number)).expect("room");
    }
    let server = Served::start_under(&strace(text(&log)), &site);
    let mut client = Command::new("curl")
        .args(["--silent", "--max-time", "120", &server.url("inside/big")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl starts");
    let got = hash(client.stdout.take().expect("a pipe"));
    assert!(client.wait().expect("ends").success());
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(got, hash(File::open(&big).expect("opens")), "the download");

    let calls = calls(&log);
    let sent = bytes(&calls, "splice", |call| is_socket(call.argument(2)));
    assert_eq!(sent, GIB, "by splice to the socket");
    let heads = crossed(&calls, is_socket);
    assert!(heads < HEADS_MAX, "{heads} bytes of heads");
    let is_big = |argument: &str| argument.contains(text(&big));
    let asks = |call: &&Call| call.name == "preadv2" && is_big(call.argument(0));
    let asked = calls.iter().filter(asks).count() as u64;
    let read = crossed(&calls, is_big);
    assert!(
        read <= asked,
        "{read} bytes by {asked} calls: only single bytes ask whether the file is in memory"
    );
    assert!(!is_mapped(&calls, &big), "the file is not mapped");
    let other = bytes(&calls, "sendfile", |call| is_socket(call.argument(0)));
    assert_eq!(other, 0);
    let told = format!("{GIB} bytes by splice");
    assert!(
        ended.stdout.contains(&told),
        "{} is no such account",
        ended.stdout
    );
}

#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn a_small_file_leaves_with_its_head_in_one_call() {
    let folder = folder();
    let (site, log) = (folder.path().join("site"), folder.path().join("log"));
    std::fs::write(inside(&site).join("small"), &block(1)[..5000]).expect("room");
    let server = Served::start_under(&strace(text(&log)), &site);
    let got = curl(&[&server.url("inside/small")]).stdout;
    assert_eq!(server.stop().code, Some(0));
    assert_eq!(hash(&*got), hash(&block(1)[..5000]));
    let calls = calls(&log);
    let sends: Vec<_> = calls
        .iter()
        .filter(|call| call.name.starts_with("send") || call.name.starts_with("write"))
        .filter(|call| is_socket(call.argument(0)))
        .collect();
    assert_eq!(sends.len(), 1, "{sends:#?}");
    assert!(sends[0].moved > Some(5000), "{sends:#?}");
}

/// Beside the tool: cargo puts the examples of the library there.
fn example(name: &str) -> PathBuf {
    let tool = Path::new(env!("CARGO_BIN_EXE_underpass"));
    let example = tool.with_file_name("examples").join(name);
    assert!(
        example.exists(),
        "{} is missing: cargo build -p underpass --examples",
        example.display()
    );
    example
}

#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn what_a_socket_brings_reaches_a_file_by_splice_alone() {
    const LEN: u64 = 256 << 20;
    let folder = folder();
    let (to, log) = (folder.path().join("to"), folder.path().join("log"));
    let [strace, arguments @ ..] = strace(text(&log));
    let mut receiver = Command::new(strace)
        .args(arguments)
        .arg(example("recv_to_file"))
        .args(["127.0.0.1:0", text(&to)])
        .stdout(Stdio::piped())
        .spawn()
        .expect("strace starts");
    let mut lines = BufReader::new(receiver.stdout.take().expect("a pipe")).lines();
    let address = lines.next().expect("an address").expect("text");
    let mut socket = TcpStream::connect(address).expect("connects");
    for number in 0..LEN / MIB as u64 {
        socket.write_all(&block(number)).expect("sends");
    }
    drop(socket);
    let account = lines.next().expect("an account").expect("text");
    assert!(receiver.wait().expect("ends").success(), "{account}");

    let mut expected = Sha256::new();
    (0..LEN / MIB as u64).for_each(|number| expected.update(block(number)));
    let expected = (LEN, expected.finalize().to_vec());
    assert_eq!(hash(File::open(&to).expect("opens")), expected);
    let calls = calls(&log);
    let is_to = |argument: &str| argument.contains(text(&to));
    let filled = bytes(&calls, "splice", |call| is_socket(call.argument(0)));
    let drained = bytes(&calls, "splice", |call| is_to(call.argument(2)));
    assert_eq!((filled, drained), (LEN, LEN), "{account}");
    assert_eq!(crossed(&calls, is_socket), 0, "received");
    assert_eq!(crossed(&calls, is_to), 0, "written");
    assert!(
        account.starts_with(&format!("{LEN} bytes by splice")),
        "{account}"
    );
}

/// `cp` of a sparse file, by whatever the file system offers and by sendfile: nothing is read or
/// written, and holes are not even looked at.
#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn a_copy_with_holes_neither_reads_nor_writes() {
    for only in [&[][..], &["--only", "sendfile"], &["--only", "splice"]] {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        let (from, to, log) = (path("from"), path("to"), path("log"));
        let file = File::create(&from).expect("a file");
        file.set_len(200 * MIB as u64 + 77).expect("a sparse file");
        for place in [0, 30, 150] {
            let at = place * MIB as u64;
            file.write_all_at(&block(place), at).expect("room");
        }
        file.sync_all().expect("allocated");
        let [strace, arguments @ ..] = strace(text(&log));
        let status = Command::new(strace)
            .args(arguments)
            .args([env!("CARGO_BIN_EXE_underpass"), "cp"])
            .args(only)
            .args([&from, &to])
            .status()
            .expect("strace starts");
        assert!(status.success(), "{only:?}");

        let calls = calls(&log);
        let is_ours = |argument: &str| argument.contains(text(folder.path()));
        assert_eq!(crossed(&calls, is_ours), 0, "{only:?}");
        assert!(!is_mapped(&calls, folder.path()), "{only:?}");
        let moved: u64 = ["copy_file_range", "sendfile"]
            .iter()
            .map(|name| bytes(&calls, name, |_| true))
            .sum::<u64>()
            + bytes(&calls, "splice", |call| is_ours(call.argument(2)));
        let cloned = calls
            .iter()
            .any(|call| call.arguments.contains("FICLONE") && call.moved == Some(0));
        assert!(cloned || moved == 3 * MIB as u64, "{only:?}: {moved} bytes");
        let sizes = |path| {
            let file = std::fs::metadata(path).expect("metadata");
            (file.len(), file.blocks() * 512)
        };
        let ((len, had), (got, taken)) = (sizes(&from), sizes(&to));
        assert_eq!(got, len, "{only:?}");
        assert!(
            taken <= had + (64 << 10),
            "{only:?}: {taken} allocated, not {had}"
        );
        let hash_of = |path| hash(File::open(path).expect("opens"));
        assert_eq!(hash_of(&to), hash_of(&from), "{only:?}");
    }
}
