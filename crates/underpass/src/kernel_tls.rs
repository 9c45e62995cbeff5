//! Kernel TLS: the `tls` protocol on a TCP socket, and the ciphers that the kernel supports.
//!
//! A socket with the protocol attached and no keys behaves as plain TCP. With keys it is
//! [`EndpointKind::TcpKernelTls`](crate::EndpointKind::TcpKernelTls) for the rest of this crate.
//! Kernel support is tested on a loopback connection: the version number does not show it.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::sys::{self, SocketOption};
use crate::tcp::loopback_pair;
use crate::vocabulary::endpoint::Side;
use crate::vocabulary::errno::Named;

/// A TLS version that kernels support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Version {
    /// TLS 1.2, RFC 5246.
    Tls12 = 0x0303,
    /// TLS 1.3, RFC 8446.
    Tls13 = 0x0304,
}

impl Version {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    /// Returns the usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        }
    }
}

/// A cipher that kernels support and TLS libraries negotiate: `cipher_type` of linux/tls.h, in
/// `struct tls_crypto_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes128Gcm = 51,
    /// AES-256-GCM.
    Aes256Gcm = 52,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305 = 54,
}

impl Cipher {
    /// All ciphers.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    /// Returns the length of the key in bytes.
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Returns the length of the salt, the first part of the initial vector.
    const fn salt_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 4,
            Self::ChaCha20Poly1305 => 0,
        }
    }

    /// Returns the size of `struct tls12_crypto_info_…`.
    const fn info_bytes(self) -> usize {
        HEAD_BYTES + IV_BYTES + self.key_bytes() + NUMBER_BYTES
    }
}

/// Version and cipher.
const HEAD_BYTES: usize = 4;
/// The same for all ciphers, the salt included.
const IV_BYTES: usize = 12;
const NUMBER_BYTES: usize = 8;
const INFO_BYTES_MAX: usize = HEAD_BYTES + IV_BYTES + 32 + NUMBER_BYTES;

/// The key, the initial vector and the record number of one direction, as the kernel takes them
/// (`struct tls12_crypto_info_…`, linux/tls.h). Dropping it overwrites them.
pub struct TrafficKey {
    version: Version,
    cipher: Cipher,
    info: [u8; INFO_BYTES_MAX],
}

