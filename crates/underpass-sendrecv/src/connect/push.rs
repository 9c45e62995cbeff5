//! Sends items to a waiting receiver.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::Stat;
use rustix::io::Errno;
use underpass::{FileRange, Piece, SharedFile};
use underpass_http::body::framing::Framing;
use underpass_http::fields::content_range::ContentRange;
use underpass_http::fields::range::ByteRange;
use underpass_http::response::framing::ResponseTo;

use crate::connect::link::{Link, block_on};
use crate::connect::options::ConnectOptions;
use crate::connect::peer::{Ask, Peer, Reply, TEXT_BYTES_MAX};
use crate::error::Error;
use crate::offer::tree::{Attributes, Continued, TreeStream};
use crate::offer::walk::has_changed;
use crate::offer::{Item, ItemKind, open, window};
use crate::profile::{self, SourceStamp, TreePosition};
use crate::progress::{TransferEvent, TransferProgress};
use crate::{stdin, tree};

/// Bytes between two looks at the progress.
const SLICE_BYTES: u64 = 4 << 20;

/// Bodies from this size on are sent only after the receiver has agreed to them.
const INVITED_BYTES_MIN: u64 = 256 << 10;

/// Sends items, reconnecting as long as that helps. Blocks until everything is stored.
///
/// # Errors
/// [`Error`]; items before the one that failed are stored.
pub fn push(
    options: &ConnectOptions,
    items: &[Item],
    attributes: Attributes,
    progress: &Arc<TransferProgress>,
) -> Result<(), Error> {
    block_on(async {
        let mut link = Link::open(options, progress).await?;
        for (index, item) in items.iter().enumerate() {
            let remaining = items.len() - index - 1;
            match &item.kind {
                ItemKind::File(path) => {
                    let base = progress.bytes.load(Relaxed);
                    let pushed = link.persist(async |peer: &mut Peer| {
                        progress.bytes.store(base, Relaxed);
                        push_file(peer, (&item.name, path), remaining, progress).await
                    });
                    pushed.await?;
                }
                ItemKind::Stdin => {
                    let stream = (item.name.as_str(), remaining);
                    push_stdin(link.peer().await?, stream, progress).await?;
                }
                ItemKind::Tree(path) => {
                    let base = progress.bytes.load(Relaxed);
                    let pushed = link.persist(async |peer: &mut Peer| {
                        progress.bytes.store(base, Relaxed);
                        let tree = (item.name.as_str(), path.as_path());
                        push_tree(peer, tree, (attributes, remaining), progress).await
                    });
                    pushed.await?;
                }
            }
            progress.files.fetch_add(1, Relaxed);
        }
        // Everything is stored: the receiver ends without this, only later.
        let _ = link.conclude().await;
        Ok(())
    })
}

/// Sends a file, from where the receiver has it.
async fn push_file(
    peer: &mut Peer,
    (name, path): (&str, &Path),
    remaining: usize,
    progress: &TransferProgress,
) -> Result<(), Error> {
    let (file, stat) = open(path)?;
    let file = File::from(file);
    let source = SourceStamp::of(&stat);
    let base = progress.bytes.load(Relaxed);
    let Start::At { offset, fresh } = start_of(peer, name, &source).await? else {
        progress.add_bytes(source.size);
        return Ok(());
    };
    if offset > 0 {
        progress.record(TransferEvent::Continued {
            name: name.to_owned(),
            bytes: offset,
        });
        progress.add_bytes(offset);
    }
    let ask = put(name, (&file, path), (offset, &source), fresh, remaining)?;
    peer.ask(&ask)?;
    let asked = invited(peer, source.size - offset).await?;
    let reply = match asked {
        Some(reply) => reply,
        None => {
            let part = (offset, source.size);
            let sent = send_range(peer, (&file, &stat, path), part, progress).await;
            match sent {
                Ok(()) => peer.reply(ResponseTo::Other).await?,
                // The receiver may have said why before it stopped reading.
                Err(error) => match peer.last_words().await {
                    Some(reply) if reply.status >= 400 => reply,
                    _ => return Err(changed_or(error, &file, &stat, path)),
                },
            }
        }
    };
    stored(peer, reply, name).await?;
    // What is stored was acknowledged.
    progress.bytes.store(base + source.size, Relaxed);
    match has_changed(&file, &stat) {
        true => Err(Error::Changed {
            path: path.to_owned(),
        }),
        false => {
            progress.record(TransferEvent::Complete {
                name: name.to_owned(),
                bytes: source.size,
            });
            Ok(())
        }
    }
}

