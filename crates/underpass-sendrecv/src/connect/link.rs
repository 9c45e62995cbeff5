//! The connection to a waiting side, made again when it is lost.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::connect::options::ConnectOptions;
use crate::connect::peer::Peer;
use crate::error::Error;
use crate::progress::{TransferEvent, TransferProgress};

/// The time for which the end is reported to a peer that cannot be reached.
const CONCLUDE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time without any answer after which a connection is made again.
const SILENCE_MAX: Duration = Duration::from_secs(8);

/// The interval of checks for that.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The pauses between attempts.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(5),
];

/// The connection to a waiting side, made again when it is lost.
pub(super) struct Link<'o> {
    options: &'o ConnectOptions,
    progress: Arc<TransferProgress>,
    peer: Option<Peer>,
    /// Whether the peer has ever been reached.
    is_known: bool,
}

impl<'o> Link<'o> {
    /// Connects for the first time. Where nobody answers, no attempt is repeated.
    pub(super) async fn open(
        options: &'o ConnectOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<Self, Error> {
        let mut link = Link {
            options,
            progress: Arc::clone(progress),
            peer: None,
            is_known: false,
        };
        link.persist(async |_: &mut Peer| Ok(())).await?;
        Ok(link)
    }

    /// Reports that everything is stored, for a short time, and closes the connection.
    pub(super) async fn conclude(mut self) -> Result<(), Error> {
        let told = self.persist_for(CONCLUDE_TIMEOUT, Peer::complete).await;
        if let Some(peer) = self.peer {
            peer.connection.end();
        }
        told
    }

    /// Returns the connection, and makes one first if necessary.
    pub(super) async fn peer(&mut self) -> Result<&mut Peer, Error> {
        if self.peer.as_ref().is_some_and(Peer::is_spent) {
            self.peer = None;
        }
        let peer = match self.peer.take() {
            Some(peer) => peer,
            None => {
                let peer = Peer::dial(self.options).await?;
                let address = peer.address().to_string();
                self.progress.record(TransferEvent::Connected(address));
                peer
            }
        };
        Ok(self.peer.insert(peer))
    }

    /// Makes attempts until one succeeds, fails for good, or nothing was reached for too long.
    pub(super) async fn persist<T>(
        &mut self,
        attempt: impl AsyncFnMut(&mut Peer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.persist_for(self.options.retry_timeout, attempt).await
    }

    /// Makes attempts like [`persist`](Self::persist), for another time.
    pub(super) async fn persist_for<T>(
        &mut self,
        timeout: Duration,
        mut attempt: impl AsyncFnMut(&mut Peer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut lost_since: Option<Instant> = None;
        let mut pauses = PAUSES.iter();
        loop {
            let progress = Arc::clone(&self.progress);
            let done = match self.peer().await {
                Ok(peer) => {
                    let before = progress.account().bytes();
                    let done = watched(peer, &mut attempt).await;
                    if progress.account().bytes() != before {
                        (lost_since, pauses) = (None, PAUSES.iter());
                    }
                    done
                }
                Err(error) => Err(error),
            };
            self.is_known |= done.is_ok();
            let error = match done {
                Err(error @ Error::Unreachable { .. }) if !self.is_known => return Err(error),
                Err(error) if error.is_passing() => error,
                done => return done,
            };
            self.peer = None;
            let since = *lost_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= timeout {
                return Err(error.or_lost());
            }
            self.progress.record(TransferEvent::Lost(error.to_string()));
            let pause = pauses.next().unwrap_or(&PAUSES[PAUSES.len() - 1]);
            tokio::time::sleep(*pause).await;
        }
    }
}

/// Makes an attempt. It loses the connection if the peer does not answer any more: its address or
/// ours has changed, or the network is gone.
async fn watched<T>(
    peer: &mut Peer,
    attempt: &mut impl AsyncFnMut(&mut Peer) -> Result<T, Error>,
) -> Result<T, Error> {
    // Without a descriptor for it the deadlines of the connection hold.
    let Ok(watch) = peer.connection.watch_peer() else {
        return attempt(peer).await;
    };
    let is_cut = Cell::new(false);
    let silence = async {
        while !watch.is_silent(SILENCE_MAX) {
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
        is_cut.set(true);
        watch.cut();
        pending::<Infallible>().await
    };
    let done = tokio::select! {
        done = attempt(peer) => done,
        never = silence => match never {},
    };
    match done {
        Err(error) if is_cut.get() && error.is_passing() => Err(Error::Lost {
            why: format!("no answer for {} s", SILENCE_MAX.as_secs()),
        }),
        done => done,
    }
}

/// Runs a transfer on this thread.
pub(super) fn block_on<T>(transfer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::Local {
        doing: "starting the event loop",
        errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO),
    })?;
    runtime.block_on(transfer)
}
