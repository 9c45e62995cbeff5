//! A tree between a connection and a folder, in both directions.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use underpass::{Account, Piece};
use underpass_http::body::chunk_writer::{CHUNK_END, LAST_CHUNK, push_chunk_head};
use underpass_net::Connection;
use underpass_receive::{
    Area, Error as ReceiveFault, HiddenNames, Overwrite, PartialTree, RelativePath, TreeError,
    TreeInput, TreeMerge, TreeSettings, TreeSummary, UploadRecord,
};

use crate::body::{Body, BodyReadError};
use crate::error::Error;
use crate::offer::tree::TreeStream;
use crate::profile::TreePosition;
use crate::progress::TransferProgress;
use crate::target::{Existing, ReceiveOptions, UNFINISHED_LIFETIME, UNFINISHED_MAX};

/// Contents of at least this size bypass user space; smaller ones arrive with their headers.
const SPLICED_BYTES_MIN: u64 = 64 << 10;

/// Why a tree was not received to its end.
#[derive(Debug)]
pub(crate) enum TreeStop {
    Body(BodyReadError),
    Tree(TreeError),
    /// The body has ended before the tree.
    Short,
}

impl From<BodyReadError> for TreeStop {
    fn from(error: BodyReadError) -> TreeStop {
        TreeStop::Body(error)
    }
}

impl From<TreeError> for TreeStop {
    fn from(error: TreeError) -> TreeStop {
        TreeStop::Tree(error)
    }
}

/// Receives a tree from a body. What arrived before an error is in the tree.
pub(crate) async fn receive(
    body: &mut Body,
    connection: &mut Connection,
    tree: &mut PartialTree,
    progress: &TransferProgress,
) -> Result<(), TreeStop> {
    let mut account = Account::default();
    let base = progress.bytes.load(Relaxed);
    let (_, before) = tree.progress();
    let received = loop {
        let (_, now) = tree.progress();
        progress.bytes.store(base + (now - before), Relaxed);
        match next(body, connection, tree, &mut account).await {
            Ok(More::Yes) => {}
            Ok(More::No) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    progress.moved(&account);
    received
}

enum More {
    Yes,
    No,
}

async fn next(
    body: &mut Body,
    connection: &mut Connection,
    tree: &mut PartialTree,
    account: &mut Account,
) -> Result<More, TreeStop> {
    if let TreeInput::Content { file, offset, len } = tree.wants()
        && len >= SPLICED_BYTES_MIN
    {
        let mut moved = Account::default();
        let place = (offset, len);
        let result = body
            .move_to_file(connection, &*file, place, &mut moved)
            .await;
        account.add(&moved);
        tree.moved(moved.bytes())?;
        return match result? {
            0 => Err(TreeStop::Short),
            _ => Ok(More::Yes),
        };
    }
    let content = body.content(connection).await?;
    let count = content.len();
    if count == 0 {
        return match tree.wants() {
            TreeInput::End => Ok(More::No),
            _ => Err(TreeStop::Short),
        };
    }
    tree.push(content)?;
    account.record(underpass::Mechanism::ReadWrite, count as u64, 1);
    body.consume(connection, count);
    Ok(More::Yes)
}

/// Sends the rest of a tree as a chunked body, and returns its length.
pub(crate) async fn send(
    stream: &mut TreeStream,
    connection: &mut Connection,
    progress: &TransferProgress,
) -> Result<u64, Error> {
    let (base, before) = (progress.bytes.load(Relaxed), connection.acknowledged());
    let mut sent = 0;
    loop {
        let batch = stream.batch()?;
        let outbox = connection.outbox();
        match batch {
            Some((pieces, bytes)) => {
                let Some(length) = NonZeroU64::new(bytes) else {
                    continue;
                };
                let mut head = Vec::new();
                push_chunk_head(&mut head, length);
                outbox.push(Piece::Bytes(head));
                for piece in pieces {
                    outbox.push(piece);
                }
                outbox.push(Piece::Bytes(CHUNK_END.to_vec()));
                sent += bytes;
            }
            None => {
                outbox.push(Piece::Bytes(LAST_CHUNK.to_vec()));
                let flushed = connection.flush().await;
                progress.moved(&connection.outbox().take_account());
                return Ok(flushed.map(|()| sent)?);
            }
        }
        let flushed = connection.flush().await;
        progress.moved(&connection.outbox().take_account());
        flushed?;
        let acknowledged = connection.acknowledged().saturating_sub(before);
        progress.bytes.store(base + acknowledged.min(sent), Relaxed);
    }
}

/// Returns the name of a tree in records, which no file has.
fn record_name(target: &RelativePath) -> String {
    format!("{}/", target.as_str())
}

/// Looks for an unfinished tree of this name, and returns its position.
pub(crate) fn present(
    area: &Area,
    target: &RelativePath,
    settings: TreeSettings,
) -> Result<Option<(PartialTree, TreePosition)>, ReceiveFault> {
    let name = record_name(target);
    for (id, record) in area.records()? {
        if record.target.as_deref() != Some(&name) {
            continue;
        }
        if let Ok(tree) = area.resume_tree(&id, SystemTime::now(), settings) {
            let position = position(&tree);
            return Ok(Some((tree, position)));
        }
    }
    Ok(None)
}

/// Returns what of a tree need not be sent again.
pub(crate) fn position(tree: &PartialTree) -> TreePosition {
    let checkpoint = tree.record().and_then(UploadRecord::tree);
    checkpoint.map_or_else(TreePosition::default, |checkpoint| TreePosition {
        members: checkpoint.members,
        chain: checkpoint.chain,
        cut: checkpoint.cut.as_ref().map(|cut| (cut.chain, cut.offset)),
    })
}

/// Returns a new tree that can be continued.
pub(crate) fn create(
    area: &Area,
    target: &RelativePath,
    settings: TreeSettings,
) -> Result<PartialTree, ReceiveFault> {
    let record = UploadRecord::new(Some(&record_name(target)), None, UNFINISHED_LIFETIME);
    area.create_tree(record, UNFINISHED_MAX, settings)
}

/// Gives a complete tree its name, or its members theirs where it has none.
pub(crate) fn commit(
    tree: PartialTree,
    target: Option<&RelativePath>,
    existing: Existing,
) -> Result<TreeSummary, TreeError> {
    let overwrite = match existing {
        Existing::Kept => Overwrite::Refused,
        Existing::Replaced => Overwrite::Allowed,
    };
    match (target, existing) {
        (None, _) => tree.commit_into(None, TreeMerge::Folders(overwrite)),
        (Some(target), Existing::Kept) => tree.commit(target, TreeMerge::Refused),
        (Some(target), Existing::Replaced) => tree.commit(target, TreeMerge::Folders(overwrite)),
    }
}

/// Returns what a receiver lets trees do. Only names at the top of the receiver's folder may not be
/// hidden, which a tree with a name of its own has none of.
pub(crate) fn settings(options: &ReceiveOptions, target: Option<&RelativePath>) -> TreeSettings {
    TreeSettings {
        hidden: match target {
            Some(_) => HiddenNames::Allowed,
            None => options.hidden,
        },
        keep_free: options.keep_free,
        sync: underpass_receive::SyncPolicy::End,
        ..TreeSettings::default()
    }
}
