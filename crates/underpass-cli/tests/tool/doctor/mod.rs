//! `underpass doctor`, the real binary: its output is complete, correct and narrow, and no file is
//! left.

mod faults;
mod mounts;
mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use underpass_testkit::{ExitReport, assert_contains, run};

use self::support::{MECHANISMS, doctor, json, json_of, pair, pairs, paths};
use crate::support::BINARY;

#[test]
fn every_pair_has_every_mechanism() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (report, code) = json(&[one.path(), other.path()]);
    assert_eq!(report["schema"], "underpass.doctor/1");
    assert_eq!(code, 0, "{:#}", report["advice"]);
    for expected in [
        "A → A",
        "A → B",
        "B → A",
        "B → B",
        "A → TCP",
        "B → TCP",
        "TCP → A",
        "TCP → B",
        "A → pipe",
        "pipe → A",
        "A → Unix",
        "Unix → A",
        "TCP → TCP",
    ] {
        let row = pair(&report, expected);
        for mechanism in MECHANISMS {
            let result = row["mechanisms"][mechanism]["result"].as_str();
            assert!(
                matches!(result, Some("works" | "refused" | "not_applicable")),
                "{expected} {mechanism}: {row:#}"
            );
        }
        assert_eq!(row["mechanisms"]["read_write"]["result"], "works");
        assert_eq!(row["auto"]["result"], "works");
        assert_eq!(row["auto"]["uses"].as_array().unwrap().len(), 1, "{row:#}");
    }
}

#[test]
fn what_works_is_what_the_account_says() {
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = json(&[directory.path()]);
    for row in pairs(&report) {
        for mechanism in MECHANISMS {
            let outcome = &row["mechanisms"][mechanism];
            if outcome["result"] == "works" {
                assert_eq!(outcome["bytes"], (1 << 20) + 4321);
                assert!(outcome["calls"].as_u64() > Some(0));
            }
        }
    }
}

#[test]
fn every_command_in_the_report_exists() {
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = json(&[directory.path()]);
    let commands = report["commands"].as_array().expect("commands");
    let names: Vec<_> = commands.iter().map(|used| &used["command"]).collect();
    assert_eq!(names, ["cp", "serve"]);
    for name in names {
        let help = run(Command::new(BINARY).args([name.as_str().unwrap(), "--help"]));
        assert_eq!(help.code, Some(0), "{help:?}");
    }
}

#[test]
fn every_refusal_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let shm = Path::new("/dev/shm");
    let (report, _) = json(&[directory.path(), shm]);
    for row in pairs(&report) {
        for mechanism in MECHANISMS {
            let outcome = &row["mechanisms"][mechanism];
            if outcome["result"] == "refused" {
                assert!(
                    outcome["errno"].as_str().unwrap().starts_with('E'),
                    "{row:#}"
                );
                assert!(outcome["meaning"].as_str().unwrap().len() > 10, "{row:#}");
                let scope = outcome["scope"].as_str().unwrap();
                assert!(["host", "devices", "once"].contains(&scope));
            }
        }
    }
}

#[test]
fn a_file_system_is_named_with_its_mount() {
    let (report, _) = json(&[Path::new("/proc")]);
    let file_system = &paths(&report)[0]["file_system"];
    assert_eq!(file_system["magic_name"], "proc");
    assert_eq!(file_system["magic"], "0x9fa0");
    assert_eq!(file_system["mount"]["mount_point"], "/proc");
}

#[test]
fn nothing_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mine"), "untouched").unwrap();
    assert_eq!(doctor(&[directory.path()]).code, Some(0));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert_eq!(
        fs::read(directory.path().join("mine")).unwrap(),
        b"untouched"
    );
}

#[test]
fn a_missing_path_is_reported_and_the_others_are_tried() {
    let directory = tempfile::tempdir().unwrap();
    let (report, code) = json(&[Path::new("/no/such/path"), directory.path()]);
    assert_eq!(code, 1);
    let missing = &paths(&report)[0];
    assert_eq!(missing["usable"], "nothing");
    let people = doctor(&[Path::new("/no/such/path")]);
    let expected = "underpass doctor: /no/such/path was not tried: ENOENT (No such file or \
                    directory)\n";
    assert_eq!((people.code, &*people.errors), (Some(1), expected));
    assert_eq!(missing["notes"][0], "ENOENT (No such file or directory)");
    assert_eq!(pair(&report, "B → TCP")["auto"]["result"], "works");
    assert!(
        pairs(&report)
            .iter()
            .all(|row| row["source"] != "A" && row["sink"] != "A")
    );
}

#[test]
fn a_file_stands_for_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "content").unwrap();
    let (report, code) = json(&[&file]);
    assert_eq!(code, 0);
    assert_eq!(
        paths(&report)[0]["notes"][0],
        "is a file: its directory is tested"
    );
    assert_eq!(fs::read(&file).unwrap(), b"content");
}

#[test]
fn pseudo_file_systems_neither_block_nor_fail() {
    let peculiar = [
        "/proc",
        "/sys",
        "/proc/version",
        "/proc/self/status",
        "/dev/null",
    ];
    let (report, code) = json(&peculiar.map(Path::new));
    assert_eq!(code, 1);
    let usable = paths(&report)
        .iter()
        .map(|path| path["usable"].as_str().unwrap());
    let expected = [
        "nothing",
        "nothing",
        "source_only",
        "source_only",
        "nothing",
    ];
    assert_eq!(usable.collect::<Vec<_>>(), expected);
    // A file that reports no size is copied by reading, even if another mechanism would work.
    assert_eq!(pair(&report, "C → TCP")["auto"]["uses"][0], "read_write");
}

