//! DELETE, MKCOL, COPY and MOVE: RFC 9110 and RFC 4918, without locks and without XML.

use rustix::io::Errno;
use underpass_http::path::{SitePath, encode_path};
use underpass_http::request::request_line::{Method, WriteMethod};
use underpass_http::status::{HttpError, Status};
use underpass_receive::{
    Area, Error as ReceiveFault, FileVersion, NameKind, Overwrite, RelativePath, SyncPolicy,
};

use super::put::{CREATED, REPLACED, not_removed, required_version};
use super::request::{Outcome, WriteRequest, check_displayed, failed, refusal};
use crate::access::permits::Permits;
use crate::answer::text::TextResponse;
use crate::connection::exchanges::Exchanges;
use crate::connection::request_body::RequestBody;
use crate::site::settle::joined;
use crate::site::upload_area::UploadArea;

const REMOVED: HttpError = HttpError::new(Status::NoContent, "removed");
const ROOT: HttpError = HttpError::new(
    Status::Forbidden,
    "the folder that takes files in is neither made nor removed",
);
const FORBIDDEN_PART: HttpError = HttpError::new(
    Status::Forbidden,
    "access rules forbid it for the folder or a part of it",
);
const HOLDS_AREA: HttpError = HttpError::new(
    Status::Forbidden,
    "a folder that takes files in by options of its own is in it",
);
const INTO_ITSELF: HttpError =
    HttpError::new(Status::Conflict, "a folder cannot be moved into itself");
const OTHER_FILE_SYSTEM: HttpError = HttpError::new(
    Status::Conflict,
    "the destination is on another file system, to which only files can be moved",
);
const NO_PARENT: HttpError = HttpError::new(
    Status::Conflict,
    "the folder that it would be in does not exist",
);
const FOLDER_EXISTS: HttpError =
    HttpError::new(Status::MethodNotAllowed, "the name is taken already");
const FOLDER_BODY: HttpError = HttpError::new(
    Status::UnsupportedMediaType,
    "a folder is made without a body; a file is stored by PUT",
);
const NO_DESTINATION: HttpError =
    HttpError::bad("the Destination field is missing, or there twice; it names the new path");
const OTHER_SERVER: HttpError = HttpError::bad(
    "Destination leads to another server than Host; send a path alone, and behind a proxy pass \
     the Host field on",
);
const NO_PATH: HttpError = HttpError::bad(
    "Destination is neither a path that begins with a slash, nor ./NAME, nor a URL of this server",
);
const NO_QUERY: HttpError =
    HttpError::bad("Destination has a query or a fragment; encode ? as %3F and # as %23");
const OTHER_FOLDER: HttpError = HttpError::new(
    Status::Forbidden,
    "source and destination must be in the same folder that takes files in",
);
const NOT_WHOLE: HttpError = HttpError::bad(
    "a folder is removed and moved with everything in it; Depth must be infinity, or left out",
);
const SAME_NAME: HttpError =
    HttpError::new(Status::Forbidden, "source and destination are the same");
const TAKEN: HttpError = HttpError::new(
    Status::PreconditionFailed,
    "the destination exists already, and is not replaced",
);

