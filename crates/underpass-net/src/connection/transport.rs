//! The layer between the socket and the protocol: the one place where plain and encrypted
//! connections differ.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::io::{Interest, Ready};
use underpass::EndpointKind;
use underpass::drive::tokio::{FileReceiver, Forecast, Sender, Turn};
use underpass::{Kernel, Outbox, Policy};

use crate::connection::input::FrameBuffer;
use crate::io::buffers::WorkerBuffers;
use crate::io::socket::PlainSocket;
use crate::limits::SEALED_COST;
use crate::tls::info::{SealedBy, TlsInfo};
use crate::tls::session::TlsSession;

/// The socket of a connection and the layer on it.
pub(crate) struct Transport {
    socket: PlainSocket,
    layer: Layer,
}

/// The layer on the socket, below the protocol.
enum Layer {
    /// None: the bytes are those of the protocol.
    Plain,
    /// TLS, in user space.
    Tls(Box<TlsSession>),
}

impl Transport {
    /// Creates a transport without a layer.
    pub(crate) fn plain(socket: OwnedFd) -> Transport {
        Transport {
            socket: PlainSocket::new(socket),
            layer: Layer::Plain,
        }
    }

    pub(crate) fn socket(&self) -> &PlainSocket {
        &self.socket
    }

    /// Switches to TLS.
    pub(crate) fn secure(&mut self, session: Box<TlsSession>) {
        self.layer = Layer::Tls(session);
    }

    /// Returns the parameters of the TLS session, if there is one.
    pub(crate) fn tls(&self) -> Option<&Rc<TlsInfo>> {
        match &self.layer {
            Layer::Plain => None,
            Layer::Tls(session) => Some(session.info()),
        }
    }

    /// Reads once, appending to `room`.
    pub(crate) fn poll_read(
        &self,
        task: &mut Context<'_>,
        room: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match &self.layer {
            Layer::Plain => self.socket.poll_read(task, room),
            Layer::Tls(session) => session.poll_read(&self.socket, task, room),
        }
    }

    /// Reads once into a frame.
    pub(crate) fn poll_read_frame(
        &self,
        task: &mut Context<'_>,
        frame: &mut FrameBuffer,
    ) -> Poll<io::Result<usize>> {
        match &self.layer {
            Layer::Plain => {
                let read = self.socket.poll_read_into(task, frame.written_room());
                if let Poll::Ready(Ok(count)) = read {
                    frame.advance(count);
                }
                read
            }
            Layer::Tls(session) => {
                let read = session.poll_read(&self.socket, task, frame.room());
                frame.advance_to_end();
                read
            }
        }
    }

    /// Reads once without waiting, whatever readiness the event loop has recorded.
    pub(crate) fn read_now(&self, room: &mut Vec<u8>) -> io::Result<usize> {
        match &self.layer {
            Layer::Plain => self.socket.receive(room),
            Layer::Tls(session) => session.read_now(&self.socket, room),
        }
    }

    /// Sends one turn of an outbox. Cancel safe; `sender` is the same in all turns.
    pub(crate) async fn turn(
        &self,
        sender: &mut Sender,
        outbox: &mut Outbox,
        buffers: &WorkerBuffers,
        bytes_max: u64,
    ) -> Result<Turn, underpass::Error> {
        let (kernel, policy) = (&buffers.kernel, &buffers.policy);
        match &self.layer {
            Layer::Plain => {
                let turn = sender.scheduled_turn(outbox, &self.socket, kernel, policy, bytes_max);
                turn.await
            }
            Layer::Tls(session) => {
                let socket = &self.socket;
                // Boxed, so that plain connections are not larger for it.
                match session.hand_over(socket, outbox) {
                    SealedBy::UserSpace => {
                        Box::pin(session.turn(socket, outbox, buffers, bytes_max)).await
                    }
                    SealedBy::Kernel => {
                        let turn = session.kernel_turn(sender, socket, outbox, buffers, bytes_max);
                        Box::pin(turn).await
                    }
                }
            }
        }
    }

    /// Returns how many plain bytes cost as much as the bytes the socket took in the latest turn,
    /// if that left it full.
    pub(crate) fn filled_by(&self, sender: &Sender) -> Option<u64> {
        let taken = sender.filled_by()?;
        match &self.layer {
            Layer::Plain => Some(taken),
            Layer::Tls(_) => Some(taken * SEALED_COST),
        }
    }

    /// Receives one turn of a body into a file. Cancel safe.
    pub(crate) async fn receive(
        &self,
        body: &mut FileReceiver,
        kernel: &Kernel,
        bytes_max: u64,
    ) -> Result<Turn, underpass::Error> {
        match &self.layer {
            Layer::Plain => body.turn(&self.socket, kernel, bytes_max).await,
            Layer::Tls(session) => session.receive(&self.socket, body, kernel, bytes_max).await,
        }
    }

    /// Returns where the next data of an outbox will be encrypted.
    pub(crate) fn sealed_by(&self, outbox: &Outbox) -> Option<SealedBy> {
        match (&self.layer, outbox) {
            (Layer::Plain, _) => None,
            (Layer::Tls(session), outbox) => Some(session.sealed_by(outbox)),
        }
    }

    /// Predicts how the first range of an outbox will be sent, if its head grows by `longer` bytes.
    pub(crate) fn forecast(
        &self,
        sender: &Sender,
        outbox: &Outbox,
        (kernel, policy): (&Kernel, &Policy),
        longer: u64,
    ) -> Option<Forecast> {
        match &self.layer {
            Layer::Plain => sender.forecast(outbox, &self.socket, kernel, policy, longer),
            Layer::Tls(session) => {
                let sink = match session.sealed_by(outbox) {
                    SealedBy::UserSpace => EndpointKind::TcpSealed,
                    SealedBy::Kernel => EndpointKind::TcpKernelTls,
                };
                Forecast::through(sink, outbox, (kernel, policy), longer)
            }
        }
    }

    /// Shuts down our side; the peer reads the end of the stream.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match &self.layer {
            Layer::Plain => {}
            Layer::Tls(session) => session.close(&self.socket)?,
        }
        Ok(shutdown(&self.socket, Shutdown::Write)?)
    }

    /// Makes closing reset the connection. A Unix socket has no reset: its peer reads an early end.
    pub(crate) fn set_reset(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self, Some(Duration::ZERO))?)
    }

    /// Waits until the socket may be ready for `interest`.
    pub(crate) async fn readiness(&self, interest: Interest) -> io::Result<Ready> {
        self.socket.readiness(interest).await
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
