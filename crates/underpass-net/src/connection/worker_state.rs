//! The state that all connections of a worker share, and the set of these connections.
//!
//! A connection checks the phase whenever it is polled: one load, with no registration and no
//! wake-up per request. When the phase changes, every connection is woken once, so that waiting
//! ones see it.
//!
//! Connections are counted in groups, each with a separate maximum: group 0 has the connections of
//! clients, the others those of administrative listeners. In a full group, connections that wait
//! for a request are closed to make room for new ones: first silent ones, then the longest idle,
//! then those that have sent only a part of a request.
//!
//! The set knows the deadlines of their waits, and one task wakes all overdue ones: a timer for
//! each would take more memory than the rest of its wait.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use underpass::limits::{TURN_BYTES_MAX, TURN_BYTES_MIN};
use underpass::{Outbox, Policy};

use crate::connection::send_queue::SendQueue;
use crate::io::buffers::WorkerBuffers;
use crate::io::step_gate::StepGate;
use crate::limits::{
    ConnectionLimits, EVICTED_MAX, EVICTION_GRACE_MAX, EVICTION_GRACE_MIN, EVICTION_SHARE,
    LOOK_INTERVAL_MIN, SHORTAGE_KEPT, TURNS_BYTES,
};
use crate::quota::SharedQuotas;
use crate::quota::client_table::{ClientTable, PerClientLimits};
use crate::quota::log_throttle::LogThrottle;
use crate::quota::min_rate::MinRate;
use crate::shutdown::{Shutdown, ShutdownPhase};

/// The state that all connections of a worker share.
pub(crate) struct WorkerState {
    pub(crate) limits: ConnectionLimits,
    /// The minimum rate of `limits`.
    pub(crate) min_rate: Option<MinRate>,
    pub(crate) connections: ConnectionSet,
    pub(crate) buffers: WorkerBuffers,
    /// The queue in which large responses take turns.
    pub(crate) send_queue: SendQueue,
    /// The outbox for the next connection that sends.
    spare_outbox: Cell<Option<Box<Outbox>>>,
    /// The gate at which handshakes take turns.
    pub(crate) handshakes: StepGate,
    pub(crate) shared: Arc<SharedQuotas>,
    /// Shared with other workers where a limit is configured.
    pub(crate) clients: Arc<ClientTable>,
    /// The shutdown of the worker's server.
    pub(crate) shutdown: Shutdown,
    /// Throttles the log of rejected connections to one line per burst.
    pub(crate) rejections: LogThrottle,
}

impl WorkerState {
    /// Creates the state of a worker without connections. Probes the kernel with a few calls.
    pub(crate) fn new(
        limits: ConnectionLimits,
        policy: Policy,
        connections: ConnectionSet,
        shared: Arc<SharedQuotas>,
        shutdown: Shutdown,
    ) -> WorkerState {
        let min_rate = MinRate {
            bytes_per_second: limits.rate_min,
            window: limits.rate_min_window,
        };
        let own_clients = || Arc::new(ClientTable::new(PerClientLimits::by(&limits, 1)));
        let clients = shared.clients.clone().unwrap_or_else(own_clients);
        WorkerState {
            min_rate: (limits.rate_min > 0).then_some(min_rate),
            limits,
            connections,
            buffers: WorkerBuffers::new(policy),
            send_queue: SendQueue::default(),
            spare_outbox: Cell::default(),
            handshakes: StepGate::default(),
            clients,
            shared,
            shutdown,
            rejections: LogThrottle::default(),
        }
    }

