//! The mechanisms this kernel supports: probed once, passed by reference, never a global. Also a
//! pool of the pipes and buffers that relays use: idle ones are kept, up to a bound, for reuse.
//!
//! Refusals are remembered, so that the thousandth file between two devices does not repeat the
//! attempts of the first. A refusal of scope *once* is never remembered.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::plan::{KernelFacts, Pipes, Plan, Policy, plan};
use crate::sys;
use crate::transfer::verdict::call_missing;
use crate::vocabulary::account::{Cause, Mechanism, Refusal, Scope};
use crate::vocabulary::endpoint::{Endpoint, Sink, Source};
use crate::vocabulary::limits::{
    BUFFER_ALIGNMENT, BUFFER_BYTES, IDLE_BUFFERS_MAX, PIPE_BYTES, PIPES_MAX,
    REMEMBERED_REFUSALS_MAX,
};

/// The known refusals of this kernel, and a pool of idle pipes and buffers.
#[derive(Debug, Default)]
pub struct Kernel {
    refused: Mutex<BTreeMap<Key, Errno>>,
    pub(crate) idle: RelayPool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Kernel(Mechanism),
    Devices(Mechanism, u64, u64),
}

impl Kernel {
    /// Returns a kernel without known refusals: every mechanism is tried, and refusals are
    /// remembered. No system calls.
    pub fn unprobed() -> Self {
        Self::default()
    }

    /// Tests which calls the kernel has and allows, each by one call without descriptors. Never
    /// blocks.
    pub fn probe() -> Self {
        let kernel = Self::unprobed();
        for mechanism in [Mechanism::CopyRange, Mechanism::Sendfile, Mechanism::Splice] {
            if let Some(errno) = call_missing(probe(mechanism)) {
                kernel.remember(Key::Kernel(mechanism), errno);
            }
        }
        kernel
    }

    /// Closes idle pipes, for when descriptors run short.
    pub fn close_idle_pipes(&self) {
        lock(&self.idle.pipes).clear();
    }

    /// Remembers a refusal between two ends, within its scope.
    pub fn learn(&self, refusal: &Refusal, source: &Endpoint, sink: &Endpoint) {
        let mechanism = refusal.mechanism;
        let key = match refusal.scope {
            Scope::Kernel => Key::Kernel(mechanism),
            Scope::Devices => Key::Devices(mechanism, source.device, sink.device),
            Scope::Once => return,
        };
        if let Cause::Errno(errno) = refusal.cause {
            self.remember(key, errno);
        }
    }

    fn remember(&self, key: Key, errno: Errno) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REMEMBERED_REFUSALS_MAX {
            refused.insert(key, errno);
        }
    }

    /// Returns the remembered refusal of a mechanism between two ends.
    pub fn refusal(
        &self,
        mechanism: Mechanism,
        source: &Endpoint,
        sink: &Endpoint,
    ) -> Option<(Scope, Errno)> {
        self.facts(source, sink).refused[mechanism.index()]
    }

    /// Returns the facts for planning between two ends, as of now. No system calls; holds a lock
    /// during a few look-ups.
    pub fn facts(&self, source: &Endpoint, sink: &Endpoint) -> KernelFacts {
        let pipes = match self.idle.has_pipe() {
            true => Pipes::Available,
            false => Pipes::Exhausted,
        };
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |scope, key| Some((scope, *refused.get(&key)?));
        let refused = Mechanism::ALL.map(|mechanism| {
            let devices = Key::Devices(mechanism, source.device, sink.device);
            known(Scope::Kernel, Key::Kernel(mechanism)).or_else(|| known(Scope::Devices, devices))
        });
        KernelFacts { refused, pipes }
    }

    /// Plans a move with the current facts about this kernel ([`plan()`]). The same arguments may
    /// yield another plan once all pipes are in use, or one is free again.
    pub fn plan<F, G>(&self, source: &Source<F>, sink: &Sink<G>, policy: &Policy) -> Plan {
        plan(source, sink, &self.facts(&source.end, &sink.end), policy)
    }
}

/// Tests whether the kernel has a mechanism's call, by making it without descriptors.
pub(crate) fn probe(mechanism: Mechanism) -> Errno {
    sys::probe(match mechanism {
        Mechanism::Clone => sys::Probe::FileClone,
        Mechanism::CopyRange => sys::Probe::CopyFileRange,
        Mechanism::Sendfile => sys::Probe::Sendfile,
        Mechanism::Splice => sys::Probe::Splice,
        Mechanism::ReadWrite => sys::Probe::Read,
    })
}

