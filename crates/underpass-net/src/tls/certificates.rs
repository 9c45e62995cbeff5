//! The certificates of a listener, chosen by the requested name, and replaced as a whole.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::tls::info::CertificateFacts;
use crate::tls::reading::{LoadedCertificate, SignatureCost};

/// All certificates, as a resolver for rustls.
#[derive(Debug)]
pub(crate) struct Certificates {
    all: RwLock<Arc<Vec<LoadedCertificate>>>,
}

impl Certificates {
    pub(crate) fn new(all: Vec<LoadedCertificate>) -> Certificates {
        Certificates {
            all: RwLock::new(Arc::new(all)),
        }
    }

    /// Replaces all; handshakes in progress keep the certificates that they started with.
    pub(crate) fn replace(&self, all: Vec<LoadedCertificate>) {
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
    }

    /// Returns the contents of all certificates.
    pub(crate) fn facts(&self) -> Vec<CertificateFacts> {
        let all = self.all();
        all.iter().map(|one| one.facts.clone()).collect()
    }

    /// Returns the cost of a signature with the most expensive of the keys.
    pub(crate) fn signature_cost(&self) -> SignatureCost {
        let all = self.all();
        match all.iter().any(|one| one.cost == SignatureCost::High) {
            true => SignatureCost::High,
            false => SignatureCost::Low,
        }
    }

    fn all(&self) -> Arc<Vec<LoadedCertificate>> {
        Arc::clone(&self.all.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let all = self.all();
        let schemes = hello.signature_schemes();
        let usable = |one: &&LoadedCertificate| one.key.key.choose_scheme(schemes).is_some();
        let named = hello.server_name().and_then(|name| {
            let mut named = all.iter().filter(|one| one.facts.is_for(name));
            named.find(usable)
        });
        let chosen = named.or_else(|| all.iter().find(usable))?;
        Some(Arc::clone(&chosen.key))
    }
}
