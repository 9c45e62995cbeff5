//! The other end of a transfer: receives bytes on a TCP socket, in one of three ways, and counts
//! them.
//!
//! It handles one connection at a time, because one transfer is measured at a time. When a sender
//! has shut down its connection, it gets the number of bytes that arrived, in decimal digits, and
//! the connection is closed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use sha2::{Digest as _, Sha256};

use crate::content::Sha256Hash;
use crate::error::{Error, ErrorContext, Result};

/// The buffer of a good client; larger ones copy no faster.
const COPY_BYTES: usize = 256 << 10;

/// The most that one call discards.
const DISCARD_BYTES: usize = 4 << 20;

/// Bytes in flight arrive within this time after a sender reports that it is done.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// How the bytes are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveMode {
    /// The kernel discards them (`MSG_TRUNC`, tcp(7)), which shows the sender's cost alone.
    Discard,
    /// They are copied into a buffer, as by any program that reads them.
    Copy,
    /// They are copied and hashed.
    Hash,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    /// Of all bytes, if they were hashed.
    pub(crate) sha256: Option<Sha256Hash>,
}

/// A receiver on its own thread.
pub(crate) struct TestReceiver {
    address: SocketAddr,
    mode: Arc<Mutex<ReceiveMode>>,
    received: Receiver<Result<Received>>,
}

impl TestReceiver {
    /// Listens on a free port of the loopback.
    pub(crate) fn start() -> Result<TestReceiver> {
        let listener = TcpListener::bind("127.0.0.1:0").context(|| "listening".into())?;
        let address = listener.local_addr().context(|| "listening".into())?;
        let mode = Arc::new(Mutex::new(ReceiveMode::Discard));
        let (sender, received) = mpsc::channel();
        let current = Arc::clone(&mode);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mode = current.lock().map_or(ReceiveMode::Discard, |mode| *mode);
                // An error means that the receiver was dropped.
                if sender.send(receive(stream, mode)).is_err() {
                    return;
                }
            }
        });
        Ok(TestReceiver {
            address,
            mode,
            received,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set_mode(&self, mode: ReceiveMode) {
        if let Ok(mut current) = self.mode.lock() {
            *current = mode;
        }
    }

    /// Waits for the end of the oldest connection that was not returned yet.
    pub(crate) fn received(&self) -> Result<Received> {
        let late = |_| Error::Answer("nothing arrived".into());
        self.received.recv_timeout(ARRIVAL_TIMEOUT).map_err(late)?
    }
}

/// Receives on an address for other machines, until the process ends. The kernel discards what
/// arrives on its port; what arrives on the next port is copied. `report` gets a line for every
/// connection.
///
/// # Errors
/// The address can't be listened on.
pub fn receive_for_others(
    address: impl ToSocketAddrs,
    report: impl Fn(&str) + Clone + Send + 'static,
) -> Result<()> {
    let addresses = address.to_socket_addrs();
    let address = addresses
        .context(|| "resolving the address".into())?
        .next()
        .ok_or_else(|| Error::Setting("the name has no address".into()))?;
    let copying = SocketAddr::new(address.ip(), address.port().wrapping_add(1));
    let listen = |address: SocketAddr| {
        let listener = TcpListener::bind(address);
        listener.context(|| format!("listening on {address}"))
    };
    let (discarder, copier) = (listen(address)?, listen(copying)?);
    report(&format!(
        "receiving on {address} (discarded in the kernel) and {copying} (copied); Ctrl-C stops it"
    ));
    let also_report = report.clone();
    thread::spawn(move || serve_others(&copier, ReceiveMode::Copy, &also_report));
    serve_others(&discarder, ReceiveMode::Discard, &report);
    Ok(())
}

fn serve_others(listener: &TcpListener, mode: ReceiveMode, report: &impl Fn(&str)) {
    for stream in listener.incoming() {
        let peer = stream.as_ref().ok().and_then(|s| s.peer_addr().ok());
        let from = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        match receive(stream, mode) {
            Ok(received) => report(&format!("{} bytes from {from}", received.bytes)),
            Err(error) => report(&format!("{from}: {error}")),
        }
    }
}

/// Receives until the sender has shut down, and answers with the count.
fn receive(stream: std::io::Result<TcpStream>, mode: ReceiveMode) -> Result<Received> {
    let mut stream = stream.context(|| "accepting a sender".into())?;
    let mut hash = (mode == ReceiveMode::Hash).then(Sha256::new);
    let mut buffer = match mode {
        // The kernel never writes to it, so its pages stay untouched.
        ReceiveMode::Discard => vec![0; DISCARD_BYTES],
        ReceiveMode::Copy | ReceiveMode::Hash => vec![0; COPY_BYTES],
    };
    let mut bytes = 0;
    loop {
        let got = match mode {
            ReceiveMode::Discard => recv(&stream, &mut buffer[..], RecvFlags::TRUNC)
                .map(|(_, got)| got)
                .map_err(std::io::Error::from),
            ReceiveMode::Copy | ReceiveMode::Hash => stream.read(&mut buffer),
        };
        match got {
            Ok(0) => break,
            Ok(got) => {
                bytes += got as u64;
                hash.iter_mut().for_each(|hash| hash.update(&buffer[..got]));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context(|| "receiving".into()),
        }
    }
    write!(stream, "{bytes}").context(|| "answering with the count".into())?;
    let sha256 = hash.map(|hash| hash.finalize().into());
    Ok(Received { bytes, sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Shutdown;

    #[test]
    fn every_mode_counts_the_bytes_and_reports_the_count() {
        let receiver = TestReceiver::start().unwrap();
        let content = vec![7; (3 << 20) + 17];
        for mode in [ReceiveMode::Discard, ReceiveMode::Copy, ReceiveMode::Hash] {
            receiver.set_mode(mode);
            let mut sender = TcpStream::connect(receiver.address()).unwrap();
            sender.write_all(&content).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            sender.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, content.len().to_string());
            let received = receiver.received().unwrap();
            assert_eq!(received.bytes, content.len() as u64);
            let hash = <Sha256Hash>::from(Sha256::digest(&content));
            assert_eq!(received.sha256, (mode == ReceiveMode::Hash).then_some(hash));
        }
    }
}
