//! Takes connections, whatever happens.
//!
//! `accept4` fails for reasons that have nothing to do with the next connection: the last one was
//! reset before it was taken, descriptors or memory have run out. None of them ends the loop. Those
//! that would come back at once make it wait, until a connection ends or a short while has passed;
//! what arrives meanwhile stays in the kernel's queue and is served later.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};

use crate::limits::ACCEPT_BACKOFF;
use crate::roster::Roster;
use crate::trouble::{Burst, Trouble};

/// Hands every connection to `take`, as long as fewer than `connections_max` are on the roster.
/// Never returns; cancel it to stop.
pub(crate) async fn accept(
    listener: &TcpListener,
    roster: &Roster,
    connections_max: usize,
    mut take: impl FnMut(TcpStream, SocketAddr),
) {
    let trouble = Trouble::default();
    loop {
        roster.at_most(connections_max - 1).await;
        match listener.accept().await {
            Ok((socket, peer)) => take(socket, peer),
            Err(error) => match verdict(&error) {
                Verdict::Next => {}
                Verdict::Wait => {
                    tell(&trouble, &error);
                    let _ = tokio::time::timeout(ACCEPT_BACKOFF, roster.somebody_left()).await;
                }
            },
        }
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
