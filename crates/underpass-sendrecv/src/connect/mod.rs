//! The connecting side: it sends items to a waiting receiver, or fetches those that are offered.
//!
//! ```text
//!  ticket ─► dial: all addresses, the first with the right key ─► requests, until all is done
//!              ▲                                                      │
//!              └─────────────── the connection was lost ◄────────────┘
//! ```

mod code;
mod link;
mod options;
mod peer;
mod pull;
mod push;

pub use code::redeem;
pub use options::ConnectOptions;
pub use pull::{pull, pull_to_stdout};
pub use push::push;
