//! Kernel TLS for sending: whether a listener uses it, and the hand-over of a session's key.
//!
//! ```text
//!  options ─► probe ─► self-test ─► Offload, of a listener
//!                                      │ its suite is supported: the session keeps its key
//!  handshake ─► PendingOffload ────────┤ a long range starts, and no sealed record is unsent
//!                                      ▼
//!               KernelSealing: the kernel seals written data; alerts and key updates are sent as
//!               control records. Received data is opened by the session as before.
//! ```
//!
//! The key leaves the process once: the sealer is dropped when the kernel has the key, so that no
//! nonce is used twice. If the kernel rejects the key, the session continues as before.

mod self_test;
mod speed;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustls::{CipherSuite, ConnectionTrafficSecrets, ContentType, SupportedCipherSuite};
use tokio::io::Interest;
use underpass::drive::tokio::Stream;
use underpass::kernel_tls::{
    self, Cipher, Rekeying, SendingSupport, TrafficKey, Version, probe_sending,
};
use underpass::{Outbox, Piece, Side, errno};

pub use self::self_test::self_test;
pub use self::speed::encryption_speed;
use crate::io::socket::PlainSocket;
use crate::limits::OFFLOADED_BYTES_MIN;
use crate::tls::error::TlsError;
use crate::tls::info::{OffloadOutcome, iana_name};
use crate::tls::records::{CONTENT_BYTES_MAX, Sealer};
use crate::tls::settings::OffloadMode;

/// The number of records is queried once in this many turns; the limit leaves room for many more
/// than they seal.
const TURNS_PER_CHECK: u32 = 64;

/// The kernel TLS support that a listener uses, and its outcomes. Shared by all workers.
#[derive(Debug)]
pub(crate) struct Offload {
    /// None if the kernel cannot be used.
    support: Option<SendingSupport>,
    counts: [AtomicU64; OffloadOutcome::ALL.len()],
}

impl Offload {
    /// Tests, if configured, whether the kernel can seal records of the `spoken` suites. Takes up
    /// to a few seconds.
    ///
    /// # Errors
    /// [`TlsError::Offload`] if it is required and the kernel cannot.
    pub(crate) fn of(
        mode: OffloadMode,
        spoken: &[SupportedCipherSuite],
    ) -> Result<Option<Arc<Offload>>, TlsError> {
        if mode == OffloadMode::Off {
            return Ok(None);
        }
        let tested = tested(mode, spoken);
        if let (OffloadMode::Require, Err(why)) = (mode, &tested) {
            return Err(TlsError::Offload { why: why.clone() });
        }
        if let Err(why) = &tested {
            tracing::warn!("kernel TLS is not used: {why}");
        }
        Ok(Some(Arc::new(Offload {
            support: tested.ok(),
            counts: Default::default(),
        })))
    }

    /// Creates one without a test of the kernel's support.
    #[cfg(test)]
    pub(crate) fn untested(support: SendingSupport) -> Arc<Offload> {
        Arc::new(Offload {
            support: Some(support),
            counts: Default::default(),
        })
    }

    /// Returns the number of each outcome.
    pub(crate) fn counts(&self) -> Vec<(OffloadOutcome, u64)> {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        OffloadOutcome::ALL.into_iter().zip(counts).collect()
    }

    /// Counts an outcome; one with an errno is logged the first time.
    pub(crate) fn count(&self, outcome: OffloadOutcome, errno: Option<Errno>) {
        let earlier = self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
        if let (0, Some(errno)) = (earlier, errno) {
            let (name, errno) = (outcome.name(), errno::Named(errno));
            tracing::warn!(
                "kernel TLS: {name} ({errno}); such connections are encrypted in user space"
            );
        }
    }
}

