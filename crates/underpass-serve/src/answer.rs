//! Decides what a request gets. Pure but for what it asks of [`Lookup`]: what a path leads to, and
//! whether a copy of it lies beside.
//!
//! ```text
//!  method ─► expectation ─► target ─► redirect? ─► rewrite ─► hidden? ─► found? ─┐
//!                                                                                │
//!                range ◄─ conditions ◄─ coding ◄─ saved or shown? ◄─ or fallback ◄─┘
//! ```

use std::borrow::Cow;

use rustix::io::Errno;

use crate::coding::{Acceptable, Coding};
use crate::condition::{Conditions, Verdict};
use crate::file::File;
use crate::head::{Expect, Request};
use crate::limits::Limits;
use crate::path::SitePath;
use crate::precompressed::is_compressed;
use crate::range::{Selection, Span, select};
use crate::request_line::Method;
use crate::resolve::Found;
use crate::rules::{Redirection, Rewritten, Rules};
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
    /// A redirect of the configuration.
    Redirected(Redirection),
    /// 406: the client refuses the plain file and takes no copy that is there.
    NotAcceptable,
    /// 204 with what is allowed.
    Options,
    /// 405 with what is allowed.
    NotAllowed,
    /// A status and why.
    Plain(Refusal),
    /// The same, because of the machine and not of the request.
    Trouble(Refusal, Errno),
}

impl Answer<'_> {
    /// The status of one that is an error.
    pub(crate) fn error(&self) -> Option<Status> {
        match self {
            Answer::PreconditionFailed(_) => Some(Status::PreconditionFailed),
            Answer::Unsatisfiable(_) => Some(Status::RangeNotSatisfiable),
            Answer::NotAcceptable => Some(Status::NotAcceptable),
            Answer::NotAllowed => Some(Status::MethodNotAllowed),
            Answer::Plain(refusal) | Answer::Trouble(refusal, _) => Some(refusal.status),
            Answer::Whole(_)
            | Answer::Part(..)
            | Answer::Parts(..)
            | Answer::NotModified(_)
            | Answer::Moved { .. }
            | Answer::Redirected(_)
            | Answer::Options => None,
        }
    }
}

/// What an answer may ask of the file system.
pub(crate) trait Lookup {
    /// What a path leads to.
    fn find(&self, path: SitePath) -> Found;

    /// The copy of a file in a coding.
    fn sibling(&self, file: &File, coding: Coding) -> Option<File>;
}

/// Decides by the rules of a site.
pub(crate) fn answer<'b>(
    request: Request<'b>,
    rules: &Rules,
    limits: &Limits,
    lookup: &impl Lookup,
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
    if let Some(redirection) = rules.redirected(&path, query) {
        return Answer::Redirected(redirection);
    }
    let Rewritten { path, asked } = rules.rewritten(path);
    match located(path, rules, lookup) {
        Found::File(file) => {
            let file = match rules.offers_downloads() && has_parameter(query, b"download") {
                true => file.into_download(),
                false => file,
            };
            match coded(file, request.fields.accept_encoding.value(), rules, lookup) {
                Some(file) => {
                    let (method, conditions) = (request.method, &request.conditions);
                    selected(file, method, conditions, request.range, limits)
                }
                None => Answer::NotAcceptable,
            }
        }
        Found::Folder(folder) => {
            let folder = asked.unwrap_or(folder);
            Answer::Moved { folder, query }
        }
        found => without(found),
    }
}

/// What a path leads to, or what stands in where there is nothing. A hidden path leads nowhere, or
/// whoever looks for `.git` would learn of a page there.
fn located(path: SitePath, rules: &Rules, lookup: &impl Lookup) -> Found {
    if rules.hides(&path) {
        return Found::Nothing;
    }
    match (lookup.find(path), &rules.fallback) {
        (Found::Nothing, Some(fallback)) => lookup.find(fallback.clone()),
        (found, _) => found,
    }
}

/// The file in the coding that the client likes best; none if it takes none that is there.
fn coded(file: File, accepted: Option<&[u8]>, rules: &Rules, lookup: &impl Lookup) -> Option<File> {
    if rules.precompressed.is_empty() || is_compressed(file.path.bytes()) {
        return Some(file);
    }
    let acceptable = Acceptable::parse(accepted);
    let copy = acceptable
        .choices(&rules.precompressed)
        .find_map(|coding| lookup.sibling(&file, coding));
    copy.or_else(|| acceptable.takes_identity().then_some(file))
}

/// Whether a query has a parameter of this name, with or without a value.
fn has_parameter(query: Option<&[u8]>, name: &[u8]) -> bool {
    let mut parameters = query.unwrap_or_default().split(|&byte| byte == b'&');
    parameters.any(|parameter| {
        let end = parameter.iter().position(|&byte| byte == b'=');
        &parameter[..end.unwrap_or(parameter.len())] == name
    })
}

/// What is answered where there is no file.
fn without(found: Found) -> Answer<'static> {
    match found {
        Found::NoIndex => plain(
            Status::Forbidden,
            "the folder has no index and is not listed",
        ),
        Found::Forbidden => plain(Status::Forbidden, "the server may not read it"),
        Found::Busy(errno) => Answer::Trouble(
            Refusal::new(Status::ServiceUnavailable, "try again later"),
            errno,
        ),
        Found::Failed(errno) => Answer::Trouble(
            Refusal::new(Status::InternalServerError, "the file cannot be opened"),
            errno,
        ),
        Found::Nothing | Found::File(_) | Found::Folder(_) => {
            plain(Status::NotFound, "there is no such file")
        }
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
