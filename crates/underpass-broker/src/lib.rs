//! A Kafka-compatible broker.

#![forbid(unsafe_code)]

mod broker;
pub mod check;
mod connection;
mod counts;
mod fetch;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[path = "../tests/promises/mod.rs"]
pub mod fuzz;
pub mod group;
mod limits;
mod lock;
mod metadata;
mod offsets;
mod options;
pub mod protocol;
mod requests;
mod security;
mod server;

pub use options::{
    AdvertisedAddress, AuthorizerOptions, BrokerListener, BrokerOptions, CleanerSettings,
    FsyncPolicy, GroupOptions, PORT, ReplicationPolicy, SaslMechanismName, SaslOptions,
    TopicDefaults,
};
pub use security::users::user_lines;
pub use server::{BrokerError, BrokerSummary, RunningBroker, start};