    /// Returns the outbox in `place`, which is filled if it is empty.
    pub(crate) fn outbox_in<'p>(&self, place: &'p mut Option<Box<Outbox>>) -> &'p mut Outbox {
        place.get_or_insert_with(|| {
            self.spare_outbox.take().unwrap_or_else(|| {
                let joined_bytes_max = self.limits.joined_bytes_max;
                Box::new(Outbox::new().joined_bytes_max(joined_bytes_max))
            })
        })
    }

    /// Takes an unused outbox from `place` for the next connection.
    pub(crate) fn take_back(&self, place: &mut Option<Box<Outbox>>) {
        if let Some(outbox) = place.take_if(|outbox| outbox.is_unused()) {
            self.spare_outbox.set(Some(outbox));
        }
    }

    /// Returns the bytes that a connection may send, or receive, in one turn.
    pub(crate) fn turn_bytes(&self) -> u64 {
        let connections = self.connections.len().max(1);
        (TURNS_BYTES / connections as u64).clamp(TURN_BYTES_MIN, TURN_BYTES_MAX)
    }
}

pub(crate) struct ConnectionSet {
    phase: Cell<ShutdownPhase>,
    entries: RefCell<Slab<ConnectionEntry>>,
    groups: Vec<ConnectionGroup>,
    /// The maximum number of descriptors: two for each client connection, and the reserved ones.
    descriptors_max: usize,
    reserved: Cell<usize>,
    /// The time until which descriptors count as short.
    short_until: Cell<Option<Instant>>,
    /// The latest time of the next check for overdue waits.
    next_look: Cell<Option<Instant>>,
    /// Notified when `next_look` becomes earlier.
    sooner: Notify,
    /// Notified whenever a connection ends. Only the worker's own loop waits for it.
    ended: Notify,
}

struct ConnectionEntry {
    /// The waker of the connection's task; a no-op before its first poll.
    waker: Waker,
    group: usize,
    evictability: Evictability,
}

/// Whether a connection may be closed to make room for another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Evictability {
    /// It may not be closed.
    Busy,
    /// It may be closed: it waits.
    Waits {
        awaited: Awaited,
        since: Instant,
        due: Instant,
    },
    /// It is being closed.
    Evicted,
}

/// What a connection waits for, in the order in which connections are closed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Awaited {
    /// The first request: the peer has sent nothing at all.
    First,
    /// Another request.
    Next,
    /// The rest of a request, or the end of the stream after the last response.
    Rest,
}

struct ConnectionGroup {
    count: Cell<usize>,
    max: usize,
}

/// Keeps a connection in the set of its worker. Dropping it removes the connection.
pub(crate) struct ConnectionGuard {
    worker: Rc<WorkerState>,
    number: usize,
}

/// Descriptors that a worker keeps for a response which needs more of them than a connection has.
/// Dropping it gives them back.
pub struct DescriptorReservation {
    worker: Rc<WorkerState>,
    count: usize,
}

/// The descriptors that a worker can still reserve.
#[derive(Clone, Copy)]
pub struct DescriptorRoom<'w>(pub(crate) &'w Rc<WorkerState>);

/// The group of client connections.
pub(crate) const CLIENTS: usize = 0;

impl ConnectionSet {
    /// Creates an empty set; `maxima` are those of the groups.
    pub(crate) fn new(
        maxima: impl IntoIterator<Item = usize>,
        descriptors_max: usize,
    ) -> ConnectionSet {
        let group = |max| ConnectionGroup {
            count: Cell::new(0),
            max,
        };
        ConnectionSet {
            phase: Cell::new(ShutdownPhase::Running),
            entries: RefCell::default(),
            groups: maxima.into_iter().map(group).collect(),
            descriptors_max,
            reserved: Cell::new(0),
            short_until: Cell::new(None),
            next_look: Cell::new(None),
            sooner: Notify::new(),
            ended: Notify::new(),
        }
    }

    pub(crate) fn phase(&self) -> ShutdownPhase {
        self.phase.get()
    }

