//! Listens to a copy, and tells what was asked for.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufWriter, IsTerminal, Stdout, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;
use rustix::io::Errno;
use underpass_copy::{Curiosity, Effect, Event, Finished, Manner, Observer, Overwriting, Problem};

use super::Name;
use super::request::{Copying, Detail};
use super::voice::Voice;
use super::{debug, explain, json};

pub(super) struct Teller<'a> {
    voice: &'a Voice,
    detail: Detail,
    manner: Manner,
    /// Drawn where problems are written, so it makes room for them.
    bar: ProgressBar,
    out: Mutex<Out>,
    repeats: Repeats,
    /// Files that there was no room for.
    roomless: AtomicU64,
}

/// Whether a full disk is told again and again, for every file that it has no room for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    /// As GNU's does.
    Told,
    Counted,
}

/// Standard output, written in pieces as big as make sense.
struct Out {
    to: BufWriter<Stdout>,
    lines: Lines,
    /// Why nothing more is written: nobody can be told in the middle of a copy.
    failed: Option<io::Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    /// Somebody looks: line by line.
    AtOnce,
    Together,
}

impl<'a> Teller<'a> {
    pub(super) fn new(voice: &'a Voice, copying: &Copying, name: Name, bar: ProgressBar) -> Self {
        let detail = match (copying.show.detail, copying.options.effect) {
            // What would be done is all there is to know.
            (Detail::Nothing, Effect::ToldOnly) => Detail::Names,
            (detail, _) => detail,
        };
        let out = Out {
            to: BufWriter::new(io::stdout()),
            lines: match io::stdout().is_terminal() {
                true => Lines::AtOnce,
                false => Lines::Together,
            },
            failed: None,
        };
        Self {
            voice,
            detail,
            manner: copying.options.manner,
            bar,
            out: Mutex::new(out),
            repeats: match name {
                Name::Cp => Repeats::Told,
                Name::Underpass => Repeats::Counted,
            },
            roomless: AtomicU64::new(0),
        }
    }

    /// Files for which a full disk was not told again.
    pub(super) fn untold(&self) -> u64 {
        match self.repeats {
            Repeats::Told => 0,
            Repeats::Counted => self.roomless.load(Relaxed).saturating_sub(1),
        }
    }

    /// A line of standard output.
    pub(super) fn line(&self, line: &str) {
        self.raw_line(line.as_bytes());
    }

    fn raw_line(&self, line: &[u8]) {
        let mut out = self.out();
        if out.lines == Lines::AtOnce && !self.bar.is_hidden() {
            self.bar.suspend(|| out.line(line, self.voice));
        } else {
            out.line(line, self.voice);
        }
    }

    /// Writes what was not written yet.
    ///
    /// # Errors
    /// The first one that writing met.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let out = self.out.get_mut().unwrap_or_else(PoisonError::into_inner);
        match out.failed.take() {
            Some(error) => Err(error),
            None => out.to.flush(),
        }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was told before stands before a problem or a question.
    fn flush(&self) {
        self.out().flush(self.voice);
    }

    fn problem(&self, problem: &Problem) {
        let is_full = matches!(problem.errno, Some(Errno::NOSPC | Errno::DQUOT));
        let again = is_full && self.roomless.fetch_add(1, Relaxed) > 0;
        if !again || self.repeats == Repeats::Told {
            self.flush();
            self.bar.suspend(|| self.voice.tell(problem));
        }
        if self.detail == Detail::Json {
            self.line(&json::problem(problem));
        }
    }

    fn finished(&self, finished: &Finished) {
        match self.detail {
            Detail::Nothing | Detail::Names => {}
            Detail::Debug if self.manner == Manner::Copy => {
                if let Some(line) = debug::line(finished) {
                    self.line(&line);
                }
            }
            Detail::Debug => {}
            Detail::Ways => explain::lines(finished)
                .iter()
                .for_each(|line| self.line(line)),
            Detail::Json => self.line(&json::finished(finished)),
        }
    }

