//! The destinations of reports: files, links, streams, and a closed pipe.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use underpass_testkit::{assert_contains, run};

use crate::support::{BINARY, underpass};

const RESULT: &str = r#"{"schema":2,"tool":{"name":"underpass","version":"0"},"date":"2026-01-31",
    "command":"bench","seconds":1.0,"outcome":"complete","machine":{"processors":2,
    "processor_model":"p","virtual_machine":true,"kernel":"6","memory_bytes":1,
    "congestion_control":"cubic","file_system":"ext4"},"warnings":[],"experiments":[]}"#;

/// A folder with a result in it.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let result = folder.path().join("run.json");
    fs::write(&result, RESULT).expect("a file");
    (folder, result)
}

/// Renders the result with a report at `markdown`; returns the exit code and standard error.
fn render(result: &Path, markdown: &Path, output: impl Into<Stdio>) -> (Option<i32>, String) {
    let done = Command::new(BINARY)
        .arg("render")
        .arg(result)
        .arg("--markdown")
        .arg(markdown)
        .stdout(output)
        .output()
        .expect("it works");
    let errors = String::from_utf8(done.stderr).expect("a text");
    (done.status.code(), errors)
}

#[test]
fn a_link_to_standard_output_stays_a_link_and_both_texts_are_in_the_file() {
    let (folder, result) = folder();
    let (link, output) = (folder.path().join("stdout"), folder.path().join("output"));
    symlink("/proc/self/fd/1", &link).expect("it works");
    let (code, errors) = render(&result, &link, File::create(&output).expect("it works"));
    assert_eq!((code, &*errors), (Some(0), ""));
    assert!(link.is_symlink());
    let text = fs::read_to_string(output).expect("it works");
    assert_contains(&text, &["Measured by underpass 0", "command: bench"]);
}

#[test]
fn the_file_behind_a_link_is_written_and_the_link_stays() {
    let (folder, result) = folder();
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    symlink("file", &link).expect("it works");
    for _ in ["missing", "there"] {
        assert_eq!(
            render(&result, &link, Stdio::null()),
            (Some(0), String::new())
        );
        assert!(link.is_symlink());
        assert!(
            fs::read_to_string(&file)
                .expect("it works")
                .starts_with("Measured by")
        );
    }
}

#[test]
fn a_full_standard_output_is_an_error_that_says_so() {
    let (folder, result) = folder();
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("it works");
    let (code, errors) = render(&result, &folder.path().join("report.md"), full);
    assert_eq!(code, Some(1));
    assert_contains(
        &errors,
        &["cannot write to standard output", "No space left"],
    );
}

#[test]
fn an_output_that_is_closed_or_full_is_an_error_and_no_panic() {
    let (_folder, result) = folder();
    let measure = "copy --sizes 10KiB --rounds 1 --patience 0";
    for command in [measure, &format!("render {}", result.display()), "man"] {
        for outputs in [">&-", ">/dev/full 2>/dev/full", ">&- 2>&-"] {
            let line = format!("exec {BINARY} {command} {outputs}");
            let report = run(Command::new("sh").args(["-c", &line]));
            assert_eq!(report.code, Some(1), "{line}: {report:?}");
        }
    }
}

#[test]
fn underpass_bench_runs_this_program_or_says_how_to_get_it() {
    let underpass = underpass();
    let version = |program: &Path| {
        let mut bench = Command::new(program);
        run(bench
            .args(["bench", "--version"])
            .env("PATH", "/nonexistent"))
    };
    let found = version(Path::new(&underpass));
    assert!(found.output.starts_with("underpass-bench "), "{found:?}");
    let folder = Path::new(&underpass).parent().expect("a folder");
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    let alone = folder.path().join("underpass");
    fs::hard_link(&underpass, &alone).expect("a second name");
    version(&alone).assert_failed(127, &["neither next to this program nor in PATH"]);
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_before_anything_is_measured() {
    let (folder, result) = folder();
    for option in ["--json", "--markdown", "--report"] {
        for path in [
            folder.path().to_owned(),
            result.join("below"),
            "/no/file".into(),
        ] {
            let mut bench = Command::new(BINARY);
            // The measurement would fail too, with another message.
            bench
                .args(["copy", "--scratch", "/nonexistent", option])
                .arg(&path);
            run(&mut bench).assert_failed(1, &["cannot write a report to"]);
        }
    }
}

#[test]
fn nothing_is_measured_zero_times_or_with_zero_of_anything() {
    for (experiment, options) in [
        ("copy", &["--rounds", "--sizes"][..]),
        ("socket", &["--rounds", "--sizes", "--to=host:"]),
        (
            "http",
            &["--sizes", "--files", "--connections", "--requests"],
        ),
        ("small", &["--sizes", "--connections"]),
        ("cold", &["--size", "--files", "--streams", "--disk-mib"]),
        ("many", &["--size", "--connections"]),
        (
            "log",
            &[
                "--size",
                "--partitions",
                "--batches",
                "--restart-size",
                "--disk-mib",
            ],
        ),
        (
            "tree",
            &["--files", "--file-size", "--large-size", "--sparse-size"],
        ),
        ("sink", &["--listen=127.0.0.1:"]),
    ] {
        for option in options {
            let zero = match option.ends_with(':') {
                true => format!("{option}0"),
                false => format!("{option}=0"),
            };
            let mut bench = Command::new(BINARY);
            let report = run(bench.args([experiment, &zero]));
            report.assert_failed(2, &[option.split('=').next().unwrap_or(option)]);
        }
    }
}
