//! Ctrl-C and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use underpass::is_signal_ignored;

/// The signal that stopped a measurement. A second one ends the process.
#[derive(Debug, Default)]
pub(crate) struct CaughtSignal {
    flag: Arc<AtomicBool>,
    /// The number of the signal; 0 for none.
    number: Arc<AtomicUsize>,
}

impl CaughtSignal {
    /// Catches SIGINT and SIGTERM from now on, except where they were ignored at the start: Ctrl-C
    /// does not end the background job of a script.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn catch() -> Result<Self, String> {
        let stop = Self::default();
        let wanted = [SIGINT, SIGTERM].into_iter();
        for signal in wanted.filter(|signal| !is_signal_ignored(*signal)) {
            stop.register(signal)
                .map_err(|error| format!("cannot catch Ctrl-C: {error}"))?;
        }
        Ok(stop)
    }

    fn register(&self, signal: i32) -> io::Result<()> {
        flag::register_conditional_default(signal, Arc::clone(&self.flag))?;
        flag::register_usize(signal, Arc::clone(&self.number), signal as usize)?;
        flag::register(signal, Arc::clone(&self.flag)).map(drop)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    pub(crate) fn number(&self) -> Option<u8> {
        let number = u8::try_from(self.number.load(Ordering::Relaxed)).ok()?;
        (number > 0).then_some(number)
    }
}
