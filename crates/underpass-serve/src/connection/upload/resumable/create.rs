//! Creates uploads, with the first bytes or without.

use underpass_http::path::PathForm;
use underpass_http::status::{HttpError, Status};
use underpass_receive::{Error as ReceiveFault, PartialFile, RelativePath, UploadId, UploadRecord};

use super::append::{Part, check_type};
use super::progress::ProgressReports;
use super::reply::UploadProtocol;
use super::{OpenUpload, detail, owner_of, path_of};
use crate::answer::text::TextResponse;
use crate::connection::exchanges::Exchanges;
use crate::connection::request_body::RequestBody;
use crate::connection::upload::put::NO_NAME;
use crate::connection::upload::request::{StepResult, Stop, WriteRequest, fault, refusal};
use crate::connection::upload_protocols::fields::HeadFields;
use crate::connection::upload_protocols::ietf::UploadFields;
use crate::connection::upload_protocols::location::location;
use crate::connection::upload_protocols::tus::{self, ConcatRole, CreationFields, UploadMetadata};

const CREATED: HttpError = HttpError::new(Status::Created, "the upload was created");

const NO_FILENAME: HttpError = HttpError::bad(
    "the upload has no name; send Upload-Metadata with filename, or create it under its path",
);

/// An upload that is to be created.
struct NewUpload<'c> {
    protocol: UploadProtocol,
    /// The path of the file; `None` for a part of one.
    target: Option<RelativePath>,
    length: Option<u64>,
    details: Vec<(&'static str, &'c str)>,
}

