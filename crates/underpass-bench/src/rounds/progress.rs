//! How far a run has come, on a terminal; nothing where nobody looks.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Drawn anew this often while nothing happens, so that the clock goes on.
const TICK: Duration = Duration::from_millis(500);

/// A bar on standard error with what is being measured, and when it will be over.
#[derive(Debug)]
pub(crate) struct RunProgress {
    bar: ProgressBar,
}

impl RunProgress {
    /// Of a run whose plays weigh so much together. Weights are guesses of milliseconds.
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

    /// What is measured from now on.
    pub(crate) fn begin(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// A play of this weight is over. Rounds that are repeated weigh nothing.
    pub(crate) fn done(&self, weight: u64) {
        let left = self.bar.length().unwrap_or(0) - self.bar.position();
        self.bar.inc(weight.min(left));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
