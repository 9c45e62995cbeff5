//! The access rules as applied to one request.

use std::sync::Arc;

use underpass_http::request::request_line::Method;

use crate::access::grantee::Asker;
use crate::access::rules::{AccessRefusal, AccessRules, AccessVerdict};

/// The rules of a site, and the requester.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    pub(crate) rules: Arc<AccessRules>,
    pub(crate) asker: Arc<Asker>,
    pub(crate) method: Method,
}

impl Permits {
    /// Checks whether `path`, relative to the root, may be read, whether or not it exists.
    ///
    /// # Errors
    /// The reason for the denial.
    pub(crate) fn check(&self, path: &[u8]) -> Result<(), AccessRefusal> {
        match self.rules.decide(path, self.method, &self.asker).0 {
            AccessVerdict::Granted => Ok(()),
            AccessVerdict::Refused(refusal) => Err(refusal),
        }
    }

    /// Returns the permits of the same requester for another method.
    pub(crate) fn asking(&self, method: Method) -> Permits {
        Permits {
            method,
            ..self.clone()
        }
    }

    /// Whether [`Permits::check`] succeeds.
    pub(crate) fn allow(&self, path: &[u8]) -> bool {
        self.check(path).is_ok()
    }
}
