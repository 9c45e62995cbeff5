//! The proxies that are trusted to name the client of a connection or request.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::address::network::Network;

/// The proxies in front of a server, and how they name their clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Proxies {
    /// The networks of the proxies. Client addresses reported by other peers are ignored.
    pub trusted: Vec<Network>,
    /// Whether connections start with a PROXY protocol header.
    pub protocol: ProxyProtocol,
    /// The timeout of that header. A proxy sends it immediately after connecting.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// The request field in which the proxies name the client. Only one is trusted: a proxy
    /// forwards the others as the client sent them.
    pub forwarded: Forwarded,
}

/// Whether connections start with a PROXY protocol header.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyProtocol {
    /// No connections.
    #[default]
    Off,
    /// Connections from trusted networks; others are served without a header.
    Trusted,
    /// All connections; connections from other networks are closed.
    Required,
}

/// The request field that names the client.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// No field is trusted.
    #[default]
    Off,
    /// `Forwarded`, RFC 7239.
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

impl Default for Proxies {
    /// Returns an empty list of proxies.
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
    /// Returns whether this peer is a trusted proxy.
    pub fn trust(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// Returns whether peers of Unix sockets are trusted proxies.
    pub fn trust_unix(&self) -> bool {
        self.trusted.contains(&Network::Unix)
    }

    pub(crate) fn is_used(&self) -> bool {
        self.protocol != ProxyProtocol::Off || self.forwarded != Forwarded::Off
    }
}
