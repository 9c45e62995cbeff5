//! Under the name `cp`, every message is GNU's: for the same command lines, output, exit code and
//! remaining files are those of the record. `gnu` compares the record with GNU cp.

mod gnu;
mod lines;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use lines::{RECORD, UsageRecord, cases, run, scratch, words};

fn ours() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_underpass"))
}

#[test]
fn command_lines_end_as_gnus_do() {
    let record = fs::read_to_string(RECORD).expect("a record");
    let record: UsageRecord = serde_json::from_str(&record).expect("a record");
    let cases = cases();
    assert_eq!(cases.len(), record.len(), "the record is of other lines");
    let differences = cases.iter().filter_map(|case| {
        let name = case.name();
        let mut got = case.run(ours()).recorded();
        let expected = record.get(&name).cloned();
        let mut expected = expected.unwrap_or_else(|| panic!("no record of {name}"));
        // A declined question: since 9.2, files that were not copied make cp fail.
        if got.stderr.contains("overwrite") && got.code == Some(1) {
            expected.code = Some(1);
        }
        // 9.10 names the source, too.
        if expected.stderr.contains("overwrite directory") {
            let end = " with non-directory";
            let cut = got
                .stderr
                .find(end)
                .map(|start| &got.stderr[..start + end.len()]);
            let cut = cut.map(|cut| format!("{cut}\\n"));
            got.stderr = cut.unwrap_or(got.stderr);
        }
        (expected != got).then(|| format!("{name}\n{expected:#?}\n{got:#?}"))
    });
    let differences: Vec<_> = differences.collect();
    let (count, of) = (differences.len(), cases.len());
    assert!(
        count == 0,
        "{count} of {of} differ:\n{}",
        differences.join("\n")
    );
}

/// Options that GNU cp 9.1 does not have yet behave as its later manual says.
#[test]
fn newer_options_do_what_the_manual_describes() {
    let exclusive = "cp: --backup is mutually exclusive with -n or --update=none-fail\n\
                     Try 'cp --help' for more information.\n";
    let updates = "cp: invalid argument 'x' for '--update'\nValid arguments are:\n  - 'all'\n  - \
                   'none'\n  - 'none-fail'\n  - 'older'\nTry 'cp --help' for more information.\n";
    let ambiguous = "cp: option '--de' is ambiguous; possibilities: '--debug' '--dereference'\n\
                     Try 'cp --help' for more information.\n";
    let debug = "'a' -> 'c'\ncopy offload: avoided, reflink: no, sparse detection: no\n";
    let table: [(&str, &str, &str, i32); 15] = [
        // Trailing slashes are stripped only if the target is a folder.
        (
            "--st a/ c",
            "cp: cannot stat 'a/': Not a directory\n",
            "",
            1,
        ),
        ("--update=all a b", "", "", 0),
        ("--update=none a b", "", "", 0),
        ("--update=none-fail a b", "cp: not replacing 'b'\n", "", 1),
        ("--update=none-fail -v a c", "", "'a' -> 'c'\n", 0),
        ("--update=none -v a b", "", "", 0),
        ("--update=none --debug a b", "", "skipped 'b'\n", 0),
        ("--update=x a b", updates, "", 1),
        ("-n --update=none-fail a b", "", "", 0),
        ("-bn a b", exclusive, "", 1),
        ("-b --update=none-fail a b", exclusive, "", 1),
        ("--de a b", ambiguous, "", 1),
        ("--debug --reflink=never a c", "", debug, 0),
        ("--keep-directory-symlink -v a c", "", "'a' -> 'c'\n", 0),
        ("--k -v a c", "", "'a' -> 'c'\n", 0),
    ];
    for (line, stderr, stdout, code) in table {
        let ended = run(ours(), &words(line), &[]);
        let escaped = |text: &str| text.as_bytes().escape_ascii().to_string();
        assert_eq!(ended.stderr, escaped(stderr), "{line}");
        assert_eq!(ended.stdout, escaped(stdout), "{line}");
        assert_eq!(ended.code, Some(code), "{line}");
    }
}

#[test]
fn a_symbolic_link_named_cp_is_enough() {
    let folder = scratch();
    let link = folder.path().join("cp");
    symlink(env!("CARGO_BIN_EXE_underpass"), &link).expect("room");
    let output = Command::new(&link).arg("nox").output().expect("starts");
    let link = link.display();
    let expected = format!(
        "{link}: missing destination file operand after 'nox'\n\
         Try '{link} --help' for more information.\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    for (word, begins) in [("--version", "cp (Underpass) "), ("--help", "Copy files")] {
        let output = Command::new(folder.path().join("cp"))
            .arg(word)
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.starts_with(begins.as_bytes()));
        assert!(output.stderr.is_empty());
    }
}
