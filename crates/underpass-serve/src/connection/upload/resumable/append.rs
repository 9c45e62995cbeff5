//! Receives more bytes of an upload.

use std::num::NonZeroU64;

use underpass_http::status::{HttpError, Status};
use underpass_receive::{Error as ReceiveFault, PartialFile, UploadId};

use super::progress::ProgressReports;
use super::reply::{self, OTHER_OFFSET, UploadProgress, UploadProtocol};
use super::{FoundUpload, OpenUpload, detail};
use crate::answer::text::TextResponse;
use crate::connection::exchanges::Exchanges;
use crate::connection::request_body::RequestBody;
use crate::connection::upload::put::TOO_LARGE;
use crate::connection::upload::request::{
    Ended, StepResult, Stop, UPLOAD_DESCRIPTORS, WriteRequest,
};
use crate::connection::upload_protocols::fields::{ExpectedDigest, HeadFields};
use crate::connection::upload_protocols::ietf::{self, INCONSISTENT, Interop, UploadFields};
use crate::connection::upload_protocols::running::CompletedUpload;
use crate::connection::upload_protocols::tus;
use crate::record::end::ExchangeEnd;

/// The part of a file in a request.
pub(super) struct Part {
    pub(super) protocol: UploadProtocol,
    pub(super) offset: u64,
    /// The length of the whole file, where that is known now.
    pub(super) length: Option<u64>,
    /// Whether the file is complete after them, as far as the request tells.
    pub(super) is_last: bool,
    pub(super) digest: Option<ExpectedDigest>,
}

/// The number of bytes that may be received.
struct Room {
    bytes: u64,
    bound: Bound,
}

/// The limit that determines it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Bound {
    /// The length of the file that was announced.
    Length,
    /// The largest file that is received.
    Option,
    /// The space on the file system.
    Space,
}

/// The result of receiving a body.
enum Reception {
    Whole,
    Refused(TextResponse),
    /// The client is gone, or a newer request has come.
    Lost(Ended),
}

const NO_OFFSET: HttpError = HttpError::bad("the Upload-Offset field is missing or malformed");
const NO_COMPLETENESS: HttpError =
    HttpError::bad("the Upload-Complete field is missing or malformed");
const OTHER_LENGTH: HttpError = HttpError::bad("the length of the file was announced differently");
const OTHER_TYPE: HttpError = HttpError::new(
    Status::UnsupportedMediaType,
    "the content type is not that of a part of a file",
);
const BEYOND_LENGTH: HttpError = HttpError::bad("the body is longer than the rest of the file");
const WRONG_CHECKSUM: HttpError = HttpError::new(
    Status::ChecksumMismatch,
    "the checksum differs from that of the body, which was dropped",
);
const WRONG_CONTENT_DIGEST: HttpError =
    HttpError::bad("the digest differs from that of the body, which was dropped");
const APPENDED: HttpError = HttpError::new(Status::NoContent, "received");
const COMPLETE: HttpError = HttpError::new(Status::Gone, "the upload is complete");

