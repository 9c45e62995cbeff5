//! The account of a transfer, measured from the counts that the kernel returned, for each of the
//! five mechanisms that move payload.
//!
//! ```text
//!  direct, one call                      relayed, two calls through a middle
//!  ┌────────┐  FICLONE          ┌──────┐  ┌────────┐ fill ┌────────┐ drain ┌──────┐
//!  │ source │ ────────────────▶ │ sink │  │ source │ ───▶ │ middle │ ────▶ │ sink │
//!  └────────┘  copy_file_range  └──────┘  └────────┘      └────────┘       └──────┘
//!              sendfile                                    a pipe: Splice
//!              splice, one side a pipe                     a buffer: ReadWrite
//! ```

use std::fmt;

use rustix::io::Errno;

use crate::vocabulary::errno;
use crate::vocabulary::limits::LISTED_REFUSALS_MAX;

/// A kernel operation that moves payload, in the order they are tried between files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Mechanism {
    /// `FICLONE`/`FICLONERANGE`: the files share their blocks; no byte is copied
    /// (ioctl_ficlonerange(2)).
    Clone,
    /// `copy_file_range(2)`: the file system copies, clones, or asks its server to.
    CopyRange,
    /// `sendfile(2)`: pages of the page cache are handed to the sink.
    Sendfile,
    /// `splice(2)`: pages travel through a pipe.
    Splice,
    /// `read(2)` and `write(2)` through a buffer: works everywhere, and is the only one whose
    /// payload crosses into user space.
    ReadWrite,
}

impl Mechanism {
    /// All mechanisms, in the order they are tried between files.
    pub const ALL: [Mechanism; 5] = [
        Self::Clone,
        Self::CopyRange,
        Self::Sendfile,
        Self::Splice,
        Self::ReadWrite,
    ];

    /// Returns the name used on command lines, in accounts and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::CopyRange => "copy_range",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::ReadWrite => "read_write",
        }
    }

    /// Returns how often a payload byte crosses between user space and kernel: 0 or 2 times.
    pub const fn crossings(self) -> u8 {
        match self {
            Self::ReadWrite => 2,
            _ => 0,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(word: &str) -> Result<Self, UnknownMechanism> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == word)
            .ok_or_else(|| UnknownMechanism(word.to_owned()))
    }
}

/// The error of parsing a word that is not a mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMechanism(String);

impl fmt::Display for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Mechanism::ALL.map(Mechanism::name).join(", ");
        write!(f, "unknown mechanism '{}'; expected one of {names}", self.0)
    }
}

impl std::error::Error for UnknownMechanism {}

/// The scope of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Scope {
    /// This kernel, or its seccomp filter, has no such call. Reports call this scope "host".
    #[cfg_attr(feature = "serde", serde(rename = "host"))]
    Kernel,
    /// This pair of devices: other files on them will be refused as well.
    Devices,
    /// These two descriptors, this once. The next file may succeed.
    Once,
}

/// The reason why a mechanism was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The call failed with this errno.
    Errno(Errno),
    /// The call returned 0 bytes although the source had more.
    SaidNothing,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => write!(f, "{}", errno::Named(*errno)),
            Self::SaidNothing => f.write_str("returned 0 bytes before the end"),
        }
    }
}

/// A refused mechanism, the reason, and its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Refusal {
    /// The refused mechanism.
    pub mechanism: Mechanism,
    /// The reason.
    pub cause: Cause,
    /// The scope of the refusal.
    pub scope: Scope,
    /// Bytes of the transfer done before the refusal.
    pub after: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            Scope::Kernel => "on this kernel",
            Scope::Devices => "between these devices",
            Scope::Once => "this once",
        };
        write!(
            f,
            "{} refused {scope} after {} bytes: {}",
            self.mechanism, self.after, self.cause
        )
    }
}

/// Bytes and calls of one mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MechanismUsage {
    /// Payload bytes that reached the sink.
    pub bytes: u64,
    /// System calls made to move payload, failed ones and both halves of a relay included.
    pub calls: u64,
}

