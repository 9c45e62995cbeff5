//! Receives a body into a file: decrypted in user space, written by another thread.

use std::future::poll_fn;
use std::io;

use underpass::drive::tokio::{FileReceiver, Turn};
use underpass::{Error, Fault, Kernel};

use super::{TlsSession, errno_of};
use crate::io::socket::PlainSocket;

/// Room for one read.
const READ_BYTES: usize = 64 << 10;

/// Bytes of a body that are collected before another thread writes them.
const WRITTEN_BYTES: usize = 256 << 10;

impl TlsSession {
    /// Receives one turn of a body into a file. Cancel safe.
    ///
    /// # Errors
    /// As [`FileReceiver::turn`].
    pub(crate) async fn receive(
        &self,
        socket: &PlainSocket,
        body: &mut FileReceiver,
        kernel: &Kernel,
        bytes_max: u64,
    ) -> Result<Turn, Error> {
        let stop_at = body.left().saturating_sub(bytes_max.max(1));
        loop {
            body.flush(kernel).await?;
            if body.left() <= stop_at {
                break;
            }
            let mut opened = Vec::with_capacity(READ_BYTES);
            let mut read = poll_fn(|task| self.poll_read(socket, task, &mut opened)).await;
            // What has arrived already is written with it.
            while matches!(read, Ok(1..)) && opened.len() < WRITTEN_BYTES {
                // A read into no room at all would look like the end.
                opened.reserve(READ_BYTES);
                match self.read_now(socket, &mut opened) {
                    Ok(more) => read = Ok(more),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => read = Err(error),
                }
            }
            let taken = body.push(&opened);
            // What follows the body is the next request's.
            let rest = &opened[taken..];
            self.state.borrow_mut().opened.extend_from_slice(rest);
            let is_complete = opened.len() as u64 >= body.left();
            match read {
                Ok(0) if !is_complete => {
                    body.flush(kernel).await?;
                    return Err(body.error(Fault::Truncated, None));
                }
                Err(error) if !is_complete => {
                    body.flush(kernel).await?;
                    return Err(body.error(Fault::PeerGone, Some(errno_of(&error))));
                }
                _ => {}
            }
            tokio::task::consume_budget().await;
        }
        match body.left() {
            0 => Ok(Turn::Empty),
            _ => {
                tokio::task::yield_now().await;
                Ok(Turn::More)
            }
        }
    }
}
