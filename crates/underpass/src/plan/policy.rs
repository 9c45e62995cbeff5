//! What the caller allows.

use crate::vocabulary::mechanism::Mechanism;

/// What the caller allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Which mechanisms.
    pub choice: Choice,
    /// Whether files may share blocks.
    pub cloning: Cloning,
    /// What becomes of holes and zeros in a file.
    pub holes: Holes,
    /// Whether a socket or pipe may hold references to the source's pages.
    pub aliasing: Aliasing,
}

impl Policy {
    /// Only this mechanism: an error rather than a fallback.
    pub fn only(mechanism: Mechanism) -> Self {
        Self {
            choice: Choice::Only(mechanism),
            ..Self::default()
        }
    }

    /// The same with these mechanisms.
    #[must_use]
    pub fn choice(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }

    /// The same with files that share blocks, or do not.
    #[must_use]
    pub fn cloning(self, cloning: Cloning) -> Self {
        Self { cloning, ..self }
    }

    /// The same with holes that are kept, filled or found.
    #[must_use]
    pub fn holes(self, holes: Holes) -> Self {
        Self { holes, ..self }
    }

    /// The same with references to pages accepted or refused.
    #[must_use]
    pub fn aliasing(self, aliasing: Aliasing) -> Self {
        Self { aliasing, ..self }
    }

    /// Whether payload may travel by it at all.
    pub fn allows(&self, mechanism: Mechanism) -> bool {
        match self.choice {
            Choice::Auto => true,
            Choice::Only(only) => only == mechanism,
        }
    }
}

/// Which mechanisms may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best that works, falling back visibly.
    #[default]
    Auto,
    /// This one or an error.
    Only(Mechanism),
}

/// Whether a copy may share blocks with its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cloning {
    /// Where the file system can.
    #[default]
    Auto,
    /// It must, or it is an error.
    Always,
    /// It must not: `copy_file_range` is left out too, for it clones where it can.
    Never,
}

/// What becomes of a source's holes, and of zeros, where the sink is a regular file.
///
/// A sink can have holes only where it has nothing yet, and where its writes land at offsets. In
/// any other one nothing is skipped, since old bytes would remain, and `Find` means `Keep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// Holes of the source stay holes, zeros in its data stay data.
    #[default]
    Keep,
    /// Every byte is written, holes as zeros, and has room on the disk: `Clone` and `CopyRange`
    /// are left out, since they may keep holes, or share them.
    Fill,
    /// Holes stay holes, and runs of zeros in data become holes too. Only `ReadWrite` sees them,
    /// so that the others are left out.
    ///
    /// A run is one or more blocks at multiples of the sink's block size ([`Endpoint::block_bytes`]
    /// of the sink, at least 512 and at most [`BUFFER_BYTES`](crate::limits::BUFFER_BYTES)), of
    /// which the last may be shorter where the transfer ends, if it is known beforehand where that
    /// is ([`Owed::Exactly`](crate::Owed::Exactly)). Shorter runs are written, and so are runs that
    /// a short read splits.
    ///
    /// [`Endpoint::block_bytes`]: crate::Endpoint::block_bytes
    Find,
}

/// Whether bytes may leave as references to pages of the page cache.
///
/// Such bytes stay references until the peer has acknowledged them: a file that is overwritten *in
/// place* meanwhile changes what the peer receives. Replacing files by `rename` is always safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aliasing {
    /// Accepted: the source's range is not overwritten in place while it is under way.
    #[default]
    Accepted,
    /// Refused: towards sockets and pipes only copying mechanisms are used.
    Refused,
}
