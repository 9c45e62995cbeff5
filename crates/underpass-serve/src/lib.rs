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
//! | `resolve`, `site` | what a path leads to, beneath the root |
//! | `file`, `open_files` | what is known of a file, and for how long |
//! | `validator`, `condition`, `range`, `multipart`, `mime` | what of it is to be sent |
//! | `answer`, `status`, `reply`, `clock`, `decimal` | what an answer is and how it is written |
//! | `connection`, `worker` | the order of it all |
//!
//! Sockets, workers and deadlines are `underpass-net`'s, moving bytes is `underpass`'s.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use underpass::Policy;
use underpass_net::{Protocol, Running, Stream};

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
mod framing;
mod head;
mod host;
mod limits;
mod mime;
mod multipart;
mod open_files;
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

pub use error::Error;
pub use limits::Limits;
pub use site::Site;
pub use worker::{Summary, Worker};

/// How a site is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen. With port 0 the kernel chooses a port.
    pub listen: SocketAddr,
    /// Threads that answer, at least one.
    pub workers: usize,
    /// How bodies may leave. Where it leaves no way, an answer ends after its head, with a reset.
    pub policy: Policy,
    /// The times a request has.
    pub limits: Limits,
    /// The bounds of connections.
    pub net: underpass_net::Limits,
}

impl Default for Options {
    /// The local machine only, port 8080, a worker for each core.
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            workers: underpass_net::cores(),
            policy: Policy::default(),
            limits: Limits::default(),
            net: underpass_net::Limits::default(),
        }
    }
}

/// Serves `site` until its [`Running::shutdown`] is told to stop. Returns when connections are
/// taken.
///
/// # Errors
/// [`Error::Net`]; nothing is left running.
///
/// # Examples
/// ```no_run
/// use underpass_serve::{Options, Site, serve};
///
/// let running = serve(Site::open("public")?, &Options::default())?;
/// println!("http://{}/", running.address());
/// let summaries = running.join();
/// # Ok::<(), underpass_serve::Error>(())
/// ```
pub fn serve(site: Site, options: &Options) -> Result<Running<Summary>, Error> {
    let http = Http {
        site: Arc::new(site),
        limits: options.limits.clone(),
    };
    let (listen, workers, policy) = (options.listen, options.workers, options.policy);
    let running = underpass_net::start(&http, listen, workers, policy, &options.net)?;
    Ok(running)
}

/// HTTP as a protocol of the network ground.
#[derive(Clone, Debug)]
struct Http {
    site: Arc<Site>,
    limits: Limits,
}

impl Protocol for Http {
    type Worker = Worker;
    type Summary = Summary;

    fn worker(&self) -> Worker {
        Worker::new(Arc::clone(&self.site), self.limits.clone())
    }

    async fn converse(worker: Rc<Worker>, stream: Stream) {
        connection::converse(worker, stream).await;
    }

    fn finish(worker: &Worker) -> Summary {
        worker.summary()
    }
}
