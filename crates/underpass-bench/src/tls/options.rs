//! The options of TLS.

use clap::{Args, ValueEnum};
use underpass::kernel_tls::{Cipher, Version};

const USUAL_SUITE: &str = "TLS_AES_128_GCM_SHA256";

/// The encryption of every contender.
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
    /// The cipher suite, where kernel TLS could know it.
    pub(crate) fn kernel_suite(&self) -> Option<(Version, Cipher)> {
        let suite = self.suite.as_deref()?;
        let ciphers = [
            ("_AES_128_GCM_", Cipher::Aes128Gcm),
            ("_AES_256_GCM_", Cipher::Aes256Gcm),
            ("_CHACHA20_POLY1305_", Cipher::ChaCha20Poly1305),
        ];
        let mut ciphers = ciphers.into_iter();
        let (_, cipher) = ciphers.find(|(part, _)| suite.contains(part))?;
        // Suites of TLS 1.2 name the key exchange, too.
        let version = match suite.contains("_WITH_") {
            true => Version::Tls12,
            false => Version::Tls13,
        };
        Some((version, cipher))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_could_know_suites_of_both_versions() {
        let of = |suite: &str| {
            let options = TlsLoadOptions {
                suite: Some(suite.to_owned()),
                key: CertificateKey::P256,
            };
            options.kernel_suite()
        };
        let newer = Some((Version::Tls13, Cipher::Aes128Gcm));
        assert_eq!(of(USUAL_SUITE), newer);
        let older = Some((Version::Tls12, Cipher::ChaCha20Poly1305));
        assert_eq!(of("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"), older);
        assert_eq!(of("TLS_AES_128_CCM_SHA256"), None);
    }
}
