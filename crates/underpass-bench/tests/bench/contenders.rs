//! Contenders that hang, leave the wrong thing behind or are missing: the others are measured.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::support::{
    BINARY, WAITS, assert_left_out, bench, bench_without, list, metric, names, read, spawn_into,
    underpass,
};
use rustix::process::Signal;
use underpass_testkit::{ChildProcess, assert_contains};

const SMALL: [&str; 5] = ["copy", "--sizes", "10KiB", "--rounds", "2"];

/// The tool under a shell's default for Ctrl-C.
fn interruptible() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", BINARY]);
    command
}

/// Sends Ctrl-C; the tool must end within the time of one wait, with its code for that.
fn interrupt(bench: ChildProcess) {
    bench.signal(Signal::INT);
    assert_eq!(bench.end().code, Some(130));
}

#[test]
fn a_program_that_leaves_something_else_than_a_copy_is_left_out() {
    let spoilers = [
        ("fifo", "mkfifo {to}", "the copy is not a regular file"),
        ("folder", "mkdir {to}", "the copy is not a regular file"),
        (
            "link",
            "ln -s /dev/zero {to}",
            "the copy is not a regular file",
        ),
        ("mover", "mv {from} {to}", "there is no source"),
        (
            "emptier",
            "sh -c 'cp {from} {to} && : > {from}'",
            "the source has 0 bytes",
        ),
    ];
    let named = spoilers.map(|(name, command, _)| format!("{name}={command}"));
    let programs = named.iter().flat_map(|program| ["--program", program]);
    let programs: Vec<_> = programs.chain(["--program", "cp=cp {from} {to}"]).collect();
    let left_out = "emptier, fifo, folder, link, mover";
    let document = bench_without(left_out, &[&SMALL[..], &programs].concat());
    let experiment = &document["experiments"][0];
    assert_eq!(names(experiment).last(), Some(&"cp"));
    let notes = experiment["notes"].to_string();
    for (name, _, why) in spoilers {
        assert_contains(&notes, &[&format!("{name}: {why}")]);
    }
}

#[test]
fn a_source_that_is_emptied_in_the_middle_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let log = log.display();
    // 1 for the trial, 40 for the warm-up.
    let emptier = format!(
        "emptier=sh -c 'echo >> {log}; cp {{from}} {{to}}; \
         test $(wc -l < {log}) -le 41 || : > {{from}}'"
    );
    let arguments = [&SMALL[..], &["--program", &emptier]].concat();
    let document = bench_without("emptier", &arguments);
    let case = &document["experiments"][0]["cases"][0];
    let failed = "emptier failed in round 1 of 2 and is left out from there on";
    assert_contains(&case["notes"].to_string(), &[failed]);
    let figures = list(&list(case, "metrics")[0], "figures");
    let (last, others) = figures.split_last().expect("contenders");
    assert!(last.is_null() && others.iter().all(|one| !one.is_null()));
}

#[test]
fn where_all_contenders_fail_the_report_names_them() {
    let folder = Path::new(BINARY).parent().expect("a folder");
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    let (own, json) = (
        folder.path().join("underpass"),
        folder.path().join("result.json"),
    );
    let bench = folder.path().join("underpass-bench");
    fs::hard_link(underpass(), &own).expect("a second name");
    fs::hard_link(BINARY, &bench).expect("a second name");
    // 1 start for the trial, 1 for the warm-up, 1 for the first round; our own server has no
    // program any more after the next one.
    let spoiler = format!(
        "spoiler=sh -c 'echo >> {{own}}/starts; if test $(wc -l < {{own}}/starts) -le 3; then \
         exec {} serve {{root}} --listen {{address}} --workers 1; fi; rm -f {}; exit 1'",
        underpass(),
        own.display()
    );
    let few = ["many", "--quick", "--connections", "2", "--rounds", "4"];
    let arguments = [&few[..], &["--server", &spoiler]].concat();
    let ended = spawn_into(&mut Command::new(&bench), &arguments, &json).end_within(WAITS);
    assert_left_out(&ended, "spoiler, underpass");
    assert_contains(
        &ended.output,
        &["spoiler failed in round", "underpass failed"],
    );
    let document = read(&json);
    assert_eq!(document["outcome"], "complete");
    let notes = document["experiments"][0]["notes"].to_string();
    assert_contains(
        &notes,
        &["spoiler failed in round 2", "underpass failed in"],
    );
}

