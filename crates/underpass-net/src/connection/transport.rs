//! What carries the bytes of a connection: the one place where plain and other sockets differ.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use tokio::io::{Interest, Ready};
use underpass::drive::tokio::{FileReceiver, Forecast, Sender, Turn};
use underpass::{Kernel, Outbox, Policy};

use crate::connection::socket::PlainSocket;

/// The socket of a connection and what is spoken directly on it.
pub(crate) enum Transport {
    /// The bytes of the protocol, on a TCP or Unix socket.
    Plain(PlainSocket),
}

impl Transport {
    /// Reads once, behind what is in `room`.
    pub(crate) fn poll_read(
        &self,
        task: &mut Context<'_>,
        room: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_read(task, room),
        }
    }

    /// Sends one turn of an outbox. Cancel safe; `sender` is the same in all turns.
    pub(crate) async fn turn(
        &self,
        sender: &mut Sender,
        outbox: &mut Outbox,
        (kernel, policy): (&Kernel, &Policy),
        bytes_max: u64,
    ) -> Result<Turn, underpass::Error> {
        match self {
            Transport::Plain(socket) => {
                sender.turn(outbox, socket, kernel, policy, bytes_max).await
            }
        }
    }

    /// Receives one turn of a body into a file. Cancel safe.
    pub(crate) async fn receive<F: AsFd>(
        &self,
        body: &mut FileReceiver<F>,
        kernel: &Kernel,
        bytes_max: u64,
    ) -> Result<Turn, underpass::Error> {
        match self {
            Transport::Plain(socket) => body.turn(socket, kernel, bytes_max).await,
        }
    }

    /// How the first range of an outbox is going to leave, if its head becomes so much `longer`.
    pub(crate) fn forecast(
        &self,
        sender: &Sender,
        outbox: &Outbox,
        (kernel, policy): (&Kernel, &Policy),
        longer: u64,
    ) -> Option<Forecast> {
        match self {
            Transport::Plain(socket) => sender.forecast(outbox, socket, kernel, policy, longer),
        }
    }

    /// Shuts down our side; the peer reads the end of the stream.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self {
            Transport::Plain(socket) => socket.shutdown(),
        }
    }

    /// Makes closing reset the connection.
    pub(crate) fn set_reset(&self) -> io::Result<()> {
        match self {
            Transport::Plain(socket) => socket.set_reset(),
        }
    }

    /// Waits until there may be something of `interest`.
    pub(crate) async fn readiness(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Transport::Plain(socket) => socket.readiness(interest).await,
        }
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transport::Plain(socket) => socket.as_fd(),
        }
    }
}