impl Exchanges<'_> {
    /// Removes a file, or a folder with everything in it.
    pub(super) async fn delete(&mut self, request: &WriteRequest<'_>) -> Outcome {
        if !request.area.options.delete {
            return Ok(not_removed());
        }
        let Some(target) = request.target.clone() else {
            return Ok(TextResponse::new(ROOT));
        };
        if holds_area(request) {
            return Ok(TextResponse::new(HOLDS_AREA));
        }
        let only = match self.present(request).await {
            Ok((_, present)) => required_version(request, present.as_ref()),
            Err(text) => return Ok(text),
        };
        let area = request.area.area.clone();
        let tree = TreePermits::of(request, None);
        let is_whole = is_whole(request);
        let removed = self.blocking(move || {
            Ok(match tree.check(&area, &target)? {
                TreeCheck::Folder if !is_whole => NOT_WHOLE,
                TreeCheck::Forbidden => FORBIDDEN_PART,
                TreeCheck::Folder | TreeCheck::Other => {
                    area.remove(&target, only)?;
                    REMOVED
                }
            })
        });
        Ok(removed.await.map_or_else(failed, TextResponse::new))
    }

    /// Makes a folder in one that exists.
    pub(super) async fn make_folder(
        &mut self,
        request: &WriteRequest<'_>,
        body: &RequestBody,
    ) -> Outcome {
        // RFC 4918, section 9.3.
        if body.left() != Some(0) {
            return Ok(TextResponse::new(FOLDER_BODY));
        }
        let Some(target) = request.target.clone() else {
            return Ok(TextResponse::new(FOLDER_EXISTS));
        };
        if let Err(error) = check_displayed(&target) {
            return Ok(TextResponse::new(error));
        }
        let area = request.area.area.clone();
        let mode = request.area.options.mode.map(|mode| mode.0);
        let made = self.blocking(move || area.make_folder(&target, mode)).await;
        Ok(match made {
            Ok(()) => TextResponse::new(CREATED),
            Err(ReceiveFault::Exists) => TextResponse::new(FOLDER_EXISTS),
            Err(ReceiveFault::NotFound) => TextResponse::new(NO_PARENT),
            Err(error) => failed(error),
        })
    }

    /// Copies a file, or gives a file or a folder another name.
    pub(super) async fn relocate(&mut self, request: &WriteRequest<'_>) -> Outcome {
        let is_move = request.method == WriteMethod::Move;
        if is_move && !request.area.options.delete {
            return Ok(not_removed());
        }
        let Some(from) = request.target.clone() else {
            return Ok(TextResponse::new(ROOT));
        };
        if is_move && holds_area(request) {
            return Ok(TextResponse::new(HOLDS_AREA));
        }
        let path = match destination(request) {
            Ok(path) => path,
            Err(error) => return Ok(TextResponse::new(error)),
        };
        // RFC 4918, sections 9.8.5 and 9.9.4.
        if path.bytes() == request.path.bytes() {
            return Ok(TextResponse::new(SAME_NAME));
        }
        // RFC 4918, section 10.6: by default it is.
        let overwrite = match request.fields.once("Overwrite") {
            Ok(None | Some(b"T")) => request.area.options.overwrite,
            _ => false,
        };
        let to = match self.may_arrive(request, &path) {
            Ok(to) => to,
            Err(text) => return Ok(text),
        };
        let overwrite = match overwrite {
            true => Overwrite::Allowed,
            false => Overwrite::Refused,
        };
        let options = &request.area.options;
        let (area, terms) = (
            request.area.area.clone(),
            (options.sync, options.mode.map(|mode| mode.0)),
        );
        let tree = TreePermits::of(request, Some(&path));
        let is_whole = is_whole(request);
        let done = self.blocking(move || {
            if is_move {
                match tree.check(&area, &from)? {
                    TreeCheck::Folder if !is_whole => return Ok(NOT_WHOLE),
                    TreeCheck::Forbidden => return Ok(FORBIDDEN_PART),
                    TreeCheck::Folder | TreeCheck::Other => {}
                }
            }
            let has_replaced = match is_move {
                true => relocate(&area, (&from, &to), overwrite, terms)?,
                false => area.copy(&from, &to, overwrite, terms)?.has_replaced,
            };
            Ok(if has_replaced { REPLACED } else { CREATED })
        });
        Ok(match done.await {
            Ok(status) => TextResponse::new(status),
            Err(ReceiveFault::Exists) => TextResponse::new(TAKEN),
            Err(ReceiveFault::Io {
                errno: Errno::INVAL,
                ..
            }) => TextResponse::new(INTO_ITSELF),
            Err(ReceiveFault::Io {
                errno: Errno::XDEV, ..
            }) => TextResponse::new(OTHER_FILE_SYSTEM),
            Err(error) => failed(error),
        })
    }

    /// Whether something may be put at the destination: its path in the area.
    fn may_arrive(
        &self,
        request: &WriteRequest<'_>,
        path: &SitePath,
    ) -> Result<RelativePath, TextResponse> {
        // Whoever moves a thing to where he may read it reads it.
        for (method, path) in [
            (Method::Get, request.path),
            (Method::Write(WriteMethod::Put), path),
        ] {
            let permits = request.permits.map(|permits| permits.asking(method));
            if let Some(text) = refusal(request.site, permits.as_ref(), path) {
                return Err(text);
            }
        }
        let found = UploadArea::of(&request.site.uploads, path);
        let is_same = |area: &UploadArea| std::ptr::eq(area, request.area);
        let Some((_, target)) = found.filter(|(area, _)| is_same(area)) else {
            return Err(TextResponse::new(OTHER_FOLDER));
        };
        match target {
            Ok(Some(target)) => match check_displayed(&target) {
                Ok(()) => Ok(target),
                Err(error) => Err(TextResponse::new(error)),
            },
            Ok(None) => Err(failed(ReceiveFault::IsFolder)),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Gives a file or a folder another name; a file is copied to another file system. Returns whether
/// it has replaced a file.
fn relocate(
    area: &Area,
    (from, to): (&RelativePath, &RelativePath),
    overwrite: Overwrite,
    terms: (SyncPolicy, Option<u32>),
) -> Result<bool, ReceiveFault> {
    let renamed = area.rename(from, to, overwrite);
    let Err(ReceiveFault::Io {
        errno: Errno::XDEV, ..
    }) = renamed
    else {
        return renamed;
    };
    let stat = area.stat(from)?;
    if NameKind::of(&stat) != NameKind::File {
        return renamed;
    }
    let committed = area.copy(from, to, overwrite, terms)?;
    area.remove(from, Some(FileVersion::of(&stat)))?;
    Ok(committed.has_replaced)
}

/// Whether another upload area is in the folder that a request is about.
fn holds_area(request: &WriteRequest<'_>) -> bool {
    let folder = [request.path.bytes(), b"/"].concat();
    let mut areas = request.site.uploads.iter();
    areas.any(|area| area.options.path.as_str().as_bytes().starts_with(&folder))
}

/// Whether a request is about all of a folder, by its Depth (RFC 4918, sections 9.6.1 and 9.9.2).
fn is_whole(request: &WriteRequest<'_>) -> bool {
    match request.fields.once("Depth") {
        Ok(depth) => depth.is_none_or(|depth| depth.eq_ignore_ascii_case(b"infinity")),
        Err(_) => false,
    }
}

/// What is to be removed or moved.
enum TreeCheck {
    /// A folder, with nothing beneath it that must stay.
    Folder,
    Other,
    /// Rules forbid it for the folder or a part of it.
    Forbidden,
}

/// The permits for everything in a tree that is removed or moved: rules may be about a part of it.
struct TreePermits {
    permits: Option<Permits>,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl TreePermits {
    fn of(request: &WriteRequest<'_>, to: Option<&SitePath>) -> TreePermits {
        TreePermits {
            permits: request.permits.cloned(),
            from: request.path.bytes().to_vec(),
            to: to.map(|to| to.bytes().to_vec()),
        }
    }

    /// Checks a folder's parent and every entry beneath it; the folder itself has been checked.
    fn check(&self, area: &Area, target: &RelativePath) -> Result<TreeCheck, ReceiveFault> {
        if NameKind::of(&area.stat(target)?) != NameKind::Folder {
            return Ok(TreeCheck::Other);
        }
        let Some(permits) = &self.permits else {
            return Ok(TreeCheck::Folder);
        };
        let [read, remove, put] = [
            Method::Get,
            Method::Write(WriteMethod::Delete),
            Method::Write(WriteMethod::Put),
        ]
        .map(|method| permits.asking(method));
        let accepts = |beneath: &[u8]| {
            let from = joined(&self.from, beneath);
            let to = self.to.as_ref().map(|to| joined(to, beneath));
            remove.allow(&from) && to.is_none_or(|to| read.allow(&from) && put.allow(&to))
        };
        // A rule about a folder is about its content; its name is its parent's.
        let parent = self.from.iter().rposition(|&byte| byte == b'/');
        let parent = &self.from[..parent.unwrap_or(0)];
        Ok(
            match remove.allow(parent) && area.all_beneath(target, accepts)? {
                true => TreeCheck::Folder,
                false => TreeCheck::Forbidden,
            },
        )
    }
}

/// The path that `Destination` names on this server, whatever the scheme, which a proxy may have
/// changed. `./NAME`, which RFC 4918 does not have, is in the folder of the request: it is right
/// where a proxy has removed a part of the path, too.
fn destination(request: &WriteRequest<'_>) -> Result<SitePath, HttpError> {
    let value = request.fields.once("Destination").ok().flatten();
    let value = value.ok_or(NO_DESTINATION)?;
    if value.iter().any(|byte| b"?#".contains(byte)) {
        return Err(NO_QUERY);
    }
    if let Some(name) = value.strip_prefix(b"./") {
        let mut path = b"/".to_vec();
        let folder = request.path.bytes();
        let folder = &folder[..folder.len() - request.path.name().len()];
        encode_path(folder, &mut path);
        path.extend_from_slice(name);
        let is_name = !name.contains(&b'/');
        return SitePath::parse(&path)
            .ok()
            .filter(|_| is_name)
            .ok_or(NO_PATH);
    }
    let path = match value.windows(3).position(|three| three == b"://") {
        Some(scheme) if value[..scheme].iter().all(u8::is_ascii_alphabetic) => {
            let rest = &value[scheme + 3..];
            let slash = rest.iter().position(|&byte| byte == b'/');
            let (host, path) = rest.split_at(slash.ok_or(NO_PATH)?);
            let is_here = |own: &[u8]| own.eq_ignore_ascii_case(host);
            match request.head.authority.is_some_and(is_here) {
                true => path,
                false => return Err(OTHER_SERVER),
            }
        }
        _ => value,
    };
    match path.starts_with(b"/") {
        true => SitePath::parse(path).map_err(|_| NO_PATH),
        false => Err(NO_PATH),
    }
}
