//! The middles of splice: a bounded pool of pipes that are known to be empty.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::limits::{IDLE_PIPES_MAX, PIPE_BYTES};

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

/// Empty pipes for the next transfers.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    idle: Mutex<Vec<Pipe>>,
}

impl Pipes {
    pub(crate) fn take(&self) -> Result<Pipe, Errno> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        idle.map_or_else(Pipe::open, Ok)
    }

    /// Takes back a pipe that is empty.
    pub(crate) fn put(&self, pipe: Pipe) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_PIPES_MAX {
            idle.push(pipe);
        }
    }
}
