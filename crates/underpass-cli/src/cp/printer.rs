//! Prints the events of a copy on standard output, and messages on standard error.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufWriter, IsTerminal, Stdout, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;
use rustix::io::Errno;
use signal_hook::consts::SIGPIPE;
use underpass_copy::{
    Charset, CopyMode, Event, EventDetail, Finished, Observer, OtherEnd, OverwriteQuestion,
    Problem, ProblemKind, Quoted,
};

use super::explain;
use super::json;
use super::request::{CalledAs, CopyCommand, CpEnvironment, OutputDetail};
use super::totals::TravelTotals;
use super::words::Explains;
use crate::layout::counted;

pub(super) struct EventPrinter<'a> {
    messages: &'a Messages,
    detail: OutputDetail,
    /// Of all files, where they are explained together.
    totals: Option<Mutex<TravelTotals>>,
    copy_mode: CopyMode,
    /// Whether a failed copy leaves the part that it has written.
    leaves_parts: bool,
    /// Drawn where problems are written, and suspended meanwhile.
    bar: ProgressBar,
    out: Mutex<StandardOutput>,
    /// Whether a full disk was reported.
    disk_full: AtomicBool,
    /// Further files without space, which were not reported.
    unreported: AtomicU64,
    /// Files that the end of the copy left incomplete.
    stopped: AtomicU64,
}

/// Standard output, written line by line on a terminal and otherwise in large pieces.
struct StandardOutput {
    to: BufWriter<Stdout>,
    is_terminal: bool,
    /// The error after which nothing more is written; reported at the end.
    failed: Option<io::Error>,
}

impl<'a> EventPrinter<'a> {
    pub(super) fn new(messages: &'a Messages, command: &CopyCommand, bar: ProgressBar) -> Self {
        let options = &command.options;
        Self {
            messages,
            detail: match options.dry_run {
                true => command.detail.max(OutputDetail::Names),
                false => command.detail,
            },
            totals: (command.explains == Explains::Summary).then(Mutex::default),
            copy_mode: options.copy_mode,
            leaves_parts: !options.atomic || options.resume,
            bar,
            out: Mutex::new(StandardOutput {
                to: BufWriter::new(io::stdout()),
                is_terminal: io::stdout().is_terminal(),
                failed: None,
            }),
            disk_full: AtomicBool::new(false),
            unreported: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
        }
    }

    /// Returns the number of files without space that were not reported.
    pub(super) fn unreported(&self) -> u64 {
        self.unreported.load(Relaxed)
    }

    /// Files that the end of the copy left incomplete.
    pub(super) fn stopped(&self) -> u64 {
        self.stopped.load(Relaxed)
    }

    /// How the bytes of all files travelled, where that is explained.
    pub(super) fn totals(&self) -> Vec<String> {
        let totals = self.totals.as_ref();
        totals.map_or(Vec::new(), |totals| locked(totals).lines())
    }

    /// Writes a line to standard output.
    pub(super) fn line(&self, line: impl AsRef<[u8]>) {
        let mut out = self.out();
        if out.is_terminal && !self.bar.is_hidden() {
            self.bar.suspend(|| out.line(line.as_ref(), self.messages));
        } else {
            out.line(line.as_ref(), self.messages);
        }
    }

