//! What the user chooses of TLS.

use clap::{Args, ValueEnum};

const USUAL_SUITE: &str = "TLS_AES_128_GCM_SHA256";

/// What every contender encrypts with.
#[derive(Args, Clone, Debug)]
pub(crate) struct TlsLoadOptions {
    /// Measure HTTPS, with this cipher suite [default: TLS_AES_128_GCM_SHA256]; our server with one
    /// mechanism stays plain HTTP
    #[arg(long = "tls", value_name = "SUITE", num_args = 0..=1, require_equals = true,
          default_missing_value = USUAL_SUITE)]
    pub(crate) suite: Option<String>,
    /// The key of the certificate
    #[arg(
        long = "tls-key",
        value_name = "KEY",
        default_value = "p256",
        requires = "suite"
    )]
    pub(crate) key: CertificateKey,
}

impl TlsLoadOptions {
    /// What it adds to the name of an experiment.
    pub(crate) fn suffix(&self) -> String {
        let Some(suite) = &self.suite else {
            return String::new();
        };
        let suite = match &**suite {
            USUAL_SUITE => "",
            other => &format!(" ({other})"),
        };
        let key = match self.key {
            CertificateKey::P256 => "",
            CertificateKey::Rsa2048 => ", RSA",
        };
        format!(", HTTPS{suite}{key}")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CertificateKey {
    /// ECDSA
    P256,
    /// RSA with 2048 bits
    Rsa2048,
}

/// Whether a handshake may resume a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsResumption {
    /// The client has no tickets: every handshake is a full one.
    Never,
    /// It has all that the server has sent.
    Tickets,
}
