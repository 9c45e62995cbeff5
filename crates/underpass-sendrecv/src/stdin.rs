//! Standard input as a chunked body.

use std::io::{Read, stdin};
use std::num::NonZeroU64;
use std::sync::Arc;

use rustix::io::Errno;
use underpass::Piece;
use underpass_http::body::chunk_writer::{CHUNK_END, LAST_CHUNK, push_chunk_head};
use underpass_net::Connection;

use crate::error::Error;
use crate::progress::TransferProgress;

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Sends everything up to the end of standard input.
pub(crate) async fn send(
    connection: &mut Connection,
    progress: &TransferProgress,
) -> Result<(), Error> {
    loop {
        let read = tokio::task::spawn_blocking(|| {
            let mut buffer = vec![0; READ_BYTES];
            let read = stdin().lock().read(&mut buffer)?;
            buffer.truncate(read);
            Ok::<_, std::io::Error>(buffer)
        });
        let failed = |errno| Error::Local {
            doing: "reading standard input",
            errno,
        };
        let read = read.await.map_err(|_| failed(Errno::IO))?;
        let content =
            read.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let outbox = connection.outbox();
        let Some(length) = NonZeroU64::new(content.len() as u64) else {
            outbox.push(Piece::Bytes(LAST_CHUNK.to_vec()));
            return Ok(connection.flush().await?);
        };
        let mut head = Vec::new();
        push_chunk_head(&mut head, length);
        outbox.push(Piece::Bytes(head));
        outbox.push(Piece::Content(Arc::new(content)));
        outbox.push(Piece::Bytes(CHUNK_END.to_vec()));
        let flushed = connection.flush().await;
        progress.moved(&connection.outbox().take_account());
        flushed?;
        progress.add_bytes(length.get());
    }
}