    /// Flushes standard output.
    ///
    /// # Errors
    /// The first error of all writes.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.flush();
        self.out().failed.take().map_or(Ok(()), Err)
    }

    fn out(&self) -> MutexGuard<'_, StandardOutput> {
        locked(&self.out)
    }

    /// Flushes lines that must precede a problem or a question.
    fn flush(&self) {
        self.out().flush(self.messages);
    }

    fn problem(&self, problem: &Problem) {
        let is_stopped = matches!(problem.kind, ProblemKind::Stopped(_));
        self.stopped.fetch_add(u64::from(is_stopped), Relaxed);
        let leaves_part = self.leaves_parts && problem.moved.is_some();
        // After the first full disk, only files left incomplete are reported.
        let is_short =
            problem.found_no_space() && self.disk_full.swap(true, Relaxed) && !leaves_part;
        let is_short = is_short && self.messages.called_as == CalledAs::Underpass;
        self.unreported.fetch_add(u64::from(is_short), Relaxed);
        if !is_short {
            self.flush();
            self.bar.suspend(|| self.messages.problem(problem));
        }
        if self.detail == OutputDetail::Json {
            self.line(json::problem(problem));
        }
    }

    fn finished(&self, finished: &Finished) {
        if let Some(totals) = &self.totals {
            let shown = || self.messages.quoted(&finished.source);
            locked(totals).add(finished, shown);
        }
        match self.detail {
            OutputDetail::Nothing | OutputDetail::Names => {}
            OutputDetail::Debug => {
                let line = explain::debug_line(finished);
                let line = line.filter(|_| self.copy_mode == CopyMode::Copy);
                line.iter().for_each(|line| self.line(line));
            }
            OutputDetail::Explain => explain::lines(finished)
                .iter()
                .for_each(|line| self.line(line)),
            OutputDetail::Json => self.line(json::finished(finished)),
        }
    }

    /// GNU cp prints these names unquoted.
    fn made_parent(&self, source: &OsStr, dest: &OsStr) {
        match self.messages.called_as {
            CalledAs::Underpass => self.arrow(source, dest, None),
            CalledAs::Cp => self.line([source.as_bytes(), b" -> ", dest.as_bytes()].concat()),
        }
    }

    fn arrow(&self, source: &OsStr, dest: &OsStr, backup: Option<&OsStr>) {
        let (source, dest) = (self.messages.quoted(source), self.messages.quoted(dest));
        match backup {
            Some(backup) => {
                let backup = self.messages.quoted(backup);
                self.line(format!("{source} -> {dest} (backup: {backup})"));
            }
            None => self.line(format!("{source} -> {dest}")),
        }
    }
}

impl Observer for EventPrinter<'_> {
    fn on_event(&self, event: Event) {
        let shows_names = !matches!(self.detail, OutputDetail::Nothing | OutputDetail::Json);
        let shows_skipped = matches!(self.detail, OutputDetail::Debug | OutputDetail::Explain);
        match event {
            Event::Finished(finished) => self.finished(&finished),
            Event::Problem(problem) => self.problem(&problem),
            Event::Skipped { dest, .. } => {
                if shows_skipped {
                    self.line(format!("skipped {}", self.messages.quoted(&dest)));
                }
            }
            _ if !shows_names => {}
            Event::Making {
                source,
                dest,
                backup,
            } => self.arrow(&source, &dest, backup.as_deref()),
            Event::Removed(name) => {
                self.line(format!("removed {}", self.messages.quoted(&name)));
            }
            Event::MadeParent { source, dest } => self.made_parent(&source, &dest),
            Event::Restored { backup, dest } => {
                let (backup, dest) = (self.messages.quoted(&backup), self.messages.quoted(&dest));
                self.line(format!("{backup} -> {dest} (unbackup)"));
            }
        }
    }

    fn confirm_overwrite(&self, overwriting: &OverwriteQuestion) -> bool {
        self.flush();
        let question = question(overwriting, self.messages);
        self.bar.suspend(|| {
            self.messages.ask(&question);
            let mut answer = Vec::new();
            // Without a response nothing is overwritten.
            let _ = io::stdin().lock().read_until(b'\n', &mut answer);
            matches!(answer.first(), Some(b'y' | b'Y'))
        })
    }

    fn event_detail(&self) -> EventDetail {
        match self.detail {
            _ if self.totals.is_some() => EventDetail::Everything,
            OutputDetail::Nothing => EventDetail::Problems,
            OutputDetail::Names => EventDetail::Changes,
            OutputDetail::Debug | OutputDetail::Explain | OutputDetail::Json => {
                EventDetail::Everything
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StandardOutput {
    fn line(&mut self, line: &[u8], messages: &Messages) {
        let write = |to: &mut BufWriter<Stdout>| {
            to.write_all(line)?;
            to.write_all(b"\n")
        };
        self.attempt(messages, write);
        if self.is_terminal {
            self.flush(messages);
        }
    }

    fn flush(&mut self, messages: &Messages) {
        self.attempt(messages, Write::flush);
    }

    fn attempt(
        &mut self,
        messages: &Messages,
        write: impl FnOnce(&mut BufWriter<Stdout>) -> io::Result<()>,
    ) {
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = write(&mut self.to) {
            if error.kind() == io::ErrorKind::BrokenPipe {
                messages.die_of_broken_pipe();
            }
            self.failed = Some(error);
        }
    }
}

/// The program's name, which precedes messages, and their charset.
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

    /// Writes a line after the program's name.
    pub(super) fn complain(&self, message: impl AsRef<[u8]>) {
        write_error(&[self.called.as_bytes(), b": ", message.as_ref(), b"\n"]);
    }

    /// Writes a question after the program's name, without a newline.
    pub(super) fn ask(&self, question: &str) {
        write_error(&[self.called.as_bytes(), b": ", question.as_bytes()]);
    }

    pub(super) fn hint(&self) {
        let called = self.called.as_bytes();
        write_error(&[b"Try '", called, b" --help' for more information.\n"]);
    }

    /// Writes a problem in GNU's words; `underpass cp` appends the details.
    pub(super) fn problem(&self, problem: &Problem) {
        let mut message = problem.message(self.charset).to_string();
        if self.called_as == CalledAs::Underpass {
            message += &self.details(problem);
        }
        self.complain(message);
    }

    /// Returns the failed call and the name of the errno; of an incomplete copy also the other file
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
        // The message of that kind includes them.
        let moved = problem
            .moved
            .filter(|_| !matches!(problem.kind, ProblemKind::Stopped(_)));
        let moved = moved.map(|bytes| counted(bytes, "byte") + " had moved");
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
            // The reader has closed the pipe, as in `--help | head`.
            Err(error)
                if error.kind() == io::ErrorKind::BrokenPipe
                    && self.called_as == CalledAs::Underpass =>
            {
                ExitCode::SUCCESS
            }
            Err(error) => {
                self.write_error(&error);
                ExitCode::FAILURE
            }
        }
    }

    /// Reports that standard output could not be written. Under the name `cp` a closed pipe ends
    /// the program, like every program that does not change SIGPIPE.
    pub(super) fn write_error(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.die_of_broken_pipe();
        }
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        let meaning = errno.map_or_else(|| error.to_string(), underpass::errno::meaning);
        self.complain(format!("write error: {meaning}"));
    }

    /// Ends the process by SIGPIPE, under the name `cp` only.
    pub(super) fn die_of_broken_pipe(&self) {
        if self.called_as == CalledAs::Cp {
            // If the signal does not end the process, the copy continues.
            let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
        }
    }
}

