//! Reads certificates and keys.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as RustlsError, RootCertStore};
use x509_cert::certificate::{Certificate, TbsCertificate, Version};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use zeroize::Zeroizing;

use crate::tls::chain;
use crate::tls::error::TlsError;
use crate::tls::info::CertificateFacts;
use crate::tls::settings::CertificateFiles;

/// A certificate that can be presented, with its contents.
#[derive(Clone, Debug)]
pub(crate) struct LoadedCertificate {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) facts: CertificateFacts,
    pub(crate) cost: SignatureCost,
}

/// The time that a signature takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SignatureCost {
    /// As long as a turn of a response.
    Low,
    /// Longer: RSA with more than 2,048 bits.
    High,
}

impl SignatureCost {
    /// Estimates from the key length, mostly that of the modulus (RFC 8017, appendix A.1.1).
    fn of(certificate: &CertificateDer<'_>) -> SignatureCost {
        let certificate = Certificate::from_der(certificate);
        let bytes = certificate.map_or(0, |certificate| {
            let key = certificate.tbs_certificate().subject_public_key_info();
            match key.algorithm.oid == RSA {
                true => key.subject_public_key.raw_bytes().len(),
                false => 0,
            }
        });
        match bytes > RSA_2048_KEY_BYTES {
            true => SignatureCost::High,
            false => SignatureCost::Low,
        }
    }
}

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// An RSA key of 2,048 bits with its exponent and the encoding of both.
const RSA_2048_KEY_BYTES: usize = 256 + 24;

/// Reads a certificate with its chain and its key, and checks that they belong together.
pub(crate) fn load(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<LoadedCertificate, TlsError> {
    let chain = certificates_of(&files.cert)?;
    let facts = CertificateFacts {
        faults: chain::faults(&chain, provider),
        ..facts(files, &chain)?
    };
    let cost = SignatureCost::of(&chain[0]);
    let key = CertifiedKey::from_der(chain.clone(), key(&files.key)?, provider);
    let key = key.map_err(|error| match error {
        RustlsError::InvalidCertificate(why) => {
            content(&files.cert, certificate_fault(&chain[0], &why.to_string()))
        }
        RustlsError::InconsistentKeys(_) => TlsError::Mismatch {
            cert: files.cert.clone(),
            key: files.key.clone(),
        },
        RustlsError::General(_) => content(&files.key, UNKNOWN_KEY.to_owned()),
        error => content(&files.key, format!("the key cannot be used: {error}")),
    })?;
    Ok(LoadedCertificate {
        key: Arc::new(key),
        facts,
        cost,
    })
}

/// The provider does not report the keys it supports.
const UNKNOWN_KEY: &str = "a key of this kind or length cannot be used; expected RSA of 2,048 to \
                           8,192 bits, ECDSA with P-256, P-384 or P-521, or Ed25519, as `openssl \
                           ecparam -genkey -noout -name prime256v1` makes it";

/// Returns why a certificate cannot be presented, and what to do.
fn certificate_fault(certificate: &CertificateDer<'_>, why: &str) -> String {
    let parsed = Certificate::from_der(certificate);
    match parsed.map(|certificate| certificate.tbs_certificate().version()) {
        Ok(Version::V3) => format!("the certificate cannot be used: {why}"),
        Ok(_) => "the certificate has X.509 version 1, without the names that clients compare; \
                  issue it with extensions, as `openssl x509 -req -in CSR -CA CA -CAkey KEY \
                  -extfile FILE` with `subjectAltName=DNS:NAME` in FILE"
            .to_owned(),
        Err(error) => format!("the certificate cannot be read: {error}"),
    }
}

/// Reads the certificates of authorities from a file.
pub(crate) fn authorities(
    path: &Path,
    certificates: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let added = roots.add(certificate);
        added.map_err(|error| content(path, format!("is no authority's certificate: {error}")))?;
    }
    Ok(roots)
}

/// Describes a PEM error. The errors themselves quote the file, which may be a key.
fn pem_fault(error: &PemError) -> String {
    let what = match error {
        PemError::MissingSectionEnd { .. } => "a section has no end (-----END)",
        PemError::IllegalSectionStart { .. } => "a section has no proper beginning (-----BEGIN)",
        PemError::Base64Decode(_) => "a section is not in base64",
        _ => "is no valid PEM",
    };
    what.to_owned()
}

