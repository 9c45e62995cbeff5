//! What this kernel supports: probed once, passed by reference, never a global.
//!
//! Refusals are remembered, so that the thousandth file between two devices does not repeat the
//! attempts of the first one. A refusal of scope *once* is never remembered.

pub(crate) mod pool;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::plan::facts::{KernelFacts, Pipes};
use crate::plan::policy::Policy;
use crate::plan::{Plan, plan};
use crate::sys;
use crate::transfer::verdict::call_missing;
use crate::vocabulary::account::{Cause, Refusal, Scope};
use crate::vocabulary::endpoint::{Endpoint, Sink, Source};
use crate::vocabulary::limits::REMEMBERED_REFUSALS_MAX;
use crate::vocabulary::mechanism::Mechanism;
use pool::RelayPool;

/// What this kernel is known to refuse, and a pool of idle pipes and buffers.
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
    /// Returns a kernel of which nothing is known: every mechanism is tried, and refusals are
    /// remembered. No system calls.
    pub fn unprobed() -> Self {
        Self::default()
    }

    /// Tests which calls the kernel has and allows, by one call without descriptors each. Never
    /// blocks.
    pub fn probe() -> Self {
        let kernel = Self::unprobed();
        for mechanism in [Mechanism::CopyRange, Mechanism::Sendfile, Mechanism::Splice] {
            if let Some(errno) = call_missing(probe(mechanism)) {
                let cause = Cause::Errno(errno);
                kernel.remember(Key::Kernel(mechanism), cause);
            }
        }
        kernel
    }

    /// Remembers a refusal between two ends, as far as it holds.
    pub fn learn(&self, refusal: &Refusal, source: &Endpoint, sink: &Endpoint) {
        let mechanism = refusal.mechanism;
        match refusal.scope {
            Scope::Kernel => self.remember(Key::Kernel(mechanism), refusal.cause),
            Scope::Devices => {
                self.remember(
                    Key::Devices(mechanism, source.device, sink.device),
                    refusal.cause,
                );
            }
            Scope::Once => (),
        }
    }

    fn remember(&self, key: Key, cause: Cause) {
        let Cause::Errno(errno) = cause else { return };
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REMEMBERED_REFUSALS_MAX {
            refused.insert(key, errno);
        }
    }

    /// Returns what is remembered of a mechanism between two ends.
    pub fn refusal(
        &self,
        mechanism: Mechanism,
        source: &Endpoint,
        sink: &Endpoint,
    ) -> Option<(Scope, Errno)> {
        self.facts(source, sink).refused[mechanism.index()]
    }

    /// Returns what planning between two ends needs to know, as of now. No system calls; holds a
    /// lock during a few look-ups.
    pub fn facts(&self, source: &Endpoint, sink: &Endpoint) -> KernelFacts {
        let pipes = match self.idle.has_pipe() {
            true => Pipes::Available,
            false => Pipes::Exhausted,
        };
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let mut facts = KernelFacts {
            pipes,
            ..KernelFacts::default()
        };
        if refused.is_empty() {
            return facts;
        }
        let known = |scope, key| Some((scope, *refused.get(&key)?));
        facts.refused = Mechanism::ALL.map(|mechanism| {
            let devices = Key::Devices(mechanism, source.device, sink.device);
            known(Scope::Kernel, Key::Kernel(mechanism)).or_else(|| known(Scope::Devices, devices))
        });
        facts
    }

    /// Plans a move by what is known of this kernel now ([`plan()`]). The same question may get
    /// another answer when its pipes are all lent, or one is free again.
    pub fn plan<F, G>(&self, source: &Source<F>, sink: &Sink<G>, policy: &Policy) -> Plan {
        plan(source, sink, &self.facts(&source.end, &sink.end), policy)
    }
}

/// Asks the kernel whether it has a mechanism's call, by making it without descriptors.
pub(crate) fn probe(mechanism: Mechanism) -> Errno {
    sys::probe(match mechanism {
        Mechanism::Clone => sys::Probe::FileClone,
        Mechanism::CopyRange => sys::Probe::CopyFileRange,
        Mechanism::Sendfile => sys::Probe::Sendfile,
        Mechanism::Splice => sys::Probe::Splice,
        Mechanism::ReadWrite => sys::Probe::Read,
    })
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
}
