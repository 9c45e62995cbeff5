//! Responses about uploads, in the words of each protocol.

use std::num::NonZeroU64;
use std::time::SystemTime;

use httpdate::HttpDate;
use underpass_http::path::SitePath;
use underpass_http::request::head::RequestHead;
use underpass_http::status::{HttpError, Status};
use underpass_receive::{Error as ReceiveFault, PartialFile, UploadRecord};

use super::detail;
use crate::answer::text::TextResponse;
use crate::connection::upload::request::WriteRequest;
use crate::connection::upload_protocols::fields::HeadFields;
use crate::connection::upload_protocols::ietf::{self, Interop};
use crate::connection::upload_protocols::running::CompletedUpload;
use crate::connection::upload_protocols::tus;
use crate::options::uploads::UploadOptions;
use crate::site::sites::ServedSite;
use crate::site::upload_area::UploadArea;

/// The protocol of an upload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum UploadProtocol {
    Tus,
    Ietf,
}

/// An upload at one moment.
pub(super) struct UploadProgress {
    pub(super) protocol: UploadProtocol,
    pub(super) size: u64,
    pub(super) record: UploadRecord,
}

const OFFSET: HttpError = HttpError::new(Status::NoContent, "the upload is not complete");
const METHODS: HttpError = HttpError::new(Status::NoContent, "files are taken in here");
pub(super) const OTHER_OFFSET: HttpError = HttpError::new(
    Status::Conflict,
    "the offset is not that of the upload, which is in the response",
);

impl UploadProtocol {
    /// Returns the protocol of an upload.
    pub(super) fn of(record: &UploadRecord) -> UploadProtocol {
        match record.details.get(detail::PROTOCOL) {
            Some(name) if name == UploadProtocol::Tus.name() => UploadProtocol::Tus,
            _ => UploadProtocol::Ietf,
        }
    }

    /// The name in a record.
    pub(super) fn name(self) -> &'static str {
        match self {
            UploadProtocol::Tus => "tus",
            UploadProtocol::Ietf => "ietf",
        }
    }
}

impl UploadProgress {
    /// Reads the state of an upload, whose turn it must be.
    pub(super) fn of(partial: &PartialFile) -> Result<UploadProgress, ReceiveFault> {
        let record = partial.record().cloned().ok_or(ReceiveFault::Gone)?;
        Ok(UploadProgress {
            protocol: UploadProtocol::of(&record),
            size: partial.size()?,
            record,
        })
    }

    /// Whether all bytes of a file that gets a name are there.
    pub(super) fn is_whole(&self) -> bool {
        self.record.length == Some(self.size) && self.record.target.is_some()
    }

    /// The response to HEAD.
    pub(super) fn offset_reply(
        &self,
        request: &WriteRequest<'_>,
    ) -> Result<TextResponse, HttpError> {
        let text = self.describe(TextResponse::new(OFFSET), request)?;
        let text = text.with_field("Cache-Control", b"no-store");
        let length = self.record.length.map(|length| length.to_string());
        let text = match (&length, self.protocol) {
            (Some(length), _) => text.with_field("Upload-Length", length.as_bytes()),
            (None, UploadProtocol::Tus) => text.with_field("Upload-Defer-Length", b"1"),
            (None, UploadProtocol::Ietf) => text,
        };
        let text = match self.record.details.get(detail::METADATA) {
            Some(metadata) => text.with_field("Upload-Metadata", metadata.as_bytes()),
            None => text,
        };
        Ok(match (self.protocol, &self.record.target) {
            (UploadProtocol::Tus, None) => text.with_field("Upload-Concat", b"partial"),
            _ => text,
        })
    }

    /// The response to a request with another offset.
    pub(super) fn conflict(&self, request: &WriteRequest<'_>) -> Result<TextResponse, HttpError> {
        self.describe(TextResponse::new(OTHER_OFFSET), request)
    }

