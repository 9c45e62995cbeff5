//! Decides what a request gets. Pure but for what it asks of [`Lookup`]: what a path leads to, and
//! whether a copy of it lies beside.
//!
//! ```text
//!  method ─► expectation ─► target ─► redirect? ─► rewrite ─► hidden? ─► try ─► found? ─┐
//!                                                                                       │
//!  digest ◄─ range ◄─ conditions ◄─ coding ◄─ saved or shown? ◄─ or fallback ◄──────────┤
//!                                             listing or archive of a folder ◄──────────┘
//! ```

use std::borrow::Cow;

use rustix::io::Errno;

use crate::answer::repr_digest::{Wanted, wanted};
use crate::body::compressed::Place;
use crate::body::listing::view::View;
use crate::http::coding::is_compressed;
use crate::http::coding::{Acceptable, Coding};
use crate::http::digest::Algorithm;
use crate::http::status::{BUSY, Refusal, Status};
use crate::limits::Limits;
use crate::request::accept::preferred;
use crate::request::condition::{Conditions, Verdict};
use crate::request::head::{Expect, Request};
use crate::request::path::{Form, SitePath};
use crate::request::query::{Compression, Query};
use crate::request::range::{Selection, Span, select};
use crate::request::request_line::{Method, Version};
use crate::request::target::Target;
use crate::site::file::File;
use crate::site::folder::Folder;
use crate::site::resolve::Found;
use crate::site::rules::{
    Archives, Asked, Candidate, Compressible, Extras, Hashes, Listings, Redirection, Rewritten,
    Rules, Sought,
};

/// What a request gets.
#[derive(Debug)]
pub(crate) enum Answer<'b> {
    /// 200 or 206.
    Content(Content),
    /// The same, with a hash of the file if one is to be had.
    Vouched(Content),
    /// 200: all of a file, compressed while it is sent.
    Compressed(File, Coding, Place),
    /// 304.
    NotModified(File),
    /// 412.
    PreconditionFailed(File),
    /// 416: what was asked for lies behind this size.
    Unsatisfiable(u64),
    /// 301 to a folder's path with its slash.
    Moved {
        folder: SitePath,
        query: Option<&'b [u8]>,
    },
    /// A redirect of the configuration.
    Redirected(Redirection),
    /// 200: what is in a folder.
    Listing(Folder, View),
    /// 200: a folder as one file.
    Archive(Folder, Compression),
    /// 200: the hash of a file, which is not known yet.
    Hash(File, Algorithm),
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

/// What is sent of a file as it lies there.
#[derive(Debug)]
pub(crate) enum Content {
    /// All of it: 200.
    Whole(File),
    /// One part: 206.
    Part(File, Span),
    /// Several: 206.
    Parts(File, Vec<Span>),
}

impl Content {
    pub(crate) fn file(&self) -> &File {
        match self {
            Content::Whole(file) | Content::Part(file, _) | Content::Parts(file, _) => file,
        }
    }
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
            Answer::Content(_)
            | Answer::Vouched(_)
            | Answer::Compressed(..)
            | Answer::NotModified(_)
            | Answer::Listing(..)
            | Answer::Archive(..)
            | Answer::Hash(..)
            | Answer::Moved { .. }
            | Answer::Redirected(_)
            | Answer::Options => None,
        }
    }
}

/// What an answer may ask: of the file system, and of those who would have to make it.
pub(crate) trait Lookup {
    /// What a path leads to.
    fn find(&self, path: SitePath) -> Found;

    /// The folder of a path, whether it has an index or not.
    fn folder(&self, path: SitePath) -> Found;

    /// The copy of a file in a coding.
    fn sibling(&self, file: &File, coding: Coding) -> Option<File>;

    /// A place among what is compressed at once, if one is free.
    fn place(&self) -> Option<Place>;
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
    let Request {
        method,
        version,
        target,
        conditions,
        range,
        fields,
        ..
    } = request;
    let Target::Path { path, query } = target else {
        return plain(Status::BadRequest, "the target is no path");
    };
    if let Some(redirection) = rules.redirected(&path, query) {
        return Answer::Redirected(redirection);
    }
    let parameters = Query::parse(query);
    let (found, asked) = located(rules.rewritten(path), &parameters, rules, lookup);
    match found {
        Found::File(file) => {
            let wish = Wish {
                method,
                version,
                conditions,
                range,
                accept_encoding: fields.accept_encoding.value(),
                digest: fields.want_repr_digest.value(),
                parameters,
            };
            of_file(file, wish, rules, limits, lookup)
        }
        Found::Folder(folder) => {
            let folder = asked.unwrap_or(folder);
            Answer::Moved { folder, query }
        }
        Found::NoIndex(folder) => {
            let path = asked.unwrap_or_else(|| folder.path.clone());
            let accept = fields.accept.value();
            of_folder(folder, path, parameters, rules.extras, accept)
        }
        found => without(found),
    }
}

