//! The repository: its pages, its toolchains, its features, its releases, its programs of others.

mod aarch64;
mod cargo;
mod combinations;
mod features;
mod fuzz_targets;
mod journey;
mod mounts;
mod oldest_rust;
mod peers;
mod release;
