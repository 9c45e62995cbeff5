//! Which signal a call towards a sink raises.

use crate::sys::signals::{DeadlySignal, UnignoredSignal};
use crate::vocabulary::endpoint::{EndpointKind, Offsets};

/// The signal that calls towards such a sink may raise, as long as the program leaves its signal
/// actions alone.
pub(super) fn raised_by(sink: EndpointKind) -> Option<UnignoredSignal> {
    UnignoredSignal::unless_ignored(match sink.offsets() {
        Offsets::Explicit => DeadlySignal::FileSize,
        Offsets::None => DeadlySignal::Pipe,
    })
}
