//! Accepts connections, and keeps accepting after errors.
//!
//! `accept4` fails for reasons that do not affect the next connection: the last one was reset
//! before it was accepted, descriptors or memory have run out. None of them ends the loop. After an
//! error that would occur again immediately, it waits until a connection ends or a short time has
//! passed; connections that arrive meanwhile stay in the kernel's queue.
//!
//! Descriptors run out if other code holds them, or their limit is lowered. From then on a
//! connection is accepted only if there are descriptors for its files too, and idle connections are
//! closed until there are: otherwise new connections would only get a 503.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use rustix::io::Errno;
use tokio::time::{Instant, sleep_until, timeout};

use crate::address::PeerAddress;
use crate::connection::transport::Transport;
use crate::connection::worker_state::{CLIENTS, ConnectionSet};
use crate::limits::{ACCEPT_BACKOFF, BACKLOG, EVICTION_BACKOFF};
use crate::process::resources::has_descriptors;
use crate::quota::log_throttle::LogThrottle;
use crate::worker::listener::WorkerListener;

/// An event to report besides accepted connections.
pub(crate) enum AcceptEvent {
    /// The maximum number of client connections is reached.
    Full,
    /// This many client connections that waited for a request are closed.
    Evicted(u64),
    /// Descriptors are short: cached ones should be closed.
    Shortage,
}

/// Passes every connection to `take`, as long as its listener's group has room, and makes room by
/// closing connections that wait for a request. Accepts none once it `is_over`; the caller must
/// wake it then. Never returns; cancel it to stop.
pub(crate) async fn accept<S>(
    listeners: &[WorkerListener<S>],
    connections: &ConnectionSet,
    is_over: impl Fn() -> bool,
    mut take: impl FnMut(&WorkerListener<S>, Transport, PeerAddress),
    report: impl Fn(AcceptEvent),
) {
    let (failures, evictions) = (LogThrottle::default(), LogThrottle::default());
    let (mut first, mut had_room, mut next_eviction) = (0, true, Instant::now());
    loop {
        let has_room = connections.has_room(CLIENTS);
        if had_room && !has_room {
            report(AcceptEvent::Full);
        }
        had_room = has_room;
        if is_over() {
            return pending().await;
        }
        // The first listener rotates, or a crowd at one would shut out the others.
        first = (first + 1) % listeners.len().max(1);
        match next(listeners, connections, first, next_eviction).await {
            NextEvent::Accepted(listener, Ok((socket, peer))) => take(listener, socket, peer),
            NextEvent::Accepted(_, Err(error)) => {
                if is_persistent(&error) {
                    warn(&failures, &error);
                    let is_shortage = is_shortage(Errno::from_io_error(&error));
                    if !is_shortage || connections.is_short() {
                        pause(connections).await;
                    }
                    if is_shortage {
                        connections.record_shortage();
                    }
                }
            }
            NextEvent::Short => {
                connections.record_shortage();
                report(AcceptEvent::Shortage);
                if !has_descriptors() {
                    report(AcceptEvent::Evicted(connections.evict(CLIENTS)));
                    next_eviction = Instant::now() + EVICTION_BACKOFF;
                }
            }
            NextEvent::Full(group) => {
                let evicted = connections.evict(group);
                if group == CLIENTS {
                    report(AcceptEvent::Evicted(evicted));
                    evictions.warn(ALL_IN_USE);
                }
                // Evicted connections end before that, and others may become idle.
                next_eviction = Instant::now() + EVICTION_BACKOFF;
            }
            NextEvent::Ended => next_eviction = Instant::now(),
        }
    }
}

const ALL_IN_USE: &str = "all connections are in use: idle ones are closed to make room for new \
                          ones, which wait where none is idle; raise connections-max, or the limit \
                          on descriptors";

/// An event in the accept loop.
enum NextEvent<'l, S> {
    /// `accept` was called on a listener whose group has room.
    Accepted(&'l WorkerListener<S>, io::Result<(Transport, PeerAddress)>),
    /// A connection waits, and its group is full.
    Full(usize),
    /// A connection waits, and there are too few descriptors for it and its files.
    Short,
    /// A connection has ended while a group was full.
    Ended,
}

/// Waits for the next event. A lack of room is not reported before `next_eviction`.
async fn next<'l, S>(
    listeners: &'l [WorkerListener<S>],
    connections: &ConnectionSet,
    first: usize,
    next_eviction: Instant,
) -> NextEvent<'l, S> {
    let mut ended = pin!(connections.one_ended());
    let mut pause = pin!(sleep_until(next_eviction));
    let (before, from_first) = listeners.split_at(first.min(listeners.len()));
    poll_fn(|task| {
        let is_short = connections.is_short();
        let is_crowded = is_short || !connections.all_have_room();
        let may_evict = is_crowded && pause.as_mut().poll(task).is_ready();
        for listener in from_first.iter().chain(before) {
            let (group, acceptor) = (listener.group, &listener.acceptor);
            let has_room = connections.has_room(group);
            if is_short || !has_room {
                if !may_evict || acceptor.poll_waiting(task).is_pending() {
                    continue;
                }
                if !has_room {
                    return Poll::Ready(NextEvent::Full(group));
                }
                if !has_descriptors() {
                    return Poll::Ready(NextEvent::Short);
                }
            }
            if let Poll::Ready(accepted) = acceptor.poll_accept(task) {
                return Poll::Ready(NextEvent::Accepted(listener, accepted));
            }
        }
        match is_crowded {
            true => ended.as_mut().poll(task).map(|()| NextEvent::Ended),
            false => Poll::Pending,
        }
    })
    .await
}

/// Accepts the rest of a queue that is about to be closed: these peers are already connected. At
/// most [`BACKLOG`] connections, so that new arrivals cannot keep it from ending.
pub(crate) async fn take_rest<S>(
    listener: &WorkerListener<S>,
    connections: &ConnectionSet,
    mut take: impl FnMut(&WorkerListener<S>, Transport, PeerAddress),
) {
    let throttle = LogThrottle::default();
    let mut taken = 0;
    // The kernel queues one more than the backlog.
    while taken <= BACKLOG {
        connections.room(listener.group).await;
        match listener.acceptor.accept() {
            Ok((socket, peer)) => {
                take(listener, socket, peer);
                taken += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if is_persistent(&error) => {
                warn(&throttle, &error);
                pause(connections).await;
            }
            Err(_) => {}
        }
    }
}

/// Waits after a persistent error until a connection ends, at most a short time.
async fn pause(connections: &ConnectionSet) {
    let _ = timeout(ACCEPT_BACKOFF, connections.one_ended()).await;
}

/// Returns whether an error would occur again immediately. accept(2): errors already pending on the
/// new connection are reported by the call and should be treated like "try again".
fn is_persistent(error: &io::Error) -> bool {
    !matches!(
        Errno::from_io_error(error),
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
        )
    )
}

/// Returns whether a call failed because the process, or the system, has no descriptor left.
pub(crate) fn is_shortage(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

fn warn(throttle: &LogThrottle, error: &io::Error) {
    throttle.warn(format_args!("connections have to wait: accept: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistent_errors_make_it_wait() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            assert!(is_persistent(&errno.into()), "{errno}");
        }
        for errno in [Errno::BADF, Errno::INVAL, Errno::OPNOTSUPP] {
            assert!(is_persistent(&errno.into()), "{errno}");
        }
    }

    #[test]
    fn errors_of_one_connection_do_not() {
        for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::HOSTUNREACH] {
            assert!(!is_persistent(&errno.into()), "{errno}");
        }
    }
}