    /// Adds the offset and the limits to a response.
    pub(super) fn describe(
        &self,
        text: TextResponse,
        request: &WriteRequest<'_>,
    ) -> Result<TextResponse, HttpError> {
        let text = text.with_field("Upload-Offset", self.size.to_string().as_bytes());
        let expires = self.record.expires_at();
        Ok(match self.protocol {
            UploadProtocol::Tus => {
                let expires = HttpDate::from(expires).to_string();
                text.with_field("Upload-Expires", expires.as_bytes())
            }
            UploadProtocol::Ietf => {
                let (name, value) = Interop::of(request.fields)?.completeness(false);
                let left = expires.duration_since(SystemTime::now());
                let limit = limits(&request.area.options, left.unwrap_or_default().as_secs());
                text.with_field(name, value)
                    .with_field("Upload-Limit", limit.as_bytes())
            }
        })
    }
}

/// The value of `Upload-Limit`.
pub(super) fn limits(options: &UploadOptions, age_seconds_max: u64) -> String {
    match options.file_bytes_max {
        Some(most) => format!("max-size={most}, max-age={age_seconds_max}"),
        None => format!("max-age={age_seconds_max}"),
    }
}

/// The response to a request about an upload whose file has its name.
pub(super) fn completed(
    error: HttpError,
    upload: &CompletedUpload,
    fields: &HeadFields<'_>,
) -> TextResponse {
    let size = upload.size.to_string();
    let text = TextResponse::new(error)
        .with_field("Cache-Control", b"no-store")
        .with_field("Upload-Offset", size.as_bytes())
        .with_field("Upload-Length", size.as_bytes());
    match (tus::is_tus(fields), Interop::of(fields)) {
        (Ok(true), _) | (_, Err(_)) => text,
        (_, Ok(interop)) => {
            let (name, value) = interop.completeness(true);
            text.with_field(name, value)
        }
    }
}

/// Adds what every response to a client of tus has.
pub(in crate::connection::upload) fn labelled(
    text: TextResponse,
    fields: &HeadFields<'_>,
) -> TextResponse {
    let is_other = text.error == tus::OTHER_VERSION;
    let text = match is_other || !matches!(fields.once("Tus-Resumable"), Ok(None)) {
        true => text.with_field("Tus-Resumable", tus::VERSION),
        false => text,
    };
    match is_other {
        true => text.with_field("Tus-Version", tus::VERSION),
        false => text,
    }
}

/// The response to OPTIONS on a path that files are taken in under.
pub(in crate::connection::upload) fn options(
    site: &ServedSite,
    path: &SitePath,
    head: &RequestHead<'_>,
) -> TextResponse {
    let mut text = TextResponse::new(METHODS)
        .with_field("Allow", site.rules.allowed_methods())
        .with_field("Tus-Resumable", tus::VERSION)
        .with_field("Tus-Version", tus::VERSION)
        .with_field("Tus-Extension", tus::EXTENSIONS.as_bytes())
        .with_field("Tus-Checksum-Algorithm", tus::CHECKSUMS.as_bytes())
        .with_field(
            "Accept-Patch",
            format!("{}, {}", tus::MEDIA_TYPE, ietf::MEDIA_TYPE).as_bytes(),
        );
    if let Some((area, _)) = UploadArea::of(&site.uploads, path) {
        let options = &area.options;
        if let Some(most) = options.file_bytes_max.map(NonZeroU64::get) {
            text = text.with_field("Tus-Max-Size", most.to_string().as_bytes());
        }
        let limit = limits(options, options.expire_after.as_secs());
        text = text.with_field("Upload-Limit", limit.as_bytes());
    }
    let cors = site.rules.cors.as_ref();
    if let Some(cors) = cors.filter(|cors| cors.admit(head.fields.origin).is_some()) {
        text.fields.extend_from_slice(cors.preflight());
    }
    text
}
