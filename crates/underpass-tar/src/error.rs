//! Why a stream is refused.

use std::fmt;

/// The refusal of a stream: nothing after the place can be trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Error {
    /// Offset in the stream, in bytes, of the first header of the member.
    pub offset: u64,
    /// The path of the member as far as it is known; empty before that.
    pub path: Vec<u8>,
    /// What is wrong.
    pub fault: TarFault,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tar stream, byte {}", self.offset)?;
        if !self.path.is_empty() {
            let path = String::from_utf8_lossy(&self.path);
            write!(f, ", '{}'", path.escape_debug())?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// A fault of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TarFault {
    /// The sum of the header's bytes differs from its checksum.
    #[error("wrong checksum of a header: this is not tar, or it is damaged")]
    Checksum,
    /// The header's magic is neither of ustar nor of GNU, nor absent as in the format of Unix v7.
    #[error("unknown format of a header")]
    Magic,
    /// A field of a header is no number, negative, or too large.
    #[error("the header's field '{0}' is no valid number")]
    Field(&'static str),
    /// An extension is longer than [`EXTENSION_BYTES_MAX`](crate::limits::EXTENSION_BYTES_MAX).
    #[error("an extension is longer than 1 MiB")]
    ExtensionTooLong,
    /// A pax record has no valid length, lacks `=` or its line break, or passes the end.
    #[error("malformed pax record")]
    MalformedRecord,
    /// The value of a pax record is invalid.
    #[error("invalid value of the pax record '{0}'")]
    Record(&'static str),
    /// Two records of a member differ.
    #[error("two pax records '{0}' contradict each other")]
    Contradiction(&'static str),
    /// A global pax header sets what only a member can have.
    #[error("the pax record '{0}' applies to all members, which makes no sense")]
    Global(&'static str),
    /// Two extensions apply to one member, or an extension to none.
    #[error("an extension is repeated, mixed with another kind, or without a member")]
    StrayExtension,
    /// A path or target is empty, contains a zero byte, or ends with a slash and is no folder.
    #[error("invalid {0}")]
    Name(&'static str),
    /// A path or target is longer than [`PATH_BYTES_MAX`](crate::limits::PATH_BYTES_MAX).
    #[error("a {0} is longer than 16 KiB")]
    NameTooLong(&'static str),
    /// The sizes in the stream exceed 2⁶³ bytes.
    #[error("the sizes are larger than any stream")]
    SizeOverflow,
    /// A folder, link, device or FIFO announces content: implementations disagree whether there
    /// is any.
    #[error("content is announced for a member that has none")]
    UnexpectedContent,
    /// The map of a sparse file is malformed, out of order, or contradicts the sizes.
    #[error("invalid map of a sparse file")]
    SparseMap,
    /// More extents than [`EXTENTS_MAX`](crate::limits::EXTENTS_MAX).
    #[error("a sparse file has more than 262,144 extents")]
    TooManyExtents,
    /// More attributes than [`XATTRS_MAX`](crate::limits::XATTRS_MAX).
    #[error("a member has more than 4,096 extended attributes")]
    TooManyXattrs,
    /// One zero block, and then something else.
    #[error("a single zero block, where two end the archive")]
    LoneZeroBlock,
    /// Something other than zeros follows the end.
    #[error("the archive is followed by something else")]
    AfterEnd,
    /// The stream ends before its two zero blocks.
    #[error("the stream ends before the end of the archive")]
    Truncated,
    /// The first member of a continued stream is not the one that was cut.
    #[error("the member to be continued has changed")]
    Changed,
}
