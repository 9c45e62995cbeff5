//! Fetches the items that a waiting sender offers.

mod file;
mod stdout;
mod stream;
mod tree;

pub use stdout::pull_to_stdout;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use underpass_http::body::framing::Framing;
use underpass_receive::{Area, Error as ReceiveFault, Overwrite, RelativePath};

use crate::completed::CompletedItems;
use crate::connect::link::{Link, block_on};
use crate::connect::options::ConnectOptions;
use crate::connect::peer::{Ask, Peer};
use crate::error::Error;
use crate::list::{OfferedItem, OfferedKind};
use crate::progress::{TransferEvent, TransferProgress};
use crate::target::ReceiveOptions;

/// Bytes of the list of items.
const LIST_BYTES_MAX: usize = 1 << 20;

/// An item to fetch, and its place.
struct ItemFetch<'i> {
    item: &'i OfferedItem,
    path: RelativePath,
    area: &'i Area,
    options: &'i ReceiveOptions,
    progress: &'i TransferProgress,
}

/// Fetches everything that is offered, reconnecting as long as that helps. Blocks until it is
/// stored.
///
/// # Errors
/// [`Error`]; items before the one that failed are stored.
pub fn pull(
    options: &ConnectOptions,
    target: &ReceiveOptions,
    progress: &Arc<TransferProgress>,
) -> Result<(), Error> {
    let area = target.open()?;
    block_on(async {
        let complete_items = CompletedItems::open(&target.state);
        let mut link = match Link::open(options, progress).await {
            // Only the end of this process was missing.
            Err(Error::Unreachable { .. }) if complete_items.are_all() => {
                complete_items.forget();
                return Ok(());
            }
            link => link?,
        };
        let items = link.persist(list).await?;
        let total = items.iter().map(|item| item.size).sum();
        progress.total.store(total, Relaxed);
        for item in &items {
            let fetched = ItemFetch::new(item, &area, target, progress)?;
            if complete_items.get(&fetched.key()).is_some() && area.stat(&fetched.path).is_ok() {
                progress.add_bytes(item.size);
                continue;
            }
            let base = progress.bytes.load(Relaxed);
            let pulled = link.persist(async |peer: &mut Peer| {
                progress.bytes.store(base, Relaxed);
                fetched.check_place()?;
                match item.kind {
                    OfferedKind::File => fetched.pull_file(peer).await,
                    OfferedKind::Tree => fetched.pull_tree(peer).await,
                    OfferedKind::Stream => fetched.pull_stream(peer).await,
                }
            });
            pulled.await?;
            complete_items.add(fetched.key(), item.size.to_string());
            progress.files.fetch_add(1, Relaxed);
        }
        complete_items.mark_all();
        match link.conclude().await {
            // A sender that is gone is no reason to fail.
            Err(error) if error.is_passing() => {
                let text =
                    "everything is stored; the other side does not know it, and may still wait";
                progress.record(TransferEvent::Warning(text.to_owned()));
            }
            concluded => concluded?,
        }
        complete_items.forget();
        Ok(())
    })
}

/// Asks for the list of items.
async fn list(peer: &mut Peer) -> Result<Vec<OfferedItem>, Error> {
    let reply = peer.fetch(&get(None, "")).await?;
    if reply.status != 200 {
        return Err(peer.refusal(reply).await);
    }
    let text = peer.text(reply, LIST_BYTES_MAX).await?;
    let items: Option<Vec<_>> = text.lines().map(OfferedItem::parse).collect();
    items.ok_or_else(|| Error::Refused {
        status: 200,
        why: "its list of items is malformed".to_owned(),
    })
}

fn get<'n>(name: Option<&'n str>, suffix: &'static str) -> Ask<'n> {
    Ask {
        method: "GET",
        name,
        suffix,
        framing: Framing::Empty,
        fields: Vec::new(),
    }
}

impl<'i> ItemFetch<'i> {
    fn new(
        item: &'i OfferedItem,
        area: &'i Area,
        options: &'i ReceiveOptions,
        progress: &'i TransferProgress,
    ) -> Result<ItemFetch<'i>, Error> {
        let path = options
            .path_of(&item.name)
            .map_err(|source| Error::Target {
                path: item.name.clone(),
                source,
            })?;
        Ok(ItemFetch {
            item,
            path,
            area,
            options,
            progress,
        })
    }

    /// Returns its name among complete items.
    fn key(&self) -> String {
        match self.item.kind {
            OfferedKind::Tree => format!("{}/", self.item.name),
            OfferedKind::File | OfferedKind::Stream => self.item.name.clone(),
        }
    }

    fn failed(&self, source: ReceiveFault) -> Error {
        Error::Target {
            path: self.item.name.clone(),
            source,
        }
    }

    /// Refuses an item whose name is taken.
    fn check_place(&self) -> Result<(), Error> {
        let is_kept = self.options.overwrite() == Overwrite::Refused;
        match is_kept && self.area.stat(&self.path).is_ok() {
            true => Err(self.failed(ReceiveFault::Exists)),
            false => Ok(()),
        }
    }

    /// The error for a part of something that has changed since.
    fn changed(&self) -> Error {
        Error::Lost {
            why: format!("{} has changed since a part of it was sent", self.item.name),
        }
    }
}
