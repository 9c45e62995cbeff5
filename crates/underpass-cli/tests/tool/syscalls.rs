//! The system calls that move payload, counted by strace: the promise of no copies to user space
//! holds only if no payload goes through read and write.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use underpass_testkit::{
    ChildProcess, ServerProcess, TracedCall, WAIT_MAX, bytes_by, content, disk_folder, run,
    sha256_file, sha256_reader, strace, traced_calls,
};

use crate::support::{BINARY, example, text};

/// Every call that could move payload.
const PAYLOAD_CALLS: &str = "trace=read,readv,pread64,preadv,preadv2,write,writev,\
     pwrite64,pwritev,pwritev2,sendto,sendmsg,sendmmsg,recvfrom,recvmsg,recvmmsg,sendfile,splice,\
     vmsplice,tee,copy_file_range,ioctl,mmap,lseek";

const GIB: u64 = 1 << 30;
const MIB: usize = 1 << 20;

/// More than any head, less than any body here.
const HEADS_MAX: u64 = 16 << 10;

/// Returns strace for these calls; it prints the path or kind of each descriptor.
fn traced(log: &Path) -> Command {
    let mut strace = strace(log, &[PAYLOAD_CALLS]);
    strace.arg("-yy");
    strace
}

/// Starts a traced server of a folder.
fn serve(log: &Path, site: &Path) -> ServerProcess {
    let mut tool = traced(log);
    tool.arg(BINARY);
    ServerProcess::serve(tool, &["--workers", "1"], site)
}

/// Returns a block whose pages of 4 KiB differ from each other.
fn block(seed: u64) -> Vec<u8> {
    content(seed, MIB)
}

fn is_socket(argument: &str) -> bool {
    argument.contains("<TCP:") || argument.contains("<TCPv6:")
}

/// Returns the bytes that crossed between user space and anything but the tool's own files.
fn crossed(calls: &[TracedCall], is_ours: impl Fn(&str) -> bool) -> u64 {
    let crossing = [
        "read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev",
        "pwritev2", "sendto", "sendmsg", "recvfrom", "recvmsg", "vmsplice",
    ];
    let of = |name: &&str| bytes_by(calls, name, |call| is_ours(call.argument(0)));
    crossing.iter().map(of).sum()
}

fn is_mapped(calls: &[TracedCall], path: &Path) -> bool {
    calls
        .iter()
        .any(|call| call.name == "mmap" && call.arguments.contains(text(path)))
}

/// Returns a subfolder of the site; without files the server has nothing to probe at its start.
fn inside(site: &Path) -> PathBuf {
    let inside = site.join("inside");
    std::fs::create_dir_all(&inside).expect("a folder");
    inside
}

#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn a_download_of_a_gibibyte_is_splice_alone() {
    let folder = disk_folder();
    let (site, log) = (folder.path().join("site"), folder.path().join("log"));
    let big = inside(&site).join("big");
    let mut file = File::create(&big).expect("a file");
    for number in 0..GIB / MIB as u64 {
        file.write_all(&block(number)).expect("room");
    }
    let server = serve(&log, &site);
    let mut client = Command::new("curl")
        .args(["--silent", "--max-time", "120", &server.url("inside/big")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl starts");
    let got = sha256_reader(client.stdout.take().expect("a pipe"));
    assert!(client.wait().expect("ends").success());
    let ended = server.stop();
    ended.assert_success();
    assert_eq!(got, sha256_file(&big), "the download");

    let calls = traced_calls(&log);
    let sent = bytes_by(&calls, "splice", |call| is_socket(call.argument(2)));
    assert_eq!(sent, GIB, "by splice to the socket");
    let heads = crossed(&calls, is_socket);
    assert!(heads < HEADS_MAX, "{heads} bytes of heads");
    let is_big = |argument: &str| argument.contains(text(&big));
    let asks = |call: &&TracedCall| call.name == "preadv2" && is_big(call.argument(0));
    let asked = calls.iter().filter(asks).count() as u64;
    let read = crossed(&calls, is_big);
    assert!(
        read <= asked,
        "{read} bytes by {asked} calls: only single bytes ask whether the file is in memory"
    );
    assert!(!is_mapped(&calls, &big), "the file is not mapped");
    let other = bytes_by(&calls, "sendfile", |call| is_socket(call.argument(0)));
    assert_eq!(other, 0);
    let reported = format!("{GIB} bytes by splice");
    ended.assert_output(&[&reported]);
}

#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn a_small_file_leaves_with_its_head_in_one_call() {
    let folder = disk_folder();
    let (site, log) = (folder.path().join("site"), folder.path().join("log"));
    std::fs::write(inside(&site).join("small"), &block(1)[..5000]).expect("room");
    let server = serve(&log, &site);
    assert_eq!(server.get("/inside/small").body, block(1)[..5000]);
    server.stop().assert_success();
    let calls = traced_calls(&log);
    let sends: Vec<_> = calls
        .iter()
        .filter(|call| call.name.starts_with("send") || call.name.starts_with("write"))
        .filter(|call| is_socket(call.argument(0)))
        .collect();
    assert_eq!(sends.len(), 1, "{sends:#?}");
    assert!(sends[0].returned > Some(5000), "{sends:#?}");
}

