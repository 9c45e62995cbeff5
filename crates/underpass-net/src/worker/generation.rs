//! Workers that are started together.

use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::error::Error;
use crate::listen::listeners::AssignedSocket;
use crate::worker::protocol::Protocol;
use crate::worker::{PreparedWorker, ServerParts};

/// Workers that were started together, with one configuration.
#[derive(Debug)]
pub(crate) struct Generation<S> {
    pub(crate) threads: Vec<JoinHandle<S>>,
    starts: Vec<mpsc::Sender<()>>,
}

/// Makes a worker for each of `shares`, the sockets that it takes connections from. All of them are
/// ready when this returns, and none takes any before [`Generation::go`].
///
/// # Errors
/// [`Error::Worker`]; nothing is left running.
pub(crate) fn prepare<P: Protocol>(
    server: &ServerParts<P>,
    shares: Vec<Vec<AssignedSocket>>,
) -> Result<Generation<P::Summary>, Error> {
    let (ready, prepared) = mpsc::channel();
    let mut generation = Generation {
        threads: Vec::with_capacity(shares.len()),
        starts: Vec::with_capacity(shares.len()),
    };
    for (number, sockets) in shares.into_iter().enumerate() {
        let (start, started) = mpsc::channel();
        let worker = PreparedWorker {
            server: server.clone(),
            sockets,
            ready: ready.clone(),
            started,
        };
        generation.threads.push(worker.spawn(number)?);
        generation.starts.push(start);
    }
    drop(ready);
    for outcome in prepared {
        outcome?;
    }
    Ok(generation)
}

impl<S> Generation<S> {
    pub(crate) fn go(&mut self) {
        for start in self.starts.drain(..) {
            // A worker that is gone has panicked, which its thread reports.
            let _ = start.send(());
        }
    }
}
