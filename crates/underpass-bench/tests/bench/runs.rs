//! `underpass-bench` from outside: small runs, whose figures mean nothing and whose counts must be
//! right.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::support::{
    BINARY, WAITS, assert_left_out, bench, bench_without, list, metric, names, read, spawn_into,
    underpass,
};
use rustix::process::Signal;
use serde_json::Value;
use underpass_testkit::{ChildProcess, assert_contains, run};

/// Contenders of the mover's own, by the mechanism each may use.
const OWN: [(&str, &str); 6] = [
    ("sendfile", "sendfile"),
    ("splice", "splice"),
    ("read/write 256 KiB", "read_write"),
    ("read/write 64 KiB", "read_write"),
    ("read/write 8 KiB", "read_write"),
    ("read/write 4 KiB", "read_write"),
];

fn travelled(case: &Value, contender: usize) -> Vec<(&str, u64)> {
    let all = list(case, "travelled").iter();
    let own = all.filter(|row| row["contender"] == contender);
    own.map(|row| {
        let mechanism = row["mechanism"].as_str().expect("a mechanism");
        (mechanism, row["bytes"].as_u64().expect("bytes"))
    })
    .collect()
}

#[test]
fn every_byte_of_socket_travels_by_the_mechanism_it_was_to_travel_by() {
    let document = bench(&["socket", "--sizes", "1MB,100KB", "--rounds", "2"]);
    assert_eq!(
        (&document["schema"], &document["outcome"]),
        (&3.into(), &"complete".into())
    );
    let experiments = list(&document, "experiments");
    let variants: Vec<&str> = experiments
        .iter()
        .map(|e| e["variant"].as_str().unwrap())
        .collect();
    assert_eq!(variants, ["receiver discards", "receiver copies"]);
    for experiment in experiments {
        assert_eq!(names(experiment), OWN.map(|(name, _)| name));
        let cases = list(experiment, "cases");
        assert_eq!(cases.len(), 2);
        for case in cases {
            let bytes_of_rounds = 2 * 100_000_000;
            for (contender, (_, mechanism)) in OWN.iter().enumerate() {
                assert_eq!(travelled(case, contender), [(*mechanism, bytes_of_rounds)]);
            }
            let rounds = metric(case, "cpu_per_gib")["figures"][0]["rounds"].as_array();
            assert_eq!(rounds.map(Vec::len), Some(2));
        }
    }
}

#[test]
fn a_smaller_buffer_takes_more_calls_and_the_report_counts_them() {
    let document = bench(&[
        "socket",
        "--sizes",
        "1MiB",
        "--rounds",
        "1",
        "--receiver",
        "copy",
    ]);
    let case = &document["experiments"][0]["cases"][0];
    let calls = |contender: usize| {
        let figures = &metric(case, "calls")["figures"][contender];
        figures["spread"]["median"].as_f64().expect("a figure")
    };
    assert!(calls(0) < 8.0, "sendfile: {}", calls(0));
    // A mebibyte by 4 KiB: 256 reads, and as many writes unless the socket takes less.
    assert!(calls(5) >= 512.0, "4 KiB: {}", calls(5));
}

#[test]
fn copies_are_made_by_each_mechanism_and_by_other_programs() {
    let left_out = "absent, idle, wrong";
    let arguments = [
        "copy",
        "--sizes",
        "10KiB,1MiB",
        "--rounds",
        "2",
        "--program",
        "the system's=cp {from} {to}",
        "--program",
        "absent=no-such-program {from} {to}",
        "--program",
        "idle=true",
        "--program",
        "wrong=sh -c 'head -c 3145745 /dev/zero > {to}'",
    ];
    let document = bench_without(left_out, &arguments);
    let experiment = &document["experiments"][0];
    let names = names(experiment);
    assert_eq!(names.first(), Some(&"underpass"));
    assert_eq!(names.last(), Some(&"the system's"));
    let notes = experiment["notes"].to_string();
    assert_contains(
        &notes,
        &[
            "absent",
            "idle: there is no copy",
            "wrong: the copy has other bytes",
        ],
    );
    for case in list(experiment, "cases") {
        let copier = names
            .iter()
            .position(|&name| name == "sendfile")
            .expect("sendfile");
        let size = case["x"].as_f64().expect("a size") as u64;
        let by = travelled(case, copier);
        assert_eq!(by[0].0, "sendfile");
        assert!(
            by[0].1 > 0 && by[0].1.is_multiple_of(2 * size),
            "{by:?} of {size}"
        );
    }
}

