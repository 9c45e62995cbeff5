//! Takes connections, whatever happens.
//!
//! `accept4` fails for reasons that have nothing to do with the next connection: the last one was
//! reset before it was taken, descriptors or memory have run out. None of them ends the loop. Those
//! that would come back at once make it wait, until a connection ends or a short while has passed;
//! what arrives meanwhile stays in the kernel's queue and is served later.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use rustix::io::Errno;

use crate::connection::set::ConnectionSet;
use crate::connection::socket::PlainSocket;
use crate::limits::{ACCEPT_BACKOFF, ConnectionLimits};
use crate::listen::address::PeerAddress;
use crate::log_throttle::{LogThrottle, Occurrence};
use crate::worker::acceptor::{AcceptQueue, Acceptor};

/// Hands every connection to `take`, as long as fewer than `connections_max` are on the roster, and
/// says when it is `full`.
/// Never returns; cancel it to stop.
pub(crate) async fn accept(
    acceptors: &[Acceptor],
    connections: &ConnectionSet,
    connections_max: usize,
    mut take: impl FnMut(PlainSocket, PeerAddress),
    full: impl Fn(),
) {
    let throttle = LogThrottle::default();
    let mut first = 0;
    loop {
        if connections.len() >= connections_max {
            full();
        }
        connections.at_most(connections_max - 1).await;
        // No door is always asked first, or a crowd at one would shut out the others.
        first = (first + 1) % acceptors.len().max(1);
        match poll_fn(|task| poll_acceptors(acceptors, first, task)).await {
            Ok((socket, peer)) => take(socket, peer),
            Err(error) => pause(&error, &throttle, connections).await,
        }
    }
}

fn poll_acceptors(
    acceptors: &[Acceptor],
    first: usize,
    task: &mut Context<'_>,
) -> Poll<io::Result<(PlainSocket, PeerAddress)>> {
    let (before, from_first) = acceptors.split_at(first.min(acceptors.len()));
    for acceptor in from_first.iter().chain(before) {
        if let Poll::Ready(result) = acceptor.poll_accept(task) {
            return Poll::Ready(result);
        }
    }
    Poll::Pending
}

/// Hands over what waits in a queue that nobody will look at again: the peers believe that they
/// are connected. At most `backlog` connections, so that those who come meanwhile cannot keep it
/// from ending.
pub(crate) async fn take_rest(
    queue: AcceptQueue,
    connections: &ConnectionSet,
    limits: &ConnectionLimits,
    mut take: impl FnMut(PlainSocket, PeerAddress),
) {
    let throttle = LogThrottle::default();
    let backlog = usize::try_from(limits.backlog).unwrap_or(0);
    let mut taken = 0;
    // The kernel lets one more in than the backlog has room for.
    while taken <= backlog {
        connections.at_most(limits.connections_max - 1).await;
        match queue.accept() {
            Ok((socket, peer)) => {
                take(socket, peer);
                taken += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => pause(&error, &throttle, connections).await,
        }
    }
}

/// Waits after an error that would come back at once.
async fn pause(error: &io::Error, throttle: &LogThrottle, connections: &ConnectionSet) {
    if failure_of(error) == AcceptFailure::Persistent {
        tell(throttle, error);
        let _ = tokio::time::timeout(ACCEPT_BACKOFF, connections.one_ended()).await;
    }
}

#[derive(Debug, Eq, PartialEq)]
enum AcceptFailure {
    /// It concerned one connection only, or is over.
    OneConnection,
    /// It would happen again at once.
    Persistent,
}

/// accept(2): errors already pending on the new connection are reported by the call and are to be
/// treated like "try again".
fn failure_of(error: &io::Error) -> AcceptFailure {
    match Errno::from_io_error(error) {
        Some(
            Errno::CONNABORTED
            | Errno::CONNRESET
            | Errno::INTR
            | Errno::AGAIN
            | Errno::PROTO
            | Errno::PERM
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NOPROTOOPT
            | Errno::NONET
            | Errno::TIMEDOUT,
        ) => AcceptFailure::OneConnection,
        _ => AcceptFailure::Persistent,
    }
}

fn tell(throttle: &LogThrottle, error: &io::Error) {
    if throttle.record(Instant::now()) == Occurrence::First {
        tracing::warn!("connections wait: accept: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_come_back_at_once_makes_it_wait() {
        let failure_of = |errno: Errno| failure_of(&errno.into());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            assert_eq!(failure_of(errno), AcceptFailure::Persistent, "{errno}");
        }
        for errno in [Errno::BADF, Errno::INVAL, Errno::OPNOTSUPP] {
            assert_eq!(failure_of(errno), AcceptFailure::Persistent, "{errno}");
        }
    }

    #[test]
    fn what_concerns_one_connection_does_not() {
        let failure_of = |errno: Errno| failure_of(&errno.into());
        for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::HOSTUNREACH] {
            assert_eq!(failure_of(errno), AcceptFailure::OneConnection, "{errno}");
        }
    }
}
