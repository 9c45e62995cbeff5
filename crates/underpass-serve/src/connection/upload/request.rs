//! A request that changes what is served, and the ways in which it ends.

use rustix::io::Errno;
use underpass_http::path::SitePath;
use underpass_http::request::head::RequestHead;
use underpass_http::request::request_line::WriteMethod;
use underpass_http::status::{HttpError, Status};
use underpass_net::{ClientKey, ConnectionError, DescriptorReservation};
use underpass_receive::{Error as ReceiveFault, RelativePath};

use crate::access::permits::Permits;
use crate::answer::refusal::refused;
use crate::answer::text::TextResponse;
use crate::connection::exchanges::{Exchanges, ended_by};
use crate::connection::upload_protocols::fields::HeadFields;
use crate::record::end::ExchangeEnd;
use crate::site::settle::is_spelt_otherwise;
use crate::site::sites::ServedSite;
use crate::site::upload_area::{ReceivePermit, UploadArea};

/// A request that changes what is served, where that is allowed.
#[derive(Clone)]
pub(super) struct WriteRequest<'r> {
    pub(super) head: &'r RequestHead<'r>,
    /// The method that access rules judge.
    pub(super) method: WriteMethod,
    pub(super) fields: &'r HeadFields<'r>,
    pub(super) site: &'r ServedSite,
    pub(super) area: &'r UploadArea,
    pub(super) path: &'r SitePath,
    /// The path within the area; none for its folder.
    pub(super) target: Option<RelativePath>,
    pub(super) permits: Option<&'r Permits>,
}

/// Why there is no response: the connection is of no use any more.
pub(super) struct Ended(pub(super) ExchangeEnd);

impl From<ConnectionError> for Ended {
    fn from(error: ConnectionError) -> Ended {
        Ended(ended_by(&error))
    }
}

/// A response, or the end of the exchange without one.
pub(super) type Outcome = Result<TextResponse, Ended>;

/// Why a request is not carried out any further.
pub(super) enum Stop {
    Answer(TextResponse),
    Ended(Ended),
}

/// A part of what a request asks.
pub(super) type StepResult<T> = Result<T, Stop>;

impl From<TextResponse> for Stop {
    fn from(text: TextResponse) -> Stop {
        Stop::Answer(text)
    }
}

impl From<HttpError> for Stop {
    fn from(error: HttpError) -> Stop {
        Stop::Answer(TextResponse::new(error))
    }
}

impl From<ReceiveFault> for Stop {
    fn from(error: ReceiveFault) -> Stop {
        Stop::Answer(failed(error))
    }
}

impl From<Ended> for Stop {
    fn from(ended: Ended) -> Stop {
        Stop::Ended(ended)
    }
}

pub(super) fn outcome(step: StepResult<TextResponse>) -> Outcome {
    match step {
        Ok(text) | Err(Stop::Answer(text)) => Ok(text),
        Err(Stop::Ended(ended)) => Err(ended),
    }
}

/// Descriptors that a request needs while it brings a file, beside the two of its connection: the
/// partial file twice, the pipe from the socket to it, and folders.
pub(super) const UPLOAD_DESCRIPTORS: usize = 4;

/// The right to receive a file, within the limits of the area and of the process.
#[derive(Debug)]
pub(super) struct UploadPermit {
    _place: ReceivePermit,
    _descriptors: DescriptorReservation,
}

const BUSY: HttpError = HttpError::new(
    Status::ServiceUnavailable,
    "too many files are being received; try again later",
);
const MANY_DESCRIPTORS: HttpError = HttpError::new(
    Status::ServiceUnavailable,
    "the server has too many open files; try again later",
);

impl Exchanges<'_> {
    /// Returns the right to receive a file, or the response where too many are being received.
    pub(super) fn upload_permit(
        &mut self,
        request: &WriteRequest<'_>,
        descriptors: usize,
    ) -> Result<UploadPermit, TextResponse> {
        let place = request.area.permit(self.client_of(request));
        let place = place.ok_or_else(|| TextResponse::new(BUSY))?;
        let (_, _, room) = self.connection.parts();
        let descriptors = room.reserve(descriptors);
        let descriptors = descriptors.ok_or_else(|| TextResponse::new(MANY_DESCRIPTORS))?;
        Ok(UploadPermit {
            _place: place,
            _descriptors: descriptors,
        })
    }

    /// Returns the client that limits are about: who has logged in, or else a network; `None` for a
    /// client of a Unix socket that no proxy names.
    pub(super) fn client_of(&self, request: &WriteRequest<'_>) -> Option<String> {
        let network = || {
            let address = self.exchange.client.nearest()?;
            Some(ClientKey::of(address).to_string())
        };
        named_asker(request).or_else(network)
    }

    /// Finds out who sends a request.
    pub(super) async fn permits(
        &mut self,
        request: &RequestHead<'_>,
        site: usize,
    ) -> Result<Option<Permits>, ConnectionError> {
        let worker = self.worker;
        let identified = worker.identify((request, site), &self.exchange, self.https);
        self.verified(identified).await
    }

    /// Runs a job that may wait for the disk.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, ReceiveFault> + Send + 'static,
    ) -> Result<T, ReceiveFault> {
        match tokio::task::spawn_blocking(job).await {
            Ok(done) => done,
            Err(_) => Err(ReceiveFault::Io {
                doing: "a job on the disk",
                errno: Errno::IO,
            }),
        }
    }
}

