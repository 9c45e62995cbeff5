//! `send` and `recv`: the real tool at both ends, and curl and tar at one.

use std::fs;
use std::path::Path;
use std::process::Command;

use underpass_testkit::{
    ChildProcess, assert_private_mounts, assert_same_files, content, run, run_with_input,
};

const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

/// Starts a waiting side, and returns the lines that it prints for the other one.
fn waiting(words: &[&str], folder: &Path) -> (ChildProcess, String, String) {
    let mut command = Command::new(BINARY);
    command.args(words).args(["--listen", "127.0.0.1:0"]);
    command
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder.join("state"));
    let process = ChildProcess::spawn(&mut command);
    process.hear("on the other machine:");
    let ours = process.hear("underpass ");
    let curl = process.hear("curl ").trim().to_owned();
    let ticket = ours.split_whitespace().last().expect("a ticket").to_owned();
    (process, ticket, curl)
}

fn tool(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(words).current_dir(folder);
    command
}

#[test]
fn a_file_and_a_folder_arrive_whichever_side_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    fs::create_dir_all(top.join("photos/2026")).expect("room");
    fs::write(top.join("photos/2026/one"), content(1, 300_000)).expect("room");
    fs::write(top.join("film"), content(2, 5_000_000)).expect("room");
    for (mode, into) in [("", "a"), ("--plain", "b")] {
        let extra: &[&str] = if mode.is_empty() { &[] } else { &[mode] };
        let (there, back) = (top.join(into), top.join(format!("{into}2")));
        fs::create_dir(&there).expect("room");
        fs::create_dir(&back).expect("room");
        let words = [&["recv", into][..], extra].concat();
        let (receiver, ticket, _) = waiting(&words, top);
        let sent = run(&mut tool(
            top,
            &["send", "film", "photos", &ticket, "--explain"],
        ));
        assert_eq!(sent.code, Some(0), "{sent:?}");
        // Plain bytes leave by the kernel alone.
        let by_kernel = sent.errors.contains("splice") || sent.errors.contains("sendfile");
        assert_eq!(by_kernel, mode == "--plain", "{sent:?}");
        assert_eq!(receiver.end().code, Some(0));
        let words = [&["send", "film", "photos"][..], extra].concat();
        let (sender, ticket, _) = waiting(&words, top);
        let received = run(&mut tool(&back, &["recv", &ticket]));
        assert_eq!(received.code, Some(0), "{received:?}");
        assert_eq!(sender.end().code, Some(0));
        for copy in [&there, &back] {
            assert_same_files(&top.join("film"), &copy.join("film"));
            let photo = "photos/2026/one";
            assert_same_files(&top.join(photo), &copy.join(photo));
        }
    }
}

#[test]
fn curl_and_tar_take_part_and_a_wrong_pin_sends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    fs::create_dir_all(top.join("photos")).expect("room");
    fs::create_dir_all(top.join("in")).expect("room");
    fs::write(top.join("photos/one"), content(1, 300_000)).expect("room");
    fs::write(top.join("film"), content(2, 2_000_000)).expect("room");
    let (receiver, _, line) = waiting(&["recv", "in", "--count", "2"], top);
    let shell = |script: &str| run(Command::new("sh").args(["-c", script]).current_dir(top));
    let curl = line.replacen("curl ", "curl -sS ", 1);
    let wrong = curl
        .replace("sha256//", "sha256//AAAA")
        .replace("FILE", "film");
    assert_ne!(shell(&wrong).code, Some(0));
    assert_eq!(fs::read_dir(top.join("in")).expect("a folder").count(), 0);
    let sent = shell(&curl.replace("FILE", "film"));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let sent = shell(&format!("tar -c photos | {}", curl.replace("FILE", "-")));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(receiver.end().code, Some(0));
    assert_same_files(&top.join("film"), &top.join("in/film"));
    assert_same_files(&top.join("photos/one"), &top.join("in/photos/one"));
    let (sender, _, line) = waiting(&["send", "film"], top);
    let fetch = line.replacen("curl ", "curl -sS ", 1);
    let fetched = shell(&format!("cd in && rm film && {fetch}"));
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert_eq!(sender.end().code, Some(0));
    assert_same_files(&top.join("film"), &top.join("in/film"));
}

