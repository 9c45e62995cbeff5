//! The progress of a run, on a terminal only.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The interval at which the bar is redrawn while nothing happens, so that its clock runs.
const TICK: Duration = Duration::from_millis(500);

/// A bar on standard error with the current case and the time left.
#[derive(Debug)]
pub(crate) struct RunProgress {
    bar: ProgressBar,
}

impl RunProgress {
    /// For a run whose plays have this weight together. Weights are estimates in milliseconds.
    pub(crate) fn of(weight: u64) -> RunProgress {
        let bar = ProgressBar::with_draw_target(Some(weight), ProgressDrawTarget::stderr());
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let template = "{elapsed_precise} [{bar:30}] {percent:>3} %, {eta} left: {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(TICK);
        RunProgress { bar }
    }

    pub(crate) fn begin(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Adds a play of this weight. Repeated rounds have no weight.
    pub(crate) fn done(&self, weight: u64) {
        let left = self.bar.length().unwrap_or(0) - self.bar.position();
        self.bar.inc(weight.min(left));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
