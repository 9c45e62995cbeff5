//! `underpass cp`: GNU's `cp` with additions; under the name `cp`, GNU's.
//!
//! ```text
//!  words ─▶ getopt ─▶ table ─▶ request ─▶ copy ─▶ printer ─▶ explain, totals, json
//!                       │                   └─▶ CopyProgress ─▶ progress
//!                       └──▶ help, man page, completions
//! ```

mod explain;
mod getopt;
mod help;
mod json;
mod printer;
mod progress;
mod request;
mod table;
mod totals;
mod words;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use underpass::{Kernel, is_signal_ignored};
use underpass_copy::{CopyContext, CopyEnd, CopyProgress, CopySummary};

use getopt::parse;
use printer::{EventPrinter, Messages};
use request::{CopyCommand, CpEnvironment, CpRequest, Dialect, OutputDetail};
use words::{Explains, When};

pub(crate) use help::command;
pub(crate) use request::CalledAs;

/// Runs a copy. `called` precedes messages, `words` are the arguments. Exit codes: 0 for success;
/// 1 after an error, reported on standard error; 128 plus the number of the signal that stopped it.
pub(crate) fn run(called_as: CalledAs, called: OsString, words: Vec<OsString>) -> ExitCode {
    let environment = CpEnvironment::read(called_as);
    let messages = Messages::new(called, &environment);
    let mut warn = |warning: &str| messages.complain(warning);
    match parse(words, &environment, &mut warn) {
        Ok(CpRequest::Copy(command)) => carry_out(&command, &messages),
        Ok(CpRequest::ShowHelp) => messages.print(&help::text(&messages.called_shown())),
        Ok(CpRequest::ShowVersion) => messages.print(&help::version(called_as)),
        Err(error) => {
            messages.complain(error.message.as_encoded_bytes());
            if error.has_hint {
                messages.hint();
            }
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: &CopyCommand, messages: &Messages) -> ExitCode {
    // Under the name `cp` signal handling is unchanged, unless our options are used.
    let stop = match (messages.called_as, command.dialect) {
        (CalledAs::Cp, Dialect::Gnu) => StopSignal::default(),
        _ => match StopSignal::on_signals() {
            Ok(stop) => stop,
            Err(why) => {
                messages.complain(why);
                return ExitCode::FAILURE;
            }
        },
    };
    let start = underpass_copy::begin(&command.operands, &command.options);
    let kernel = Kernel::probe();
    let progress = CopyProgress::default();
    let bar = ProgressBar::hidden();
    let printer = EventPrinter::new(messages, command, bar.clone());
    let context = CopyContext {
        kernel: &kernel,
        observer: &printer,
        progress: &progress,
        stop: stop.flag(),
        start,
    };
    let CopyCommand {
        operands, options, ..
    } = command;
    let copy = || underpass_copy::copy(operands, options, context);
    let summary = match command.progress {
        When::Never => copy(),
        When::Auto if !io::stderr().is_terminal() => copy(),
        when => {
            let survey = |enough: &_| underpass_copy::survey(operands, options, &progress, enough);
            progress::watch(&bar, when, &progress, survey, copy)
        }
    };
    conclude(command, messages, &summary, printer, &stop)
}

fn conclude(
    command: &CopyCommand,
    messages: &Messages,
    summary: &CopySummary,
    printer: EventPrinter<'_>,
    stop: &StopSignal,
) -> ExitCode {
    match command.detail {
        OutputDetail::Json => printer.line(json::summary(summary)),
        _ if command.explains != Explains::Nothing => {
            printer.totals().iter().for_each(|line| printer.line(line));
            printer.line(explain::summary(summary));
        }
        _ => {}
    }
    let written = printer.finish();
    if let Err(error) = &written {
        messages.write_error(error);
    }
    if printer.unreported() > 0 {
        messages.complain(format!("no space left for {} more", printer.unreported()));
    }
    if messages.called_as == CalledAs::Underpass && needs_summary(command, summary) {
        let line = explain::ended(summary, printer.stopped(), &command.options);
        messages.complain(line);
    }
    match (summary.ended, stop.signal()) {
        (CopyEnd::Stopped, Some(signal)) => ExitCode::from(128 + signal),
        // A declined question is a failure, as in GNU cp since 9.2.
        _ if summary.errors + summary.declined > 0 || written.is_err() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Returns whether to report counts at the end: after many names, messages may have scrolled away.
fn needs_summary(command: &CopyCommand, summary: &CopySummary) -> bool {
    let is_many = command.options.recursive || command.operands.len() > 2;
    match summary.ended {
        _ if command.detail == OutputDetail::Json => false,
        CopyEnd::Stopped => true,
        CopyEnd::ByItself => is_many && summary.errors > 0,
    }
}

/// Whether a signal has stopped a copy or a measurement: the first Ctrl-C or SIGTERM does, the
/// second one ends the process. By default signal handling is unchanged.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    flag: Arc<AtomicBool>,
    /// The number of the signal, or 0.
    signal: Arc<AtomicUsize>,
}

impl StopSignal {
    /// Catches signals from now on, except those that were ignored at the start: a script's
    /// background job must not end by the Ctrl-C for its foreground.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn on_signals() -> Result<Self, String> {
        let stop = Self::default();
        // Until all handlers are installed, a signal ends the process, as before.
        stop.flag.store(true, Ordering::Relaxed);
        let wanted = [SIGINT, SIGTERM].into_iter();
        let mut caught = wanted
            .filter(|signal| !is_signal_ignored(*signal))
            .map(|signal| {
                flag::register_conditional_default(signal, Arc::clone(&stop.flag))?;
                flag::register_usize(signal, Arc::clone(&stop.signal), signal as usize)?;
                flag::register(signal, Arc::clone(&stop.flag))
            });
        let caught = caught.try_for_each(|caught| caught.map(drop));
        caught.map_err(|error: io::Error| format!("cannot catch Ctrl-C: {error}"))?;
        stop.flag.store(false, Ordering::Relaxed);
        Ok(stop)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    pub(crate) fn signal(&self) -> Option<u8> {
        let signal = u8::try_from(self.signal.load(Ordering::Relaxed)).ok()?;
        (signal > 0).then_some(signal)
    }
}
