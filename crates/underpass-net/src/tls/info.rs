//! What may be known of TLS: of a connection, and of the certificates.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::SystemTime;

use crate::tls::settings::{CertificateFiles, TlsVersion};

/// What was agreed in a handshake.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsInfo {
    /// The version.
    pub version: TlsVersion,
    /// The cipher suite, by its name in the registry of IANA.
    pub cipher_suite: &'static str,
    /// The host name that the client asked for (SNI).
    pub server_name: Option<Box<str>>,
    /// Whether the handshake was full, or resumed an earlier session.
    pub handshake: HandshakeKind,
    /// Who the client is by the certificate that it has proved to have: its subject, or what else
    /// names it where that is empty. It may hold any characters.
    pub client: Option<Box<str>>,
    pub(crate) sealed_by: Cell<SealedBy>,
}

/// Who makes the records of a connection.
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
    /// Who makes its records at this moment.
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

/// What became of a connection whose sending kernel TLS could have taken over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OffloadOutcome {
    /// The kernel encrypts what it sends.
    Kernel,
    /// Kernel TLS cannot be used, or has failed its test at the start.
    Unavailable,
    /// The kernel does not know the cipher suite.
    UnknownSuite,
    /// More than the key may encrypt is about to be sent, and the kernel cannot replace it.
    RecordLimit,
    /// The kernel has refused TLS on the socket, as where the peer has closed its side.
    AttachRefused,
    /// The kernel has refused the key.
    KeyRefused,
    /// It was taken over and has ended early, because the kernel cannot replace the key.
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

/// How a connection to a listener with TLS begins.
#[derive(Debug)]
pub(crate) enum Handshake {
    /// Its bytes are encrypted from now on.
    Complete,
    /// It does not begin with a handshake: nothing has been consumed.
    Plain,
}

/// What a certificate says of itself.
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
    /// How many certificates are in the file, itself included.
    pub chain_length: usize,
    /// Whether it was signed with its own key.
    pub is_self_signed: bool,
    /// The SHA-256 hash of the certificate: its fingerprint.
    pub sha256: [u8; 32],
    /// The SHA-256 hash of its public key, by which clients pin it (RFC 7469, section 2.4).
    pub key_sha256: [u8; 32],
    /// What is wrong with it and with those behind it, dates apart.
    pub faults: Vec<ChainFault>,
}

/// What is wrong with a certificate and those behind it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChainFault {
    /// One of those behind it is no certificate.
    Unreadable,
    /// One is not signed by the next.
    Order {
        /// Its place, from 1.
        number: usize,
    },
    /// It is alone, and says where the certificate of its issuer is: clients need that too.
    NoIntermediate,
    /// It is the certificate of an authority.
    Authority,
}

/// Whether reading certificates again has brought others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refreshed {
    /// They are the same.
    Same,
    /// They are others.
    Changed,
}

impl CertificateFacts {
    /// Whether it is valid for a host name (RFC 6125, section 6.4): the same name, or one label
    /// more than a name with a wildcard.
    pub fn is_for(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let above = name.split_once('.').map(|(_, above)| above);
        self.names.iter().any(|own| match own.strip_prefix("*.") {
            Some(own) => above == Some(own),
            None => *own == name,
        })
    }
}

/// The name that IANA has for what rustls calls `TLS13_AES_128_GCM_SHA256`.
pub(crate) fn iana_name(name: &'static str) -> &'static str {
    match name {
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        name => name,
    }
}
