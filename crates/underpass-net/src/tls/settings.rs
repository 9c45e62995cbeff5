//! The TLS options of a listener.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::Deserialize;

/// The TLS options of listeners.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TlsOptions {
    /// Certificates with their keys. A client gets the first one that is valid for the name it
    /// requests and whose signatures it supports; one that requests no name, or a name without a
    /// certificate, gets the first whose signatures it supports.
    #[serde(rename = "certificate")]
    pub certificates: Vec<CertificateFiles>,
    /// Whether a certificate for the names and addresses of this machine is generated, and kept
    /// between starts, if none is configured.
    pub self_signed: bool,
    /// The minimum version.
    pub min_version: TlsVersion,
    /// Certificates of authorities, in PEM. If set, every client must present a certificate that
    /// one of them has signed.
    pub client_ca: Option<PathBuf>,
    /// The cipher suites, by their IANA names; all known ones if it is empty. The client's order
    /// applies.
    pub cipher_suites: Vec<String>,
    /// An announcement of TLS by the protocol to its clients; not used by this crate.
    pub hsts: Option<String>,
    /// Whether the kernel encrypts sent data.
    pub offload: OffloadMode,
}

/// Whether kernel TLS is used for sending.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum OffloadMode {
    /// Not used, and not tested.
    #[default]
    Off,
    /// Used if the kernel passes a test at the start.
    Auto,
    /// Used; the start fails if the kernel does not pass the test.
    Require,
}

/// The files of a certificate.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CertificateFiles {
    /// The certificate and those that lead from it towards the authority, in this order, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM, not encrypted: PKCS #8, PKCS #1 (RSA) or SEC 1 (EC).
    pub key: PathBuf,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246), with forward secrecy and authenticated encryption only.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    Tls13,
}

impl TlsVersion {
    /// Returns `TLSv1.2` or `TLSv1.3`, as in logs of other servers.
    pub fn name(self) -> &'static str {
        match self {
            TlsVersion::Tls12 => "TLSv1.2",
            TlsVersion::Tls13 => "TLSv1.3",
        }
    }
}

impl CertificateFiles {
    /// Returns the files of a generated certificate in this folder.
    pub(crate) fn in_folder(folder: &Path) -> CertificateFiles {
        CertificateFiles {
            cert: folder.join("self-signed.crt"),
            key: folder.join("self-signed.key"),
        }
    }
}

/// The state folder of root (FHS 3.0, section 5.8), and of its owner.
const ROOT_STATE: &str = "/var/lib/underpass";

/// Returns this user's state folder: that of the service manager (systemd.exec(5)), root's, or a
/// personal one (XDG Base Directory Specification).
fn state_folder() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let is_whole = |folder: &PathBuf| folder.is_absolute();
    if let Some(folder) = variable("STATE_DIRECTORY").filter(is_whole) {
        return Some(folder);
    }
    let user = geteuid();
    let owner = fs::metadata(ROOT_STATE).map(|there| there.uid());
    if user.is_root() || owner.is_ok_and(|owner| owner == user.as_raw()) {
        return Some(ROOT_STATE.into());
    }
    let own = variable("XDG_STATE_HOME").filter(is_whole);
    let own = own.or_else(|| Some(variable("HOME").filter(is_whole)?.join(".local/state")));
    Some(own?.join("underpass"))
}

impl TlsOptions {
    /// Creates options with one certificate.
    pub fn of(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsOptions {
        TlsOptions {
            certificates: vec![CertificateFiles {
                cert: cert.into(),
                key: key.into(),
            }],
            ..TlsOptions::default()
        }
    }

    /// Resolves relative paths against `folder`.
    pub fn relative_to(&mut self, folder: &Path) {
        let files = self.certificates.iter_mut();
        let files = files.flat_map(|files| [&mut files.cert, &mut files.key]);
        for path in files.chain(&mut self.client_ca) {
            *path = folder.join(&*path);
        }
    }

    /// Returns whether a certificate is configured or will be generated.
    pub fn has_certificate(&self) -> bool {
        self.self_signed || !self.certificates.is_empty()
    }

    /// Returns the files of all certificates, including the generated one.
    pub fn files(&self) -> Vec<CertificateFiles> {
        let made = self.self_signed.then(state_folder).flatten();
        let made = made.map(|folder| CertificateFiles::in_folder(&folder));
        self.certificates.iter().cloned().chain(made).collect()
    }
}