    /// Returns the number of connections in all groups.
    pub(crate) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Returns whether a group has room for another connection.
    pub(crate) fn has_room(&self, group: usize) -> bool {
        let (count, max) = (self.groups[group].count.get(), self.groups[group].max);
        let taken = count.saturating_add(1).saturating_mul(2);
        let reserved = self.reserved.get();
        let is_left = reserved == 0
            || group != CLIENTS
            || taken.saturating_add(reserved) <= self.descriptors_max;
        count < max && is_left
    }

    /// Returns whether every group has room for another connection.
    pub(crate) fn all_have_room(&self) -> bool {
        (0..self.groups.len()).all(|group| self.has_room(group))
    }

    /// Records that a call failed for lack of descriptors: other code holds some, or the limit was
    /// lowered.
    pub(crate) fn record_shortage(&self) {
        self.short_until.set(Some(Instant::now() + SHORTAGE_KEPT));
    }

    /// Returns whether descriptors are short, so that a connection is accepted only if one more can
    /// be served.
    pub(crate) fn is_short(&self) -> bool {
        let is_over = |until: &Instant| *until <= Instant::now();
        if self.short_until.get().as_ref().is_some_and(is_over) {
            self.short_until.set(None);
        }
        self.short_until.get().is_some()
    }

    /// Sets the phase and wakes all connections.
    pub(crate) fn advance(&self, phase: ShutdownPhase) {
        self.phase.set(phase);
        for (_, entry) in self.entries.borrow().iter() {
            entry.waker.wake_by_ref();
        }
    }

    /// Closes the connections of a group that have waited longest for a request, and returns their
    /// number: 0 if none waits, or while earlier ones are being closed. They end soon.
    pub(crate) fn evict(&self, group: usize) -> u64 {
        let (now, mut entries) = (Instant::now(), self.entries.borrow_mut());
        let grace = Duration::from_millis(self.groups[group].max as u64);
        let grace = grace.clamp(EVICTION_GRACE_MIN, EVICTION_GRACE_MAX);
        let of_group = entries.iter().filter(|(_, entry)| entry.group == group);
        let mut waiting = Vec::new();
        for (number, entry) in of_group {
            match entry.evictability {
                Evictability::Evicted => return 0,
                Evictability::Waits { awaited, since, .. }
                    if awaited == Awaited::Next || now - since >= grace =>
                {
                    waiting.push((awaited, since, number));
                }
                Evictability::Waits { .. } | Evictability::Busy => {}
            }
        }
        let count = (waiting.len() / EVICTION_SHARE).clamp(1, EVICTED_MAX);
        if count < waiting.len() {
            waiting.select_nth_unstable(count);
            waiting.truncate(count);
        }
        for &(_, _, number) in &waiting {
            entries[number].evictability = Evictability::Evicted;
            entries[number].waker.wake_by_ref();
        }
        waiting.len() as u64
    }

    /// Wakes connections whose wait for a request is overdue. Never returns.
    pub(crate) async fn wake_overdue(&self) {
        loop {
            let sooner = self.sooner.notified();
            match self.next_look.get() {
                None => sooner.await,
                Some(next) => {
                    if timeout_at(next, sooner).await.is_err() {
                        self.next_look.set(self.look());
                    }
                }
            }
        }
    }

    /// Wakes overdue connections, and returns the time of the next check.
    fn look(&self) -> Option<Instant> {
        let (now, entries) = (Instant::now(), self.entries.borrow());
        let mut next: Option<Instant> = None;
        for (_, entry) in entries.iter() {
            if let Evictability::Waits { due, .. } = entry.evictability {
                match due <= now {
                    true => entry.waker.wake_by_ref(),
                    false => next = Some(next.map_or(due, |next| next.min(due))),
                }
            }
        }
        next.map(|next| next.max(now + LOOK_INTERVAL_MIN))
    }

    /// Waits until a connection ends; returns immediately if one ended since the last wait.
    pub(crate) async fn one_ended(&self) {
        self.ended.notified().await;
    }

    /// Waits until a group has room.
    pub(crate) async fn room(&self, group: usize) {
        self.until(|| self.has_room(group)).await;
    }