impl Exchanges<'_> {
    /// Receives the body of PATCH, and completes the file if that was its end.
    pub(super) async fn patch(
        &mut self,
        request: &WriteRequest<'_>,
        id: UploadId,
        body: &mut RequestBody,
    ) -> StepResult<TextResponse> {
        let upload = match self.find(request, &id).await? {
            FoundUpload::Open(upload) => upload,
            FoundUpload::Completed(completed) => {
                return patched_completed(request.fields, &completed, body.left());
            }
        };
        let progress = UploadProgress::of(&upload.partial)?;
        let part = match &progress.protocol {
            UploadProtocol::Tus => tus_part(request.fields, &progress)?,
            UploadProtocol::Ietf => match ietf_part(request.fields, &progress, body.left()) {
                Err(error) if error == INCONSISTENT => {
                    return Err(self.kill(upload, error).await);
                }
                part => part?,
            },
        };
        if part.offset != progress.size {
            return Err(progress.conflict(request)?.into());
        }
        let mut upload = upload;
        if part.length != progress.record.length
            && let Some(length) = part.length
        {
            upload = self.announced(request, upload, length).await?;
        }
        let upload = self.receive_part(request, upload, body, &part).await?;
        self.received(request, upload, &part, TextResponse::new(APPENDED))
            .await
    }

    /// Completes the file if all of it is there, and answers with `text` if it is not.
    pub(super) async fn received(
        &mut self,
        request: &WriteRequest<'_>,
        upload: OpenUpload,
        part: &Part,
        text: TextResponse,
    ) -> StepResult<TextResponse> {
        let progress = UploadProgress::of(&upload.partial)?;
        let size = progress.size;
        match part.protocol {
            UploadProtocol::Tus => {
                let text = progress.describe(text, request)?;
                if progress.is_whole() {
                    self.finish(request, upload).await?;
                }
                Ok(text)
            }
            UploadProtocol::Ietf if !part.is_last => Ok(progress.describe(text, request)?),
            UploadProtocol::Ietf if part.length.is_some_and(|length| length != size) => {
                Err(self.kill(upload, INCONSISTENT).await)
            }
            UploadProtocol::Ietf => {
                let (name, value) = Interop::of(request.fields)?.completeness(true);
                let finished = self.finish(request, upload).await;
                match finished {
                    Ok(text) | Err(Stop::Answer(text)) => Ok(text.with_field(name, value)),
                    Err(ended) => Err(ended),
                }
            }
        }
    }

    /// Notes the length of the file, which was not known before.
    async fn announced(
        &self,
        request: &WriteRequest<'_>,
        upload: OpenUpload,
        length: u64,
    ) -> StepResult<OpenUpload> {
        let most = request.area.options.file_bytes_max;
        if most.is_some_and(|most| length > most.get()) {
            return Err(self.too_large(request, UploadProgress::of(&upload.partial)?.protocol));
        }
        let OpenUpload { mut partial, turn } = upload;
        let noted = self.blocking(move || {
            partial.set_length(length)?;
            Ok(partial)
        });
        let partial = noted.await?;
        Ok(OpenUpload { partial, turn })
    }

    /// Appends a body to an upload. Received bytes are kept on any error, except bytes with a
    /// digest that was not verified.
    pub(super) async fn receive_part(
        &mut self,
        request: &WriteRequest<'_>,
        upload: OpenUpload,
        body: &mut RequestBody,
        part: &Part,
    ) -> StepResult<OpenUpload> {
        let room = self.room_left(request, part).await?;
        if body.left().is_some_and(|left| left > room.bytes) {
            return Err(self.no_room(request, upload, part, &room).await);
        }
        let _permit = match body.left() {
            Some(0) => None,
            _ => Some(self.upload_permit(request, UPLOAD_DESCRIPTORS)?),
        };
        let OpenUpload { mut partial, turn } = upload;
        if part.digest.is_some() {
            let offset = part.offset.to_string();
            let noted = self.blocking(move || {
                partial.set_detail(detail::UNVERIFIED, Some(offset))?;
                Ok(partial)
            });
            partial = noted.await?;
        }
        let terms = (part.offset, room.bytes);
        let listens = ProgressReports::wanted(request, part.protocol)?;
        let reception = tokio::select! {
            biased;
            () = turn.ended() => Reception::Lost(Ended(ExchangeEnd::PeerGone)),
            received = self.receive_reported(body, &partial, terms, listens) => match received {
                Ok(None) => Reception::Whole,
                Ok(Some(text)) => Reception::Refused(text),
                Err(ended) => Reception::Lost(ended),
            },
        };
        // A write that is in progress must not follow the look at the file's size.
        body.settle(&self.connection).await;
        let is_whole = matches!(reception, Reception::Whole);
        let (partial, is_verified) = self.keep(request, partial, part, is_whole).await?;
        let upload = OpenUpload { partial, turn };
        match reception {
            Reception::Whole if is_verified => Ok(upload),
            Reception::Whole => Err(match part.protocol {
                UploadProtocol::Tus if tus::checksum(request.fields)?.is_some() => {
                    WRONG_CHECKSUM.into()
                }
                UploadProtocol::Tus => WRONG_CONTENT_DIGEST.into(),
                UploadProtocol::Ietf => WRONG_CONTENT_DIGEST.into(),
            }),
            Reception::Refused(text) if text.error == TOO_LARGE => {
                Err(self.no_room(request, upload, part, &room).await)
            }
            Reception::Refused(text) => Err(text.into()),
            Reception::Lost(ended) => Err(ended.into()),
        }
    }

    /// Keeps the received bytes. Returns whether they match their digest.
    async fn keep(
        &self,
        request: &WriteRequest<'_>,
        mut partial: PartialFile,
        part: &Part,
        is_whole: bool,
    ) -> Result<(PartialFile, bool), ReceiveFault> {
        let (offset, digest) = (part.offset, part.digest.clone());
        let (lifetime, sync) = (request.area.options.expire_after, request.area.options.sync);
        let keep = move || {
            let is_verified = match &digest {
                None => true,
                Some(digest) if is_whole => digest
                    .is_of(partial.file(), offset)
                    .map_err(|errno| ReceiveFault::of("reading what was received", errno))?,
                Some(_) => false,
            };
            if !is_verified {
                partial.truncate(offset)?;
            }
            if digest.is_some() {
                partial.set_detail(detail::UNVERIFIED, None)?;
            }
            // Requests without bytes do not keep an upload alive.
            if partial.size()? > offset {
                partial.keep(lifetime, sync)?;
            }
            Ok((partial, is_verified))
        };
        self.blocking(keep).await
    }

    /// Returns how many bytes may be received.
    async fn room_left(&self, request: &WriteRequest<'_>, part: &Part) -> StepResult<Room> {
        let options = &request.area.options;
        let (area, keep_free) = (request.area.area.clone(), options.keep_free);
        let space = self.blocking(move || area.space(keep_free)).await?;
        let most = options.file_bytes_max.map_or(u64::MAX, NonZeroU64::get);
        let length = part.length.unwrap_or(u64::MAX);
        let bounds = [
            (length.saturating_sub(part.offset), Bound::Length),
            (most.saturating_sub(part.offset), Bound::Option),
            (space, Bound::Space),
        ];
        let (bytes, bound) = bounds
            .into_iter()
            .min_by_key(|(bytes, _)| *bytes)
            .unwrap_or((0, Bound::Space));
        Ok(Room { bytes, bound })
    }

    /// The response for a body that there is no room for.
    async fn no_room(
        &self,
        request: &WriteRequest<'_>,
        upload: OpenUpload,
        part: &Part,
        room: &Room,
    ) -> Stop {
        match (room.bound, part.protocol) {
            (Bound::Length, UploadProtocol::Tus) => BEYOND_LENGTH.into(),
            (Bound::Length, UploadProtocol::Ietf) => self.kill(upload, INCONSISTENT).await,
            (Bound::Option, protocol) => self.too_large(request, protocol),
            (Bound::Space, _) => ReceiveFault::NoSpace.into(),
        }
    }

    /// The response for a file that is larger than is allowed.
    pub(super) fn too_large(&self, request: &WriteRequest<'_>, protocol: UploadProtocol) -> Stop {
        let text = TextResponse::new(TOO_LARGE);
        let options = &request.area.options;
        Stop::Answer(match protocol {
            UploadProtocol::Tus => text,
            UploadProtocol::Ietf => {
                let limits = reply::limits(options, options.expire_after.as_secs());
                text.with_field("Upload-Limit", limits.as_bytes())
            }
        })
    }

    /// Removes an upload whose requests contradict each other.
    async fn kill(&self, upload: OpenUpload, error: HttpError) -> Stop {
        let OpenUpload { partial, turn } = upload;
        let discarded = self.blocking(move || partial.discard()).await;
        drop(turn);
        match discarded {
            Ok(()) => error.into(),
            Err(error) => error.into(),
        }
    }
}

