//! The driver for Tokio's sockets.
//!
//! A call is made only while the socket is believed to be ready, and inside Tokio's `try_io`, so
//! that an EAGAIN and the readiness it contradicts are seen together. Files never become ready:
//! missing pages of a source file are read ahead on the runtime's blocking threads before the call,
//! so that one cold file does not stall other connections.
//!
//! | transfer | by |
//! |---|---|
//! | a range of a file to a socket | [`FileSender`], in one call or in turns, cancel safe |
//! | bytes of a socket into a file | [`FileReceiver`], the same |
//! | heads and ranges to a socket | [`Sender`] and [`Outbox`](crate::Outbox), in turns, the same |
//! | heads and ranges through a buffer of a caller that encrypts | [`gather`], [`await_disk`] |
//! | two sockets, both directions | [`relay`] |
//!
//! Files are regular files and block devices, sockets are stream sockets. Pipes, terminals and
//! other devices are rejected, since this driver does not wait for them: they would block the event
//! loop.

mod cork;
mod file;
mod relay;
mod residency;
mod sender;
mod stream;
mod transfer;

pub use file::{FileReceiver, FileSender};
pub use relay::relay;
#[doc(hidden)]
pub use residency::is_cached;
pub use sender::{Forecast, Residency, Sender, Turn, await_disk, gather, read_cached};
pub use stream::Stream;
