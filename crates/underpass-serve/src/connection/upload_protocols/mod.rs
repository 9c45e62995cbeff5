//! The protocols of uploads, without a socket: fields of tus and of the IETF, forms, the addresses
//! of uploads, and which request may receive one.

pub(crate) mod fields;
pub(crate) mod ietf;
pub(crate) mod location;
pub(crate) mod multipart;
pub(crate) mod running;
pub(crate) mod tus;
