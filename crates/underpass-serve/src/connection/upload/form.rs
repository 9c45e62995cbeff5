//! POST of `multipart/form-data` to a folder: pages without scripts, `curl -F`.
//!
//! ```text
//!  body ─► window ─► fields of a part ─► may it be stored? ─► partial file ─► its name, at its end
//! ```
//!
//! Files are stored one after the other. If one cannot be stored, earlier ones stay, and the
//! response names them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use underpass::drive::blocking::SigxfszGuard;
use underpass_http::body::chunked::BodyPosition;
use underpass_http::path::{PathForm, SitePath, encode_path};
use underpass_http::status::{HttpError, Status};
use underpass_net::InboundRate;
use underpass_receive::{Error as ReceiveFault, NameKind, PartialFile, RelativePath};

use super::put::{TOO_LARGE, UploadTerms};
use super::request::{
    Outcome, StepResult, Stop, UPLOAD_DESCRIPTORS, WriteRequest, failed, refusal,
};
use crate::answer::text::TextResponse;
use crate::connection::exchanges::Exchanges;
use crate::connection::request_body::RequestBody;
use crate::connection::upload_protocols::multipart::{
    MultipartEvent, MultipartReader, UNFINISHED, WINDOW_BYTES_MIN, last_component,
};
use crate::site::upload_area::UploadArea;

/// Bytes of a form in memory: the largest write.
const WINDOW_BYTES: usize = 256 << 10;
const _: () = assert!(WINDOW_BYTES >= WINDOW_BYTES_MIN);

const NO_FORM: HttpError = HttpError::new(
    Status::UnsupportedMediaType,
    "the body is not a form; expected multipart/form-data, or a PUT of the file",
);
const NO_FILE: HttpError = HttpError::bad("the form has no file");
const STORED: HttpError = HttpError::new(Status::Created, "stored");
const ALL_REPLACED: HttpError = HttpError::new(Status::Ok, "replaced");
const SEE_FOLDER: HttpError = HttpError::new(Status::SeeOther, "stored");

/// A form that is being received.
struct FormUpload {
    reader: MultipartReader,
    /// Bytes that were received and not parsed yet.
    window: Vec<u8>,
    /// The file whose part is being received.
    file: Option<FormFile>,
    /// Names of the stored files.
    stored: Vec<String>,
    /// Whether any of them is new.
    has_created: bool,
}

/// A file of a form.
struct FormFile {
    path: SitePath,
    target: RelativePath,
    partial: PartialFile,
    /// Bytes that it has.
    bytes: u64,
    terms: UploadTerms,
}