/// Small sources of every kind, and few rounds.
const SMALL_TREES: [&str; 11] = [
    "tree",
    "--quick",
    "--files",
    "120",
    "--large-size",
    "1MiB",
    "--sparse-size",
    "64MiB",
    "--rounds",
    "2",
    "--program",
];

#[test]
fn trees_and_special_files_are_copied_by_programs_and_compared() {
    let programs = [
        "the system's=cp -r {reflink} {from} {to}",
        "--program",
        "lossy=sh -c 'cp -r {from} {to} && find {to} -name file-07 -delete'",
        "--program",
        "filling=sh -c 'cat {from} > {to}'",
        "--program",
        "idle=true",
    ];
    let arguments = [&SMALL_TREES[..], &programs[..]].concat();
    let document = bench_without("filling, idle, lossy", &arguments);
    let experiments = list(&document, "experiments");
    let find = |word: &str| {
        let is_it = |e: &&Value| {
            let variant = e["variant"].as_str().expect("a variant");
            variant.starts_with(word)
        };
        experiments.iter().find(is_it).expect("an experiment")
    };
    let (one, two) = ("underpass cp -j 1", "underpass cp -j 2");
    assert_eq!(names(find("sparse")), [two, one, "the system's", "lossy"]);
    assert_eq!(names(find("tree")), [two, one, "the system's"]);
    let titles: BTreeSet<_> = experiments
        .iter()
        .map(|one| one["title"].as_str())
        .collect();
    assert_eq!(
        titles.len(),
        experiments.len(),
        "no figure stands in two tables"
    );
    let notes = find("tree")["notes"].to_string();
    assert_contains(
        &notes,
        &["idle: there is no copy", "lossy: the copy differs"],
    );
    let sparse = find("sparse")["notes"].to_string();
    assert!(sparse.contains("filling: the holes are filled"), "{sparse}");
    for experiment in experiments {
        let case = &list(experiment, "cases")[0];
        for name in ["wall", "cpu"] {
            let figures = list(metric(case, name), "figures");
            let rounds = figures.iter().map(|figures| list(figures, "rounds").len());
            assert!(rounds.eq(figures.iter().map(|_| 2)), "{name}: {figures:?}");
        }
    }
}

#[test]
fn what_there_is_no_room_for_is_not_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = ["tree", "--kinds", "tree", "--files", "100000000000"];
    let mut bench = Command::new(BINARY);
    let report = run(bench.args(files).arg("--in").arg(folder.path()));
    report.assert_failed(1, &["inodes, and"]);
    let left = std::fs::read_dir(folder.path()).expect("the folder");
    assert_eq!(left.count(), 0, "the scratch directory is gone");
}

#[test]
fn who_does_not_deliver_is_left_out_and_named() {
    let liar = "liar=sh -c 'echo ready liar 1; while read job; do echo ok 5; done'";
    let mute = "mute=true";
    let rude = "rude=echo hello";
    let arguments = [
        "socket",
        "--sizes",
        "1MB",
        "--rounds",
        "1",
        "--receiver",
        "discard",
    ];
    let peers = ["--peer", liar, "--peer", mute, "--peer", rude];
    let document = bench_without("liar, mute, rude", &[&arguments[..], &peers[..]].concat());
    let experiment = &document["experiments"][0];
    assert_eq!(names(experiment), OWN.map(|(name, _)| name));
    let notes = experiment["notes"].to_string();
    assert_contains(
        &notes,
        &["liar: reports 5 bytes", "mute ended", "rude answers"],
    );
}