/// Both ends of a pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    /// Counts as open as long as the pipe is.
    _counted: Arc<()>,
}

/// Pipes and buffers for reuse.
#[derive(Debug, Default)]
pub(crate) struct RelayPool {
    /// Idle pipes, all empty.
    pipes: Mutex<Vec<Pipe>>,
    /// A reference per open pipe.
    count: Arc<()>,
    /// Whether the kernel refused a pipe its full size.
    small: AtomicBool,
    /// Idle buffers; they may still contain old bytes.
    buffers: Mutex<Vec<Box<[u8]>>>,
}

impl RelayPool {
    /// Returns whether a pipe of full size is available within the bound. If another thread takes
    /// it first, one more than the bound is opened, which is harmless.
    pub(crate) fn has_pipe(&self) -> bool {
        let open = Arc::strong_count(&self.count) - 1;
        !self.small.load(Ordering::Relaxed) && (open < PIPES_MAX || !lock(&self.pipes).is_empty())
    }

    pub(crate) fn take_pipe(&self) -> Result<Pipe, Errno> {
        let idle = lock(&self.pipes).pop();
        idle.map_or_else(|| self.open_pipe(), Ok)
    }

    /// QUIRK(pipe-quota): beyond a user's quota pipes can't be enlarged (EPERM), and new ones have
    /// two pages. A smaller pipe is slower, not wrong.
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

    /// Returns an empty pipe to the pool.
    pub(crate) fn put_pipe(&self, pipe: Pipe) {
        put(&self.pipes, pipe, PIPES_MAX);
    }

    pub(crate) fn take_buffer(&self) -> Box<[u8]> {
        let idle = lock(&self.buffers).pop();
        idle.unwrap_or_else(|| vec![0; BUFFER_BYTES + BUFFER_ALIGNMENT].into())
    }

    pub(crate) fn put_buffer(&self, buffer: Box<[u8]>) {
        put(&self.buffers, buffer, IDLE_BUFFERS_MAX);
    }
}

fn lock<T>(idle: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
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
    use crate::vocabulary::endpoint::EndpointKind;

    fn refusal(scope: Scope) -> Refusal {
        let cause = Cause::Errno(Errno::XDEV);
        Refusal {
            mechanism: Mechanism::CopyRange,
            cause,
            scope,
            after: 0,
        }
    }

    fn on(device: u64) -> Endpoint {
        Endpoint {
            device,
            ..Endpoint::sample(EndpointKind::File)
        }
    }

    #[test]
    fn refusals_are_remembered_as_far_as_they_hold() {
        let kernel = Kernel::unprobed();
        let asked = |from, to| kernel.refusal(Mechanism::CopyRange, &on(from), &on(to));
        kernel.learn(&refusal(Scope::Once), &on(1), &on(2));
        assert_eq!(asked(1, 2), None);
        kernel.learn(&refusal(Scope::Devices), &on(1), &on(2));
        assert_eq!(asked(1, 2), Some((Scope::Devices, Errno::XDEV)));
        assert_eq!(asked(2, 1), None, "the other way is another pair");
        kernel.learn(&refusal(Scope::Kernel), &on(1), &on(2));
        assert_eq!(asked(7, 8), Some((Scope::Kernel, Errno::XDEV)));
        assert_eq!(kernel.refusal(Mechanism::Sendfile, &on(1), &on(2)), None);
    }

    #[test]
    fn probing_never_gives_up_the_last_mechanism() {
        let kernel = Kernel::probe();
        assert_eq!(kernel.refusal(Mechanism::ReadWrite, &on(0), &on(0)), None);
    }

    #[test]
    fn pipes_are_counted_until_they_are_closed() {
        let idle = RelayPool::default();
        let mut taken: Vec<_> = (0..PIPES_MAX)
            .map(|_| idle.take_pipe().expect("a pipe"))
            .collect();
        // Without privileges, other pipes of the user may have used up the quota.
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
            assert_eq!(buffer.len(), BUFFER_BYTES + BUFFER_ALIGNMENT);
            idle.put_buffer(buffer);
        }
        let kept = idle.buffers.lock().expect("nobody panicked").len();
        assert_eq!(kept, IDLE_BUFFERS_MAX);
        let again: Vec<_> = (0..kept).map(|_| idle.take_buffer()).collect();
        assert!(again.iter().any(|buffer| buffer.as_ptr() == first));
    }
}
