//! Who may say for whom a connection or a request is.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::admission::network::Network;

/// The proxies in front of a server, and how they tell it about their clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Proxies {
    /// The networks of the proxies. What others say about clients is not believed.
    pub trusted: Vec<Network>,
    /// Whether connections begin with a header of the PROXY protocol.
    pub protocol: ProxyProtocol,
    /// How long that header may take. A proxy sends it at once, with the connection.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// The field of a request that the proxies write their clients into. One only: a proxy passes
    /// the others on as the client wrote them.
    pub forwarded: Forwarded,
}

/// Whether connections begin with a header of the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyProtocol {
    /// None does.
    #[default]
    Off,
    /// Those of trusted networks do; others are served without.
    Trusted,
    /// All do; those of other networks are closed.
    Required,
}

/// The field of a request that says whom it is from.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// None is believed.
    #[default]
    Off,
    /// `Forwarded`, RFC 7239.
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

impl Default for Proxies {
    /// None.
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
    /// Whether what this peer says about its clients is believed.
    pub fn trust(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// Whether what peers say that came by a Unix socket is believed.
    pub fn trust_unix(&self) -> bool {
        self.trusted.contains(&Network::Unix)
    }

    pub(crate) fn is_used(&self) -> bool {
        self.protocol != ProxyProtocol::Off || self.forwarded != Forwarded::Off
    }
}
