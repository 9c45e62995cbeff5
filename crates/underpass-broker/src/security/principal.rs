//! The user on a connection, in Kafka's form: a type and a name.

use std::fmt;
use std::sync::Arc;

/// The only type of principals, with the colon that separates it from the name.
const USER: &str = "User:";

/// The longest name of a user, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 1024;

/// The user of a connection, for example `User:anna`.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct Principal(Arc<str>);

impl Principal {
    /// Returns the principal of a user.
    pub(crate) fn user(name: &str) -> Principal {
        Principal([USER, name].concat().into())
    }

    /// Returns the principal of connections without a login.
    pub(crate) fn anonymous() -> Principal {
        Principal::user("ANONYMOUS")
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name may have any characters.
        write!(f, "{:?}", self.0)
    }
}
