//! Sends the outbox of a connection, in turns, within rates.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use underpass::drive::tokio::Turn;
use underpass::{Fault, Piece, tcp};

use crate::connection::Connection;
use crate::connection::transport::Transport;
use crate::connection::wait::WhileDraining;
use crate::connection::worker_state::WorkerState;
use crate::error::ConnectionError;
use crate::limits::{QUEUED_BYTES_MIN, RESERVATION_TIMEOUT};
use crate::quota::min_rate::MinRateMonitor;
use crate::quota::rate_limiter::Reservation;
use crate::shutdown::ShutdownPhase;

impl Connection {
    /// Declares that the connection ends after the flush: the last packet has the stream's end.
    pub fn end_follows(&mut self) {
        // The end of TLS is a separate message.
        if self.tls().is_none() {
            self.state.sender.end_follows();
        }
    }

    /// Sends the whole outbox, in turns between which other connections run. The deadline counts
    /// from the last turn that moved something. If cancelled, sent data stays sent, and the outbox
    /// holds the rest.
    ///
    /// # Errors
    /// `TimedOut`, `TooSlow`, `Stopped`, `PeerGone`, `Move`. The peer may have received a part, and
    /// the connection cannot be used any more.
    pub async fn flush(&mut self) -> Result<(), ConnectionError> {
        let is_small = |piece: &Piece| !matches!(piece, Piece::Range(_));
        if self.state.rates.is_none() && self.outbox().pieces().all(is_small) {
            let at_once = poll_fn(|task| Poll::Ready(pin!(self.flush_owed()).poll(task)));
            if let Poll::Ready(flushed) = at_once.await {
                return flushed;
            }
        }
        let state = &mut *self.state;
        state.input.lend_to(&state.worker.buffers.spare_input);
        // Boxed: only a flush that waits needs the memory, and most connections are idle.
        Box::pin(self.flush_owed()).await
    }

    async fn flush_owed(&mut self) -> Result<(), ConnectionError> {
        self.state.min_rate_monitor = None;
        let mut reservation = Reservation::First;
        while !self.outbox().is_empty() {
            let reserved = self.await_reservation(reservation).await?;
            match self.turn(reservation, reserved).await? {
                Turn::Empty => break,
                Turn::More => self.check_between_turns()?,
            }
            reservation = Reservation::Next;
        }
        Ok(())
    }

    /// Reserves bytes of the client's rate and of the overall rate, where they are limited, and
    /// waits until they may be sent. Returns their number.
    async fn await_reservation(
        &mut self,
        reservation: Reservation,
    ) -> Result<Option<u64>, ConnectionError> {
        let Some(limiters) = &self.state.rates else {
            return Ok(None);
        };
        let bytes = limiters.reservation_bytes();
        for (earlier, limiter) in limiters.each().enumerate() {
            let span = limiter.reserve(bytes, reservation);
            if span == Duration::ZERO {
                continue;
            }
            self.state.wait.start(span);
            let connections = &self.state.worker.connections;
            let turn = pending::<Infallible>();
            match self
                .state
                .wait
                .until(connections, WhileDraining::Continues, turn)
                .await
            {
                Ok(never) => match never {},
                Err(ConnectionError::TimedOut) => {}
                Err(error) => {
                    let reserved = limiters.each().take(earlier + 1);
                    reserved.for_each(|limiter| limiter.settle(bytes, 0));
                    return Err(error);
                }
            }
            if let Some(monitor) = &mut self.state.min_rate_monitor {
                monitor.exclude(span);
            }
        }
        Ok(Some(bytes))
    }

