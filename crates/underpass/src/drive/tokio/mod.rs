//! The driver for Tokio's sockets.
//!
//! A call is made only while the socket is believed to be ready, and inside Tokio's `try_io`, so
//! that an EAGAIN and the readiness it contradicts are seen together. Files never become ready:
//! whatever of a source file is not in the page cache is read ahead on the runtime's blocking
//! threads before the call, so that one cold file does not stall the connections beside it.
//!
//! | what moves | all at once | in turns, cancel safe |
//! |---|---|---|
//! | a range of a file to a socket | [`send_file`] | [`FileSender`] |
//! | bytes of a socket into a file | [`recv_file`] | [`FileReceiver`] |
//! | heads and ranges to a socket | | [`Sender`] with an [`Outbox`](crate::Outbox) |
//! | two sockets, both directions | [`relay_streams`] | |

mod file;
mod relay;
mod residency;
mod sender;
mod stream;

pub use file::{FileReceiver, FileSender, recv_file, send_file};
pub use relay::relay_streams;
pub use sender::{Forecast, Residency, Sender, Turn, read_cached};
pub use stream::Stream;
