//! Lets connections in: finds out whom each is from, and whether there may be one more of them.
//!
//! ```text
//!  accepted ─► PROXY header? ─► a seat for the client? ─► the protocol
//!                 │ wrong, late, untrusted    │ none left
//!                 └──────────► closed ◄───────┘
//! ```
//!
//! What is not let in is closed without a word: whoever opens connections faster than they may
//! be had should cost as little as possible, and may not speak HTTP at all.

pub(crate) mod network;
pub(crate) mod proxies;
pub mod proxy_protocol;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::admission::proxies::{Proxies, ProxyProtocol};
use crate::admission::proxy_protocol::{Origin, Parsed, parse};
use crate::connection::{Filled, Patience, Stream};
use crate::error::StreamError;
use crate::limits::Limits;
use crate::listen::address::Peer;
use crate::log_throttle::{Burst, Trouble};
use crate::quota::client_table::{Addresses, Allowed, Seat};
use crate::quota::rate_limiter::Bandwidth;
use crate::server::shutdown::Phase;

/// Why a connection is closed before anything is said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TurnedAway {
    /// Its client has as many connections as it may have.
    ClientLimit,
    /// It is no trusted proxy, where all have to be.
    Untrusted,
    /// It ended before its PROXY header did.
    HeaderMissing,
    /// What it began with is no PROXY header.
    HeaderWrong(&'static str),
    /// Its PROXY header did not come in time.
    HeaderLate,
    /// The server stopped before there was a PROXY header.
    Stopped,
}

impl TurnedAway {
    /// A word for each, in the order of [`TurnedAway::number`].
    pub const NAMES: [&str; 6] = [
        "client_limit",
        "untrusted",
        "header_missing",
        "header_wrong",
        "header_late",
        "stopped",
    ];

    /// Where it stands among all, whatever it says beside.
    pub fn number(self) -> usize {
        match self {
            TurnedAway::ClientLimit => 0,
            TurnedAway::Untrusted => 1,
            TurnedAway::HeaderMissing => 2,
            TurnedAway::HeaderWrong(_) => 3,
            TurnedAway::HeaderLate => 4,
            TurnedAway::Stopped => 5,
        }
    }
}

impl fmt::Display for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TurnedAway::ClientLimit => "the client has as many connections as it may have",
            TurnedAway::Untrusted => "it is no trusted proxy",
            TurnedAway::HeaderMissing => "its PROXY header is missing",
            TurnedAway::HeaderWrong(why) => why,
            TurnedAway::HeaderLate => "its PROXY header did not come in time",
            TurnedAway::Stopped => "the server stops",
        })
    }
}

/// What all workers share: nothing, unless a limit asks for it.
#[derive(Default)]
pub(crate) struct Shared {
    addresses: Option<Arc<Addresses>>,
    pub(crate) bandwidth: Option<Bandwidth>,
}

/// A worker's gate.
pub(crate) struct Gate {
    pub(crate) shared: Arc<Shared>,
    turned_away: Trouble,
}

impl Shared {
    pub(crate) fn new(limits: &Limits) -> Shared {
        Shared {
            addresses: Allowed::by(limits).map(|each| Arc::new(Addresses::new(each))),
            bandwidth: limits.rate_all_max.map(Bandwidth::new),
        }
    }
}

impl Shared {
    /// What a new generation shares with the one before it: connections that are open go on being
    /// counted, unless there is another limit.
    pub(crate) fn after(before: Option<&Arc<Shared>>, limits: &Limits) -> Arc<Shared> {
        let new = Shared::new(limits);
        Arc::new(match before {
            Some(before) => Shared {
                addresses: match (&before.addresses, new.addresses) {
                    (Some(old), Some(new)) if old.each() == new.each() => Some(Arc::clone(old)),
                    (_, new) => new,
                },
                ..new
            },
            None => new,
        })
    }
}

impl Gate {
    pub(crate) fn new(shared: Arc<Shared>) -> Gate {
        Gate {
            shared,
            turned_away: Trouble::default(),
        }
    }

