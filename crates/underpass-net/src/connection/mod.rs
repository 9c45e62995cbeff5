//! One connection: buffered input, an outbox, and a deadline on every wait.
//!
//! ```text
//!  peer ──► fill ──► input() … consume()      the protocol reads heads and frames here
//!  peer ──► receive_frame                     a frame of known length, in a separate buffer
//!  peer ──► receive_file                      a body of known length, into a file
//!  peer ◄── flush ◄── outbox().push(piece)    the mover sends them
//!  another thread ──► WakeHandle ──► wait_for_wake
//! ```
//!
//! Every wait ends: with its event, at its deadline, or when the server stops.

pub(crate) mod connector;
mod handshake;
pub(crate) mod input;
pub(crate) mod receive;
mod send;
pub(crate) mod send_queue;
pub(crate) mod silence;
pub(crate) mod transport;
pub(crate) mod wait;
pub(crate) mod worker_state;

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::Interest;
use underpass::Outbox;
use underpass::drive::tokio::{Forecast, Sender};
use underpass::tcp::{self, Outstanding};

use crate::address::PeerAddress;
use crate::connection::input::Input;
use crate::connection::transport::Transport;
use crate::connection::wait::{BoundedWait, PeerActivity, WakeHandle, WhileDraining};
use crate::connection::worker_state::{
    Awaited, CLIENTS, ConnectionGuard, DescriptorRoom, WorkerState,
};
use crate::error::ConnectionError;
use crate::limits::{ACCEPT_BACKOFF, INPUT_BYTES_MAX, LINGER_BYTES_MAX};
use crate::listen::config::{ListenerAccess, ListenerIdentity};
use crate::quota::client_table::ClientPermit;
use crate::quota::min_rate::MinRateMonitor;
use crate::quota::rate_limiter::RateLimiters;
use crate::shutdown::ShutdownPhase;
use crate::tls::info::{SealedBy, TlsInfo};

/// A connection that was accepted, or that this process opened. Dropping it closes it.
pub struct Connection {
    /// Boxed: connections are moved often, and a task reserves memory for each place of a move.
    state: Box<ConnectionState>,
}

pub(crate) struct ConnectionState {
    /// The data to send. None while it waits for a request, unless data is pending.
    outbox: Option<Box<Outbox>>,
    /// The state of sending it.
    sender: Sender,
    /// The round of the send queue in which a response last started without waiting.
    began_in: u32,
    pub(crate) transport: Transport,
    peer: PeerAddress,
    /// The client that a trusted proxy has named.
    client: Option<Box<PeerAddress>>,
    listener: Option<Rc<ListenerIdentity>>,
    /// The count of the client's connections.
    permit: Option<ClientPermit>,
    /// The rates that it shares with other connections, if any is limited.
    rates: Option<RateLimiters>,
    input: Input,
    pub(crate) wait: BoundedWait,
    wake: Option<WakeHandle>,
    /// Whether the peer takes the response fast enough, once that has taken some time.
    min_rate_monitor: Option<Box<MinRateMonitor>>,
    pub(crate) worker: Rc<WorkerState>,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadOutcome {
    /// There is more input than before.
    Bytes(Arrival),
    /// The peer has closed its side.
    End,
}

/// Whether a read had to wait for the event loop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// It waited: the events reported with it or before have woken their tasks first.
    Waited,
    /// The bytes were there: they may be newer than the last events that the event loop reported.
    AtOnce,
}

impl Connection {
    /// Creates a connection that `listener` has accepted.
    pub(crate) fn accepted(
        transport: Transport,
        peer: PeerAddress,
        listener: Rc<ListenerIdentity>,
        worker: Rc<WorkerState>,
        guard: ConnectionGuard,
    ) -> Connection {
        let wait = BoundedWait::of(guard, worker.limits.idle_timeout);
        let mut connection = Connection::new(transport, peer, worker, wait);
        connection.state.listener = Some(listener);
        connection
    }

    /// Has the calling task woken when its connection is to end. Call it once, at the start of the
    /// task.
    pub(crate) async fn enter_task(&self) {
        if let Some(guard) = &self.state.wait.guard {
            guard.register_waker().await;
        }
    }

    fn new(
        transport: Transport,
        peer: PeerAddress,
        worker: Rc<WorkerState>,
        wait: BoundedWait,
    ) -> Connection {
        let state = Box::new(ConnectionState {
            outbox: None,
            sender: Sender::new(),
            began_in: u32::MAX,
            transport,
            peer,
            client: None,
            listener: None,
            permit: None,
            rates: None,
            input: Input::default(),
            wait,
            wake: None,
            min_rate_monitor: None,
            worker,
        });
        Connection { state }
    }