/// Bytes, calls and refusals per mechanism, measured from returned counts, never predicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    usage: [MechanismUsage; 5],
    /// Bytes that are holes in the sink and were not moved. They were holes of the source, or zeros
    /// that became holes ([`Holes::Find`](crate::Holes::Find)).
    pub holes: u64,
    /// System calls that moved no payload: seeks, probes, lengths.
    pub asides: u64,
    /// The refusals, in order; equal ones are listed once.
    pub refusals: Vec<Refusal>,
    /// Refusals beyond those listed.
    pub refusals_unlisted: u64,
}

impl Account {
    /// Returns the usage of one mechanism.
    pub fn of(&self, mechanism: Mechanism) -> MechanismUsage {
        self.usage[mechanism.index()]
    }

    /// Returns the payload bytes that reached the sink, by any mechanism.
    pub fn bytes(&self) -> u64 {
        let bytes = self.usage.iter().map(|usage| usage.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the payload bytes that crossed into user space and back.
    pub fn crossed(&self) -> u64 {
        let crossing = Mechanism::ALL.iter().filter(|m| m.crossings() > 0);
        crossing.map(|m| self.of(*m).bytes).sum()
    }

    /// Adds the account of another transfer.
    pub fn add(&mut self, other: &Account) {
        for mechanism in Mechanism::ALL {
            let MechanismUsage { bytes, calls } = other.of(mechanism);
            self.record(mechanism, bytes, calls);
        }
        self.holes = self.holes.saturating_add(other.holes);
        self.asides += other.asides;
        self.refusals_unlisted += other.refusals_unlisted;
        for refusal in &other.refusals {
            self.refused(*refusal);
        }
    }

    /// Adds bytes and calls of one mechanism that were counted elsewhere.
    pub fn record(&mut self, mechanism: Mechanism, bytes: u64, calls: u64) {
        let usage = &mut self.usage[mechanism.index()];
        usage.bytes = usage.bytes.saturating_add(bytes);
        usage.calls = usage.calls.saturating_add(calls);
    }

    pub(crate) fn called(&mut self, mechanism: Mechanism) {
        self.record(mechanism, 0, 1);
    }

    pub(crate) fn moved(&mut self, mechanism: Mechanism, bytes: u64) {
        self.record(mechanism, bytes, 0);
    }

    pub(crate) fn refused(&mut self, refusal: Refusal) {
        let same = |known: &Refusal| {
            (known.mechanism, known.cause, known.scope)
                == (refusal.mechanism, refusal.cause, refusal.scope)
        };
        if self.refusals.iter().any(same) {
            return;
        }
        if self.refusals.len() < LISTED_REFUSALS_MAX {
            self.refusals.push(refusal);
        } else {
            self.refusals_unlisted += 1;
        }
    }
}

/// Formats `1 byte`, `2 bytes`.
fn counted(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {one}{plural}")
}

impl fmt::Display for Account {
    /// Formats one line, for people: `1048576 bytes by sendfile (1 call); clone refused …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for mechanism in Mechanism::ALL {
            let usage = self.of(mechanism);
            if usage.bytes > 0 {
                let (bytes, calls) = (counted(usage.bytes, "byte"), counted(usage.calls, "call"));
                parts.push(format!("{bytes} by {mechanism} ({calls})"));
            }
        }
        if self.holes > 0 {
            parts.push(format!("{} of holes", counted(self.holes, "byte")));
        }
        if parts.is_empty() {
            parts.push("nothing to move".to_owned());
        }
        parts.extend(self.refusals.iter().map(ToString::to_string));
        if self.refusals_unlisted > 0 {
            parts.push(format!("{} further refusals", self.refusals_unlisted));
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(feature = "serde")]
mod json {
    use serde::ser::{Serialize, SerializeStruct, Serializer};

    use super::{Account, Cause, Mechanism};
    use crate::vocabulary::errno;

    impl Serialize for Cause {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self {
                Cause::Errno(errno) => serializer.serialize_str(&errno::name(*errno)),
                Cause::SaidNothing => serializer.serialize_str("said_nothing"),
            }
        }
    }

    impl Serialize for Account {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut object = serializer.serialize_struct("Account", 11)?;
            object.serialize_field("bytes", &self.bytes())?;
            object.serialize_field("crossed", &self.crossed())?;
            for mechanism in Mechanism::ALL {
                object.serialize_field(mechanism.name(), &self.of(mechanism))?;
            }
            object.serialize_field("holes", &self.holes)?;
            object.serialize_field("asides", &self.asides)?;
            object.serialize_field("refusals", &self.refusals)?;
            object.serialize_field("refusals_unlisted", &self.refusals_unlisted)?;
            object.end()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(after: u64) -> Refusal {
        let cause = Cause::Errno(Errno::XDEV);
        Refusal {
            mechanism: Mechanism::Clone,
            cause,
            scope: Scope::Devices,
            after,
        }
    }

    #[test]
    fn accounts_add_up() {
        let mut sum = Account::default();
        let mut one = Account::default();
        one.called(Mechanism::Sendfile);
        one.moved(Mechanism::Sendfile, 7);
        one.called(Mechanism::ReadWrite);
        one.moved(Mechanism::ReadWrite, 5);
        one.refused(refusal(0));
        sum.add(&one);
        sum.add(&one);
        assert_eq!((sum.bytes(), sum.crossed()), (24, 10));
        assert_eq!(
            sum.of(Mechanism::Sendfile),
            MechanismUsage {
                bytes: 14,
                calls: 2
            }
        );
        assert_eq!(sum.refusals, [refusal(0)], "equal refusals are listed once");
    }

    #[test]
    fn mechanisms_are_read_by_their_names() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
            assert_eq!(mechanism.to_string(), mechanism.name());
            let crosses = mechanism == Mechanism::ReadWrite;
            assert_eq!(mechanism.crossings(), if crosses { 2 } else { 0 });
        }
        let unknown = "teleport"
            .parse::<Mechanism>()
            .expect_err("nobody has that");
        assert_eq!(
            unknown.to_string(),
            "unknown mechanism 'teleport'; expected one of clone, copy_range, sendfile, splice, \
             read_write"
        );
    }

