//! A client that seals and opens records itself, with the keys of a rustls handshake.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::cipher::{AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{
    AlertDescription, ClientConfig, ConnectionTrafficSecrets, ContentType, ProtocolVersion,
    SupportedCipherSuite,
};
use underpass_testkit::{HttpClient, WAIT_MAX};

use crate::tls::ClientBuilder;

pub(crate) const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// A KeyUpdate that requests none in return, and one that does.
pub(crate) const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
pub(crate) const KEY_UPDATE_REQUEST: [u8; 5] = [24, 0, 0, 1, 1];

/// The client's handling of the last flight of its handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LastFlight {
    Sent,
    /// Sent together with the next data.
    Held,
}

/// A connection whose records are made one by one. Every record of the server is opened with its
/// expected number: missing, repeated or reordered records are errors.
pub(crate) struct RawClient {
    pub(crate) socket: TcpStream,
    suite: SupportedCipherSuite,
    secrets: KernelConnection<ClientConnectionData>,
    sealer: Sealer,
    decrypter: Box<dyn MessageDecrypter>,
    opened: u64,
    received: Vec<u8>,
    /// Decrypted data that was not read yet.
    data: Vec<u8>,
    held: Vec<u8>,
    /// Number of times the server has changed its key.
    pub(crate) key_updates: u64,
    /// Maximum number of bytes per read from the socket.
    pub(crate) read_bytes: usize,
}

pub(crate) fn config(builder: &ClientBuilder) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(builder.config());
    config.enable_secret_extraction = true;
    Arc::new(config)
}

pub(crate) fn socket(address: SocketAddr) -> TcpStream {
    bounded(TcpStream::connect(address).unwrap())
}

/// Returns a socket with a small receive buffer, so that unread data stays with the server.
pub(crate) fn slow_socket(address: SocketAddr) -> TcpStream {
    bounded(HttpClient::connect_slow(address).socket)
}

fn bounded(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    socket.set_write_timeout(Some(WAIT_MAX)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

impl RawClient {
    pub(crate) fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> RawClient {
        RawClient::shake(config, socket(address), LastFlight::Sent).unwrap()
    }

    pub(crate) fn shake(
        config: &Arc<ClientConfig>,
        socket: TcpStream,
        last: LastFlight,
    ) -> io::Result<RawClient> {
        let mut held = Vec::new();
        let finished = shake(config, &socket, |flight, bytes| {
            match (flight, last) {
                (1, LastFlight::Held) => held = bytes.to_vec(),
                _ => (&socket).write_all(bytes)?,
            }
            Ok(())
        });
        let (connection, received) = finished?;
        let suite = connection.negotiated_cipher_suite().unwrap();
        let (extracted, secrets) = connection.dangerous_into_kernel_connection().unwrap();
        Ok(RawClient {
            socket,
            suite,
            secrets,
            sealer: Sealer::new(suite, extracted.tx),
            decrypter: decrypter(suite, extracted.rx.1),
            opened: extracted.rx.0,
            received,
            data: Vec::new(),
            held,
            key_updates: 0,
            read_bytes: 64 << 10,
        })
    }

    pub(crate) fn is_tls13(&self) -> bool {
        self.suite.tls13().is_some()
    }

    /// Makes the next record.
    pub(crate) fn seal(&mut self, kind: ContentType, content: &[u8]) -> Vec<u8> {
        self.sealer.seal(kind.into(), content)
    }

    /// Sends bytes unmodified. The server may have closed already.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let _may_be_closed = self.socket.write_all(&all);
    }

    /// Seals and sends a record.
    pub(crate) fn send(&mut self, kind: ContentType, content: &[u8]) {
        let record = self.seal(kind, content);
        self.send_raw(&record);
    }

    pub(crate) fn send_data(&mut self, content: impl AsRef<[u8]>) {
        self.send(ContentType::ApplicationData, content.as_ref());
    }

    /// Switches to the next sending key.
    pub(crate) fn next_key(&mut self) {
        let secrets = self.secrets.update_tx_secret().unwrap();
        self.sealer = Sealer::new(self.suite, secrets);
    }

    /// Makes a record with a KeyUpdate, and uses the next key.
    pub(crate) fn seal_key_update(&mut self, message: &[u8]) -> Vec<u8> {
        let record = self.seal(ContentType::Handshake, message);
        self.next_key();
        record
    }

    /// Returns the next record of the server; `None` at the end of the connection.
    pub(crate) fn record(&mut self) -> io::Result<Option<(ContentType, Vec<u8>)>> {
        let mut record = match self.receive()? {
            None => return Ok(None),
            Some(record) => record,
        };
        let (head, opaque) = record.split_at_mut(5);
        let message = InboundOpaqueMessage::new(head[0].into(), ProtocolVersion::TLSv1_2, opaque);
        let opened = self.decrypter.decrypt(message, self.opened);
        let opened = opened.map_err(io::Error::other)?;
        let (kind, content) = (opened.typ, opened.payload.to_vec());
        self.opened += 1;
        if kind == ContentType::Handshake && content == KEY_UPDATE {
            let (number, secrets) = self.secrets.update_rx_secret().unwrap();
            self.decrypter = decrypter(self.suite, secrets);
            self.opened = number;
            self.key_updates += 1;
        }
        Ok(Some((kind, content)))
    }

    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let [_, _, _, high, low, ..] = self.received[..] {
                let length = 5 + usize::from(u16::from_be_bytes([high, low]));
                if length <= self.received.len() {
                    return Ok(Some(self.received.drain(..length).collect()));
                }
            }
            let mut room = vec![0; self.read_bytes];
            match self.socket.read(&mut room)? {
                0 if self.received.is_empty() => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.received.extend_from_slice(&room[..read]),
            }
        }
    }

    /// Returns the alert that ends the connection, a close_notify or a fatal one, if any.
    pub(crate) fn last_alert(&mut self) -> Option<AlertDescription> {
        let mut last = None;
        while let Some((kind, content)) = self.record().expect("an end that is no reset") {
            assert_eq!(last, None, "{kind:?} {content:?} behind the alert");
            if let (ContentType::Alert, [2, alert] | [1, alert @ 0]) = (kind, &content[..]) {
                last = Some(AlertDescription::from(*alert));
            }
        }
        last
    }
}