impl TrafficKey {
    /// Creates a key that has sealed or opened `number` records. `iv` is the initial vector of RFC
    /// 8446, section 5.3; for AES-GCM of TLS 1.2, the salt and the explicit nonce of record 0.
    /// `None` if the key does not have the length of its cipher.
    ///
    /// For AES-GCM of TLS 1.2 a process XORs the record number into the explicit nonce; the kernel
    /// increments the nonce from the one it is given, so that both would use some nonces twice. The
    /// kernel's therefore start at the other end of the space: the uppermost bit is inverted. A
    /// receiver reads the explicit nonce from each record.
    pub fn new(
        version: Version,
        cipher: Cipher,
        key: &[u8],
        iv: &[u8; IV_BYTES],
        number: u64,
    ) -> Option<TrafficKey> {
        if key.len() != cipher.key_bytes() {
            return None;
        }
        let (salt, nonce) = iv.split_at(cipher.salt_bytes());
        let (mut info, mut end) = ([0; INFO_BYTES_MAX], 0);
        let head = [
            (version as u16).to_ne_bytes(),
            (cipher as u16).to_ne_bytes(),
        ];
        for part in [head.as_flattened(), nonce, key, salt] {
            info[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        let is_counted_up = version == Version::Tls12 && !salt.is_empty();
        if is_counted_up {
            info[HEAD_BYTES] ^= 0x80;
        }
        let mut new = TrafficKey {
            version,
            cipher,
            info,
        };
        new.set_number(number);
        sys::wipe(&mut info);
        Some(new)
    }

    /// Returns the TLS version of the key.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the cipher of the key.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// Sets the number of the next record.
    pub fn set_number(&mut self, number: u64) {
        let end = self.cipher.info_bytes();
        self.info[end - NUMBER_BYTES..end].copy_from_slice(&number.to_be_bytes());
    }

    fn info(&self) -> &[u8] {
        &self.info[..self.cipher.info_bytes()]
    }
}

impl Drop for TrafficKey {
    fn drop(&mut self) {
        sys::wipe(&mut self.info);
    }
}

impl fmt::Debug for TrafficKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficKey")
            .field("version", &self.version)
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}

/// Attaches the `tls` protocol to a TCP socket (`TCP_ULP`), which behaves as plain TCP until it
/// gets keys. It cannot be detached. Does not block, except while the kernel loads its module for a
/// privileged process.
///
/// # Errors
/// `ENOENT` if the kernel has no TLS, or its module is not loaded and the process may not load it;
/// `ENOTCONN` if the socket is not connected, or its peer has already ended; `EEXIST` if it is
/// attached already. The socket is unchanged.
pub fn attach(socket: impl AsFd) -> Result<(), Errno> {
    sys::set_option(socket.as_fd(), SocketOption::UpperProtocol, b"tls")
}

/// Installs the key of one direction: [`Side::Sink`] for sending, [`Side::Source`] for receiving.
/// From then on everything written becomes records; one direction may have keys while the other
/// carries plain bytes. A second key for a direction (TLS 1.3, Linux 6.14) replaces the first; the
/// caller must have sent the record that announces it (RFC 9846, section 4.7.3) before. Does not
/// block.
///
/// # Errors
/// `EINVAL` or `ENOENT` if the kernel does not know the version or the cipher, `ENOPROTOOPT` if the
/// protocol was not attached, `EBUSY` if the direction has a key and cannot change it. The socket
/// is unchanged.
pub fn install(socket: impl AsFd, side: Side, key: &TrafficKey) -> Result<(), Errno> {
    sys::set_option(socket.as_fd(), direction(side), key.info())
}

const fn direction(side: Side) -> SocketOption {
    match side {
        Side::Sink => SocketOption::TlsSend,
        Side::Source => SocketOption::TlsReceive,
    }
}

/// Returns the number of the next record that the kernel seals: the records sealed with its current
/// key, and those before it. Does not block.
///
/// # Errors
/// `EBUSY` if the direction has no key, `EINVAL` if its key is for another cipher.
pub fn sealed_records(socket: impl AsFd, version: Version, cipher: Cipher) -> Result<u64, Errno> {
    let mut key = zeros(version, cipher);
    let len = cipher.info_bytes();
    sys::option(socket.as_fd(), SocketOption::TlsSend, &mut key.info[..len])?;
    let (_, number) = key.info().split_at(len - NUMBER_BYTES);
    number
        .try_into()
        .map(u64::from_be_bytes)
        .map_err(|_| Errno::INVAL)
}

/// Sends a non-data record: an alert (21) or a handshake message (22), at most 16 KiB. Earlier
/// Sends a non-data record: an alert (21) or a handshake message (22), at most 16 KiB. Earlier
/// writes that wait for more (`MSG_MORE`) leave first. Only for sockets with a sending key: others
/// send `content` unsealed. Does not block.
/// # Errors
/// `EAGAIN` if the socket has no room; nothing was sent. Other errors end the connection.
pub fn send_record(socket: impl AsFd, record_type: u8, content: &[u8]) -> Result<(), Errno> {
    match sys::send_record(socket.as_fd(), record_type, content)? {
        sent if sent == content.len() => Ok(()),
        // A record is smaller than the largest single send.
        _ => Err(Errno::MSGSIZE),
    }
}

/// Tests whether the kernel supports this cipher, by installing keys of zeros: the socket, which
/// has the protocol attached, cannot be used afterwards. [`Side::Sink`] is the sending direction,
/// [`Side::Source`] the receiving one. Does not block.
///
/// # Errors
/// As [`install`].
pub fn try_keys(
    socket: impl AsFd,
    side: Side,
    version: Version,
    cipher: Cipher,
) -> Result<(), Errno> {
    install(socket, side, &zeros(version, cipher))
}

fn zeros(version: Version, cipher: Cipher) -> TrafficKey {
    TrafficKey {
        info: {
            let mut info = [0; INFO_BYTES_MAX];
            info[..2].copy_from_slice(&(version as u16).to_ne_bytes());
            info[2..HEAD_BYTES].copy_from_slice(&(cipher as u16).to_ne_bytes());
            info
        },
        version,
        cipher,
    }
}

/// The kernel TLS support for sending, tested on connections of this process to itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SendingSupport {
    /// The accepted ciphers.
    pub suites: Vec<(Version, Cipher)>,
    /// Whether a TLS 1.3 connection accepts a second key.
    pub rekeying: Rekeying,
}