    /// Returns the address of the peer.
    pub fn peer(&self) -> PeerAddress {
        self.state.peer
    }

    /// Returns the address of this machine that the peer connected to; none for a Unix socket. One
    /// system call.
    pub fn local_address(&self) -> Option<SocketAddr> {
        let name = rustix::net::getsockname(&self.state.transport).ok()?;
        name.try_into().ok()
    }

    /// Returns the client of the connection: the peer, or the client that a trusted proxy has named
    /// by the PROXY protocol.
    pub fn client(&self) -> PeerAddress {
        self.state
            .client
            .as_deref()
            .copied()
            .unwrap_or(self.state.peer)
    }

    pub(crate) fn set_client(&mut self, client: PeerAddress) {
        self.state.client = Some(Box::new(client));
    }

    /// Returns the parameters of the TLS session; none if the connection is not encrypted.
    pub fn tls(&self) -> Option<&Rc<TlsInfo>> {
        self.state.transport.tls()
    }

    pub(crate) fn state(&mut self) -> &mut ConnectionState {
        &mut self.state
    }

    /// Returns the state that all connections of the worker share.
    pub(crate) fn worker(&self) -> &Rc<WorkerState> {
        &self.state.worker
    }

    /// Counts the connection towards its client's limit, and limits its rate.
    pub(crate) fn set_quota(&mut self, permit: Option<ClientPermit>) {
        self.state.rates = self.state.worker.shared.rate_limiters(permit.as_ref());
        self.state.permit = permit;
    }

    /// Returns the listener that accepted the connection; none if this process opened it.
    pub fn listener(&self) -> Option<&ListenerIdentity> {
        self.state.listener.as_deref()
    }

    /// Returns whether the limits of clients apply.
    pub(crate) fn is_of_client(&self) -> bool {
        match self.listener() {
            Some(listener) => listener.access() == ListenerAccess::Clients,
            None => false,
        }
    }

    /// Returns input that has been received and not consumed yet.
    pub fn input(&self) -> &[u8] {
        self.state.input.bytes()
    }

    /// Removes the first `count` bytes of the input. Panics if there are fewer.
    pub fn consume(&mut self, count: usize) {
        self.state.input.consume(count);
    }

    /// Returns the outbox. [`Connection::flush`] sends it.
    pub fn outbox(&mut self) -> &mut Outbox {
        let state = &mut *self.state;
        state.worker.outbox_in(&mut state.outbox)
    }

    /// Returns the input, the outbox for the response, and the descriptors it may reserve.
    pub fn parts(&mut self) -> (&[u8], &mut Outbox, DescriptorRoom<'_>) {
        let state = &mut *self.state;
        let room = DescriptorRoom(&state.worker);
        let outbox = state.worker.outbox_in(&mut state.outbox);
        (state.input.bytes(), outbox, room)
    }

    /// Returns the phase of the worker. From [`ShutdownPhase::Retiring`] on this connection should
    /// end after its response.
    pub fn phase(&self) -> ShutdownPhase {
        self.state.worker.connections.phase()
    }

    /// Returns the phase of the whole server: still `Running` if only the workers of an earlier
    /// configuration retire. Takes a lock that all workers share.
    pub fn server_phase(&self) -> ShutdownPhase {
        self.state.worker.shutdown.phase()
    }

    /// Gives all following waits for the peer together `span`, counted from the first one that has
    /// to wait. [`flush`](Connection::flush) has separate deadlines.
    pub fn start_deadline(&mut self, span: Duration) {
        self.state.wait.start(span);
    }

    /// Like [`start_deadline`](Connection::start_deadline) with the idle timeout. Until the next
    /// deadline is started the connection counts as idle, and may be closed to make room for
    /// others.
    pub fn start_idle_deadline(&mut self) {
        let idle_timeout = self.state.worker.limits.idle_timeout;
        let wait = &mut self.state.wait;
        wait.start_evictable(idle_timeout, Awaited::Next);
    }

    /// Like [`start_deadline`](Connection::start_deadline) for the rest of a partly received
    /// request: to make room for others, the connection is closed only after all idle ones.
    pub fn start_request_deadline(&mut self, span: Duration) {
        let wait = &mut self.state.wait;
        wait.start_evictable(span, Awaited::Rest);
    }

