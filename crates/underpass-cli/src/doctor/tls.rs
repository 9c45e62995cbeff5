//! Kernel TLS: whether it can be attached to a connection, which ciphers it accepts, whether it can
//! replace a key and whether its output is correct; and the encryption speed of this program.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use serde::Serialize;
use underpass::kernel_tls::{Cipher, Rekeying, Version, attach, probe_sending, try_keys};
use underpass::tcp::loopback_pair;
use underpass::{Cause, Endpoint, EndpointKind, Side, errno};

use super::explanation;

/// The capabilities of kernel TLS, tested on local connections.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KernelTls {
    /// `net.ipv4.tcp_available_ulp`, before the tests.
    pub(super) available_ulp: Option<String>,
    pub(super) module: TlsModule,
    #[serde(flatten)]
    pub(super) attached: TlsAnswer,
    pub(super) ciphers: Vec<CipherResult>,
    /// Whether a TLS 1.3 connection accepts a second key for sending.
    pub(super) second_key: TlsAnswer,
    /// Whether everything that it encrypts decrypts to the original data.
    pub(super) self_test: TlsAnswer,
    /// Empty in a program that was built without TLS.
    pub(super) user_space: Vec<CipherSpeed>,
}

/// The encryption speed of this program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CipherSpeed {
    pub(super) cipher: &'static str,
    /// On one processor, in its cache.
    pub(super) bytes_per_second: u64,
}

/// The state of the kernel module `tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TlsModule {
    /// Built in or loaded.
    Present,
    /// On disk; `modprobe tls` loads it.
    NotLoaded,
    /// Neither loaded nor found on disk.
    NotFound,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum TlsAnswer {
    Works,
    Refused { errno: String, meaning: String },
    Failed { why: String },
    NotTried { reason: String },
}

/// The result for a TLS version with a cipher, in both directions.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CipherResult {
    pub(super) version: &'static str,
    pub(super) cipher: &'static str,
    #[serde(flatten)]
    pub(super) answer: TlsAnswer,
}

impl KernelTls {
    pub(super) fn ask(kernel_release: &str) -> Self {
        let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp").ok();
        let available = available.map(|names| names.trim().to_owned());
        let module = TlsModule::find(available.as_deref(), kernel_release);
        let attached = match module {
            TlsModule::NotLoaded => TlsAnswer::not_tried("testing would load the kernel module"),
            TlsModule::Present | TlsModule::NotFound => {
                TlsAnswer::of(connect_and_attach().map(drop), NO_PROTOCOL)
            }
        };
        let ciphers = Version::ALL.into_iter().flat_map(|version| {
            let works = attached == TlsAnswer::Works;
            Cipher::ALL.map(|cipher| CipherResult {
                version: version.name(),
                cipher: cipher.name(),
                answer: if works {
                    TlsAnswer::of(try_cipher(version, cipher), NO_CIPHER)
                } else {
                    TlsAnswer::not_tried(NOT_ATTACHED)
                },
            })
        });
        let (second_key, self_test) = match attached {
            TlsAnswer::Works => try_sending(),
            _ => [(); 2].map(|()| TlsAnswer::not_tried(NOT_ATTACHED)).into(),
        };
        Self {
            available_ulp: available,
            module,
            ciphers: ciphers.collect(),
            second_key,
            self_test,
            user_space: speeds(),
            attached,
        }
    }
}

impl TlsModule {
    fn find(available: Option<&str>, release: &str) -> Self {
        let listed = available.is_some_and(|names| names.split(' ').any(|name| name == "tls"));
        if listed || Path::new("/sys/module/tls").exists() {
            return Self::Present;
        }
        let modules = fs::read_to_string(format!("/lib/modules/{release}/modules.dep"));
        if modules.is_ok_and(|modules| modules.contains("/net/tls/tls.ko")) {
            Self::NotLoaded
        } else {
            Self::NotFound
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Present => "built in or loaded",
            Self::NotLoaded => "not loaded (modprobe tls)",
            Self::NotFound => "not found",
        }
    }
}

