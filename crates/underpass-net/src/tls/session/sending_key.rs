//! The sending key of a session: its replacement, and its hand-over to the kernel.

use std::io;

use rustix::net::sockopt::set_tcp_nodelay;
use rustls::{AlertDescription, ContentType};
use tokio::io::Interest;
use tokio::time::timeout;
use underpass::drive::tokio::{Sender, Stream, Turn};
use underpass::{Error, Fault, Outbox};

use super::{KEY_UPDATE_HEAD, SessionFault, SessionState, TlsSession, errno_of};
use crate::io::buffers::WorkerBuffers;
use crate::io::socket::PlainSocket;
use crate::limits::{KERNEL_RETRY_PAUSE, SEALED_COST, SEALED_TURN_BYTES_MIN};
use crate::tls::info::SealedBy;
use crate::tls::offload::{PendingOffload, Sealing};
use crate::tls::records::{CONTENT_BYTES_MAX, Sealer};

impl TlsSession {
    /// Returns where the next data will be encrypted.
    pub(crate) fn sealed_by(&self, outbox: &Outbox) -> SealedBy {
        let state = self.state.borrow();
        let takes_over = |offload: &PendingOffload| {
            offload.is_likely() && PendingOffload::is_worth(outbox).is_some()
        };
        match (&state.sealing, &state.offload) {
            (Sealing::Kernel(_), _) => SealedBy::Kernel,
            (_, Some(offload)) if takes_over(offload) => SealedBy::Kernel,
            _ => SealedBy::UserSpace,
        }
    }

    /// Hands the key to the kernel if possible, and returns where the next data will be encrypted.
    pub(crate) fn hand_over(&self, socket: &PlainSocket, outbox: &Outbox) -> SealedBy {
        let sealed_by = self.state.borrow_mut().hand_over(socket, outbox);
        self.info.sealed_by.set(sealed_by);
        sealed_by
    }

    /// Sends one turn of an outbox through the kernel, which has the key.
    ///
    /// QUIRK(kernel-tls-memory): if TCP's memory is short, kernel TLS reports a full socket, even
    /// if no data is in flight whose acknowledgement would make room; no event follows then. So
    /// waiting data is tried again, with pauses that double.
    ///
    /// # Errors
    /// As [`Sender::turn`]; `PeerGone` if the key could not be replaced.
    pub(crate) async fn kernel_turn(
        &self,
        sender: &mut Sender,
        socket: &PlainSocket,
        outbox: &mut Outbox,
        buffers: &WorkerBuffers,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        // A whole number of records.
        let most = (bytes_max / SEALED_COST).max(SEALED_TURN_BYTES_MIN);
        let most = most - most % CONTENT_BYTES_MAX as u64;
        let (kernel, policy) = (&buffers.kernel, &buffers.policy);
        let mut pause = KERNEL_RETRY_PAUSE;
        let turn = loop {
            let turn = async {
                self.kernel_ready(socket, outbox).await?;
                let turn = sender.scheduled_turn(outbox, socket, kernel, policy, most);
                turn.await
            };
            match timeout(pause, turn).await {
                Ok(turn) => break turn?,
                Err(_) => {
                    socket.deregister();
                    // Sends corked data, even if the option was already set. A socket that fails is
                    // closed at its deadline.
                    let _ = set_tcp_nodelay(socket, true);
                    pause *= 2;
                }
            }
        };
        if turn == Turn::More {
            let heard = self.state.borrow_mut().listen(socket, buffers);
            heard.map_err(|_| outbox.error(Fault::PeerGone, None))?;
        }
        Ok(turn)
    }

    /// Waits until the kernel may encrypt the next data.
    async fn kernel_ready(&self, socket: &PlainSocket, outbox: &Outbox) -> Result<(), Error> {
        loop {
            let prepared = self.state.borrow_mut().prepare_kernel(socket);
            match prepared {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = Stream::ready(socket, Interest::WRITABLE).await;
                    ready.map_err(|error| errno_of(&error))?;
                }
                Err(error) => return Err(outbox.error(Fault::PeerGone, Some(errno_of(&error)))),
            }
        }
    }
}

impl SessionState {
    /// Announces a new key, under the current one, and uses it from then on.
    pub(super) fn update_key(&mut self) -> Result<(), SessionFault> {
        let failed = |_| SessionFault::Peer(AlertDescription::InternalError);
        if let Sealing::Kernel(kernel) = &self.sealing
            && !kernel.admits_new_key()
        {
            return Err(failed(rustls::Error::EncryptError));
        }
        self.is_update_owed = false;
        let message = [&KEY_UPDATE_HEAD[..], &[0]].concat();
        self.push(ContentType::Handshake, &message, 0)
            .map_err(failed)?;
        let next = self.secrets.update_sending().map_err(failed)?;
        match &mut self.sealing {
            Sealing::Kernel(kernel) => kernel.renew(self.suite, &next),
            Sealing::UserSpace(sealer) => {
                if let Some(offload) = &mut self.offload {
                    offload.renew(self.suite, &next);
                }
                *sealer = Sealer::new(sealer.form(), next).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Replaces the key on the peer's request, and before it has sealed too much (RFC 8446, section
    /// 5.5). Fails in TLS 1.2, which has no key update.
    pub(super) fn renew_key(&mut self) -> Result<(), rustls::Error> {
        let is_due = match &self.sealing {
            Sealing::UserSpace(sealer) => {
                self.is_update_owed || sealer.number() >= self.key_records_max
            }
            Sealing::Kernel(_) => return Err(rustls::Error::EncryptError),
        };
        match (is_due, self.suite.tls13()) {
            (false, _) => Ok(()),
            (true, None) => Err(rustls::Error::EncryptError),
            (true, Some(_)) => self.update_key().map_err(|_| rustls::Error::EncryptError),
        }
    }

    /// Gives the key to the kernel, if a long range starts, no sealed data is unsent and the kernel
    /// accepts it. Returns where data is encrypted from now on.
    fn hand_over(&mut self, socket: &PlainSocket, outbox: &Outbox) -> SealedBy {
        let Sealing::UserSpace(sealer) = &self.sealing else {
            return SealedBy::Kernel;
        };
        let number = sealer.number();
        let bytes = self
            .offload
            .as_ref()
            .and_then(|_| PendingOffload::is_worth(outbox));
        let Some(bytes) = bytes else {
            return SealedBy::UserSpace;
        };
        // The handshake's tickets are sent with the first response.
        let _ = self.send(socket);
        if self.is_update_owed || !self.unsent.is_empty() {
            return SealedBy::UserSpace;
        }
        let (offload, most) = (self.offload.take(), self.key_records_max);
        match offload.and_then(|offload| offload.hand_over(socket, (number, bytes), most)) {
            Some(kernel) => {
                self.sealing = Sealing::Kernel(kernel);
                SealedBy::Kernel
            }
            None => SealedBy::UserSpace,
        }
    }

    /// Replaces a kernel key that has reached its limit, and sends the records that must precede
    /// the next data.
    fn prepare_kernel(&mut self, socket: &PlainSocket) -> io::Result<()> {
        self.send(socket)?;
        let is_spent = match &mut self.sealing {
            Sealing::Kernel(kernel) => kernel.is_spent(socket, self.key_records_max),
            Sealing::UserSpace(_) => false,
        };
        if is_spent || self.is_update_owed {
            self.update_key()?;
        }
        self.send(socket)
    }
}