/// Writes in one call, so that lines of several programs do not mix. Ignores failures, which cannot
/// be reported.
fn write_error(parts: &[&[u8]]) {
    let _ = io::stderr().write_all(&parts.concat());
}

fn question(overwriting: &OverwriteQuestion, messages: &Messages) -> String {
    let dest = messages.quoted(&overwriting.dest);
    match (overwriting.unwritable_mode, overwriting.replaces) {
        (None, _) => format!("overwrite {dest}? "),
        (Some(mode), true) => {
            let letters = permissions(mode);
            format!("replace {dest}, overriding mode {mode:04o} ({letters})? ")
        }
        (Some(mode), false) => {
            let letters = permissions(mode);
            format!("unwritable {dest} (mode {mode:04o}, {letters}); try anyway? ")
        }
    }
}

/// Formats permissions like `ls`.
fn permissions(mode: u32) -> String {
    let letter = |bit: u32, letter: char| if mode & bit != 0 { letter } else { '-' };
    let special = |special: u32, execute: u32, both: char| match (mode & special, mode & execute) {
        (0, 0) => '-',
        (0, _) => 'x',
        (_, 0) => both.to_ascii_uppercase(),
        (_, _) => both,
    };
    [
        letter(0o400, 'r'),
        letter(0o200, 'w'),
        special(0o4000, 0o100, 's'),
        letter(0o040, 'r'),
        letter(0o020, 'w'),
        special(0o2000, 0o010, 's'),
        letter(0o004, 'r'),
        letter(0o002, 'w'),
        special(0o1000, 0o001, 't'),
    ]
    .iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_gnus() {
        let environment = CpEnvironment::read(CalledAs::Cp);
        let messages = Messages::new("cp".into(), &environment);
        let ask = |unwritable_mode, replaces| {
            let overwriting = OverwriteQuestion {
                dest: "b".into(),
                unwritable_mode,
                replaces,
            };
            question(&overwriting, &messages)
        };
        assert_eq!(ask(None, true), "overwrite 'b'? ");
        assert_eq!(
            ask(Some(0o444), true),
            "replace 'b', overriding mode 0444 (r--r--r--)? "
        );
        assert_eq!(
            ask(Some(0o4644), false),
            "unwritable 'b' (mode 4644, rwSr--r--); try anyway? "
        );
    }

    #[test]
    fn permissions_are_shown_as_ls_shows_them() {
        for (mode, expected) in [
            (0, "---------"),
            (0o2070, "---rws---"),
            (0o1777, "rwxrwxrwt"),
            (0o7000, "--S--S--T"),
        ] {
            assert_eq!(permissions(mode), expected);
        }
    }
}
