//! A pool of the pipes and buffers that relays use: idle ones are kept, up to a bound, for the next
//! transfer.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::vocabulary::limits::{BUFFER_BYTES, IDLE_BUFFERS_MAX, PIPE_BYTES, PIPES_MAX};

/// Both ends of a pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    /// Is counted for as long as the pipe is open.
    _counted: Arc<()>,
}

/// Pipes and buffers for the next transfers.
#[derive(Debug, Default)]
pub(crate) struct RelayPool {
    /// All of them empty.
    pipes: Mutex<Vec<Pipe>>,
    /// Every pipe has a share in it.
    count: Arc<()>,
    /// The kernel has not granted a pipe its size.
    small: AtomicBool,
    /// What they held may still be in them.
    buffers: Mutex<Vec<Box<[u8]>>>,
}

impl RelayPool {
    /// Whether a pipe of full size is available within the bound. Another thread may take it first;
    /// then one more than the bound is opened, which does no harm.
    pub(crate) fn has_pipe(&self) -> bool {
        let open = Arc::strong_count(&self.count) - 1;
        !self.small.load(Ordering::Relaxed) && (open < PIPES_MAX || !lock(&self.pipes).is_empty())
    }

    pub(crate) fn take_pipe(&self) -> Result<Pipe, Errno> {
        take(&self.pipes).map_or_else(|| self.open_pipe(), Ok)
    }

    /// QUIRK(pipe-quota): beyond a user's quota pipes can't be made larger (EPERM), and new ones
    /// have two pages. A smaller pipe is slower, not wrong.
    fn open_pipe(&self) -> Result<Pipe, Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        if fcntl_setpipe_size(&write, PIPE_BYTES).is_err() {
            self.small.store(true, Ordering::Relaxed);
        }
        Ok(Pipe {
            read,
            write,
            _counted: Arc::clone(&self.count),
        })
    }

    /// Takes back a pipe that is empty.
    pub(crate) fn put_pipe(&self, pipe: Pipe) {
        put(&self.pipes, pipe, PIPES_MAX);
    }

    pub(crate) fn take_buffer(&self) -> Box<[u8]> {
        take(&self.buffers).unwrap_or_else(|| vec![0; BUFFER_BYTES].into())
    }

    pub(crate) fn put_buffer(&self, buffer: Box<[u8]>) {
        put(&self.buffers, buffer, IDLE_BUFFERS_MAX);
    }
}

fn lock<T>(idle: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take<T>(idle: &Mutex<Vec<T>>) -> Option<T> {
    lock(idle).pop()
}

fn put<T>(idle: &Mutex<Vec<T>>, middle: T, max: usize) {
    let mut idle = lock(idle);
    if idle.len() < max {
        idle.push(middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_counted_until_they_are_closed() {
        let idle = RelayPool::default();
        let mut taken: Vec<_> = (0..PIPES_MAX)
            .map(|_| idle.take_pipe().expect("a pipe"))
            .collect();
        // Without privileges others' pipes may have used up the quota: then there is none at all.
        let granted = !idle.small.load(Ordering::Relaxed);
        assert!(!idle.has_pipe());
        idle.put_pipe(taken.pop().expect("one of them"));
        assert_eq!(idle.has_pipe(), granted, "an idle one");
        taken.push(idle.take_pipe().expect("the idle one"));
        assert!(!idle.has_pipe());
        drop(taken.pop());
        assert_eq!(idle.has_pipe(), granted, "room for another one");
    }

    #[test]
    fn buffers_come_back_and_no_more_than_so_many_stay() {
        let idle = RelayPool::default();
        let taken: Vec<_> = (0..=IDLE_BUFFERS_MAX).map(|_| idle.take_buffer()).collect();
        let first = taken[0].as_ptr();
        for buffer in taken {
            assert_eq!(buffer.len(), BUFFER_BYTES);
            idle.put_buffer(buffer);
        }
        let kept = idle.buffers.lock().expect("nobody panicked").len();
        assert_eq!(kept, IDLE_BUFFERS_MAX);
        let again: Vec<_> = (0..kept).map(|_| idle.take_buffer()).collect();
        assert!(again.iter().any(|buffer| buffer.as_ptr() == first));
    }
}
