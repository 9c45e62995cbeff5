//! Joins parts of a file that were uploaded at the same time: the concatenation of tus.

use std::collections::HashMap;

use underpass_http::status::{HttpError, Status};
use underpass_receive::{Error as ReceiveFault, PartialFile, RelativePath, UploadId, UploadRecord};

use super::create::check_target;
use super::{FoundUpload, OpenUpload, detail, owner_of, path_of};
use crate::answer::text::TextResponse;
use crate::connection::exchanges::Exchanges;
use crate::connection::upload::request::{StepResult, UPLOAD_DESCRIPTORS, WriteRequest};
use crate::connection::upload_protocols::location::location;

const NOT_A_PART: HttpError = HttpError::bad("an upload to be joined is not a part of a file");
const INCOMPLETE_PART: HttpError = HttpError::bad("a part of the file is not complete");
const JOINED: HttpError = HttpError::new(Status::Created, "the parts were joined");

impl Exchanges<'_> {
    /// Makes a file of complete parts and gives it its name. The parts stay where that fails.
    pub(super) async fn concatenate(
        &mut self,
        request: &WriteRequest<'_>,
        parts: &[UploadId],
        target: RelativePath,
    ) -> StepResult<TextResponse> {
        check_target(request, &target)?;
        let _permit = self.upload_permit(request, parts.len() + UPLOAD_DESCRIPTORS)?;
        let uploads = self.open_parts(request, parts).await?;
        let mut length = 0u64;
        for upload in &uploads {
            let record = upload.partial.record().ok_or(ReceiveFault::Gone)?;
            let size = upload.partial.size()?;
            if record.target.is_some() {
                return Err(NOT_A_PART.into());
            }
            if record.length != Some(size) {
                return Err(INCOMPLETE_PART.into());
            }
            length = length.saturating_add(size);
        }
        let created_under = path_of(request).unwrap_or_default();
        let path = request.area.site_path(&target);
        let request = &WriteRequest {
            path: &path,
            target: Some(target.clone()),
            ..request.clone()
        };
        let overwrite = self.admit(request, Some(length)).await?.overwrite;
        let area = request.area.area.clone();
        let joined = self.blocking(move || {
            let whole = area.begin()?;
            for upload in &uploads {
                whole.append(&upload.partial)?;
            }
            Ok((whole, uploads))
        });
        let (whole, uploads) = joined.await?;
        let id = whole.id().clone();
        let committed = self.commit(request, whole, target, overwrite).await?;
        self.remove_parts(uploads).await?;
        let mut record = UploadRecord::new(None, None, request.area.options.expire_after);
        record.owner = owner_of(request, true);
        let details = &mut record.details;
        details.insert(detail::PATH.to_owned(), created_under);
        self.remember(id.clone(), &record, &committed);
        let location = location(&id);
        Ok(TextResponse::new(JOINED).with_field("Location", location.as_bytes()))
    }

    /// Opens parts, in the order in which they are joined. Turns are asked for in one order by all
    /// requests, so that no two wait for each other.
    async fn open_parts(
        &mut self,
        request: &WriteRequest<'_>,
        parts: &[UploadId],
    ) -> StepResult<Vec<OpenUpload>> {
        let mut sorted = parts.to_vec();
        sorted.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        let mut opened = HashMap::new();
        for id in sorted {
            match self.find(request, &id).await? {
                FoundUpload::Open(upload) => opened.insert(id, upload),
                FoundUpload::Completed(_) => return Err(NOT_A_PART.into()),
            };
        }
        let uploads = parts.iter().filter_map(|id| opened.remove(id));
        Ok(uploads.collect())
    }

    async fn remove_parts(&self, uploads: Vec<OpenUpload>) -> StepResult<()> {
        let removed = self.blocking(move || {
            for OpenUpload { partial, turn } in uploads {
                // What is left of it is removed by the next sweep where this fails.
                let _ = PartialFile::discard(partial);
                drop(turn);
            }
            Ok(())
        });
        Ok(removed.await?)
    }
}