    #[test]
    fn refusals_differ_by_mechanism_cause_and_scope() {
        let mut account = Account::default();
        let one = refusal(0);
        let mut others = [one; 4];
        others[0].mechanism = Mechanism::Splice;
        others[1].cause = Cause::SaidNothing;
        others[2].scope = Scope::Once;
        others[3].scope = Scope::Kernel;
        for refusal in [[one; 1].as_slice(), &others, &others].concat() {
            account.refused(refusal);
        }
        assert_eq!(account.refusals, [[one; 1].as_slice(), &others].concat());
        let told = account.to_string();
        for words in [
            "this once",
            "on this kernel",
            "returned 0 bytes before the end",
        ] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn an_account_shows_holes_and_adds_what_is_beside_the_payload() {
        let mut account = Account::default();
        (account.holes, account.asides, account.refusals_unlisted) = (4, 3, 1);
        account.add(&account.clone());
        assert_eq!(
            (account.holes, account.asides, account.refusals_unlisted),
            (8, 6, 2)
        );
        assert_eq!(account.to_string(), "8 bytes of holes; 2 further refusals");
        account.record(Mechanism::Splice, 5, 2);
        assert!(
            account
                .to_string()
                .starts_with("5 bytes by splice (2 calls); 8 bytes of holes")
        );
    }

    #[test]
    fn refusals_beyond_those_listed_are_shown_as_a_number() {
        let mut account = Account::default();
        for errno in (1..).take(LISTED_REFUSALS_MAX + 2) {
            account.refused(Refusal {
                cause: Cause::Errno(Errno::from_raw_os_error(errno)),
                ..refusal(0)
            });
        }
        assert!(account.to_string().ends_with("; 2 further refusals"));
    }

    #[test]
    fn an_account_reads_as_one_line() {
        let mut account = Account::default();
        assert_eq!(account.to_string(), "nothing to move");
        account.called(Mechanism::Sendfile);
        account.moved(Mechanism::Sendfile, 9);
        account.refused(refusal(3));
        assert_eq!(
            account.to_string(),
            "9 bytes by sendfile (1 call); clone refused between these devices after 3 bytes: \
             EXDEV (Invalid cross-device link)"
        );
    }
}
