//! Very many connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::broker::BrokerProcess;

const CONNECTIONS: usize = 10_000;

/// The memory limit for an idle connection in the broker, in bytes.
const CONNECTION_BYTES_MAX: usize = 16 << 10;

#[test]
#[ignore = "needs many descriptors; run by cargo xtask test"]
fn ten_thousand_idle_connections_leave_room_for_one_more() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let broker = BrokerProcess::start();
    let mut idle: Vec<_> = (0..CONNECTIONS).map(|_| broker.connect()).collect();
    broker.connect().behave();
    // The idle connections are served, too.
    let mut served = 0;
    for client in idle.iter_mut().rev().take(100) {
        client.behave();
        served += 1;
    }
    assert_eq!(served, 100);
    let bytes = broker.peak_bytes();
    assert!(bytes < crate::MEMORY_MAX + CONNECTIONS * CONNECTION_BYTES_MAX);
    drop(idle);
    broker.end_well(crate::MEMORY_MAX + CONNECTIONS * CONNECTION_BYTES_MAX);
}
