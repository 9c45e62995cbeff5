//! The addresses by which other machines reach a server that listens on all interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// The addresses that reach `listening`, the best first; itself unless it is a wildcard.
pub(crate) fn reachable(listening: SocketAddr) -> Vec<SocketAddr> {
    match listening.ip().is_unspecified() {
        true => of_all(listening, &machine()),
        false => vec![listening],
    }
}

/// The addresses of all interfaces that are up; empty if the kernel does not report them.
fn machine() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    let up = interfaces.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    up.filter_map(|interface| {
        let address = interface.address?;
        let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
    })
    .collect()
}

/// Leaves out loopback, which others cannot reach, and link-local addresses, which need a zone.
fn of_all(listening: SocketAddr, machine: &[IpAddr]) -> Vec<SocketAddr> {
    let port = listening.port();
    let is_reachable = |address: &&IpAddr| match address {
        IpAddr::V4(four) => !four.is_loopback() && !four.is_link_local(),
        IpAddr::V6(six) => {
            listening.is_ipv6() && !six.is_loopback() && !six.is_unicast_link_local()
        }
    };
    let mut found: Vec<_> = machine
        .iter()
        .filter(is_reachable)
        .map(|&address| SocketAddr::new(address, port))
        .collect();
    // Version 4 first: shorter to type.
    found.sort_by_key(SocketAddr::is_ipv6);
    if found.is_empty() {
        let own: IpAddr = match listening {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        found.push(SocketAddr::new(own, port));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(listening: &str, machine: &[&str]) -> Vec<String> {
        let machine: Vec<IpAddr> = machine.iter().map(|ip| ip.parse().unwrap()).collect();
        let all = of_all(listening.parse().unwrap(), &machine);
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn addresses_that_others_reach_are_shown_and_short_ones_first() {
        let machine = [
            "127.0.0.1",
            "fe80::1",
            "2001:db8::1",
            "192.0.2.7",
            "169.254.0.1",
            "::1",
        ];
        assert_eq!(shown("0.0.0.0:80", &machine), ["192.0.2.7:80"]);
        assert_eq!(
            shown("[::]:80", &machine),
            ["192.0.2.7:80", "[2001:db8::1]:80"]
        );
    }

    #[test]
    fn a_machine_without_a_network_reaches_itself() {
        assert_eq!(shown("0.0.0.0:80", &["127.0.0.1"]), ["127.0.0.1:80"]);
        assert_eq!(shown("[::]:80", &[]), ["[::1]:80"]);
    }

    #[test]
    fn a_specific_address_is_shown_unchanged() {
        let one = SocketAddr::from(([127, 0, 0, 1], 8080));
        assert_eq!(reachable(one), [one]);
        assert!(!reachable(SocketAddr::from(([0; 4], 1))).is_empty());
    }
}
