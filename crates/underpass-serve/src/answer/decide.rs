//! Decides the response to a request. Pure: all lookups go through [`Lookup`].
//!
//! ```text
//!  method ─► expectation ─► target ─► permitted? ─► redirect? ─► rewrite ─► hidden? ─► try ─┐
//!                                                                                           │
//!  digest ◄─ range ◄─ conditions ◄─ coding ◄─ saved or shown? ◄─ or fallback ◄─ found? ◄────┤
//!                                             listing or archive of a folder ◄──────────────┘
//! ```

use underpass_http::fields::coding::{Acceptable, Coding, is_compressed};
use underpass_http::fields::condition::{ConditionResult, Conditions};
use underpass_http::fields::digest::{FileDigest, HashAlgorithm};
use underpass_http::fields::range::{RangeSelection, select};
use underpass_http::fields::repr_digest::{WantedDigest, wanted};
use underpass_http::path::{PathForm, SitePath, encode_path};
use underpass_http::request::head::{Expectation, RequestHead};
use underpass_http::request::request_line::{HttpTarget, Method, WriteMethod, split_port};
use underpass_http::scheme::https_origin;
use underpass_http::status::{HttpError, Status};
use underpass_http::version::HttpVersion;

use crate::access::rules::AccessRefusal;
use crate::answer::refusal::refused;
use crate::answer::text::TextResponse;
use crate::body::compressed::CompressionPermit;
use crate::body::listing::view::{FolderChanges, ListingView};
use crate::body::query::{ArchiveFormat, Download, ListingFormat, Query};
use crate::limits::BUSY;
use crate::limits::RequestLimits;
use crate::rules::{
    Candidate, Compressible, MatchedRedirect, Offer, RequestedPath, RewrittenPath, SoughtPath,
};
use crate::site::file::{Resolved, SiteFile};
use crate::site::folder::SiteFolder;
use crate::site::site_rules::SiteRules;

/// The response to a request.
#[derive(Debug)]
pub(crate) enum Response {
    /// A complete response, whose head can be written.
    Ready(ReadyResponse),
    /// 200: a body that is produced while it is sent.
    Produced(Production),
    /// A response that contains the hash of a file, which has to be computed first.
    AwaitsHash(HashPurpose),
}

/// A response that can be written immediately.
#[derive(Debug)]
pub(crate) enum ReadyResponse {
    /// 200 or 206, with the hash of the file if the client asked for it.
    Content(FileBody, Option<FileDigest>),
    /// 200: the hash of a file as a line of text.
    HashLine(SiteFile, FileDigest),
    /// 304.
    NotModified(SiteFile),
    /// 204 with the allowed methods.
    Options,
    /// A status, explained in one line of text or by the site's page for it.
    Text(TextResponse),
}

/// The stored bytes of a file to send.
#[derive(Debug)]
pub(crate) struct FileBody {
    pub(crate) file: SiteFile,
    pub(crate) ranges: RangeSelection,
}

/// A body that has to be produced.
#[derive(Debug)]
pub(crate) enum Production {
    /// The contents of a folder.
    Listing(SiteFolder, ListingView),
    /// The contents of a folder as an archive.
    Archive(SiteFolder, ArchiveFormat),
    /// A whole file, compressed.
    Compressed(SiteFile, Coding, CompressionPermit),
}

/// The use of a hash.
#[derive(Debug)]
pub(crate) enum HashPurpose {
    /// The response body itself.
    Line(SiteFile, HashAlgorithm),
    /// `Repr-Digest` of a response; the field is omitted if the hash is unavailable.
    Field(FileBody),
}

impl HashPurpose {
    /// Returns the file to hash and the algorithm.
    pub(crate) fn subject(&self) -> (&SiteFile, HashAlgorithm) {
        match self {
            HashPurpose::Line(file, algorithm) => (file, *algorithm),
            HashPurpose::Field(body) => (&body.file, HashAlgorithm::Sha256),
        }
    }
}

impl From<TextResponse> for Response {
    fn from(text: TextResponse) -> Response {
        Response::Ready(ReadyResponse::Text(text))
    }
}

