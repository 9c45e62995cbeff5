//! `underpass cp` between real file systems: full ones, those that share blocks, those that lie
//! over others, trees deeper and wider than descriptors and memory reach, and calls that lie.

#[path = "../support/copying.rs"]
mod copying;
#[path = "../support/sshfs.rs"]
mod sshfs;

mod blocks;
mod full;
mod ground;
mod mounts;
mod traced;
mod wide;