/// The response to PATCH of an upload whose file has its name. A client that did not receive the
/// last response sends bytes again, and learns from the offset that they are there.
fn patched_completed(
    fields: &HeadFields<'_>,
    completed: &CompletedUpload,
    left: Option<u64>,
) -> StepResult<TextResponse> {
    let offset = fields.bytes("Upload-Offset")?.ok_or(NO_OFFSET)?;
    match (offset == completed.size, left) {
        (false, _) => Err(reply::completed(OTHER_OFFSET, completed, fields).into()),
        (true, Some(0)) if tus::is_tus(fields)? => {
            Ok(reply::completed(APPENDED, completed, fields))
        }
        (true, _) => Err(COMPLETE.into()),
    }
}

/// Reads the fields of a PATCH of tus.
fn tus_part(fields: &HeadFields<'_>, progress: &UploadProgress) -> StepResult<Part> {
    check_type(fields, tus::MEDIA_TYPE)?;
    let append = tus::AppendFields::parse(fields)?;
    let length = match (progress.record.length, append.length) {
        (None, length) => length,
        (known, None) => known,
        (Some(known), Some(length)) if known == length => Some(known),
        _ => return Err(OTHER_LENGTH.into()),
    };
    if length.is_some_and(|length| length < progress.size) {
        return Err(OTHER_LENGTH.into());
    }
    Ok(Part {
        protocol: UploadProtocol::Tus,
        offset: append.offset,
        length,
        is_last: false,
        digest: append.checksum.or(fields.digest("Content-Digest")?),
    })
}

/// Reads the fields of a PATCH of the IETF's protocol.
fn ietf_part(
    fields: &HeadFields<'_>,
    progress: &UploadProgress,
    left: Option<u64>,
) -> Result<Part, HttpError> {
    let asked = UploadFields::parse(fields)?;
    if asked.interop.has_media_type() {
        check_type(fields, ietf::MEDIA_TYPE)?;
    }
    let offset = asked.offset.ok_or(NO_OFFSET)?;
    let is_last = asked.is_last.ok_or(NO_COMPLETENESS)?;
    // Another offset is a mistake of its own.
    let length = match offset == progress.size {
        true => asked.file_length(progress.record.length, (offset, left))?,
        false => progress.record.length,
    };
    if length.is_some_and(|length| length < progress.size) {
        return Err(INCONSISTENT);
    }
    Ok(Part {
        protocol: UploadProtocol::Ietf,
        offset,
        length,
        is_last,
        digest: fields.digest("Content-Digest")?,
    })
}

/// Requires a media type, whatever its parameters.
pub(super) fn check_type(fields: &HeadFields<'_>, expected: &str) -> Result<(), HttpError> {
    let value = fields.once("Content-Type")?.unwrap_or_default();
    let essence = value.split(|&byte| byte == b';').next().unwrap_or_default();
    let is_expected = essence
        .trim_ascii()
        .eq_ignore_ascii_case(expected.as_bytes());
    is_expected.then_some(()).ok_or(OTHER_TYPE)
}
