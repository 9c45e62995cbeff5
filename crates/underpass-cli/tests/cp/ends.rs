//! Signals, a closed standard output, and a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::copying::{MIB, file, len, nameless_len, names, start_cp, underpass};
use underpass_testkit::{ChildProcess, assert_same_files, content, disk_folder};

/// Ends a copy by a signal and returns its messages. A copy that ends first has another code.
#[track_caller]
fn ends_by(copying: ChildProcess, signal: Signal, code: i32) -> String {
    copying.signal(signal);
    let ran = copying.end();
    assert_eq!(ran.code, Some(code), "{ran:?}");
    ran.errors
}

#[test]
fn ctrl_c_ends_a_large_copy_at_once_and_its_progress_is_reported() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 32 * MIB);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dest = path("dest");
        let options = ["--reflink=never", "--bwlimit=4M"];
        let mut copying = start_cp(&options, &[&source, &dest]);
        copying.until(|| len(&dest) >= MIB);
        let said = ends_by(copying, signal, code);
        let got = fs::read(&dest).expect("a part stays");
        assert!(content(1, 32 * MIB).starts_with(&got));
        let reported = format!(
            "stopped copying '{}' after {} bytes (to '{}')",
            source.display(),
            got.len(),
            dest.display()
        );
        assert!(said.contains(&reported), "{said} {}", got.len());
        fs::remove_file(dest).expect("ours");
    }
}

#[test]
fn a_stopped_copy_reports_its_bytes_to_programs() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let (source, dest) = (file(&path("source"), 1, 32 * MIB), path("dest"));
    let options = ["--json", "--reflink=never", "--bwlimit=4M"];
    let mut copying = start_cp(&options, &[&source, &dest]);
    copying.until(|| len(&dest) >= MIB);
    copying.signal(Signal::INT);
    let ran = copying.end();
    let moved = format!("\"moved\":{},", len(&dest));
    assert!(ran.output.contains(&moved), "{moved}: {ran:?}");
}

#[test]
fn ctrl_c_in_an_atomic_copy_leaves_the_old_files_and_nothing_beside() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("source")).expect("a folder");
    fs::create_dir_all(path("dest")).expect("a folder");
    for number in 0..4 {
        file(&path(&format!("source/{number}")), number, 8 * MIB);
        fs::write(path(&format!("dest/{number}")), b"old").expect("room");
    }
    let options = ["-rT", "--atomic", "--reflink=never", "--bwlimit=16M"];
    let mut copying = start_cp(&options, &[path("source"), path("dest")]);
    // One is complete, another has started.
    let replaced = |number: &usize| len(&path(&format!("dest/{number}"))) > 3;
    let process = copying.id();
    copying.until(|| (0..4).any(|number| replaced(&number)) && nameless_len(process) > 0);
    let said = ends_by(copying, Signal::INT, 130);
    assert_eq!(names(&path("dest")), ["0", "1", "2", "3"]);
    let whole: Vec<_> = (0..4).filter(replaced).collect();
    for number in &whole {
        assert_same_files(
            &path(&format!("source/{number}")),
            &path(&format!("dest/{number}")),
        );
    }
    assert!((1..4).contains(&whole.len()), "{whole:?}");
    let files = if whole.len() == 1 { "file" } else { "files" };
    let reported = format!("stopped: {} {files} copied", whole.len());
    assert!(said.contains(&reported), "{said}");
}

#[test]
fn ctrl_c_ends_what_has_no_end() {
    for only in ["sendfile", "splice", "read_write"] {
        let operands = ["/dev/zero", "/dev/null"];
        let mut copying = start_cp(&["--only", only], &operands);
        let process = copying.id();
        // Signals are caught from here on.
        copying.until(|| has_open(process, Path::new("/dev/zero")));
        ends_by(copying, Signal::INT, 130);
    }
}

/// Whether a process has a file open.
fn has_open(process: u32, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{process}/fd"));
    let mut open = open.into_iter().flatten().flatten();
    open.any(|fd| fs::read_link(fd.path()).is_ok_and(|name| name == path))
}

