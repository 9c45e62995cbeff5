//! Messages on standard error.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use signal_hook::consts::SIGPIPE;
use underpass_copy::{Charset, OtherEnd, Problem, Quoted};

use super::environment::{CalledAs, CpEnvironment};

/// The program's name in front of messages, and their charset.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) called_as: CalledAs,
    called: OsString,
    charset: Charset,
}

impl Messages {
    pub(super) fn new(called: OsString, environment: &CpEnvironment) -> Self {
        Self {
            called_as: environment.called_as,
            called,
            charset: environment.charset,
        }
    }

    pub(super) fn called_shown(&self) -> String {
        self.called.to_string_lossy().into_owned()
    }

    pub(super) fn quoted(&self, name: &OsStr) -> String {
        Quoted(name.as_bytes(), self.charset).to_string()
    }

    /// Writes a line with the program's name in front, in one call, so that lines of several
    /// programs don't mix. A failure is ignored: there is nowhere to report it.
    pub(super) fn complain(&self, message: impl AsRef<[u8]>) {
        let line = [self.called.as_bytes(), b": ", message.as_ref(), b"\n"].concat();
        let _ = io::stderr().write_all(&line);
    }

    /// Writes a question: the same without the end of the line.
    pub(super) fn ask(&self, question: &str) {
        let line = [self.called.as_bytes(), b": ", question.as_bytes()].concat();
        let _ = io::stderr().write_all(&line);
    }

    pub(super) fn hint(&self) {
        let called = self.called.as_bytes();
        let line = [b"Try '", called, b" --help' for more information.\n"].concat();
        let _ = io::stderr().write_all(&line);
    }

    /// Writes a problem in GNU's words; as `underpass cp` with the details behind it.
    pub(super) fn problem(&self, problem: &Problem) {
        let mut message = problem.message(self.charset).to_string();
        if self.called_as == CalledAs::Underpass {
            message += &self.details(problem);
        }
        self.complain(message);
    }

    /// The call that failed and the name of the errno; of an incomplete copy also the other file
    /// and the bytes that had moved.
    fn details(&self, problem: &Problem) -> String {
        let errno = problem.errno.map(underpass::errno::name);
        let failed = match (problem.call, errno) {
            (Some(call), Some(errno)) => Some(format!("{call}: {errno}")),
            (None, Some(errno)) => Some(errno.into_owned()),
            // It failed without an errno.
            (Some(call), None) if problem.moved.is_some() => Some(call.to_owned()),
            (_, None) => None,
        };
        let other = problem.other_end().map(|other| match other {
            OtherEnd::From(source) => format!("from {}", self.quoted(source)),
            OtherEnd::To(dest) => format!("to {}", self.quoted(dest)),
        });
        let moved = problem.moved.map(|bytes| match bytes {
            1 => "1 byte had moved".to_owned(),
            bytes => format!("{bytes} bytes had moved"),
        });
        let parts: Vec<String> = [failed, other, moved].into_iter().flatten().collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!(" ({})", parts.join("; ")),
        }
    }

    /// Prints help or the version.
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

    /// Standard output could not be written. Under the name `cp` a closed pipe ends the program, as
    /// every program that leaves SIGPIPE as it is.
    pub(super) fn write_error(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.die_of_broken_pipe();
            return;
        }
        let text = error.to_string();
        let meaning = text.split(" (os error").next().unwrap_or_default();
        self.complain(format!("write error: {meaning}"));
    }

    /// Under the name `cp` only.
    pub(super) fn die_of_broken_pipe(&self) {
        if self.called_as == CalledAs::Cp {
            // If the signal does not end the process, the copy goes on.
            let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
        }
    }
}