impl Exchanges<'_> {
    /// Receives the files of a form into a folder.
    pub(super) async fn post(
        &mut self,
        request: &WriteRequest<'_>,
        body: &mut RequestBody,
    ) -> Outcome {
        let content_type = request.head.fields.content_type.unwrap_or_default();
        let reader = match MultipartReader::of(content_type) {
            Ok(Some(reader)) => reader,
            Ok(None) => return Ok(TextResponse::new(NO_FORM)),
            Err(error) => return Ok(TextResponse::new(error)),
        };
        let _permit = match self.upload_permit(request, UPLOAD_DESCRIPTORS) {
            Ok(permit) => permit,
            Err(text) => return Ok(text),
        };
        if let Err(text) = self.folder_room(request, body.left()).await {
            return Ok(text);
        }
        let mut form = FormUpload {
            reader,
            window: Vec::new(),
            file: None,
            stored: Vec::new(),
            has_created: false,
        };
        let received = self.receive_form(request, body, &mut form).await;
        if let Some(file) = form.file.take() {
            let _ = self.blocking(move || file.partial.discard()).await;
        }
        match received {
            Ok(()) => Ok(form.answered(request)),
            Err(Stop::Answer(text)) => {
                Ok(text.with_lines(form.stored.iter().map(|name| format!("stored: {name}"))))
            }
            Err(Stop::Ended(ended)) => Err(ended),
        }
    }

    /// Checks that there is space for a form of this length, and no file in the folder's place. A
    /// missing folder is made with the first file.
    async fn folder_room(
        &self,
        request: &WriteRequest<'_>,
        length: Option<u64>,
    ) -> Result<(), TextResponse> {
        let (area, keep_free) = (request.area.area.clone(), request.area.options.keep_free);
        let folder = request.target.clone();
        let looked = self.blocking(move || {
            let kind = folder.map(|folder| Ok(NameKind::of(&area.stat(&folder)?)));
            match kind.transpose() {
                Ok(None | Some(NameKind::Folder)) | Err(ReceiveFault::NotFound) => {
                    area.space(keep_free)
                }
                Ok(Some(NameKind::File)) => Err(ReceiveFault::NotAFolder),
                Ok(Some(NameKind::Other)) => Err(ReceiveFault::Link),
                Err(error) => Err(error),
            }
        });
        match looked.await {
            Ok(space) if length.unwrap_or(0) > space => Err(failed(ReceiveFault::NoSpace)),
            Ok(_) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    async fn receive_form(
        &mut self,
        request: &WriteRequest<'_>,
        body: &mut RequestBody,
        form: &mut FormUpload,
    ) -> StepResult<()> {
        let mut rate = self.connection.inbound_rate();
        loop {
            let (taken, event) = form.reader.read(&form.window)?;
            match event {
                Some(MultipartEvent::Part(Some(name))) => {
                    form.file = Some(self.begin_file(request, &name).await?);
                }
                Some(MultipartEvent::Content) => self.write_file(form, taken).await?,
                Some(MultipartEvent::PartEnd) => self.end_file(request, form).await?,
                Some(MultipartEvent::End) => return Ok(()),
                None if taken == 0 => self.fill_window(body, &mut rate, form).await?,
                Some(MultipartEvent::Part(None)) | None => {}
            }
            form.window.drain(..taken);
        }
    }

    /// Receives more of the body.
    async fn fill_window(
        &mut self,
        body: &mut RequestBody,
        rate: &mut InboundRate,
        form: &mut FormUpload,
    ) -> StepResult<()> {
        let limits = &self.worker.shared.limits;
        let before = form.window.len();
        let room = (&mut form.window, WINDOW_BYTES);
        let read = body.read_into(&mut self.connection, limits, rate, room);
        match read.await {
            Ok(BodyPosition::End) if form.window.len() == before => Err(UNFINISHED.into()),
            Ok(_) => Ok(()),
            Err(error) => Err(self.not_received(error)?.into()),
        }
    }

    /// Creates a partial file, if a file of this name may be stored.
    async fn begin_file(
        &self,
        request: &WriteRequest<'_>,
        name: &[u8],
    ) -> Result<FormFile, TextResponse> {
        let name = last_component(name);
        let named = |text: TextResponse| {
            let name = String::from_utf8_lossy(name);
            text.with_lines([format!("not stored: {}", name.escape_debug())])
        };
        let refused = |error| named(failed(error));
        let target = RelativePath::parse(name).map_err(refused)?;
        let target = match &request.target {
            Some(folder) => folder.join(&target).map_err(refused)?,
            None => target,
        };
        let path = request.path.join(name, PathForm::File);
        if let Some(refusal) = refusal(request.site, request.permits, &path) {
            return Err(named(refusal));
        }
        let found = UploadArea::of(&request.site.uploads, &path);
        let is_same = found.is_some_and(|(area, _)| std::ptr::eq(area, request.area));
        if !is_same || request.site.rules.hides(&path) {
            return Err(refused(ReceiveFault::Denied));
        }
        let file = of_file(request, &path, &target);
        let terms = self.admit(&file, None).await.map_err(named)?;
        let area = request.area.area.clone();
        let partial = self.blocking(move || area.begin()).await.map_err(refused)?;
        Ok(FormFile {
            path,
            target,
            partial,
            bytes: 0,
            terms,
        })
    }

    /// Writes the first `taken` bytes of the window to the file. Other parts have no file.
    async fn write_file(&self, form: &mut FormUpload, taken: usize) -> StepResult<()> {
        let Some(file) = &mut form.file else {
            return Ok(());
        };
        if taken as u64 > file.terms.room - file.bytes {
            return Err(file.refused(TextResponse::new(TOO_LARGE)).into());
        }
        let window = std::mem::take(&mut form.window);
        let (sink, offset) = (Arc::clone(file.partial.file()), file.bytes);
        let written = self.blocking(move || {
            write_all(&sink, &window[..taken], offset)?;
            Ok(window)
        });
        form.window = match written.await {
            Ok(window) => window,
            Err(error) => return Err(file.refused(failed(error)).into()),
        };
        file.bytes += taken as u64;
        Ok(())
    }

    /// Gives the file its name.
    async fn end_file(
        &mut self,
        request: &WriteRequest<'_>,
        form: &mut FormUpload,
    ) -> StepResult<()> {
        let Some(file) = form.file.take() else {
            return Ok(());
        };
        let named = of_file(request, &file.path, &file.target);
        let done = self
            .complete(
                &named,
                file.partial,
                (file.target.clone(), file.terms.overwrite),
            )
            .await?;
        let name = String::from_utf8_lossy(file.path.name()).into_owned();
        match done.error.status {
            Status::Created => form.has_created = true,
            Status::NoContent => {}
            _ => return Err(done.with_lines([format!("not stored: {name}")]).into()),
        }
        form.stored.push(name);
        Ok(())
    }
}

/// Returns a request for one file of a form.
fn of_file<'f>(
    request: &WriteRequest<'f>,
    path: &'f SitePath,
    target: &RelativePath,
) -> WriteRequest<'f> {
    WriteRequest {
        path,
        target: Some(target.clone()),
        ..request.clone()
    }
}

impl FormFile {
    fn refused(&self, text: TextResponse) -> TextResponse {
        let name = String::from_utf8_lossy(self.path.name());
        text.with_lines([format!("not stored: {name}")])
    }
}

impl FormUpload {
    /// Returns the response after all files were stored: browsers are sent to the folder.
    fn answered(self, request: &WriteRequest<'_>) -> TextResponse {
        if self.stored.is_empty() {
            return TextResponse::new(NO_FILE);
        }
        let accept = request.head.fields.accept.as_deref().unwrap_or_default();
        if accept.windows(9).any(|media| media == b"text/html") {
            let mut folder = b"./".to_vec();
            if request.path.form() == PathForm::File {
                encode_path(request.path.name(), &mut folder);
                folder.push(b'/');
            }
            return TextResponse::new(SEE_FOLDER).with_field("Location", &folder);
        }
        let status = match self.has_created {
            true => STORED,
            false => ALL_REPLACED,
        };
        TextResponse::new(status).with_lines(self.stored)
    }
}

/// Writes all of `bytes`. Blocks. A limit on the size of files is an error and not a signal.
fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), ReceiveFault> {
    let _guard = SigxfszGuard::thread();
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(ReceiveFault::NoSpace),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(ReceiveFault::of("writing the file", errno)),
        }
    }
    Ok(())
}