#[test]
fn ctrl_c_ends_a_copy_that_waits_for_the_other_end_of_a_fifo() {
    let folder = disk_folder();
    let base = fs::canonicalize(folder.path()).expect("there");
    let path = |name: &str| base.join(name);
    let (fifo, source, dest) = (path("fifo"), path("source"), path("dest"));
    file(&source, 1, 100);
    mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).expect("a FIFO");
    for jobs in ["-j1", "-j2"] {
        // No writer.
        let mut copying = start_cp(&[jobs], &[&fifo, &dest]);
        let process = copying.id();
        copying.until(|| has_open(process, &fifo));
        ends_by(copying, Signal::INT, 130);
        assert!(!dest.exists(), "nothing came");

        // A writer that then stays silent.
        let mut copying = start_cp(&[jobs], &[&fifo, &dest]);
        let mut writer = File::options().write(true).open(&fifo).expect("it is read");
        writer.write_all(b"so far").expect("it is read");
        copying.until(|| len(&dest) == 6);
        let said = ends_by(copying, Signal::INT, 130);
        let reported = "fifo' after 6 bytes";
        assert!(said.contains(reported), "{said}");
        drop(writer);
        fs::remove_file(&dest).expect("ours");

        // No reader: the source is open already, and opening the FIFO is the next step.
        for options in [&[jobs][..], &[jobs, "-f"], &[jobs, "--atomic"]] {
            let mut copying = start_cp(options, &[&source, &fifo]);
            let process = copying.id();
            copying.until(|| has_open(process, &source));
            ends_by(copying, Signal::INT, 130);
            let kind = fs::symlink_metadata(&fifo).expect("there").file_type();
            assert!(kind.is_fifo(), "{options:?}");
        }
    }
}

#[test]
fn unread_output_does_not_stop_a_copy() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("source")).expect("a folder");
    for number in 0..600 {
        fs::write(path(&format!("source/{number}")), b"some").expect("room");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    for (name, stdout, said) in [
        (
            "gone",
            Stdio::from(writer),
            "underpass cp: write error: Broken pipe\n",
        ),
        (
            "full",
            Stdio::from(
                File::options()
                    .write(true)
                    .open("/dev/full")
                    .expect("a device"),
            ),
            "underpass cp: write error: No space left on device\n",
        ),
    ] {
        let mut command = underpass();
        command
            .arg("-rTv")
            .args([path("source"), path(name)])
            .stdout(stdout);
        let output = command
            .stderr(Stdio::piped())
            .output()
            .expect("the tool starts");
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), said, "{name}");
        assert_eq!(names(&path("source")), names(&path(name)));
    }
}

/// Returns both ends of a terminal: the observer's and the program's.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let looks = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&looks).expect("ours");
    unlockpt(&looks).expect("ours");
    let name = ptsname(&looks, Vec::new()).expect("a name");
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&looks, size).expect("a size");
    let path = name.into_string().expect("letters");
    let program = File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the other end");
    (looks.into(), program.into())
}

/// Returns the output on a terminal with this width during a copy of 12 MiB that takes 1.5 s.
fn shown_on_terminal(columns: u16) -> String {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 12 * MIB);
    let (mut looks, program) = terminal(columns);
    let mut command = underpass();
    command
        .args(["--reflink=never", "--bwlimit=8M"])
        .args([&source, &path("dest")]);
    command.env("TERM", "xterm").stderr(Stdio::from(program));
    let mut child = command.spawn().expect("the tool starts");
    // Only the program has the other end open now: reading fails once it has ended.
    drop(command);
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = looks.read(&mut piece) {
        shown.extend_from_slice(&piece[..read]);
    }
    assert!(child.wait().expect("a child").success());
    assert_same_files(&source, &path("dest"));
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn a_terminal_is_shown_how_far_it_is() {
    let shown = shown_on_terminal(120);
    assert!(shown.contains("of 12.00 MiB, 0 of 1 files"), "{shown:?}");
    assert!(shown.contains("MiB/s"), "{shown:?}");
}

#[test]
fn narrow_terminals_are_shown_rate_and_time() {
    for columns in [40, 80] {
        let shown = shown_on_terminal(columns);
        let lines = shown.split(['\r', '\n']);
        let whole = |line: &str| line.contains("MiB/s, ") && line.contains(" left");
        let line = lines.rev().find(|line| whole(line));
        let line = line.unwrap_or_else(|| panic!("{shown:?}"));
        assert!(!line.contains("of 12.00 MiB, 0 of 1 files") || columns > 40);
    }
}

#[test]
fn progress_that_was_asked_for_is_a_line_where_there_is_no_terminal() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("source"), 1, 2 * MIB);
    let ran = start_cp(&["--progress"], &[&source, &path("dest")]).end();
    assert_eq!(ran.code, Some(0));
    assert!(ran.errors.starts_with("2.00 MiB, 1 file, "), "{ran:?}");
    assert_eq!(ran.errors.lines().count(), 1, "{ran:?}");
}
