//! The thread that writes lines. It takes whole buffers, so a batch ends where a line does.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Uid, fchown, fstat};
use rustix::process::geteuid;
use underpass_net::{LogThrottle, Occurrence, User};

use super::buffer::LogBuffers;
use super::options::{Access, LogOptions, LogReopen};
use crate::error::Error;
use crate::limits::LOG_LINGER;

/// The mode of a new log: addresses and names of files are confidential.
const MODE: u32 = 0o640;

/// Whether the file of a log was there before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LogOrigin {
    Existing,
    Created,
}

/// Opens what is written to: standard output or a file, which is created for `user` if it has to
/// be. Nothing where the log is off.
pub(super) fn open(
    access: &Access,
    user: Option<&User>,
) -> Result<Option<(File, LogOrigin)>, Error> {
    let opened = match access {
        Access::Off => return Ok(None),
        Access::Output => {
            let output = io::stdout().as_fd().try_clone_to_owned();
            output.map(|output| (output.into(), LogOrigin::Existing))
        }
        Access::File(path) => match create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                append(path).map(|file| (file, LogOrigin::Existing))
            }
            created => created.map(|file| (file, LogOrigin::Created)),
        },
    };
    let opened = opened.map_err(|source| Error::Log {
        path: access.name().into(),
        source,
    })?;
    // Root's files cannot be opened again after a rotation by whoever this process becomes. One
    // that was there before may be anything.
    if let (LogOrigin::Created, Some(user), true) = (opened.1, user, geteuid().is_root()) {
        let _warned_of = fchown(&opened.0, Some(Uid::from_raw(user.number()?)), None);
    }
    Ok(Some(opened))
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create_new(true).mode(MODE).open(path)
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE).open(path)
}

/// Starts the writer. It ends when the buffers are closed and empty.
pub(super) fn start(
    target: File,
    buffers: Arc<LogBuffers>,
    options: &LogOptions,
) -> Result<(), Error> {
    let writer = LogThread {
        target,
        access: options.access.clone(),
        buffers,
        batch: Vec::new(),
        line: LineState::Ended,
        fault: WriteFault::None,
        lost: 0,
        throttle: LogThrottle::default(),
        reopened: options.reopen.times(),
        reopen: options.reopen.clone(),
    };
    let thread = thread::Builder::new().name("access-log".into());
    let spawned = thread.spawn(move || writer.run());
    spawned.map(drop).map_err(|source| Error::Thread {
        doing: "start the access log's thread",
        source,
    })
}

struct LogThread<T> {
    target: T,
    access: Access,
    buffers: Arc<LogBuffers>,
    /// A buffer that is empty between two batches, and swapped for a full one.
    batch: Vec<u8>,
    line: LineState,
    fault: WriteFault,
    /// Lines that could not be written, and are not reported yet.
    lost: u64,
    throttle: LogThrottle,
    reopen: LogReopen,
    reopened: u64,
}

/// Whether the last write ended where a line ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineState {
    Ended,
    /// The disk took a part of a line; the next one must not continue it.
    Torn,
}

/// Whether the last batch failed. The first failure is reported, and its end; a disk that fails now
/// and then is one failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WriteFault {
    None,
    Reported,
    Unreported,
}

impl LogThread<File> {
    fn run(mut self) {
        self.buffers.set_thread();
        self.reopen.wake_me();
        loop {
            self.wait();
            // Asked before the last look: what is written until then is in the buffers.
            let closed = self.buffers.is_closed();
            let flushes = self.buffers.take_flushes();
            self.reopen_if_asked();
            self.write_all();
            // Those who wait are the last to do so: the process may end behind them.
            if closed || !flushes.is_empty() {
                self.report_lost();
            }
            drop(flushes);
            if closed {
                return;
            }
        }
    }

    /// Opens a file anew. Where that fails the old one is written on.
    fn reopen_if_asked(&mut self) {
        let asked = self.reopen.times();
        if asked == self.reopened {
            return;
        }
        self.reopened = asked;
        let Access::File(path) = &self.access else {
            return;
        };
        match append(path) {
            Ok(file) => {
                self.target = file;
                self.line = LineState::Ended;
            }
            Err(error) => tracing::warn!(
                "cannot reopen the access log {}, writing to the old file continues: {error}",
                path.display()
            ),
        }
    }

    /// Parks until there is something to do, and then a moment longer.
    fn wait(&self) {
        while !self.buffers.was_woken() {
            if self.reopen.times() != self.reopened {
                return;
            }
            thread::park();
        }
        let start = Instant::now();
        while let Some(left) = LOG_LINGER.checked_sub(start.elapsed()) {
            let urgent = self.buffers.is_closed() || self.buffers.has_flushes();
            if urgent || left < Duration::from_millis(1) {
                return;
            }
            thread::park_timeout(left);
        }
    }

    fn write_all(&mut self) {
        for buffer in self.buffers.all() {
            if let Ok(mut lines) = buffer.lock() {
                std::mem::swap(&mut *lines, &mut self.batch);
            }
            if !self.batch.is_empty() {
                let ready = self.replace_deleted();
                self.write_batch(ready);
            }
        }
    }