impl TlsAnswer {
    fn not_tried(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::NotTried { reason }
    }

    fn of(result: io::Result<()>, missing: &str) -> Self {
        match result {
            Ok(()) => Self::Works,
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::MFILE) => Self::not_tried(explanation::of_error(&error)),
                Some(errno) => Self::Refused {
                    errno: explanation::name(Cause::Errno(errno)),
                    meaning: explained(errno, missing),
                },
                None => Self::not_tried(error.to_string()),
            },
        }
    }
}

const NOT_ATTACHED: &str = "kernel TLS cannot be attached to a socket";

/// The meaning of ENOENT for the protocol, and for a cipher.
const NO_PROTOCOL: &str = "the kernel is built without TLS, or its module is not loaded";
const NO_CIPHER: &str = "the kernel is built without this cipher, or its module is not loaded";

fn explained(errno: Errno, missing: &str) -> String {
    match errno {
        Errno::NOENT => missing.to_owned(),
        Errno::INVAL => "this kernel does not support this version or cipher".to_owned(),
        Errno::PERM | Errno::ACCESS => "this process is not permitted to do this".to_owned(),
        other => errno::meaning(other),
    }
}

/// Returns both ends, since a socket whose peer is closed is no longer connected.
fn connect_and_attach() -> io::Result<(std::net::TcpStream, std::net::TcpStream)> {
    let (ours, theirs) = loopback_pair()?;
    attach(&ours)?;
    if Endpoint::of(&ours)?.kind == EndpointKind::TcpKernelTls {
        Ok((ours, theirs))
    } else {
        let silent = "the kernel accepted kernel TLS but does not report it on the socket";
        Err(io::Error::other(silent))
    }
}

fn try_cipher(version: Version, cipher: Cipher) -> io::Result<()> {
    let (ours, _theirs) = connect_and_attach()?;
    for side in [Side::Sink, Side::Source] {
        try_keys(&ours, side, version, cipher)?;
    }
    Ok(())
}

/// Tests whether a key for sending can be replaced, and runs the self-test.
fn try_sending() -> (TlsAnswer, TlsAnswer) {
    let support = match probe_sending() {
        Ok(support) => support,
        Err(error) => {
            let not_tried = TlsAnswer::not_tried(error.to_string());
            return (not_tried.clone(), not_tried);
        }
    };
    let second_key = match support.rekeying {
        Rekeying::Works => TlsAnswer::Works,
        Rekeying::Absent => {
            let why = "a connection ends with its key; Linux replaces it since 6.14".to_owned();
            TlsAnswer::Failed { why }
        }
    };
    match underpass_net::kernel_tls_self_test(&support) {
        Ok(()) => (second_key, TlsAnswer::Works),
        Err(why) => (second_key, TlsAnswer::Failed { why }),
    }
}

fn speeds() -> Vec<CipherSpeed> {
    let speed = |cipher: Cipher| {
        let speed = underpass_net::encryption_speed(cipher)?;
        Some(CipherSpeed {
            cipher: cipher.name(),
            bytes_per_second: speed,
        })
    };
    Cipher::ALL.into_iter().filter_map(speed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_attached_was_not_tried() {
        let tls = KernelTls::ask("no such release");
        assert_eq!(tls.ciphers.len(), 6);
        let tried = |tls: &KernelTls| {
            let not_tried =
                |tried: &&CipherResult| matches!(tried.answer, TlsAnswer::NotTried { .. });
            tls.ciphers.iter().filter(not_tried).count()
        };
        assert_eq!(
            tried(&tls),
            if tls.attached == TlsAnswer::Works {
                0
            } else {
                6
            }
        );
    }

    #[test]
    fn a_listed_protocol_is_present() {
        assert_eq!(
            TlsModule::find(Some("espintcp tls mptcp"), "none"),
            TlsModule::Present
        );
    }
}
