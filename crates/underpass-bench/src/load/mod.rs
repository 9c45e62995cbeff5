//! The load on a server: requests of HTTP, or of Kafka's protocol, whose responses are counted to
//! their last byte and discarded.
//!
//! Nothing here knows more of servers than their address, and how they encrypt.

mod client;
mod connection_load;
mod exchange;
pub(crate) mod kafka;
mod request;
mod response;
mod test_file;
#[cfg(test)]
mod tls_tests;
mod transport;
mod verify;

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::gettid;

use crate::error::{Error, ErrorContext, Result};

pub(crate) use client::{LoadClient, LoadPace, LoadStream, OpenEnd, Quota, StreamResult};
pub(crate) use connection_load::{ClientBehavior, ConnectionLoad};
pub(crate) use request::{ConnectionReuse, RequestTarget};
pub(crate) use test_file::{FileSet, TestFile, targets_of};
pub(crate) use transport::ServerAddress;
pub(crate) use verify::{verify, verify_resumption};

/// Descriptors of this program other than connections.
const DESCRIPTORS_ASIDE: u64 = 64;

/// Fails once the user wants to stop; the error is not shown.
fn go_on_unless(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Error::Answer("stopped".into())),
        false => Ok(()),
    }
}

/// Gives other threads of this process priority over this one: its receiving must not take time
/// that would count as the server's.
pub(crate) fn give_way() {
    const LOWEST: i32 = 19;
    // setpriority(2): on Linux each thread has its own, and a lower one is always allowed.
    let _ = setpriority_process(Some(gettid()), LOWEST);
}

/// Raises the soft limit on descriptors where this many connections need it. Servers that are
/// started afterwards inherit it.
pub(crate) fn allow_connections(count: usize) -> Result<()> {
    let needed = count as u64 + DESCRIPTORS_ASIDE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Error::Setting(format!(
            "{count} connections need {needed} descriptors, and this process is limited to {}; \
             see `ulimit -Hn`",
            limit.maximum.unwrap_or_default()
        )));
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).context(|| "raising the limit on descriptors".into())
}
