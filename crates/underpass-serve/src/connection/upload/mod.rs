//! Requests that change what is served: who may, what is asked, and what became of it.
//!
//! ```text
//!  head ─► who? ─► from a page of this site? ─► allowed? ─► PUT, DELETE, MKCOL, COPY, MOVE
//!                                                           │
//!            the connection is kept if the body was read ◄──┘ status in a line of text
//! ```
//!
//! Everything that may wait for the disk runs on the worker's threads for blocking calls.

mod form;
mod put;
mod request;
mod resumable;
mod tree;

use underpass_http::path::SitePath;
use underpass_http::persistence::Persistence;
use underpass_http::request::head::{Expectation, HeadScanner, RequestHead, method_of};
use underpass_http::request::request_line::{HttpTarget, Method, WriteMethod};
use underpass_http::status::{HttpError, Status};

use crate::access::permits::Permits;
use crate::answer::text::TextResponse;
use crate::connection::exchanges::{Exchanges, NextStep, persistence};
use crate::connection::request_body::{RequestBody, SkipError};
use crate::connection::upload::request::{Ended, Outcome, WriteRequest, failed, refusal};
use crate::connection::upload::resumable::RequestedChange;
use crate::connection::upload_protocols::fields::HeadFields;
use crate::connection::upload_protocols::location::upload_of;
use crate::limits::DRAINED_BYTES_MAX;
use crate::site::sites::ServedSite;
use crate::site::upload_area::UploadArea;

const READ_ONLY: HttpError =
    HttpError::new(Status::MethodNotAllowed, "files are not taken in here");
const NO_UPLOAD: HttpError = HttpError::new(
    Status::MethodNotAllowed,
    "PATCH continues a resumable upload at its Location; a file is stored by PUT",
);
const OTHER_SITE: HttpError = HttpError::new(
    Status::Forbidden,
    "a page of another site sent this request; behind a proxy, pass the Host field on",
);

/// Whether a request may change what a site serves, or is about an upload.
pub(super) fn is_change(request: &RequestHead<'_>, site: &ServedSite, https: Option<u16>) -> bool {
    if site.uploads.is_empty() || https.is_some() || request.expect == Expectation::Unknown {
        return false;
    }
    let HttpTarget::Path { path, query, .. } = &request.target else {
        return matches!(request.method, Method::Write(_));
    };
    match request.method {
        Method::Write(_) => true,
        Method::Options => UploadArea::of(&site.uploads, path).is_some(),
        Method::Head => {
            upload_of(*query).is_some() && UploadArea::of(&site.uploads, path).is_some()
        }
        _ => false,
    }
}

