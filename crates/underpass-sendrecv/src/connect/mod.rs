//! The connecting side: it sends items to a waiting receiver, or fetches those that are offered.
//!
//! ```text
//!  ticket ─► dial: all addresses, the first with the right key ─► requests, until all is done
//!              ▲                                                      │
//!              └─────────────── the connection was lost ◄────────────┘
//! ```

mod link;
mod options;
mod peer;
mod pull;
mod push;

pub use options::ConnectOptions;
pub use pull::pull;
pub use push::push;
