//! Admits connections: reads the PROXY header, and checks the client's limits.
//!
//! ```text
//!  accepted ─► PROXY header? ─► a seat for the client? ─► the protocol
//!                 │ wrong, late, untrusted    │ none left
//!                 └──────────► closed ◄───────┘
//! ```
//!
//! A connection that is rejected is closed without a response: clients that exceed their limit
//! should cost as little as possible, and the protocol may not be HTTP.

pub mod proxy_protocol;

use std::net::IpAddr;

use thiserror::Error;

use crate::address::PeerAddress;
use crate::address::proxies::{Proxies, ProxyProtocol};
use crate::admission::proxy_protocol::{ConnectionOrigin, ProxyHeaderParse, parse};
use crate::connection::wait::WhileDraining;
use crate::connection::{Connection, ReadOutcome};
use crate::error::ConnectionError;
use crate::limits::ConnectionLimits;
use crate::quota::client_table::ConnectionLimit;
use crate::shutdown::ShutdownPhase;

/// The reason that a connection is closed before the protocol sees it.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Rejected {
    /// The client has reached its connection limit.
    #[error("the client has reached its connection limit")]
    ClientLimit,
    /// The peer is not a trusted proxy, and PROXY headers are required.
    #[error("the peer is not a trusted proxy")]
    Untrusted,
    /// The connection ended before a complete PROXY header.
    #[error("the PROXY header is missing")]
    HeaderMissing,
    /// The first bytes are not a valid PROXY header.
    #[error("{0}")]
    HeaderWrong(&'static str),
    /// The PROXY header did not arrive in time.
    #[error("the PROXY header did not arrive in time")]
    HeaderLate,
    /// The server stopped before the PROXY header arrived.
    #[error("the server stops")]
    Stopped,
}

impl Rejected {
    /// Labels for metrics, in the order of [`Rejected::number`].
    pub const NAMES: [&str; 6] = [
        "client_limit",
        "untrusted",
        "header_missing",
        "header_wrong",
        "header_late",
        "stopped",
    ];

    /// The index in [`Rejected::NAMES`].
    pub fn number(self) -> usize {
        match self {
            Rejected::ClientLimit => 0,
            Rejected::Untrusted => 1,
            Rejected::HeaderMissing => 2,
            Rejected::HeaderWrong(_) => 3,
            Rejected::HeaderLate => 4,
            Rejected::Stopped => 5,
        }
    }
}

/// Admits a connection, or closes it.
pub(crate) async fn admit(mut connection: Connection) -> Result<Connection, Rejected> {
    match check(&mut connection).await {
        Ok(()) => Ok(connection),
        Err(why) => {
            if connection.phase() == ShutdownPhase::Running {
                let (worker, peer) = (connection.worker(), connection.peer());
                let rejections = &worker.rejections;
                rejections.warn(format_args!("connection from {peer} rejected: {why}"));
            }
            Err(why)
        }
    }
}

async fn check(connection: &mut Connection) -> Result<(), Rejected> {
    if !connection.is_of_client() {
        return Ok(());
    }
    if is_header_due(&connection.worker().limits.proxy, connection.peer())?
        && let ConnectionOrigin::Client(client) = Box::pin(read_header(connection)).await?
    {
        connection.set_client(client.into());
    }
    let permit = match connection.client().ip() {
        Some(client) => {
            let worker = connection.worker();
            let permit = worker
                .clients
                .permit(client, connection_limit(&worker.limits, client));
            Some(permit.ok_or(Rejected::ClientLimit)?)
        }
        None => None,
    };
    connection.set_quota(permit);
    Ok(())
}

/// Lifts the default limit for trusted proxies and loopback addresses, which many clients share.
fn connection_limit(limits: &ConnectionLimits, client: IpAddr) -> ConnectionLimit {
    let is_apart = || client.to_canonical().is_loopback() || limits.proxy.trust(client);
    match limits.connections_per_client_max.is_none() && is_apart() {
        true => ConnectionLimit::Lifted,
        false => ConnectionLimit::Holds,
    }
}

/// Returns whether a connection must start with a PROXY header.
fn is_header_due(proxies: &Proxies, peer: PeerAddress) -> Result<bool, Rejected> {
    let is_trusted = || match peer {
        PeerAddress::Tcp(peer) => proxies.trust(peer.ip()),
        PeerAddress::Unix => proxies.trust_unix(),
    };
    match (proxies.protocol, is_trusted) {
        (ProxyProtocol::Off, _) => Ok(false),
        (ProxyProtocol::Trusted, is_trusted) => Ok(is_trusted()),
        (ProxyProtocol::Required, is_trusted) if is_trusted() => Ok(true),
        (ProxyProtocol::Required, _) => Err(Rejected::Untrusted),
    }
}

/// Reads the header and removes it from the input.
async fn read_header(connection: &mut Connection) -> Result<ConnectionOrigin, Rejected> {
    connection.start_deadline(connection.worker().limits.proxy.timeout);
    loop {
        match parse(connection.input()) {
            ProxyHeaderParse::Complete(header) => {
                connection.consume(header.length);
                return Ok(header.origin);
            }
            ProxyHeaderParse::Malformed(why) => return Err(Rejected::HeaderWrong(why)),
            ProxyHeaderParse::Partial => {}
        }
        match connection.fill(WhileDraining::Ends).await {
            Ok(ReadOutcome::Bytes(_)) => {}
            Err(ConnectionError::TimedOut) => return Err(Rejected::HeaderLate),
            Err(ConnectionError::Stopped) => return Err(Rejected::Stopped),
            Ok(ReadOutcome::End) | Err(_) => return Err(Rejected::HeaderMissing),
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
        let peer = |address: [u8; 4]| PeerAddress::Tcp((address, 1).into());
        let (proxy, other) = (peer([10, 0, 0, 1]), peer([192, 0, 2, 1]));
        let due = |protocol, peer| is_header_due(&proxies(protocol), peer);
        assert_eq!(due(ProxyProtocol::Off, proxy), Ok(false));
        assert_eq!(due(ProxyProtocol::Trusted, proxy), Ok(true));
        assert_eq!(due(ProxyProtocol::Trusted, other), Ok(false));
        assert_eq!(due(ProxyProtocol::Required, proxy), Ok(true));
        assert!(due(ProxyProtocol::Required, other).is_err());
    }
}