    /// GNU shows these names as they are, whatever is in them.
    fn made_parent(&self, source: &OsStr, dest: &OsStr) {
        match self.voice.name() {
            Name::Underpass => self.arrow(source, dest, None),
            Name::Cp => {
                let line = [source.as_bytes(), b" -> ", dest.as_bytes()].concat();
                self.raw_line(&line);
            }
        }
    }

    fn arrow(&self, source: &OsStr, dest: &OsStr, backup: Option<&OsStr>) {
        let (source, dest) = (self.voice.quoted(source), self.voice.quoted(dest));
        match backup {
            Some(backup) => {
                let backup = self.voice.quoted(backup);
                self.line(&format!("{source} -> {dest} (backup: {backup})"));
            }
            None => self.line(&format!("{source} -> {dest}")),
        }
    }
}

impl Observer for Teller<'_> {
    fn told(&self, event: Event) {
        let shows_names = !matches!(self.detail, Detail::Nothing | Detail::Json);
        let shows_skipped = matches!(self.detail, Detail::Debug | Detail::Ways);
        match event {
            Event::Making {
                source,
                dest,
                backup,
            } if shows_names => self.arrow(&source, &dest, backup.as_deref()),
            Event::Removed(name) if shows_names => {
                self.line(&format!("removed {}", self.voice.quoted(&name)));
            }
            Event::Skipped { dest, .. } if shows_skipped => {
                self.line(&format!("skipped {}", self.voice.quoted(&dest)));
            }
            Event::MadeParent { source, dest } if shows_names => self.made_parent(&source, &dest),
            Event::Restored { backup, dest } if shows_names => {
                let (backup, dest) = (self.voice.quoted(&backup), self.voice.quoted(&dest));
                self.line(&format!("{backup} -> {dest} (unbackup)"));
            }
            Event::Making { .. }
            | Event::Restored { .. }
            | Event::MadeParent { .. }
            | Event::Removed(_)
            | Event::Skipped { .. } => {}
            Event::Finished(finished) => self.finished(&finished),
            Event::Problem(problem) => self.problem(&problem),
        }
    }

    fn may_overwrite(&self, overwriting: &Overwriting) -> bool {
        self.flush();
        let question = question(overwriting, self.voice);
        self.bar.suspend(|| {
            self.voice.ask(&question);
            let mut answer = Vec::new();
            // Where nothing can be read, nobody agreed.
            let _ = io::stdin().lock().read_until(b'\n', &mut answer);
            matches!(answer.first(), Some(b'y' | b'Y'))
        })
    }

    fn curiosity(&self) -> Curiosity {
        match self.detail {
            Detail::Nothing => Curiosity::Problems,
            Detail::Names => Curiosity::Changes,
            Detail::Debug | Detail::Ways | Detail::Json => Curiosity::Everything,
        }
    }
}

impl Out {
    fn line(&mut self, line: &[u8], voice: &Voice) {
        if self.failed.is_none() {
            let written = self
                .to
                .write_all(line)
                .and_then(|()| self.to.write_all(b"\n"));
            self.note(written, voice);
        }
        if self.lines == Lines::AtOnce {
            self.flush(voice);
        }
    }

    fn flush(&mut self, voice: &Voice) {
        if self.failed.is_none() {
            let flushed = self.to.flush();
            self.note(flushed, voice);
        }
    }

    fn note(&mut self, written: io::Result<()>, voice: &Voice) {
        if let Err(error) = written {
            if error.kind() == io::ErrorKind::BrokenPipe {
                voice.die_of_broken_pipe();
            }
            self.failed = Some(error);
        }
    }
}

fn question(overwriting: &Overwriting, voice: &Voice) -> String {
    let dest = voice.quoted(&overwriting.dest);
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

/// As `ls` shows them.
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
    use underpass_copy::Charset;

    use super::*;

    #[test]
    fn questions_are_gnus() {
        let voice = Voice::new(Name::Cp, "cp".into(), Charset::Utf8);
        let ask = |unwritable_mode, replaces| {
            let overwriting = Overwriting {
                dest: "b".into(),
                unwritable_mode,
                replaces,
            };
            question(&overwriting, &voice)
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
