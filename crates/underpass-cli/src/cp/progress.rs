//! The progress of a copy, drawn by a thread that only reads counters.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use underpass_copy::CopyProgress;

use super::words::When;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// What ends earlier has no bar.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// The time that a rate is measured over: short enough to follow a change, long enough to read.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// A progress bar, which is hidden until it is due.
#[derive(Debug)]
pub(super) struct ProgressDisplay {
    bar: ProgressBar,
    when: When,
}

impl ProgressDisplay {
    pub(super) fn new(when: When) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let when = match when {
            When::Auto if !std::io::stderr().is_terminal() => When::Never,
            when => when,
        };
        Self { bar, when }
    }

    /// The bar, to be suspended while something is written where it is drawn.
    pub(super) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Runs `act` and shows its progress. When the bar is due, `survey` finds how much there is to
    /// do, until its flag is set.
    pub(super) fn watch<T>(
        &self,
        progress: &CopyProgress,
        survey: impl Fn(&AtomicBool) + Sync,
        act: impl FnOnce() -> T,
    ) -> T {
        if self.when == When::Never {
            return act();
        }
        let enough = AtomicBool::new(false);
        let survey = || survey(&enough);
        std::thread::scope(|scope| {
            let (over, until) = channel::<()>();
            let surveyor = || drop(scope.spawn(survey));
            scope.spawn(move || self.draw(progress, &until, surveyor));
            let outcome = act();
            enough.store(true, Relaxed);
            drop(over);
            outcome
        })
    }

    fn draw(&self, progress: &CopyProgress, until: &Receiver<()>, surveyor: impl Fn()) {
        let mut samples = RateSamples::new();
        let mut first = Some(());
        while until.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            samples.take(progress.bytes_done.load(Relaxed));
            let waits = self.when == When::Auto && samples.begin.elapsed() < SHOWN_AFTER;
            if waits {
                continue;
            }
            if first.take().is_some() {
                surveyor();
            }
            if self.bar.is_hidden() {
                self.show();
            }
            self.sample(progress, &samples);
        }
        if std::io::stderr().is_terminal() {
            self.bar.finish_and_clear();
        } else if self.when == When::Always {
            // Where lines can't be overwritten, only the end is shown.
            samples.take(progress.bytes_done.load(Relaxed));
            eprintln!("{}", at_the_end(progress, &samples));
        }
    }

    fn show(&self) {
        self.style("{wide_msg}");
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
    }

    /// There are no colours, with or without NO_COLOR.
    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }

    fn sample(&self, progress: &CopyProgress, samples: &RateSamples) {
        let (found, done) = (
            progress.bytes_found.load(Relaxed),
            progress.bytes_done.load(Relaxed),
        );
        // While more is found, a bar would run backwards.
        let is_known = progress.all_found.load(Relaxed) != 0;
        if is_known && self.bar.length().is_none() {
            self.style("[{bar:20}] {wide_msg}");
        }
        if is_known {
            self.bar.set_length(found.max(done));
        }
        self.bar.set_position(done);
        self.bar.set_message(line(progress, samples));
    }
}

fn line(progress: &CopyProgress, samples: &RateSamples) -> String {
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
    let (done, found) = (read(&progress.bytes_done), read(&progress.bytes_found));
    let (files, files_found) = (read(&progress.files_done), read(&progress.files_found));
    let rate = samples.rate();
    let so_far = match read(&progress.all_found) {
        0 => " found so far",
        _ => "",
    };
    let left = match (read(&progress.all_found), rate) {
        (0, _) | (_, 0) => String::new(),
        (_, rate) => {
            let left = Duration::from_secs(found.saturating_sub(done).div_ceil(rate));
            format!(", {} left", HumanDuration(left))
        }
    };
    format!(
        "{} of {}, {files} of {files_found} files{so_far}, {}/s{left}",
        HumanBytes(done),
        HumanBytes(found),
        HumanBytes(rate),
    )
}

/// The last line: what was found is left out, since it may not be all.
fn at_the_end(progress: &CopyProgress, samples: &RateSamples) -> String {
    let bytes = HumanBytes(progress.bytes_done.load(Relaxed));
    let files = match progress.files_done.load(Relaxed) {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    format!("{bytes}, {files}, {}/s", HumanBytes(samples.rate()))
}

/// Bytes done, and when.
struct RateSamples {
    begin: Instant,
    taken: Vec<(Instant, u64)>,
}

impl RateSamples {
    fn new() -> Self {
        let begin = Instant::now();
        Self {
            begin,
            taken: vec![(begin, 0)],
        }
    }

    fn take(&mut self, bytes: u64) {
        let now = Instant::now();
        self.taken.push((now, bytes));
        let is_old = |(taken, _): &(Instant, u64)| now.duration_since(*taken) > RATE_WINDOW;
        // The newest of the old ones stays: the rate is measured from there.
        let old = self
            .taken
            .iter()
            .take_while(|sample| is_old(sample))
            .count();
        self.taken.drain(..old.saturating_sub(1));
    }

    /// Bytes per second.
    fn rate(&self) -> u64 {
        let (Some(first), Some(last)) = (self.taken.first(), self.taken.last()) else {
            return 0;
        };
        let seconds = last.0.duration_since(first.0).as_secs_f64();
        match seconds > 0.0 {
            true => (last.1.saturating_sub(first.1) as f64 / seconds) as u64,
            false => 0,
        }
    }
}
