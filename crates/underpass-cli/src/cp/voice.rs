//! What is said on standard error, and by whom.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use signal_hook::consts::SIGPIPE;
use underpass_copy::{Charset, Problem, Quoted};

use super::Name;

/// Who speaks, and in which charset.
#[derive(Debug)]
pub(super) struct Voice {
    name: Name,
    called: OsString,
    charset: Charset,
}

impl Voice {
    pub(super) fn new(name: Name, called: OsString, charset: Charset) -> Self {
        Self {
            name,
            called,
            charset,
        }
    }

    pub(super) fn name(&self) -> Name {
        self.name
    }

    pub(super) fn called_shown(&self) -> String {
        self.called.to_string_lossy().into_owned()
    }

    pub(super) fn quoted(&self, name: &std::ffi::OsStr) -> String {
        Quoted(name.as_bytes(), self.charset).to_string()
    }

    /// A line with the program's name in front. In one call, so that lines of several programs
    /// don't mix; nobody can be told where that fails.
    pub(super) fn complain(&self, message: &[u8]) {
        let line = [self.called.as_bytes(), b": ", message, b"\n"].concat();
        let _ = io::stderr().write_all(&line);
    }

    /// The same without the end of the line, for an answer.
    pub(super) fn ask(&self, question: &str) {
        let line = [self.called.as_bytes(), b": ", question.as_bytes()].concat();
        let _ = io::stderr().write_all(&line);
    }

    pub(super) fn hint(&self) {
        let called = self.called.as_bytes();
        let line = [b"Try '", called, b" --help' for more information.\n"].concat();
        let _ = io::stderr().write_all(&line);
    }

    /// A problem in GNU's words; as `underpass cp` also with the call that told it and the name of
    /// the errno.
    pub(super) fn tell(&self, problem: &Problem) {
        let mut message = problem.worded(self.charset).to_string();
        if let (Name::Underpass, Some(errno)) = (self.name, problem.errno) {
            let errno = underpass::errno::name(errno);
            match problem.call {
                Some(call) => message += &format!(" ({call}: {errno})"),
                None => message += &format!(" ({errno})"),
            }
        }
        self.complain(message.as_bytes());
    }

    /// Prints what was asked for, and nothing else.
    pub(super) fn print(&self, text: &str) -> ExitCode {
        let mut stdout = io::stdout().lock();
        match stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
        {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                self.write_error(&error);
                ExitCode::FAILURE
            }
        }
    }

    /// Standard output could not be written. Under the name `cp` nobody reading it is fatal, as to
    /// every program that does not ask for another treatment of SIGPIPE.
    pub(super) fn write_error(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.die_of_broken_pipe();
            return;
        }
        let text = error.to_string();
        let meaning = text.split(" (os error").next().unwrap_or_default();
        self.complain(format!("write error: {meaning}").as_bytes());
    }

    /// Under the name `cp` only.
    pub(super) fn die_of_broken_pipe(&self) {
        if self.name == Name::Cp {
            // What can't die goes on.
            let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
        }
    }
}
