//! The queue to the log thread: a buffer for each worker, and the wake-up.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use underpass_net::LogThrottle;

use super::options::{LogFormat, LogOptions};
use super::{combined, json};
use crate::limits::LOG_QUEUE_BYTES_MAX;
use crate::limits::LOG_SETTLE_TIMEOUT;
use crate::record::exchange::EndedExchange;

/// The queued lines of one worker. Only the worker and the writer lock it, and the writer only to
/// take the buffer away.
type LogBuffer = Arc<Mutex<Vec<u8>>>;

/// The numbers of lines, by outcome.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    pub(crate) written_lines: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    /// Lines dropped because the buffer was full.
    pub(crate) dropped_lines: AtomicU64,
    /// Lines that could not be written.
    pub(crate) failed_lines: AtomicU64,
    /// Lines being written. A line truncated by a full disk counts until it is complete.
    pub(super) lines_in_writing: AtomicU64,
}

/// Workers that wait until their lines are written: those the writer has not seen yet, and those
/// that its current round is for.
#[derive(Debug, Default)]
struct LogFlushes {
    asked: Vec<Sender<Infallible>>,
    begun: Vec<Sender<Infallible>>,
}

/// All buffers of a log.
#[derive(Debug, Default)]
pub(crate) struct LogBuffers {
    all: Mutex<Vec<LogBuffer>>,
    writer: OnceLock<Thread>,
    /// Set when lines are queued or something else is requested.
    woken: AtomicBool,
    /// Set when no more lines are queued.
    closed: AtomicBool,
    /// Set when nothing waits for unwritten lines any longer.
    abandoned: AtomicBool,
    /// Workers that wait until everything is written; closing their channel wakes them.
    flushes: Mutex<LogFlushes>,
    pub(crate) counters: LogCounters,
    dropping: Mutex<LogThrottle>,
    /// Whether it has been reported that lines are dropped, but not yet how many.
    pub(super) dropping_reported: AtomicBool,
    /// The number of dropped or failed lines that have been reported.
    reported_lines: AtomicU64,
}

impl LogBuffers {
    pub(super) fn all(&self) -> Vec<LogBuffer> {
        self.all
            .lock()
            .map_or_else(|_| Vec::new(), |all| all.clone())
    }

    /// Returns the number of bytes that are not written yet.
    pub(crate) fn queued(&self) -> u64 {
        let waiting = |buffer: &LogBuffer| buffer.lock().map_or(0, |lines| lines.len() as u64);
        self.all().iter().map(waiting).sum()
    }

    /// Registers the calling thread as the writer.
    pub(super) fn set_thread(&self) {
        // A second writer would be a bug; it would never be woken.
        let _ = self.writer.set(thread::current());
    }

    /// Wakes the writer unless it has been woken already.
    fn wake_once(&self) {
        if self.woken.load(Ordering::Relaxed) || self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Whether the thread was woken since the last call.
    pub(super) fn was_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    pub(super) fn has_flushes(&self) -> bool {
        let flushes = self.flushes.lock();
        flushes.is_ok_and(|flushes| !flushes.asked.is_empty())
    }

    /// Starts a round for the waiting workers. Returns whether there are any.
    pub(super) fn begin_flushes(&self) -> bool {
        self.flushes.lock().is_ok_and(|mut flushes| {
            flushes.begun = std::mem::take(&mut flushes.asked);
            !flushes.begun.is_empty()
        })
    }

    /// Ends the round: the lines of these workers are written, or have failed.
    pub(super) fn end_flushes(&self) {
        if let Ok(mut flushes) = self.flushes.lock() {
            flushes.begun.clear();
        }
    }

    /// Returns the number of lost and given-up lines not reported yet, and marks them as reported.
    pub(super) fn take_lost(&self, given_up: u64) -> u64 {
        let LogCounters {
            dropped_lines,
            failed_lines,
            ..
        } = &self.counters;
        let lost = [dropped_lines, failed_lines].map(|lines| lines.load(Ordering::Relaxed));
        let lost = lost.iter().sum::<u64>() + given_up;
        lost.saturating_sub(self.reported_lines.swap(lost, Ordering::Relaxed))
    }

    /// Stops all waiting for lines that are not written.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        if let Ok(mut flushes) = self.flushes.lock() {
            *flushes = LogFlushes::default();
        }
    }

    /// Blocks until the queued lines are written, or have failed, or `timeout` has passed.
    fn wait_until_flushed(&self, timeout: Duration) {
        let (waiting, flushed) = mpsc::channel();
        if let Ok(mut flushes) = self.flushes.lock() {
            flushes.asked.push(waiting);
        }
        self.wake();
        let timeout = match self.abandoned.load(Ordering::Acquire) {
            true => Duration::ZERO,
            false => timeout,
        };
        // The worker ends, whether or not the writer was in time.
        let is_late = flushed.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout);
        if is_late || self.abandoned.load(Ordering::Acquire) {
            self.report_given_up();
        }
    }

    /// Reports the lines that are lost if the process ends now.
    fn report_given_up(&self) {
        let waiting = |buffer: &LogBuffer| buffer.lock().map_or(0, |lines| count_lines(&lines));
        let waiting: u64 = self.all().iter().map(waiting).sum();
        let in_writing = self.counters.lines_in_writing.load(Ordering::Relaxed);
        let lost = self.take_lost(waiting + in_writing);
        if lost > 0 {
            tracing::warn!("{lost} lines of the access log were lost: they were not taken in time");
        }
    }
}

