//! Tests that run again in a process of their own.

use std::env;
use std::process::{Command, Stdio};

use crate::ChildProcess;

/// Set in a process started by [`is_alone`].
const ALONE: &str = "UNDERPASS_TEST_ALONE";

/// Returns a command that runs only this test of the running test program. `module` is the
/// `module_path!()` of the test.
pub fn rerun(module: &str, test: &str) -> Command {
    let within = module.split_once("::").map(|(_, within)| within);
    let path = Vec::from_iter(within.into_iter().chain([test])).join("::");
    let mut command = Command::new(env::current_exe().expect("a program"));
    command.args(["--include-ignored", "--exact", "--nocapture", &path]);
    command
}

/// Returns whether this process runs only this test. Otherwise it first runs the test in such a
/// process, so that what the test measures or changes of its process is not that of other tests.
///
/// # Panics
///
/// Panics if the test fails there, or takes longer than five times [`crate::WAIT_MAX`].
#[track_caller]
pub fn is_alone(module: &str, test: &str) -> bool {
    if env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    let mut command = rerun(module, test);
    let report = ChildProcess::spawn(command.env(ALONE, test).stdin(Stdio::null())).end_within(5);
    report.assert_success();
    assert!(report.output.contains("1 passed"), "{report:?}");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "a_test_runs_again_in_a_process_of_its_own";

    #[test]
    fn a_test_runs_again_in_a_process_of_its_own() {
        let own = format!("pid {}\n", std::process::id());
        if is_alone(module_path!(), TEST) {
            print!("{own}");
            return;
        }
        let report = crate::run(rerun(module_path!(), TEST).env(ALONE, TEST));
        report.assert_output(&["1 passed", "pid "]);
        assert!(!report.output.contains(&own));
    }
}
