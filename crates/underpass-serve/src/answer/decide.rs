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

use crate::answer::repr_digest::{WantedDigest, wanted};
use crate::body::compressed::CompressionPermit;
use crate::body::listing::view::ListingView;
use crate::http::coding::is_compressed;
use crate::http::coding::{Acceptable, Coding};
use crate::http::digest::HashAlgorithm;
use crate::http::status::{BUSY, HttpError, Status};
use crate::limits::RequestLimits;
use crate::request::accept::preferred;
use crate::request::condition::{ConditionResult, Conditions};
use crate::request::head::{Expectation, RequestHead};
use crate::request::path::{PathForm, SitePath};
use crate::request::query::{ArchiveFormat, Query};
use crate::request::range::{ByteRange, RangeSelection, select};
use crate::request::request_line::{HttpVersion, Method};
use crate::request::target::HttpTarget;
use crate::site::file::SiteFile;
use crate::site::folder::SiteFolder;
use crate::site::resolve::Resolved;
use crate::site::rules::{
    Archives, Candidate, Compressible, Extras, Hashes, Listings, MatchedRedirect, RequestedPath,
    RewrittenPath, SiteRules, SoughtPath,
};

/// What a request gets.
#[derive(Debug)]
pub(crate) enum Response<'b> {
    /// 200 or 206.
    Content(FileBody),
    /// The same, with a hash of the file if one is to be had.
    Vouched(FileBody),
    /// 200: all of a file, compressed while it is sent.
    Compressed(SiteFile, Coding, CompressionPermit),
    /// 304.
    NotModified(SiteFile),
    /// 412.
    PreconditionFailed(SiteFile),
    /// 416: what was asked for lies behind this size.
    Unsatisfiable(u64),
    /// 301 to a folder's path with its slash.
    Moved {
        folder: SitePath,
        query: Option<&'b [u8]>,
    },
    /// A redirect of the configuration.
    Redirected(MatchedRedirect),
    /// 200: what is in a folder.
    Listing(SiteFolder, ListingView),
    /// 200: a folder as one file.
    Archive(SiteFolder, ArchiveFormat),
    /// 200: the hash of a file, which is not known yet.
    Hash(SiteFile, HashAlgorithm),
    /// 406: the client refuses the plain file and takes no copy that is there.
    NotAcceptable,
    /// 204 with what is allowed.
    Options,
    /// 405 with what is allowed.
    NotAllowed,
    /// A status and why.
    Plain(HttpError),
    /// The same, because of the machine and not of the request.
    Trouble(HttpError, Errno),
}

/// What is sent of a file as it lies there.
#[derive(Debug)]
pub(crate) enum FileBody {
    /// All of it: 200.
    Whole(SiteFile),
    /// One part: 206.
    Part(SiteFile, ByteRange),
    /// Several: 206.
    Parts(SiteFile, Vec<ByteRange>),
}

impl FileBody {
    pub(crate) fn file(&self) -> &SiteFile {
        match self {
            FileBody::Whole(file) | FileBody::Part(file, _) | FileBody::Parts(file, _) => file,
        }
    }
}

impl Response<'_> {
    /// The status of one that is an error.
    pub(crate) fn error(&self) -> Option<Status> {
        match self {
            Response::PreconditionFailed(_) => Some(Status::PreconditionFailed),
            Response::Unsatisfiable(_) => Some(Status::RangeNotSatisfiable),
            Response::NotAcceptable => Some(Status::NotAcceptable),
            Response::NotAllowed => Some(Status::MethodNotAllowed),
            Response::Plain(refusal) | Response::Trouble(refusal, _) => Some(refusal.status),
            Response::Content(_)
            | Response::Vouched(_)
            | Response::Compressed(..)
            | Response::NotModified(_)
            | Response::Listing(..)
            | Response::Archive(..)
            | Response::Hash(..)
            | Response::Moved { .. }
            | Response::Redirected(_)
            | Response::Options => None,
        }
    }
}

/// What an answer may ask: of the file system, and of those who would have to make it.
pub(crate) trait Lookup {
    /// What a path leads to.
    fn find(&self, path: SitePath) -> Resolved;

    /// The folder of a path, whether it has an index or not.
    fn folder(&self, path: SitePath) -> Resolved;

    /// The copy of a file in a coding.
    fn sibling(&self, file: &SiteFile, coding: Coding) -> Option<SiteFile>;

    /// A place among what is compressed at once, if one is free.
    fn place(&self) -> Option<CompressionPermit>;
}

