//! What is said on standard error, and by whom.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use signal_hook::consts::SIGPIPE;
use underpass_copy::{Charset, OtherEnd, Problem, Quoted};

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

    /// A problem in GNU's words; as `underpass cp` also with what else is known of it.
    pub(super) fn tell(&self, problem: &Problem) {
        let mut message = problem.worded(self.charset).to_string();
        if self.name == Name::Underpass {
            message += &self.circumstances(problem);
        }
        self.complain(message.as_bytes());
    }

    /// The call that told a problem and the name of the errno; of a copy that broke off also the
    /// other file and how far it had come.
    fn circumstances(&self, problem: &Problem) -> String {
        let errno = problem.errno.map(underpass::errno::name);
        let told = match (problem.call, errno) {
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
        let parts: Vec<String> = [told, other, moved].into_iter().flatten().collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!(" ({})", parts.join("; ")),
        }
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
