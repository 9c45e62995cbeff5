//! Bounds the bytes sent to connections before the event loop polls for new events.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::limits::ROUND_BYTES;

/// The share of large responses in one round of an event loop, first come, first served. When it is
/// used up, the event loop polls for new events: requests that have arrived are served before the
/// next round. The first turn of a response does not wait, once per connection and round; a round
/// lets at least as many bytes out of the queue as first turns have sent. A connection that waits
/// for room in its socket is not in the queue.
#[derive(Default)]
pub(crate) struct SendQueue {
    /// The number of the current round.
    number: Cell<u32>,
    /// Bytes that may still be sent in this round.
    left: Cell<u64>,
    /// Bytes of first turns in this round.
    begun: Cell<u64>,
    queue: RefCell<VecDeque<QueuedSender>>,
    /// The number of senders admitted from the queue so far.
    admitted: Cell<u64>,
    used_up: Notify,
    /// Whether [`renew`](SendQueue::renew) runs. Otherwise, as for connections of a client program,
    /// a sender only yields before each turn.
    is_renewed: Cell<bool>,
}

struct QueuedSender {
    task: Waker,
    bytes: u64,
}

impl SendQueue {
    /// Returns whether a first turn need not wait. `last` is the round of the previous first turn.
    pub(crate) fn may_begin(&self, last: &mut u32) -> bool {
        self.queue.borrow().is_empty() || replace(last, self.number.get()) != self.number.get()
    }

    /// Polls `work` each time it is woken, once `bytes` may be sent. With `begins`, the first poll
    /// does not wait and sends that many bytes, 0 if it only starts to wait. `waits` is set if the
    /// task was queued before this poll: a timer that wakes it only polls the queue. Cancelling
    /// wastes a place.
    pub(crate) async fn pass<F: Future>(
        &self,
        bytes: u64,
        mut begins: Option<u64>,
        waits: &Cell<bool>,
        mut work: Pin<&mut F>,
    ) -> F::Output {
        let mut place = None;
        poll_fn(|task| {
            match begins.take() {
                Some(bytes) => self.begun.set(self.begun.get() + bytes),
                None => {
                    waits.set(place.is_some());
                    ready!(self.poll_enter(task, &mut place, bytes));
                }
            }
            waits.set(false);
            place = None;
            work.as_mut().poll(task)
        })
        .await
    }