#[test]
fn each_mistake_has_a_message_and_a_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    fs::write(top.join("film"), "content").expect("room");
    fs::create_dir(top.join("other")).expect("room");
    fs::write(top.join("other/film"), "content").expect("room");
    let (receiver, ticket, _) = waiting(&["recv"], top);
    let other = if ticket.ends_with('x') { 'y' } else { 'x' };
    let typo = format!("{}{other}", &ticket[..ticket.len() - 1]);
    let cut = &ticket[..ticket.len() - 9];
    for (words, code, says) in [
        (&["send", "film", &typo][..], 3, "copy the whole line"),
        (&["send", "film", cut][..], 3, "copy the whole line"),
        (&["send", &ticket][..], 2, "before the ticket"),
        (&["send", "missing", &ticket][..], 1, "missing"),
        (
            &["send", "film", "other/film", &ticket][..],
            2,
            "two of the paths",
        ),
        (
            &["send", "film", "host:22"][..],
            2,
            "start 'underpass recv'",
        ),
        (
            &["send", "film", "user@host:"][..],
            2,
            "start 'underpass recv'",
        ),
        (
            &["send", "film", "user@host:dir/x"][..],
            2,
            "start 'underpass recv'",
        ),
        (&["recv", "user@host:film"][..], 2, "start 'underpass recv'"),
        (&["send", "/"][..], 1, "has no name to store it under"),
        (&["send", "film", &ticket, &ticket][..], 2, "two tickets"),
        (
            &["send", "film", &ticket, "--to", "127.0.0.1:1"][..],
            7,
            "cannot be reached",
        ),
        (&["send", "film", &ticket][..], 1, "--force"),
    ] {
        let done = run(&mut tool(top, words));
        assert_eq!(done.code, Some(code), "{words:?}: {done:?}");
        assert!(done.errors.contains(says), "{words:?}: {done:?}");
    }
    drop(receiver);
    let gone = run(&mut tool(top, &["send", "film", &ticket]));
    assert_eq!(gone.code, Some(7), "{gone:?}");
}

#[test]
fn standard_input_is_sent_as_it_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    let (receiver, ticket, _) = waiting(&["recv"], top);
    let body = content(3, 3_000_000);
    let sent = run_with_input(&mut tool(top, &["send", "-", &ticket]), &body);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(receiver.end().code, Some(0));
    assert!(fs::read(top.join("stdin")).expect("a file") == body);
    fs::remove_file(top.join("stdin")).expect("a file");
    fs::write(top.join("body"), &body).expect("room");
    // The sender waits, with its input in a file.
    let script = "exec \"$0\" send - --listen 127.0.0.1:0 < body";
    let mut command = Command::new("sh");
    command.args(["-c", script, BINARY]).current_dir(top);
    let sender = ChildProcess::spawn(command.env("XDG_STATE_HOME", top.join("state")));
    let line = sender.hear("underpass recv ");
    let ticket = line.split_whitespace().last().expect("a ticket");
    let received = run(&mut tool(top, &["recv", ticket]));
    assert_eq!(received.code, Some(0), "{received:?}");
    assert_eq!(sender.end().code, Some(0));
    assert!(fs::read(top.join("stdin")).expect("a file") == body);
}

/// Starts a side that waits with a code, and returns the code with its address.
fn waiting_by_code(words: &[&str], folder: &Path) -> (ChildProcess, String) {
    let mut command = Command::new(BINARY);
    command
        .args(words)
        .args(["--code", "--listen", "127.0.0.1:0"]);
    command
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder.join("state"));
    let process = ChildProcess::spawn(&mut command);
    let line = process.hear("  underpass ");
    let code = line.split_whitespace().last().expect("a code").to_owned();
    assert!(
        !process.output().contains("curl"),
        "it would show the ticket"
    );
    (process, code)
}

