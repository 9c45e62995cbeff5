//! The role of a waiting sender.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use underpass::{FileRange, Piece, SharedFile};
use underpass_http::fields::content_range::ContentRange;
use underpass_http::fields::range::{ByteRange, RangeSelection, select};
use underpass_http::path::PathForm;
use underpass_http::status::Status;
use underpass_net::Connection;

use crate::error::Error;
use crate::list::{OfferedItem, OfferedKind};
use crate::listen::exchange::{RoleContext, Then, respond};
use crate::listen::request::{Request, ShortResponse, Verb};
use crate::offer::tree::{Attributes, Continued, TreeStream};
use crate::offer::{Item, ItemKind, open, window};
use crate::profile::{self, SourceStamp, TreePosition, WindowHash};
use crate::progress::TransferEvent;
use crate::{stdin, tree};

/// The state of the worker of a sender.
pub(super) struct OfferRole {
    items: Vec<Item>,
    attributes: Attributes,
    stdin_is_taken: Cell<bool>,
}

impl OfferRole {
    pub(super) fn new(items: Vec<Item>, attributes: Attributes) -> OfferRole {
        OfferRole {
            items,
            attributes,
            stdin_is_taken: Cell::new(false),
        }
    }

    pub(super) async fn answer(
        &self,
        worker: &RoleContext,
        request: &Request,
        names: &[String],
        connection: &mut Connection,
    ) -> Then {
        let item = names.first().and_then(|name| {
            let mut items = self.items.iter();
            items.find(|item| item.name == *name)
        });
        let response = match (request.verb, names, item) {
            (Verb::Get | Verb::Head, [], _) => ShortResponse::new(Status::Ok, self.list()),
            // The receiver has stored everything.
            (Verb::Post, ..) if request.is_completion(names) => {
                let response = ShortResponse::new(Status::NoContent, "");
                let then = respond(response, request, connection, Then::KeepAlive).await;
                worker.completed();
                return then;
            }
            (Verb::Get | Verb::Head, [_], Some(item)) => match (&item.kind, request.form) {
                (ItemKind::File(path), PathForm::File) => {
                    return self
                        .send_file(worker, request, (item, path), connection)
                        .await;
                }
                (ItemKind::Tree(path), PathForm::Folder) => {
                    return self
                        .send_tree(worker, request, (item, path), connection)
                        .await;
                }
                (ItemKind::Stdin, PathForm::File) if request.verb == Verb::Get => {
                    return self.send_stdin(worker, request, connection).await;
                }
                _ => ShortResponse::new(Status::NotFound, "no such item"),
            },
            (Verb::Other | Verb::Put, _, _) => {
                ShortResponse::new(Status::MethodNotAllowed, "only GET and HEAD are answered")
            }
            _ => ShortResponse::new(Status::NotFound, "no such item"),
        };
        respond(response, request, connection, Then::KeepAlive).await
    }

    fn list(&self) -> String {
        let lines = self.items.iter().map(|item| {
            let (kind, size) = match &item.kind {
                ItemKind::File(path) => {
                    let size = path.metadata().map_or(0, |metadata| metadata.len());
                    (OfferedKind::File, size)
                }
                ItemKind::Tree(_) => (OfferedKind::Tree, 0),
                ItemKind::Stdin => (OfferedKind::Stream, 0),
            };
            let name = item.name.clone();
            OfferedItem { kind, size, name }.line()
        });
        lines.collect()
    }

    /// Sends a tree as tar, from the position that the receiver has.
    async fn send_tree(
        &self,
        worker: &RoleContext,
        request: &Request,
        (item, path): (&Item, &Path),
        connection: &mut Connection,
    ) -> Then {
        let (mut stream, response) = match self.open_tree(request, (&item.name, path)) {
            Ok(opened) => opened,
            Err(response) => {
                return respond(response, request, connection, Then::KeepAlive).await;
            }
        };
        let head = response.head(None, request.closes);
        connection.outbox().push(Piece::Bytes(head));
        if request.verb == Verb::Head {
            return match connection.flush().await {
                Ok(()) => Then::KeepAlive,
                Err(_) => Then::Abort,
            };
        }
        let before = worker.progress.bytes.load(Relaxed);
        let sent = tree::send(&mut stream, connection, &worker.progress).await;
        for warning in stream.warnings() {
            worker.progress.record(TransferEvent::Warning(warning));
        }
        if let Err(error) = sent {
            worker
                .progress
                .record(TransferEvent::Lost(error.to_string()));
            return Then::Abort;
        }
        worker.progress.record(TransferEvent::Sent {
            name: item.name.clone(),
            bytes: worker.progress.bytes.load(Relaxed) - before,
        });
        worker.progress.files.fetch_add(1, Relaxed);
        if request.field(profile::VERSION).is_none() && self.items.len() == 1 {
            worker.completed();
        }
        Then::KeepAlive
    }

    /// Sends standard input, once.
    async fn send_stdin(
        &self,
        worker: &RoleContext,
        request: &Request,
        connection: &mut Connection,
    ) -> Then {
        if self.stdin_is_taken.replace(true) {
            let text = "standard input was sent already, and cannot be sent twice";
            let response = ShortResponse::new(Status::Gone, text);
            return respond(response, request, connection, Then::KeepAlive).await;
        }
        let head = ShortResponse::new(Status::Ok, "").head(None, request.closes);
        connection.outbox().push(Piece::Bytes(head));
        match stdin::send(connection, &worker.progress).await {
            Ok(()) => Then::KeepAlive,
            Err(error) => {
                let why = error.to_string();
                worker.progress.record(TransferEvent::Lost(why));
                Then::Abort
            }
        }
    }

