//! The mover on real file systems: tmpfs, ext4, XFS, Btrfs and overlay, each mounted for these
//! tests in a mount namespace that vanishes with the process.

mod copies;
mod faults;
mod large;
mod maps;
mod places;
mod quota;
mod sparse;