/// Returns the user, token or certificate that a request is sent with.
pub(super) fn named_asker(request: &WriteRequest<'_>) -> Option<String> {
    let asker = request.permits.map(|permits| &permits.asker);
    let asker = asker.filter(|asker| {
        asker.user.is_some() || asker.token.is_some() || asker.certificate.is_some()
    });
    asker.map(ToString::to_string)
}

const OTHER_SPELLING: HttpError = HttpError::new(
    Status::Forbidden,
    "the name is spelt in another way on the disk, which does not distinguish letter cases",
);

const DECEPTIVE: HttpError = HttpError::bad(
    "a name contains a character that changes the direction of text, or separates lines",
);

/// Checks that the names of a new path are displayed as they are. What exists already may have
/// another name, and be removed.
pub(super) fn check_displayed(path: &RelativePath) -> Result<(), HttpError> {
    let deceives = |letter| matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match path.as_str().chars().any(deceives) {
        true => Err(DECEPTIVE),
        false => Ok(()),
    }
}

/// Why somebody may not do something to a path, if he may not.
pub(super) fn refusal(
    site: &ServedSite,
    permits: Option<&Permits>,
    path: &SitePath,
) -> Option<TextResponse> {
    let permits = permits?;
    let access = &site.rules.options.access;
    match permits.check(path.bytes()) {
        // The name of the thing decides, not another spelling of it.
        Ok(()) if is_spelt_otherwise(site.root(), path.bytes()) => {
            Some(TextResponse::new(OTHER_SPELLING))
        }
        Ok(()) => None,
        Err(_) if access.conceal => Some(TextResponse::new(fault(ReceiveFault::NotFound))),
        Err(refusal) => Some(refused(refusal, access)),
    }
}

/// The response for what could not be done.
pub(super) fn failed(error: ReceiveFault) -> TextResponse {
    match error {
        ReceiveFault::Io { doing, errno } => {
            tracing::warn!("an upload failed: {doing}: {errno}");
            TextResponse::caused(fault(error), errno)
        }
        ReceiveFault::NoSpace => TextResponse::caused(fault(error), Errno::NOSPC),
        ReceiveFault::Denied => TextResponse::caused(fault(error), Errno::ACCESS),
        ReceiveFault::Foreign => {
            tracing::warn!("an upload failed: {error}");
            TextResponse::new(fault(error))
        }
        _ => TextResponse::new(fault(error)),
    }
}

pub(super) fn fault(error: ReceiveFault) -> HttpError {
    let (status, why) = match error {
        ReceiveFault::Name(why) => (Status::BadRequest, why),
        ReceiveFault::NotFound => (Status::NotFound, "there is no such file or folder"),
        ReceiveFault::Exists => (
            Status::Conflict,
            "the name is taken, and files are not replaced here",
        ),
        ReceiveFault::Changed => (Status::PreconditionFailed, "the file has changed"),
        ReceiveFault::IsFolder => (Status::Conflict, "the name is that of a folder"),
        ReceiveFault::NotAFolder => (Status::Conflict, "a part of the path is not a folder"),
        ReceiveFault::Link => (
            Status::Forbidden,
            "a part of the path is a symbolic link or a special file, which is not written through",
        ),
        ReceiveFault::Mount => (Status::Conflict, "a file system is mounted in the folder"),
        ReceiveFault::NotEmpty => (Status::Conflict, "the folder is not empty"),
        ReceiveFault::Gone => (
            Status::NotFound,
            "there is no such upload; it is complete, was cancelled or has expired",
        ),
        ReceiveFault::Busy => (
            Status::Locked,
            "another server process receives this upload; try again later",
        ),
        ReceiveFault::NoSpace | ReceiveFault::TooFull { .. } | ReceiveFault::NoInodes => (
            Status::InsufficientStorage,
            "there is not enough space, or less would be left than `keep-free`",
        ),
        ReceiveFault::TooLarge => (
            Status::ContentTooLarge,
            "the file is larger than the server's limit on the size of files (ulimit -f) or its \
             file system allows",
        ),
        ReceiveFault::Foreign => (
            Status::InternalServerError,
            "the folder .underpass-uploads is not the server's own; its log has the reason",
        ),
        ReceiveFault::Io {
            errno: Errno::MFILE | Errno::NFILE,
            ..
        } => (
            Status::ServiceUnavailable,
            "the server has too many open files; try again later",
        ),
        ReceiveFault::TooMany => (
            Status::ServiceUnavailable,
            "too many uploads have not been completed; try again later",
        ),
        ReceiveFault::TooManyOfClient => (
            Status::ServiceUnavailable,
            "too many of your uploads have not been completed; continue or cancel them, or try \
             again later",
        ),
        ReceiveFault::TooManyEntries => (
            Status::Conflict,
            "the folder has more than 100,000 entries; remove or move its folders one by one",
        ),
        ReceiveFault::Denied => (Status::Forbidden, "the server's user may not write there"),
        ReceiveFault::Io { .. } => (
            Status::InternalServerError,
            "the file could not be written; the server's log has the reason",
        ),
    };
    HttpError::new(status, why)
}