/// Reads the server's data up to its close_notify. Another alert and an end without one are errors.
impl Read for RawClient {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while self.data.is_empty() {
            match self.record()? {
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some((ContentType::ApplicationData, content)) => self.data = content,
                Some((ContentType::Alert, alert)) if alert == CLOSE_NOTIFY => return Ok(0),
                Some((ContentType::Handshake, _)) => {}
                Some(other) => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
        let count = room.len().min(self.data.len());
        room[..count].copy_from_slice(&self.data[..count]);
        self.data.drain(..count);
        Ok(count)
    }
}

impl Write for RawClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(16 << 10);
        self.send_data(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Seals records according to RFC 8446, section 5.2; RFC 5288; RFC 7905, of any type, length and
/// padding.
struct Sealer {
    key: LessSafeKey,
    iv: Iv,
    number: u64,
    suite: SupportedCipherSuite,
}

impl Sealer {
    fn new(
        suite: SupportedCipherSuite,
        (number, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Sealer {
        let algorithm = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { .. } => &AES_128_GCM,
            ConnectionTrafficSecrets::Aes256Gcm { .. } => &AES_256_GCM,
            _ => &CHACHA20_POLY1305,
        };
        let (key, iv) = parts(secrets);
        let key = UnboundKey::new(algorithm, key.as_ref()).unwrap();
        Sealer {
            key: LessSafeKey::new(key),
            iv,
            number,
            suite,
        }
    }

    fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut nonce = <[u8; 12]>::try_from(self.iv.as_ref()).unwrap();
        let number = self.number.to_be_bytes();
        self.number += 1;
        nonce[4..]
            .iter_mut()
            .zip(number)
            .for_each(|(byte, digit)| *byte ^= digit);
        let header = |kind: u8, length: usize| [kind, 3, 3, (length >> 8) as u8, length as u8];
        let is_tls13 = self.suite.tls13().is_some();
        let is_gcm = self.key.algorithm() != &CHACHA20_POLY1305;
        let explicit = match is_gcm && !is_tls13 {
            true => nonce[4..].to_vec(),
            false => Vec::new(),
        };
        let mut inner = content.to_vec();
        let (outer, aad) = match is_tls13 {
            true => {
                inner.push(kind);
                let outer = header(23, inner.len() + 16);
                (outer, outer.to_vec())
            }
            false => {
                let outer = header(kind, explicit.len() + inner.len() + 16);
                (outer, [&number[..], &header(kind, inner.len())].concat())
            }
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(aad), &mut inner)
            .unwrap();
        [&outer[..], &explicit, &inner].concat()
    }
}

fn decrypter(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Box<dyn MessageDecrypter> {
    let (key, iv) = parts(secrets);
    match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
            suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed])
        }
    }
}

fn parts(secrets: ConnectionTrafficSecrets) -> (AeadKey, Iv) {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
        _ => panic!("a cipher that nobody has"),
    }
}

/// Performs a handshake over a socket. `send` gets the number and the bytes of each flight. Also
/// returns the bytes received after the handshake.
pub(crate) fn shake(
    config: &Arc<ClientConfig>,
    mut socket: &TcpStream,
    mut send: impl FnMut(usize, &[u8]) -> io::Result<()>,
) -> io::Result<(UnbufferedClientConnection, Vec<u8>)> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = UnbufferedClientConnection::new(Arc::clone(config), name).unwrap();
    let (mut received, mut unsent, mut flight) = (Vec::new(), Vec::new(), 0);
    loop {
        let UnbufferedStatus { discard, state, .. } = client.process_tls_records(&mut received);
        let mut is_complete = false;
        match state.map_err(io::Error::other)? {
            ConnectionState::EncodeTlsData(mut data) => {
                let start = unsent.len();
                let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
                    data.encode(&mut [])
                else {
                    panic!("nothing to encode");
                };
                unsent.resize(start + required_size, 0);
                data.encode(&mut unsent[start..]).unwrap();
            }
            ConnectionState::TransmitTlsData(data) => {
                send(flight, &std::mem::take(&mut unsent))?;
                flight += 1;
                data.done();
            }
            ConnectionState::BlockedHandshake => {
                let mut room = [0; 4096];
                match socket.read(&mut room)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => received.extend_from_slice(&room[..read]),
                }
            }
            ConnectionState::WriteTraffic(_) => is_complete = true,
            other => panic!("{other:?}"),
        }
        received.drain(..discard);
        if is_complete {
            return Ok((client, received));
        }
    }
}
