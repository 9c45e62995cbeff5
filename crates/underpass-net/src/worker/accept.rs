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

use crate::connection::set::Roster;
use crate::connection::socket::{Door, Queue, Socket};
use crate::limits::{ACCEPT_BACKOFF, Limits};
use crate::listen::address::Peer;
use crate::log_throttle::{Burst, Trouble};

/// Hands every connection to `take`, as long as fewer than `connections_max` are on the roster, and
/// says when it is `full`.
/// Never returns; cancel it to stop.
pub(crate) async fn accept(
    doors: &[Door],
    roster: &Roster,
    connections_max: usize,
    mut take: impl FnMut(Socket, Peer),
    full: impl Fn(),
) {
    let trouble = Trouble::default();
    let mut first = 0;
    loop {
        if roster.len() >= connections_max {
            full();
        }
        roster.at_most(connections_max - 1).await;
        // No door is always asked first, or a crowd at one would shut out the others.
        first = (first + 1) % doors.len().max(1);
        match poll_fn(|task| poll_doors(doors, first, task)).await {
            Ok((socket, peer)) => take(socket, peer),
            Err(error) => pause(&error, &trouble, roster).await,
        }
    }
}

fn poll_doors(
    doors: &[Door],
    first: usize,
    task: &mut Context<'_>,
) -> Poll<io::Result<(Socket, Peer)>> {
    let (before, from_first) = doors.split_at(first.min(doors.len()));
    for door in from_first.iter().chain(before) {
        if let Poll::Ready(result) = door.poll_accept(task) {
            return Poll::Ready(result);
        }
    }
    Poll::Pending
}

/// Hands over what waits in a queue that nobody will look at again: the peers believe that they
/// are connected. At most `backlog` connections, so that those who come meanwhile cannot keep it
/// from ending.
pub(crate) async fn take_rest(
    queue: Queue,
    roster: &Roster,
    limits: &Limits,
    mut take: impl FnMut(Socket, Peer),
) {
    let trouble = Trouble::default();
    let backlog = usize::try_from(limits.backlog).unwrap_or(0);
    let mut taken = 0;
    // The kernel lets one more in than the backlog has room for.
    while taken <= backlog {
        roster.at_most(limits.connections_max - 1).await;
        match queue.accept() {
            Ok((socket, peer)) => {
                take(socket, peer);
                taken += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => pause(&error, &trouble, roster).await,
        }
    }
}

/// Waits after an error that would come back at once.
async fn pause(error: &io::Error, trouble: &Trouble, roster: &Roster) {
    if verdict(error) == Verdict::Wait {
        tell(trouble, error);
        let _ = tokio::time::timeout(ACCEPT_BACKOFF, roster.somebody_left()).await;
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Verdict {
    /// It concerned one connection only, or is over.
    Next,
    /// It would happen again at once.
    Wait,
}

/// accept(2): errors already pending on the new connection are reported by the call and are to be
/// treated like "try again".
fn verdict(error: &io::Error) -> Verdict {
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
        ) => Verdict::Next,
        _ => Verdict::Wait,
    }
}

fn tell(trouble: &Trouble, error: &io::Error) {
    if trouble.meet(Instant::now()) == Burst::New {
        tracing::warn!("connections wait: accept: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_come_back_at_once_makes_it_wait() {
        let verdict = |errno: Errno| verdict(&errno.into());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            assert_eq!(verdict(errno), Verdict::Wait, "{errno}");
        }
        for errno in [Errno::BADF, Errno::INVAL, Errno::OPNOTSUPP] {
            assert_eq!(verdict(errno), Verdict::Wait, "{errno}");
        }
    }

    #[test]
    fn what_concerns_one_connection_does_not() {
        let verdict = |errno: Errno| verdict(&errno.into());
        for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::HOSTUNREACH] {
            assert_eq!(verdict(errno), Verdict::Next, "{errno}");
        }
    }
}
