//! Requests and responses, seen by clients of plain HTTP.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod messages;
mod site;
#[path = "../support/mod.rs"]
mod support;

/// Far more than the buffers of both sockets hold.
const LARGE: usize = 24 << 20;

/// Returns incompressible bytes.
fn noise() -> Vec<u8> {
    let mut noise = vec![0; LARGE];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    noise
}
