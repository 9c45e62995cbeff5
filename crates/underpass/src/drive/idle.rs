//! The middles of splice and of read/write between two transfers: what is idle is kept, up to a
//! bound, for whoever comes next.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::limits::{BUFFER_BYTES, IDLE_BUFFERS_MAX, IDLE_PIPES_MAX, PIPE_BYTES};

/// Both ends of a pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
}

impl Pipe {
    /// QUIRK(pipe-quota): beyond a user's quota pipes can't be made larger (EPERM), and new ones
    /// have two pages. A smaller pipe is slower, not wrong.
    fn open() -> Result<Self, Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let _granted = fcntl_setpipe_size(&write, PIPE_BYTES);
        Ok(Self { read, write })
    }
}

/// Pipes and buffers for the next transfers.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// All of them empty.
    pipes: Mutex<Vec<Pipe>>,
    /// What they held may still be in them.
    buffers: Mutex<Vec<Box<[u8]>>>,
}

impl Idle {
    pub(crate) fn take_pipe(&self) -> Result<Pipe, Errno> {
        take(&self.pipes).map_or_else(Pipe::open, Ok)
    }

    /// Takes back a pipe that is empty.
    pub(crate) fn put_pipe(&self, pipe: Pipe) {
        put(&self.pipes, pipe, IDLE_PIPES_MAX);
    }

    pub(crate) fn take_buffer(&self) -> Box<[u8]> {
        take(&self.buffers).unwrap_or_else(|| vec![0; BUFFER_BYTES].into())
    }

    pub(crate) fn put_buffer(&self, buffer: Box<[u8]>) {
        put(&self.buffers, buffer, IDLE_BUFFERS_MAX);
    }
}

fn take<T>(idle: &Mutex<Vec<T>>) -> Option<T> {
    idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn put<T>(idle: &Mutex<Vec<T>>, middle: T, max: usize) {
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() < max {
        idle.push(middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_no_more_than_so_many_stay() {
        let idle = Idle::default();
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
