//! The client of a request, as trusted proxies report it: RFC 7239, and `X-Forwarded-For`.
//!
//! Each proxy appends the address of its client. So the list is read from the right, as long as the
//! author of a member is trusted, and the first address that is not trusted is the client.
//! Everything to the left of it is unverified and ignored, including the boundaries of members.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use underpass_http::request::head::Fields;
use underpass_http::scheme::Scheme;
use underpass_net::{Forwarded, Proxies};

/// The location of the client of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientPlace {
    /// This address.
    Address(IpAddr),
    /// This machine, at the other end of a Unix socket.
    UnixSocket,
    /// Behind a trusted proxy that does not name the client in a readable way. The address is that
    /// of the last known proxy, if it has one.
    Unknown(Option<IpAddr>),
}

impl ClientPlace {
    /// Returns the location of the peer of a connection: that of a Unix socket has no address.
    pub(crate) fn of(peer: Option<IpAddr>) -> ClientPlace {
        peer.map_or(ClientPlace::UnixSocket, ClientPlace::Address)
    }

    /// Returns the nearest known address: of the client, or of its last proxy.
    pub(crate) fn nearest(self) -> Option<IpAddr> {
        match self {
            ClientPlace::Address(address) => Some(address),
            ClientPlace::UnixSocket => None,
            ClientPlace::Unknown(proxy) => proxy,
        }
    }
}

impl FromStr for ClientPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientPlace, String> {
        match (text, text.parse()) {
            ("unix", _) => Ok(ClientPlace::UnixSocket),
            (_, Ok(address)) => Ok(ClientPlace::Address(address)),
            (_, Err(_)) => Err("expected the address of a client, as 192.0.2.1, or unix".into()),
        }
    }
}

/// Returns the client of a request on a connection from `peer`, and the protocol of that client as
/// reported by a trusted proxy, HTTP by default.
pub(crate) fn sender(
    peer: Option<IpAddr>,
    fields: &Fields<'_>,
    proxies: &Proxies,
) -> (ClientPlace, Scheme) {
    let value = match proxies.forwarded {
        Forwarded::Off => return (ClientPlace::of(peer), Scheme::Http),
        Forwarded::Forwarded => &fields.forwarded,
        Forwarded::XForwardedFor => &fields.x_forwarded_for,
    };
    let (client, named_by) = walk(peer, value.as_deref(), proxies);
    let proto = match proxies.forwarded {
        Forwarded::Forwarded => named_by.and_then(|member| parameter(member, b"proto")),
        Forwarded::XForwardedFor | Forwarded::Off => {
            let proto = fields.x_forwarded_proto.as_deref();
            let proto = proto.filter(|_| is_trusted(peer, proxies));
            // The first value is from the proxy nearest to the client.
            proto.and_then(|proto| proto.split(|&byte| byte == b',').next())
        }
    };
    let is_https = |proto: &[u8]| proto.trim_ascii().eq_ignore_ascii_case(b"https");
    match proto.is_some_and(is_https) {
        true => (client, Scheme::Https),
        false => (client, Scheme::Http),
    }
}

/// Returns the client of a request: `value` is the field that `proxies` selects, `peer` the peer of
/// the connection.
pub fn client(peer: Option<IpAddr>, value: Option<&[u8]>, proxies: &Proxies) -> ClientPlace {
    walk(peer, value, proxies).0
}

/// Returns the client as [`client`] does, and the list member that names it.
fn walk<'v>(
    peer: Option<IpAddr>,
    value: Option<&'v [u8]>,
    proxies: &Proxies,
) -> (ClientPlace, Option<&'v [u8]>) {
    let node: fn(&[u8]) -> Option<IpAddr> = match proxies.forwarded {
        Forwarded::Off => return (ClientPlace::of(peer), None),
        Forwarded::Forwarded => |member| address(parameter(member, b"for")?),
        Forwarded::XForwardedFor => address,
    };
    let (mut client, mut named_by) = (peer, None);
    for member in from_right(value.unwrap_or_default()) {
        if !is_trusted(client, proxies) {
            break;
        }
        named_by = Some(member);
        match node(member) {
            Some(before) => client = Some(before.to_canonical()),
            None => return (ClientPlace::Unknown(client), named_by),
        }
    }
    (ClientPlace::of(client), named_by)
}

fn is_trusted(client: Option<IpAddr>, proxies: &Proxies) -> bool {
    client.map_or_else(|| proxies.trust_unix(), |client| proxies.trust(client))
}

/// Returns the members of a list, the last one first. Commas within quotes do not separate; empty
/// members are skipped (RFC 9110, section 5.6.1).
fn from_right(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let members = list.rsplit(move |&byte| {
        is_quoted ^= byte == b'"';
        byte == b',' && !is_quoted
    });
    members
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

/// Returns a parameter of a member of `Forwarded`, unless it is missing or repeated.
fn parameter<'m>(member: &'m [u8], wanted: &[u8]) -> Option<&'m [u8]> {
    let mut values = member.split(|&byte| byte == b';').filter_map(|pair| {
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        name.eq_ignore_ascii_case(wanted).then_some(value)
    });
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    match value.strip_prefix(b"\"") {
        Some(value) => value.strip_suffix(b"\""),
        None => Some(value),
    }
}