/// Reads certificates, at least one.
pub(crate) fn certificates_of(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| content(path, pem_fault(&error)))?;
    match certificates.is_empty() {
        true => Err(content(
            path,
            "holds no certificate in PEM (-----BEGIN CERTIFICATE-----)".to_owned(),
        )),
        false => Ok(certificates),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = Zeroizing::new(read(path)?);
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        let is_encrypted = String::from_utf8_lossy(&pem).contains("ENCRYPTED");
        content(
            path,
            match error {
                _ if is_encrypted => "the key is encrypted with a password; store it without one \
                                      and let nobody else read the file"
                    .to_owned(),
                PemError::NoItemsFound => {
                    "holds no private key in PEM (-----BEGIN PRIVATE KEY-----)".to_owned()
                }
                error => pem_fault(&error),
            },
        )
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

fn content(path: &Path, why: String) -> TlsError {
    TlsError::Content {
        path: path.to_owned(),
        why,
    }
}

fn facts(
    files: &CertificateFiles,
    chain: &[CertificateDer<'_>],
) -> Result<CertificateFacts, TlsError> {
    let first = Certificate::from_der(&chain[0])
        .map_err(|error| content(&files.cert, format!("is no valid certificate: {error}")))?;
    let first = first.tbs_certificate();
    let alternatives = first.get_extension::<SubjectAltName>().ok().flatten();
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    for name in alternatives.iter().flat_map(|(_, names)| &names.0) {
        match name {
            GeneralName::DnsName(name) => names.push(name.as_str().to_ascii_lowercase()),
            GeneralName::IpAddress(bytes) => addresses.extend(address(bytes.as_bytes())),
            _ => {}
        }
    }
    let public_key = first.subject_public_key_info().to_der();
    let validity = first.validity();
    let time = |seconds: Duration| SystemTime::UNIX_EPOCH + seconds;
    Ok(CertificateFacts {
        files: files.clone(),
        names,
        addresses,
        not_before: time(validity.not_before.to_unix_duration()),
        not_after: time(validity.not_after.to_unix_duration()),
        chain_length: chain.len(),
        is_self_signed: first.issuer() == first.subject(),
        sha256: sha256(&chain[0]),
        key_sha256: sha256(&public_key.unwrap_or_default()),
        faults: Vec::new(),
    })
}

/// Returns the SHA-256 hash of the public key in a certificate, if it can be read.
pub(crate) fn key_sha256(certificate: &CertificateDer<'_>) -> Option<[u8; 32]> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let key = certificate.tbs_certificate().subject_public_key_info();
    key.to_der().ok().map(|key| sha256(&key))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

/// Returns the identity in a certificate: its subject (RFC 4514), or else its first alternative
/// name, or else its SHA-256. Each has a different prefix, so that none can pass for another.
pub(crate) fn identity(certificate: &CertificateDer<'_>) -> Box<str> {
    let named = Certificate::from_der(certificate).ok().and_then(|parsed| {
        let parsed = parsed.tbs_certificate();
        match parsed.subject().is_empty() {
            false => Some(parsed.subject().to_string()),
            true => alternative_name(parsed),
        }
    });
    let fingerprint = || {
        let bytes = sha256(certificate).map(|byte| format!("{byte:02x}"));
        format!("sha256:{}", bytes.concat())
    };
    named.unwrap_or_else(fingerprint).into()
}

fn alternative_name(certificate: &TbsCertificate) -> Option<String> {
    let (_, names) = certificate.get_extension::<SubjectAltName>().ok()??;
    names.0.iter().find_map(|name| match name {
        GeneralName::DnsName(name) => Some(format!("DNS:{}", name.as_str())),
        GeneralName::Rfc822Name(name) => Some(format!("email:{}", name.as_str())),
        GeneralName::UniformResourceIdentifier(name) => Some(format!("URI:{}", name.as_str())),
        GeneralName::IpAddress(bytes) => Some(format!("IP:{}", address(bytes.as_bytes())?)),
        _ => None,
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, DistinguishedName, DnType, KeyPair, SanType, string::Ia5String,
    };

    use super::*;

    fn named(subject: Option<&str>, names: Vec<SanType>) -> Box<str> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(subject) = subject {
            params.distinguished_name.push(DnType::CommonName, subject);
        }
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        identity(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn no_name_of_a_certificate_passes_for_another_kind_of_name() {
        let text = |name: &str| Ia5String::try_from(name).unwrap();
        assert_eq!(&*named(Some("alice"), Vec::new()), "CN=alice");
        for (name, shown) in [
            (SanType::URI(text("CN=alice")), "URI:CN=alice"),
            (SanType::DnsName(text("CN=alice")), "DNS:CN=alice"),
            (SanType::Rfc822Name(text("a@b.c")), "email:a@b.c"),
            (SanType::IpAddress([192, 0, 2, 1].into()), "IP:192.0.2.1"),
        ] {
            assert_eq!(&*named(None, vec![name.clone()]), shown);
            assert_eq!(&*named(Some("alice"), vec![name]), "CN=alice");
        }
        let nameless = named(None, Vec::new());
        assert!(nameless.starts_with("sha256:"), "{nameless}");
        assert_eq!(nameless.len(), "sha256:".len() + 64);
    }
}
