//! Addresses: configured ones, those of listeners, and those of peers.

pub(crate) mod machine;
pub(crate) mod network;
pub(crate) mod proxies;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;

use nix::net::if_::if_nametoindex;
use serde::Deserialize;
use thiserror::Error;

/// An address to listen on, as configured. It identifies the listener.
///
/// # Examples
/// ```
/// use underpass_net::ListenAt;
///
/// let at: ListenAt = "[::1]:8080".parse()?;
/// assert_eq!(at, ListenAt::Tcp("[::1]:8080".parse().unwrap()));
/// let at: ListenAt = "unix:/run/files.sock,mode=0660".parse()?;
/// assert_eq!(at.to_string(), "unix:/run/files.sock,mode=0660");
/// assert!("systemd:web".parse::<ListenAt>().is_ok());
/// assert_eq!("8080".parse(), "127.0.0.1:8080".parse::<ListenAt>());
/// assert!("localhost".parse::<ListenAt>().is_err(), "a name may have several addresses");
/// # Ok::<(), underpass_net::BadListenAt>(())
/// ```
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum ListenAt {
    /// `ADDR:PORT`, with IPv6 addresses in brackets; `PORT` is that port on 127.0.0.1, and `:PORT`
    /// on every interface. With port 0 the kernel chooses a port. `[::]` includes IPv4, unless an
    /// IPv4 address with the same port is configured too.
    Tcp(SocketAddr),
    /// `unix:/path`, or `unix:/path,mode=0660`: a Unix stream socket. Connecting needs write
    /// permission for the file.
    Unix {
        /// The socket's file. A stale file is replaced; the file is removed at the end.
        path: PathBuf,
        /// Its permissions, independent of the umask; 0666 by default.
        mode: u32,
    },
    /// `systemd`, or `systemd:NAME`: sockets that the service manager has opened
    /// (sd_listen_fds(3)), all of them or only with `FileDescriptorName=NAME`.
    Systemd {
        /// The name; all sockets without one.
        name: Option<String>,
    },
}

/// Default permissions of a Unix socket's file: every local user who can reach the folder may
/// connect, as with a TCP port.
const SOCKET_MODE: u32 = 0o666;

/// The default port.
const PORT: u16 = 8080;

/// Text that is not an address to listen on.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "cannot listen on {text:?}: {why}; PORT, :PORT, ADDR:PORT, NAME:PORT, unix:/path and \
     systemd[:NAME] can be listened on"
)]
pub struct BadListenAt {
    text: String,
    why: String,
}

impl ListenAt {
    /// Returns all addresses that `text` denotes: an address in the format of [`FromStr`], or a
    /// name, which is resolved to its addresses on this machine. Blocks while a name is resolved.
    ///
    /// `port` is the port of an address or a name without one; 8080 if it is `None`.
    ///
    /// # Errors
    /// It is not an address, the name has none, or its port differs from `port`.
    pub fn resolve(text: &str, port: Option<u16>) -> Result<Vec<ListenAt>, BadListenAt> {
        let bad = |why: String| BadListenAt {
            text: text.to_owned(),
            why,
        };
        let contradicts = |own: u16| port.is_some_and(|port| port != own);
        let two_ports = || bad("two different ports are given".to_owned());
        match text.parse() {
            Ok(ListenAt::Tcp(own)) if contradicts(own.port()) => return Err(two_ports()),
            Ok(one) => return Ok(vec![one]),
            Err(error) if text.is_empty() || text.contains('/') || text.starts_with("unix:") => {
                return Err(error);
            }
            Err(error) if zoned_address(text).is_some() => return Err(error),
            Err(_) => {}
        }
        let port = port.unwrap_or(PORT);
        if let Some(address) = zoned_address(&format!("{text}:{port}")) {
            let address = address.map_err(|why| bad(why.to_owned()))?;
            return Ok(vec![address.into()]);
        }
        if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port).into()]);
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, own)) => match own.parse() {
                Ok(own) if contradicts(own) => return Err(two_ports()),
                Ok(own) => (name, own),
                Err(_) => return Err(bad(format!("{own:?} is no port"))),
            },
            None => (text, port),
        };
        let found = (name, port).to_socket_addrs();
        let found: Vec<_> = found.map_err(|error| bad(error.to_string()))?.collect();
        // On machines without IPv6, localhost often resolves to ::1 nevertheless.
        let here = found.iter().filter(|address| is_here(address.ip()));
        let here: Vec<_> = here.map(|address| ListenAt::Tcp(*address)).collect();
        match here.is_empty() {
            true => Err(bad(format!("{name} is no name of this machine"))),
            false => Ok(here),
        }
    }
}