    /// Creates the file again if it was deleted: what is written to the old one is lost.
    fn replace_deleted(&mut self) -> io::Result<()> {
        let Access::File(path) = &self.access else {
            return Ok(());
        };
        let stat = fstat(&self.target)?;
        if stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let created = append(path);
            self.target = created.map_err(|error| {
                let what = format!("it was deleted, and cannot be created again: {error}");
                io::Error::new(error.kind(), what)
            })?;
            self.line = LineState::Ended;
        }
        Ok(())
    }
}

impl<T: Write> LogThread<T> {
    fn write_batch(&mut self, ready: io::Result<()>) {
        let batch = std::mem::take(&mut self.batch);
        let (written, outcome) = match ready {
            Ok(()) => self.write_lines(&batch),
            Err(error) => (0, Err(error)),
        };
        let counters = &self.buffers.counters;
        let lines = count_lines(&batch[..written]);
        let failed = count_lines(&batch[written..]);
        counters.written_lines.fetch_add(lines, Ordering::Relaxed);
        counters
            .written_bytes
            .fetch_add(written as u64, Ordering::Relaxed);
        counters.failed_lines.fetch_add(failed, Ordering::Relaxed);
        self.report(failed, outcome);
        self.batch = batch;
        self.batch.clear();
    }

    /// Reports that writing fails, and later that it succeeds again.
    fn report(&mut self, failed: u64, outcome: io::Result<()>) {
        self.lost += failed;
        let Err(error) = outcome else {
            if std::mem::replace(&mut self.fault, WriteFault::None) == WriteFault::Reported {
                self.report_lost();
            }
            return;
        };
        let occurrence = self.throttle.record(Instant::now());
        if self.fault == WriteFault::None {
            self.fault = WriteFault::Unreported;
            if occurrence == Occurrence::First {
                self.fault = WriteFault::Reported;
                let name = self.access.name();
                tracing::warn!("cannot write the access log {name}, lines are lost: {error}");
            }
        }
    }

    fn report_lost(&mut self) {
        let (name, lost) = (self.access.name(), std::mem::take(&mut self.lost));
        if lost > 0 {
            tracing::warn!("{lost} lines of the access log {name} were lost");
        }
    }

    /// How many bytes of the batch are written, and why not all.
    fn write_lines(&mut self, batch: &[u8]) -> (usize, io::Result<()>) {
        if self.line == LineState::Torn {
            match self.target.write(b"\n") {
                Ok(1) => self.line = LineState::Ended,
                Ok(_) => return (0, Err(io::ErrorKind::WriteZero.into())),
                Err(error) => return (0, Err(error)),
            }
        }
        let mut written = 0;
        while written < batch.len() {
            match self.target.write(&batch[written..]) {
                Ok(0) => return self.stop(batch, written, io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process with the same pipe or terminal has made it nonblocking.
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && !self.buffers.is_closed() =>
                {
                    thread::park_timeout(LOG_LINGER);
                }
                Err(error) => return self.stop(batch, written, error),
            }
        }
        (written, Ok(()))
    }

    fn stop(&mut self, batch: &[u8], at: usize, error: io::Error) -> (usize, io::Result<()>) {
        let within = at > 0 && batch[at - 1] != b'\n';
        self.line = if within {
            LineState::Torn
        } else {
            LineState::Ended
        };
        (at, Err(error))
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes in all, at most three at a time, and then nothing until there is room.
    struct Disk {
        room: usize,
        content: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room).min(3);
            match count {
                0 => Err(io::ErrorKind::StorageFull.into()),
                _ => {
                    self.room -= count;
                    self.content.extend_from_slice(&bytes[..count]);
                    Ok(count)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn writer(room: usize) -> LogThread<Disk> {
        LogThread {
            target: Disk {
                room,
                content: Vec::new(),
            },
            access: Access::File("disk".into()),
            buffers: Arc::default(),
            batch: Vec::new(),
            line: LineState::Ended,
            fault: WriteFault::None,
            lost: 0,
            throttle: LogThrottle::default(),
            reopen: LogReopen::default(),
            reopened: 0,
        }
    }

    fn write(writer: &mut LogThread<Disk>, lines: &[u8]) {
        writer.batch = lines.to_vec();
        writer.write_batch(Ok(()));
    }

    #[test]
    fn a_line_that_was_cut_by_a_full_disk_is_not_continued_by_the_next() {
        let mut writer = writer(8);
        write(&mut writer, b"first\nsecond\nthird\n");
        assert_eq!((writer.fault, writer.lost), (WriteFault::Reported, 2));
        write(&mut writer, b"lost\n");
        assert_eq!((writer.fault, writer.lost), (WriteFault::Reported, 3));
        writer.target.room = 100;
        write(&mut writer, b"fourth\n");
        assert_eq!(writer.target.content, b"first\nse\nfourth\n");
        assert_eq!((writer.fault, writer.lost), (WriteFault::None, 0));
        // The same again is the same fault: it is counted, and reported at the end.
        writer.target.room = 0;
        write(&mut writer, b"fifth\n");
        assert_eq!((writer.fault, writer.lost), (WriteFault::Unreported, 1));
        let counters = &writer.buffers.counters;
        let counts = [&counters.written_lines, &counters.failed_lines];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [2, 4]);
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no/such/folder");
        let access = Access::File(path.clone());
        let error = open(&access, None).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(open(&Access::Off, None).unwrap().is_none());
    }
}
