//! Ctrl-C and SIGTERM: the first one stops the copy, the second one ends the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether a signal has stopped the copy.
#[derive(Debug, Default)]
pub(super) struct StopSignal {
    flag: Arc<AtomicBool>,
    /// Its number; 0 is none.
    signal: Arc<AtomicUsize>,
}

impl StopSignal {
    /// Leaves signals as they are.
    pub(super) fn never() -> Self {
        Self::default()
    }

    /// Catches signals from now on.
    pub(super) fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&stop.flag))?;
            let number = usize::try_from(signal).unwrap_or_default();
            flag::register_usize(signal, Arc::clone(&stop.signal), number)?;
            flag::register(signal, Arc::clone(&stop.flag))?;
        }
        Ok(stop)
    }

    pub(super) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    pub(super) fn signal(&self) -> Option<u8> {
        let signal = u8::try_from(self.signal.load(Ordering::Relaxed)).ok()?;
        (signal > 0).then_some(signal)
    }
}