/// What a path leads to, or what stands in where there is nothing; and how a folder is called,
/// where that is not its own path. A hidden path leads nowhere, or whoever looks for `.git` would
/// learn of a page there.
fn located(
    rewritten: Rewritten,
    query: &Query,
    rules: &Rules,
    lookup: &impl Lookup,
) -> (Found, Option<SitePath>) {
    let Rewritten { path, asked } = rewritten;
    if rules.hides(&path) {
        return (Found::Nothing, None);
    }
    let seek = |path: SitePath| match (path.form(), query.archive(), rules.extras.archives) {
        (Form::Folder, Some(_), Archives::Offered) => lookup.folder(path),
        _ => lookup.find(path),
    };
    let (found, called) = match (rules.tries(&path), asked) {
        (Some(candidates), Asked::Tree(asked)) => tried(candidates, &path, &asked, rules, seek),
        (Some(candidates), _) => tried(candidates, &path, &path, rules, seek),
        (None, Asked::Same) => (seek(path), None),
        (None, Asked::Tree(asked)) => (seek(path), Some(asked)),
        (None, Asked::Alone) => (alone(path, rules, seek), None),
    };
    match (found, &rules.fallback) {
        (Found::Nothing, Some(fallback)) => (lookup.find(fallback.clone()), None),
        (found, _) => (found, called),
    }
}

/// The first of `candidates` that is there. What is hidden is not, whatever stands before it.
fn tried(
    candidates: &[Candidate],
    path: &SitePath,
    asked: &SitePath,
    rules: &Rules,
    seek: impl Fn(SitePath) -> Found,
) -> (Found, Option<SitePath>) {
    for candidate in candidates {
        let found = match candidate.of(path) {
            Some(Sought::Anything(path)) if !rules.hides(&path) => seek(path),
            Some(Sought::File(path)) if !rules.hides(&path) => match seek(path) {
                Found::Folder(_) | Found::NoIndex(_) => Found::Nothing,
                found => found,
            },
            _ => Found::Nothing,
        };
        if !matches!(found, Found::Nothing) {
            return (found, Some(asked.clone()));
        }
    }
    (Found::Nothing, None)
}

/// What a path leads to that stands for another one alone. Of a folder the client is told where it
/// is: relative links in its page would lead to paths that nothing stands for.
fn alone(path: SitePath, rules: &Rules, seek: impl Fn(SitePath) -> Found) -> Found {
    let folder = (path.form() == Form::Folder && rules.is_final(&path)).then(|| path.clone());
    match (seek(path), folder) {
        (Found::File(_) | Found::NoIndex(_), Some(folder)) => Found::Folder(folder),
        (found, _) => found,
    }
}

/// What somebody wants of a file.
struct Wish<'b> {
    method: Method,
    version: Version,
    conditions: Conditions<'b>,
    range: Option<Cow<'b, [u8]>>,
    accept_encoding: Option<&'b [u8]>,
    digest: Option<&'b [u8]>,
    parameters: Query,
}

impl Wish<'_> {
    /// Whether it is about bytes that have to be the same every time (ranges, and what is compared
    /// strongly), or from somebody who does not know chunks and could not tell a body that broke
    /// off from one that ended.
    fn prefers_plain(&self) -> bool {
        self.method == Method::Get && self.range.is_some()
            || self.conditions.if_match.is_some()
            || self.version == Version::Http10
    }
}