    /// Ready once `bytes` may be sent. `place` is the place in the queue, if any.
    fn poll_enter(&self, task: &Context<'_>, place: &mut Option<u64>, bytes: u64) -> Poll<()> {
        let mut queue = self.queue.borrow_mut();
        let number = match *place {
            Some(number) => number,
            None if bytes == 0 => return Poll::Ready(()),
            None if !self.is_renewed.get() => {
                task.waker().wake_by_ref();
                *place = Some(0);
                return Poll::Pending;
            }
            None if queue.is_empty() && self.left.get() > 0 => {
                self.left.set(self.left.get().saturating_sub(bytes));
                return Poll::Ready(());
            }
            None => {
                if queue.is_empty() {
                    self.begun.set(0);
                }
                let task = task.waker().clone();
                queue.push_back(QueuedSender { task, bytes });
                self.used_up.notify_one();
                *place.insert(self.admitted.get() + queue.len() as u64)
            }
        };
        match number <= self.admitted.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Starts the next round whenever one is used up and the event loop has polled for events.
    pub(crate) async fn renew(&self) {
        self.is_renewed.set(true);
        loop {
            if self.queue.borrow().is_empty() {
                self.used_up.notified().await;
            }
            yield_now().await;
            self.number.set(self.number.get().wrapping_add(1));
            let mut left = self.begun.take().max(ROUND_BYTES);
            while left > 0 {
                let Some(waiting) = self.queue.borrow_mut().pop_front() else {
                    break;
                };
                left = left.saturating_sub(waiting.bytes);
                self.admitted.set(self.admitted.get() + 1);
                waiting.task.wake();
            }
            self.left.set(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::rc::Rc;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::{JoinHandle, spawn_local};

    use super::*;

    impl SendQueue {
        async fn enter(&self, bytes: u64) {
            self.begin(bytes, false).await;
        }

        async fn begin(&self, bytes: u64, may_begin: bool) {
            let (waits, work) = (Cell::new(false), pin!(async {}));
            self.pass(bytes, may_begin.then_some(bytes), &waits, work)
                .await;
            assert!(!waits.get());
        }
    }

    /// Runs `test` concurrently with the task that renews rounds.
    fn beside_renewal<F: Future>(test: impl FnOnce(Rc<SendQueue>) -> F) -> F::Output {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let queue = Rc::new(SendQueue::default());
            let renewed = Rc::clone(&queue);
            spawn_local(async move { renewed.renew().await });
            yield_now().await;
            test(queue).await
        })
    }

    #[test]
    fn others_have_their_turn_between_any_two_rounds_and_everybody_is_sent_as_much() {
        const SENDERS: usize = 100;
        const TURNS: usize = 20;
        beside_renewal(|queue| async move {
            let sent = Rc::new(RefCell::new([0; SENDERS]));
            let sender = |sender: usize| {
                let (queue, sent) = (Rc::clone(&queue), Rc::clone(&sent));
                spawn_local(async move {
                    for _ in 0..TURNS {
                        queue.enter(ROUND_BYTES / 4).await;
                        sent.borrow_mut()[sender] += 1;
                    }
                })
            };
            let senders: Vec<JoinHandle<()>> = (0..SENDERS).map(sender).collect();
            let (mut before, mut rounds) = (0, 0);
            while before < SENDERS * TURNS {
                yield_now().await;
                let (now, least, most) = {
                    let sent = sent.borrow();
                    let least = *sent.iter().min().unwrap();
                    (sent.iter().sum(), least, *sent.iter().max().unwrap())
                };
                // The first sender has the first round alone.
                assert!(now - before <= 4, "{} turns in a round", now - before);
                assert!(
                    most - least <= 4,
                    "one has had {most} turns and another {least}"
                );
                (before, rounds) = (now, rounds + 1);
            }
            assert!(rounds < SENDERS * TURNS, "{rounds} rounds");
            for sender in senders {
                sender.await.unwrap();
            }
        });
    }

    #[test]
    fn who_begins_one_response_after_the_other_waits_like_others() {
        const TURNS: usize = 50;
        beside_renewal(|queue| async move {
            let senders: Vec<_> = (0..8)
                .map(|_| {
                    let queue = Rc::clone(&queue);
                    spawn_local(async move {
                        for _ in 0..TURNS {
                            queue.enter(ROUND_BYTES / 2).await;
                        }
                    })
                })
                .collect();
            yield_now().await;
            let (mut last, mut begun) = (u32::MAX, 0);
            while senders.iter().any(|one| !one.is_finished()) {
                assert!(begun < 6 * TURNS, "{begun} responses");
                let may_begin = queue.may_begin(&mut last);
                queue.begin(ROUND_BYTES / 2, may_begin).await;
                begun += 1;
            }
            assert!(begun >= TURNS, "{begun} responses");
        });
    }

    #[test]
    fn who_waits_for_room_is_outside_of_the_queue_and_comes_behind_others_when_it_is_woken() {
        beside_renewal(|queue| async move {
            let other = Rc::clone(&queue);
            let other = spawn_local(async move {
                for _ in 0..3 {
                    other.enter(ROUND_BYTES).await;
                }
            });
            yield_now().await;
            let (waits, polls) = (Cell::new(false), Cell::new(0));
            let work = pin!(poll_fn(|_| {
                polls.set(polls.get() + 1);
                match polls.get() {
                    1 => Poll::Pending,
                    _ => Poll::Ready(()),
                }
            }));
            let mut pass = pin!(queue.pass(ROUND_BYTES, Some(0), &waits, work));
            let mut poll = async || poll_fn(|task| Poll::Ready(pass.as_mut().poll(task))).await;
            let begun = queue.begun.get();
            assert!(poll().await.is_pending());
            assert_eq!((polls.get(), queue.begun.get()), (1, begun));
            // The socket has room again: now it takes a place.
            assert!(poll().await.is_pending());
            assert_eq!(polls.get(), 1);
            while poll().await.is_pending() {
                assert_eq!(polls.get(), 1);
                yield_now().await;
            }
            assert_eq!(polls.get(), 2);
            other.await.unwrap();
        });
    }

    #[test]
    fn who_gives_up_holds_up_nobody() {
        beside_renewal(|queue| async move {
            let done = Rc::new(Cell::new(0));
            let all = [ROUND_BYTES; 10].map(|bytes| {
                let (queue, done) = (Rc::clone(&queue), Rc::clone(&done));
                spawn_local(async move {
                    queue.enter(bytes).await;
                    done.set(done.get() + 1);
                })
            });
            yield_now().await;
            let waits = all.iter().filter(|one| !one.is_finished()).take(5);
            waits.for_each(JoinHandle::abort);
            let mut ended = 0;
            for one in all {
                ended += usize::from(one.await.is_ok());
            }
            assert_eq!((ended, done.get()), (5, 5));
        });
    }

    #[test]
    fn where_nobody_renews_it_others_go_on_before_each_turn() {
        let mut builder = Builder::new_current_thread();
        builder.build().unwrap().block_on(async {
            let queue = SendQueue::default();
            let passes = Cell::new(0);
            let sends = async {
                for _ in 0..100 {
                    queue.enter(ROUND_BYTES).await;
                    passes.set(passes.get() + 1);
                }
            };
            let counts = async {
                for turn in 0..100 {
                    assert!(passes.get() <= turn, "{} passes", passes.get());
                    yield_now().await;
                }
            };
            tokio::join!(biased; sends, counts);
        });
    }

    #[test]
    fn what_is_small_does_not_wait() {
        beside_renewal(|queue| async move {
            queue.enter(2 * ROUND_BYTES).await;
            tokio::select! {
                biased;
                () = async {
                    queue.enter(0).await;
                    queue.begin(ROUND_BYTES, true).await;
                } => {}
                () = yield_now() => panic!("it has waited"),
            }
        });
    }
}
