//! The progress of a copy, drawn by a thread that only reads counters.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use underpass_copy::CopyProgress;

use super::words::When;
use crate::layout::{columns, counted};

/// The interval between updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// The time after which a bar is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// The width of the bar, and of a terminal that has room for one.
const BAR_COLUMNS: usize = 23;
const BAR_TERMINAL_COLUMNS_MIN: usize = 60;

/// Runs `act` and shows its progress in `bar`, which is hidden until it is due; then `survey`
/// counts the bytes to copy, until its flag is set.
pub(super) fn watch<T>(
    bar: &ProgressBar,
    when: When,
    progress: &CopyProgress,
    survey: impl Fn(&AtomicBool) + Sync,
    act: impl FnOnce() -> T,
) -> T {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let draws = stderr().is_terminal() && !is_dumb;
    if when == When::Auto && !draws {
        return act();
    }
    let enough = AtomicBool::new(false);
    let survey = || survey(&enough);
    std::thread::scope(|scope| {
        let (over, until) = channel::<()>();
        let surveyor = || drop(scope.spawn(survey));
        scope.spawn(move || {
            if draws {
                draw(bar, when, progress, &until, surveyor);
            } else {
                report_at_end(bar, progress, &until);
            }
        });
        let outcome = act();
        enough.store(true, Relaxed);
        drop(over);
        outcome
    })
}

fn draw(
    bar: &ProgressBar,
    when: When,
    progress: &CopyProgress,
    until: &Receiver<()>,
    surveyor: impl Fn(),
) {
    let begin = Instant::now();
    let mut first = Some(());
    while until.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        bar.set_position(progress.bytes_done.load(Relaxed));
        if when == When::Auto && begin.elapsed() < SHOWN_AFTER {
            continue;
        }
        if first.take().is_some() {
            surveyor();
            style(bar, "{wide_msg}");
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        sample(bar, progress);
    }
    bar.finish_and_clear();
}

/// Sets a style without colours.
fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

fn sample(bar: &ProgressBar, progress: &CopyProgress) {
    let found = progress.bytes_found.load(Relaxed);
    let mut columns = columns(stderr(), 80);
    // While more is found, a bar would move backwards.
    if progress.all_found.load(Relaxed) != 0 {
        bar.set_length(found.max(bar.position()));
        if columns >= BAR_TERMINAL_COLUMNS_MIN {
            style(bar, "[{bar:20}] {wide_msg}");
            columns -= BAR_COLUMNS;
        } else {
            style(bar, "{wide_msg}");
        }
    }
    bar.set_message(line(bar, progress, columns));
}

/// Returns the line after the bar: rate and time first, then as much as fits.
fn line(bar: &ProgressBar, progress: &CopyProgress, columns: usize) -> String {
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let rate = bar.per_sec() as u64;
    let mut parts = vec![format!("{}/s", HumanBytes(rate))];
    if bar.length().is_some() && rate > 0 {
        parts.push(format!("{:#} left", HumanDuration(bar.eta())));
    }
    let (done, found) = (bar.position(), read(&progress.bytes_found));
    parts.push(format!("{} of {}", HumanBytes(done), HumanBytes(found)));
    let so_far = match bar.length() {
        None => " found so far",
        Some(_) => "",
    };
    let (files, files_found) = (read(&progress.files_done), read(&progress.files_found));
    parts.push(format!("{files} of {files_found} files{so_far}"));
    fitted(parts, columns)
}

/// Joins as many parts, from the first one, as fit into a line.
fn fitted(parts: Vec<String>, columns: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let separator = if line.is_empty() { "" } else { ", " };
        if !line.is_empty() && line.len() + separator.len() + part.len() > columns {
            break;
        }
        line = line + separator + &part;
    }
    line
}

/// Shows only the final state, for output that cannot overwrite lines. The bytes found are left
/// out, since the survey may be incomplete.
fn report_at_end(bar: &ProgressBar, progress: &CopyProgress, until: &Receiver<()>) {
    while until.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        bar.set_position(progress.bytes_done.load(Relaxed));
    }
    bar.set_position(progress.bytes_done.load(Relaxed));
    let files = counted(progress.files_done.load(Relaxed), "file");
    let (bytes, rate) = (HumanBytes(bar.position()), HumanBytes(bar.per_sec() as u64));
    let _ = writeln!(stderr(), "{bytes}, {files}, {rate}/s");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_terminals_keep_rate_and_time() {
        let line = |columns| {
            let parts = [
                "120.00 MiB/s",
                "10s left",
                "512.00 MiB of 10.00 GiB",
                "5 of 9 files",
            ];
            fitted(parts.map(str::to_owned).to_vec(), columns)
        };
        assert_eq!(line(20), "120.00 MiB/s");
        assert_eq!(line(40), "120.00 MiB/s, 10s left");
        assert_eq!(
            line(80 - BAR_COLUMNS),
            "120.00 MiB/s, 10s left, 512.00 MiB of 10.00 GiB"
        );
        assert!(line(80).ends_with("5 of 9 files"));
    }
}