/// That the last contender of each case has no figures, and the first one one of each round; what
/// is said of the first case.
fn notes_without_the_last(experiment: &Value, rounds: usize) -> String {
    let last = names(experiment).len() - 1;
    let cases = list(experiment, "cases");
    for metric in cases.iter().flat_map(|case| list(case, "metrics")) {
        assert!(metric["figures"][last].is_null(), "{metric:#}");
        if let Some(figures) = metric["figures"][0]["rounds"].as_array() {
            assert_eq!(figures.len(), rounds);
        }
    }
    cases[0]["notes"].to_string()
}

#[test]
fn a_program_that_fails_in_the_middle_is_left_out_and_the_others_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let log = log.display();
    // 1 for the trial, 40 for the warm-up, 40 for the first round.
    let tired = format!(
        "tired=sh -c 'echo >> {log} && test $(wc -l < {log}) -le 100 && cp {{from}} {{to}}'"
    );
    let sizes = ["--sizes", "10KiB,20KiB", "--rounds", "3"];
    let arguments = [&["copy"], &sizes[..], &["--program", &tired]].concat();
    let document = bench_without("tired", &arguments);
    let experiment = &document["experiments"][0];
    assert_eq!(list(experiment, "cases").len(), 2);
    let notes = notes_without_the_last(experiment, 3);
    let failed = "tired failed in round 2 of 3 and is left out from there on: running tired";
    assert_contains(&notes, &[failed]);
}

#[test]
fn a_porter_that_ends_in_the_middle_is_left_out_and_the_others_go_on() {
    // 1 job for the trial, 100 for the warm-up, 100 for the first round.
    let tired = format!(
        "tired=sh -c 'for n in $(seq 250); do read -r job; echo \"$job\"; done | \
         {BINARY} role mover'"
    );
    let sizes = ["--sizes", "1MB,2MB", "--rounds", "2"];
    let peer = ["--receiver", "discard", "--peer", &tired];
    let document = bench_without("tired", &[&["socket"], &sizes[..], &peer].concat());
    let experiment = &document["experiments"][0];
    assert_eq!(list(experiment, "cases").len(), 2);
    let notes = notes_without_the_last(experiment, 2);
    assert_contains(&notes, &["tired failed in round 2 of 2"]);
}

#[test]
fn a_server_that_starts_no_more_is_left_out_and_the_others_go_on() {
    let underpass = underpass();
    // 1 for the trial, 1 for the warm-up, 1 for the first round.
    let tired = format!(
        "tired=sh -c 'echo >> {{own}}/starts; test $(wc -l < {{own}}/starts) -le 3 && \
         exec {underpass} serve {{root}} --listen {{address}} --workers 1'"
    );
    let few = ["--quick", "--connections", "2", "--rounds", "2"];
    let arguments = [&["many"], &few[..], &["--server", &tired]].concat();
    let document = bench_without("tired", &arguments);
    let notes = notes_without_the_last(&document["experiments"][0], 2);
    assert_contains(&notes, &["tired failed in round 2 of 2"]);
}

#[test]
#[ignore = "needs root, network namespaces, TUN, bbr and gcc; run by cargo xtask test"]
fn a_path_makes_every_answer_take_its_time_and_spares_the_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("path");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../peers/c/path.c");
    run(Command::new("gcc").arg("-o").arg(&program).arg(source));
    let path = format!("30 ms=env {} 30 100", program.display());
    let few = ["http", "--quick", "--rounds", "1", "--connections", "2"];
    let load = ["--sizes", "1KiB,1MiB", "--requests", "4", "--only", "none"];
    let document = bench(&[&few[..], &load, &["--path", &path]].concat());
    let experiments = list(&document, "experiments");
    assert_eq!(experiments.len(), 2);
    for experiment in experiments {
        let title = experiment["title"].as_str().expect("a title");
        assert_contains(title, &["2 connections over 30 ms under"]);
        // A MiB takes 80 ms at this rate.
        for (case, head_min, body_min) in [(0, 0.03, 0.03), (1, 0.03, 0.11)] {
            let case = &list(experiment, "cases")[case];
            for (name, at_least) in [("head", head_min), ("p50", body_min)] {
                let rounds = &metric(case, name)["figures"][0]["rounds"];
                let took = rounds[0].as_f64().expect("seconds");
                assert!(took >= at_least, "{name}: {took}");
            }
        }
    }
    // A path that ends too early is an error.
    let gone = ["--path", "gone=sh -c 'echo ready gone'"];
    let json = folder.path().join("gone.json");
    let arguments = [&few[..], &load, &gone].concat();
    let ended = spawn_into(&mut Command::new(BINARY), &arguments, &json).end_within(WAITS);
    ended.assert_failed(1, &["gone ended too early"]);
    // With more interfaces than a loopback, the program refuses to start.
    let mut refused = Command::new(&program);
    let refused = refused.args(["30", "100"]).output().expect("a result");
    assert_eq!(refused.status.code(), Some(1));
}