/// Decides by the rules of a site.
pub(crate) fn answer<'b>(
    request: RequestHead<'b>,
    rules: &SiteRules,
    limits: &RequestLimits,
    lookup: &impl Lookup,
) -> Response<'b> {
    match request.method {
        Method::Disabled | Method::Connect => return Response::NotAllowed,
        Method::Unknown => return plain(Status::NotImplemented, "no such method"),
        _ if request.expect == Expectation::Unknown => {
            return plain(Status::ExpectationFailed, "no such expectation");
        }
        Method::Options => return Response::Options,
        Method::Get | Method::Head => {}
    }
    let RequestHead {
        method,
        version,
        target,
        conditions,
        range,
        fields,
        ..
    } = request;
    let HttpTarget::Path { path, query } = target else {
        return plain(Status::BadRequest, "the target is no path");
    };
    if let Some(redirection) = rules.redirected(&path, query) {
        return Response::Redirected(redirection);
    }
    let parameters = Query::parse(query);
    let (found, asked) = located(rules.rewritten(path), &parameters, rules, lookup);
    match found {
        Resolved::File(file) => {
            let wish = FileRequest {
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
        Resolved::Folder(folder) => {
            let folder = asked.unwrap_or(folder);
            Response::Moved { folder, query }
        }
        Resolved::NoIndex(folder) => {
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
    rewritten: RewrittenPath,
    query: &Query,
    rules: &SiteRules,
    lookup: &impl Lookup,
) -> (Resolved, Option<SitePath>) {
    let RewrittenPath { path, asked } = rewritten;
    if rules.hides(&path) {
        return (Resolved::Nothing, None);
    }
    let seek = |path: SitePath| match (path.form(), query.archive(), rules.extras.archives) {
        (PathForm::Folder, Some(_), Archives::Offered) => lookup.folder(path),
        _ => lookup.find(path),
    };
    let (found, called) = match (rules.tries(&path), asked) {
        (Some(candidates), RequestedPath::Tree(asked)) => {
            tried(candidates, &path, &asked, rules, seek)
        }
        (Some(candidates), _) => tried(candidates, &path, &path, rules, seek),
        (None, RequestedPath::Same) => (seek(path), None),
        (None, RequestedPath::Tree(asked)) => (seek(path), Some(asked)),
        (None, RequestedPath::Alone) => (alone(path, rules, seek), None),
    };
    match (found, &rules.fallback) {
        (Resolved::Nothing, Some(fallback)) => (lookup.find(fallback.clone()), None),
        (found, _) => (found, called),
    }
}

/// The first of `candidates` that is there. What is hidden is not, whatever stands before it.
fn tried(
    candidates: &[Candidate],
    path: &SitePath,
    asked: &SitePath,
    rules: &SiteRules,
    seek: impl Fn(SitePath) -> Resolved,
) -> (Resolved, Option<SitePath>) {
    for candidate in candidates {
        let found = match candidate.of(path) {
            Some(SoughtPath::Anything(path)) if !rules.hides(&path) => seek(path),
            Some(SoughtPath::File(path)) if !rules.hides(&path) => match seek(path) {
                Resolved::Folder(_) | Resolved::NoIndex(_) => Resolved::Nothing,
                found => found,
            },
            _ => Resolved::Nothing,
        };
        if !matches!(found, Resolved::Nothing) {
            return (found, Some(asked.clone()));
        }
    }
    (Resolved::Nothing, None)
}

/// What a path leads to that stands for another one alone. Of a folder the client is told where it
/// is: relative links in its page would lead to paths that nothing stands for.
fn alone(path: SitePath, rules: &SiteRules, seek: impl Fn(SitePath) -> Resolved) -> Resolved {
    let folder = (path.form() == PathForm::Folder && rules.is_final(&path)).then(|| path.clone());
    match (seek(path), folder) {
        (Resolved::File(_) | Resolved::NoIndex(_), Some(folder)) => Resolved::Folder(folder),
        (found, _) => found,
    }
}

/// What somebody wants of a file.
struct FileRequest<'b> {
    method: Method,
    version: HttpVersion,
    conditions: Conditions<'b>,
    range: Option<Cow<'b, [u8]>>,
    accept_encoding: Option<&'b [u8]>,
    digest: Option<&'b [u8]>,
    parameters: Query,
}

impl FileRequest<'_> {
    /// Whether it is about bytes that have to be the same every time (ranges, and what is compared
    /// strongly), or from somebody who does not know chunks and could not tell a body that broke
    /// off from one that ended.
    fn prefers_plain(&self) -> bool {
        self.method == Method::Get && self.range.is_some()
            || self.conditions.if_match.is_some()
            || self.version == HttpVersion::Http10
    }
}

/// What is sent of a file: its hash, if that is asked for, or its content.
fn of_file(
    file: SiteFile,
    wish: FileRequest<'_>,
    rules: &SiteRules,
    limits: &RequestLimits,
    lookup: &impl Lookup,
) -> Response<'static> {
    if let (Some(algorithm), Hashes::Offered) = (wish.parameters.hash, rules.extras.hashes) {
        return match wish.conditions.judge(&file.state.validators) {
            ConditionResult::NotModified => Response::NotModified(file),
            ConditionResult::Failed => Response::PreconditionFailed(file),
            ConditionResult::Proceed => Response::Hash(file, algorithm),
        };
    }
    let file = match rules.offers_downloads() && wish.parameters.download.is_some() {
        true => file.into_download(),
        false => file,
    };
    match coded(file, &wish, rules, lookup) {
        Representation::Found(file) => {
            let wanted = match rules.extras.hashes {
                Hashes::Offered => wanted(wish.digest),
                Hashes::Off => WantedDigest::Nothing,
            };
            match (selected(file, &wish, limits), wanted) {
                (Response::Content(content), WantedDigest::Sha256) => Response::Vouched(content),
                (answer, _) => answer,
            }
        }
        Representation::Compressed(file, coding, place) => {
            match wish.conditions.judge(&file.state.validators) {
                ConditionResult::NotModified => Response::NotModified(file),
                ConditionResult::Failed => Response::PreconditionFailed(file),
                ConditionResult::Proceed => Response::Compressed(file, coding, place),
            }
        }
        Representation::Busy => Response::Plain(BUSY),
        Representation::Unknown => Response::NotAcceptable,
    }
}

