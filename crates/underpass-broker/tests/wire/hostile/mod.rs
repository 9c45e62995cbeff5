//! Hostile and faulty clients: whatever they send, the broker serves others, does not panic, takes
//! a bounded amount of memory, and returns the same error as Kafka, or closes the connection.

mod crowds;
mod fetches;
mod frames;
mod groups;
mod lost_files;
mod memory;
mod nulls;
mod produces;
mod requests;
mod timestamps;
mod topics;
mod unsupported;

use crate::support::broker::BrokerProcess;
use crate::support::client::Client;

/// Starts a broker with a topic.
fn started() -> (BrokerProcess, Client) {
    let broker = BrokerProcess::start();
    let mut client = broker.connect();
    client.create_topic("t");
    (broker, client)
}
