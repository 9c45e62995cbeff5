//! The context of a role within the worker, and the end of an exchange.

use std::cell::Cell;
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
    /// Transfers of which everything is stored, and whose senders have not confirmed that they know
    /// it.
    pub(super) unconfirmed: Cell<u64>,
}

/// A message of the worker to the thread that waits for its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Notice {
    /// A transfer is complete.
    Complete,
    /// The code is used up, and the next one is due after this time.
    CodeSpent(Duration),
}

impl RoleContext {
    /// Reports a transfer as complete that is not confirmed, if it still is.
    pub(super) fn give_up_confirmation(&self) {
        if self.unconfirmed.get() > 0 {
            self.completed();
        }
    }

    /// Reports that a transfer is complete.
    pub(super) fn completed(&self) {
        self.unconfirmed
            .set(self.unconfirmed.get().saturating_sub(1));
        // Nobody waits any more where the server stops anyway.
        let _ = self.notices.send(Notice::Complete);
    }
}

/// The use of a connection after a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Then {
    KeepAlive,
    /// The transfer is complete once the peer confirms that it has the response.
    Confirm,
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
    let is_kept = matches!(then, Then::KeepAlive | Then::Confirm);
    let closes = !is_kept || request.closes;
    let sent = response.send(connection, (request.verb, closes));
    match sent.await {
        Ok(()) => then,
        Err(_) => Then::Abort,
    }
}
