//! Resumable uploads: one state machine for tus 1.0 and the IETF's draft, which differ only in
//! their fields.
//!
//! ```text
//!                         ┌──────────────── cut, or ended by a newer request ───────────────┐
//!                         ▼                                                                 │
//!  POST, PUT ─► record ─► idle ─► HEAD: offset   PATCH ─► turn ─► bytes at the offset ─► all?
//!                         │  ▲                                                              │ │
//!        DELETE, expiry ◄─┘  └────────────────────────────── not all ───────────────────────┘ │
//!                                    name taken: stays ◄── access, overwrite, commit ◄────────┘
//! ```
//!
//! A reported offset never decreases: it is the size of the partial file, read while no request
//! writes to it.

mod append;
mod concatenate;
mod create;
mod detail;
mod progress;
mod reply;

use std::time::{Duration, SystemTime};

use underpass_receive::{
    Committed, Error as ReceiveFault, Overwrite, PartialFile, RelativePath, UploadId, UploadRecord,
};

use self::reply::{UploadProgress, UploadProtocol};
pub(super) use self::reply::{labelled, options};
use underpass_http::request::request_line::{Method, WriteMethod};
use underpass_http::status::{HttpError, Status};

use super::put::{WRONG_DIGEST, stored};
use super::request::{Outcome, StepResult, Stop, WriteRequest, named_asker, outcome};
use crate::answer::text::TextResponse;
use crate::connection::exchanges::Exchanges;
use crate::connection::request_body::RequestBody;
use crate::connection::upload_protocols::fields::{ExpectedDigest, HeadFields};
use crate::connection::upload_protocols::ietf::UploadFields;
use crate::connection::upload_protocols::location::upload_of;
use crate::connection::upload_protocols::multipart::MultipartReader;
use crate::connection::upload_protocols::running::{CompletedUpload, UploadTurn};
use crate::connection::upload_protocols::tus;

/// The operation that a request asks for, by its method and fields.
#[derive(Debug)]
pub(super) enum RequestedChange {
    Options,
    /// To change what is served.
    Write(WriteMethod),
    Upload(UploadAction),
}

/// An operation on an upload.
#[derive(Debug)]
pub(super) enum UploadAction {
    CreateTus,
    CreateIetf(UploadFields),
    Offset(UploadId),
    Append(UploadId),
    Cancel(UploadId),
}

const UPLOAD_METHODS: HttpError = HttpError::new(
    Status::MethodNotAllowed,
    "an upload is continued by HEAD, PATCH and DELETE",
);
const CONTINUED_BY: &[u8] = b"HEAD, PATCH, DELETE, OPTIONS";
const COMPLETED: HttpError = HttpError::new(Status::NoContent, "the upload is complete");
const CANCELLED: HttpError = HttpError::new(Status::NoContent, "cancelled");
const NO_TARGET: HttpError = HttpError::bad("a part of a file has no name of its own");

impl RequestedChange {
    /// Distinguishes uploads from other requests. Returns the response to an unsupported operation.
    pub(super) fn of(
        method: Method,
        fields: &HeadFields<'_>,
        query: Option<&[u8]>,
    ) -> Result<RequestedChange, TextResponse> {
        RequestedChange::parse(method, fields, query).map_err(|error| match error {
            UPLOAD_METHODS => TextResponse::new(error).with_field("Allow", CONTINUED_BY),
            error => TextResponse::new(error),
        })
    }

    fn parse(
        method: Method,
        fields: &HeadFields<'_>,
        query: Option<&[u8]>,
    ) -> Result<RequestedChange, HttpError> {
        let Method::Write(write) = method else {
            return match (method, upload_of(query)) {
                (Method::Head, Some(id)) => Ok(RequestedChange::Upload(UploadAction::Offset(id?))),
                _ => Ok(RequestedChange::Options),
            };
        };
        if let WriteMethod::Mkcol | WriteMethod::Copy | WriteMethod::Move = write {
            return Ok(RequestedChange::Write(write));
        }
        if let Some(id) = upload_of(query) {
            return UploadAction::continued(write, fields, id?).map(RequestedChange::Upload);
        }
        if let WriteMethod::Put | WriteMethod::Post = write {
            if write == WriteMethod::Post && tus::is_tus(fields)? {
                return Ok(RequestedChange::Upload(UploadAction::CreateTus));
            }
            let asked = UploadFields::parse(fields)?;
            let is_form = write == WriteMethod::Post && is_form(fields)?;
            if asked.creates() && !is_form {
                return Ok(RequestedChange::Upload(UploadAction::CreateIetf(asked)));
            }
            if asked.is_last == Some(true) && !is_form {
                return Ok(RequestedChange::Write(WriteMethod::Put));
            }
        }
        Ok(RequestedChange::Write(write))
    }

