//! Fetches one file into standard output, which cannot be continued.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use underpass::{Account, Mechanism};

use super::{get, list};
use crate::connect::link::{Link, block_on};
use crate::connect::options::ConnectOptions;
use crate::connect::peer::{Peer, Reply};
use crate::error::Error;
use crate::list::{OfferedItem, OfferedKind};
use crate::progress::TransferProgress;

/// Fetches the only file that is offered, and writes it to standard output as it arrives. A lost
/// connection ends it. Blocks.
///
/// # Errors
/// [`Error`]; a part of the file may have been written.
pub fn pull_to_stdout(
    options: &ConnectOptions,
    progress: &Arc<TransferProgress>,
) -> Result<(), Error> {
    block_on(async {
        let mut link = Link::open(options, progress).await?;
        let items = link.persist(list).await?;
        let item = match &items[..] {
            [item] if item.kind != OfferedKind::Tree => item,
            _ => return Err(Error::NotOneFile),
        };
        progress.total.store(item.size, Relaxed);
        fetch(link.peer().await?, item, progress).await?;
        progress.files.fetch_add(1, Relaxed);
        // Everything is there, whether or not the sender is.
        let _ = link.conclude().await;
        Ok(())
    })
}

async fn fetch(
    peer: &mut Peer,
    item: &OfferedItem,
    progress: &TransferProgress,
) -> Result<(), Error> {
    let reply = peer.fetch(&get(Some(&item.name), "")).await?;
    if reply.status != 200 {
        return Err(peer.refusal(reply).await);
    }
    let Reply { mut body, .. } = reply;
    let mut account = Account::default();
    loop {
        let content = body.content(&mut peer.connection).await?.to_vec();
        if content.is_empty() {
            progress.moved(&account);
            return Ok(());
        }
        let count = content.len();
        write(content).await?;
        body.consume(&mut peer.connection, count);
        account.record(Mechanism::ReadWrite, count as u64, 1);
        progress.add_bytes(count as u64);
    }
}

/// Writes to standard output, which may be a slow pipe.
async fn write(content: Vec<u8>) -> Result<(), Error> {
    let written = tokio::task::spawn_blocking(move || {
        let mut output = io::stdout().lock();
        output.write_all(&content).and_then(|()| output.flush())
    });
    let failed = |errno| Error::Local {
        doing: "writing to standard output",
        errno,
    };
    let written = written.await.map_err(|_| failed(Errno::IO))?;
    written.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}