/// The lookups of a decision: the file system, and free capacity for compression.
pub(crate) trait Lookup {
    /// Checks whether the requester may read a path, whether or not it exists.
    fn permit(&self, path: &SitePath) -> Result<(), AccessRefusal>;

    /// Returns the number of names in the path of the requester's signed link; 0 without a link.
    fn link_depth(&self) -> usize;

    /// Resolves a path.
    fn find(&self, path: SitePath) -> Resolved;

    /// Resolves the folder of a path, whether or not it has an index.
    fn folder(&self, path: SitePath) -> Resolved;

    /// Returns what the requester may change in a folder that is there, besides adding files.
    fn changes(&self, folder: &SitePath) -> Option<FolderChanges>;

    /// Returns the stored copy of a file in a coding.
    fn precompressed(&self, file: &SiteFile, coding: Coding) -> Option<SiteFile>;

    /// Returns a permit to compress one more body, if one is free.
    fn compression_permit(&self) -> Option<CompressionPermit>;
}

/// Decides the response by the rules of a site.
pub(crate) fn decide(
    request: RequestHead<'_>,
    rules: &SiteRules,
    limits: &RequestLimits,
    lookup: &impl Lookup,
) -> Response {
    if let Some(response) = by_method(&request, rules) {
        return response;
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
    let HttpTarget::Path { path, query, .. } = target else {
        return text(Status::BadRequest, "the target is not a path");
    };
    let access = match lookup.permit(&path) {
        Ok(()) => PathAccess::Permitted,
        Err(_) if rules.options.access.conceal => PathAccess::Concealed,
        Err(refusal) => return refused(refusal, &rules.options.access).into(),
    };
    if let Some(MatchedRedirect { status, location }) = rules.redirected(&path, query) {
        return moved(status, "moved", &location);
    }
    let parameters = query.map(Query::parse).unwrap_or_default();
    if parameters.download == Some(Download::OtherArchive) && path.form() == PathForm::Folder {
        return TextResponse::new(UNKNOWN_ARCHIVE).into();
    }
    let requested = path.clone();
    let (found, asked) = located(rules.rewritten(path), access, &parameters, rules, lookup);
    match found {
        Resolved::File(file) => {
            let request = FileRequest {
                method,
                version,
                conditions,
                range,
                accept_encoding: fields.accept_encoding.as_deref(),
                digest: fields.want_repr_digest.as_deref(),
                parameters,
            };
            of_file(file, request, rules, limits, lookup)
        }
        Resolved::Folder(folder) => folder_moved(&requested, &asked.unwrap_or(folder), query),
        Resolved::NoIndex(folder) => {
            let view = ListingView {
                path: asked.unwrap_or_else(|| folder.path.clone()),
                top: lookup.link_depth(),
                format: (parameters.format)
                    .unwrap_or_else(|| ListingFormat::preferred(fields.accept.as_deref())),
                query: parameters,
                archives: rules.extras.archives,
                changes: None,
            };
            of_folder(folder, view, rules.extras.listing, lookup)
        }
        Resolved::Refused(refusal) => refused(refusal, &rules.options.access).into(),
        found => without(found),
    }
}

/// Returns the response to a request with an expectation or a method that needs no lookup.
fn by_method(request: &RequestHead<'_>, rules: &SiteRules) -> Option<Response> {
    Some(match (request.expect, request.method) {
        (Expectation::Unknown, _) => text(Status::ExpectationFailed, "unknown expectation"),
        (
            _,
            Method::Write(WriteMethod::Mkcol | WriteMethod::Copy | WriteMethod::Move)
            | Method::Unknown,
        ) => text(Status::NotImplemented, "unknown method"),
        (_, Method::Write(_) | Method::Disabled | Method::Connect) => {
            TextResponse::new(NOT_ALLOWED)
                .with_field("Allow", rules.allowed_methods())
                .into()
        }
        (_, Method::Options) => Response::Ready(ReadyResponse::Options),
        (_, Method::Get | Method::Head) => return None,
    })
}

/// Redirects a request that came unencrypted to HTTPS on `port`. Returns `None` for an ACME
/// challenge (RFC 8555, section 8.3), which is served without encryption.
pub(crate) fn to_https(request: &RequestHead<'_>, port: u16) -> Option<TextResponse> {
    let HttpTarget::Path { path, query, .. } = &request.target else {
        return Some(TextResponse::new(ENCRYPTED_ONLY));
    };
    if path.bytes().starts_with(ACME_CHALLENGES) {
        return None;
    }
    let (Method::Get | Method::Head, Some(authority)) = (request.method, request.authority) else {
        return Some(TextResponse::new(ENCRYPTED_ONLY));
    };
    let mut location = https_origin(split_port(authority).0, port);
    push_target(&mut location, path, path.form(), *query);
    let why = HttpError::new(Status::PermanentRedirect, "this is served over HTTPS");
    Some(TextResponse::new(why).with_field("Location", &location))
}

/// The folder of ACME challenges.
const ACME_CHALLENGES: &[u8] = b".well-known/acme-challenge/";

const ENCRYPTED_ONLY: HttpError =
    HttpError::new(Status::BadRequest, "this is served over HTTPS only");

const NOT_ALLOWED: HttpError = HttpError::new(Status::MethodNotAllowed, "this server is read-only");
const CHANGED: HttpError = HttpError::new(
    Status::PreconditionFailed,
    "the file does not match the condition",
);
const OUT_OF_RANGE: HttpError = HttpError::new(
    Status::RangeNotSatisfiable,
    "the range starts behind the end of the file",
);
const UNKNOWN_ARCHIVE: HttpError = HttpError::new(
    Status::BadRequest,
    "unknown archive format; expected download=tar or download=tar.zst",
);
const NO_CODING: HttpError = HttpError::new(
    Status::NotAcceptable,
    "the file is not available in an accepted coding",
);

fn text(status: Status, why: &'static str) -> Response {
    TextResponse::new(HttpError::new(status, why)).into()
}

fn moved(status: Status, why: &'static str, location: &[u8]) -> Response {
    TextResponse::new(HttpError::new(status, why))
        .with_field("Location", location)
        .into()
}

/// Redirects a request without the trailing slash to the folder.
fn folder_moved(requested: &SitePath, folder: &SitePath, query: Option<&[u8]>) -> Response {
    let location = folder_location(requested, folder, query);
    moved(Status::MovedPermanently, "this is a folder", &location)
}

/// Returns the path of a folder with its slash, percent-encoded, and the query of the request. For
/// a folder requested without its slash, the path is relative (RFC 9110, section 10.2.2), so that
/// it is also right if a proxy has passed on only a part of the path.
fn folder_location(requested: &SitePath, folder: &SitePath, query: Option<&[u8]>) -> Vec<u8> {
    let mut location = Vec::new();
    if requested.bytes() != folder.bytes() || folder.bytes().is_empty() {
        push_target(&mut location, folder, PathForm::Folder, query);
        return location;
    }
    let segment = folder.bytes().rsplit(|byte| *byte == b'/').next();
    let segment = segment.unwrap_or_default();
    if segment.contains(&b':') {
        // A browser would take the part before the colon for a URL scheme.
        location.extend_from_slice(b"./");
    }
    encode_path(segment, &mut location);
    location.push(b'/');
    push_query(&mut location, query);
    location
}

fn push_target(location: &mut Vec<u8>, path: &SitePath, form: PathForm, query: Option<&[u8]>) {
    path.encode_into(location);
    if form == PathForm::Folder && !path.bytes().is_empty() {
        location.push(b'/');
    }
    push_query(location, query);
}

fn push_query(location: &mut Vec<u8>, query: Option<&[u8]>) {
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
}

/// Whether the target of a path may be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PathAccess {
    Permitted,
    /// Denied, with the same response as for a name that does not exist.
    Concealed,
}