/// Serves files with its own congestion control, whatever that of the route is.
const STUBBORN: &str = "\
import http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def setup(self):
        self.request.setsockopt(6, 13, b'reno')
        super().setup()
    def __init__(self, *request):
        super().__init__(*request, directory=sys.argv[1])
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[2])), Handler).serve_forever()
";

#[test]
#[ignore = "needs root, network namespaces, bbr and python3; run by cargo xtask test"]
fn files_are_measured_under_bbr_and_cubic_and_a_server_under_neither_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("stubborn.py");
    std::fs::write(&program, STUBBORN).expect("a program");
    let stubborn = format!("stubborn=python3 {} {{root}} {{port}}", program.display());
    let few = [
        "--quick",
        "--rounds",
        "1",
        "--connections",
        "2",
        "--only",
        "none",
    ];
    let server = ["http", "--server", &stubborn];
    let arguments = [&server[..], &few, &["--sizes", "1KiB"]].concat();
    let document = bench_without("stubborn", &arguments);
    let experiments = list(&document, "experiments");
    let variants: Vec<_> = experiments.iter().map(|one| &one["variant"]).collect();
    assert_eq!(
        variants,
        ["2 connections, under bbr", "2 connections, under cubic"]
    );
    for (experiment, control) in experiments.iter().zip(["bbr", "cubic"]) {
        assert_eq!(names(experiment), ["underpass"]);
        assert_eq!(list(experiment, "cases").len(), 1);
        let left_out = format!("stubborn: its connections are not under {control}");
        assert_contains(&experiment["notes"].to_string(), &[&left_out]);
    }
    // Requested controls are measured once.
    let requested = [
        &["http", "--congestion", "reno", "--sizes", "1KiB"],
        &server[1..],
        &few,
    ]
    .concat();
    let document = bench(&requested);
    assert_eq!(document["machine"]["congestion_control"], "reno");
    assert_eq!(
        names(&list(&document, "experiments")[0]),
        ["underpass", "stubborn"]
    );
}