#[test]
fn a_program_that_prints_more_than_a_pipe_holds_is_measured() {
    let loud = "loud=sh -c 'head -c 1000000 /dev/zero >&2; cp {from} {to}'";
    let document = bench(&[&SMALL[..], &["--program", loud]].concat());
    assert_eq!(names(&document["experiments"][0]).last(), Some(&"loud"));
}

#[test]
fn the_first_interrupt_ends_a_run_whose_contender_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, started) = (folder.path().join("json"), folder.path().join("started"));
    let hang = format!("echo > {}; exec sleep 1000", started.display());
    let program = format!("hanging=sh -c '{hang}'");
    let peer = format!("hanging=sh -c 'echo ready hanging 1; read job; {hang}'");
    for contender in [["--program", &program], ["--peer", &peer]] {
        let arguments = [&SMALL[..], &contender].concat();
        let mut bench = spawn_into(&mut interruptible(), &arguments, &json);
        bench.until(|| started.exists());
        interrupt(bench);
        assert_eq!(read(&json)["outcome"], "interrupted");
        std::fs::remove_file(&started).expect("it was there");
    }
}

#[test]
fn a_server_that_ignores_sigterm_is_killed_and_the_rounds_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, log) = (folder.path().join("json"), folder.path().join("log"));
    let (underpass, logged) = (underpass(), log.display());
    let stubborn = format!(
        "stubborn=sh -c 'trap : TERM; {underpass} serve {{root}} --listen {{address}} \
         --log-file {logged} & while sleep 1; do :; done'"
    );
    let few = ["http", "--sizes", "1KiB", "--connections", "2"];
    let long = ["--requests", "4", "--only", "none", "--rounds", "100000"];
    let arguments = [&few[..], &long, &["--server", &stubborn]].concat();
    let mut command = interruptible();
    // Without `ip` there is one loopback.
    let mut bench = spawn_into(command.env("PATH", "/usr/bin"), &arguments, &json);
    let lines = || std::fs::read_to_string(&log).map_or(0, |log| log.lines().count());
    bench.until(|| lines() > 100);
    interrupt(bench);
    let document = read(&json);
    let experiment = &document["experiments"][0];
    let notes = experiment["notes"].to_string();
    assert_contains(&notes, &["stubborn ignored SIGTERM for 10s"]);
    let rounds = &metric(&list(experiment, "cases")[0], "requests")["figures"][1]["rounds"];
    assert!(rounds.as_array().is_some_and(|rounds| !rounds.is_empty()));
    let script = experiment["contenders"][1]["command"][2].as_str();
    let address = script.and_then(|script| script.split_once("--listen "));
    let address = address.and_then(|(_, rest)| rest.split(' ').next());
    assert!(TcpStream::connect(address.expect("an address")).is_err());
}

#[test]
fn a_directory_without_room_does_not_end_the_measurement_in_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let (there, missing) = (folder.path().display(), folder.path().join("missing"));
    let missing = missing.display();
    let (there, missing) = (format!("--in={there}"), format!("--in={missing}"));
    let folders = [&SMALL[..], &[&missing, &there]].concat();
    let place = missing.replacen("--in=", "in ", 1);
    let document = bench_without(&place, &folders);
    let experiments = list(&document, "experiments");
    let notes = experiments[0]["notes"].to_string();
    assert_contains(&notes, &["not measured: creating a directory in"]);
    assert_eq!(experiments[0]["left_out"][0], place);
    assert!(!list(&experiments[1], "cases").is_empty());
}
