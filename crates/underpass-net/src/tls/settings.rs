//! What a listener with TLS is asked to do.

use std::path::{Path, PathBuf};

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
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// Certificates of authorities, in PEM. With them, every client has to present a certificate
    /// that one of them has signed.
    pub client_ca: Option<PathBuf>,
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

    /// The files of private keys.
    pub fn keys(&self) -> impl Iterator<Item = &Path> {
        self.certificates.iter().map(|files| files.key.as_path())
    }
}
