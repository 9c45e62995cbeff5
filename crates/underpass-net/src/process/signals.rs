//! What signals ask for.

use std::io;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SignalAction {
    /// SIGINT, SIGTERM: stop; once more: at once.
    Stop,
    /// SIGHUP: read the configuration anew.
    Reload,
    /// SIGUSR1: open logs anew.
    Reopen,
    /// SIGUSR2: let the program's file take over.
    Upgrade,
}

/// From now on these signals call `obey` instead of ending the process, one after another on a
/// thread of their own, which must not be held up. Signals that come while it is busy are one.
/// Returns at once; the thread lives as long as the process.
///
/// # Errors
/// [`Error::Worker`] if the thread cannot be made or the signals not be taken.
pub fn watch_signals(obey: impl FnMut(SignalAction) + Send + 'static) -> Result<(), Error> {
    let failed = |source| Error::Worker {
        doing: "watch for signals",
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let signals = runtime.block_on(async { Signals::new() }).map_err(failed)?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(signals.pass_on(obey)))
        .map_err(failed)?;
    Ok(())
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    user_1: Signal,
    user_2: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            user_1: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
        })
    }

    async fn pass_on(mut self, mut obey: impl FnMut(SignalAction)) {
        loop {
            obey(tokio::select! {
                _ = self.interrupt.recv() => SignalAction::Stop,
                _ = self.terminate.recv() => SignalAction::Stop,
                _ = self.hang_up.recv() => SignalAction::Reload,
                _ = self.user_1.recv() => SignalAction::Reopen,
                _ = self.user_2.recv() => SignalAction::Upgrade,
            });
        }
    }
}
