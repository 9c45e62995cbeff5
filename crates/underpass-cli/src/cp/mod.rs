//! `underpass cp`, which is GNU's `cp` with additions, and under the name `cp` nothing else.
//!
//! ```text
//!  words ─▶ getopt ─▶ draft ─▶ request ─▶ underpass_copy::copy ─▶ teller ─▶ debug, explain, json
//!             ▲                                          └─▶ Progress ─▶ gauge
//!           table ─▶ help, man page, completions
//! ```

mod debug;
mod draft;
mod explain;
mod gauge;
mod getopt;
mod help;
mod json;
mod mistake;
mod rate;
mod request;
mod signals;
mod surroundings;
mod table;
mod teller;
mod voice;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use underpass::Kernel;
use underpass_copy::{CopyContext, Ended, Progress, Recursion, Summary};

use gauge::Gauge;
use mistake::Hint;
use request::{Copying, Detail, Dialect, Request, parse};
use signals::Stop;
use surroundings::Surroundings;
use teller::Teller;
use voice::Voice;

pub(crate) use help::command;

/// What the program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// `cp`: whatever calls it expects GNU's.
    Cp,
    /// `underpass cp`: people, and what knows it.
    Underpass,
}

/// Copies. `called` is what messages begin with, `words` is what stands behind that. Exit codes:
/// 0 all done; 1 something could not be done, and standard error says what; 128 and the number of
/// the signal that ended it.
pub(crate) fn run(name: Name, called: OsString, words: Vec<OsString>) -> ExitCode {
    let surroundings = Surroundings::read();
    let voice = Voice::new(name, called, surroundings.charset);
    let mut warn = |warning: &str| voice.complain(warning.as_bytes());
    let copying = match parse(words, name, &surroundings, &mut warn) {
        Ok(Request::Copy(copying)) => copying,
        Ok(Request::Help) => return voice.print(&help::text(&voice.called_shown())),
        Ok(Request::Version) => return voice.print(&help::version(name)),
        Err(mistake) => {
            voice.complain(mistake.message.as_encoded_bytes());
            if mistake.hint == Hint::TryHelp {
                voice.hint();
            }
            return ExitCode::FAILURE;
        }
    };
    carry_out(&copying, name, &voice)
}

fn carry_out(copying: &Copying, name: Name, voice: &Voice) -> ExitCode {
    // Under the name `cp` a signal does what it does to GNU's, as long as nobody asked for more.
    let stop = match (name, copying.dialect) {
        (Name::Cp, Dialect::Gnu) => Stop::never(),
        _ => match Stop::on_signals() {
            Ok(stop) => stop,
            Err(error) => {
                voice.complain(format!("cannot catch Ctrl-C: {error}").as_bytes());
                return ExitCode::FAILURE;
            }
        },
    };
    let kernel = Kernel::probe();
    let progress = Progress::default();
    let gauge = Gauge::new(copying.show.progress);
    let teller = Teller::new(voice, copying, name, gauge.bar());
    let context = CopyContext {
        kernel: &kernel,
        observer: &teller,
        progress: &progress,
        stop: stop.flag(),
    };
    let Copying {
        operands, options, ..
    } = copying;
    let summary = gauge.watch(
        &progress,
        |enough| underpass_copy::survey(operands, options, &progress, enough),
        || underpass_copy::copy(operands, options, context),
    );
    conclude(copying, name, voice, &summary, teller, &stop)
}

fn conclude(
    copying: &Copying,
    name: Name,
    voice: &Voice,
    summary: &Summary,
    mut teller: Teller<'_>,
    stop: &Stop,
) -> ExitCode {
    match copying.show.detail {
        Detail::Json => teller.line(&json::summary(summary)),
        Detail::Ways => teller.line(&explain::summary(summary)),
        _ => {}
    }
    let written = teller.finish();
    if let Err(error) = &written {
        voice.write_error(error);
    }
    if teller.untold() > 0 {
        voice.complain(format!("no room for {} more", teller.untold()).as_bytes());
    }
    if name == Name::Underpass && is_worth_a_summary(copying, summary) {
        voice.complain(explain::ended(summary).as_bytes());
    }
    match (summary.ended, stop.signal()) {
        (Ended::Stopped, Some(signal)) => ExitCode::from(128 + signal),
        // A question that was answered by no leaves something undone, in GNU's eyes since 9.2.
        _ if summary.errors + summary.declined > 0 || written.is_err() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// After many names it is said how many there were, if not all went well: the messages may be far
/// above.
fn is_worth_a_summary(copying: &Copying, summary: &Summary) -> bool {
    let is_many = copying.options.recursion == Recursion::On || copying.operands.len() > 2;
    let is_told = copying.show.detail == Detail::Json;
    match summary.ended {
        _ if is_told => false,
        Ended::Stopped => true,
        Ended::ByItself => is_many && summary.errors > 0,
    }
}
