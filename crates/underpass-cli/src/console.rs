//! The output of a running server: a thread per stream writes it, so that a stopped terminal, or a
//! pipe without a reader, delays neither requests nor the exit.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// The maximum number of messages that wait for a stream; further ones are dropped and counted.
const WAITING_MAX: usize = 1024;

/// The time that the exit of the process waits for unwritten messages of a stream.
const END_WAIT: Duration = Duration::from_secs(1);

static OUTPUT: ConsoleStream = ConsoleStream::new("stdout", || Box::new(anstream::stdout()));
static ERRORS: ConsoleStream = ConsoleStream::new("stderr", || Box::new(anstream::stderr()));

/// Whether standard output is a log, to which nothing else may be written.
pub(crate) static OUTPUT_IS_LOG: AtomicBool = AtomicBool::new(false);

/// Writes a line to standard output.
pub(crate) fn say(line: &str) {
    let stream = if OUTPUT_IS_LOG.load(Relaxed) {
        &ERRORS
    } else {
        &OUTPUT
    };
    stream.send(ConsoleMessage::Text(format!("{line}\n").into()));
}

/// Writes a line to standard error.
pub(crate) fn say_error(line: &str) {
    ERRORS.send(ConsoleMessage::Text(format!("{line}\n").into()));
}

/// Waits for a short time until everything is written. Called before the process exits.
pub(crate) fn finish() {
    OUTPUT.finish();
    ERRORS.finish();
}

/// Standard error. Writing to it never waits and never fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errors;

impl Write for Errors {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        ERRORS.send(ConsoleMessage::Text(message.to_owned()));
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ConsoleStream {
    name: &'static str,
    open: fn() -> Box<dyn Write>,
    queue: OnceLock<SyncSender<ConsoleMessage>>,
    dropped: AtomicU64,
}

enum ConsoleMessage {
    Text(Vec<u8>),
    /// Dropped once everything before it is written.
    End(#[expect(dead_code, reason = "that it is dropped is the message")] SyncSender<()>),
}

impl ConsoleStream {
    const fn new(name: &'static str, open: fn() -> Box<dyn Write>) -> Self {
        Self {
            name,
            open,
            queue: OnceLock::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn send(&'static self, message: ConsoleMessage) {
        let queue = self.queue.get_or_init(|| {
            let (queue, messages) = sync_channel(WAITING_MAX);
            let thread = thread::Builder::new().name(self.name.into());
            // If the thread cannot be started, each sender writes.
            let _ = thread.spawn(move || messages.into_iter().for_each(|it| self.write(it)));
            queue
        });
        match queue.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => drop(self.dropped.fetch_add(1, Relaxed)),
            Err(TrySendError::Disconnected(message)) => self.write(message),
        }
    }

    fn write(&self, message: ConsoleMessage) {
        let ConsoleMessage::Text(mut text) = message else {
            return;
        };
        match self.dropped.swap(0, Relaxed) {
            0 => {}
            count => text.extend(format!("{count} messages were dropped: nobody read\n").bytes()),
        }
        // The server continues even if it cannot write messages.
        let mut stream = (self.open)();
        let _ = stream.write_all(&text).and_then(|()| stream.flush());
    }

    fn finish(&'static self) {
        if self.queue.get().is_some() {
            let (end, ended) = sync_channel(0);
            self.send(ConsoleMessage::End(end));
            let _ = ended.recv_timeout(END_WAIT);
        }
    }
}
