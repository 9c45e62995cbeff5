//! The reasons to leave a mechanism out of a plan.

use std::fmt;

use rustix::io::Errno;

use crate::vocabulary::account::Scope;
use crate::vocabulary::endpoint::Side;
use crate::vocabulary::errno;

/// The reason why a mechanism is left out of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It works between regular files only.
    NotRegular(Side),
    /// sendfile reads from an offset; pipes and sockets have none.
    NotSeekable,
    /// The sink was opened with `O_APPEND`, which in-kernel copies refuse.
    SinkAppends,
    /// Bytes are encrypted or decrypted in user space.
    Sealed,
    /// A regular file of size 0 may have content (procfs); in-kernel copies would move nothing.
    SizeUnknown,
    /// Some device drivers support it, some do not, and some (terminals) do it badly; reading and
    /// writing always works.
    DriverDecides(Side),
    /// Ranges are cloned in whole blocks, and whole files into empty ones.
    Unaligned,
    /// The caller asked for no shared blocks, and this call may share them.
    MayShareBlocks,
    /// The caller asked for shared blocks or nothing.
    CopiesBytes,
    /// The caller asked for every byte to be written, and this call may keep holes.
    MayKeepHoles,
    /// The caller asked for zeros to become holes, and this call cannot find them.
    SeesNoZeros,
    /// The caller asked for another mechanism only.
    NotAsked,
    /// Source and sink are overlapping ranges of one file: written bytes would be read again.
    Overlaps,
    /// The caller accepts no references to the source's pages in transit.
    Aliases,
    /// It was refused before, with a scope that includes this pair.
    Refused(Scope, Errno),
}

impl Reason {
    /// Returns whether a policy that names the mechanism overrides it: the kernel may do it, it is
    /// only not the best choice.
    pub(super) const fn is_advice(self) -> bool {
        matches!(self, Self::SizeUnknown | Self::DriverDecides(_))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegular(side) => write!(f, "the {side} is not a regular file"),
            Self::NotSeekable => f.write_str("the source is not seekable"),
            Self::SinkAppends => f.write_str("the sink is open for appending"),
            Self::Sealed => f.write_str("TLS is in user space"),
            Self::SizeUnknown => {
                f.write_str("the source reports size 0, so its content has to be read")
            }
            Self::DriverDecides(side) => write!(f, "depends on the device driver of the {side}"),
            Self::Unaligned => {
                f.write_str("the range is not in whole blocks, or the sink is not empty")
            }
            Self::MayShareBlocks => f.write_str("may share blocks"),
            Self::CopiesBytes => f.write_str("shares no blocks"),
            Self::MayKeepHoles => f.write_str("may keep holes"),
            Self::SeesNoZeros => f.write_str("cannot find zeros"),
            Self::NotAsked => f.write_str("another mechanism was requested"),
            Self::Overlaps => f.write_str("the ranges overlap in the same file"),
            Self::Aliases => f.write_str("would send references to the source's pages"),
            Self::Refused(Scope::Kernel, errno) => {
                write!(f, "not available on this kernel: {}", errno::Named(*errno))
            }
            Self::Refused(_, errno) => {
                write!(
                    f,
                    "refused before between these devices: {}",
                    errno::Named(*errno)
                )
            }
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
