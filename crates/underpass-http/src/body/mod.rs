//! Bodies: framing, and the chunked coding.

pub mod chunk_writer;
pub mod chunked;
pub mod framing;