/// Returns the request that asks how much of an item is there.
fn status_of<'n>(name: &'n str, suffix: &'static str) -> Ask<'n> {
    Ask {
        method: "HEAD",
        name: Some(name),
        suffix,
        framing: Framing::Empty,
        fields: Vec::new(),
    }
}

/// The start of a file that the receiver may have a part of.
enum Start {
    /// It has all of it.
    Complete,
    At {
        offset: u64,
        fresh: bool,
    },
}

async fn start_of(peer: &mut Peer, name: &str, source: &SourceStamp) -> Result<Start, Error> {
    let reply = peer.fetch(&status_of(name, "")).await?;
    let of = reply.field(profile::SOURCE).and_then(SourceStamp::parse);
    let offset = reply.number(profile::OFFSET).unwrap_or(0);
    match reply.status {
        200 if of == Some(*source) => Ok(Start::Complete),
        204 if of == Some(*source) && offset <= source.size => Ok(Start::At {
            offset,
            fresh: false,
        }),
        200 | 204 => Ok(Start::At {
            offset: 0,
            fresh: true,
        }),
        404 if peer.is_spent() => Err(Error::WrongSecret),
        404 => Ok(Start::At {
            offset: 0,
            fresh: false,
        }),
        _ => Err(peer.refusal(reply).await),
    }
}

