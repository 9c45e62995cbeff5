//! `underpass bench`: replaces this process with `underpass-bench`, which is a separate program.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PROGRAM: &str = "underpass-bench";

/// The exit code of shells for a missing command.
const NOT_FOUND: u8 = 127;

/// Measure what zero-copy saves on this machine: runs the program underpass-bench
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct PassedArguments {
    /// Pass these arguments to underpass-bench; --help lists them
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// Returns only if `underpass-bench` cannot be run: 127 if it is missing, otherwise 1.
pub(crate) fn run(arguments: PassedArguments) -> (ExitCode, String) {
    let mut tried = candidates();
    let Some(program) = tried.find(|path| path.is_file()) else {
        let message = format!(
            "bench: {PROGRAM} is neither next to this program nor in PATH; the release packages \
             contain it, and in the repository 'cargo build --release -p {PROGRAM}' builds it"
        );
        return (ExitCode::from(NOT_FOUND), message);
    };
    let error = Command::new(&program).args(arguments.words).exec();
    let code = match error.kind() {
        ErrorKind::NotFound => ExitCode::from(NOT_FOUND),
        _ => ExitCode::FAILURE,
    };
    (
        code,
        format!("bench: cannot run {}: {error}", program.display()),
    )
}

/// Returns the paths to try: in the folder of this executable, then in those of `PATH`.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let own = env::current_exe().ok();
    let own = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = env::split_paths(&path).collect();
    let folders = own.into_iter().chain(path);
    folders.map(|folder| folder.join(PROGRAM))
}
