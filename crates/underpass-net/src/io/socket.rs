//! Sockets in the event loop of a worker: of connections and of listeners, TCP and Unix alike.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use underpass::drive::tokio::Stream;

/// A descriptor that is registered with the event loop.
pub type Registered = AsyncFd<Rc<OwnedFd>>;

/// Registers a non-blocking descriptor with the event loop. Other owners may continue to use it; it
/// is closed only after deregistration.
///
/// # Errors
/// Errors of `epoll_ctl`; `EPERM` for descriptors that are always ready, such as regular files.
pub fn register(descriptor: &Rc<OwnedFd>, interest: Interest) -> io::Result<Registered> {
    #[expect(
        deprecated,
        reason = "unsound only where a descriptor may change, which OwnedFd's does not; what \
                  replaces it is unsafe"
    )]
    AsyncFd::with_interest(Rc::clone(descriptor), interest)
}

/// A socket of a connection. It is registered with the event loop when it first has to wait, and
/// for writing only when it has been full: a client that sends its request and reads the response
/// without delay costs no registration, and few tasks are woken for room to send.
pub(crate) struct PlainSocket {
    /// Declared before the descriptor, so that it leaves the event loop before it is closed.
    registration: RefCell<Option<Registration>>,
    descriptor: Rc<OwnedFd>,
}

/// The registration with the event loop.
struct Registration {
    interest: Interest,
    registered: Rc<Registered>,
}

impl Registration {
    fn covers(&self, interest: Interest) -> bool {
        self.interest.is_writable() || !interest.is_writable()
    }
}

impl PlainSocket {
    pub(crate) fn new(descriptor: OwnedFd) -> PlainSocket {
        PlainSocket {
            registration: RefCell::new(None),
            descriptor: Rc::new(descriptor),
        }
    }

    /// Returns the registration, if it covers `interest`.
    fn known(&self, interest: Interest) -> Option<Rc<Registered>> {
        let known = self.registration.borrow();
        let known = known.as_ref().filter(|known| known.covers(interest))?;
        Some(Rc::clone(&known.registered))
    }

    /// Returns the registration, made now if necessary.
    fn registered(&self, interest: Interest) -> io::Result<Rc<Registered>> {
        if let Some(known) = self.known(interest) {
            return Ok(known);
        }
        let interest = match interest.is_writable() {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        // A descriptor can be registered only once.
        self.registration.take();
        let registered = Rc::new(register(&self.descriptor, interest)?);
        self.registration.replace(Some(Registration {
            interest,
            registered: Rc::clone(&registered),
        }));
        Ok(registered)
    }

    /// Removes the registration: the next call is made without consulting it, and the first one
    /// that would block registers again. Not called while a task waits.
    pub(crate) fn deregister(&self) {
        self.registration.take();
    }

    /// Waits until the socket may be ready for `interest`.
    pub(crate) async fn readiness(&self, interest: Interest) -> io::Result<Ready> {
        let registered = self.registered(interest)?;
        let ready = registered.ready(interest).await?.ready();
        Ok(ready)
    }

    /// Reads once, appending to `room`.
    pub(crate) fn poll_read(
        &self,
        task: &mut Context<'_>,
        room: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let free = room.capacity() - room.len();
        self.poll_receive(task, free, || self.receive(room))
    }

    /// Reads once, into initialized memory.
    pub(crate) fn poll_read_into(
        &self,
        task: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_receive(task, into.len(), || {
            Ok(recv(&self.descriptor, &mut *into, RecvFlags::empty())?.0)
        })
    }

    fn poll_receive(
        &self,
        task: &mut Context<'_>,
        free: usize,
        mut receive: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.known(Interest::READABLE).is_none() {
            match receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
        let registered = self.registered(Interest::READABLE)?;
        loop {
            let mut readable = ready!(registered.poll_read_ready(task))?;
            let Ok(read) = readable.try_io(|_| receive()) else {
                continue;
            };
            // A short read has emptied the socket; later data is another event.
            if matches!(read, Ok(bytes) if 0 < bytes && bytes < free) {
                readable.clear_ready();
            }
            return Poll::Ready(read);
        }
    }

    /// Reads once without waiting, appending to `room`.
    pub(crate) fn receive(&self, room: &mut Vec<u8>) -> io::Result<usize> {
        let (read, _) = recv(&self.descriptor, spare_capacity(room), RecvFlags::empty())?;
        Ok(read)
    }
}

impl AsFd for PlainSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Stream for PlainSocket {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    async fn ready(&self, interest: Interest) -> io::Result<()> {
        let registered = self.registered(interest)?;
        // Not its futures, which would take memory in every connection that is sent something.
        match interest.is_writable() {
            true => poll_fn(|task| registered.poll_write_ready(task).map_ok(drop)).await,
            false => poll_fn(|task| registered.poll_read_ready(task).map_ok(drop)).await,
        }
    }

    fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self.known(interest) {
            Some(registered) => registered.try_io(interest, |_| call()),
            None => {
                let result = call();
                if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                    // It has no readiness then. If registering fails, `ready` reports it.
                    let _ = self.registered(interest);
                }
                result
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn it_is_registered_when_it_has_to_wait_and_not_before() {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let (socket, mut room) = (PlainSocket::new(ours.into()), Vec::with_capacity(100));
            theirs.write_all(b"first").unwrap();
            let read = poll_fn(|task| socket.poll_read(task, &mut room)).await;
            assert_eq!((read.unwrap(), &room[..]), (5, &b"first"[..]));
            assert!(socket.known(Interest::READABLE).is_none());

            let writes = async {
                tokio::task::yield_now().await;
                theirs.write_all(b"second").unwrap();
            };
            let reads = poll_fn(|task| socket.poll_read(task, &mut room));
            let (read, ()) = tokio::join!(reads, writes);
            assert_eq!((read.unwrap(), &room[..]), (6, &b"firstsecond"[..]));
            assert!(socket.known(Interest::READABLE).is_some());
            assert!(socket.known(Interest::WRITABLE).is_none());

            drop(theirs);
            let end = poll_fn(|task| socket.poll_read(task, &mut room)).await;
            assert_eq!(end.unwrap(), 0);
        });
    }

    #[test]
    fn a_peer_that_takes_nothing_is_waited_for() {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let socket = PlainSocket::new(ours.into());
            let send = || rustix::net::send(&socket, &[7; 10_000], rustix::net::SendFlags::empty());
            let mut sent = 0;
            while let Ok(bytes) = socket.try_io(Interest::WRITABLE, || Ok(send()?)) {
                sent += bytes;
            }
            let again = socket.try_io(Interest::WRITABLE, || -> io::Result<()> {
                unreachable!("a call before there is room")
            });
            assert!(again.is_err());
            let reads = async {
                tokio::task::yield_now().await;
                theirs.shutdown(std::net::Shutdown::Write).unwrap();
                let mut room = vec![0; sent];
                std::io::Read::read_exact(&mut &theirs, &mut room).unwrap();
            };
            let (ready, ()) = tokio::join!(Stream::ready(&socket, Interest::WRITABLE), reads);
            ready.unwrap();
            assert!(socket.try_io(Interest::WRITABLE, || Ok(send()?)).is_ok());
        });
    }
}
