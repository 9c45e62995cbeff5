//! PUT of a whole file (RFC 9110, section 9.3.4).

use std::num::NonZeroU64;
use std::time::SystemTime;

use rustix::fs::Stat;
use rustix::io::Errno;
use underpass::Fault;
use underpass_http::body::framing::Framing;
use underpass_http::fields::condition::ConditionResult;
use underpass_http::fields::validator::Validators;
use underpass_http::path::{PathForm, encode_path};
use underpass_http::request::request_line::Method;
use underpass_http::status::{HttpError, Status};
use underpass_net::ConnectionError;
use underpass_receive::{
    Committed, Error as ReceiveFault, FileVersion, NameKind, Overwrite, PartialFile, RelativePath,
};

use super::request::{
    Ended, Outcome, StepResult, UPLOAD_DESCRIPTORS, WriteRequest, check_displayed, failed, fault,
    outcome, refusal,
};
use crate::access::permits::Permits;
use crate::answer::text::TextResponse;
use crate::connection::exchanges::Exchanges;
use crate::connection::request_body::{ReceiveError, RequestBody};
use crate::connection::upload_protocols::fields::ExpectedDigest;
use crate::connection::upload_protocols::ietf::UploadFields;
use crate::metrics::worker_metrics::SlowClient;
use crate::rules::EtagRecipe;
use crate::site::stamp::FileStamp;

pub(super) const NO_NAME: HttpError = HttpError::bad(
    "the path ends with a slash, and a file needs a name; `curl -T FILE URL/` adds it",
);
const FAILED_CONDITION: HttpError = HttpError::new(
    Status::PreconditionFailed,
    "the file does not match the condition",
);
pub(super) const TOO_LARGE: HttpError = HttpError::new(
    Status::ContentTooLarge,
    "the file is larger than is allowed here",
);
pub(super) const WRONG_DIGEST: HttpError =
    HttpError::bad("the digest of what was received differs from the one sent; nothing was stored");
const NO_LENGTH: HttpError = HttpError::new(
    Status::LengthRequired,
    "the request has neither Content-Length nor Transfer-Encoding; for an empty file send \
     Content-Length: 0",
);
const ENCODED: HttpError = HttpError::new(
    Status::UnsupportedMediaType,
    "content codings are not decoded; send the file as it is",
);
const PARTIAL: HttpError =
    HttpError::bad("a part of a file is not stored under its name; resumable uploads send parts");
const LATE: HttpError = HttpError::new(
    Status::RequestTimeout,
    "the request body was not received in time",
);
pub(super) const CREATED: HttpError = HttpError::new(Status::Created, "stored");
pub(super) const REPLACED: HttpError = HttpError::new(Status::NoContent, "replaced");

/// What may be received under a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadTerms {
    /// The number of bytes.
    pub(super) room: u64,
    pub(super) overwrite: Overwrite,
}

