//! Names and addresses of this machine.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// Returns the addresses of all interfaces that are up; none if the kernel does not report them.
pub fn machine_addresses() -> Vec<IpAddr> {
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

/// Returns the addresses of this machine that a URL can have: link-local ones need a zone.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    let mut all = machine_addresses();
    all.push(std::net::Ipv4Addr::LOCALHOST.into());
    all.push(std::net::Ipv6Addr::LOCALHOST.into());
    all.retain(|address| !is_link_local(address));
    all.sort();
    all.dedup();
    all
}

/// Returns the name of this machine in lower case, if a certificate can have it.
pub(crate) fn host_name() -> Option<String> {
    let name = rustix::system::uname();
    let name = name.nodename().to_str().ok()?.to_ascii_lowercase();
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let is_fit = !name.is_empty() && name.bytes().all(is_fit) && !name.starts_with('.');
    is_fit.then_some(name)
}
