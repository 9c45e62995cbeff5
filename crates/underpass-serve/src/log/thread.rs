//! The thread that writes lines. It takes whole buffers, so a batch ends at the end of a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags, Uid, fchown, fstat};
use rustix::io::Errno;
use rustix::process::geteuid;
use underpass_net::{HandedFile, LogThrottle, User};

use super::buffer::{LogBuffers, count_lines};
use super::options::{Access, LogOptions, LogReopen};
use crate::error::{Error, start_thread};
use crate::limits::LOG_LINGER;

/// The mode of a new log: addresses and file names are confidential.
const MODE: u32 = 0o640;

/// Whether the file of a log existed before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LogOrigin {
    Existing,
    Created,
}

/// The file that lines are written to, until it is reopened. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct LogFile(Arc<Mutex<Arc<File>>>);

impl From<File> for LogFile {
    fn from(file: File) -> LogFile {
        LogFile(Arc::new(Mutex::new(Arc::new(file))))
    }
}

impl LogFile {
    pub(super) fn current(&self) -> Arc<File> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, file: File) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(file);
    }
}

impl Write for LogFile {
    /// Writes without holding a lock: a pipe may block.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.current().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.current().flush()
    }
}

/// Opens the destination: standard output or a file, which is created for `user` if missing; if
/// that fails, returns the same file as `handed` over by an earlier process. `None` if the log is
/// off.
pub(super) fn open(
    access: &Access,
    user: Option<&User>,
    handed: Option<HandedFile>,
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
        }
        .or_else(|error| written_on(path, handed, error)),
    };
    let opened = opened.map_err(|source| Error::Log {
        path: access.name().into(),
        source,
    })?;
    // The later user could not reopen a file of root after a rotation. The owner of an existing
    // file is not changed, as it may be anything.
    if let (LogOrigin::Created, Some(user), true) = (opened.1, user, geteuid().is_root()) {
        let _warned_of = fchown(&opened.0, Some(Uid::from_raw(user.number()?)), None);
    }
    Ok(Some(opened))
}

/// Returns the file handed over by an earlier process, if it was opened by this path.
fn written_on(
    path: &Path,
    handed: Option<HandedFile>,
    error: io::Error,
) -> io::Result<(File, LogOrigin)> {
    let Some(same) = handed.filter(|handed| path.to_str() == Some(&*handed.name)) else {
        return Err(error);
    };
    let path = path.display();
    tracing::warn!(
        "cannot open the access log {path}, writing to the file of the earlier process continues: \
         {error}"
    );
    Ok((same.file.into(), LogOrigin::Existing))
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create_new(true).mode(MODE).open(path)
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE);
    // With this flag, opening a pipe without a reader fails instead of waiting.
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(code) if Errno::from_raw_os_error(code) == Errno::NXIO => {
                io::Error::new(error.kind(), "nobody reads this pipe")
            }
            _ => error,
        })
}

/// Starts the writer. It ends once the buffers are closed and empty.
pub(super) fn start(
    target: LogFile,
    buffers: Arc<LogBuffers>,
    options: &LogOptions,
) -> Result<(), Error> {
    let writer = LogThread {
        target,
        access: options.access.clone(),
        buffers,
        batch: Vec::new(),
        torn: Vec::new(),
        fault: WriteFault::None,
        dropped: 0,
        throttle: LogThrottle::default(),
        reopened: options.reopen.times(),
        reopen: options.reopen.clone(),
    };
    let doing = "start the access log's thread";
    start_thread("access-log", doing, move || writer.run())
}

struct LogThread<T> {
    target: T,
    access: Access,
    buffers: Arc<LogBuffers>,
    /// A buffer that is empty between batches, and swapped for a full one.
    batch: Vec<u8>,
    /// The rest of a partially written line, to be written before the next one.
    torn: Vec<u8>,
    fault: WriteFault,
    /// The number of dropped lines at the last check.
    dropped: u64,
    throttle: LogThrottle,
    reopen: LogReopen,
    reopened: u64,
}

/// Whether the last batch failed. The first failure and its end are reported; an intermittently
/// failing disk counts as one failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WriteFault {
    None,
    Reported,
    Unreported,
}

impl LogThread<LogFile> {
    fn run(mut self) {
        self.buffers.set_thread();
        self.reopen.wake_me();
        loop {
            self.wait();
            // Checked before the buffers are read, so that they contain all lines written before.
            let closed = self.buffers.is_closed();
            let flushes = self.buffers.begin_flushes();
            self.reopen_if_asked();
            self.write_all();
            // The process may end once these workers are released.
            if closed || flushes {
                self.report_lost(count_lines(&self.torn));
            }
            self.report_dropped();
            self.buffers.end_flushes();
            if closed {
                return;
            }
        }
    }