impl Exchanges<'_> {
    /// Answers a request that changes what is served.
    pub(super) async fn change(&mut self, head: &HeadScanner, bytes: &[u8]) -> NextStep {
        let request = match head.parse(bytes) {
            Ok(request) => request,
            Err(error) => return self.refuse(method_of(bytes), error).await,
        };
        let mut body = RequestBody::of(&request);
        let site = self.worker.site_of(request.authority);
        let outcome = match self.permits(&request, site).await {
            Ok(permits) => {
                self.permitted((&request, bytes, site), permits.as_ref(), &mut body)
                    .await
            }
            Err(error) => Err(error.into()),
        };
        self.exchange.received(body.account());
        let text = match outcome {
            Ok(text) => text,
            Err(Ended(end)) => {
                self.record(end);
                return NextStep::Drop;
            }
        };
        let persistence = match self.skip_rest(body).await {
            Ok(true) => persistence(
                &request,
                self.connection.phase(),
                &self.exchange,
                self.worker,
            ),
            Ok(false) => Persistence::Close,
            Err(error) => return self.refuse(request.method, error).await,
        };
        let terms = (site, &request, persistence);
        let outbox = self.connection.outbox();
        let response = self.worker.answer_text(text, terms, outbox);
        self.send(persistence, response).await
    }

    async fn permitted(
        &mut self,
        (head, bytes, site): (&RequestHead<'_>, &[u8], usize),
        permits: Option<&Permits>,
        body: &mut RequestBody,
    ) -> Outcome {
        let site = &self.worker.shared.sites.all[site];
        let HttpTarget::Path { path, query, .. } = &head.target else {
            return Ok(TextResponse::new(HttpError::bad(
                "the target is not a path",
            )));
        };
        let fields = &HeadFields::of(bytes);
        let asked = match RequestedChange::of(head.method, fields, *query) {
            Ok(RequestedChange::Options) => return Ok(resumable::options(site, path, head)),
            Ok(asked) => asked,
            Err(text) => return Ok(resumable::labelled(text, fields)),
        };
        let answered = self
            .asked((head, fields, site), (permits, path), asked, body)
            .await;
        Ok(resumable::labelled(answered?, fields))
    }

    /// Does what a request asks, if it may.
    async fn asked(
        &mut self,
        (head, fields, site): (&RequestHead<'_>, &HeadFields<'_>, &ServedSite),
        (permits, path): (Option<&Permits>, &SitePath),
        asked: RequestedChange,
        body: &mut RequestBody,
    ) -> Outcome {
        if !is_of_this_site(head, fields, site) {
            return Ok(TextResponse::new(OTHER_SITE));
        }
        let method = asked.judged_as();
        // What is copied or moved away is read or removed.
        let judged = match method {
            WriteMethod::Copy => Method::Get,
            WriteMethod::Move => Method::Write(WriteMethod::Delete),
            method => Method::Write(method),
        };
        let permits = permits.map(|permits| permits.asking(judged));
        if let Some(refusal) = refusal(site, permits.as_ref(), path) {
            return Ok(refusal);
        }
        let Some((area, target)) = UploadArea::of(&site.uploads, path) else {
            return Ok(TextResponse::new(READ_ONLY).with_field("Allow", b"GET, HEAD, OPTIONS"));
        };
        let target = match target {
            Ok(target) => target,
            Err(error) => return Ok(failed(error)),
        };
        let request = WriteRequest {
            head,
            method,
            fields,
            site,
            area,
            path,
            target,
            permits: permits.as_ref(),
        };
        match asked {
            RequestedChange::Upload(action) => {
                Box::pin(self.resumable(&request, action, body)).await
            }
            RequestedChange::Write(WriteMethod::Put) => self.put(&request, body).await,
            RequestedChange::Write(WriteMethod::Delete) => self.delete(&request).await,
            RequestedChange::Write(WriteMethod::Mkcol) => self.make_folder(&request, body).await,
            RequestedChange::Write(WriteMethod::Copy | WriteMethod::Move) => {
                self.relocate(&request).await
            }
            RequestedChange::Write(WriteMethod::Post) => Box::pin(self.post(&request, body)).await,
            RequestedChange::Write(WriteMethod::Patch) | RequestedChange::Options => {
                Ok(TextResponse::new(NO_UPLOAD).with_field("Allow", site.rules.allowed_methods()))
            }
        }
    }

    /// Reads what is left of a body, if it is short. Returns whether all of it was read.
    async fn skip_rest(&mut self, body: RequestBody) -> Result<bool, HttpError> {
        match body.left() {
            Some(0) => Ok(true),
            _ if body.is_withheld() => Ok(false),
            Some(left) if left > DRAINED_BYTES_MAX => Ok(false),
            _ => {
                let limits = &self.worker.shared.limits;
                match body.skip(&mut self.connection, limits).await {
                    Ok(()) => Ok(true),
                    Err(SkipError::Invalid(error)) => Err(error),
                    Err(SkipError::TooLong | SkipError::Gone) => Ok(false),
                }
            }
        }
    }
}

/// Whether a browser that sends the request has it from a page of this site. A page of another one
/// could use the password that the browser remembers.
fn is_of_this_site(head: &RequestHead<'_>, fields: &HeadFields<'_>, site: &ServedSite) -> bool {
    let cors = site.rules.cors.as_ref();
    // An origin that is listed is trusted with changes; that all may read is not.
    let admitted = cors.and_then(|cors| cors.admit(head.fields.origin));
    if admitted.is_some_and(|origin| origin != b"*") {
        return true;
    }
    match fields.once("Sec-Fetch-Site") {
        Ok(Some(b"same-origin" | b"none")) => return true,
        Ok(None) => {}
        _ => return false,
    }
    let Some(origin) = head.fields.origin else {
        return true;
    };
    let scheme = origin.windows(3).position(|three| three == b"://");
    let authority = scheme.map(|scheme| &origin[scheme + 3..]);
    let pair = authority.zip(head.authority);
    pair.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
}