    /// Waits until a group has no connections.
    pub(crate) async fn none_in(&self, group: usize) {
        self.until(|| self.groups[group].count.get() == 0).await;
    }

    /// Waits until no group has connections.
    pub(crate) async fn none(&self) {
        self.until(|| self.len() == 0).await;
    }

    /// Checks again whenever the task wakes: another part of the worker's loop may have consumed
    /// the notification.
    async fn until(&self, is_so: impl Fn() -> bool) {
        let mut ended = pin!(self.ended.notified());
        poll_fn(|task| {
            while !is_so() {
                ready!(ended.as_mut().poll(task));
                ended.set(self.ended.notified());
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl ConnectionGuard {
    /// Adds a connection to the set of `worker`.
    pub(crate) fn new(worker: Rc<WorkerState>, group: usize) -> ConnectionGuard {
        let set = &worker.connections;
        let count = &set.groups[group].count;
        count.set(count.get() + 1);
        let number = set.entries.borrow_mut().insert(ConnectionEntry {
            waker: Waker::noop().clone(),
            group,
            evictability: Evictability::Busy,
        });
        ConnectionGuard { worker, number }
    }

    /// Has the calling task woken when the phase changes, and when the connection is evicted. Call
    /// it once, at the start of the connection's task: waking that task polls everything it awaits.
    pub(crate) async fn register_waker(&self) {
        poll_fn(|task| {
            self.with_entry(|entry| entry.waker = task.waker().clone());
            Poll::Ready(())
        })
        .await;
    }

    /// Declares that the connection may be closed from now on, and must be woken when it is `due`.
    pub(crate) fn set_waiting(&self, awaited: Awaited, since: Instant, due: Instant) {
        self.with_entry(|entry| {
            if entry.evictability != Evictability::Evicted {
                entry.evictability = Evictability::Waits {
                    awaited,
                    since,
                    due,
                };
            }
        });
        let set = &self.worker.connections;
        if set.next_look.get().is_none_or(|next| due < next) {
            set.next_look.set(Some(due));
            set.sooner.notify_one();
        }
    }

    /// Declares that the connection may not be closed any more.
    pub(crate) fn set_busy(&self) {
        self.with_entry(|entry| entry.evictability = Evictability::Busy);
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.with_entry(|entry| entry.evictability == Evictability::Evicted)
    }

    fn with_entry<R>(&self, change: impl FnOnce(&mut ConnectionEntry) -> R) -> R {
        change(&mut self.worker.connections.entries.borrow_mut()[self.number])
    }
}

impl DescriptorRoom<'_> {
    /// Reserves `count` descriptors if connections leave them. At most half of the worker's
    /// descriptors are reserved, so that connections have the other half.
    pub fn reserve(self, count: usize) -> Option<DescriptorReservation> {
        let set = &self.0.connections;
        let (reserved, connections) = (set.reserved.get(), set.groups[CLIENTS].count.get());
        let taken = connections.saturating_mul(2).saturating_add(reserved);
        let is_left = taken.saturating_add(count) <= set.descriptors_max;
        (is_left && reserved.saturating_add(count) <= set.descriptors_max / 2).then(|| {
            set.reserved.set(reserved + count);
            let worker = Rc::clone(self.0);
            DescriptorReservation { worker, count }
        })
    }
}

impl fmt::Debug for DescriptorReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DescriptorReservation")
            .field(&self.count)
            .finish()
    }
}

impl Drop for DescriptorReservation {
    fn drop(&mut self) {
        let set = &self.worker.connections;
        set.reserved.set(set.reserved.get() - self.count);
        set.ended.notify_one();
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let set = &self.worker.connections;
        let entry = set.entries.borrow_mut().remove(self.number);
        let count = &set.groups[entry.group].count;
        count.set(count.get() - 1);
        set.ended.notify_one();
    }
}
