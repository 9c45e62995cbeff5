//! Standard output and its width. A failed write is an error and never a panic.

use std::io::{self, ErrorKind, Write};

/// The width of a report if standard output is not a terminal.
const COLUMNS: usize = 100;

/// Prints text. Succeeds if the reader closed the pipe (`| head`).
///
/// # Errors
/// A message for the user.
pub(crate) fn print(text: &str) -> Result<(), String> {
    match written(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(message(&error)),
        _ => Ok(()),
    }
}

/// Prints the result of a measurement. A closed pipe is an error too.
///
/// # Errors
/// A message for the user.
pub(crate) fn print_result(text: &str) -> Result<(), String> {
    written(text).map_err(|error| message(&error))
}

/// Prints an error. There is nowhere to report a failed write to.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "underpass-bench: {text}");
}

pub(crate) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    match size.map_or(0, |size| size.ws_col) {
        0 => COLUMNS,
        columns => columns.into(),
    }
}

fn written(text: &str) -> io::Result<()> {
    if underpass::is_stdout_closed() {
        return Err(io::Error::other("it is closed"));
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

fn message(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}
