//! Decides what a request gets. Pure but for the one question it asks: what a path leads to.
//!
//! ```text
//!  method ─► expectation ─► target ─► found? ─► conditions ─► range
//! ```

use std::borrow::Cow;

use rustix::io::Errno;

use crate::accept::preferred;
use crate::condition::{Conditions, Verdict};
use crate::digest::Algorithm;
use crate::file::File;
use crate::folder::Folder;
use crate::head::{Expect, Request};
use crate::listing::View;
use crate::path::{Form, SitePath};
use crate::query::{Compression, Query};
use crate::range::{Selection, Span, select};
use crate::request_line::Method;
use crate::resolve::Found;
use crate::site::{Archives, Extras, Hashes, Listings};
use crate::status::{Refusal, Status};
use crate::target::Target;

/// What a request gets.
#[derive(Debug)]
pub(crate) enum Answer<'b> {
    /// 200.
    Whole(File),
    /// 206, one part.
    Part(File, Span),
    /// 206, several.
    Parts(File, Vec<Span>),
    /// 304.
    NotModified(File),
    /// 412.
    PreconditionFailed(File),
    /// 416: what was asked for lies behind this size.
    Unsatisfiable(u64),
    /// 301 to the folder's own path.
    Moved {
        folder: SitePath,
        query: Option<&'b [u8]>,
    },
    /// 200: what is in a folder.
    Listing(Folder, View),
    /// 200: a folder as one file.
    Archive(Folder, Compression),
    /// 200: the hash of a file, which is not known yet.
    Hash(File, Algorithm),
    /// 204 with what is allowed.
    Options,
    /// 405 with what is allowed.
    NotAllowed,
    /// A status and why.
    Plain(Refusal),
    /// The same, because of the machine and not of the request.
    Trouble(Refusal, Errno),
}

/// What of a folder is looked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sought {
    /// Its index, if it has one.
    Index,
    /// The folder.
    Itself,
}

/// Decides; `find` opens what a path leads to.
pub(crate) fn answer<'b>(
    request: Request<'b>,
    extras: Extras,
    find: impl FnOnce(SitePath, Sought) -> Found,
) -> Answer<'b> {
    match request.method {
        Method::Disabled | Method::Connect => return Answer::NotAllowed,
        Method::Unknown => return plain(Status::NotImplemented, "no such method"),
        _ if request.expect == Expect::Unknown => {
            return plain(Status::ExpectationFailed, "no such expectation");
        }
        Method::Options => return Answer::Options,
        Method::Get | Method::Head => {}
    }
    let Target::Path { path, query } = request.target else {
        return plain(Status::BadRequest, "the target is no path");
    };
    let asked = Query::parse(query);
    let sought = match (path.form(), asked.archive) {
        (Form::Folder, Some(_)) => Sought::Itself,
        _ => Sought::Index,
    };
    match find(path, sought) {
        Found::File(file) => {
            let hash = asked.hash.filter(|_| extras.hashes == Hashes::Offered);
            selected(
                file,
                request.method,
                &request.conditions,
                request.range,
                hash,
            )
        }
        Found::Folder(folder) => Answer::Moved { folder, query },
        Found::NoIndex(folder) => of_folder(folder, asked, extras, request.fields.accept.value()),
        Found::Nothing => plain(Status::NotFound, "there is no such file"),
        Found::Forbidden => plain(Status::Forbidden, "the server may not read it"),
        Found::Busy(errno) => Answer::Trouble(
            Refusal::new(Status::ServiceUnavailable, "try again later"),
            errno,
        ),
        Found::Failed(errno) => Answer::Trouble(
            Refusal::new(Status::InternalServerError, "the file cannot be opened"),
            errno,
        ),
    }
}

/// What is sent of a folder.
fn of_folder(
    folder: Folder,
    asked: Query,
    extras: Extras,
    accept: Option<&[u8]>,
) -> Answer<'static> {
    match (asked.archive, extras.archives, extras.listing) {
        (Some(compression), Archives::Offered, _) => Answer::Archive(folder, compression),
        (Some(_), Archives::Off, _) => {
            plain(Status::Forbidden, "folders are not sent as archives here")
        }
        (None, _, Listings::Off) => plain(
            Status::Forbidden,
            "the folder has no index and is not listed",
        ),
        (None, archives, Listings::Offered) => {
            let view = View {
                path: folder.path.clone(),
                format: asked.format.unwrap_or_else(|| preferred(accept)),
                order: asked.order(),
                search: asked.search,
                archives,
            };
            Answer::Listing(folder, view)
        }
    }
}

/// What is sent of a file that is there.
fn selected(
    file: File,
    method: Method,
    conditions: &Conditions<'_>,
    range: Option<Cow<'_, [u8]>>,
    hash: Option<Algorithm>,
) -> Answer<'static> {
    match conditions.judge(&file.state.validators) {
        Verdict::NotModified => return Answer::NotModified(file),
        Verdict::Failed => return Answer::PreconditionFailed(file),
        Verdict::Proceed => {}
    }
    if let Some(algorithm) = hash {
        return Answer::Hash(file, algorithm);
    }
    let selection = match (method, range) {
        (Method::Get, Some(range)) if conditions.allow_range(&file.state.validators) => {
            select(&range, file.state.size)
        }
        _ => Selection::Whole,
    };
    match selection {
        Selection::Whole => Answer::Whole(file),
        Selection::One(span) => Answer::Part(file, span),
        Selection::Several(spans) => Answer::Parts(file, spans),
        Selection::Unsatisfiable => Answer::Unsatisfiable(file.state.size),
    }
}

fn plain(status: Status, why: &'static str) -> Answer<'static> {
    Answer::Plain(Refusal::new(status, why))
}
