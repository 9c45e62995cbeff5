//! The ways in which receiving an item ends early, and their responses.

use rustix::io::Errno;
use underpass::Fault;
use underpass_http::status::Status;
use underpass_net::ConnectionError;
use underpass_receive::{Error as ReceiveFault, TreeError, TreeFault};

use crate::body::BodyReadError;
use crate::listen::request::ShortResponse;
use crate::tree::TreeStop;

/// The end of a request without a response.
pub(super) enum ReceiveStop {
    Answer(ShortResponse),
    Lost,
}

impl From<ShortResponse> for ReceiveStop {
    fn from(response: ShortResponse) -> ReceiveStop {
        ReceiveStop::Answer(response)
    }
}

impl From<ReceiveFault> for ReceiveStop {
    fn from(error: ReceiveFault) -> ReceiveStop {
        ReceiveStop::Answer(refusal(&error))
    }
}

impl From<ConnectionError> for ReceiveStop {
    fn from(_: ConnectionError) -> ReceiveStop {
        ReceiveStop::Lost
    }
}

/// Returns the end for a body that was not received.
pub(super) fn failure(error: BodyReadError) -> ReceiveStop {
    match error {
        BodyReadError::Invalid(error) => ReceiveStop::Answer(error.into()),
        BodyReadError::Connection(ConnectionError::Move(error))
            if !matches!(error.fault, Fault::PeerGone | Fault::Truncated) =>
        {
            let errno = error.errno.unwrap_or(Errno::IO);
            ReceiveStop::Answer(refusal(&ReceiveFault::of("writing the file", errno)))
        }
        BodyReadError::Connection(_) => ReceiveStop::Lost,
    }
}

/// Returns the end for a tree that was not received.
pub(super) fn tree_failure(stop: TreeStop) -> ReceiveStop {
    match stop {
        TreeStop::Body(error) => failure(error),
        TreeStop::Short => {
            let text = "the body has ended before the archive, which ends with two blocks of zeros";
            ReceiveStop::Answer(ShortResponse::new(Status::BadRequest, text))
        }
        TreeStop::Tree(TreeError {
            fault: TreeFault::Failed(error),
            ..
        }) => ReceiveStop::Answer(refusal(&error)),
        TreeStop::Tree(error) => {
            ReceiveStop::Answer(ShortResponse::new(Status::BadRequest, error.to_string()))
        }
    }
}

pub(super) fn refusal(error: &ReceiveFault) -> ShortResponse {
    let status = match error {
        ReceiveFault::Name(_) => Status::BadRequest,
        ReceiveFault::Exists | ReceiveFault::IsFolder | ReceiveFault::NotAFolder => {
            Status::Conflict
        }
        ReceiveFault::NoSpace | ReceiveFault::TooFull { .. } | ReceiveFault::NoInodes => {
            Status::InsufficientStorage
        }
        ReceiveFault::Denied | ReceiveFault::Link => Status::Forbidden,
        ReceiveFault::Busy => Status::Locked,
        ReceiveFault::TooMany => Status::ServiceUnavailable,
        _ => Status::InternalServerError,
    };
    let text = match error {
        ReceiveFault::Exists => "a file of this name exists; the receiver needs --force".to_owned(),
        error => error.to_string(),
    };
    ShortResponse::new(status, text)
}