/// Resolves a path, or the fallback if nothing is found; also returns the name of a folder if it
/// differs from its path. A hidden path resolves to nothing, not even to the fallback.
fn located(
    rewritten: RewrittenPath,
    access: PathAccess,
    query: &Query,
    rules: &SiteRules,
    lookup: &impl Lookup,
) -> (Resolved, Option<SitePath>) {
    let RewrittenPath { path, asked } = rewritten;
    if rules.hides(&path) {
        return (Resolved::Nothing, None);
    }
    let concealed = |found| match found {
        Resolved::Refused(_) if rules.options.access.conceal => Resolved::Nothing,
        found => found,
    };
    let seek = |path: SitePath| match (path.form(), rules.extras.archives) {
        (PathForm::Folder, Offer::On) if query.archive().is_some() => {
            concealed(lookup.folder(path))
        }
        _ => concealed(lookup.find(path)),
    };
    let may_lead = |one: &&Candidate| access == PathAccess::Permitted || one.is_page();
    let (found, called) = match (rules.tries(&path), asked, access) {
        (Some(candidates), RequestedPath::Tree(asked), _) => tried(
            candidates.iter().filter(may_lead),
            &path,
            &asked,
            rules,
            seek,
        ),
        (Some(candidates), ..) => tried(
            candidates.iter().filter(may_lead),
            &path,
            &path,
            rules,
            seek,
        ),
        (None, RequestedPath::Alone, _) => (alone(path, rules, seek), None),
        (None, _, PathAccess::Concealed) => (Resolved::Nothing, None),
        (None, RequestedPath::Same, _) => (seek(path), None),
        (None, RequestedPath::Tree(asked), _) => (seek(path), Some(asked)),
    };
    match (found, &rules.options.fallback) {
        (Resolved::Nothing, Some(fallback)) => {
            (concealed(lookup.find(fallback.path().clone())), None)
        }
        (found, _) => (found, called),
    }
}

