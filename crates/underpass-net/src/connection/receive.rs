//! Receives data of known length: frames into buffers, bodies into files, bypassing user space
//! where the kernel can.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use underpass::Fault;
use underpass::drive::tokio::FileReceiver;
use underpass::tcp::{Outstanding, Reached};

use crate::connection::input::FrameBuffer;
use crate::connection::wait::{PeerActivity, WhileDraining};
use crate::connection::worker_state::WorkerState;
use crate::connection::{Connection, ReadOutcome, read_error};
use crate::error::ConnectionError;
use crate::quota::min_rate::MinRateMonitor;

impl Connection {
    /// Receives the rest of a frame: first from the input, then directly. The deadline is the one
    /// set by [`start_deadline`](Connection::start_deadline). Cancel safe: `frame` keeps the bytes
    /// that have arrived, and another call continues.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`, `PeerGone` (also if the peer ends its side before the frame is
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

    /// Creates a receiver of a body of `length` bytes into `file`, starting at `offset`. It takes
    /// over the part of the body that is in the input.
    ///
    /// # Errors
    /// `Move` if the file is not suitable, or descriptors are short.
    pub fn file_receiver(
        &mut self,
        file: impl AsFd,
        offset: u64,
        length: u64,
    ) -> Result<FileReceiver, ConnectionError> {
        let receiver = FileReceiver::new(file, offset, length);
        let mut receiver = receiver.map_err(|errno| ConnectionError::Move(errno.into()))?;
        let consumed = receiver.push(self.state.input.bytes());
        self.state.input.consume(consumed);
        Ok(receiver)
    }

    /// Waits until a file has everything that its receiver has taken, after a call of
    /// [`receive_file`](Connection::receive_file) was dropped.
    ///
    /// # Errors
    /// `Move` if the file cannot be written.
    pub async fn settle_file(&self, body: &mut FileReceiver) -> Result<(), ConnectionError> {
        let settled = body.flush(&self.state.worker.buffers.kernel).await;
        settled.map_err(ConnectionError::Move)
    }

    /// Receives the rest of a body, in turns between which other connections run. A peer that sends
    /// nothing for `stall_timeout`, or less than `rate_min`, is given up. Another thread writes to
    /// the file while the kernel throttles writers. Cancel safe: `body` records what the file
    /// has, and another call continues. The caller syncs and closes the file, which may report a
    /// lost write (close(2)).
    ///
    /// # Errors
    /// `TimedOut`, `TooSlow`, `Stopped`, `PeerGone` (also if the peer ends its side before the body
    /// is complete), `Move`. The received part is in the file, and `body` has its account.
    pub async fn receive_file(
        &mut self,
        body: &mut FileReceiver,
        while_draining: WhileDraining,
    ) -> Result<(), ConnectionError> {
        let (worker, transport) = (&*self.state.worker, &self.state.transport);
        let mut rate = InboundRate::new(worker);
        while body.left() > 0 {
            let before = body.left();
            self.state.wait.start(rate.until_due());
            let turn = transport.receive(body, &worker.buffers.kernel, worker.turn_bytes());
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
                // The peer is not to blame for a slow disk.
                Err(ConnectionError::TimedOut) if body.is_writing() => rate.last = Instant::now(),
                Err(ConnectionError::TimedOut) => {}
                Err(error) => return Err(error),
            }
            rate.check(received)?;
        }
        Ok(())
    }

    /// Returns a check of the rate at which the peer sends from now on.
    pub fn inbound_rate(&self) -> InboundRate {
        InboundRate::new(&self.state.worker)
    }

    /// Reads once, as [`fill`](Connection::fill) does. A peer that sends nothing for
    /// `stall_timeout`, or less than `rate_min`, is given up. Cancel safe.
    ///
    /// # Errors
    /// Those of `fill`, and `TooSlow`.
    pub async fn fill_at_rate(
        &mut self,
        rate: &mut InboundRate,
        while_draining: WhileDraining,
    ) -> Result<ReadOutcome, ConnectionError> {
        loop {
            let before = self.input().len();
            self.state.wait.start(rate.until_due());
            let read = self.fill(while_draining).await;
            let received = self.input().len().saturating_sub(before);
            match read {
                Ok(ReadOutcome::Bytes(_)) | Err(ConnectionError::TimedOut) => {
                    rate.check(received as u64)?;
                }
                read => return read,
            }
            if let Ok(ReadOutcome::Bytes(_)) = read {
                return read;
            }
        }
    }
}

/// The check that the peer sends fast enough.
#[derive(Debug)]
pub struct InboundRate {
    stall_timeout: Duration,
    /// The time at which bytes last arrived.
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

    /// Returns the time until the next check of the peer.
    fn until_due(&self) -> Duration {
        let left = self.stall_timeout.saturating_sub(self.last.elapsed());
        let monitor = self.monitor.as_ref();
        let due = monitor.map_or(Duration::MAX, |monitor| monitor.until_due(Instant::now()));
        left.min(due)
    }

    /// Notes that `received` bytes have arrived since the last check.
    ///
    /// # Errors
    /// `TimedOut`, `TooSlow`.
    pub fn check(&mut self, received: u64) -> Result<(), ConnectionError> {
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
