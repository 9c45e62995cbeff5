//! Networks of trusted proxies, parsed from text.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use thiserror::Error;

/// A network, an address, or all peers of Unix sockets, such as `10.0.0.0/8`, `::1` and `unix`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum Network {
    /// All addresses with this prefix.
    Ip(IpNet),
    /// Local peers that connected through a Unix socket.
    Unix,
}

/// Text that is not a network.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0:?} is not a network; expected 10.0.0.0/8, 2001:db8::/32, 192.0.2.1, ::1 or unix")]
pub struct UnknownNetwork(String);

impl Network {
    /// Returns whether the network contains `address`. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match self {
            Network::Ip(network) => network.contains(&address.to_canonical()),
            Network::Unix => false,
        }
    }
}

impl FromStr for Network {
    type Err = UnknownNetwork;

    fn from_str(text: &str) -> Result<Network, UnknownNetwork> {
        if text == "unix" {
            return Ok(Network::Unix);
        }
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse::<IpNet>().ok().or_else(address);
        network
            .map(|network| Network::Ip(canonical(network)))
            .ok_or_else(|| UnknownNetwork(text.to_owned()))
    }
}

/// Converts a network of IPv4-mapped addresses to IPv4, since clients are identified by their IPv4
/// addresses.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else {
        return network;
    };
    let Some(bits) = mapped.prefix_len().checked_sub(MAPPED_PREFIX_BITS) else {
        return network;
    };
    let address = mapped.addr().to_ipv4_mapped();
    let network_v4 = address.and_then(|address| Ipv4Net::new(address, bits).ok());
    network_v4.map_or(network, IpNet::V4)
}

const MAPPED_PREFIX_BITS: u8 = 96;

impl TryFrom<String> for Network {
    type Error = UnknownNetwork;

    fn try_from(text: String) -> Result<Network, UnknownNetwork> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        let network: Network = network.parse().unwrap();
        network.contains(address.parse().unwrap())
    }

    #[test]
    fn networks_contain_what_begins_alike() {
        assert!(contains("10.0.0.0/8", "10.255.0.1"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.1.2.3/8", "10.9.9.9"));
        assert!(contains("::1", "::1"));
        assert!(!contains("::1", "::2"));
        assert!(contains("0.0.0.0/0", "203.0.113.1"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        assert!(!contains("unix", "127.0.0.1"));
    }

    #[test]
    fn an_ipv4_address_within_ipv6_is_that_ipv4_address() {
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.7"));
        assert!(!contains("192.0.2.0/24", "::ffff:192.0.3.7"));
    }

    #[test]
    fn what_is_no_network_is_reported() {
        for wrong in [
            "",
            "10.0.0.0/33",
            "10.0.0",
            "example.org",
            "unix:",
            "::1/129",
        ] {
            let reported = wrong.parse::<Network>().unwrap_err().to_string();
            assert!(reported.contains("10.0.0.0/8"), "{reported}");
        }
    }
}