/// Returns the first of `candidates` that exists. Hidden paths are skipped.
fn tried<'c>(
    candidates: impl Iterator<Item = &'c Candidate>,
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

/// Resolves the replacement of a single path. A folder is answered with a redirect: relative links
/// in its page would lead to paths that no rewrite covers.
fn alone(path: SitePath, rules: &SiteRules, seek: impl Fn(SitePath) -> Resolved) -> Resolved {
    let folder = (path.form() == PathForm::Folder && rules.is_final(&path)).then(|| path.clone());
    match (seek(path), folder) {
        (Resolved::File(_) | Resolved::NoIndex(_), Some(folder)) => Resolved::Folder(folder),
        (found, _) => found,
    }
}

/// The parts of a request that matter for a file.
struct FileRequest<'b> {
    method: Method,
    version: HttpVersion,
    conditions: Option<Conditions<'b>>,
    range: Option<&'b [u8]>,
    accept_encoding: Option<&'b [u8]>,
    digest: Option<&'b [u8]>,
    parameters: Query,
}

impl FileRequest<'_> {
    /// Whether the request needs bytes that are the same every time (ranges, strong comparison), or
    /// its client does not support chunked bodies and could not detect a truncated one.
    fn prefers_plain(&self) -> bool {
        self.method == Method::Get && self.range.is_some()
            || matches!(&self.conditions, Some(asked) if asked.if_match.is_some())
            || self.version == HttpVersion::Http10
    }
}

/// Returns the hash of a file, if the query asks for it, or its content.
fn of_file(
    file: SiteFile,
    request: FileRequest<'_>,
    rules: &SiteRules,
    limits: &RequestLimits,
    lookup: &impl Lookup,
) -> Response {
    let hashes = rules.extras.hashes;
    if let (Some(algorithm), Offer::On) = (request.parameters.hash, hashes) {
        return if_changed(file, &request, |file| {
            Response::AwaitsHash(HashPurpose::Line(file, algorithm))
        });
    }
    let file = match rules.options.download && request.parameters.download.is_some() {
        true => file.into_download(),
        false => file,
    };
    match represented(file, &request, rules, lookup) {
        Representation::Stored(file) => if_changed(file, &request, |file| {
            let wanted = match hashes {
                Offer::On => wanted(request.digest),
                Offer::Off => WantedDigest::Nothing,
            };
            content(file, &request, limits, wanted)
        }),
        Representation::Compressed(file, coding, permit) => if_changed(file, &request, |file| {
            Response::Produced(Production::Compressed(file, coding, permit))
        }),
        Representation::Busy => TextResponse::new(BUSY).into(),
        Representation::Unacceptable => TextResponse::new(NO_CODING).about_file().into(),
    }
}

