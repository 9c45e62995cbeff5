//! Information about TLS: on a connection, and on the certificates.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::SystemTime;

use crate::tls::settings::{CertificateFiles, TlsVersion};

/// The parameters agreed in a handshake.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsInfo {
    /// The version.
    pub version: TlsVersion,
    /// The cipher suite, by its IANA name.
    pub cipher_suite: &'static str,
    /// The host name that the client asked for (SNI).
    pub server_name: Option<Box<str>>,
    /// Whether the handshake was full, or resumed an earlier session.
    pub handshake: HandshakeKind,
    /// The identity in the certificate that the client has proved to own: its subject, or another
    /// name if that is empty. It may contain any characters.
    pub client: Option<Box<str>>,
    /// On a connection that this process opened: the SHA-256 hash of the server's public key (RFC
    /// 7469, section 2.4), which it has proved to own.
    pub server_key: Option<[u8; 32]>,
    pub(crate) sealed_by: Cell<SealedBy>,
}

/// The encrypting side of a connection's records.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SealedBy {
    /// This program.
    #[default]
    UserSpace,
    /// The kernel.
    Kernel,
}

labels! { SealedBy { UserSpace = "user_space", Kernel = "kernel", } }

impl TlsInfo {
    /// Returns the current encrypting side.
    pub fn sealed_by(&self) -> SealedBy {
        self.sealed_by.get()
    }
}

/// How keys were agreed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandshakeKind {
    /// With certificates.
    Full,
    /// From a ticket of an earlier connection.
    Resumed,
}

labels! { HandshakeKind { Full = "full", Resumed = "resumed", } }

/// The outcome of a connection whose sending kernel TLS could have taken over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OffloadOutcome {
    /// The kernel encrypts the connection's data.
    Kernel,
    /// Kernel TLS cannot be used, or has failed its test at the start.
    Unavailable,
    /// The kernel does not know the cipher suite.
    UnknownSuite,
    /// The transfer exceeds the limit of the key, and the kernel cannot replace the key.
    RecordLimit,
    /// The kernel rejected TLS on the socket, as it does after the peer has closed its side.
    AttachRefused,
    /// The kernel rejected the key.
    KeyRefused,
    /// Taken over, but ended early, because the kernel cannot replace the key.
    KeySpent,
}

labels! {
    OffloadOutcome {
        Kernel = "kernel",
        Unavailable = "unavailable",
        UnknownSuite = "unknown_suite",
        RecordLimit = "record_limit",
        AttachRefused = "attach_refused",
        KeyRefused = "key_refused",
        KeySpent = "key_spent",
    }
}

/// The start of a connection to a listener with TLS.
#[derive(Debug)]
pub(crate) enum Handshake {
    /// A complete handshake: all further bytes are encrypted.
    Complete,
    /// Not a handshake: nothing has been consumed.
    Plain,
}

/// The contents of a certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFacts {
    /// The files that it was read from.
    pub files: CertificateFiles,
    /// Host names it is valid for, in lower case; `*.example.org` for all that have one label more.
    pub names: Vec<String>,
    /// Addresses it is valid for.
    pub addresses: Vec<IpAddr>,
    /// When it becomes valid.
    pub not_before: SystemTime,
    /// When it expires.
    pub not_after: SystemTime,
    /// The number of certificates in the file, including this one.
    pub chain_length: usize,
    /// Whether it was signed with its own key.
    pub is_self_signed: bool,
    /// The SHA-256 hash of the certificate: its fingerprint.
    pub sha256: [u8; 32],
    /// The SHA-256 hash of its public key, by which clients pin it (RFC 7469, section 2.4).
    pub key_sha256: [u8; 32],
    /// The faults of it and of the certificates after it, apart from dates.
    pub faults: Vec<ChainFault>,
}

/// A fault in a certificate chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChainFault {
    /// One of them is not a certificate.
    Unreadable,
    /// One is not signed by the next.
    Order {
        /// Its position, from 1.
        number: usize,
    },
    /// It is the only one, and names the location of its issuer's, which clients need too.
    NoIntermediate,
    /// It is the certificate of an authority.
    Authority,
}

/// Whether reading certificates again has found changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refreshed {
    /// No changes.
    Same,
    /// Changes.
    Changed,
}

impl CertificateFacts {
    /// Returns whether it is valid for a host name (RFC 6125, section 6.4): the same name, or one
    /// label more than a name with a wildcard.
    pub fn is_for(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let above = name.split_once('.').map(|(_, above)| above);
        self.names.iter().any(|own| match own.strip_prefix("*.") {
            Some(own) => above == Some(own),
            None => *own == name,
        })
    }
}

/// Returns the IANA name of a suite that rustls names like `TLS13_AES_128_GCM_SHA256`.
pub(crate) fn iana_name(name: &'static str) -> &'static str {
    match name {
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        name => name,
    }
}