/// Returns the tested kernel support, which must include all `spoken` suites if it is required.
fn tested(mode: OffloadMode, spoken: &[SupportedCipherSuite]) -> Result<SendingSupport, String> {
    let started = Instant::now();
    let support = probe_sending().map_err(|error| error.to_string())?;
    let is_known = |suite| kernel_suite(suite).is_some_and(|suite| support.suites.contains(&suite));
    let missing = spoken.iter().filter(|suite| !is_known(**suite));
    let missing = missing.filter_map(|suite| suite.suite().as_str().map(iana_name));
    let missing: Vec<_> = missing.collect();
    if mode == OffloadMode::Require && !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!(
            "the kernel does not know {missing}, or the modules of the ciphers are not loaded"
        ));
    }
    self_test(&support).map_err(|why| format!("the self-test failed: {why}"))?;
    tracing::info!(
        "kernel TLS is used for sending: {} of 6 suites, a key {}, self-test passed in {} ms",
        support.suites.len(),
        match support.rekeying {
            Rekeying::Works => "can be replaced",
            Rekeying::Absent => "cannot be replaced",
        },
        started.elapsed().as_millis(),
    );
    Ok(support)
}

/// The sending key of a session, which may be handed to the kernel.
pub(crate) struct PendingOffload {
    offload: Arc<Offload>,
    /// None if the kernel does not know the suite, or cannot be used.
    key: Option<TrafficKey>,
}

impl PendingOffload {
    pub(crate) fn new(
        offload: &Arc<Offload>,
        suite: SupportedCipherSuite,
        secrets: &(u64, ConnectionTrafficSecrets),
    ) -> PendingOffload {
        let key = offload.support.as_ref().and_then(|support| {
            let key = traffic_key(suite, secrets)?;
            let suite = (key.version(), key.cipher());
            support.suites.contains(&suite).then_some(key)
        });
        PendingOffload {
            offload: Arc::clone(offload),
            key,
        }
    }

    /// Replaces the key after the session has changed it.
    pub(crate) fn renew(
        &mut self,
        suite: SupportedCipherSuite,
        secrets: &(u64, ConnectionTrafficSecrets),
    ) {
        self.key = self.key.take().and_then(|_| traffic_key(suite, secrets));
    }

    /// Returns the length of the next pending range, if it is worth a hand-over.
    pub(crate) fn is_worth(outbox: &Outbox) -> Option<u64> {
        let mut ranges = outbox.pieces().filter_map(|piece| match piece {
            Piece::Range(range) => Some(range.len),
            _ => None,
        });
        ranges.next().filter(|len| *len >= OFFLOADED_BYTES_MIN)
    }

    /// Returns whether a hand-over can be expected to succeed.
    pub(crate) fn is_likely(&self) -> bool {
        self.key.is_some()
    }

    /// Gives the key to the kernel, after the `number` records that were sealed with it, for
    /// another `bytes` at first; it may seal `records_max` in all. `None` if the kernel does not
    /// take it: the session continues as before.
    pub(crate) fn hand_over(
        self,
        socket: &PlainSocket,
        (number, bytes): (u64, u64),
        records_max: u64,
    ) -> Option<KernelSealing> {
        let PendingOffload { offload, key } = self;
        let refused = |outcome, errno| {
            offload.count(outcome, errno);
            None
        };
        let (Some(support), Some(mut key)) = (&offload.support, key) else {
            return match offload.support {
                None => refused(OffloadOutcome::Unavailable, None),
                Some(_) => refused(OffloadOutcome::UnknownSuite, None),
            };
        };
        let rekeying = match key.version() {
            Version::Tls12 => Rekeying::Absent,
            Version::Tls13 => support.rekeying,
        };
        let records = number.saturating_add(bytes / CONTENT_BYTES_MAX as u64);
        if rekeying == Rekeying::Absent && records >= records_max {
            return refused(OffloadOutcome::RecordLimit, None);
        }
        if let Err(errno) = kernel_tls::attach(socket) {
            return refused(OffloadOutcome::AttachRefused, Some(errno));
        }
        key.set_number(number);
        if let Err(errno) = kernel_tls::install(socket, Side::Sink, &key) {
            return refused(OffloadOutcome::KeyRefused, Some(errno));
        }
        offload.count(OffloadOutcome::Kernel, None);
        Some(KernelSealing {
            suite: (key.version(), key.cipher()),
            rekeying,
            waiting: VecDeque::new(),
            turns: 0,
            offload,
            state: SealingState::Intact,
        })
    }
}

/// The side that encrypts a session's data.
pub(crate) enum Sealing {
    UserSpace(Sealer),
    Kernel(KernelSealing),
}