#[test]
fn https_is_measured_beside_our_plain_http_and_a_server_without_tls_is_left_out() {
    let underpass = underpass();
    let other = format!(
        "other={underpass} serve {{root}} --listen {{address}} --cert {{cert}} --key {{key}}"
    );
    let plain = format!("plain={underpass} serve {{root}} --listen {{address}}");
    let few = [
        "--quick",
        "--rounds",
        "1",
        "--connections",
        "2",
        "--server",
        &other,
        "--server",
        &plain,
    ];
    // Without strace, which takes its time.
    let measured = |arguments: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        let json = folder.path().join("result.json");
        let mut command = Command::new(BINARY);
        command.env("PATH", "/nonexistent");
        let arguments = [&arguments[..1], &few, &arguments[1..]].concat();
        let bench = spawn_into(&mut command, &arguments, &json);
        assert_left_out(&bench.end_within(WAITS), "plain");
        read(&json)
    };
    let sizes = ["--sizes", "1KiB,1MiB", "--only", "read_write"];
    let document = measured(&[&["http", "--tls"], &sizes[..]].concat());
    let experiment = &document["experiments"][0];
    let yardstick = "underpass, read_write only, plain HTTP";
    assert_eq!(names(experiment), ["underpass", yardstick, "other"]);
    let terms = "TLS 1.3, TLS_AES_128_GCM_SHA256, X25519, ECDSA P-256";
    assert_contains(&experiment["measured"].to_string(), &[terms]);
    assert_contains(&experiment["notes"].to_string(), &["plain: "]);
    for case in list(experiment, "cases") {
        assert_eq!(travelled(case, 0)[0].0, "read_write");
        for contender in 0..3 {
            let rounds = &metric(case, "requests")["figures"][contender]["rounds"];
            assert!(
                rounds[0].as_f64().is_some_and(|rate| rate > 0.0),
                "{case:#}"
            );
        }
    }
    let resumed = [
        "--sizes",
        "1KiB",
        "--reconnect",
        "--resume",
        "--only",
        "none",
    ];
    let tls = ["http", "--tls=TLS_CHACHA20_POLY1305_SHA256"];
    let document = measured(&[&tls[..], &resumed].concat());
    let experiment = &document["experiments"][0];
    assert_eq!(names(experiment), ["underpass", "other"]);
    assert_contains(&experiment["variant"].to_string(), &["CHACHA20", "resumed"]);
}

#[test]
fn one_congestion_control_is_said_to_be_the_only_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("result.json");
    // A separate loopback needs `ip`, and root.
    let mut command = Command::new(BINARY);
    command.env("PATH", "/nonexistent");
    let arguments = ["http", "--quick", "--rounds", "1", "--only", "none"];
    let bench = spawn_into(&mut command, &arguments, &json);
    bench.end_within(WAITS).assert_success();
    let experiment = &read(&json)["experiments"][0];
    let note = "not measured under bbr and cubic, only under the machine's congestion control";
    assert_contains(&experiment["notes"].to_string(), &[note]);
}

#[test]
fn idle_connections_are_counted_by_what_each_takes() {
    let few = [
        "many",
        "--idle",
        "--quick",
        "--connections",
        "300",
        "--rounds",
        "1",
    ];
    let document = bench(&few);
    let experiment = &document["experiments"][0];
    let case = &list(experiment, "cases")[0];
    assert_eq!(case["label"], "300 idle");
    let median = |name| {
        let figures = &metric(case, name)["figures"][0];
        figures["spread"]["median"].as_f64().expect("a figure")
    };
    // The memory of an idle connection in a debug build, with room for other allocators.
    let each = median("memory_per_connection");
    assert!(each > 1000.0 && each < 16384.0, "{each}");
    assert!(median("p99") > 0.0 && median("p99_alone") > 0.0);
}

#[test]
fn another_machine_can_receive() {
    let (_sink, port) = sink();
    let to = format!("127.0.0.1:{port}");
    let arguments = ["socket", "--sizes", "1MB", "--rounds", "1", "--to", &to];
    let document = bench(&arguments);
    assert_eq!(list(&document, "experiments").len(), 2);
}

/// A sink on two free ports next to each other.
fn sink() -> (ChildProcess, u16) {
    for _ in 0..100 {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let listen = format!("127.0.0.1:{port}");
        let mut sink = Command::new(BINARY);
        let sink = ChildProcess::spawn(sink.args(["sink", "--listen", &listen]));
        if sink.hear("").contains("receiving on") {
            return (sink, port);
        }
    }
    panic!("no two free ports next to each other");
}

#[test]
fn a_report_goes_through_links_and_into_open_descriptors() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    symlink("/dev/stdout", at("link")).expect("a link");
    symlink("behind", at("other")).expect("a link");
    let output = File::create(at("output")).expect("room");
    let status = Command::new(BINARY)
        .args(["copy", "--sizes", "10KiB", "--rounds", "1"])
        .args(["--patience", "0", "--scratch"])
        .arg(folder.path())
        .arg("--json")
        .arg(at("link"))
        .arg("--markdown")
        .arg(at("other"))
        .stdin(Stdio::null())
        .stdout(output)
        .status();
    assert!(status.expect("it runs").success());
    let links = [at("link"), at("other")];
    assert!(links.iter().all(|link| link.is_symlink()));
    let output = std::fs::read_to_string(at("output")).expect("text");
    let (json, text) = output.split_once("\n}\n").expect("JSON, then text");
    let json: Value = serde_json::from_str(&format!("{json}}}")).expect("JSON");
    assert_eq!(json["outcome"], "complete");
    assert!(!text.trim().is_empty());
    let markdown = std::fs::read_to_string(at("behind")).expect("Markdown");
    assert!(markdown.contains('|'), "{markdown}");
}

