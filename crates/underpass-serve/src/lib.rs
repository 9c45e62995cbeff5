//! The HTTP file server of Underpass: GET and HEAD over HTTP/1.1, bodies moved by the kernel.
//!
//! ```text
//!  bytes ─► head ─► Request ─┐                        pure: tables and properties test it
//!                            ├─► answer ─► Answer ─► reply ─► outbox
//!  path ─► resolve ─► File ──┘   (conditions, ranges)         (heads and file ranges)
//! ```
//!
//! | folder | concern |
//! |---|---|
//! | `http` | what HTTP defines: statuses, dates, tags, codings, types |
//! | `request` | what a request says, and where it ends |
//! | `options` | what is asked of a server, and what is wrong with it |
//! | `site` | what a path leads to, what is known of a file; [`rules`]: its configuration |
//! | `body` | bodies that are made while they are sent: listings, archives, compressed files |
//! | `answer` | what an answer is and how it is written |
//! | `connection` | the order of it all |
//! | `metrics`, `log`, `monitor` | what is counted and written down |
//! | `fuzz` | what holds for any bytes, for tests and fuzzers |
//!
//! Sockets, workers and deadlines are `underpass-net`'s, moving bytes is `underpass`'s.

#![forbid(unsafe_code)]

use std::rc::Rc;
use std::sync::Arc;

use underpass_net::{Confine, Connection, Protocol, Proxies, Rejected, User, confine};

mod answer;
mod body;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod http;
mod limits;
mod log;
mod metrics;
mod monitor;
mod options;
mod request;
mod server;
mod site;

use answer::reply::Joining;
use metrics::board::{Board, Presence};
use site::digest::Digests;
use site::sites::Sites;

pub use error::Error;
pub use http::coding::Coding;
pub use http::mime::TypeOptions;
pub use limits::Limits;
pub use log::{Access, LogFormat, LogOptions, Reopen};
pub use monitor::{StatusAddress, StatusOptions};
pub use options::{Explain, Options, SiteOptions};
pub use request::forwarded::client;

pub use connection::worker::{Summary, Worker};
pub use options::settings::{Channel, Setting};
pub use server::{FileServer, serve, serve_on};
pub use site::rules;

/// What of `options` cannot be served, or would not be as somebody who wrote them must think. Opens
/// what [`serve`] would open, but takes no port and starts nothing.
///
/// # Errors
/// None: mistakes are the result, an empty list if there are none.
pub fn check(options: &Options) -> Vec<Error> {
    site::sites::check(&options.sites)
}

/// HTTP as a protocol of the network ground.
#[derive(Clone, Debug)]
struct Http {
    sites: Arc<Sites>,
    limits: Limits,
    digests: Arc<Digests>,
    joining: Joining,
    board: Arc<Board>,
    presence: Presence,
    user: Option<User>,
    confine: Confine,
    proxies: Proxies,
}

impl Protocol for Http {
    type Worker = Worker;
    type Service = ();
    type Summary = Summary;

    fn after_bind(&self) -> Result<(), underpass_net::Error> {
        match &self.user {
            Some(user) => user.assume(),
            None => Ok(()),
        }
    }

    fn confine(&self) -> Result<(), underpass_net::Error> {
        confine(&self.sites.readable(), self.confine).map(drop)
    }

    fn worker(&self) -> Worker {
        Worker::new(self)
    }

    fn serve_connection(
        worker: Rc<Worker>,
        _service: (),
        stream: Connection,
    ) -> impl Future<Output = ()> + 'static {
        connection::converse::serve_connection(worker, stream)
    }

    fn rejected(worker: &Worker, why: Rejected) {
        worker.tally().turned_away[why.number()].add(1);
    }

    fn connections_max_reached(worker: &Worker) {
        worker.tally().full.add(1);
    }

    fn finish(worker: &Worker) -> Summary {
        worker.finish()
    }
}