/// The sending side of a session whose key the kernel has.
pub(crate) struct KernelSealing {
    suite: (Version, Cipher),
    rekeying: Rekeying,
    /// Records without data that have not been sent.
    waiting: VecDeque<ControlRecord>,
    turns: u32,
    offload: Arc<Offload>,
    state: SealingState,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SealingState {
    Intact,
    /// A new key was announced, and the kernel rejected it: nothing can be sent any more.
    KeyLost,
}

struct ControlRecord {
    kind: ContentType,
    content: Vec<u8>,
    /// The key that seals everything after it.
    next: Option<TrafficKey>,
}

impl KernelSealing {
    /// Appends a record without data.
    pub(crate) fn push(&mut self, kind: ContentType, content: &[u8]) {
        self.waiting.push_back(ControlRecord {
            kind,
            content: content.to_vec(),
            next: None,
        });
    }

    /// Returns whether records wait to be sent.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether the kernel can replace the key. If not, counts the end of the connection.
    pub(crate) fn admits_new_key(&self) -> bool {
        let admits = self.rekeying == Rekeying::Works;
        if !admits {
            self.offload.count(OffloadOutcome::KeySpent, None);
        }
        admits
    }

    /// Seals everything after the last appended record, which announces it, with a new key.
    pub(crate) fn renew(
        &mut self,
        suite: SupportedCipherSuite,
        secrets: &(u64, ConnectionTrafficSecrets),
    ) {
        match (self.waiting.back_mut(), traffic_key(suite, secrets)) {
            (Some(announced), Some(key)) => announced.next = Some(key),
            _ => self.state = SealingState::KeyLost,
        }
    }

    /// Returns whether the key has reached its limit of records. Counts a turn.
    pub(crate) fn is_spent(&mut self, socket: &PlainSocket, records_max: u64) -> bool {
        let is_due = self.turns.is_multiple_of(TURNS_PER_CHECK);
        self.turns = self.turns.wrapping_add(1);
        let (version, cipher) = self.suite;
        let records = || kernel_tls::sealed_records(socket, version, cipher);
        is_due && records().is_ok_and(|records| records >= records_max)
    }

    /// Sends waiting records, and installs the keys that they announce.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is full; after any other, nothing can be sent any more.
    pub(crate) fn send(&mut self, socket: &PlainSocket) -> io::Result<()> {
        while let Some(record) = self.waiting.front() {
            if self.state == SealingState::KeyLost {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let kind = u8::from(record.kind);
            socket.try_io(Interest::WRITABLE, || {
                Ok(kernel_tls::send_record(socket, kind, &record.content)?)
            })?;
            let sent = self.waiting.pop_front();
            if let Some(key) = sent.and_then(|record| record.next)
                && let Err(errno) = kernel_tls::install(socket, Side::Sink, &key)
            {
                self.state = SealingState::KeyLost;
                self.offload.count(OffloadOutcome::KeySpent, Some(errno));
            }
        }
        match self.state {
            SealingState::Intact => Ok(()),
            SealingState::KeyLost => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Converts a suite of rustls to the kernel's.
fn kernel_suite(suite: SupportedCipherSuite) -> Option<(Version, Cipher)> {
    let cipher = match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Cipher::Aes128Gcm,
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Cipher::Aes256Gcm,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Cipher::ChaCha20Poly1305,
        _ => return None,
    };
    Some((version_of(suite), cipher))
}

fn version_of(suite: SupportedCipherSuite) -> Version {
    match suite.tls13() {
        Some(_) => Version::Tls13,
        None => Version::Tls12,
    }
}

/// Converts a secret of rustls to the kernel's key.
fn traffic_key(
    suite: SupportedCipherSuite,
    (number, secrets): &(u64, ConnectionTrafficSecrets),
) -> Option<TrafficKey> {
    let version = version_of(suite);
    let (cipher, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Cipher::ChaCha20Poly1305, key, iv)
        }
        _ => return None,
    };
    let iv = iv.as_ref().try_into().ok()?;
    TrafficKey::new(version, cipher, key.as_ref(), iv, *number)
}
