//! Bodies: framing, and the chunked coding.

pub mod chunked;
pub mod framing;
