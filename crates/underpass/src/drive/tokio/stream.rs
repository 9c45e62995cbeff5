//! The sockets that the driver for Tokio accepts.

use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use ::tokio::io::Interest;
use ::tokio::net::{TcpStream, UnixStream, tcp, unix};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

/// A connected stream socket that does not block, in an event loop of Tokio's: [`TcpStream`],
/// [`UnixStream`], their halves, a reference to one, or whatever keeps one, always the same.
pub trait Stream {
    /// The descriptor of the socket.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Waits until one of the interests may be ready. Cancel safe.
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<()>>;

    /// Makes `call` if the interest is believed ready, and forgets the readiness if it would block:
    /// the next [`ready`](Stream::ready) then waits.
    ///
    /// # Errors
    /// `WouldBlock`, or the error of `call`.
    fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R>;
}

impl<S: Stream + ?Sized> Stream for &S {
    fn descriptor(&self) -> BorrowedFd<'_> {
        S::descriptor(self)
    }

    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<()>> {
        S::ready(self, interest)
    }

    fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        S::try_io(self, interest, call)
    }
}

/// Up to so many bytes of two parts are copied behind one another to be sent: the call that takes
/// several parts costs more than that.
const COPIED_BYTES_MAX: usize = 2 << 10;

/// Sends both by one call.
pub(super) fn send_parts(
    socket: BorrowedFd<'_>,
    parts: [&[u8]; 2],
    flags: SendFlags,
) -> Result<u64, Errno> {
    let [first, second] = parts;
    let both = first.len() + second.len();
    let sent = if second.is_empty() {
        send(socket, first, flags)
    } else if both <= COPIED_BYTES_MAX {
        let mut buffer = [0; COPIED_BYTES_MAX];
        buffer[..first.len()].copy_from_slice(first);
        buffer[first.len()..both].copy_from_slice(second);
        send(socket, &buffer[..both], flags)
    } else {
        let mut control = SendAncillaryBuffer::default();
        sendmsg(socket, &parts.map(IoSlice::new), &mut control, flags)
    };
    sent.map(|sent| sent as u64)
}

macro_rules! stream {
    ($($kind:ty: $socket:ty = $of:expr;)*) => {$(
        impl Stream for $kind {
            fn descriptor(&self) -> BorrowedFd<'_> {
                let socket: &$socket = $of(self);
                socket.as_fd()
            }

            async fn ready(&self, interest: Interest) -> io::Result<()> {
                let socket: &$socket = $of(self);
                socket.ready(interest).await.map(|_| ())
            }

            fn try_io<R>(
                &self,
                interest: Interest,
                call: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                let socket: &$socket = $of(self);
                socket.try_io(interest, call)
            }
        }
    )*};
}

stream! {
    TcpStream: TcpStream = std::convert::identity;
    tcp::ReadHalf<'_>: TcpStream = AsRef::as_ref;
    tcp::WriteHalf<'_>: TcpStream = AsRef::as_ref;
    tcp::OwnedReadHalf: TcpStream = AsRef::as_ref;
    tcp::OwnedWriteHalf: TcpStream = AsRef::as_ref;
    UnixStream: UnixStream = std::convert::identity;
    unix::ReadHalf<'_>: UnixStream = AsRef::as_ref;
    unix::WriteHalf<'_>: UnixStream = AsRef::as_ref;
    unix::OwnedReadHalf: UnixStream = AsRef::as_ref;
    unix::OwnedWriteHalf: UnixStream = AsRef::as_ref;
}

/// A file, which is never waited for.
pub(super) struct AlwaysReady<'fd>(pub(super) BorrowedFd<'fd>);

impl Stream for AlwaysReady<'_> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0
    }

    async fn ready(&self, _: Interest) -> io::Result<()> {
        Ok(())
    }

    fn try_io<R>(&self, _: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        call()
    }
}
