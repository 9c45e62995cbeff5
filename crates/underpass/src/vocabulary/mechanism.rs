//! The five ways the kernel offers to move payload.
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
    /// All of them, in the order they are tried between files.
    pub const ALL: [Mechanism; 5] = [
        Self::Clone,
        Self::CopyRange,
        Self::Sendfile,
        Self::Splice,
        Self::ReadWrite,
    ];

    /// The name used on command lines, in accounts and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::CopyRange => "copy_range",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::ReadWrite => "read_write",
        }
    }

    /// How often a payload byte crosses the line between user and kernel: 0 or 2 times.
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

/// The error of parsing a word that names no mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMechanism(String);

impl fmt::Display for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Mechanism::ALL.map(Mechanism::name).join(", ");
        write!(f, "unknown mechanism '{}'; expected one of {names}", self.0)
    }
}

impl std::error::Error for UnknownMechanism {}
