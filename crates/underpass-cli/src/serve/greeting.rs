//! What a server says of itself when it starts: where it is, and how bodies will leave.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use underpass::{Mechanism, Plan, Reason};
use underpass_net::Address;

/// Addresses of interfaces that are shown where a server listens on all of them.
const INTERFACES_MAX: usize = 8;

pub(super) fn greeting(
    folder: &Path,
    addresses: &[Address],
    workers: usize,
    plan: &Plan,
) -> String {
    let (shown, place) = (folder.display(), place(addresses));
    let threads = match workers {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    };
    let how = bodies(plan);
    format!("serving {shown} on {place} with {threads}; Ctrl-C stops it\n{how}")
}

/// Every address as a browser, or curl with `--unix-socket`, can use it.
pub(super) fn place(addresses: &[Address]) -> String {
    let mut seen = HashSet::new();
    let mut shown: Vec<String> = addresses
        .iter()
        .flat_map(|address| match address {
            Address::Tcp(address) => urls(*address, &interfaces()),
            Address::Unix(_) => vec![address.to_string()],
        })
        .collect();
    shown.retain(|url| seen.insert(url.clone()));
    shown.join(", ")
}

/// `0.0.0.0` is no address that anything can be found at.
fn urls(address: SocketAddr, interfaces: &[IpAddr]) -> Vec<String> {
    let port = address.port();
    let url = |ip: IpAddr| format!("http://{}/", SocketAddr::new(ip, port));
    if !address.ip().is_unspecified() {
        return vec![url(address.ip())];
    }
    let is_reached = |ip: &&IpAddr| address.is_ipv6() || ip.is_ipv4();
    let urls: Vec<_> = interfaces
        .iter()
        .filter(is_reached)
        .take(INTERFACES_MAX)
        .map(|ip| url(*ip))
        .collect();
    match urls.is_empty() {
        true => vec![url(address.ip())],
        false => urls,
    }
}

/// Addresses that a browser can name; those of one link only need the link's name too.
fn interfaces() -> Vec<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = all.filter_map(|interface| {
        let address = interface.address?;
        if let Some(v4) = address.as_sockaddr_in() {
            return Some(IpAddr::V4(v4.ip()));
        }
        let v6 = address.as_sockaddr_in6()?.ip();
        (!v6.is_unicast_link_local()).then_some(IpAddr::V6(v6))
    });
    addresses.collect()
}

fn bodies(plan: &Plan) -> String {
    let tiers: Vec<_> = plan.tiers().collect();
    let Some((first, others)) = tiers.split_first() else {
        return "bodies cannot leave: nothing is allowed".to_owned();
    };
    let why = match first {
        Mechanism::Sendfile => "pages of the page cache go straight to the socket",
        Mechanism::Splice => "pages of the page cache go to the socket through a pipe",
        _ => "they pass through a buffer of this program",
    };
    let others: Vec<_> = others.iter().map(|tier| tier.name()).collect();
    let fallback = match others.is_empty() {
        true => String::new(),
        false => format!("; where it is refused, by {}", others.join(", then ")),
    };
    let missing: Vec<_> = plan
        .left_out()
        .filter(|(_, reason)| matches!(reason, Reason::Refused(..)))
        .map(|(mechanism, reason)| format!("; not by {mechanism}: {reason}"))
        .collect();
    format!(
        "bodies leave by {first}: {why}{fallback}{}",
        missing.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str, interfaces: &[&str]) -> Vec<String> {
        let interfaces: Vec<_> = interfaces.iter().map(|ip| ip.parse().unwrap()).collect();
        urls(address.parse().unwrap(), &interfaces)
    }

    #[test]
    fn an_address_is_shown_as_it_is() {
        assert_eq!(
            shown("127.0.0.1:80", &["10.0.0.1"]),
            ["http://127.0.0.1:80/"]
        );
        assert_eq!(shown("[::1]:80", &[]), ["http://[::1]:80/"]);
    }

    #[test]
    fn all_interfaces_are_shown_by_their_addresses() {
        let interfaces = ["127.0.0.1", "10.0.0.1", "::1"];
        assert_eq!(
            shown("0.0.0.0:80", &interfaces),
            ["http://127.0.0.1:80/", "http://10.0.0.1:80/"]
        );
        assert_eq!(shown("[::]:80", &interfaces).len(), 3);
        assert_eq!(shown("0.0.0.0:80", &[]), ["http://0.0.0.0:80/"]);
    }
}