/// How a file is sent.
enum Representation {
    /// As it lies there, itself or a copy of it in a coding.
    Found(SiteFile),
    /// Compressed on the way.
    Compressed(SiteFile, Coding, CompressionPermit),
    /// In no other way than that, for which there is no place.
    Busy,
    /// In no coding that the client takes.
    Unknown,
}

/// The file in the coding that the client likes best: a copy that lies there, else compressed.
fn coded(
    file: SiteFile,
    wish: &FileRequest<'_>,
    rules: &SiteRules,
    lookup: &impl Lookup,
) -> Representation {
    if !rules.codes() || is_compressed(file.path.bytes()) {
        return Representation::Found(file);
    }
    let acceptable = Acceptable::parse(wish.accept_encoding);
    let copy = acceptable
        .choices(&rules.precompressed)
        .find_map(|coding| lookup.sibling(&file, coding));
    if let Some(copy) = copy {
        return Representation::Found(copy);
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
            Representation::Compressed(file.into_compressed(coding), coding, place)
        }
        (_, true) => Representation::Found(file),
        (Some((_, None)), false) => Representation::Busy,
        (None, false) => Representation::Unknown,
    }
}

/// What is sent of a folder, which is called by `path`.
fn of_folder(
    folder: SiteFolder,
    path: SitePath,
    asked: Query,
    extras: Extras,
    accept: Option<&[u8]>,
) -> Response<'static> {
    match (asked.archive(), extras.archives, extras.listing) {
        (Some(compression), Archives::Offered, _) => Response::Archive(folder, compression),
        (Some(_), Archives::Off, _) => {
            plain(Status::Forbidden, "folders are not sent as archives here")
        }
        (None, _, Listings::Off) => plain(
            Status::Forbidden,
            "the folder has no index and is not listed",
        ),
        (None, archives, Listings::Offered) => {
            let view = ListingView {
                path,
                format: asked.format.unwrap_or_else(|| preferred(accept)),
                order: asked.order(),
                search: asked.search,
                archives,
            };
            Response::Listing(folder, view)
        }
    }
}

/// What is answered where there is neither file nor folder.
fn without(found: Resolved) -> Response<'static> {
    match found {
        Resolved::Forbidden => plain(Status::Forbidden, "the server may not read it"),
        Resolved::Busy(errno) => Response::Trouble(
            HttpError::new(Status::ServiceUnavailable, "try again later"),
            errno,
        ),
        Resolved::Failed(errno) => Response::Trouble(
            HttpError::new(Status::InternalServerError, "the file cannot be opened"),
            errno,
        ),
        Resolved::Nothing | Resolved::File(_) | Resolved::Folder(_) | Resolved::NoIndex(_) => {
            plain(Status::NotFound, "there is no such file")
        }
    }
}

/// What is sent of a file that is there.
fn selected(file: SiteFile, wish: &FileRequest<'_>, limits: &RequestLimits) -> Response<'static> {
    let conditions = &wish.conditions;
    match conditions.judge(&file.state.validators) {
        ConditionResult::NotModified => return Response::NotModified(file),
        ConditionResult::Failed => return Response::PreconditionFailed(file),
        ConditionResult::Proceed => {}
    }
    let selection = match (wish.method, &wish.range) {
        (Method::Get, Some(range)) if conditions.allow_range(&file.state.validators) => {
            select(range, file.state.size, limits)
        }
        _ => RangeSelection::Whole,
    };
    Response::Content(match selection {
        RangeSelection::Whole => FileBody::Whole(file),
        RangeSelection::One(span) => FileBody::Part(file, span),
        RangeSelection::Several(spans) => FileBody::Parts(file, spans),
        RangeSelection::Unsatisfiable => return Response::Unsatisfiable(file.state.size),
    })
}

fn plain(status: Status, why: &'static str) -> Response<'static> {
    Response::Plain(HttpError::new(status, why))
}
