//! What a stream may make the reader keep in memory.

/// Longest path of a member, and longest target of a link, in bytes. Linux resolves 4,095 at once;
/// paths put together from open folders may be longer.
pub const PATH_BYTES_MAX: usize = 16 << 10;

/// Longest extension of a member: the pax records before a header, or a long name. Linux keeps up
/// to 64 KiB of names of extended attributes and 64 KiB for each value; most file systems keep
/// less than that together.
pub const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// Most extended attributes of a member. Their names fill at most 64 KiB.
pub const XATTRS_MAX: usize = 4096;

/// Most extents of a sparse file: 4 MiB of memory. GNU tar writes an extent for each run of blocks
/// with content.
pub const EXTENTS_MAX: usize = 1 << 18;

/// Longest decimal number of a sparse map or a pax record, in digits.
pub(crate) const DIGITS_MAX: usize = 20;