/// Returns whether sockets can be bound to an address.
fn is_here(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Returns the address of every interface, that of IPv6 if the kernel has it.
fn everywhere() -> IpAddr {
    let six = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    if is_here(six) {
        six
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

impl FromStr for ListenAt {
    type Err = BadListenAt;

    fn from_str(text: &str) -> Result<ListenAt, BadListenAt> {
        let bad = |why: &str| BadListenAt {
            text: text.to_owned(),
            why: why.to_owned(),
        };
        if let Some(rest) = text.strip_prefix("unix:") {
            return unix(rest).map_err(bad);
        }
        match text.strip_prefix("systemd") {
            Some("") => Ok(ListenAt::Systemd { name: None }),
            Some(rest) => match rest.strip_prefix(':').filter(|name| !name.is_empty()) {
                Some(name) => Ok(ListenAt::Systemd {
                    name: Some(name.to_owned()),
                }),
                None => Err(bad("a name follows systemd and a colon")),
            },
            None => socket_address(text).map(ListenAt::Tcp).map_err(bad),
        }
    }
}

impl ListenAt {
    /// Returns whether one server cannot listen on both: they name the same socket, or one includes
    /// the other. Ports chosen by the kernel never conflict.
    pub fn conflicts_with(&self, other: &ListenAt) -> bool {
        match (self, other) {
            (ListenAt::Tcp(one), ListenAt::Tcp(other)) => {
                let includes = |one: &SocketAddr| one.ip().is_unspecified();
                one.port() == other.port()
                    && one.port() != 0
                    && one.is_ipv4() == other.is_ipv4()
                    && (one == other || includes(one) || includes(other))
            }
            (ListenAt::Unix { path, .. }, ListenAt::Unix { path: other, .. }) => path == other,
            _ => self == other,
        }
    }
}

/// Parses `[ADDRESS%ZONE]:PORT`, with an interface's name or index as zone (RFC 4007, section 11).
fn zoned_address(text: &str) -> Option<Result<SocketAddr, &'static str>> {
    let (inside, port) = text.strip_prefix('[')?.rsplit_once("]:")?;
    let (ip, zone) = inside.split_once('%')?;
    let (ip, port) = (ip.parse().ok()?, port.parse().ok()?);
    let index = zone.parse().ok().or_else(|| if_nametoindex(zone).ok());
    let address = index.map(|index| SocketAddrV6::new(ip, port, 0, index).into());
    Some(address.ok_or("its zone is no interface of this machine"))
}

fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    if let Some(address) = zoned_address(text) {
        return address;
    }
    let (ip, port) = match text.strip_prefix(':').or(text.strip_prefix("*:")) {
        Some(port) => (everywhere(), port),
        None => (Ipv4Addr::LOCALHOST.into(), text),
    };
    match port.parse() {
        Ok(port) => Ok(SocketAddr::new(ip, port)),
        Err(_) if ip.is_unspecified() => Err("it names no port"),
        Err(_) => text.parse().map_err(|_| "it is no address with a port"),
    }
}

fn unix(rest: &str) -> Result<ListenAt, &'static str> {
    let (path, mode) = match rest.rsplit_once(",mode=") {
        None => (rest, SOCKET_MODE),
        Some((path, digits)) => match u32::from_str_radix(digits, 8) {
            Ok(mode) if mode <= 0o777 => (path, mode),
            _ => return Err("the mode is no octal number up to 0777"),
        },
    };
    match path.starts_with('/') {
        true => Ok(ListenAt::Unix {
            path: path.into(),
            mode,
        }),
        false => Err("the path of a Unix socket begins with a slash"),
    }
}

impl TryFrom<String> for ListenAt {
    type Error = BadListenAt;

    fn try_from(text: String) -> Result<ListenAt, BadListenAt> {
        text.parse()
    }
}

impl From<SocketAddr> for ListenAt {
    fn from(address: SocketAddr) -> ListenAt {
        ListenAt::Tcp(address)
    }
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAt::Tcp(address) => address.fmt(f),
            ListenAt::Unix { path, mode } if *mode == SOCKET_MODE => {
                write!(f, "unix:{}", path.display())
            }
            ListenAt::Unix { path, mode } => write!(f, "unix:{},mode={mode:04o}", path.display()),
            ListenAt::Systemd { name: None } => f.write_str("systemd"),
            ListenAt::Systemd { name: Some(name) } => write!(f, "systemd:{name}"),
        }
    }
}

