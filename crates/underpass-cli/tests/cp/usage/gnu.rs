//! Checks that the record matches GNU cp 9.1. With `UPDATE_DOCS` it is written.

use std::env;
use std::fs;
use std::path::Path;

use super::lines::{RECORD, UsageRecord, cases, run, words};

#[test]
#[ignore = "needs GNU cp; run by cargo xtask test"]
fn the_record_is_what_gnu_cp_does() {
    let gnu = ["/usr/bin/cp", "/bin/cp"].map(Path::new);
    let gnu = gnu.into_iter().find(|path| path.exists()).expect("GNU cp");
    let version = run(gnu, &words("--version"), &[]);
    assert!(version.stdout.starts_with("cp (GNU coreutils) 9.1\\n"));
    let found = cases().into_iter();
    let found = found.map(|case| (case.name(), case.run(gnu).recorded()));
    let found: UsageRecord = found.collect();
    if env::var_os("UPDATE_DOCS").is_some() {
        let text = serde_json::to_string_pretty(&found).expect("JSON");
        fs::write(RECORD, text + "\n").expect("a record");
    }
    let record = fs::read_to_string(RECORD).expect("a record");
    let record: UsageRecord = serde_json::from_str(&record).expect("a record");
    for (name, ended) in &found {
        assert_eq!(record.get(name), Some(ended), "{name}");
    }
    assert_eq!(record.len(), found.len());
}
