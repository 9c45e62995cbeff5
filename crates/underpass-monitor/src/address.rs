//! The address of the metrics and health endpoints.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use underpass_net::ListenAt;

/// The options of the metrics and health endpoints.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StatusOptions {
    /// The address of the metrics and health endpoints: `9090` on 127.0.0.1, or `unix:/run/u.sock`.
    /// None by default: any client that reaches the address may read them.
    pub listen: Option<StatusAddress>,
}

/// An address of the metrics and health endpoints.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum StatusAddress {
    /// An address and port; with port 0 the kernel chooses a port, which is not printed.
    Tcp(SocketAddr),
    /// A Unix socket, written `unix:PATH` or `unix:PATH,mode=0660`. A stale one without a listener
    /// is replaced.
    Unix {
        /// The path of the socket.
        path: PathBuf,
        /// The permissions of its file; by default those that the umask leaves.
        mode: Option<u32>,
    },
}

impl From<PathBuf> for StatusAddress {
    fn from(path: PathBuf) -> StatusAddress {
        StatusAddress::Unix { path, mode: None }
    }
}

impl FromStr for StatusAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusAddress, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() && !path.contains(",mode=") => {
                Ok(PathBuf::from(path).into())
            }
            _ => match text.parse() {
                Ok(ListenAt::Tcp(address)) => Ok(StatusAddress::Tcp(address)),
                Ok(ListenAt::Unix { path, mode }) => Ok(StatusAddress::Unix {
                    path,
                    mode: Some(mode),
                }),
                _ => Err(format!(
                    "{text:?} is no address for metrics; write 9090, 127.0.0.1:9090, unix:PATH \
                     or unix:/PATH,mode=0660"
                )),
            },
        }
    }
}

impl TryFrom<String> for StatusAddress {
    type Error = String;

    fn try_from(text: String) -> Result<StatusAddress, String> {
        text.parse()
    }
}

impl fmt::Display for StatusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusAddress::Tcp(address) => write!(f, "http://{address}"),
            StatusAddress::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

impl StatusAddress {
    /// Returns the address as a listener. For a Unix socket without a mode the umask decides who
    /// may connect, as for any file that this process creates.
    pub fn listen_at(&self) -> ListenAt {
        match self {
            StatusAddress::Tcp(address) => ListenAt::Tcp(*address),
            StatusAddress::Unix { path, mode } => ListenAt::Unix {
                path: path.clone(),
                mode: mode.unwrap_or_else(|| 0o777 & !umask()),
            },
        }
    }
}

/// Returns the umask without changing it, even briefly (proc(5): since Linux 4.7). If it cannot be
/// read, returns a strict one.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok());
    umask.unwrap_or(0o077)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_two_kinds() {
        let address = |text: &str| text.parse::<StatusAddress>();
        let tcp = SocketAddr::from(([127, 0, 0, 1], 9090));
        for text in ["127.0.0.1:9090", "9090"] {
            assert_eq!(address(text), Ok(StatusAddress::Tcp(tcp)));
        }
        assert_eq!(address("unix:/run/u"), Ok(PathBuf::from("/run/u").into()));
        let mode = Some(0o660);
        let path = "/run/u".into();
        assert_eq!(
            address("unix:/run/u,mode=0660"),
            Ok(StatusAddress::Unix { path, mode })
        );
        assert!(address("unix:/run/u,mode=9").is_err());
        for wrong in ["", "unix:", "systemd", "localhost:9090", "/run/u"] {
            let error = address(wrong).unwrap_err();
            assert!(error.contains("unix:PATH"), "{error}");
        }
    }
}
