//! Receiving what has a known length: a frame into a buffer of its own, a body into a file, without
//! passing user space where the kernel can.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use underpass::Fault;
use underpass::drive::tokio::FileReceiver;
use underpass::tcp::{Outstanding, Reached};

use crate::connection::input::FrameBuffer;
use crate::connection::wait::{PeerActivity, WhileDraining};
use crate::connection::worker_state::WorkerState;
use crate::connection::{Connection, read_error};
use crate::error::ConnectionError;
use crate::quota::min_rate::MinRateMonitor;

impl Connection {
    /// Receives the rest of a frame: what is in the input first, the others directly. The deadline
    /// is the one that [`start_deadline`](Connection::start_deadline) has set. Cancel safe: `frame`
    /// keeps what has arrived, and another call goes on.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`, `PeerGone` (also where the peer ends its side before the frame is
    /// complete), `Read`.
    pub async fn receive_frame(
        &mut self,
        frame: &mut FrameBuffer,
        while_draining: WhileDraining,
    ) -> Result<(), ConnectionError> {
        let taken = frame.take(self.state.input.bytes());
        self.state.input.consume(taken);
        while frame.missing() > 0 {
            let transport = &self.state.transport;
            let read = poll_fn(|task| transport.poll_read_frame(task, frame));
            let connections = &self.state.worker.connections;
            match self
                .state
                .wait
                .until(connections, while_draining, read)
                .await?
            {
                Ok(0) => return Err(ConnectionError::PeerGone),
                Ok(_) => self.state.wait.activity = PeerActivity::Received,
                Err(error) => return Err(read_error(error)),
            }
            frame.leave_rest(&mut self.state.input);
        }
        Ok(())
    }

    /// A receiver of a body of `length` bytes into `file`, from `offset` on. What of the body is in
    /// the input already is written to the file at once and consumed.
    ///
    /// # Errors
    /// `Move` where the file cannot be written.
    pub fn file_receiver<F: AsFd>(
        &mut self,
        file: F,
        offset: u64,
        length: u64,
    ) -> Result<FileReceiver<F>, ConnectionError> {
        let input = self.state.input.bytes();
        let receiver = FileReceiver::after(input, file, offset, length);
        let receiver = receiver.map_err(ConnectionError::Move)?;
        // No more than the input has, which is memory.
        let consumed = usize::try_from(receiver.account().bytes()).unwrap_or(input.len());
        self.state.input.consume(consumed);
        Ok(receiver)
    }

    /// Receives the rest of a body, in turns that let other connections go on. A peer that sends
    /// nothing for `stall_timeout`, or less than `rate_min`, is given up. Writing to the file may
    /// block the worker for as long as the kernel throttles writers. Cancel safe: `body` knows what
    /// the file has, and another call goes on. Syncing and closing the file, which may report a
    /// lost write (close(2)), are the caller's.
    ///
    /// # Errors
    /// `TimedOut`, `TooSlow`, `Stopped`, `PeerGone` (also where the peer ends its side before the
    /// body is complete), `Move`. What arrived is in the file, and `body` has its account.
    pub async fn receive_file<F: AsFd>(
        &mut self,
        body: &mut FileReceiver<F>,
        while_draining: WhileDraining,
    ) -> Result<(), ConnectionError> {
        let (worker, transport) = (&*self.state.worker, &self.state.transport);
        let mut rate = InboundRate::new(worker);
        while body.left() > 0 {
            let before = body.left();
            self.state.wait.start(rate.until_due());
            let turn = transport.receive(body, &worker.kernel, worker.turn_bytes());
            let turned = self
                .state
                .wait
                .until(&worker.connections, while_draining, turn)
                .await;
            let received = before - body.left();
            if received > 0 {
                self.state.wait.activity = PeerActivity::Received;
            }
            match turned {
                Ok(turned) => turned.map(drop).map_err(receive_error)?,
                Err(ConnectionError::TimedOut) => {}
                Err(error) => return Err(error),
            }
            rate.check(received)?;
        }
        Ok(())
    }
}

/// Whether the peer sends fast enough.
struct InboundRate {
    stall_timeout: Duration,
    /// When something came.
    last: Instant,
    monitor: Option<MinRateMonitor>,
    received: u64,
}

impl InboundRate {
    fn new(worker: &WorkerState) -> InboundRate {
        let monitor = |min_rate| MinRateMonitor::new(min_rate, Instant::now());
        InboundRate {
            stall_timeout: worker.limits.stall_timeout,
            last: Instant::now(),
            monitor: worker.min_rate.map(monitor),
            received: 0,
        }
    }

    /// How long until the peer has to be looked at.
    fn until_due(&self) -> Duration {
        let left = self.stall_timeout.saturating_sub(self.last.elapsed());
        let monitor = self.monitor.as_ref();
        let due = monitor.map_or(Duration::MAX, |monitor| monitor.until_due(Instant::now()));
        left.min(due)
    }

    fn check(&mut self, received: u64) -> Result<(), ConnectionError> {
        self.received += received;
        let now = Instant::now();
        if received > 0 {
            self.last = now;
        } else if now - self.last >= self.stall_timeout {
            return Err(ConnectionError::TimedOut);
        }
        let Some(monitor) = &mut self.monitor else {
            return Ok(());
        };
        if monitor.until_due(now) > Duration::ZERO {
            return Ok(());
        }
        let reached = Reached {
            acknowledged: self.received,
            outstanding: Outstanding::Something,
        };
        monitor.judge(reached, now)
    }
}

fn receive_error(error: underpass::Error) -> ConnectionError {
    match error.fault {
        Fault::PeerGone | Fault::TimedOut | Fault::Truncated => ConnectionError::PeerGone,
        _ => ConnectionError::Move(error),
    }
}
