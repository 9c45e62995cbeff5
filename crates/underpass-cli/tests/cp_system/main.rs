//! `underpass cp` between real file systems: full ones, ones that share blocks, overlays, trees
//! deeper and wider than descriptors and memory allow, calls that fail or return wrong results, an
//! attacker, and GNU cp, whose results are compared.

#[path = "../support/copying.rs"]
mod copying;
#[path = "../support/mod.rs"]
mod support;

mod attack;
mod blocks;
mod faults;
mod full;
mod gnu;
mod ground;
mod mounts;
mod sshfs;
mod traced;
mod valgrind;
mod wide;