/// Evaluates the conditions of a request, and continues with `proceed` if they hold.
fn if_changed(
    file: SiteFile,
    request: &FileRequest<'_>,
    proceed: impl FnOnce(SiteFile) -> Response,
) -> Response {
    let validators = &file.state.validators;
    let judged = request
        .conditions
        .as_ref()
        .map(|asked| asked.judge(validators));
    match judged {
        None | Some(ConditionResult::Proceed) => proceed(file),
        Some(ConditionResult::NotModified) => Response::Ready(ReadyResponse::NotModified(file)),
        Some(ConditionResult::Failed) => TextResponse::new(CHANGED)
            .with_field("ETag", validators.tag.as_bytes())
            .about_file()
            .into(),
    }
}

/// The representation of a file.
enum Representation {
    /// The stored file, or a stored copy of it in a coding.
    Stored(SiteFile),
    /// Compressed while it is sent.
    Compressed(SiteFile, Coding, CompressionPermit),
    /// Only a compressed body is acceptable, and no permit is free.
    Busy,
    /// The client accepts none of the available codings.
    Unacceptable,
}

/// Selects the coding that the client prefers: a stored copy, else a compressed body.
fn represented(
    file: SiteFile,
    request: &FileRequest<'_>,
    rules: &SiteRules,
    lookup: &impl Lookup,
) -> Representation {
    if !rules.codes || is_compressed(file.path.bytes()) {
        return Representation::Stored(file);
    }
    let acceptable = Acceptable::parse(request.accept_encoding);
    let copy = acceptable
        .choices(&rules.options.precompressed)
        .find_map(|coding| lookup.precompressed(&file, coding));
    if let Some(copy) = copy {
        return Representation::Stored(copy);
    }
    let takes_plain = acceptable.takes_identity();
    let coding = match file.state.label.compressible {
        Compressible::Yes if !(takes_plain && request.prefers_plain()) => {
            rules.compress.choose(file.state.stamp.size, &acceptable)
        }
        _ => None,
    };
    let permit = coding.map(|coding| (coding, lookup.compression_permit()));
    match (permit, takes_plain) {
        (Some((coding, Some(permit))), _) => {
            Representation::Compressed(file.into_compressed(coding), coding, permit)
        }
        (_, true) => Representation::Stored(file),
        (Some((_, None)), false) => Representation::Busy,
        (None, false) => Representation::Unacceptable,
    }
}

/// Returns the stored content of a file, or the ranges that the request selects.
fn content(
    file: SiteFile,
    request: &FileRequest<'_>,
    limits: &RequestLimits,
    wanted: WantedDigest,
) -> Response {
    let size = file.state.stamp.size;
    let applies = |asked: &Conditions<'_>| asked.allow_range(&file.state.validators);
    let ranges = match (request.method, request.range) {
        (Method::Get, Some(range)) if request.conditions.as_ref().is_none_or(applies) => {
            select(range, size, limits.ranges_max)
        }
        _ => Some(RangeSelection::Whole),
    };
    match (ranges, wanted) {
        (None, _) => TextResponse::new(OUT_OF_RANGE)
            .with_field("Content-Range", format!("bytes */{size}").as_bytes())
            .about_file()
            .into(),
        (Some(ranges), WantedDigest::Sha256) => {
            Response::AwaitsHash(HashPurpose::Field(FileBody { file, ranges }))
        }
        (Some(ranges), WantedDigest::Nothing) => {
            Response::Ready(ReadyResponse::Content(FileBody { file, ranges }, None))
        }
    }
}