/// What is sent of a file: its hash, if that is asked for, or its content.
fn of_file(
    file: File,
    wish: Wish<'_>,
    rules: &Rules,
    limits: &Limits,
    lookup: &impl Lookup,
) -> Answer<'static> {
    if let (Some(algorithm), Hashes::Offered) = (wish.parameters.hash, rules.extras.hashes) {
        return match wish.conditions.judge(&file.state.validators) {
            Verdict::NotModified => Answer::NotModified(file),
            Verdict::Failed => Answer::PreconditionFailed(file),
            Verdict::Proceed => Answer::Hash(file, algorithm),
        };
    }
    let file = match rules.offers_downloads() && wish.parameters.download.is_some() {
        true => file.into_download(),
        false => file,
    };
    match coded(file, &wish, rules, lookup) {
        Sent::Found(file) => {
            let wanted = match rules.extras.hashes {
                Hashes::Offered => wanted(wish.digest),
                Hashes::Off => Wanted::Nothing,
            };
            match (selected(file, &wish, limits), wanted) {
                (Answer::Content(content), Wanted::Sha256) => Answer::Vouched(content),
                (answer, _) => answer,
            }
        }
        Sent::Compressed(file, coding, place) => {
            match wish.conditions.judge(&file.state.validators) {
                Verdict::NotModified => Answer::NotModified(file),
                Verdict::Failed => Answer::PreconditionFailed(file),
                Verdict::Proceed => Answer::Compressed(file, coding, place),
            }
        }
        Sent::Busy => Answer::Plain(BUSY),
        Sent::Unknown => Answer::NotAcceptable,
    }
}

/// How a file is sent.
enum Sent {
    /// As it lies there, itself or a copy of it in a coding.
    Found(File),
    /// Compressed on the way.
    Compressed(File, Coding, Place),
    /// In no other way than that, for which there is no place.
    Busy,
    /// In no coding that the client takes.
    Unknown,
}

/// The file in the coding that the client likes best: a copy that lies there, else compressed.
fn coded(file: File, wish: &Wish<'_>, rules: &Rules, lookup: &impl Lookup) -> Sent {
    if !rules.codes() || is_compressed(file.path.bytes()) {
        return Sent::Found(file);
    }
    let acceptable = Acceptable::parse(wish.accept_encoding);
    let copy = acceptable
        .choices(&rules.precompressed)
        .find_map(|coding| lookup.sibling(&file, coding));
    if let Some(copy) = copy {
        return Sent::Found(copy);
    }
    let takes_plain = acceptable.takes_identity();
    let coding = match file.state.label.compressible {
        Compressible::Yes if !(takes_plain && wish.prefers_plain()) => {
            rules.compress.choose(file.state.size, &acceptable)
        }
        _ => None,
    };
    match (coding.map(|coding| (coding, lookup.place())), takes_plain) {
        (Some((coding, Some(place))), _) => {
            Sent::Compressed(file.into_compressed(coding), coding, place)
        }
        (_, true) => Sent::Found(file),
        (Some((_, None)), false) => Sent::Busy,
        (None, false) => Sent::Unknown,
    }
}

/// What is sent of a folder, which is called by `path`.
fn of_folder(
    folder: Folder,
    path: SitePath,
    asked: Query,
    extras: Extras,
    accept: Option<&[u8]>,
) -> Answer<'static> {
    match (asked.archive(), extras.archives, extras.listing) {
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
                path,
                format: asked.format.unwrap_or_else(|| preferred(accept)),
                order: asked.order(),
                search: asked.search,
                archives,
            };
            Answer::Listing(folder, view)
        }
    }
}

/// What is answered where there is neither file nor folder.
fn without(found: Found) -> Answer<'static> {
    match found {
        Found::Forbidden => plain(Status::Forbidden, "the server may not read it"),
        Found::Busy(errno) => Answer::Trouble(
            Refusal::new(Status::ServiceUnavailable, "try again later"),
            errno,
        ),
        Found::Failed(errno) => Answer::Trouble(
            Refusal::new(Status::InternalServerError, "the file cannot be opened"),
            errno,
        ),
        Found::Nothing | Found::File(_) | Found::Folder(_) | Found::NoIndex(_) => {
            plain(Status::NotFound, "there is no such file")
        }
    }
}

/// What is sent of a file that is there.
fn selected(file: File, wish: &Wish<'_>, limits: &Limits) -> Answer<'static> {
    let conditions = &wish.conditions;
    match conditions.judge(&file.state.validators) {
        Verdict::NotModified => return Answer::NotModified(file),
        Verdict::Failed => return Answer::PreconditionFailed(file),
        Verdict::Proceed => {}
    }
    let selection = match (wish.method, &wish.range) {
        (Method::Get, Some(range)) if conditions.allow_range(&file.state.validators) => {
            select(range, file.state.size, limits)
        }
        _ => Selection::Whole,
    };
    Answer::Content(match selection {
        Selection::Whole => Content::Whole(file),
        Selection::One(span) => Content::Part(file, span),
        Selection::Several(spans) => Content::Parts(file, spans),
        Selection::Unsatisfiable => return Answer::Unsatisfiable(file.state.size),
    })
}

fn plain(status: Status, why: &'static str) -> Answer<'static> {
    Answer::Plain(Refusal::new(status, why))
}