/// The address of a listener, with the port that the kernel chose for port 0.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A Unix socket; the path is empty if it has none.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The address of a peer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PeerAddress {
    /// The address of a TCP peer.
    Tcp(SocketAddr),
    /// A local process that connected through a Unix socket, which has no address.
    Unix,
}

impl From<SocketAddr> for PeerAddress {
    /// Converts IPv4-mapped addresses: a listener of both versions sees an IPv4 peer as
    /// `::ffff:192.0.2.1`, while logs, rules and limits use 192.0.2.1.
    fn from(address: SocketAddr) -> PeerAddress {
        PeerAddress::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

impl PeerAddress {
    /// Returns the IP address, if there is one.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            PeerAddress::Tcp(address) => Some(address.ip()),
            PeerAddress::Unix => None,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Tcp(address) => address.fmt(f),
            PeerAddress::Unix => f.write_str("unix:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ListenAt> {
        text.parse().ok()
    }

    #[test]
    fn a_peer_has_the_same_address_on_listeners_of_one_and_of_both_versions() {
        for (seen, shown) in [
            ("[::ffff:192.0.2.1]:5", "192.0.2.1:5"),
            ("192.0.2.1:5", "192.0.2.1:5"),
            ("[2001:db8::1]:5", "[2001:db8::1]:5"),
        ] {
            let peer = PeerAddress::from(seen.parse::<SocketAddr>().unwrap());
            assert_eq!(peer.to_string(), shown);
        }
    }

    #[test]
    fn what_is_parsed_is_written_the_same() {
        for text in [
            "127.0.0.1:80",
            "[::]:8080",
            "unix:/run/a,b.sock",
            "unix:/run/a,mode=0600",
            "systemd",
            "systemd:web",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_usual_mode_is_not_printed() {
        assert_eq!(parse("unix:/a,mode=666"), parse("unix:/a"));
    }

    #[test]
    fn addresses_conflict_where_one_includes_the_other() {
        let conflict = |one, other| parse(one).unwrap().conflicts_with(&parse(other).unwrap());
        assert!(conflict("127.0.0.1:80", "127.0.0.1:80"));
        assert!(conflict("127.0.0.1:80", "0.0.0.0:80"));
        assert!(conflict("[::]:80", "[::1]:80"));
        assert!(conflict("unix:/a,mode=0600", "unix:/a"));
        assert!(!conflict("127.0.0.1:0", "127.0.0.1:0"));
        assert!(!conflict("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!conflict("0.0.0.0:80", "[::]:80"));
    }

    #[test]
    fn a_port_alone_is_one_of_this_machine_or_of_every_interface() {
        assert_eq!(parse("8081"), parse("127.0.0.1:8081"));
        assert_eq!(parse(":8081"), parse("*:8081"));
        let Some(ListenAt::Tcp(every)) = parse(":8081") else {
            panic!("no address");
        };
        assert!(every.ip().is_unspecified());
    }

    #[test]
    fn a_name_is_all_its_addresses_here_and_a_port_is_added_where_there_is_none() {
        let resolve = |text: &str, port| ListenAt::resolve(text, port).ok();
        let four = || parse("127.0.0.1:81").unwrap();
        for (text, port) in [("localhost:81", None), ("localhost", Some(81))] {
            assert!(resolve(text, port).unwrap().contains(&four()), "{text}");
        }
        assert_eq!(resolve("127.0.0.1", Some(81)), Some(vec![four()]));
        assert_eq!(
            resolve("127.0.0.1", None),
            parse("127.0.0.1:8080").map(|at| vec![at])
        );
        assert_eq!(
            resolve("[::1]", Some(1)),
            parse("[::1]:1").map(|at| vec![at])
        );
        assert_eq!(
            resolve("unix:/a", Some(1)),
            parse("unix:/a").map(|at| vec![at])
        );
        for (text, port) in [
            ("localhost:x", None),
            ("localhost:81", Some(82)),
            ("81", Some(82)),
        ] {
            assert_eq!(resolve(text, port), None, "{text}");
        }
        assert_eq!(resolve("no-such-name.invalid:80", None), None);
        let relative = ListenAt::resolve("unix:relative", None).unwrap_err();
        assert!(relative.to_string().contains("a slash"), "{relative}");
    }

    #[test]
    fn what_names_no_place_is_refused() {
        for text in [
            "",
            ":",
            "80808",
            ":http",
            "localhost:80",
            "::1:80",
            "unix:",
            "unix:relative",
            "unix:/a,mode=8",
            "unix:/a,mode=1777",
            "systemd:",
            "systemdx",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
