//! `underpass cp` between real file systems: full ones, ones that share blocks, overlays, trees
//! deeper and wider than descriptors and memory allow, and calls that return wrong results.

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