/// Returns the request that brings a file from an offset on.
fn put<'r>(
    name: &'r str,
    (file, path): (&File, &Path),
    (offset, source): (u64, &SourceStamp),
    fresh: bool,
    remaining: usize,
) -> Result<Ask<'r>, Error> {
    let mut fields = vec![
        (profile::SOURCE, source.to_string()),
        (profile::REMAINING, remaining.to_string()),
    ];
    let length = source.size - offset;
    if offset > 0 && length > 0 {
        let mut value = Vec::new();
        let range = ByteRange {
            first: offset,
            length,
        };
        let size = Some(source.size);
        ContentRange::Part { range, size }.push_to(&mut value);
        fields.push((
            "Content-Range",
            String::from_utf8_lossy(&value).into_owned(),
        ));
    }
    if offset > 0 {
        let window = window(file, offset).map_err(|error| Error::Source {
            path: path.to_owned(),
            doing: "reading the end of what was sent",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        fields.push((profile::WINDOW, window.to_string()));
        fields.push((profile::OFFSET, offset.to_string()));
    }
    if fresh {
        fields.push((profile::FRESH, "?1".to_owned()));
    }
    if length >= INVITED_BYTES_MIN {
        fields.push(("Expect", "100-continue".to_owned()));
    }
    Ok(Ask {
        method: "PUT",
        name: Some(name),
        suffix: "",
        framing: match length {
            0 => Framing::Empty,
            length => Framing::Length(length),
        },
        fields,
    })
}

/// Sends the head of a request whose body has `length` bytes, and returns the response if the
/// receiver does not want the body.
async fn invited(peer: &mut Peer, length: u64) -> Result<Option<Reply>, Error> {
    if length < INVITED_BYTES_MIN {
        return Ok(None);
    }
    peer.connection.flush().await?;
    peer.invitation().await
}

/// Sends a tree, from where the receiver has it.
async fn push_tree(
    peer: &mut Peer,
    (name, path): (&str, &Path),
    (attributes, remaining): (Attributes, usize),
    progress: &TransferProgress,
) -> Result<(), Error> {
    let reply = peer.fetch(&status_of(name, "/")).await?;
    let before = progress.bytes.load(Relaxed);
    let known = reply.field(profile::POSITION).and_then(TreePosition::parse);
    let mut stream = TreeStream::of(path, attributes, None)?;
    let mut fields = vec![
        (profile::REMAINING, remaining.to_string()),
        ("Content-Type", profile::TAR.to_owned()),
        ("Expect", "100-continue".to_owned()),
    ];
    match (reply.status, known) {
        (200 | 204, Some(position)) => match stream.seek(&position)? {
            Continued::At(_) if reply.status == 200 => return Ok(()),
            Continued::At(position) => {
                fields.push((profile::POSITION, position.to_string()));
                progress.record(TransferEvent::Continued {
                    name: name.to_owned(),
                    bytes: stream.skipped(),
                });
            }
            // Everything is sent again, by a stream from the start.
            Continued::Changed => stream = TreeStream::of(path, attributes, None)?,
        },
        (404, _) if peer.is_spent() => return Err(Error::WrongSecret),
        (404, _) => {}
        _ => return Err(peer.refusal(reply).await),
    }
    peer.ask(&Ask {
        method: "PUT",
        name: Some(name),
        suffix: "/",
        framing: Framing::Chunked,
        fields,
    })?;
    peer.connection.flush().await?;
    let reply = match peer.invitation().await? {
        Some(reply) => reply,
        None => match tree::send(&mut stream, &mut peer.connection, progress).await {
            Ok(sent) => {
                let reply = peer.reply(ResponseTo::Other).await?;
                // The response acknowledges everything.
                progress.bytes.store(before + sent, Relaxed);
                reply
            }
            Err(error) => match peer.last_words().await {
                Some(reply) if reply.status >= 400 => reply,
                _ => return Err(error),
            },
        },
    };
    stored(peer, reply, name).await?;
    for warning in stream.warnings() {
        progress.record(TransferEvent::Warning(warning));
    }
    progress.record(TransferEvent::Complete {
        name: name.to_owned(),
        bytes: progress.bytes.load(Relaxed) - before,
    });
    stream.outcome()
}

/// Sends a range of a file, and shows how much of it the peer has acknowledged.
async fn send_range(
    peer: &mut Peer,
    (file, stat, path): (&File, &Stat, &Path),
    (from, until): (u64, u64),
    progress: &TransferProgress,
) -> Result<(), Error> {
    let connection = &mut peer.connection;
    let duplicate = file.try_clone().map_err(|error| Error::Local {
        doing: "duplicating a descriptor",
        errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
    })?;
    let shared = SharedFile::new(OwnedFd::from(duplicate));
    let (base, before) = (progress.bytes.load(Relaxed), connection.acknowledged());
    let mut at = from;
    loop {
        let len = SLICE_BYTES.min(until - at);
        // Before its last bytes the receiver stores nothing.
        if at + len == until && has_changed(file, stat) {
            return Err(Error::Changed {
                path: path.to_owned(),
            });
        }
        if len > 0 {
            connection.outbox().push(Piece::Range(FileRange {
                file: Arc::clone(&shared),
                offset: at,
                len,
            }));
        }
        let flushed = connection.flush().await;
        progress.moved(&connection.outbox().take_account());
        flushed?;
        at += len;
        let acknowledged = connection.acknowledged().saturating_sub(before);
        progress
            .bytes
            .store(base + acknowledged.min(at - from), Relaxed);
        if at == until {
            return Ok(());
        }
    }
}

/// Checks the response to a complete body.
async fn stored(peer: &mut Peer, reply: Reply, name: &str) -> Result<(), Error> {
    match reply.status {
        200 | 201 | 204 => peer.text(reply, TEXT_BYTES_MAX).await.map(drop),
        // Its state has changed since it was asked.
        409 if reply.field(profile::OFFSET).is_some()
            || reply.field(profile::POSITION).is_some() =>
        {
            let error = peer.refusal(reply).await;
            Err(Error::Lost {
                why: format!("{name}: {error}"),
            })
        }
        _ => Err(peer.refusal(reply).await),
    }
}

/// A file that was truncated while it was sent is reported as changed.
fn changed_or(error: Error, file: &File, stat: &Stat, path: &Path) -> Error {
    match has_changed(file, stat) {
        true => Error::Changed {
            path: path.to_owned(),
        },
        false => error,
    }
}

/// Sends standard input as a chunked body. It cannot be sent twice: a lost connection ends it.
async fn push_stdin(
    peer: &mut Peer,
    (name, remaining): (&str, usize),
    progress: &TransferProgress,
) -> Result<(), Error> {
    peer.ask(&Ask {
        method: "PUT",
        name: Some(name),
        suffix: "",
        framing: Framing::Chunked,
        fields: vec![
            (profile::REMAINING, remaining.to_string()),
            ("Expect", "100-continue".to_owned()),
        ],
    })?;
    peer.connection.flush().await?;
    let reply = match peer.invitation().await? {
        Some(reply) => reply,
        None => match stdin::send(&mut peer.connection, progress).await {
            Ok(()) => peer.reply(ResponseTo::Other).await?,
            Err(error) => match peer.last_words().await {
                Some(reply) if reply.status >= 400 => reply,
                _ => return Err(error),
            },
        },
    };
    stored(peer, reply, name).await
}
