//! Checks certificate chains for faults that clients would reject.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::{AnyRef, Decode, Encode, Reader, SliceReader};
use x509_cert::ext::pkix::{AuthorityInfoAccessSyntax, BasicConstraints};

use crate::tls::info::ChainFault;

/// Returns the faults of a chain, the server's own certificate first.
pub(crate) fn faults(chain: &[CertificateDer<'_>], provider: &CryptoProvider) -> Vec<ChainFault> {
    let parsed: Vec<_> = chain
        .iter()
        .filter_map(|der| Certificate::from_der(der).ok())
        .collect();
    let Some(first) = parsed.first().filter(|_| parsed.len() == chain.len()) else {
        return vec![ChainFault::Unreadable];
    };
    let mut faults = Vec::new();
    if is_authority(first) {
        faults.push(ChainFault::Authority);
    }
    let pairs = parsed.windows(2).zip(chain);
    let broken = pairs
        .enumerate()
        .find(|(_, (pair, der))| !is_issued_by(&pair[0], der, &pair[1], provider));
    if let Some((number, _)) = broken {
        faults.push(ChainFault::Order { number: number + 1 });
    }
    if parsed.len() == 1 && !is_self_issued(first) && tells_where_issuer_is(first) {
        faults.push(ChainFault::NoIntermediate);
    }
    faults
}

fn is_authority(certificate: &Certificate) -> bool {
    let constraints = certificate
        .tbs_certificate()
        .get_extension::<BasicConstraints>();
    constraints.is_ok_and(|found| found.is_some_and(|(_, constraints)| constraints.ca))
}

fn is_self_issued(certificate: &Certificate) -> bool {
    let certificate = certificate.tbs_certificate();
    certificate.issuer() == certificate.subject()
}

/// Returns whether a certificate has the location of its issuer's, as those of public authorities
/// do (RFC 5280, section 4.2.2.1): these are never signed by a root that clients know.
fn tells_where_issuer_is(certificate: &Certificate) -> bool {
    let access = certificate
        .tbs_certificate()
        .get_extension::<AuthorityInfoAccessSyntax>();
    access.is_ok_and(|found| found.is_some())
}

/// Returns whether a certificate was signed with the key of another one. A signature of an unknown
/// kind counts as valid.
fn is_issued_by(
    certificate: &Certificate,
    der: &CertificateDer<'_>,
    issuer: &Certificate,
    provider: &CryptoProvider,
) -> bool {
    let issuer = issuer.tbs_certificate();
    if certificate.tbs_certificate().issuer() != issuer.subject() {
        return false;
    }
    let key = issuer.subject_public_key_info();
    let signature_kind = certificate.signature_algorithm().to_der();
    let key_kind = key.algorithm.to_der();
    let (signature_kind, key_kind) = (content(&signature_kind), content(&key_kind));
    let known = provider.signature_verification_algorithms.all.iter();
    let mut known = known.filter(|one| {
        Some(one.signature_alg_id().as_ref()) == signature_kind
            && Some(one.public_key_alg_id().as_ref()) == key_kind
    });
    let key = key.subject_public_key.raw_bytes();
    let signature = certificate.signature().raw_bytes();
    match (known.next(), signed_part(der)) {
        (Some(algorithm), Some(signed)) => {
            algorithm.verify_signature(key, signed, signature).is_ok()
        }
        _ => true,
    }
}

/// Returns the content of a sequence.
fn content<E>(der: &Result<Vec<u8>, E>) -> Option<&[u8]> {
    Some(AnyRef::from_der(der.as_ref().ok()?).ok()?.value())
}

/// Returns the signed part of a certificate: its first element (RFC 5280, section 4.1).
fn signed_part<'d>(der: &'d CertificateDer<'_>) -> Option<&'d [u8]> {
    let certificate = AnyRef::from_der(der).ok()?;
    SliceReader::new(certificate.value()).ok()?.tlv_bytes().ok()
}
