//! `underpass doctor` on a kernel that lacks calls, returns wrong counts or is interrupted, which
//! strace injects.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use underpass_testkit::run;

use super::support::{json_of, pair};
use crate::support::BINARY;

/// Returns the tool under strace. `env` restores SIGINT, which background jobs ignore.
fn under(fault: &str, directory: &Path) -> Command {
    let mut command = Command::new("env");
    let inject = format!("inject={fault}");
    command
        .args([
            "--default-signal=INT",
            "strace",
            "-f",
            "-q",
            "-o",
            "/dev/null",
            "-e",
            &inject,
            BINARY,
            "doctor",
            "--json",
        ])
        .arg(directory);
    command
}

fn report_under(fault: &str) -> (Value, i32) {
    let directory = tempfile::tempdir().expect("a directory");
    json_of(&mut under(fault, directory.path()))
}

fn used<'a>(report: &'a Value, command: &str) -> &'a Value {
    let commands = report["commands"].as_array().expect("commands");
    let found = commands.iter().find(|used| used["command"] == command);
    &found.expect("the command")["uses"]
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn without_sendfile_splice_serves() {
    let (report, code) = report_under("sendfile:error=ENOSYS");
    assert_eq!(code, 0);
    let refused = &pair(&report, "A → TCP")["mechanisms"]["sendfile"];
    assert_eq!(refused["result"], "refused");
    assert_eq!(
        (&refused["errno"], &refused["scope"]),
        (&"ENOSYS".into(), &"host".into())
    );
    assert!(
        refused["meaning"]
            .as_str()
            .unwrap()
            .contains("not built into this kernel")
    );
    let missing = &report["kernel"]["calls_missing"][0];
    assert_eq!(
        (&missing["mechanism"], &missing["errno"]),
        (&"sendfile".into(), &"ENOSYS".into())
    );
    assert_eq!(used(&report, "serve"), &serde_json::json!(["splice"]));
    assert!(
        report["advice"]
            .to_string()
            .contains("sendfile is not available on this kernel")
    );
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn without_sendfile_and_splice_bytes_cross_user_space() {
    let (report, _) = report_under("sendfile,splice:error=EPERM");
    let refused = &pair(&report, "TCP → A")["mechanisms"]["splice"];
    assert!(
        refused["meaning"].as_str().unwrap().contains("seccomp"),
        "{refused}"
    );
    assert_eq!(used(&report, "serve"), &serde_json::json!(["read_write"]));
    let crossing = report["advice"].as_array().unwrap().iter();
    let mut crossing = crossing.filter(|advice| advice["about"] == "user-space");
    assert!(
        crossing.next().unwrap()["text"]
            .as_str()
            .unwrap()
            .contains("A → TCP")
    );
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn the_advice_on_a_call_that_is_invalid_everywhere_is_what_the_list_says() {
    let (report, _) = report_under("sendfile:error=EINVAL");
    let missing = &report["kernel"]["calls_missing"][0];
    let refused = &pair(&report, "A → TCP")["mechanisms"]["sendfile"];
    assert_eq!(refused["scope"], "host");
    assert_eq!(refused["meaning"], missing["meaning"]);
    for wrong in ["not permitted", "only read/write works"] {
        assert!(!report.to_string().contains(wrong), "{report:#}");
    }
    let (report, _) = report_under("pipe2:error=EINVAL");
    assert!(
        !report["advice"]
            .to_string()
            .contains("pipe-user-pages-soft")
    );
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_call_that_pretends_success_does_not_work() {
    let (report, code) = report_under("copy_file_range:retval=1052897");
    assert_eq!(code, 1);
    let row = pair(&report, "A → A");
    assert_eq!(
        row["mechanisms"]["copy_range"]["result"], "wrong_bytes",
        "{row:#}"
    );
    assert_eq!(row["mechanisms"]["sendfile"]["result"], "works");
    assert_eq!(report["advice"][0]["about"], "wrong-bytes");
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_call_that_does_not_end_is_given_up() {
    let (report, code) = report_under("copy_file_range:delay_enter=6s");
    assert_eq!(code, 1);
    let row = pair(&report, "A → A");
    assert_eq!(
        row["mechanisms"]["copy_range"]["result"], "failed",
        "{row:#}"
    );
    assert_eq!(row["mechanisms"]["sendfile"]["result"], "not_tried");
    assert_eq!(pair(&report, "A → TCP")["auto"]["result"], "works");
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn an_interrupt_in_the_middle_leaves_nothing_behind() {
    const SIGINT: i32 = 2;
    let directory = tempfile::tempdir().unwrap();
    // The third call of a thread is in a trial between files, since probing makes only one.
    let fault = "splice:signal=SIGINT:when=3";
    let report = run(&mut under(fault, directory.path()));
    assert_eq!(report.signal, Some(SIGINT), "{report:?}");
    assert!(report.output.is_empty(), "{report:?}");
    let left = std::fs::read_dir(directory.path()).unwrap();
    assert_eq!(left.count(), 0);
}