#[test]
fn a_code_is_taken_from_argument_environment_and_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    fs::write(top.join("film"), content(2, 5_000_000)).expect("room");
    for way in ["argument", "environment", "input", "option"] {
        fs::create_dir(top.join(way)).expect("room");
        let (receiver, code) = waiting_by_code(&["recv", way], top);
        let mut send = tool(top, &["send", "film"]);
        let sent = match way {
            "argument" => run(send.arg(&code)),
            "environment" => run(send.env("UNDERPASS_TICKET", &code)),
            "input" => run_with_input(send.arg("--ask"), format!("{code}\n").as_bytes()),
            _ => {
                let (code, address) = code.split_once('@').expect("an address");
                run(send.args([code, "--to", address]))
            }
        };
        assert_eq!(sent.code, Some(0), "{way}: {sent:?}");
        assert_eq!(receiver.end().code, Some(0));
        assert_same_files(&top.join("film"), &top.join(way).join("film"));
    }
    let (sender, code) = waiting_by_code(&["send", "film"], top);
    fs::create_dir(top.join("back")).expect("room");
    let received = run(&mut tool(&top.join("back"), &["recv", &code]));
    assert_eq!(received.code, Some(0), "{received:?}");
    assert_eq!(sender.end().code, Some(0));
    assert_same_files(&top.join("film"), &top.join("back/film"));
}

#[test]
fn each_mistake_with_a_code_has_a_message_and_a_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    fs::write(top.join("film"), "content").expect("room");
    let (receiver, right) = waiting_by_code(&["recv", "in"], top);
    let (code, address) = right.split_once('@').expect("an address");
    let wrong = format!("1-lamp-river-goose@{address}");
    let typo = format!("1-lamp-rivr-goose@{address}");
    let joined = format!("1lamprivergoose@{address}");
    let few = format!("1-lamp-river@{address}");
    for (words, exit, says) in [
        (&["send", "film", &typo][..], 3, "word 2 of the code"),
        (&["send", "film", &few][..], 3, "three words"),
        (&["send", "film", code][..], 2, "HOST:PORT"),
        (&["send", "film", code, "--to", "127.0.0.1"][..], 2, "port"),
        (&["send", "film", &right, "--code"][..], 2, "connects"),
        (&["send", "film", &right, "--ask"][..], 2, "--ask"),
        (&["send", "-", "--ask"][..], 2, "UNDERPASS_TICKET"),
        (&["recv", "--code", "--plain"][..], 2, "needs encryption"),
        (&["send", "film", &wrong][..], 9, "does not accept the code"),
        (&["send", "film", &right][..], 9, "used up"),
    ] {
        let done = run(&mut tool(top, words));
        assert_eq!(done.code, Some(exit), "{words:?}: {done:?}");
        assert!(done.errors.contains(says), "{words:?}: {done:?}");
    }
    let mut send = tool(top, &["send", "film"]);
    let done = run(send.env("UNDERPASS_TICKET", joined));
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.errors.contains("hyphens"), "{done:?}");
    let next = receiver.hear("underpass send FILE... 2-");
    let next = next.split_whitespace().last().expect("a code").to_owned();
    let secret = next.split('@').next().expect("a code").to_owned();
    let sent = run(&mut tool(top, &["send", "film", &next]));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let end = receiver.end();
    assert_eq!(end.code, Some(0));
    assert!(end.errors.contains("tried a wrong code"), "{end:?}");
    assert!(!end.errors.contains(&secret), "{end:?}");
}