/// Whether a key can be replaced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rekeying {
    /// It can.
    Works,
    /// A connection has one key, and ends with it.
    Absent,
}

/// The reason why a kernel cannot seal records.
#[derive(Debug)]
#[non_exhaustive]
pub enum KernelTlsError {
    /// It has no TLS.
    Missing,
    /// It refuses the protocol, or every cipher.
    Refused(Errno),
    /// The test connection could not be made.
    Loopback(io::Error),
}

impl fmt::Display for KernelTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "the kernel is built without TLS (CONFIG_TLS), or its module is not loaded: try \
                 modprobe tls",
            ),
            Self::Refused(errno) => write!(f, "the kernel refuses TLS: {}", Named(*errno)),
            Self::Loopback(error) => {
                write!(f, "no connection for a test over the loopback: {error}")
            }
        }
    }
}

impl std::error::Error for KernelTlsError {}

/// Tests the kernel TLS support for sending: every version with every cipher, and a second key. A
/// module that is not loaded stays so. Takes a few milliseconds; kernels may load modules of their
/// ciphers meanwhile.
///
/// # Errors
/// [`KernelTlsError`]: kernel TLS cannot be used at all.
pub fn probe_sending() -> Result<SendingSupport, KernelTlsError> {
    // Attaching would make the kernel load its module for a privileged process.
    let listed = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp");
    if listed.is_ok_and(|names| names.split_whitespace().all(|name| name != "tls")) {
        return Err(KernelTlsError::Missing);
    }
    let (mut suites, mut refusal) = (Vec::new(), None);
    for version in Version::ALL {
        for cipher in Cipher::ALL {
            let (socket, _peer) = attached_pair()?;
            match try_keys(&socket, Side::Sink, version, cipher) {
                Ok(()) => suites.push((version, cipher)),
                Err(errno) => refusal = Some(errno),
            }
        }
    }
    match (&suites[..], refusal) {
        ([], Some(errno)) => Err(KernelTlsError::Refused(errno)),
        _ => Ok(SendingSupport {
            rekeying: probe_rekeying(&suites)?,
            suites,
        }),
    }
}

fn probe_rekeying(suites: &[(Version, Cipher)]) -> Result<Rekeying, KernelTlsError> {
    let suite = suites
        .iter()
        .find(|(version, _)| *version == Version::Tls13);
    let Some((version, cipher)) = suite.copied() else {
        return Ok(Rekeying::Absent);
    };
    let (socket, _peer) = attached_pair()?;
    let both = [(); 2].map(|()| try_keys(&socket, Side::Sink, version, cipher));
    Ok(match both {
        [Ok(()), Ok(())] => Rekeying::Works,
        _ => Rekeying::Absent,
    })
}

