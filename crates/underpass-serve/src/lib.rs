//! The HTTP file server of Underpass: GET and HEAD over HTTP/1.1, bodies moved by the kernel.
//!
//! ```text
//!  bytes ─► head ─► Request ─┐                        pure: tables and properties test it
//!                            ├─► answer ─► Answer ─► reply ─► outbox
//!  path ─► resolve ─► File ──┘   (conditions, ranges)         (heads and file ranges)
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `head`, `request_line`, `fields`, `framing`, `host`, `target`, `path` | what a request says |
//! | `chunked`, `body` | where it ends |
//! | `options`, `settings`, `mistakes` | what is asked of a server, and what is wrong with it |
//! | `forwarded` | whom a request is from, behind proxies |
//! | `site`, `resolve` | who answers for a name, and what a path leads to beneath its root |
//! | `file`, `open_files`, `watch` | what is known of a file, and for how long |
//! | [`rules`], `mime` | what the configuration of a site says of a path |
//! | `coding`, `precompressed`, `compressed` | what a client takes, what lies there, what is made |
//! | `query`, `accept` | what else is asked for, in which form |
//! | `validator`, `condition`, `range`, `multipart`, `disposition` | what of it is to be sent |
//! | `folder`, `listing`, `archive`, `calendar` | a folder as a page, as JSON, as a tar file |
//! | `digest`, `repr_digest`, `structured`, `base64` | hashes of files, and who wants them |
//! | `feed`, `workshop` | bodies that are made while they are sent |
//! | `answer`, `status`, `reply`, `clock`, `decimal` | what an answer is and how it is written |
//! | `connection`, `worker` | the order of it all |
//! | `visit`, `tally`, `board` | what is known of an exchange, and counted |
//! | `log`, `monitor`, `explain` | what is told of it: lines, metrics, its way |
//! | `fuzz` | what holds for any bytes, for tests and fuzzers |
//!
//! Sockets, workers and deadlines are `underpass-net`'s, moving bytes is `underpass`'s.

#![forbid(unsafe_code)]

use std::rc::Rc;
use std::sync::Arc;

use underpass_net::{Confine, Connection, Protocol, Proxies, Rejected, User, confine};

mod accept;
mod answer;
mod archive;
mod base64;
mod board;
mod body;
mod calendar;
mod chunked;
mod clock;
mod coding;
mod compressed;
mod condition;
mod connection;
mod decimal;
mod digest;
mod disposition;
mod error;
mod explain;
mod feed;
mod fields;
mod file;
mod folder;
mod forwarded;
mod framing;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod head;
mod host;
mod limits;
mod listing;
mod log;
mod mime;
mod mistakes;
mod monitor;
mod multipart;
mod open_files;
mod options;
mod path;
mod precompressed;
mod query;
mod range;
mod reply;
mod repr_digest;
mod request_line;
mod resolve;
pub mod rules;
mod server;
mod settings;
mod site;
mod status;
mod structured;
mod tally;
mod target;
mod validator;
mod visit;
mod watch;
mod worker;
mod workshop;

use board::{Board, Presence};
use digest::Digests;
use reply::Joining;
use site::Sites;

pub use coding::Coding;
pub use error::Error;
pub use forwarded::client;
pub use limits::Limits;
pub use log::{Access, LogFormat, LogOptions, Reopen};
pub use mime::TypeOptions;
pub use monitor::{StatusAddress, StatusOptions};
pub use options::{Explain, Options, SiteOptions};

pub use server::{FileServer, serve, serve_on};
pub use settings::{Channel, Setting};
pub use worker::{Summary, Worker};

/// What of `options` cannot be served, or would not be as somebody who wrote them must think. Opens
/// what [`serve`] would open, but takes no port and starts nothing.
///
/// # Errors
/// None: mistakes are the result, an empty list if there are none.
pub fn check(options: &Options) -> Vec<Error> {
    site::check(&options.sites)
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
    type Summary = Summary;

    fn bound(&self) -> Result<(), underpass_net::Error> {
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
        stream: Connection,
    ) -> impl Future<Output = ()> + 'static {
        connection::serve_connection(worker, stream)
    }

    fn rejected(worker: &Worker, why: Rejected) {
        worker.tally().turned_away[why.number()].add(1);
    }

    fn full(worker: &Worker) {
        worker.tally().full.add(1);
    }

    fn finish(worker: &Worker) -> Summary {
        worker.finish()
    }
}
