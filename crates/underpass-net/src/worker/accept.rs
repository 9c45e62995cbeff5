//! Accepts connections, whatever happens.
//!
//! `accept4` fails for reasons that do not concern the next connection: the last one was reset
//! before it was accepted, descriptors or memory have run out. None of them ends the loop. After an
//! error that would occur again at once, it waits until a connection ends or a short time has
//! passed; connections that arrive meanwhile stay in the kernel's queue.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use rustix::io::Errno;

use crate::connection::socket::Transport;
use crate::connection::worker_state::{CLIENTS, ConnectionSet};
use crate::limits::{ACCEPT_BACKOFF, ConnectionLimits};
use crate::listen::address::PeerAddress;
use crate::log_throttle::{LogThrottle, Occurrence};
use crate::worker::listener::WorkerListener;

/// Hands every connection to `take`, as long as its listener's group has room, and calls `full`
/// whenever there are as many connections of clients as there may be. Takes none once it `is_over`,
/// which the caller has to be woken for. Never returns; cancel it to stop.
pub(crate) async fn accept<S>(
    listeners: &[WorkerListener<S>],
    connections: &ConnectionSet,
    is_over: impl Fn() -> bool,
    mut take: impl FnMut(&WorkerListener<S>, Transport, PeerAddress),
    full: impl Fn(),
) {
    let throttle = LogThrottle::default();
    let mut first = 0;
    let mut had_room = true;
    loop {
        let has_room = connections.has_room(CLIENTS);
        if had_room && !has_room {
            full();
        }
        had_room = has_room;
        if is_over() {
            return pending().await;
        }
        // No listener is always asked first, or a crowd at one would shut out the others.
        first = (first + 1) % listeners.len().max(1);
        match next(listeners, connections, first).await {
            Some((listener, Ok((socket, peer)))) => take(listener, socket, peer),
            Some((_, Err(error))) => pause(&error, &throttle, connections).await,
            None => {}
        }
    }
}

/// What a listener was asked for, and which one.
type Accepted<'l, S> = (&'l WorkerListener<S>, io::Result<(Transport, PeerAddress)>);

/// The next connection of a listener whose group has room; none when a connection has ended while a
/// group was full.
async fn next<'l, S>(
    listeners: &'l [WorkerListener<S>],
    connections: &ConnectionSet,
    first: usize,
) -> Option<Accepted<'l, S>> {
    let mut ended = pin!(connections.one_ended());
    let (before, from_first) = listeners.split_at(first.min(listeners.len()));
    poll_fn(|task| {
        for listener in from_first.iter().chain(before) {
            if connections.has_room(listener.group)
                && let Poll::Ready(accepted) = listener.acceptor.poll_accept(task)
            {
                return Poll::Ready(Some((listener, accepted)));
            }
        }
        match connections.all_have_room() {
            true => Poll::Pending,
            false => ended.as_mut().poll(task).map(|()| None),
        }
    })
    .await
}

/// Accepts the rest of a queue that is about to be closed: the peers are connected already. At most
/// `backlog` connections, so that connections that arrive meanwhile cannot keep it from ending.
pub(crate) async fn take_rest<S>(
    listener: &WorkerListener<S>,
    connections: &ConnectionSet,
    limits: &ConnectionLimits,
    mut take: impl FnMut(&WorkerListener<S>, Transport, PeerAddress),
) {
    let throttle = LogThrottle::default();
    let backlog = usize::try_from(limits.backlog).unwrap_or(0);
    let mut taken = 0;
    // The kernel lets one more in than the backlog has room for.
    while taken <= backlog {
        connections.room(listener.group).await;
        match listener.acceptor.accept() {
            Ok((socket, peer)) => {
                take(listener, socket, peer);
                taken += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => pause(&error, &throttle, connections).await,
        }
    }
}

/// Waits after an error that would occur again at once.
async fn pause(error: &io::Error, throttle: &LogThrottle, connections: &ConnectionSet) {
    if failure_of(error) == AcceptFailure::Persistent {
        warn(throttle, error);
        let _ = tokio::time::timeout(ACCEPT_BACKOFF, connections.one_ended()).await;
    }
}

#[derive(Debug, Eq, PartialEq)]
enum AcceptFailure {
    /// It concerns one connection only, or is over.
    OneConnection,
    /// It would occur again at once.
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

fn warn(throttle: &LogThrottle, error: &io::Error) {
    if throttle.record(Instant::now()) == Occurrence::First {
        tracing::warn!("connections have to wait: accept: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistent_errors_make_it_wait() {
        let failure_of = |errno: Errno| failure_of(&errno.into());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            assert_eq!(failure_of(errno), AcceptFailure::Persistent, "{errno}");
        }
        for errno in [Errno::BADF, Errno::INVAL, Errno::OPNOTSUPP] {
            assert_eq!(failure_of(errno), AcceptFailure::Persistent, "{errno}");
        }
    }

    #[test]
    fn errors_of_one_connection_do_not() {
        let failure_of = |errno: Errno| failure_of(&errno.into());
        for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::HOSTUNREACH] {
            assert_eq!(failure_of(errno), AcceptFailure::OneConnection, "{errno}");
        }
    }
}
