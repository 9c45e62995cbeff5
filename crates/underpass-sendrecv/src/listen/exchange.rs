//! What a role needs of the worker, and the end of an exchange.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use underpass_net::Connection;

use crate::listen::request::{Request, ShortResponse};
use crate::progress::TransferProgress;

/// The part of the worker that a role uses.
pub(super) struct RoleContext {
    pub(super) progress: Arc<TransferProgress>,
    pub(super) notices: Sender<Notice>,
}

/// What the worker tells the thread that waits for its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Notice {
    /// A transfer is complete.
    Complete,
    /// The code is used up, and the next one is due after this time.
    CodeSpent(Duration),
}

impl RoleContext {
    /// Reports that a transfer is complete.
    pub(super) fn completed(&self) {
        // Nobody waits any more where the server stops anyway.
        let _ = self.notices.send(Notice::Complete);
    }
}

/// What follows a request on its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Then {
    KeepAlive,
    Close,
    /// The peer must not take what it has for complete.
    Abort,
}

/// Sends a response, after which the connection is kept or not. A body that was not read makes the
/// connection useless.
pub(super) async fn respond(
    response: ShortResponse,
    request: &Request,
    connection: &mut Connection,
    then: Then,
) -> Then {
    let closes = then != Then::KeepAlive || request.closes;
    let sent = response.send(connection, (request.verb, closes));
    match sent.await {
        Ok(()) => then,
        Err(_) => Then::Abort,
    }
}
