//! Decides what a request gets. Pure but for the one question it asks: what a path leads to.
//!
//! ```text
//!  method ─► expectation ─► target ─► found? ─► conditions ─► range
//! ```

use std::borrow::Cow;

use rustix::io::Errno;

use crate::condition::{Conditions, Verdict};
use crate::file::File;
use crate::head::{Expect, Request};
use crate::limits::Limits;
use crate::path::SitePath;
use crate::range::{Selection, Span, select};
use crate::request_line::Method;
use crate::resolve::Found;
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
    /// 204 with what is allowed.
    Options,
    /// 405 with what is allowed.
    NotAllowed,
    /// A status and why.
    Plain(Refusal),
    /// The same, because of the machine and not of the request.
    Trouble(Refusal, Errno),
}

/// Decides; `find` opens what a path leads to.
pub(crate) fn answer<'b>(
    request: Request<'b>,
    limits: &Limits,
    find: impl FnOnce(SitePath) -> Found,
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
    match find(path) {
        Found::File(file) => {
            let (method, conditions) = (request.method, &request.conditions);
            selected(file, method, conditions, request.range, limits)
        }
        Found::Folder(folder) => Answer::Moved { folder, query },
        Found::NoIndex => plain(
            Status::Forbidden,
            "the folder has no index and is not listed",
        ),
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

/// What is sent of a file that is there.
fn selected(
    file: File,
    method: Method,
    conditions: &Conditions<'_>,
    range: Option<Cow<'_, [u8]>>,
    limits: &Limits,
) -> Answer<'static> {
    match conditions.judge(&file.state.validators) {
        Verdict::NotModified => return Answer::NotModified(file),
        Verdict::Failed => return Answer::PreconditionFailed(file),
        Verdict::Proceed => {}
    }
    let selection = match (method, range) {
        (Method::Get, Some(range)) if conditions.allow_range(&file.state.validators) => {
            select(&range, file.state.size, limits)
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
