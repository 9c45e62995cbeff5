//! What a listener with TLS is asked to do.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::Deserialize;

/// How listeners speak TLS.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TlsOptions {
    /// Certificates with their keys. A client gets the first one that is valid for the name it
    /// asks for and whose signatures it understands; one that asks for no name, or for one that
    /// no certificate has, gets the first whose signatures it understands.
    #[serde(rename = "certificate")]
    pub certificates: Vec<CertificateFiles>,
    /// Whether a certificate is made for the names and addresses of this machine, and kept between
    /// starts, where none is named.
    pub self_signed: bool,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// Certificates of authorities, in PEM. With them, every client has to present a certificate
    /// that one of them has signed.
    pub client_ca: Option<PathBuf>,
    /// The cipher suites, by their names in the registry of IANA; all that are known if it is
    /// empty. The order is the client's.
    pub cipher_suites: Vec<String>,
    /// What a protocol announces of it to clients that know such an announcement; of no meaning
    /// here.
    pub hsts: Option<String>,
    /// Whether the kernel encrypts what is sent.
    pub offload: OffloadMode,
}

/// Whether kernel TLS is used for sending.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum OffloadMode {
    /// It is not, and nothing is tested.
    #[default]
    Off,
    /// Where the kernel passes a test at the start.
    Auto,
    /// The same; the start fails where it does not pass.
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
    /// `TLSv1.2` or `TLSv1.3`, as logs of other servers have it.
    pub fn name(self) -> &'static str {
        match self {
            TlsVersion::Tls12 => "TLSv1.2",
            TlsVersion::Tls13 => "TLSv1.3",
        }
    }
}

impl CertificateFiles {
    /// The files of a certificate that is made and kept in this folder.
    pub(crate) fn in_folder(folder: &Path) -> CertificateFiles {
        CertificateFiles {
            cert: folder.join("self-signed.crt"),
            key: folder.join("self-signed.key"),
        }
    }
}

/// Where root keeps state (FHS 3.0, section 5.8), and who it has become.
const ROOT_STATE: &str = "/var/lib/underpass";

/// Where this user keeps state: the folder of the service manager (systemd.exec(5)), root's, or one
/// of its own (XDG Base Directory Specification).
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
    /// Options with one certificate.
    pub fn of(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsOptions {
        TlsOptions {
            certificates: vec![CertificateFiles {
                cert: cert.into(),
                key: key.into(),
            }],
            ..TlsOptions::default()
        }
    }

    /// Takes relative paths as relative to `folder`.
    pub fn relative_to(&mut self, folder: &Path) {
        let files = self.certificates.iter_mut();
        let files = files.flat_map(|files| [&mut files.cert, &mut files.key]);
        for path in files.chain(&mut self.client_ca) {
            *path = folder.join(&*path);
        }
    }

    /// Whether there are certificates, or one is to be made.
    pub fn has_certificate(&self) -> bool {
        self.self_signed || !self.certificates.is_empty()
    }

    /// The files of all certificates, of the one that is made too.
    pub fn files(&self) -> Vec<CertificateFiles> {
        let made = self.self_signed.then(state_folder).flatten();
        let made = made.map(|folder| CertificateFiles::in_folder(&folder));
        self.certificates.iter().cloned().chain(made).collect()
    }
}