impl Exchanges<'_> {
    /// Receives a file and gives it its name.
    pub(super) async fn put(
        &mut self,
        request: &WriteRequest<'_>,
        body: &mut RequestBody,
    ) -> Outcome {
        let Some(target) = request.target.clone() else {
            return Ok(TextResponse::new(NO_NAME));
        };
        if request.path.form() == PathForm::Folder {
            return Ok(TextResponse::new(NO_NAME));
        }
        if request.head.framing == Framing::Empty && request.head.fields.content_length.is_none() {
            return Ok(TextResponse::new(NO_LENGTH));
        }
        if request
            .fields
            .once("Content-Encoding")
            .is_ok_and(|coding| coding.is_some())
        {
            return Ok(TextResponse::new(ENCODED));
        }
        if request.head.fields.content_range.is_some() {
            return Ok(TextResponse::new(PARTIAL));
        }
        // Of the IETF's uploads that bring all of the file at once.
        let length = UploadFields::parse(request.fields)
            .and_then(|fields| fields.file_length(None, (0, body.left())));
        if let Err(error) = length {
            return Ok(TextResponse::new(error));
        }
        let digests = match expected_digests(request) {
            Ok(digests) => digests,
            Err(error) => return Ok(TextResponse::new(error)),
        };
        let _permit = match self.upload_permit(request, UPLOAD_DESCRIPTORS) {
            Ok(permit) => permit,
            Err(text) => return Ok(text),
        };
        let UploadTerms { room, overwrite } = match self.admit(request, body.left()).await {
            Ok(terms) => terms,
            Err(text) => return Ok(text),
        };
        let area = request.area.area.clone();
        let partial = match self.blocking(move || area.begin()).await {
            Ok(partial) => partial,
            Err(error) => return Ok(failed(error)),
        };
        let received = self.receive(body, &partial, (0, room)).await;
        let refused = match received {
            Ok(None) => self.checked(&partial, digests).await,
            Ok(Some(text)) if text.error == TOO_LARGE => Some(too_long(request, room)),
            Ok(Some(text)) => Some(text),
            Err(ended) => {
                let _ = self.blocking(move || partial.discard()).await;
                return Err(ended);
            }
        };
        if let Some(text) = refused {
            let _ = self.blocking(move || partial.discard()).await;
            return Ok(text);
        }
        self.complete(request, partial, (target, overwrite)).await
    }

    /// Looks at what has the name, and evaluates the conditions of the request. Returns it with
    /// the bytes that may be received before too little is free.
    pub(super) async fn present(
        &self,
        request: &WriteRequest<'_>,
    ) -> Result<(u64, Option<Stat>), TextResponse> {
        let (area, keep_free) = (request.area.area.clone(), request.area.options.keep_free);
        let target = request.target.clone();
        let looked = self.blocking(move || {
            let present = target.map(|target| area.stat(&target));
            Ok((area.space(keep_free)?, present))
        });
        let (space, present) = looked.await.map_err(failed)?;
        let present = match present {
            Some(Ok(stat)) => Some(stat),
            None | Some(Err(ReceiveFault::NotFound)) => None,
            Some(Err(error)) => return Err(failed(error)),
        };
        if let Some(conditions) = &request.head.conditions {
            let present = present.as_ref().map(|stat| validators(request, stat));
            let holds = match (&present, &conditions.if_match) {
                (Some(present), _) => conditions.judge(present) == ConditionResult::Proceed,
                (None, Some(_)) => false,
                (None, None) => true,
            };
            if !holds {
                return Err(TextResponse::new(FAILED_CONDITION));
            }
        }
        Ok((space, present))
    }

    /// Asks whether a file of the length may be received.
    pub(super) async fn admit(
        &self,
        request: &WriteRequest<'_>,
        length: Option<u64>,
    ) -> Result<UploadTerms, TextResponse> {
        if let Some(target) = &request.target {
            check_displayed(target).map_err(TextResponse::new)?;
        }
        let (space, present) = self.present(request).await?;
        if let (Some(stat), false) = (&present, request.area.options.overwrite) {
            return Err(failed(match NameKind::of(stat) {
                NameKind::File => ReceiveFault::Exists,
                NameKind::Folder => ReceiveFault::IsFolder,
                NameKind::Other => ReceiveFault::Link,
            }));
        }
        let allowed = request.area.options.file_bytes_max;
        let allowed = allowed.map_or(u64::MAX, NonZeroU64::get);
        match length.unwrap_or(0) {
            length if length > allowed => Err(TextResponse::new(TOO_LARGE)),
            length if length > space => Err(failed(ReceiveFault::NoSpace)),
            _ => Ok(UploadTerms {
                room: allowed.min(space),
                overwrite: overwrite(request, present.as_ref()),
            }),
        }
    }

    /// Receives at most `room` bytes of a body into a partial file from an offset on. Returns the
    /// response where it may not be received to its end.
    pub(super) async fn receive(
        &mut self,
        body: &mut RequestBody,
        partial: &PartialFile,
        (offset, room): (u64, u64),
    ) -> Result<Option<TextResponse>, Ended> {
        let terms = (offset, room);
        let limits = &self.worker.shared.limits;
        let connection = &mut self.connection;
        let received = body
            .receive(connection, limits, partial.file(), terms)
            .await;
        match received {
            Ok(()) => Ok(None),
            Err(error) => self.not_received(error).map(Some),
        }
    }

    /// Returns the response for a body that was not received to its end.
    pub(super) fn not_received(&self, error: ReceiveError) -> Outcome {
        Ok(match error {
            ReceiveError::TooLong => TextResponse::new(TOO_LARGE),
            ReceiveError::Invalid(error) => TextResponse::new(error),
            ReceiveError::Connection(error) => match error {
                ConnectionError::TimedOut | ConnectionError::TooSlow => {
                    self.worker.metrics.late(SlowClient::Body);
                    TextResponse::new(LATE)
                }
                ConnectionError::Move(error)
                    if !matches!(error.fault, Fault::PeerGone | Fault::Truncated) =>
                {
                    let errno = error.errno.unwrap_or(Errno::IO);
                    failed(ReceiveFault::of("writing the file", errno))
                }
                error => return Err(error.into()),
            },
        })
    }

    /// Compares a partial file with the digests that it should have. Returns the response where one
    /// differs.
    async fn checked(
        &self,
        partial: &PartialFile,
        digests: Vec<ExpectedDigest>,
    ) -> Option<TextResponse> {
        if digests.is_empty() {
            return None;
        }
        let file = partial.file().clone();
        let compared = self.blocking(move || {
            let mut all = digests.iter();
            let same = all.try_fold(true, |same, digest| Ok(same && digest.is_of(&file, 0)?));
            same.map_err(|errno| ReceiveFault::of("reading what was received", errno))
        });
        match compared.await {
            Ok(true) => None,
            Ok(false) => Some(TextResponse::new(WRONG_DIGEST)),
            Err(error) => Some(failed(error)),
        }
    }

    /// Gives a complete file its name, and answers.
    pub(super) async fn complete(
        &mut self,
        request: &WriteRequest<'_>,
        partial: PartialFile,
        (target, overwrite): (RelativePath, Overwrite),
    ) -> Outcome {
        let committed = self.commit(request, partial, target, overwrite).await;
        outcome(committed.map(|committed| stored(request, &committed)))
    }

    /// Gives a complete file its name, if its sender may still do so. A partial file with a record
    /// stays where that fails.
    pub(super) async fn commit(
        &mut self,
        request: &WriteRequest<'_>,
        partial: PartialFile,
        target: RelativePath,
        overwrite: Overwrite,
    ) -> StepResult<Committed> {
        let site = self.worker.site_of(request.head.authority);
        // Users and tokens may have been removed while the body came.
        let permits = self
            .permits(request.head, site)
            .await
            .map_err(Ended::from)?;
        let permits = permits.map(|permits| Permits {
            method: Method::Write(request.method),
            ..permits
        });
        if let Some(text) = refusal(request.site, permits.as_ref(), request.path) {
            // One without a record is removed.
            let dropped = self.blocking(move || {
                drop(partial);
                Ok(())
            });
            let _ = dropped.await;
            return Err(text.into());
        }
        let options = &request.area.options;
        let (sync, mode) = (options.sync, options.mode.map(|mode| mode.0));
        let committed = self.blocking(move || partial.commit(&target, overwrite, sync, mode));
        match committed.await {
            Err(ReceiveFault::Exists) if options.overwrite => Err(FAILED_CONDITION.into()),
            committed => Ok(committed?),
        }
    }
}

