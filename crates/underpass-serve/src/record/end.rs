//! The end of an exchange, and the causes of failures, as logs and metrics name them.

use std::borrow::Cow;

use underpass::Cause;

/// The end of an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ExchangeEnd {
    /// The whole response was passed to the kernel.
    Complete,
    /// The peer closed or reset the connection, or acknowledged nothing for too long.
    PeerGone,
    /// The client read nothing for too long.
    Stalled,
    /// The client read slower than `rate-min`.
    TooSlow,
    /// The server was stopped.
    Stopped,
    /// The file ended before the announced length.
    Truncated,
    /// The file could not be read, or the socket not be written, for another reason.
    Failed,
}

impl ExchangeEnd {
    /// The names in logs and metrics, in the order of the variants.
    pub(crate) const NAMES: [&str; 7] = [
        "complete",
        "peer_gone",
        "stalled",
        "too_slow",
        "stopped",
        "truncated",
        "failed",
    ];

    pub(crate) const fn name(self) -> &'static str {
        ExchangeEnd::NAMES[self as usize]
    }
}

/// Returns the name of a cause in logs and metrics.
pub(crate) fn cause_name(cause: Cause) -> Cow<'static, str> {
    match cause {
        Cause::Errno(errno) => underpass::errno::name(errno),
        Cause::SaidNothing => "said_nothing".into(),
    }
}
