//! Ctrl-C and SIGTERM ask for a stop: the first one lets running answers end, the second does not.
//! SIGUSR1 asks for logs to be opened anew.

use std::io;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;
use crate::shutdown::Shutdown;

/// From now on SIGINT and SIGTERM advance `shutdown` by a phase instead of ending the process.
/// Returns at once; the watching thread lives as long as the process.
///
/// # Errors
/// [`Error::Worker`] if the thread cannot be made or the signals not be taken.
pub fn obey_signals(shutdown: Shutdown) -> Result<(), Error> {
    let failed = |source| Error::Worker {
        doing: "watch for signals",
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let (interrupt, terminate) = runtime.block_on(async { both() }).map_err(failed)?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(pass_on(interrupt, terminate, &shutdown)))
        .map_err(failed)?;
    Ok(())
}

/// From now on SIGUSR1 has `reopen` called, on a thread that lives as long as the process, instead
/// of ending the process. Returns at once.
///
/// # Errors
/// [`Error::Worker`] if the thread cannot be made or the signal not be taken.
pub fn reopen_on_signal(reopen: impl Fn() + Send + 'static) -> Result<(), Error> {
    let failed = |source| Error::Worker {
        doing: "watch for SIGUSR1",
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let mut asked = runtime
        .block_on(async { signal(SignalKind::user_defined1()) })
        .map_err(failed)?;
    let watch = async move {
        while asked.recv().await.is_some() {
            reopen();
        }
    };
    thread::Builder::new()
        .name("reopen".into())
        .spawn(move || runtime.block_on(watch))
        .map_err(failed)?;
    Ok(())
}

fn both() -> io::Result<(Signal, Signal)> {
    Ok((
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ))
}

async fn pass_on(mut interrupt: Signal, mut terminate: Signal, shutdown: &Shutdown) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        shutdown.hurry();
    }
}