    /// The method that access rules check. Permission to upload a file includes querying and
    /// cancelling the upload.
    pub(super) fn judged_as(&self) -> WriteMethod {
        match self {
            RequestedChange::Write(method) => *method,
            RequestedChange::Upload(_) | RequestedChange::Options => WriteMethod::Put,
        }
    }
}

impl UploadAction {
    fn continued(
        method: WriteMethod,
        fields: &HeadFields<'_>,
        id: UploadId,
    ) -> Result<UploadAction, HttpError> {
        let method = match (method, fields.once("X-HTTP-Method-Override")?) {
            (WriteMethod::Post, Some(b"PATCH")) => WriteMethod::Patch,
            (WriteMethod::Post, Some(b"DELETE")) => WriteMethod::Delete,
            (WriteMethod::Post, Some(b"HEAD")) => return Ok(UploadAction::Offset(id)),
            (method, _) => method,
        };
        match method {
            WriteMethod::Patch => Ok(UploadAction::Append(id)),
            WriteMethod::Delete => Ok(UploadAction::Cancel(id)),
            _ => Err(UPLOAD_METHODS),
        }
    }
}

/// An upload locked for this request.
struct OpenUpload {
    /// Dropped first: the next request finds it unlocked.
    partial: PartialFile,
    turn: UploadTurn,
}

/// An upload that a request continues.
enum FoundUpload {
    Open(OpenUpload),
    /// Its file has its name.
    Completed(CompletedUpload),
}

/// Attempts to lock an upload, and the delay between them: a sweep holds the lock for a moment.
const LOCK_ATTEMPTS: u32 = 5;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);