#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn what_a_socket_brings_reaches_a_file_by_splice_alone() {
    const LEN: u64 = 256 << 20;
    let folder = disk_folder();
    let (to, log) = (folder.path().join("to"), folder.path().join("log"));
    let mut receiver = traced(&log);
    let receiver = receiver.arg(example("recv_to_file"));
    let receiver = ChildProcess::spawn(receiver.args(["127.0.0.1:0", text(&to)]));
    let address = receiver.hear(":");
    let mut socket = TcpStream::connect(address).expect("connects");
    socket.set_write_timeout(Some(WAIT_MAX)).expect("an option");
    for number in 0..LEN / MIB as u64 {
        socket.write_all(&block(number)).expect("sends");
    }
    drop(socket);
    let report = receiver.end();
    report.assert_success();
    let account = report.output;

    let got = std::fs::read(&to).expect("reads");
    assert_eq!(got.len() as u64, LEN);
    let mut blocks = got.chunks(MIB).zip(0..);
    assert!(
        blocks.all(|(got, number)| got == block(number)),
        "another block"
    );
    let calls = traced_calls(&log);
    let is_to = |argument: &str| argument.contains(text(&to));
    let filled = bytes_by(&calls, "splice", |call| is_socket(call.argument(0)));
    let drained = bytes_by(&calls, "splice", |call| is_to(call.argument(2)));
    assert_eq!((filled, drained), (LEN, LEN), "{account}");
    assert_eq!(crossed(&calls, is_socket), 0, "received");
    assert_eq!(crossed(&calls, is_to), 0, "written");
    assert!(
        account.starts_with(&format!("{LEN} bytes by splice")),
        "{account}"
    );
}

/// `cp` of a sparse file, with the file system's best mechanism and with sendfile: no data is read
/// or written through the process, and holes are not read at all.
#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn a_copy_with_holes_neither_reads_nor_writes() {
    for only in [&[][..], &["--only", "sendfile"], &["--only", "splice"]] {
        let folder = disk_folder();
        let path = |name: &str| folder.path().join(name);
        let (from, to, log) = (path("from"), path("to"), path("log"));
        let file = File::create(&from).expect("a file");
        file.set_len(200 * MIB as u64 + 77).expect("a sparse file");
        for place in [0, 30, 150] {
            let at = place * MIB as u64;
            file.write_all_at(&block(place), at).expect("room");
        }
        file.sync_all().expect("allocated");
        let mut cp = traced(&log);
        cp.args([BINARY, "cp"]).args(only).args([&from, &to]);
        run(&mut cp).assert_success();

        let calls = traced_calls(&log);
        let is_ours = |argument: &str| argument.contains(text(folder.path()));
        assert_eq!(crossed(&calls, is_ours), 0, "{only:?}");
        assert!(!is_mapped(&calls, folder.path()), "{only:?}");
        let moved: u64 = ["copy_file_range", "sendfile"]
            .iter()
            .map(|name| bytes_by(&calls, name, |_| true))
            .sum::<u64>()
            + bytes_by(&calls, "splice", |call| is_ours(call.argument(2)));
        let cloned = calls
            .iter()
            .any(|call| call.arguments.contains("FICLONE") && call.returned == Some(0));
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
        assert_eq!(sha256_file(&to), sha256_file(&from), "{only:?}");
    }
}
