//! Interim responses of the IETF's protocol: the URL of an upload before its body is received, and
//! the offset about every second while it is.

use std::time::Duration;

use underpass::Piece;
use underpass_http::fields::writer::push_field;
use underpass_http::status::HttpError;
use underpass_http::version::HttpVersion;
use underpass_receive::PartialFile;

use super::reply::{UploadProtocol, limits};
use crate::answer::text::TextResponse;
use crate::connection::exchanges::Exchanges;
use crate::connection::request_body::{ReceiveError, RequestBody};
use crate::connection::upload::request::{Ended, StepResult, Stop, WriteRequest};
use crate::connection::upload_protocols::ietf::Interop;

/// The time between two reports of the offset.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The interop version of a client that reads interim responses.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressReports(Option<u8>);

impl ProgressReports {
    /// Returns whether the sender of a request reads interim responses: it names a known version.
    pub(super) fn wanted(
        request: &WriteRequest<'_>,
        protocol: UploadProtocol,
    ) -> Result<ProgressReports, HttpError> {
        let is_able =
            protocol == UploadProtocol::Ietf && request.head.version != HttpVersion::Http10;
        let version = Interop::of(request.fields)?.named();
        Ok(ProgressReports(version.filter(|_| is_able)))
    }

    /// Waits until a report is due; for ever if none is wanted.
    async fn due(self) {
        match self.0 {
            Some(_) => tokio::time::sleep(REPORT_INTERVAL).await,
            None => std::future::pending().await,
        }
    }
}

impl Exchanges<'_> {
    /// Sends the upload's URL before the body is received.
    pub(super) async fn announce(
        &mut self,
        request: &WriteRequest<'_>,
        reports: ProgressReports,
        location: &str,
    ) -> StepResult<()> {
        let options = &request.area.options;
        let limit = limits(options, options.expire_after.as_secs());
        let fields = [("Location", location), ("Upload-Limit", &limit)];
        let sent = self.send_interim(reports, &fields).await;
        sent.map_err(Stop::Ended)
    }

    /// Receives a body as [`receive`](Exchanges::receive) does, and reports the offset meanwhile.
    pub(super) async fn receive_reported(
        &mut self,
        body: &mut RequestBody,
        partial: &PartialFile,
        terms: (u64, u64),
        reports: ProgressReports,
    ) -> Result<Option<TextResponse>, Ended> {
        let mut rate = self.connection.inbound_rate();
        let mut reported = 0;
        loop {
            tokio::select! {
                biased;
                received = self.receive(body, partial, terms) => return received,
                () = reports.due() => {}
            }
            // Each call of `receive` forgets how slow the client was.
            let checked = match body.pause(&self.connection).await {
                Ok(received) => {
                    let more = received.saturating_sub(reported);
                    let checked = rate.check(more).map_err(ReceiveError::Connection);
                    checked.map(|()| received)
                }
                Err(error) => Err(error),
            };
            let received = match checked {
                Ok(received) => received,
                Err(error) => return self.not_received(error).map(Some),
            };
            if received > reported {
                reported = received;
                let offset = terms.0.saturating_add(received).to_string();
                let fields = [("Upload-Offset", &*offset)];
                self.send_interim(reports, &fields).await?;
            }
        }
    }

    async fn send_interim(
        &mut self,
        ProgressReports(version): ProgressReports,
        fields: &[(&str, &str)],
    ) -> Result<(), Ended> {
        let Some(version) = version else {
            return Ok(());
        };
        let mut head = b"HTTP/1.1 104 Upload Resumption Supported".to_vec();
        push_field(
            &mut head,
            "Upload-Draft-Interop-Version",
            version.to_string(),
        );
        for (name, value) in fields {
            push_field(&mut head, name, value);
        }
        head.extend_from_slice(b"\r\n\r\n");
        self.connection.outbox().push(Piece::Bytes(head));
        self.connection.flush().await.map_err(Ended::from)
    }
}
