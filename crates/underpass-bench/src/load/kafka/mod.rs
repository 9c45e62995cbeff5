//! The load on brokers: requests of Kafka's protocol, by hand and no more than is measured.
//!
//! ```text
//!   batch ─► message ─► connection   one request, one response
//!                    └► load         many connections that produce and fetch, timed
//! ```
//!
//! Batches are made once and records of a response are discarded by the kernel, so that the client
//! costs little.

mod batch;
mod connection;
mod load;
mod message;

pub(crate) use batch::PreparedTopic;
pub(crate) use connection::BrokerConnection;
pub(crate) use load::{BrokerLoad, BrokerRole, BrokerStream, StreamEnd};
pub(crate) use message::create_topic;