/// Returns the response for a folder: an archive, if requested, or its listing.
fn of_folder(
    folder: SiteFolder,
    mut view: ListingView,
    listing: Offer,
    lookup: &impl Lookup,
) -> Response {
    match (view.query.archive(), view.archives, listing) {
        (Some(format), Offer::On, _) => Response::Produced(Production::Archive(folder, format)),
        (Some(_), Offer::Off, _) => text(Status::Forbidden, "archives of folders are disabled"),
        (None, _, Offer::Off) => text(
            Status::Forbidden,
            "the folder has no index, and listings are disabled",
        ),
        (None, _, Offer::On) => {
            // A link is for reading, and requests that change something are not rewritten.
            let is_own = view.query.signed.is_none() && view.path.bytes() == folder.path.bytes();
            view.changes = is_own.then(|| lookup.changes(&view.path)).flatten();
            Response::Produced(Production::Listing(folder, view))
        }
    }
}

/// Returns the response if neither a file nor a folder was found.
fn without(found: Resolved) -> Response {
    match found {
        Resolved::Forbidden => text(Status::Forbidden, "the server may not read it"),
        Resolved::Busy(errno) => {
            let error = HttpError::new(Status::ServiceUnavailable, "try again later");
            TextResponse::caused(error, errno).into()
        }
        Resolved::Failed(errno) => {
            let error = HttpError::new(Status::InternalServerError, "the file cannot be opened");
            TextResponse::caused(error, errno).into()
        }
        Resolved::Refused(_)
        | Resolved::Nothing
        | Resolved::File(_)
        | Resolved::Folder(_)
        | Resolved::NoIndex(_) => text(Status::NotFound, "there is no such file"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn ranges_strong_comparisons_and_old_clients_want_the_plain_file() {
        let strong = Conditions {
            if_match: Some(b"*".into()),
            ..Conditions::default()
        };
        let weak = Conditions {
            if_none_match: Some(b"*".into()),
            ..Conditions::default()
        };
        let (range, new) = (Some(&b"bytes=0-"[..]), HttpVersion::Http11);
        for (method, range, conditions, version, expected) in [
            (Method::Get, None, None, new, false),
            (Method::Get, range, None, new, true),
            (Method::Head, range, None, new, false),
            (Method::Get, None, Some(strong), new, true),
            (Method::Get, None, Some(weak), new, false),
            (Method::Get, None, None, HttpVersion::Http10, true),
        ] {
            let request = FileRequest {
                method,
                version,
                conditions,
                range,
                accept_encoding: None,
                digest: None,
                parameters: Query::default(),
            };
            let what = (method, range, version);
            assert_eq!(request.prefers_plain(), expected, "{what:?}");
        }
    }

    #[test]
    fn an_error_of_the_system_keeps_its_cause() {
        let error = HttpError::bad("no such thing");
        let caused = TextResponse::caused(error, Errno::IO);
        assert_eq!((caused.error, caused.cause), (error, Some(Errno::IO)));
    }

    #[test]
    fn a_location_has_one_slash_in_front_and_keeps_the_query() {
        let requested = SitePath::parse(b"/somewhere").unwrap();
        let located = |raw: &[u8], query| {
            let folder = SitePath::parse(raw).unwrap();
            String::from_utf8(folder_location(&requested, &folder, query)).unwrap()
        };
        assert_eq!(located(b"//evil", None), "/evil/");
        assert_eq!(located(b"/%5cevil", None), "/%5Cevil/");
        assert_eq!(located(b"/a%0d%0ab", Some(b"q=1")), "/a%0D%0Ab/?q=1");
        assert_eq!(located(b"/%C3%BC%3f", None), "/%C3%BC%3F/");
    }

    #[test]
    fn the_location_of_the_requested_folder_is_relative() {
        let located = |raw: &[u8], query| {
            let folder = SitePath::parse(raw).unwrap();
            String::from_utf8(folder_location(&folder, &folder, query)).unwrap()
        };
        assert_eq!(located(b"/files/sub", None), "sub/");
        assert_eq!(located(b"/sub", Some(b"a=b")), "sub/?a=b");
        assert_eq!(located(b"//evil.example", None), "evil.example/");
        assert_eq!(
            located(b"/javascript:alert(1)", None),
            "./javascript:alert(1)/"
        );
        assert_eq!(located(b"/a/%0d%0aX: y", None), "./%0D%0AX:%20y/");
        assert_eq!(located(b"/%5c%5cevil", None), "%5C%5Cevil/");
        assert_eq!(located(b"/", None), "/");
    }
}