    fn open_tree(
        &self,
        request: &Request,
        (name, path): (&str, &Path),
    ) -> Result<(TreeStream, ShortResponse), ShortResponse> {
        let failed = |error: &Error| {
            tracing::warn!("{error}");
            let text = "the folder cannot be read any more; the sender sees why";
            ShortResponse::new(Status::InternalServerError, text)
        };
        // tar would spill members without a folder of their own into the current one.
        let prefix = match request.field(profile::VERSION) {
            Some(_) => None,
            None => Some(name),
        };
        let stream = TreeStream::of(path, self.attributes, prefix);
        let mut stream = stream.map_err(|error| failed(&error))?;
        let mut response = ShortResponse::new(Status::Ok, "").with("Content-Type", profile::TAR);
        if let Some(asked) = request.field(profile::POSITION) {
            let asked = TreePosition::parse(asked);
            let asked =
                asked.ok_or_else(|| ShortResponse::new(Status::BadRequest, "bad position"))?;
            match stream.seek(&asked).map_err(|error| failed(&error))? {
                Continued::At(position) => response = response.with(profile::POSITION, position),
                Continued::Changed => {
                    let text = "the folder has changed since a part of it was sent";
                    return Err(ShortResponse::new(Status::Conflict, text));
                }
            }
        }
        Ok((stream, response))
    }

    async fn send_file(
        &self,
        worker: &RoleContext,
        request: &Request,
        (item, path): (&Item, &Path),
        connection: &mut Connection,
    ) -> Then {
        let prepared = prepare(request, path);
        let (file, response, range) = match prepared {
            Ok(prepared) => prepared,
            Err(response) => {
                return respond(response, request, connection, Then::KeepAlive).await;
            }
        };
        let head = response.head(Some(range.length), request.closes);
        connection.outbox().push(Piece::Bytes(head));
        if request.verb == Verb::Get && range.length > 0 {
            connection.outbox().push(Piece::Range(FileRange {
                file: SharedFile::new(OwnedFd::from(file)),
                offset: range.first,
                len: range.length,
            }));
        }
        let flushed = connection.flush().await;
        let account = connection.outbox().take_account();
        worker.progress.moved(&account);
        match flushed {
            Ok(()) => {
                if request.verb == Verb::Get {
                    worker.progress.bytes.fetch_add(range.length, Relaxed);
                    worker.progress.files.fetch_add(1, Relaxed);
                    worker.progress.record(TransferEvent::Sent {
                        name: item.name.clone(),
                        bytes: range.length,
                    });
                }
                let is_native = request.field(profile::VERSION).is_some();
                // Programs that know nothing of the profile do not say that they are done.
                if !is_native && request.verb == Verb::Get && self.items.len() == 1 {
                    worker.completed();
                }
                Then::KeepAlive
            }
            Err(_) => Then::Abort,
        }
    }
}

/// Opens a file, and returns the head of the response and the range to send.
fn prepare(
    request: &Request,
    path: &Path,
) -> Result<(File, ShortResponse, ByteRange), ShortResponse> {
    let failed = |error: &Error| {
        tracing::warn!("{error}");
        let text = "the file cannot be read any more; the sender sees why";
        ShortResponse::new(Status::InternalServerError, text)
    };
    let (file, stat) = open(path).map_err(|error| failed(&error))?;
    let file = File::from(file);
    let source = SourceStamp::of(&stat);
    let tag = format!("\"{source}\"");
    let is_same = request
        .field("If-Range")
        .is_none_or(|known| known == tag.as_bytes());
    let asked = request.field("Range").filter(|_| is_same);
    let selected = asked.map(|asked| select(asked, source.size, 1));
    let (status, range) = match selected {
        Some(Some(RangeSelection::One(range))) => (Status::PartialContent, range),
        Some(None) => {
            let text = "the file ends before the range";
            return Err(ShortResponse::new(Status::RangeNotSatisfiable, text)
                .with("Content-Range", format!("bytes */{}", source.size)));
        }
        None | Some(Some(_)) => (Status::Ok, ByteRange::whole(source.size)),
    };
    if let Some(expected) = request.field(profile::WINDOW).and_then(WindowHash::parse) {
        let found = window(&file, range.first);
        if !found.is_ok_and(|found| found == expected) {
            let text = "the file has changed since a part of it was sent";
            return Err(ShortResponse::new(Status::Conflict, text));
        }
    }
    let mut response = ShortResponse::new(status, "")
        .with("ETag", tag)
        .with("Accept-Ranges", "bytes")
        .with("Content-Type", "application/octet-stream")
        .with(profile::SOURCE, source);
    if status == Status::PartialContent {
        let mut value = Vec::new();
        let size = Some(source.size);
        ContentRange::Part { range, size }.push_to(&mut value);
        response = response.with("Content-Range", String::from_utf8_lossy(&value));
    }
    Ok((file, response, range))
}
