//! Files without a true size, pipes and devices.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::copying::{CopyReport, MIB, cp, file, len, start_cp, tree, underpass};
use underpass_testkit::{assert_same_files, content, disk_folder};

/// Files that do not change between two reads.
const PROC: [&str; 4] = [
    "/proc/version",
    "/proc/filesystems",
    "/proc/devices",
    "/proc/sys/kernel/ostype",
];

/// Files with the size of a page, but less content.
const SYS: [&str; 4] = [
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/profiling",
    "/sys/kernel/uevent_seqnum",
    "/sys/devices/system/cpu/online",
];

fn existing(names: &'static [&str]) -> Vec<&'static Path> {
    let there = names
        .iter()
        .map(Path::new)
        .filter(|path| File::open(path).is_ok());
    let there: Vec<_> = there.collect();
    assert!(!there.is_empty(), "none of {names:?}");
    there
}

#[test]
fn files_of_proc_and_sys_are_copied_with_what_is_in_them() {
    let folder = disk_folder();
    let dest = folder.path().join("dest");
    let all = [existing(&PROC), existing(&SYS)].concat();
    let ways = [
        "--sparse=auto",
        "--sparse=always",
        "--atomic",
        "--resume",
        "--verify",
    ];
    for source in all {
        let expected = fs::read(source).expect("reads");
        assert!(!expected.is_empty(), "{source:?}");
        for way in ways {
            cp(&[way], &[source, &dest]).succeeded();
            assert_eq!(
                fs::read(&dest).expect("reads"),
                expected,
                "{source:?} {way}"
            );
        }
        for only in ["copy_range", "sendfile", "splice", "read_write"] {
            let ran = cp(&["--only", only], &[source, &dest]);
            if ran.code == Some(0) {
                assert_eq!(
                    fs::read(&dest).expect("reads"),
                    expected,
                    "{source:?} {only}"
                );
            } else {
                ran.failed_with(&["with the only mechanism allowed"]);
            }
        }
    }
}

#[test]
fn a_long_file_of_proc_is_whole() {
    let folder = disk_folder();
    let dest = folder.path().join("dest");
    let symbols = Path::new("/proc/kallsyms");
    cp(&[], &[symbols, &dest]).succeeded();
    assert!(len(&dest) > MIB, "{}", len(&dest));
    assert_same_files(symbols, &dest);
}

#[test]
fn devices_and_pipes_take_what_they_can() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 3 * MIB + 5);
    cp(&[], &[source.as_path(), Path::new("/dev/null")]).succeeded();
    cp(
        &["--atomic", "--fsync=dir", "--verify"],
        &[source.as_path(), Path::new("/dev/null")],
    )
    .succeeded();
    let null = fs::metadata("/dev/null").expect("there");
    assert!(null.file_type().is_char_device(), "it is not replaced");
    let ran = cp(&[], &[source.as_path(), Path::new("/dev/full")]);
    let ran = ran.failed_with(&["error writing '/dev/full': No space left on device"]);
    assert_eq!(
        ran.errors.matches("/dev/full").count(),
        1,
        "said once: {ran:?}"
    );

    let output = underpass()
        .arg(&source)
        .arg("/dev/stdout")
        .output()
        .expect("starts");
    assert!(output.status.success());
    assert!(output.stdout == content(1, 3 * MIB + 5));

    let mut command = underpass();
    command
        .arg("/dev/stdin")
        .arg(path("from pipe"))
        .stdin(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(&content(1, 3 * MIB + 5))
        .expect("it is read");
    drop(stdin);
    assert!(child.wait().expect("a child").success());
    assert_same_files(&source, &path("from pipe"));
}

#[test]
fn what_is_in_a_pipe_stays_what_the_file_was() {
    let folder = disk_folder();
    let source = file(&folder.path().join("source"), 1, 60_000);
    let mut command = underpass();
    command
        .args([source.as_path(), Path::new("/dev/stdout")])
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    assert!(child.wait().expect("a child").success());
    let mut written = File::options().write(true).open(&source).expect("opens");
    written.write_all(&[7; 60_000]).expect("writes");
    let mut got = Vec::new();
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_to_end(&mut got).expect("reads");
    assert!(got == content(1, 60_000));
}

#[test]
fn a_fifo_is_written_to_and_read_from() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 2 * MIB + 5);
    let fifo = path("fifo");
    mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).expect("a FIFO");
    let copying = start_cp(&["--atomic"], &[&source, &fifo]);
    let mut got = Vec::new();
    File::open(&fifo)
        .expect("opens")
        .read_to_end(&mut got)
        .expect("reads");
    assert_eq!(copying.end().code, Some(0));
    assert!(got == content(1, 2 * MIB + 5));
    assert!(fs::metadata(&fifo).expect("there").file_type().is_fifo());

    let copying = start_cp(&["--verify"], &[&fifo, &path("dest")]);
    let mut feed = File::options().write(true).open(&fifo).expect("opens");
    feed.write_all(&got).expect("it is read");
    drop(feed);
    assert_eq!(copying.end().code, Some(0));
    assert_same_files(&source, &path("dest"));
}

#[test]
fn a_fifo_in_a_tree_is_made_and_not_read() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("source")).expect("a folder");
    mkfifoat(CWD, path("source/fifo"), Mode::from_raw_mode(0o640)).expect("a FIFO");
    file(&path("source/file"), 1, 10);
    cp(&["-a"], &[path("source"), path("dest")]).succeeded();
    assert!(tree(&path("source")) == tree(&path("dest")));
}
