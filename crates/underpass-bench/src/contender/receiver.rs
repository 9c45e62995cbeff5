//! The other end of a transfer: takes bytes on a TCP socket, in one of three ways, and counts them.
//!
//! One connection at a time, since one transfer at a time is measured. When a connection ends, its
//! sender is told the number of bytes that arrived, as decimal digits, and it is closed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver as Channel, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use sha2::{Digest as _, Sha256};

use crate::content::Sha256Hash;
use crate::error::{Error, ErrorContext, Result};

/// Like a good client's: larger ones copy no faster.
const COPY_BYTES: usize = 256 << 10;

/// The most that one call throws away. Nothing is written there.
const DISCARD_BYTES: usize = 4 << 20;

/// What is in flight when a sender says that it is done has arrived soon after.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// What is done with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveMode {
    /// The kernel throws them away (`MSG_TRUNC`, tcp(7)): the sender's cost alone shows.
    Discard,
    /// They are copied into a buffer, as any program does that looks at them.
    Copy,
    /// They are copied and hashed.
    Hash,
}

/// What came over one connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    /// Of all bytes, where they were hashed.
    pub(crate) sha256: Option<Sha256Hash>,
}

/// A receiver on a thread of its own.
pub(crate) struct TestReceiver {
    address: SocketAddr,
    taking: Arc<Mutex<ReceiveMode>>,
    taken: Channel<Result<Received>>,
}

impl TestReceiver {
    /// Listens on a free port of the loopback.
    pub(crate) fn start() -> Result<TestReceiver> {
        let listener = TcpListener::bind("127.0.0.1:0").context(|| "listening".into())?;
        let address = listener.local_addr().context(|| "listening".into())?;
        let taking = Arc::new(Mutex::new(ReceiveMode::Discard));
        let (sender, taken) = mpsc::channel();
        let how = Arc::clone(&taking);
        thread::spawn(move || take_all(&listener, &how, &sender));
        Ok(TestReceiver {
            address,
            taking,
            taken,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the next connections are to be received.
    pub(crate) fn take_by(&self, how: ReceiveMode) {
        if let Ok(mut taking) = self.taking.lock() {
            *taking = how;
        }
    }

    /// What came over the oldest connection that was not asked for yet.
    pub(crate) fn taken(&self) -> Result<Received> {
        let late = |_| Error::Answer("nothing arrived".into());
        self.taken.recv_timeout(ARRIVAL_TIMEOUT).map_err(late)?
    }
}

/// Takes connections until nobody wants to know any more.
fn take_all(listener: &TcpListener, how: &Mutex<ReceiveMode>, sender: &Sender<Result<Received>>) {
    for stream in listener.incoming() {
        let taking = how.lock().map_or(ReceiveMode::Discard, |taking| *taking);
        let taken = stream
            .context(|| "accepting a sender".into())
            .and_then(|stream| take(stream, taking));
        if sender.send(taken).is_err() {
            return;
        }
    }
}

/// Receives on an address for other machines, until the process ends. What arrives on its port is
/// discarded by the kernel, what arrives on the next one is copied. `tell` hears of every
/// connection.
///
/// # Errors
/// The address can't be listened on.
pub fn receive_for_others(
    address: impl ToSocketAddrs,
    tell: impl Fn(&str) + Clone + Send + 'static,
) -> Result<()> {
    let addresses = address.to_socket_addrs();
    let address = addresses
        .context(|| "looking up the address".into())?
        .next()
        .ok_or_else(|| Error::Setting("no such address".into()))?;
    let copying = SocketAddr::new(address.ip(), address.port().wrapping_add(1));
    let listen = |address: SocketAddr| {
        let listener = TcpListener::bind(address);
        listener.context(|| format!("listening on {address}"))
    };
    let (discarder, copier) = (listen(address)?, listen(copying)?);
    tell(&format!(
        "receiving on {address} (thrown away in the kernel) and {copying} (copied); Ctrl-C stops it"
    ));
    let telling = tell.clone();
    thread::spawn(move || serve_others(&copier, ReceiveMode::Copy, &telling));
    serve_others(&discarder, ReceiveMode::Discard, &tell);
    Ok(())
}

fn serve_others(listener: &TcpListener, taking: ReceiveMode, tell: &impl Fn(&str)) {
    for stream in listener.incoming() {
        let peer = stream.as_ref().ok().and_then(|s| s.peer_addr().ok());
        let from = peer.map_or_else(|| "somebody".to_owned(), |peer| peer.to_string());
        let taken = stream
            .context(|| "accepting a sender".into())
            .and_then(|stream| take(stream, taking));
        match taken {
            Ok(taken) => tell(&format!("{} bytes from {from}", taken.bytes)),
            Err(error) => tell(&format!("{from}: {error}")),
        }
    }
}

/// Receives until the sender has shut down, and answers with the count.
fn take(mut stream: TcpStream, taking: ReceiveMode) -> Result<Received> {
    let context = || "receiving".to_owned();
    let taken = match taking {
        ReceiveMode::Discard => Received {
            bytes: discard(&stream)?,
            sha256: None,
        },
        ReceiveMode::Copy | ReceiveMode::Hash => {
            let mut hash = (taking == ReceiveMode::Hash).then(Sha256::new);
            let mut buffer = vec![0; COPY_BYTES];
            let mut bytes = 0;
            loop {
                let read = match stream.read(&mut buffer) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    read => read.context(context)?,
                };
                if read == 0 {
                    break;
                }
                bytes += read as u64;
                if let Some(hash) = &mut hash {
                    hash.update(&buffer[..read]);
                }
            }
            let sha256 = hash.map(|hash| hash.finalize().into());
            Received { bytes, sha256 }
        }
    };
    write!(stream, "{}", taken.bytes).context(|| "telling the sender the count".into())?;
    Ok(taken)
}

fn discard(stream: &TcpStream) -> Result<u64> {
    let mut untouched = vec![0; DISCARD_BYTES];
    let mut bytes = 0;
    loop {
        match recv(stream, &mut untouched[..], RecvFlags::TRUNC) {
            Ok((_, 0)) => return Ok(bytes),
            Ok((_, taken)) => bytes += taken as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno).context(|| "receiving".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Shutdown;

    #[test]
    fn every_way_counts_what_came_and_tells_the_sender() {
        let receiver = TestReceiver::start().unwrap();
        let content = vec![7; (3 << 20) + 17];
        for how in [ReceiveMode::Discard, ReceiveMode::Copy, ReceiveMode::Hash] {
            receiver.take_by(how);
            let mut sender = TcpStream::connect(receiver.address()).unwrap();
            sender.write_all(&content).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
            let mut told = String::new();
            sender.read_to_string(&mut told).unwrap();
            assert_eq!(told, content.len().to_string());
            let taken = receiver.taken().unwrap();
            assert_eq!(taken.bytes, content.len() as u64);
            let hash = <Sha256Hash>::from(Sha256::digest(&content));
            assert_eq!(taken.sha256, (how == ReceiveMode::Hash).then_some(hash));
        }
    }
}