#[test]
fn interrupted_it_keeps_the_rounds_that_are_done_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, log) = (folder.path().join("result.json"), folder.path().join("log"));
    let marking = format!(
        "marking=sh -c 'cp {{from}} {{to}} && echo >> {}'",
        log.display()
    );
    let arguments = [
        "copy",
        "--sizes",
        "10KiB",
        "--rounds",
        "100000",
        "--program",
        &marking,
    ];
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", BINARY]);
    let mut bench = spawn_into(&mut command, &arguments, &json);
    // 1 for the trial, 40 for the warm-up, and two rounds.
    let enough = 1 + 3 * 40;
    bench.until(|| std::fs::metadata(&log).map_or(0, |log| log.len()) >= enough);
    bench.signal(Signal::INT);
    assert_eq!(bench.end().code, Some(130));
    let document = read(&json);
    assert_eq!(document["outcome"], "interrupted");
    let case = &document["experiments"][0]["cases"][0];
    let rounds = metric(case, "operations")["figures"][0]["rounds"].as_array();
    let rounds = rounds.map_or(0, Vec::len);
    assert!((1..1000).contains(&rounds), "{rounds} rounds");
    let left = std::fs::read_dir(folder.path()).expect("the folder");
    let left = left.filter(|entry| entry.as_ref().is_ok_and(|e| e.path().is_dir()));
    assert_eq!(left.count(), 0, "the scratch directory is gone");
}

#[test]
fn brokers_are_measured_beside_each_other_by_every_case() {
    let underpass = underpass();
    let second = format!("second={underpass} broker {{root}} --listen {{address}}");
    let arguments = [
        "log",
        "--quick",
        "--rounds",
        "1",
        "--size",
        "1MiB",
        "--partitions",
        "10",
        "--batches",
        "16KiB",
        "--restart-size",
        "4MiB",
        "--server",
        &second,
        "--server",
        "ended=false",
    ];
    let document = bench_without("ended", &arguments);
    let experiments = list(&document, "experiments");
    let first = [
        ("fetch", "cpu_per_gib"),
        ("small", "cpu_per_gib"),
        ("produce", "cpu_per_gib"),
        ("durable", "requests"),
        ("replay", "p50"),
        ("start", "start"),
        ("restart", "start"),
    ];
    assert_eq!(experiments.len(), first.len());
    for (experiment, (variant, telling)) in experiments.iter().zip(first) {
        assert_eq!(experiment["variant"], variant);
        assert_eq!(names(experiment).last(), Some(&"second"));
        assert_contains(&experiment["notes"].to_string(), &["ended ended at once"]);
        for case in list(experiment, "cases") {
            let figures = list(metric(case, telling), "figures");
            assert!(figures.iter().all(|one| !one.is_null()), "{case:#}");
        }
    }
}

#[test]
fn records_over_tls_are_those_that_were_produced() {
    let underpass = underpass();
    let second =
        format!("second={underpass} broker {{root}} -l {{address}} --cert {{cert}} --key {{key}}");
    let document = bench(&[
        "log", "--tls", "--quick", "--rounds", "1", "--size", "1MiB", "--server", &second,
    ]);
    let experiment = &document["experiments"][0];
    assert_eq!(experiment["variant"], "fetch, TLS");
    for case in list(experiment, "cases") {
        let figures = list(metric(case, "cpu_per_gib"), "figures");
        assert!(figures.len() == 2 && figures.iter().all(|one| !one.is_null()));
    }
}
