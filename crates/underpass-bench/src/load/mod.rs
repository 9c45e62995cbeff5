//! The load on a server: HTTP requests over kept-alive connections, answers counted to their last
//! byte and thrown away.
//!
//! | module | what it knows |
//! |---|---|
//! | `specimen` | the files to ask for, and their hashes |
//! | `response`, `exchange` | one answer, one connection |
//! | `verify` | whether all bodies are right, before anything is measured |
//! | `client` | many connections at a pace |
//! | `crowd` | many connections that hardly read, or are idle |
//!
//! Nothing here knows of servers but their address, nor of what they cost.

mod client;
mod connection_load;
mod exchange;
mod request;
mod response;
mod test_file;
mod verify;

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, ErrorContext, Result};

pub use client::WaitMode;
pub(crate) use client::{LoadClient, LoadPace, LoadStream, Quota};
pub use connection_load::ClientBehavior;
pub(crate) use connection_load::ConnectionLoad;
pub use request::ConnectionReuse;
pub(crate) use request::RequestTarget;
pub(crate) use test_file::{FileSet, TestFile, flush_to_disk};
pub(crate) use verify::verify;

/// Descriptors of this program that are no connections.
const DESCRIPTORS_ASIDE: u64 = 64;

/// An error once somebody wants it to end; nobody is told of it.
fn go_on_unless(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Error::Answer("broken off".into())),
        false => Ok(()),
    }
}

/// Raises the soft limit on descriptors where so many connections need it. Servers that are started
/// from then on have it too.
pub(crate) fn allow_connections(count: usize) -> Result<()> {
    let needed = count as u64 + DESCRIPTORS_ASIDE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Error::Setting(format!(
            "{count} connections need {needed} descriptors, and this process may have {} at the \
             most; see `ulimit -Hn`",
            limit.maximum.unwrap_or_default()
        )));
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).context(|| "raising the limit on descriptors".into())
}
