//! The messages between a server and its successor: over a `SOCK_SEQPACKET` socket, each a line of
//! text and at most two descriptors.
//!
//! ```text
//!  old ──► "socket 127.0.0.1:8080" + descriptor     for each socket
//!      ──► "activated NAME" + descriptor            a socket from the service manager
//!      ──► "tickets KEYS" + descriptor              the keys of TLS tickets; the descriptor is one
//!                                                   of those above, as older versions need one
//!      ──► "file NAME" + the same + descriptor      an open file; older versions use the first
//!      ──► "end"
//!  new ──► "ready", or "failed" and the reason
//! ```
//!
//! Descriptors are passed as messages (`SCM_RIGHTS`, unix(7)), so that none is inherited by
//! accident. The two processes may be different versions; this format must not change.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt,
};

use crate::limits::HANDOVER_BYTES_MAX;

/// The variable that announces the socket on the standard input of the new process.
pub(crate) const VARIABLE: &str = "UNDERPASS_HANDOVER";

pub(crate) const SOCKET: &str = "socket ";
pub(crate) const ACTIVATED: &str = "activated ";
pub(crate) const TICKETS: &str = "tickets ";
pub(crate) const FILE: &str = "file ";
pub(crate) const END: &str = "end";
pub(crate) const READY: &str = "ready";
pub(crate) const FAILED: &str = "failed ";

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct HandoverSocket {
    socket: OwnedFd,
}

impl HandoverSocket {
    pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let kind = SocketType::SEQPACKET;
        Ok(socketpair(
            AddressFamily::UNIX,
            kind,
            SocketFlags::CLOEXEC,
            None,
        )?)
    }

    /// Creates an end whose calls block for at most `timeout`.
    pub(crate) fn new(socket: OwnedFd, timeout: Duration) -> io::Result<HandoverSocket> {
        for direction in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, direction, Some(timeout))?;
        }
        Ok(HandoverSocket { socket })
    }

    pub(crate) fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let text = [IoSlice::new(text.as_bytes())];
        sendmsg(&self.socket, &text, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives the next message; none if the other process is gone.
    pub(crate) fn receive(&self) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut text = vec![0; HANDOVER_BYTES_MAX];
        let heard = recvmsg(
            self.socket.as_fd(),
            &mut [IoSliceMut::new(&mut text)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        if heard.bytes == 0 {
            return Ok(None);
        }
        text.truncate(heard.bytes);
        let text = String::from_utf8(text).map_err(io::Error::other)?;
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        Ok(Some((text, descriptors.flatten().collect())))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn messages_arrive_one_by_one_with_their_descriptors() {
        let timeout = Duration::from_secs(10);
        let (one, other) = HandoverSocket::pair().unwrap();
        let (one, other) = (
            HandoverSocket::new(one, timeout).unwrap(),
            HandoverSocket::new(other, timeout).unwrap(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = listener.as_fd();
        for sent in [&[socket][..], &[socket, socket]] {
            one.send("socket a", sent).unwrap();
        }
        one.send(END, &[]).unwrap();
        drop(one);
        for count in [1, 2] {
            let (text, sockets) = other.receive().unwrap().unwrap();
            assert_eq!((text.as_str(), sockets.len()), ("socket a", count));
            for copy in sockets.into_iter().map(TcpListener::from) {
                assert_eq!(copy.local_addr().unwrap(), listener.local_addr().unwrap());
            }
        }
        let (text, sockets) = other.receive().unwrap().unwrap();
        assert_eq!((text.as_str(), sockets.len()), (END, 0));
        assert!(other.receive().unwrap().is_none());
    }
}
