//! Where lines wait for the log thread: a buffer for each worker, and the wake-up.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use underpass_net::LogThrottle;

use super::options::{LogFormat, LogOptions};
use super::{combined, json};
use crate::connection::exchange::EndedExchange;
use crate::limits::LOG_QUEUE_BYTES_MAX;
use crate::limits::LOG_SETTLE_TIMEOUT;

/// The lines of one worker that wait to be written. Only the worker and the writer lock it, and the
/// writer only to take the buffer away.
type LogBuffer = Arc<Mutex<Vec<u8>>>;

/// What became of lines.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    pub(crate) written_lines: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    /// For which there was no room.
    pub(crate) dropped_lines: AtomicU64,
    /// That could not be written.
    pub(crate) failed_lines: AtomicU64,
    /// That are being written. Those that are cut off by a full disk count until they are whole.
    pub(super) lines_in_writing: AtomicU64,
}

/// Workers that wait until their lines are written: those that the writer has not seen yet, and
/// those that its present round is for.
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
    /// Lines wait, or something else is asked for.
    woken: AtomicBool,
    /// No more lines are written.
    closed: AtomicBool,
    /// Nobody waits for what is not written.
    abandoned: AtomicBool,
    /// Those who wait until everything is written: they are told by the end of their channel.
    flushes: Mutex<LogFlushes>,
    pub(crate) counters: LogCounters,
    dropping: Mutex<LogThrottle>,
    /// That lines are dropped has been reported, and not how many.
    pub(super) dropping_reported: AtomicBool,
    /// Lines that were dropped or failed, as far as they have been reported.
    reported_lines: AtomicU64,
}

impl LogBuffers {
    pub(super) fn all(&self) -> Vec<LogBuffer> {
        self.all
            .lock()
            .map_or_else(|_| Vec::new(), |all| all.clone())
    }

    /// Bytes that are not written yet.
    pub(crate) fn queued(&self) -> u64 {
        let waiting = |buffer: &LogBuffer| buffer.lock().map_or(0, |lines| lines.len() as u64);
        self.all().iter().map(waiting).sum()
    }

    /// The calling thread is the writer.
    pub(super) fn set_thread(&self) {
        // A second one would be a bug; it would never be woken.
        let _ = self.writer.set(thread::current());
    }

    /// Wakes the writer, where it has not been woken already.
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

    /// Begins to write for those who wait. Returns whether there are any.
    pub(super) fn begin_flushes(&self) -> bool {
        self.flushes.lock().is_ok_and(|mut flushes| {
            flushes.begun = std::mem::take(&mut flushes.asked);
            !flushes.begun.is_empty()
        })
    }

    /// Everything is written for them, or has failed.
    pub(super) fn end_flushes(&self) {
        if let Ok(mut flushes) = self.flushes.lock() {
            flushes.begun.clear();
        }
    }

    /// Lines that were lost or are given up now, and were not reported: they are from now on.
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

    /// Has nobody wait any longer for what is not written.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        if let Ok(mut flushes) = self.flushes.lock() {
            *flushes = LogFlushes::default();
        }
    }

    /// Blocks until what waits is written, or has failed, or `timeout` has passed.
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
        // Late or not, the worker ends.
        let is_late = flushed.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout);
        if is_late || self.abandoned.load(Ordering::Acquire) {
            self.report_given_up();
        }
    }

    /// Reports what is lost when the process ends now.
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

/// What one worker writes lines with.
#[derive(Debug)]
pub(crate) struct LogWriter {
    buffers: Arc<LogBuffers>,
    buffer: LogBuffer,
    format: LogFormat,
}

impl LogWriter {
    /// A writer for one more worker.
    pub(super) fn new(buffers: &Arc<LogBuffers>, options: &LogOptions) -> LogWriter {
        let buffer = LogBuffer::default();
        if let Ok(mut all) = buffers.all.lock() {
            // Those of workers that have ended, when their lines are written.
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

    /// Writes the line of an answer into the buffer. Where it is full the line is dropped.
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

    /// Blocks until what this worker wrote is on its way to the disk, for a few seconds at most.
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