    /// Reopens the file if requested. If that fails, keeps writing to the old one.
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
                self.target.replace(file);
                self.lose_torn();
            }
            Err(error) => tracing::warn!(
                "cannot reopen the access log {}, writing to the old file continues: {error}",
                path.display()
            ),
        }
    }

    /// Parks until there is work to do, and then a moment longer.
    fn wait(&self) {
        while !self.buffers.was_woken() {
            if self.reopen.times() != self.reopened {
                return;
            }
            if self.buffers.dropping_reported.load(Ordering::Relaxed) {
                return thread::park_timeout(LOG_LINGER);
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

    /// Recreates the file if it was deleted: lines written to the old one would be lost.
    fn replace_deleted(&mut self) -> io::Result<()> {
        let Access::File(path) = &self.access else {
            return Ok(());
        };
        let stat = fstat(self.target.current())?;
        if stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let created = append(path);
            self.target.replace(created.map_err(|error| {
                let what = format!("it was deleted, and cannot be created again: {error}");
                io::Error::new(error.kind(), what)
            })?);
            self.lose_torn();
        }
        Ok(())
    }
}

impl<T: Write> LogThread<T> {
    fn write_batch(&mut self, ready: io::Result<()>) {
        let batch = std::mem::take(&mut self.batch);
        let buffers = Arc::clone(&self.buffers);
        let counters = &buffers.counters;
        let in_writing = count_lines(&batch) + count_lines(&self.torn);
        counters
            .lines_in_writing
            .store(in_writing, Ordering::Relaxed);
        let outcome = ready.and_then(|()| self.write_torn());
        let (written, outcome) = match outcome {
            Ok(()) => self.write_bytes(&batch),
            Err(error) => (0, Err(error)),
        };
        let mut lost_from = written;
        if written > 0 && batch[written - 1] != b'\n' {
            let ends = |byte: &u8| *byte == b'\n';
            let rest = batch[written..].iter().position(ends);
            lost_from += rest.map_or(0, |at| at + 1);
            self.torn = batch[written..lost_from].to_vec();
        }
        self.count_written(&batch[..written]);
        let failed = count_lines(&batch[lost_from..]);
        counters.failed_lines.fetch_add(failed, Ordering::Relaxed);
        counters
            .lines_in_writing
            .store(count_lines(&self.torn), Ordering::Relaxed);
        self.report(outcome);
        self.batch = batch;
        self.batch.clear();
    }

    fn write_torn(&mut self) -> io::Result<()> {
        let mut torn = std::mem::take(&mut self.torn);
        let (written, outcome) = self.write_bytes(&torn);
        self.count_written(&torn[..written]);
        torn.drain(..written);
        self.torn = torn;
        outcome
    }

    fn count_written(&self, bytes: &[u8]) {
        let counters = &self.buffers.counters;
        let lines = count_lines(bytes);
        counters.written_lines.fetch_add(lines, Ordering::Relaxed);
        counters
            .written_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    /// Gives up the rest of a partially written line, which does not belong in the new file.
    fn lose_torn(&mut self) {
        let counters = &self.buffers.counters;
        let lines = count_lines(&std::mem::take(&mut self.torn));
        counters.failed_lines.fetch_add(lines, Ordering::Relaxed);
        counters.lines_in_writing.store(0, Ordering::Relaxed);
    }

    /// Reports that writing fails, and later that it succeeds again.
    fn report(&mut self, outcome: io::Result<()>) {
        let Err(error) = outcome else {
            if std::mem::replace(&mut self.fault, WriteFault::None) == WriteFault::Reported {
                self.report_lost(0);
            }
            return;
        };
        if self.fault == WriteFault::None {
            let name = self.access.name();
            let is_reported = self.throttle.warn(format_args!(
                "cannot write the access log {name}, lines are lost: {error}"
            ));
            self.fault = match is_reported {
                true => WriteFault::Reported,
                false => WriteFault::Unreported,
            };
        }
    }

    /// Reports the number of dropped lines, once no more are dropped.
    fn report_dropped(&mut self) {
        let dropped = self.buffers.counters.dropped_lines.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.dropped, dropped) == dropped
            && self
                .buffers
                .dropping_reported
                .swap(false, Ordering::Relaxed)
        {
            self.report_lost(0);
        }
    }

    /// Reports lines that were lost, and `given_up` ones.
    fn report_lost(&self, given_up: u64) {
        let (name, lost) = (self.access.name(), self.buffers.take_lost(given_up));
        if lost > 0 {
            tracing::warn!("{lost} lines of the access log {name} were lost");
        }
    }

    /// Returns the number of bytes written, and the error if not all were.
    fn write_bytes(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        while written < bytes.len() {
            match self.target.write(&bytes[written..]) {
                Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process with the same pipe or terminal has made it non-blocking.
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && !self.buffers.is_closed() =>
                {
                    thread::park_timeout(LOG_LINGER);
                }
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode};

    use super::*;

    /// Accepts `room` bytes in all, at most three at a time.
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
            torn: Vec::new(),
            fault: WriteFault::None,
            dropped: 0,
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
    fn a_line_that_was_cut_by_a_full_disk_is_completed_before_the_next() {
        let mut writer = writer(8);
        let lost = |writer: &LogThread<Disk>| writer.buffers.take_lost(0);
        write(&mut writer, b"first\nsecond\nthird\n");
        assert_eq!((writer.fault, lost(&writer)), (WriteFault::Reported, 1));
        write(&mut writer, b"lost\n");
        assert_eq!((writer.fault, lost(&writer)), (WriteFault::Reported, 1));
        writer.target.room = 100;
        write(&mut writer, b"fourth\n");
        assert_eq!(writer.target.content, b"first\nsecond\nfourth\n");
        assert_eq!((writer.fault, lost(&writer)), (WriteFault::None, 0));
        // The same failure again is counted, and reported at the end.
        writer.target.room = 2;
        write(&mut writer, b"fifth\n");
        assert_eq!((writer.fault, lost(&writer)), (WriteFault::Unreported, 0));
        writer.lose_torn();
        assert_eq!(lost(&writer), 1);
        let counters = &writer.buffers.counters;
        let counts = [&counters.written_lines, &counters.failed_lines];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [3, 3]);
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no/such/folder");
        let access = Access::File(path.clone());
        let error = open(&access, None, None).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(open(&Access::Off, None, None).unwrap().is_none());
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let error = open(&Access::File(pipe), None, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("nobody reads this pipe"), "{error}");
    }
}
