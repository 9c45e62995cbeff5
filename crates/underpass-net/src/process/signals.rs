//! Actions requested by signals.

use std::future::pending;
use std::io;
use std::thread;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use underpass::is_signal_ignored;

use crate::error::Error;

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SignalAction {
    /// SIGINT, SIGTERM: stop; a second one stops immediately.
    Stop,
    /// SIGHUP: reload the configuration.
    Reload,
    /// SIGUSR1: reopen logs.
    Reopen,
    /// SIGUSR2: replace this process by a new one of the same program.
    Upgrade,
}

/// Calls `obey` for each of these signals instead of ending the process. The calls are made one
/// after another on a separate thread and should not block; signals that arrive during a call are
/// merged. Returns immediately; the thread lives as long as the process.
///
/// # Errors
/// [`Error::Worker`] if the thread cannot be created or the signals cannot be watched.
pub fn watch_signals(obey: impl FnMut(SignalAction) + Send + 'static) -> Result<(), Error> {
    EarlySignals::keep()?.watch(obey)
}

/// Signals that have arrived while a process starts, when there is nothing to reload, reopen or
/// replace yet. They do not end it. A signal to stop does, also in the middle of a long start.
#[derive(Debug)]
pub struct EarlySignals {
    runtime: Runtime,
    /// None if it was ignored at the start, as by nohup.
    hang_up: Option<Signal>,
    user_1: Signal,
    user_2: Signal,
}

impl EarlySignals {
    /// Keeps these signals from now on.
    ///
    /// # Errors
    /// [`Error::Worker`] if the signals cannot be watched.
    pub fn keep() -> Result<EarlySignals, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(failed)?;
        let entered = runtime.enter();
        let hang_up = unless_ignored(SignalKind::hangup()).map_err(failed)?;
        let user_1 = signal(SignalKind::user_defined1()).map_err(failed)?;
        let user_2 = signal(SignalKind::user_defined2()).map_err(failed)?;
        drop(entered);
        Ok(EarlySignals {
            runtime,
            hang_up,
            user_1,
            user_2,
        })
    }

    /// Obeys the signals that have arrived, and all signals from now on, as [`watch_signals`] does.
    ///
    /// # Errors
    /// [`Error::Worker`] if the thread cannot be created or the signals cannot be watched.
    pub fn watch(self, obey: impl FnMut(SignalAction) + Send + 'static) -> Result<(), Error> {
        let entered = self.runtime.enter();
        let interrupt = unless_ignored(SignalKind::interrupt()).map_err(failed)?;
        let terminate = signal(SignalKind::terminate()).map_err(failed)?;
        drop(entered);
        let signals = Signals {
            interrupt,
            terminate,
            hang_up: self.hang_up,
            user_1: self.user_1,
            user_2: self.user_2,
        };
        let runtime = self.runtime;
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(signals.pass_on(obey)))
            .map_err(failed)?;
        Ok(())
    }
}

fn failed(source: io::Error) -> Error {
    Error::Worker {
        doing: "watch for signals",
        source,
    }
}

struct Signals {
    /// None if it was ignored at the start: a script's background job must not end by the Ctrl-C
    /// for its foreground.
    interrupt: Option<Signal>,
    terminate: Signal,
    /// None if it was ignored at the start, as by nohup.
    hang_up: Option<Signal>,
    user_1: Signal,
    user_2: Signal,
}

impl Signals {
    async fn pass_on(mut self, mut obey: impl FnMut(SignalAction)) {
        loop {
            obey(tokio::select! {
                () = next(&mut self.interrupt) => SignalAction::Stop,
                _ = self.terminate.recv() => SignalAction::Stop,
                () = next(&mut self.hang_up) => SignalAction::Reload,
                _ = self.user_1.recv() => SignalAction::Reopen,
                _ = self.user_2.recv() => SignalAction::Upgrade,
            });
        }
    }
}

fn unless_ignored(kind: SignalKind) -> io::Result<Option<Signal>> {
    match is_signal_ignored(kind.as_raw_value()) {
        true => Ok(None),
        false => signal(kind).map(Some),
    }
}

/// Waits for a signal; forever for one that is ignored.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}