/// Sends a file over a network that is gone for a while, within a network namespace.
const UNREACHABLE: &str = r#"
set -eu
until_seen() { n=0; until grep -qs "$1" "$2"; do n=$((n+1)); test $n -lt 600; sleep 0.1; done; }
ip link set lo up
"$0" recv in --listen 127.0.0.1:4711 > waiting &
until_seen 'underpass send' waiting
ticket=$(sed -n 's/.*FILE... //p' waiting)
"$0" send film "$ticket" --bwlimit 4MiB --json > events &
sender=$!
until_seen connected events
ip link set lo down
until_seen 'no answer for' events
ip link set lo up
wait $sender
wait
"#;

#[test]
#[ignore = "needs root and network namespaces; run by cargo xtask test"]
fn a_network_that_is_gone_is_noticed_and_the_transfer_continues() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    fs::write(top.join("film"), content(2, 20_000_000)).expect("room");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", UNREACHABLE, BINARY]);
    command
        .current_dir(top)
        .env("XDG_STATE_HOME", top.join("state"));
    let done = run(&mut command);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_same_files(&top.join("film"), &top.join("in/film"));
}

/// Receives into file systems that are full and that cannot be written.
const NO_ROOM: &str = r#"
set -u
until_seen() { n=0; until grep -qs "$1" "$2"; do n=$((n+1)); test $n -lt 600; sleep 0.1; done; }
mkdir full fixed
mount -t tmpfs -o size=4m none full
mount -t tmpfs -o ro none fixed
"$0" recv fixed --listen 127.0.0.1:0 2> fixed.errors; echo "fixed $?"
"$0" recv full --keep-free 1MiB --listen 127.0.0.1:0 > waiting 2> errors &
until_seen 'underpass send' waiting
ticket=$(sed -n 's/.*FILE... //p' waiting)
"$0" send film "$ticket"; echo "file $?"
"$0" send - "$ticket" < film; echo "input $?"
head -c 2500000 film > part
"$0" send part "$ticket"; echo "part $?"
wait
"#;

#[test]
#[ignore = "needs root and mounts; run by cargo xtask test"]
fn a_lack_of_room_is_reported_with_numbers_before_the_disk_is_full() {
    assert_private_mounts();
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    fs::write(top.join("film"), content(2, 5_000_000)).expect("room");
    let mut command = Command::new("sh");
    command.args(["-c", NO_ROOM, BINARY]).current_dir(top);
    let done = run(command.env("XDG_STATE_HOME", top.join("state")));
    let ends: Vec<_> = done.output.lines().collect();
    assert_eq!(ends, ["fixed 1", "file 1", "input 1", "part 0"], "{done:?}");
    let numbers = "5 MiB are needed and 4 MiB are free, of which 1 MiB stay free";
    assert!(done.errors.contains(numbers), "{done:?}");
    let fixed = fs::read_to_string(top.join("fixed.errors")).expect("a message");
    assert!(fixed.contains("may not write there"), "{fixed}");
    assert_same_files(&top.join("part"), &top.join("full/part"));
}

#[test]
fn one_file_is_written_to_standard_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    fs::write(top.join("film"), content(2, 3_000_000)).expect("room");
    fs::write(top.join("other"), "content").expect("room");
    for mode in [&[][..], &["--plain"]] {
        let (sender, ticket, _) = waiting(&[&["send", "film"][..], mode].concat(), top);
        let mut shell = Command::new("sh");
        let script = "\"$0\" recv - \"$1\" --json > out";
        shell.args(["-c", script, BINARY, &ticket]).current_dir(top);
        let received = run(&mut shell);
        assert_eq!(received.code, Some(0), "{received:?}");
        assert!(received.errors.contains("\"end\""), "{received:?}");
        assert_eq!(sender.end().code, Some(0));
        assert_same_files(&top.join("film"), &top.join("out"));
    }
    let (sender, ticket, _) = waiting(&["send", "film", "other"], top);
    let refused = run(&mut tool(top, &["recv", "-", &ticket]));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.errors.contains("takes one file"), "{refused:?}");
    drop(sender);
    let alone = run(&mut tool(top, &["recv", "-"]));
    assert_eq!(alone.code, Some(2), "{alone:?}");
}