impl Exchanges<'_> {
    /// Creates an upload, or continues one.
    pub(super) async fn resumable(
        &mut self,
        request: &WriteRequest<'_>,
        action: UploadAction,
        body: &mut RequestBody,
    ) -> Outcome {
        let done = match action {
            UploadAction::CreateTus => self.create_tus(request, body).await,
            UploadAction::CreateIetf(asked) => self.create_ietf(request, asked, body).await,
            UploadAction::Offset(id) => self.offset(request, id).await,
            UploadAction::Append(id) => self.patch(request, id, body).await,
            UploadAction::Cancel(id) => self.cancel(request, id).await,
        };
        outcome(done)
    }

    /// Reports the offset. A complete tus upload that a crash or a conflict has left without its
    /// name is committed first: tus clients take this offset for success.
    async fn offset(
        &mut self,
        request: &WriteRequest<'_>,
        id: UploadId,
    ) -> StepResult<TextResponse> {
        let upload = match self.find(request, &id).await? {
            FoundUpload::Open(upload) => upload,
            FoundUpload::Completed(completed) => {
                return Ok(reply::completed(COMPLETED, &completed, request.fields));
            }
        };
        let progress = UploadProgress::of(&upload.partial)?;
        let text = progress.offset_reply(request)?;
        if progress.protocol == UploadProtocol::Tus && progress.is_whole() {
            self.finish(request, upload).await?;
        }
        Ok(text)
    }

    async fn cancel(
        &mut self,
        request: &WriteRequest<'_>,
        id: UploadId,
    ) -> StepResult<TextResponse> {
        let FoundUpload::Open(upload) = self.find(request, &id).await? else {
            return Err(ReceiveFault::Gone.into());
        };
        let OpenUpload { partial, turn } = upload;
        self.blocking(move || partial.discard()).await?;
        drop(turn);
        Ok(TextResponse::new(CANCELLED))
    }

    /// Finds the upload that a request continues, and ends the request that receives it.
    async fn find(&mut self, request: &WriteRequest<'_>, id: &UploadId) -> StepResult<FoundUpload> {
        let (area, known) = (request.area.area.clone(), id.clone());
        let record = match self.blocking(move || area.record(&known)).await {
            Ok(record) => record,
            Err(ReceiveFault::Gone) => return self.find_completed(request, id),
            Err(error) => return Err(error.into()),
        };
        // Checked before the request that receives it is ended.
        let is_known = |record: &UploadRecord| {
            record.details.get(detail::PATH) == path_of(request).as_ref()
                && record.owner == owner_of(request, record.owner.is_some())
        };
        if !is_known(&record) {
            return Err(ReceiveFault::Gone.into());
        }
        if UploadProtocol::of(&record) == UploadProtocol::Tus && !tus::is_tus(request.fields)? {
            return Err(tus::OTHER_VERSION.into());
        }
        let turn = self.worker.shared.running.take_over(id).await;
        match self.resume(request, id).await {
            Ok(partial) => Ok(FoundUpload::Open(OpenUpload { partial, turn })),
            Err(ReceiveFault::Gone) => self.find_completed(request, id),
            Err(error) => Err(error.into()),
        }
    }

    fn find_completed(&self, request: &WriteRequest<'_>, id: &UploadId) -> StepResult<FoundUpload> {
        let completed = self.worker.shared.running.completed(id);
        let completed = completed.filter(|upload| {
            Some(&upload.path) == path_of(request).as_ref()
                && upload.owner == owner_of(request, upload.owner.is_some())
        });
        let completed = completed.map(FoundUpload::Completed);
        completed.ok_or(ReceiveFault::Gone.into())
    }

    /// Opens the partial file, without the bytes that a killed process has not compared with their
    /// checksum.
    async fn resume(
        &self,
        request: &WriteRequest<'_>,
        id: &UploadId,
    ) -> Result<PartialFile, ReceiveFault> {
        for attempt in 1.. {
            let (area, id) = (request.area.area.clone(), id.clone());
            let resumed = self.blocking(move || {
                let mut partial = area.resume(&id, SystemTime::now())?;
                let unverified = partial.record().and_then(|record| {
                    let offset = record.details.get(detail::UNVERIFIED)?;
                    offset.parse().ok()
                });
                if let Some(offset) = unverified {
                    partial.truncate(offset)?;
                    partial.set_detail(detail::UNVERIFIED, None)?;
                }
                Ok(partial)
            });
            match resumed.await {
                Err(ReceiveFault::Busy) if attempt < LOCK_ATTEMPTS => {
                    tokio::time::sleep(LOCK_RETRY_DELAY).await;
                }
                resumed => return resumed,
            }
        }
        Err(ReceiveFault::Busy)
    }

    /// Gives a complete file its name.
    async fn finish(
        &mut self,
        request: &WriteRequest<'_>,
        upload: OpenUpload,
    ) -> StepResult<TextResponse> {
        let OpenUpload { partial, turn } = upload;
        let record = partial.record().cloned();
        let record = record.ok_or(ReceiveFault::Gone)?;
        let target = record.target.as_deref().ok_or(NO_TARGET)?;
        let target = RelativePath::parse(target.as_bytes())?;
        let partial = self.verified_whole(request, partial, &record).await?;
        let overwrite = match request.area.options.overwrite {
            true => record.overwrite(),
            false => Overwrite::Refused,
        };
        let id = partial.id().clone();
        let path = request.area.site_path(&target);
        let request = &WriteRequest {
            path: &path,
            target: Some(target.clone()),
            ..request.clone()
        };
        let committed = self.commit(request, partial, target, overwrite).await?;
        self.remember(id, &record, &committed);
        drop(turn);
        Ok(stored(request, &committed))
    }

    /// Compares a whole file with the digest of `Repr-Digest`. One that differs is removed.
    async fn verified_whole(
        &self,
        request: &WriteRequest<'_>,
        partial: PartialFile,
        record: &UploadRecord,
    ) -> StepResult<PartialFile> {
        let digest = match request.fields.digest("Repr-Digest")? {
            Some(digest) => Some(digest),
            None => {
                let kept = record.details.get(detail::DIGEST);
                let kept = kept.map(|kept| ExpectedDigest::parse(kept.as_bytes()));
                kept.transpose()?.flatten()
            }
        };
        let Some(digest) = digest else {
            return Ok(partial);
        };
        let compared = self.blocking(move || match digest.is_of(partial.file(), 0) {
            Ok(true) => Ok(Some(partial)),
            Ok(false) => partial.discard().map(|()| None),
            Err(errno) => Err(ReceiveFault::of("reading what was received", errno)),
        });
        compared.await?.ok_or(Stop::from(WRONG_DIGEST))
    }

    fn remember(&self, id: UploadId, record: &UploadRecord, committed: &Committed) {
        let completed = CompletedUpload {
            path: record
                .details
                .get(detail::PATH)
                .cloned()
                .unwrap_or_default(),
            owner: record.owner.clone(),
            size: u64::try_from(committed.stat.st_size).unwrap_or(0),
        };
        self.worker.shared.running.complete(id, completed);
    }
}

/// Whether the body is a form, of which the parts are the files. Apple's clients say of each body
/// that it is an upload.
fn is_form(fields: &HeadFields<'_>) -> Result<bool, HttpError> {
    let content_type = fields.once("Content-Type")?.unwrap_or_default();
    Ok(!matches!(MultipartReader::of(content_type), Ok(None)))
}

/// The path that an upload is created under; `None` if it is not UTF-8, which no upload is.
fn path_of(request: &WriteRequest<'_>) -> Option<String> {
    String::from_utf8(request.path.key().into_owned()).ok()
}

/// Returns the name of the requester. Anyone may continue an upload without an owner.
fn owner_of(request: &WriteRequest<'_>, is_owned: bool) -> Option<String> {
    named_asker(request).filter(|_| is_owned)
}
