//! Files that clients send: the folders that take them in, what a request asks of them, and what
//! it is told. What receives the bytes of a connection is in `connection/upload`.

pub(crate) mod areas;
pub(crate) mod fields;
pub(crate) mod ietf;
pub(crate) mod location;
pub(crate) mod multipart;
pub(crate) mod running;
pub(crate) mod tus;
