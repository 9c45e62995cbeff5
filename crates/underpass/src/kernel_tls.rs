//! Kernel TLS: the `tls` protocol on a TCP socket, and the ciphers that the kernel supports.
//!
//! A socket with the protocol attached and no keys behaves as plain TCP. With keys it is
//! [`EndpointKind::TcpKernelTls`](crate::EndpointKind::TcpKernelTls) for everything else in this
//! crate. Whether a kernel supports it is tested on a loopback connection: its version number does
//! not show it.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::sys::{self, SocketOption};
use crate::vocabulary::endpoint::Side;

/// A version of TLS that kernels know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Version {
    /// TLS 1.2, RFC 5246.
    Tls12 = 0x0303,
    /// TLS 1.3, RFC 8446.
    Tls13 = 0x0304,
}

impl Version {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    /// Returns the usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        }
    }
}

/// A cipher that kernels know and TLS libraries negotiate, as `cipher_type` of
/// `struct tls_crypto_info`, linux/tls.h.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    /// Nonce, key, salt and record number together, in bytes.
    const fn secret_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm => 8 + 16 + 4 + 8,
            Self::Aes256Gcm => 8 + 32 + 4 + 8,
            Self::ChaCha20Poly1305 => 12 + 32 + 8,
        }
    }
}

/// Attaches the `tls` protocol to a TCP socket (`TCP_ULP`), which then waits for keys and behaves
/// as plain TCP until then. It cannot be detached. Does not block, except while the kernel loads
/// its module for a privileged process.
///
/// # Errors
/// `ENOENT` where the kernel has no TLS, or its module is not loaded and the process may not load
/// it; `ENOTCONN` where the socket is not connected, or its peer has already ended; `EEXIST` where
/// it is attached already. The socket is unchanged.
pub fn attach(socket: impl AsFd) -> Result<(), Errno> {
    sys::set_option(socket.as_fd(), SocketOption::UpperProtocol, b"tls")
}

/// Tests whether the kernel supports this cipher, by installing keys of zeros: the socket, to which
/// the protocol was attached, is of no use afterwards. [`Side::Sink`] is the
/// direction of sending, [`Side::Source`] that of receiving. Does not block.
///
/// # Errors
/// `EINVAL` or `ENOENT` where it does not know the version or the cipher, `ENOPROTOOPT` where the
/// protocol was not attached, `EBUSY` where the direction has keys already.
pub fn try_keys(
    socket: impl AsFd,
    side: Side,
    version: Version,
    cipher: Cipher,
) -> Result<(), Errno> {
    let mut info = Vec::with_capacity(4 + cipher.secret_bytes());
    info.extend((version as u16).to_ne_bytes());
    info.extend((cipher as u16).to_ne_bytes());
    info.resize(4 + cipher.secret_bytes(), 0);
    let direction = match side {
        Side::Sink => SocketOption::TlsSend,
        Side::Source => SocketOption::TlsReceive,
    };
    sys::set_option(socket.as_fd(), direction, &info)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::{Endpoint, EndpointKind};

    #[test]
    fn crypto_infos_are_as_long_as_the_kernels() {
        let long = Cipher::ALL.map(|cipher| 4 + cipher.secret_bytes());
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