#[test]
fn many_paths_are_copied_between_in_part() {
    let directories: Vec<_> = (0..6).map(|_| tempfile::tempdir().unwrap()).collect();
    let directories: Vec<_> = directories
        .iter()
        .map(|directory| directory.path())
        .collect();
    let (report, code) = json(&directories);
    assert_eq!(code, 0);
    let copies = pairs(&report)
        .iter()
        .filter(|row| {
            row["source"].as_str().unwrap().len() + row["sink"].as_str().unwrap().len() == 2
        })
        .count();
    assert_eq!(copies, 6 + 5 + 5);
    let too_many = ["/tmp"; 17].map(Path::new);
    assert_eq!(doctor(&too_many).code, Some(2));
}

#[test]
fn the_table_fits_80_columns_and_has_no_colour_in_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory
        .path()
        .join("long ".repeat(30))
        .join("x".repeat(200));
    fs::create_dir_all(&long).unwrap();
    let odd = directory.path().join("a\u{1b}[31mb\nc");
    fs::create_dir(&odd).unwrap();
    let output = doctor(&[&long, &odd, Path::new("/proc"), Path::new("/no/such/path")]);
    let text = output.output;
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    let sections = [
        "Paths",
        "Tests",
        "Mechanisms that Underpass uses here",
        "Kernel TLS",
        "Advice",
    ];
    assert_contains(&text, &sections);
}

#[test]
fn a_low_limit_of_open_files_is_advised_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    let limited = limited.args(["-c", "ulimit -n 512 && exec \"$0\" doctor --json \"$1\""]);
    let (report, _) = json_of(limited.arg(BINARY).arg(directory.path()));
    assert_eq!(report["open_files"]["soft"], 512);
    let advice = report["advice"].as_array().unwrap();
    let advice = advice.iter().find(|advice| advice["about"] == "open-files");
    assert!(
        advice.unwrap()["text"]
            .as_str()
            .unwrap()
            .contains("limit of 512")
    );
}

#[test]
fn too_few_descriptors_are_the_reason_that_is_given() {
    let report = in_bash("ulimit -n 4; \"$0\" doctor --json \"$1\"");
    assert_eq!(report.code, Some(1));
    let report: serde_json::Value = serde_json::from_str(&report.output).unwrap();
    let advice = report["advice"].to_string();
    let few = "limit of 4 open files: too few for these tests (EMFILE)";
    assert_contains(&advice, &[few, "kernel TLS could not be tried (EMFILE"]);
    assert_contains(&advice, &["no pipe can be created (EMFILE"]);
    for wrong in ["CONFIG_TLS", "pipe-user-pages-soft"] {
        assert!(!advice.contains(wrong), "{advice}");
    }
}

/// Runs a line of bash with the tool as `$0` and a directory as `$1`.
fn in_bash(line: &str) -> ExitReport {
    let directory = tempfile::tempdir().expect("a directory");
    let mut bash = Command::new("bash");
    run(bash.args(["-c", line, BINARY]).arg(directory.path()))
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let report = in_bash("set -o pipefail; \"$0\" doctor \"$1\" | head -n 1");
    report.assert_clean();
    assert!(report.output.starts_with("underpass "), "{report:?}");
}

#[test]
fn an_output_that_is_closed_or_full_is_an_error_and_no_panic() {
    for command in [
        "doctor \"$1\"",
        "doctor /no/such/path",
        "man",
        "completions bash",
    ] {
        let closed = in_bash(&format!("\"$0\" {command} >&-"));
        closed.assert_failed(1, &["cannot write to standard output: it is closed"]);
        let full = in_bash(&format!("\"$0\" {command} >/dev/full"));
        full.assert_failed(1, &["cannot write to standard output: No space left"]);
        let both = in_bash(&format!("\"$0\" {command} >/dev/full 2>/dev/full"));
        assert_eq!(both.code, Some(1), "{both:?}");
        let both = in_bash(&format!("\"$0\" {command} >&- 2>&-"));
        assert_eq!(both.code, Some(1), "{both:?}");
    }
    in_bash("\"$0\" doctor \"$1\" 1<>/dev/null").assert_clean();
}

#[test]
fn every_member_of_the_report_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let page = fs::read_to_string(page).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = json(&[directory.path(), Path::new("/no/such/path")]);
    let undocumented: Vec<_> = member_names(&report)
        .into_iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(undocumented, Vec::<String>::new());
}

fn member_names(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Object(members) => {
            let inner = members.values().flat_map(member_names);
            members.keys().cloned().chain(inner).collect()
        }
        serde_json::Value::Array(items) => items.iter().flat_map(member_names).collect(),
        _ => Vec::new(),
    }
}

#[test]
#[ignore = "needs kernel TLS; run by cargo xtask test"]
fn what_kernel_tls_encrypts_is_tested() {
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = json(&[directory.path()]);
    let tls = &report["kernel_tls"];
    assert_eq!(tls["result"], "works", "{tls:#}");
    assert_eq!(tls["self_test"]["result"], "works", "{tls:#}");
    let second_key = tls["second_key"]["result"].as_str();
    assert!(matches!(second_key, Some("works" | "failed")), "{tls:#}");
}

#[test]
fn every_cipher_has_a_speed_in_user_space() {
    let directory = tempfile::tempdir().unwrap();
    let (report, _) = json(&[directory.path()]);
    let speeds = report["kernel_tls"]["user_space"].as_array().unwrap();
    assert_eq!(speeds.len(), 3);
    for speed in speeds {
        assert!(speed["bytes_per_second"].as_u64() > Some(0), "{speed}");
    }
}