/// Returns both ends: a socket whose peer is closed cannot attach the protocol.
fn attached_pair() -> Result<(TcpStream, TcpStream), KernelTlsError> {
    let pair = loopback_pair().map_err(KernelTlsError::Loopback)?;
    match attach(&pair.0) {
        Ok(()) => Ok(pair),
        Err(Errno::NOENT) => Err(KernelTlsError::Missing),
        Err(errno) => Err(KernelTlsError::Refused(errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::{Endpoint, EndpointKind};

    #[test]
    fn crypto_infos_are_as_long_as_the_kernels() {
        let long = Cipher::ALL.map(Cipher::info_bytes);
        assert_eq!(
            long,
            [
                size_of::<libc::tls12_crypto_info_aes_gcm_128>(),
                size_of::<libc::tls12_crypto_info_aes_gcm_256>(),
                size_of::<libc::tls12_crypto_info_chacha20_poly1305>(),
            ]
        );
    }

    #[test]
    fn a_key_is_laid_out_as_the_kernel_reads_it() {
        let iv = *b"saltexplicit";
        let laid_out = |version, cipher: Cipher| {
            let secret = vec![7; cipher.key_bytes()];
            let key = TrafficKey::new(version, cipher, &secret, &iv, 0x0102).unwrap();
            key.info().to_vec()
        };
        let number = [0, 0, 0, 0, 0, 0, 1, 2];
        let gcm = laid_out(Version::Tls13, Cipher::Aes128Gcm);
        assert_eq!(
            gcm[..4],
            [0x0304_u16.to_ne_bytes(), 51_u16.to_ne_bytes()].concat()
        );
        assert_eq!(
            gcm[4..],
            [b"explicit", &[7; 16][..], b"salt", &number].concat()
        );
        let chacha = laid_out(Version::Tls12, Cipher::ChaCha20Poly1305);
        assert_eq!(chacha[4..], [&iv, &[7; 32][..], &number].concat());
        assert!(TrafficKey::new(Version::Tls13, Cipher::Aes256Gcm, &[0; 16], &iv, 0).is_none());
    }

    /// The explicit nonces of a process are that of record 0 XORed with the record number.
    #[test]
    fn nonces_of_tls_1_2_are_not_those_that_were_used_before() {
        for start in [
            0,
            1,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            0x0123_4567_89ab_cdef,
        ] {
            let iv = [&[0; 4][..], &start.to_be_bytes()].concat();
            let iv = iv.try_into().unwrap();
            for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
                let secret = vec![0; cipher.key_bytes()];
                let key = TrafficKey::new(Version::Tls12, cipher, &secret, &iv, 3).unwrap();
                let nonce = key.info()[HEAD_BYTES..HEAD_BYTES + 8].try_into().unwrap();
                let first = u64::from_be_bytes(nonce);
                // 2^32 records are more than one key may seal.
                for used in [0, 1, 2, 3, (1 << 32) - 1].map(|number| start ^ number) {
                    assert!(used.wrapping_sub(first) > 1 << 32, "{start:x}");
                    assert!(first.wrapping_sub(used) > 1 << 32, "{start:x}");
                }
            }
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = TrafficKey::new(
            Version::Tls13,
            Cipher::Aes128Gcm,
            &[201; 16],
            &[202; 12],
            203,
        );
        let shown = format!("{:?}", key.unwrap());
        assert!(
            ["201", "202", "203"]
                .iter()
                .all(|secret| !shown.contains(secret)),
            "{shown}"
        );
    }

    #[test]
    fn sending_is_probed_as_far_as_the_kernel_goes() {
        match probe_sending() {
            Ok(support) => {
                assert!(!support.suites.is_empty());
                let (socket, _peer) = attached_pair().unwrap();
                let (version, cipher) = (Version::Tls13, Cipher::Aes256Gcm);
                let key =
                    |number| TrafficKey::new(version, cipher, &[1; 32], &[2; 12], number).unwrap();
                assert!(sealed_records(&socket, version, cipher).is_err());
                install(&socket, Side::Sink, &key(7)).unwrap();
                assert_eq!(sealed_records(&socket, version, cipher), Ok(7));
                send_record(&socket, 22, &[24, 0, 0, 1, 0]).unwrap();
                assert_eq!(sealed_records(&socket, version, cipher), Ok(8));
                let second = install(&socket, Side::Sink, &key(0));
                match support.rekeying {
                    Rekeying::Works => assert_eq!(second, Ok(())),
                    Rekeying::Absent => assert_eq!(second, Err(Errno::BUSY)),
                }
            }
            Err(error) => {
                assert!(matches!(error, KernelTlsError::Missing), "{error}");
                assert!(error.to_string().contains("modprobe tls"));
            }
        }
    }

    #[test]
    fn a_kernel_with_tls_is_distinguished_from_one_without() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (version, cipher) = (Version::Tls12, Cipher::Aes128Gcm);
        assert_eq!(
            try_keys(&socket, Side::Sink, version, cipher),
            Err(Errno::NOPROTOOPT)
        );
        match attach(&socket) {
            Ok(()) => {
                assert_eq!(
                    Endpoint::of(&socket).unwrap().kind,
                    EndpointKind::TcpKernelTls
                );
                assert_eq!(attach(&socket), Err(Errno::EXIST));
                assert_eq!(try_keys(&socket, Side::Sink, version, cipher), Ok(()));
                assert_eq!(try_keys(&socket, Side::Source, version, cipher), Ok(()));
            }
            Err(errno) => {
                assert_eq!(errno, Errno::NOENT);
                assert_eq!(Endpoint::of(&socket).unwrap().kind, EndpointKind::Tcp);
            }
        }
    }

    #[test]
    fn only_a_connected_socket_takes_the_protocol() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = attach(&listener).unwrap_err();
        assert!(
            matches!(refused, Errno::NOTCONN | Errno::NOENT),
            "{refused}"
        );
    }
}
