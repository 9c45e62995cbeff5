//! The progress of a copy, drawn by a thread that only reads counters.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use underpass_copy::CopyProgress;

use super::words::When;
use crate::layout::counted;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// What ends earlier has no bar.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Runs `act` and shows its progress by `bar`, which is hidden until it is due; then `survey`
/// finds how much there is to do, until its flag is set.
pub(super) fn watch<T>(
    bar: &ProgressBar,
    when: When,
    progress: &CopyProgress,
    survey: impl Fn(&AtomicBool) + Sync,
    act: impl FnOnce() -> T,
) -> T {
    let enough = AtomicBool::new(false);
    let survey = || survey(&enough);
    std::thread::scope(|scope| {
        let (over, until) = channel::<()>();
        let surveyor = || drop(scope.spawn(survey));
        scope.spawn(move || draw(bar, when, progress, &until, surveyor));
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
    if stderr().is_terminal() {
        bar.finish_and_clear();
    } else if when == When::Always {
        // Where lines can't be overwritten, only the end is shown.
        bar.set_position(progress.bytes_done.load(Relaxed));
        eprintln!("{}", at_the_end(bar, progress));
    }
}

/// There are no colours, with or without NO_COLOR.
fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

fn sample(bar: &ProgressBar, progress: &CopyProgress) {
    let found = progress.bytes_found.load(Relaxed);
    // While more is found, a bar would run backwards.
    let is_known = progress.all_found.load(Relaxed) != 0;
    if is_known && bar.length().is_none() {
        style(bar, "[{bar:20}] {wide_msg}");
    }
    if is_known {
        bar.set_length(found.max(bar.position()));
    }
    bar.set_message(line(bar, progress));
}

fn line(bar: &ProgressBar, progress: &CopyProgress) -> String {
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let (files, files_found) = (read(&progress.files_done), read(&progress.files_found));
    let rate = bar.per_sec() as u64;
    let so_far = match bar.length() {
        None => " found so far",
        Some(_) => "",
    };
    let left = match (bar.length(), rate) {
        (None, _) | (_, 0) => String::new(),
        _ => format!(", {} left", HumanDuration(bar.eta())),
    };
    format!(
        "{} of {}, {files} of {files_found} files{so_far}, {}/s{left}",
        HumanBytes(bar.position()),
        HumanBytes(read(&progress.bytes_found)),
        HumanBytes(rate),
    )
}

/// The last line: what was found is left out, since it may not be all.
fn at_the_end(bar: &ProgressBar, progress: &CopyProgress) -> String {
    let files = counted(progress.files_done.load(Relaxed), "file");
    let (bytes, rate) = (HumanBytes(bar.position()), HumanBytes(bar.per_sec() as u64));
    format!("{bytes}, {files}, {rate}/s")
}