    /// Reads once, waiting for input if none is there. Cancel safe.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`, `Evicted`, `PeerGone`, `Read`; `InputFull` if nothing consumes the
    /// input.
    pub async fn fill(
        &mut self,
        while_draining: WhileDraining,
    ) -> Result<ReadOutcome, ConnectionError> {
        let state = &mut *self.state;
        if state.input.bytes().len() >= INPUT_BYTES_MAX {
            return Err(ConnectionError::InputFull);
        }
        // A waiting connection returns its buffer and outbox to the worker until input arrives.
        let mut arrival = Arrival::AtOnce;
        let read = poll_fn(|task| {
            let state = &mut *self.state;
            let (wait, worker) = (&mut state.wait, &*state.worker);
            wait.poll_until(task, &worker.connections, while_draining, |task| {
                let room = state.input.room(&worker.buffers.spare_input);
                let polled = state.transport.poll_read(task, room);
                if polled.is_pending() {
                    arrival = Arrival::Waited;
                    state.input.lend_to(&worker.buffers.spare_input);
                    worker.take_back(&mut state.outbox);
                }
                polled
            })
        });
        let read = read.await;
        let state = &mut *self.state;
        let read = match read {
            // Its request may have arrived without the event loop having reported it.
            Err(ConnectionError::Evicted) => {
                arrival = Arrival::AtOnce;
                let room = state.input.room(&state.worker.buffers.spare_input);
                match state.transport.read_now(room) {
                    read @ Ok(1..) => read,
                    _ => return Err(ConnectionError::Evicted),
                }
            }
            read => read?,
        };
        match read {
            Ok(0) => Ok(ReadOutcome::End),
            Ok(_) => {
                state.wait.activity = PeerActivity::Received;
                Ok(ReadOutcome::Bytes(arrival))
            }
            Err(error) => Err(read_error(error)),
        }
    }

    /// Returns a handle that wakes this connection from
    /// [`wait_for_wake`](Connection::wait_for_wake), on any thread.
    pub fn wake_handle(&mut self) -> WakeHandle {
        self.state.wake.get_or_insert_default().clone()
    }

    /// Waits until the connection is woken by its [`WakeHandle`]; returns immediately if it was
    /// woken since the last wait. The deadline is the one set by
    /// [`start_deadline`](Connection::start_deadline). Input that arrives meanwhile is not read.
    /// Cancel safe.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`, `PeerGone`.
    pub async fn wait_for_wake(
        &mut self,
        while_draining: WhileDraining,
    ) -> Result<(), ConnectionError> {
        let wake = self.wake_handle();
        let work = pin!(unless_closed(&self.state.transport, wake.woken()));
        let connections = &self.state.worker.connections;
        self.state
            .wait
            .until(connections, while_draining, work)
            .await?
    }

    /// Waits for `work` on behalf of the peer, unless the peer closes its side meanwhile. A peer
    /// that half-closes counts as gone too: the two look the same until data is sent. Input stays
    /// unread. It has no deadline. Cancel safe if `work` is.
    ///
    /// # Errors
    /// `PeerGone`, `Stopped`; `work` is dropped.
    pub async fn unless_peer_closes<F: Future>(
        &self,
        work: F,
    ) -> Result<F::Output, ConnectionError> {
        let mut work = pin!(unless_closed(&self.state.transport, work));
        poll_fn(|task| match work.as_mut().poll(task) {
            Poll::Pending if self.phase() >= ShutdownPhase::Now => {
                Poll::Ready(Err(ConnectionError::Stopped))
            }
            polled => polled,
        })
        .await
    }

    /// Makes room after opening a file failed with too many open files: closes idle pipes and the
    /// longest idle connection, or waits a moment if it finds none. New connections do not take
    /// that room until this request is served. Returns the number of connections closed.
    pub async fn free_descriptors(&self) -> u64 {
        let worker = &*self.state.worker;
        worker.connections.record_shortage();
        worker.buffers.kernel.close_idle_pipes();
        let evicted = worker.connections.evict(CLIENTS);
        match evicted {
            0 => tokio::time::sleep(ACCEPT_BACKOFF).await,
            // The connection closes once its task has run.
            _ => tokio::task::yield_now().await,
        }
        evicted
    }

    /// Predicts how the first pending range will be sent, if its head grows by `longer` bytes. For
    /// debugging; makes a few system calls.
    pub fn forecast(&self, longer: u64) -> Option<Forecast> {
        let (worker, state) = (&*self.state.worker, &*self.state);
        let means = (&worker.buffers.kernel, &worker.buffers.policy);
        let outbox = state.outbox.as_deref()?;
        state
            .transport
            .forecast(&state.sender, outbox, means, longer)
    }

    /// Returns where the next pending data will be encrypted; none without TLS.
    pub fn sealed_by(&self) -> Option<SealedBy> {
        let outbox = self.state.outbox.as_deref()?;
        self.state.transport.sealed_by(outbox)
    }