/// A worker's handle for writing log lines.
#[derive(Debug)]
pub(crate) struct LogWriter {
    buffers: Arc<LogBuffers>,
    buffer: LogBuffer,
    format: LogFormat,
}

impl LogWriter {
    /// Creates a writer for one more worker.
    pub(super) fn new(buffers: &Arc<LogBuffers>, options: &LogOptions) -> LogWriter {
        let buffer = LogBuffer::default();
        if let Ok(mut all) = buffers.all.lock() {
            // Removes the buffers of ended workers whose lines are written.
            let is_empty = |buffer: &LogBuffer| buffer.lock().is_ok_and(|lines| lines.is_empty());
            all.retain(|buffer| Arc::strong_count(buffer) > 1 || !is_empty(buffer));
            all.push(Arc::clone(&buffer));
        }
        LogWriter {
            buffers: Arc::clone(buffers),
            buffer,
            format: options.format,
        }
    }

    /// Writes the line of a response into the buffer. If the buffer is full, the line is dropped.
    pub(crate) fn write(&self, ended: &EndedExchange<'_>) {
        let Ok(mut lines) = self.buffer.lock() else {
            return;
        };
        if lines.len() >= LOG_QUEUE_BYTES_MAX {
            drop(lines);
            self.drop_line();
            return;
        }
        match self.format {
            LogFormat::Combined => combined::push(&mut lines, ended),
            LogFormat::Json => json::push(&mut lines, ended),
        }
        drop(lines);
        self.buffers.wake_once();
    }

    fn drop_line(&self) {
        let dropped = &self.buffers.counters.dropped_lines;
        dropped.fetch_add(1, Ordering::Relaxed);
        const WHAT: &str =
            "lines of the access log are dropped: they come faster than they are taken";
        let throttle = self.buffers.dropping.lock();
        if throttle.is_ok_and(|throttle| throttle.warn(WHAT)) {
            let reported = &self.buffers.dropping_reported;
            reported.store(true, Ordering::Relaxed);
        }
    }

    /// Blocks until this worker's lines have been passed to the kernel, for a few seconds at most.
    pub(crate) fn finish(&self) {
        self.buffers.wait_until_flushed(LOG_SETTLE_TIMEOUT);
    }
}

pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_log_that_is_given_up() {
        let buffers = Arc::new(LogBuffers::default());
        let long = Duration::from_secs(3600);
        let waits = Arc::clone(&buffers);
        let waiting = thread::spawn(move || waits.wait_until_flushed(long));
        while !buffers.has_flushes() {
            thread::yield_now();
        }
        buffers.abandon();
        waiting.join().unwrap();
        buffers.wait_until_flushed(long);
    }

    #[test]
    fn buffers_of_ended_workers_go_when_they_are_written() {
        let buffers = Arc::new(LogBuffers::default());
        let options = LogOptions::default();
        for _ in 0..100 {
            LogWriter::new(&buffers, &options);
        }
        assert_eq!(buffers.all().len(), 1);
        let unwritten = LogWriter::new(&buffers, &options);
        unwritten.buffer.lock().unwrap().push(b'\n');
        drop(unwritten);
        let _next = LogWriter::new(&buffers, &options);
        assert_eq!((buffers.all().len(), buffers.queued()), (2, 1));
    }
}
