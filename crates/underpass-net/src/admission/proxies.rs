//! Which proxies are trusted to name the client of a connection or request.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::admission::network::Network;

/// The proxies in front of a server, and how they name their clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Proxies {
    /// The networks of the proxies. What other peers say about clients is ignored.
    pub trusted: Vec<Network>,
    /// Whether connections begin with a header of the PROXY protocol.
    pub protocol: ProxyProtocol,
    /// The timeout of that header. A proxy sends it at once, with the connection.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// The request field in which the proxies name the client. Only one is trusted: a proxy
    /// forwards the others as the client sent them.
    pub forwarded: Forwarded,
}

/// Whether connections begin with a header of the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyProtocol {
    /// No connection does.
    #[default]
    Off,
    /// Connections from trusted networks do; others are served without a header.
    Trusted,
    /// All connections do; connections from other networks are closed.
    Required,
}

/// The request field that names the client.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// None is trusted.
    #[default]
    Off,
    /// `Forwarded`, RFC 7239.
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

impl Default for Proxies {
    /// No proxies.
    fn default() -> Proxies {
        Proxies {
            trusted: Vec::new(),
            protocol: ProxyProtocol::Off,
            timeout: Duration::from_secs(5),
            forwarded: Forwarded::Off,
        }
    }
}

impl Proxies {
    /// Whether this peer is a trusted proxy.
    pub fn trust(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// Whether peers of Unix sockets are trusted proxies.
    pub fn trust_unix(&self) -> bool {
        self.trusted.contains(&Network::Unix)
    }

    pub(crate) fn is_used(&self) -> bool {
        self.protocol != ProxyProtocol::Off || self.forwarded != Forwarded::Off
    }
}
