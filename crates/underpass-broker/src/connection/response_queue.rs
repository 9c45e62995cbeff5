//! Responses in the order of their requests, which are processed concurrently.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use underpass::Piece;

use crate::limits::{READY_BYTES_MAX, REQUESTS_PENDING_MAX};

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum RequestOutcome {
    /// A frame to send.
    Frame(Vec<Piece>),
    /// A frame to send, after which the connection is closed.
    LastFrame(Vec<Piece>),
    /// The client expects no response.
    Nothing,
    /// The connection is closed: the request is invalid, or the client cannot be sent the error.
    Close,
}

/// A future response to a request.
pub(crate) type PendingResponse = Pin<Box<dyn Future<Output = RequestOutcome>>>;

/// The unanswered requests of a connection.
#[derive(Default)]
pub(crate) struct ResponseQueue {
    queued: VecDeque<QueuedResponse>,
    /// The memory taken by responses that are ready, in bytes.
    ready_bytes: usize,
}

enum QueuedResponse {
    Pending(PendingResponse),
    Ready(RequestOutcome),
}

impl ResponseQueue {
    /// Returns the number of unanswered requests.
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether no more requests should be accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.queued.len() >= REQUESTS_PENDING_MAX || self.has_enough_ready()
    }

    fn has_enough_ready(&self) -> bool {
        self.ready_bytes >= READY_BYTES_MAX
    }

    /// Adds the response to the latest request. The next [`poll_next`](ResponseQueue::poll_next)
    /// polls it before those of later requests, so its work up to the first wait happens in the
    /// order of the requests.
    pub(crate) fn push(&mut self, response: PendingResponse) {
        self.queued.push_back(QueuedResponse::Pending(response));
    }

    /// Returns the response to the earliest request when it is ready. Polls the others as well,
    /// unless too many ready responses wait for the earliest.
    pub(crate) fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<RequestOutcome> {
        for number in 0..self.queued.len() {
            if number > 0 && self.has_enough_ready() {
                break;
            }
            if let QueuedResponse::Pending(pending) = &mut self.queued[number]
                && let Poll::Ready(response) = pending.as_mut().poll(task)
            {
                self.ready_bytes += response.bytes();
                self.queued[number] = QueuedResponse::Ready(response);
            }
        }
        match self.queued.pop_front() {
            Some(QueuedResponse::Ready(response)) => {
                self.ready_bytes -= response.bytes();
                Poll::Ready(response)
            }
            Some(pending) => {
                self.queued.push_front(pending);
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }
}

impl RequestOutcome {
    /// Closes the connection after the response.
    pub(crate) fn last(self) -> RequestOutcome {
        match self {
            RequestOutcome::Frame(pieces) => RequestOutcome::LastFrame(pieces),
            other => other,
        }
    }

    /// Returns the memory taken by the response, in bytes.
    fn bytes(&self) -> usize {
        let pieces = match self {
            RequestOutcome::Frame(pieces) | RequestOutcome::LastFrame(pieces) => pieces,
            RequestOutcome::Nothing | RequestOutcome::Close => return 0,
        };
        pieces.iter().map(|piece| piece.bytes().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::task::Waker;

    use super::*;

    fn frame(byte: u8) -> RequestOutcome {
        RequestOutcome::Frame(vec![Piece::Bytes(vec![byte])])
    }

    fn first_byte(polled: Poll<RequestOutcome>) -> Option<u8> {
        match polled {
            Poll::Ready(RequestOutcome::Frame(pieces)) => match &pieces[..] {
                [Piece::Bytes(bytes)] => bytes.first().copied(),
                _ => None,
            },
            _ => None,
        }
    }

    #[test]
    fn responses_leave_in_the_order_of_their_requests() {
        let mut queue = ResponseQueue::default();
        let mut polls = 0;
        queue.push(Box::pin(poll_fn(move |_| {
            polls += 1;
            match polls {
                1 => Poll::Pending,
                _ => Poll::Ready(frame(1)),
            }
        })));
        queue.push(Box::pin(ready(frame(2))));
        let mut task = Context::from_waker(Waker::noop());
        assert!(queue.poll_next(&mut task).is_pending());
        assert_eq!(first_byte(queue.poll_next(&mut task)), Some(1));
        assert_eq!(first_byte(queue.poll_next(&mut task)), Some(2));
        assert!(queue.poll_next(&mut task).is_pending());
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn later_requests_are_worked_on_while_an_earlier_one_waits() {
        let mut queue = ResponseQueue::default();
        let worked_on = std::rc::Rc::new(std::cell::Cell::new(false));
        let seen = std::rc::Rc::clone(&worked_on);
        queue.push(Box::pin(pending()));
        queue.push(Box::pin(async move {
            seen.set(true);
            RequestOutcome::Nothing
        }));
        let mut task = Context::from_waker(Waker::noop());
        assert!(queue.poll_next(&mut task).is_pending());
        assert!(worked_on.get());
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn nothing_is_worked_on_while_too_much_waits_for_an_earlier_answer() {
        let mut queue = ResponseQueue::default();
        let is_first_ready = std::rc::Rc::new(std::cell::Cell::new(false));
        let is_ready = std::rc::Rc::clone(&is_first_ready);
        queue.push(Box::pin(poll_fn(move |_| match is_ready.get() {
            true => Poll::Ready(frame(1)),
            false => Poll::Pending,
        })));
        let large = RequestOutcome::Frame(vec![Piece::Bytes(vec![2; READY_BYTES_MAX])]);
        queue.push(Box::pin(ready(large)));
        assert!(!queue.is_full());
        let mut task = Context::from_waker(Waker::noop());
        assert!(queue.poll_next(&mut task).is_pending());
        assert!(queue.is_full());
        let worked_on = std::rc::Rc::new(std::cell::Cell::new(false));
        let seen = std::rc::Rc::clone(&worked_on);
        queue.push(Box::pin(async move {
            seen.set(true);
            frame(3)
        }));
        assert!(queue.poll_next(&mut task).is_pending());
        assert!(!worked_on.get());
        is_first_ready.set(true);
        let answers = [1, 2, 3].map(|_| first_byte(queue.poll_next(&mut task)));
        assert_eq!(answers, [Some(1), Some(2), Some(3)]);
        assert!(!queue.is_full() && worked_on.get());
    }
}
