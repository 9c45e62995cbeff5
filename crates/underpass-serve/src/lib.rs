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
//! | `options` | what is asked of a server |
//! | `forwarded` | whom a request is from, behind proxies |
//! | `site`, `resolve` | who answers for a name, and what a path leads to beneath its root |
//! | `file`, `open_files` | what is known of a file, and for how long |
//! | `validator`, `condition`, `range`, `multipart`, `mime` | what of it is to be sent |
//! | `answer`, `status`, `reply`, `clock`, `decimal` | what an answer is and how it is written |
//! | `connection`, `worker` | the order of it all |
//!
//! Sockets, workers and deadlines are `underpass-net`'s, moving bytes is `underpass`'s.

#![forbid(unsafe_code)]

use std::rc::Rc;
use std::sync::Arc;

use underpass_net::{Confine, Protocol, Running, Stream, User, confine};

mod answer;
mod body;
mod chunked;
mod clock;
mod condition;
mod connection;
mod decimal;
mod error;
mod fields;
mod file;
mod forwarded;
mod framing;
mod head;
mod host;
mod limits;
mod mime;
mod multipart;
mod open_files;
mod options;
mod path;
mod range;
mod reply;
mod request_line;
mod resolve;
mod site;
mod status;
mod target;
mod validator;
mod worker;

use site::{Site, Sites};

pub use error::Error;
pub use forwarded::client;
pub use limits::Limits;
pub use options::{Options, SiteOptions};

pub use worker::{Summary, Worker};

/// Serves the sites of `options` until its [`Running::shutdown`] is told to stop. Returns when
/// connections are taken.
///
/// # Errors
/// Any [`Error`]; nothing is left running.
///
/// # Examples
/// ```no_run
/// use underpass_serve::{Options, serve};
///
/// let running = serve(&Options::of("public"))?;
/// println!("http://{}/", running.address());
/// let summaries = running.join();
/// # Ok::<(), underpass_serve::Error>(())
/// ```
pub fn serve(options: &Options) -> Result<Running<Summary>, Error> {
    let limits = &options.requests;
    limits.check(options.connections.input_bytes_max)?;
    let http = Http {
        sites: Arc::new(Sites::open(&options.sites)?),
        limits: options.requests.clone(),
        user: options.user.clone(),
        confine: options.confine,
    };
    let workers = options
        .workers
        .map_or_else(underpass_net::cores, Into::into);
    let (listen, policy) = (options.listen, options.policy);
    let running = underpass_net::start(&http, listen, workers, policy, &options.connections)?;
    Ok(running)
}

/// HTTP as a protocol of the network ground.
#[derive(Clone, Debug)]
struct Http {
    sites: Arc<Sites>,
    limits: Limits,
    user: Option<User>,
    confine: Confine,
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
        let roots: Vec<_> = self.sites.all().iter().map(Site::root).collect();
        confine(&roots, self.confine).map(drop)
    }

    fn worker(&self) -> Worker {
        Worker::new(Arc::clone(&self.sites), self.limits.clone())
    }

    async fn converse(worker: Rc<Worker>, stream: Stream) {
        connection::converse(worker, stream).await;
    }

    fn finish(worker: &Worker) -> Summary {
        worker.summary()
    }
}
