//! Waits that end: by what they wait for, by the deadline, or because the server stops.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::connection::deadline::Deadline;
use crate::connection::set::ConnectionSet;
use crate::error::ConnectionError;
use crate::limits::FIRST_REQUEST_TIMEOUT;
use crate::shutdown::phase::ShutdownPhase;

/// Whether a wait goes on while the server drains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhileDraining {
    /// It ends as soon as the server drains: nothing is in progress.
    Ends,
    /// It goes on while the server drains, and ends when the server stops at once.
    Continues,
}

/// Whether the peer has sent anything at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PeerActivity {
    NothingReceived,
    Received,
}

/// What bounds a wait.
pub(crate) struct BoundedWait<'s> {
    pub(crate) deadline: &'s mut Deadline,
    pub(crate) connections: &'s ConnectionSet,
    pub(crate) while_draining: WhileDraining,
    pub(crate) activity: PeerActivity,
}

impl BoundedWait<'_> {
    /// Waits for `work`. Neither clock nor timer is touched if it is ready at once.
    pub(crate) async fn until<F: Future>(self, work: F) -> Result<F::Output, ConnectionError> {
        let mut work = pin!(work);
        poll_fn(|task| {
            if let Poll::Ready(output) = work.as_mut().poll(task) {
                return Poll::Ready(Ok(output));
            }
            match self.end() {
                WaitEnd::Now => return Poll::Ready(Err(ConnectionError::Stopped)),
                WaitEnd::Soon => self.deadline.cut(FIRST_REQUEST_TIMEOUT),
                WaitEnd::None => {}
            }
            self.deadline
                .poll(task)
                .map(|()| Err(ConnectionError::TimedOut))
        })
        .await
    }

    fn end(&self) -> WaitEnd {
        let (phase, while_draining) = (self.connections.phase(), self.while_draining);
        match (phase, while_draining, self.activity) {
            (ShutdownPhase::Now, ..) => WaitEnd::Now,
            (ShutdownPhase::Draining, WhileDraining::Ends, PeerActivity::Received) => WaitEnd::Now,
            // It may have connected, and even sent its request, before the stop.
            (ShutdownPhase::Draining, WhileDraining::Ends, PeerActivity::NothingReceived) => {
                WaitEnd::Soon
            }
            _ => WaitEnd::None,
        }
    }
}

/// How a wait ends because the server does.
enum WaitEnd {
    None,
    Soon,
    Now,
}