impl Exchanges<'_> {
    /// Answers POST of tus.
    pub(super) async fn create_tus(
        &mut self,
        request: &WriteRequest<'_>,
        body: &mut RequestBody,
    ) -> StepResult<TextResponse> {
        let creation = CreationFields::parse(request.fields)?;
        let has_body = body.left() != Some(0);
        let target = match creation.role {
            ConcatRole::Partial => None,
            ConcatRole::Whole | ConcatRole::Final(_) => Some(target(request, &creation.metadata)?),
        };
        if let ConcatRole::Final(parts) = &creation.role {
            let target = target.ok_or(NO_NAME)?;
            return self.concatenate(request, parts, target).await;
        }
        if has_body {
            check_type(request.fields, tus::MEDIA_TYPE)?;
        }
        let digest = tus::checksum(request.fields)?;
        let digest = digest.or(request.fields.digest("Content-Digest")?);
        let metadata = Some(creation.metadata.text).filter(|text| !text.is_empty());
        let new = NewUpload {
            protocol: UploadProtocol::Tus,
            target,
            length: creation.length,
            details: metadata
                .map(|it| (detail::METADATA, it))
                .into_iter()
                .chain(repr_digest(request.fields)?.map(|it| (detail::DIGEST, it)))
                .collect(),
        };
        let upload = self.create(request, &new, body.left()).await?;
        let location = location(upload.partial.id());
        let text = TextResponse::new(CREATED).with_field("Location", location.as_bytes());
        let part = Part {
            protocol: UploadProtocol::Tus,
            offset: 0,
            length: creation.length,
            is_last: false,
            digest,
        };
        let id = upload.partial.id().clone();
        let received = match self.receive_part(request, upload, body, &part).await {
            Ok(upload) => self.received(request, upload, &part, text).await,
            Err(stop) => Err(stop),
        };
        if let Err(Stop::Answer(_)) = received {
            self.discard(request, &id).await;
        }
        received
    }

    /// Answers PUT or POST of the IETF's protocol.
    pub(super) async fn create_ietf(
        &mut self,
        request: &WriteRequest<'_>,
        asked: UploadFields,
        body: &mut RequestBody,
    ) -> StepResult<TextResponse> {
        let target = request.target.clone();
        let is_file = request.path.form() == PathForm::File;
        let target = target.filter(|_| is_file).ok_or(NO_NAME)?;
        let repr_digest = repr_digest(request.fields)?;
        let part = Part {
            protocol: UploadProtocol::Ietf,
            offset: 0,
            length: asked.file_length(None, (0, body.left()))?,
            is_last: asked.is_last == Some(true),
            digest: request.fields.digest("Content-Digest")?,
        };
        let new = NewUpload {
            protocol: UploadProtocol::Ietf,
            target: Some(target),
            length: part.length,
            details: repr_digest
                .map(|it| (detail::DIGEST, it))
                .into_iter()
                .collect(),
        };
        let upload = self.create(request, &new, body.left()).await?;
        let location = location(upload.partial.id());
        let reports = ProgressReports::wanted(request, UploadProtocol::Ietf)?;
        self.announce(request, reports, &location).await?;
        let upload = self.receive_part(request, upload, body, &part).await?;
        let text = TextResponse::new(CREATED);
        let text = match part.is_last {
            // That of the file.
            true => text,
            false => text.with_field("Location", location.as_bytes()),
        };
        self.received(request, upload, &part, text).await
    }

    /// Creates the record of an upload, if a file of that name and length may be received.
    async fn create(
        &mut self,
        request: &WriteRequest<'_>,
        new: &NewUpload<'_>,
        left: Option<u64>,
    ) -> StepResult<OpenUpload> {
        if let Some(target) = &new.target {
            check_target(request, target)?;
        }
        let wanted = WriteRequest {
            target: new.target.clone(),
            ..request.clone()
        };
        let length = new.length.max(left);
        let most = request.area.options.file_bytes_max;
        if most.is_some_and(|most| length > Some(most.get())) {
            return Err(self.too_large(request, new.protocol));
        }
        let terms = self.admit(&wanted, length).await?;
        let options = &request.area.options;
        let target = new.target.as_ref().map(RelativePath::as_str);
        let mut record = UploadRecord::new(target, new.length, options.expire_after);
        record.set_overwrite(terms.overwrite);
        record.owner = owner_of(request, true);
        record.client = self.client_of(request);
        let path = path_of(request).ok_or(ReceiveFault::Name("the path is not UTF-8"))?;
        record.details.insert(detail::PATH.to_owned(), path);
        let protocol = (detail::PROTOCOL, new.protocol.name());
        for (name, value) in new.details.iter().copied().chain([protocol]) {
            record.details.insert(name.to_owned(), value.to_owned());
        }
        let (area, most) = (request.area.area.clone(), options.unfinished());
        let partial = self.blocking(move || area.create(record, most)).await?;
        let turn = self.worker.shared.running.take_over(partial.id()).await;
        Ok(OpenUpload { partial, turn })
    }

    /// Removes an upload whose URL its client has not received.
    async fn discard(&self, request: &WriteRequest<'_>, id: &UploadId) {
        if let Ok(partial) = self.resume(request, id).await {
            let _ = self.blocking(move || PartialFile::discard(partial)).await;
        }
    }
}

/// Returns the path of the file that a POST of tus brings: that of its metadata in the folder that
/// the request names, or else that of the request.
fn target(request: &WriteRequest<'_>, metadata: &UploadMetadata<'_>) -> StepResult<RelativePath> {
    match (metadata.path()?, &request.target) {
        (Some(path), None) => Ok(path),
        (Some(path), Some(folder)) => Ok(folder.join(&path)?),
        (None, Some(target)) if request.path.form() == PathForm::File => Ok(target.clone()),
        (None, _) => Err(NO_FILENAME.into()),
    }
}

/// Checks whether a file may have a name, which may be in another folder than the request's path.
pub(super) fn check_target(request: &WriteRequest<'_>, target: &RelativePath) -> StepResult<()> {
    let path = request.area.site_path(target);
    if let Some(text) = refusal(request.site, request.permits, &path) {
        return Err(text.into());
    }
    match request.site.rules.hides(&path) {
        true => Err(fault(ReceiveFault::Denied).into()),
        false => Ok(()),
    }
}

/// Returns the digest that the whole file should have, which is compared when it is complete.
fn repr_digest<'b>(fields: &HeadFields<'b>) -> Result<Option<&'b str>, HttpError> {
    fields.digest("Repr-Digest")?;
    let value = fields.once("Repr-Digest")?;
    Ok(value.and_then(|value| std::str::from_utf8(value).ok()))
}