/// Parses an address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]:80`,
/// `2001:db8::1`. Returns `None` for `unknown` and for obfuscated names.
fn address(node: &[u8]) -> Option<IpAddr> {
    let node = std::str::from_utf8(node).ok()?;
    if let Some(bracketed) = node.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let is_port = port.is_empty() || port.starts_with(':');
        return address
            .parse::<Ipv6Addr>()
            .ok()
            .filter(|_| is_port)
            .map(IpAddr::V6);
    }
    if let Ok(address) = node.parse() {
        return Some(address);
    }
    let (address, _port) = node.split_once(':')?;
    address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn proxies(forwarded: Forwarded) -> Proxies {
        Proxies {
            trusted: ["10.0.0.0/8", "::1", "fd00::/8"]
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
            forwarded,
            ..Proxies::default()
        }
    }

    fn of(forwarded: Forwarded, peer: &str, value: &str) -> String {
        let peer = Some(peer.parse().unwrap());
        match client(peer, Some(value.as_bytes()), &proxies(forwarded)) {
            ClientPlace::Address(address) => address.to_string(),
            ClientPlace::UnixSocket => "unix".to_owned(),
            ClientPlace::Unknown(proxy) => format!("behind {}", proxy.unwrap()),
        }
    }

    fn x(value: &str) -> String {
        of(Forwarded::XForwardedFor, "10.0.0.1", value)
    }

    fn rfc(value: &str) -> String {
        of(Forwarded::Forwarded, "10.0.0.1", value)
    }

    #[test]
    fn the_rightmost_address_that_is_not_trusted_is_the_client() {
        assert_eq!(x("192.0.2.7"), "192.0.2.7");
        assert_eq!(x("6.6.6.6, 192.0.2.7"), "192.0.2.7");
        assert_eq!(x("6.6.6.6, 192.0.2.7, 10.9.9.9"), "192.0.2.7");
        assert_eq!(x("10.0.0.3, 10.0.0.2"), "10.0.0.3");
        assert_eq!(x("192.0.2.7:4711,, "), "192.0.2.7");
        assert_eq!(x("[2001:db8::7]:4711"), "2001:db8::7");
        assert_eq!(x("2001:db8::7, fd00::1"), "2001:db8::7");
        assert_eq!(x("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(x(""), "10.0.0.1");
    }

    #[test]
    fn the_field_of_the_rfc_says_the_same() {
        assert_eq!(rfc("for=192.0.2.7"), "192.0.2.7");
        assert_eq!(rfc("For=\"[2001:db8::7]:4711\""), "2001:db8::7");
        assert_eq!(
            rfc("for=6.6.6.6, proto=https;FOR=192.0.2.7;by=10.0.0.1"),
            "192.0.2.7"
        );
        assert_eq!(rfc("for=192.0.2.7, for=10.0.0.2;host=\"a,b\""), "192.0.2.7");
        assert_eq!(rfc("for=\"192.0.2.7:_port\""), "192.0.2.7");
    }

    #[test]
    fn who_is_not_known_is_nobody_and_ends_the_search() {
        for unknown in [
            "unknown",
            "_hidden",
            "192.0.2",
            "[192.0.2.7]",
            "::1]",
            "[::7]x",
        ] {
            let behind = "behind 10.0.0.1";
            assert_eq!(x(&format!("192.0.2.7, {unknown}")), behind, "{unknown}");
            let member = format!("for=192.0.2.7, for=\"{unknown}\"");
            assert_eq!(rfc(&member), behind, "{member}");
        }
        for wrong in [
            "by=192.0.2.7",
            "for=6.6.6.6;for=192.0.2.7",
            "for",
            "for=\"192.0.2.7",
        ] {
            assert_eq!(rfc(wrong), "behind 10.0.0.1", "{wrong}");
        }
    }

    #[test]
    fn who_is_not_trusted_is_not_asked() {
        let untrusted = of(Forwarded::XForwardedFor, "192.0.2.7", "10.0.0.1");
        assert_eq!(untrusted, "192.0.2.7");
        assert_eq!(of(Forwarded::Off, "10.0.0.1", "192.0.2.7"), "10.0.0.1");
    }

    #[test]
    fn a_proxy_on_a_unix_socket_is_asked_if_it_is_trusted() {
        let mut proxies = proxies(Forwarded::XForwardedFor);
        let untrusted = client(None, Some(b"192.0.2.7"), &proxies);
        assert_eq!(untrusted, ClientPlace::UnixSocket);
        proxies.trusted.push("unix".parse().unwrap());
        let named = client(None, Some(b"192.0.2.7"), &proxies);
        assert_eq!(named, ClientPlace::Address([192, 0, 2, 7].into()));
        let unnamed = client(None, Some(b"unknown"), &proxies);
        assert_eq!(unnamed, ClientPlace::Unknown(None));
    }

    proptest! {
        /// Whatever a client sends, the address added by its proxy decides.
        #[test]
        fn no_beginning_changes_what_the_proxy_wrote(written in "[ -~]{0,40}") {
            prop_assert_eq!(x(&format!("{written}, 192.0.2.7")), "192.0.2.7");
            let member = format!("{written}, for=\"192.0.2.7:80\";by=10.0.0.1");
            prop_assert_eq!(rfc(&member), "192.0.2.7");
        }
    }
}
