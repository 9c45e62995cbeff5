//! Who a client is, and what it may do.
//!
//! ```text
//!  listener ─► login (SASL: plain, scram) ─► principal ─► access ─► requests
//!                 │ users, verifier            ▲             │ acl: one pure function
//!             TLS certificate ─────────────────┘
//! ```

pub(crate) mod access;
pub(crate) mod acl;
pub(crate) mod login;
pub(crate) mod plain;
pub(crate) mod principal;
pub(crate) mod random;
pub(crate) mod scram;
pub(crate) mod users;
pub(crate) mod verifier;