    /// Returns the bytes that the peer has acknowledged since the connection was made, those of TLS
    /// included; 0 for a Unix socket. One system call.
    pub fn acknowledged(&self) -> u64 {
        tcp::reached(&self.state.transport).map_or(0, |reached| reached.acknowledged)
    }

    /// Half-closes, so that the peer sees the end of the stream, and reads what it still sends, up
    /// to a number of bytes and a timeout, which restarts as long as the peer reads the response.
    /// Closing with unread input would send a reset, which can destroy a response in flight. A peer
    /// that has acknowledged the response is not waited for where others wait for a connection.
    pub async fn close(mut self) {
        let span = self.state.worker.limits.linger_timeout;
        self.state.wait.start_evictable(span, Awaited::Rest);
        if self.shutdown().await.is_err() {
            return;
        }
        let mut left = LINGER_BYTES_MAX;
        let mut acknowledged = None;
        loop {
            left = left.saturating_sub(self.state.input.bytes().len());
            self.state.input.clear();
            if left == 0 {
                return;
            }
            match self.fill(WhileDraining::Continues).await {
                Ok(ReadOutcome::Bytes(_)) => {}
                Err(ConnectionError::TimedOut) if self.is_read_on(&mut acknowledged) => {
                    self.state.wait.start(span);
                }
                Err(ConnectionError::Evicted) if self.is_outstanding() => {
                    self.state.wait.start(span);
                }
                Ok(ReadOutcome::End) => return,
                Err(_) => return self.limit_undelivered(),
            }
        }
    }

    /// Limits the time that the kernel keeps unacknowledged data after the connection is closed.
    pub fn limit_undelivered(&self) {
        let limits = &self.state.worker.limits;
        let millis = limits.stall_timeout.as_millis().min(i32::MAX as u128);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&self.state.transport, millis as u32);
    }

    fn is_outstanding(&self) -> bool {
        tcp::reached(&self.state.transport)
            .is_ok_and(|reached| reached.outstanding == Outstanding::Something)
    }

    /// Returns whether data is outstanding and the peer has acknowledged more since the last call,
    /// at the minimum rate if there is one.
    fn is_read_on(&self, acknowledged: &mut Option<u64>) -> bool {
        match tcp::reached(&self.state.transport) {
            Ok(reached) if reached.outstanding == Outstanding::Something => {
                let limits = &self.state.worker.limits;
                let seconds = limits.linger_timeout.as_secs();
                let wanted = seconds.saturating_mul(limits.rate_min).max(1);
                let before = acknowledged.replace(reached.acknowledged);
                before.is_none_or(|before| before.saturating_add(wanted) <= reached.acknowledged)
            }
            _ => false,
        }
    }

    /// Shuts down our side, once the socket accepts any closing message of TLS.
    async fn shutdown(&mut self) -> io::Result<()> {
        let state = &mut *self.state;
        while let Err(error) = state.transport.shutdown() {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            let writable = state.transport.readiness(Interest::WRITABLE);
            let connections = &state.worker.connections;
            let ready = state
                .wait
                .until(connections, WhileDraining::Continues, writable)
                .await;
            ready.map_err(|_| io::ErrorKind::TimedOut)??;
        }
        Ok(())
    }

    /// Closes immediately; for peers that want no more. Announces the end of an encrypted
    /// connection if the socket accepts it, so that the peer can distinguish it from a truncation.
    pub fn end(self) {
        if self.tls().is_some() {
            let _ = self.state.transport.shutdown();
        }
    }

    /// Resets the connection, so that the peer does not take its data for complete.
    pub fn abort(self) {
        // If even this fails the connection is gone already.
        let _ = self.state.transport.set_reset();
    }
}

/// Waits for `work`, unless the peer closes its side meanwhile.
async fn unless_closed<F: Future>(
    transport: &Transport,
    work: F,
) -> Result<F::Output, ConnectionError> {
    // The socket may be readable all the time. Interest in out-of-band data, which is not used,
    // also wakes for the end of reading, and for nothing else.
    let closed = async {
        loop {
            match transport.readiness(Interest::PRIORITY).await {
                Ok(ready) if !ready.is_read_closed() => tokio::task::yield_now().await,
                _ => return,
            }
        }
    };
    let (mut work, mut closed) = (pin!(work), pin!(closed));
    poll_fn(|task| {
        if let Poll::Ready(output) = work.as_mut().poll(task) {
            return Poll::Ready(Ok(output));
        }
        let closed = closed.as_mut().poll(task);
        closed.map(|()| Err(ConnectionError::PeerGone))
    })
    .await
}

fn read_error(error: io::Error) -> ConnectionError {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::TimedOut => ConnectionError::PeerGone,
        _ => ConnectionError::Read(error),
    }
}