/// Whether the file may replace the `present` one.
fn overwrite(request: &WriteRequest<'_>, present: Option<&Stat>) -> Overwrite {
    let if_none_match = request.head.conditions.as_ref();
    let if_none_match = if_none_match.and_then(|asked| asked.if_none_match.as_deref());
    match request.area.options.overwrite && if_none_match != Some(b"*") {
        true => required_version(request, present).map_or(Overwrite::Allowed, Overwrite::Only),
        false => Overwrite::Refused,
    }
}

/// Returns the version of the `present` file, which meets the conditions of a request, if they are
/// about a version.
pub(super) fn required_version(
    request: &WriteRequest<'_>,
    present: Option<&Stat>,
) -> Option<FileVersion> {
    let conditions = request.head.conditions.as_ref()?;
    let is_required = match &conditions.if_match {
        Some(tags) => tags.as_ref() != b"*",
        None => conditions.if_unmodified_since.is_some(),
    };
    present.filter(|_| is_required).map(FileVersion::of)
}

/// Returns the response for a body of unknown length that is longer than `room`.
fn too_long(request: &WriteRequest<'_>, room: u64) -> TextResponse {
    match request.area.options.file_bytes_max {
        Some(max) if room >= max.get() => TextResponse::new(TOO_LARGE),
        _ => failed(ReceiveFault::NoSpace),
    }
}

fn expected_digests(request: &WriteRequest<'_>) -> Result<Vec<ExpectedDigest>, HttpError> {
    let fields = ["Content-Digest", "Repr-Digest"];
    let found = fields.into_iter().map(|name| request.fields.digest(name));
    Ok(found
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

fn validators(request: &WriteRequest<'_>, stat: &Stat) -> Validators {
    let stamp = FileStamp::of(stat);
    let inode = match request.site.rules.options.etag {
        EtagRecipe::MtimeSizeInode => Some(stamp.identity.1),
        EtagRecipe::MtimeSize => None,
    };
    Validators::new(stamp.modified, stamp.size, inode, None, SystemTime::now())
}

/// The response for a file that has its name now.
pub(super) fn stored(request: &WriteRequest<'_>, committed: &Committed) -> TextResponse {
    let tag = validators(request, &committed.stat).tag;
    let text = match committed.has_replaced {
        true => TextResponse::new(REPLACED),
        false => {
            // Relative, so that it is right where a proxy passes a part of the path.
            let mut location = b"./".to_vec();
            encode_path(request.path.name(), &mut location);
            TextResponse::new(CREATED).with_field("Location", &location)
        }
    };
    text.with_field("ETag", tag.as_bytes())
}

/// 403 where something may not be removed or replaced.
pub(super) fn not_removed() -> TextResponse {
    TextResponse::new(HttpError {
        why: "files are not removed or renamed here",
        ..fault(ReceiveFault::Denied)
    })
}
