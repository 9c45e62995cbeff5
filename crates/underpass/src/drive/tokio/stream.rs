//! The sockets that the Tokio driver accepts.

use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use ::tokio::io::Interest;
use ::tokio::net::{TcpStream, UnixStream, tcp, unix};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

/// A connected nonblocking stream socket in a Tokio event loop: [`TcpStream`], [`UnixStream`],
/// their halves, a reference to one, or a type that always holds the same one.
pub trait Stream {
    /// Returns the descriptor of the socket.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Waits until one of the interests may be ready. Cancel safe.
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<()>>;

    /// Makes `call` if the interest is believed ready, and clears the readiness if it would block:
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

/// Two parts of up to this many bytes are copied into one buffer to be sent: the vectored call
/// costs more than that.
const COPIED_BYTES_MAX: usize = 2 << 10;

/// Sends both parts in one call.
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

/// A file: always ready.
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

/// The result of a call on a stream, and whether the stream took something and has no room for
/// more: the next call is not made until it has.
pub(super) type Attempt = (Result<u64, Errno>, bool);

/// Makes `call`, which moves at most `len` bytes, if the socket is believed ready; `None` if it was
/// not made. If the socket took less, it is polled for room, which costs less than a call that
/// fails.
pub(super) fn attempt<S: Stream>(
    stream: &S,
    interest: Interest,
    len: u64,
    call: impl FnOnce() -> Result<u64, Errno>,
) -> Option<Attempt> {
    let mut made = None;
    // Any other error is returned by `ready` too.
    let _ = stream.try_io(interest, || {
        let result = call();
        let took_less = result.is_ok_and(|moved| (1..len).contains(&moved));
        let is_full = took_less && is_full(stream.descriptor());
        made = Some((result, is_full));
        match is_full {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => result.map_err(io::Error::from),
        }
    });
    made
}

pub(super) async fn ready<S: Stream>(stream: &S, interest: Interest) -> Result<(), Errno> {
    let ready = stream.ready(interest).await;
    ready.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Returns whether a socket has no room; if so, its readiness will be reported.
fn is_full(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec::default())) == Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::thread;

    use ::tokio::runtime::Builder;

    use super::*;
    use crate::tcp;

    #[test]
    fn a_full_socket_is_waited_for_without_a_call_that_fails() {
        let runtime = Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let (socket, mut peer) = tcp::loopback_pair().expect("a connection");
            socket.set_nonblocking(true).expect("an option");
            let socket = TcpStream::from_std(socket).expect("a stream");
            let content = vec![7; 64 << 20];
            let write = || {
                let call = || {
                    let sent = send(socket.as_fd(), &content, SendFlags::NOSIGNAL)?;
                    Ok(sent as u64)
                };
                attempt(&socket, Interest::WRITABLE, content.len() as u64, call)
            };
            ready(&socket, Interest::WRITABLE).await.expect("room");
            let mut written = 0;
            while let Some((result, _)) = write() {
                written += result.expect("a call that does not fail");
            }
            assert!(written > 0);
            let reader = thread::spawn(move || {
                let mut read = vec![0; usize::try_from(written).expect("memory")];
                peer.read_exact(&mut read).expect("content");
                peer
            });
            ready(&socket, Interest::WRITABLE).await.expect("room");
            assert!(matches!(write(), Some((Ok(1..), _))));
            reader.join().expect("no panic");
        });
    }
}