    /// Sends one turn, at most the `reserved` bytes if a rate is limited. A reservation of a peer
    /// that accepts nothing is refunded, and later bytes are charged when they are sent.
    async fn turn(
        &mut self,
        number: Reservation,
        mut reserved: Option<u64>,
    ) -> Result<Turn, ConnectionError> {
        let state = &mut *self.state;
        let (worker, transport) = (&*state.worker, &state.transport);
        let outbox = worker.outbox_in(&mut state.outbox);
        let before = reserved.map(|_| outbox.sent_bytes());
        let turn_bytes = worker.turn_bytes();
        let turned = {
            let bytes_max = reserved.map_or(turn_bytes, |reserved| reserved.min(turn_bytes));
            let bytes = outbox.pieces().map(Piece::len).max();
            let bytes = bytes.unwrap_or(0).min(bytes_max);
            let (sender, outbox) = (&mut state.sender, &mut *outbox);
            let queue = &worker.send_queue;
            let may_begin = number == Reservation::First && queue.may_begin(&mut state.began_in);
            let filled_by = transport.filled_by(sender).filter(|_| reserved.is_none());
            let (bytes, begins) = share_of_round(bytes, may_begin, filled_by);
            let turn = pin!(transport.turn(sender, outbox, &worker.buffers, bytes_max));
            let waits = Cell::new(false);
            let mut turn = pin!(queue.pass(bytes, begins, &waits, turn));
            let stall_timeout = worker.limits.stall_timeout;
            // The first check is early, as a baseline for whether the peer acknowledges data.
            let (mut left, mut acknowledged) = (stall_timeout / 16, None);
            loop {
                let span = until_rate_check(worker, state.min_rate_monitor.as_deref()).min(left);
                let span = reserved.map_or(span, |_| span.min(RESERVATION_TIMEOUT));
                state.wait.start(span);
                let (connections, turn) = (&worker.connections, turn.as_mut());
                match state
                    .wait
                    .until(connections, WhileDraining::Continues, turn)
                    .await
                {
                    Err(ConnectionError::TimedOut) => {}
                    outcome => break outcome,
                }
                if let (Some(reserved), Some(limiters)) = (reserved.take(), &state.rates) {
                    limiters.settle(reserved, 0);
                }
                let monitor = &mut state.min_rate_monitor;
                if waits.get() {
                    // Other connections use this time, not the peer.
                    if let Some(monitor) = monitor {
                        monitor.exclude(span);
                    }
                    continue;
                }
                if let Err(error) = check_min_rate(worker, transport, monitor, span) {
                    break Err(error);
                }
                left -= span;
                if left.is_zero() {
                    if has_stalled(transport, &mut acknowledged) {
                        break Err(ConnectionError::TimedOut);
                    }
                    left = stall_timeout;
                }
            }
        };
        if let (Some(before), Some(limiters)) = (before, &state.rates) {
            let sent = outbox.sent_bytes() - before;
            limiters.settle(reserved.unwrap_or(0), sent);
        }
        turned?.map_err(move_error)
    }

    fn check_between_turns(&mut self) -> Result<(), ConnectionError> {
        let (transport, monitor) = (&self.state.transport, &mut self.state.min_rate_monitor);
        check_min_rate(&self.state.worker, transport, monitor, Duration::ZERO)?;
        match self.phase() {
            ShutdownPhase::Now => Err(ConnectionError::Stopped),
            ShutdownPhase::Running | ShutdownPhase::Retiring | ShutdownPhase::Draining => Ok(()),
        }
    }
}

/// Returns the bytes that a turn counts as in the send queue, and those that start without a place
/// in it: 0 after a full socket, which will accept about as much again.
fn share_of_round(bytes: u64, may_begin: bool, filled_by: Option<u64>) -> (u64, Option<u64>) {
    match filled_by {
        Some(taken) => (taken.max(QUEUED_BYTES_MIN).min(bytes), Some(0)),
        None => (bytes, may_begin.then_some(bytes)),
    }
}

/// Returns whether a peer has acknowledged nothing since the last call. A full socket accepts more
/// only once about a third of its buffer is free, while a slow peer acknowledges all the time.
fn has_stalled(transport: &Transport, acknowledged: &mut Option<u64>) -> bool {
    // The kernel only knows this of TCP connections.
    let now = tcp::reached(transport).map_or(0, |reached| reached.acknowledged);
    acknowledged
        .replace(now)
        .is_some_and(|before| now <= before)
}

/// Returns the time until the next check of a peer's rate; `MAX` without a minimum rate.
fn until_rate_check(worker: &WorkerState, monitor: Option<&MinRateMonitor>) -> Duration {
    match (worker.min_rate, monitor) {
        (None, _) => Duration::MAX,
        (Some(min_rate), None) => min_rate.window,
        (Some(_), Some(monitor)) => monitor.until_due(Instant::now()),
    }
}

/// Checks at the end of a window whether a peer takes the minimum rate. `passed` is the time that
/// the first check of a response counts from.
fn check_min_rate(
    worker: &WorkerState,
    transport: &Transport,
    monitor: &mut Option<Box<MinRateMonitor>>,
    passed: Duration,
) -> Result<(), ConnectionError> {
    let Some(min_rate) = worker.min_rate else {
        return Ok(());
    };
    let now = Instant::now();
    let began = now.checked_sub(passed).unwrap_or(now);
    let monitor = monitor.get_or_insert_with(|| Box::new(MinRateMonitor::new(min_rate, began)));
    if monitor.until_due(now) > Duration::ZERO {
        return Ok(());
    }
    // The kernel only knows this of TCP connections.
    tcp::reached(transport).map_or(Ok(()), |reached| monitor.judge(reached, now))
}

fn move_error(error: underpass::Error) -> ConnectionError {
    match error.fault {
        Fault::PeerGone | Fault::TimedOut => ConnectionError::PeerGone,
        _ => ConnectionError::Move(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_socket_took_is_what_the_next_turn_counts_as() {
        const TURN: u64 = 2 << 20;
        for (may_begin, filled_by, share) in [
            (true, None, (TURN, Some(TURN))),
            (false, None, (TURN, None)),
            (false, Some(300 << 10), (300 << 10, Some(0))),
            (true, Some(1), (QUEUED_BYTES_MIN, Some(0))),
            (false, Some(4 * TURN), (TURN, Some(0))),
        ] {
            assert_eq!(share_of_round(TURN, may_begin, filled_by), share);
        }
    }
}