    /// A seat for a connection of `client`, where seats are counted.
    fn seat(&self, client: IpAddr) -> Result<Option<Seat>, TurnedAway> {
        let Some(addresses) = &self.shared.addresses else {
            return Ok(None);
        };
        let seat = addresses.seat(client);
        seat.map(Some).ok_or(TurnedAway::ClientLimit)
    }

    fn tell(&self, peer: Peer, why: TurnedAway) {
        if self.turned_away.meet(Instant::now()) == Burst::New {
            tracing::warn!("connections are closed: of {peer}: {why}");
        }
    }
}

/// Lets a connection in, or closes it.
pub(crate) async fn enter(mut stream: Stream) -> Result<Stream, TurnedAway> {
    match let_in(&mut stream).await {
        Ok(()) => Ok(stream),
        Err(why) => {
            if stream.phase() == Phase::Running {
                stream.ground.gate.tell(stream.peer(), why);
            }
            Err(why)
        }
    }
}

async fn let_in(stream: &mut Stream) -> Result<(), TurnedAway> {
    if is_header_due(&stream.ground.limits.proxy, stream.peer())?
        && let Origin::Client(client) = Box::pin(read_header(stream)).await?
    {
        stream.client = Peer::Tcp(client);
    }
    if let Some(client) = stream.client.ip() {
        stream.seat = stream.ground.gate.seat(client)?;
    }
    Ok(())
}

/// Whether a connection has to begin with a header.
fn is_header_due(proxies: &Proxies, peer: Peer) -> Result<bool, TurnedAway> {
    let is_trusted = || match peer {
        Peer::Tcp(peer) => proxies.trust(peer.ip()),
        Peer::Unix => proxies.trust_unix(),
    };
    match (proxies.protocol, is_trusted) {
        (ProxyProtocol::Off, _) => Ok(false),
        (ProxyProtocol::Trusted, is_trusted) => Ok(is_trusted()),
        (ProxyProtocol::Required, is_trusted) if is_trusted() => Ok(true),
        (ProxyProtocol::Required, _) => Err(TurnedAway::Untrusted),
    }
}

/// Reads the header and takes it off the input.
async fn read_header(stream: &mut Stream) -> Result<Origin, TurnedAway> {
    stream.expect_within(stream.ground.limits.proxy.timeout);
    loop {
        match parse(stream.input()) {
            Parsed::Header(header) => {
                stream.consume(header.length);
                return Ok(header.origin);
            }
            Parsed::Malformed(why) => return Err(TurnedAway::HeaderWrong(why)),
            Parsed::Partial => {}
        }
        match stream.fill(Patience::Idle).await {
            Ok(Filled::Bytes) => {}
            Err(StreamError::TimedOut) => return Err(TurnedAway::HeaderLate),
            Err(StreamError::Stopped) => return Err(TurnedAway::Stopped),
            Ok(Filled::End) | Err(_) => return Err(TurnedAway::HeaderMissing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_due_from_trusted_proxies_and_others_are_closed_where_required() {
        let proxies = |protocol| Proxies {
            trusted: vec!["10.0.0.0/8".parse().unwrap()],
            protocol,
            ..Proxies::default()
        };
        let peer = |address: [u8; 4]| Peer::Tcp((address, 1).into());
        let (proxy, other) = (peer([10, 0, 0, 1]), peer([192, 0, 2, 1]));
        let due = |protocol, peer| is_header_due(&proxies(protocol), peer);
        assert_eq!(due(ProxyProtocol::Off, proxy), Ok(false));
        assert_eq!(due(ProxyProtocol::Trusted, proxy), Ok(true));
        assert_eq!(due(ProxyProtocol::Trusted, other), Ok(false));
        assert_eq!(due(ProxyProtocol::Required, proxy), Ok(true));
        assert!(due(ProxyProtocol::Required, other).is_err());
    }
}
