//! A server in this process.

#![allow(dead_code, reason = "every test target uses its own part")]

pub(crate) mod digest;
pub(crate) mod rows;

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use underpass_net::Server as NetServer;
use underpass_serve::{ServeSummary, ServerOptions, SiteOptions, serve};
use underpass_testkit::{HttpClient, HttpResponse};

/// The date of files whose date matters, and its form in HTTP.
pub(crate) const DATE_SECONDS: u64 = 784_111_777;
pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// A server with a private folder.
pub(crate) struct Server {
    server: underpass_serve::FileServer,
    options: ServerOptions,
    root: TempDir,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(|_| {})
    }

    /// Starts a server with modified options; the default is one worker and a free port.
    pub(crate) fn with(change: impl FnOnce(&mut ServerOptions)) -> Server {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("site");
        fs::create_dir(&site).unwrap();
        let mut options = ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            workers: NonZeroUsize::new(1),
            ..ServerOptions::of(site)
        };
        change(&mut options);
        let server = serve(&options).unwrap();
        Server {
            server,
            options,
            root,
        }
    }

    /// Starts a server with this configuration of a site, without its root.
    pub(crate) fn configured(site: &str) -> Server {
        let text = format!("[[site]]\n{site}");
        let site = ServerOptions::parse(&text).unwrap().sites.remove(0);
        Server::with(|options| {
            let root = std::mem::take(&mut options.sites[0].root);
            options.sites[0] = SiteOptions { root, ..site };
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.running().address().unwrap()
    }

    pub(crate) fn server(&self) -> &underpass_serve::FileServer {
        &self.server
    }

    /// Returns the options it was started with.
    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    pub(crate) fn running(&self) -> &NetServer<ServeSummary> {
        self.server.running()
    }

    /// Returns the served folder.
    pub(crate) fn site(&self) -> std::path::PathBuf {
        self.root.path().join("site")
    }

    /// Returns the parent of the served folder, whose files must never be served.
    pub(crate) fn outside(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file of the site, with a date old enough to be a strong validator.
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.site().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        make_old(&path);
    }

    pub(crate) fn connect(&self) -> HttpClient {
        HttpClient::connect(self.address())
    }

    /// Sends one request on a new connection and returns the response.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> HttpResponse {
        let mut client = self.connect();
        client.send(request);
        client.response()
    }

    pub(crate) fn get(&self, target: &str) -> HttpResponse {
        self.connect().get(target)
    }

    /// Sends a GET with more fields, one per line.
    pub(crate) fn get_with(&self, target: &str, fields: &str) -> HttpResponse {
        self.ask(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"
        ))
    }

    pub(crate) fn stop(self) -> ServeSummary {
        self.server.running().shutdown().escalate();
        let mut summary = ServeSummary::default();
        for worker in self.server.running().join() {
            summary += &worker;
        }
        summary
    }
}

/// Gives a file the date [`DATE`].
pub(crate) fn make_old(path: &Path) {
    let date = UNIX_EPOCH + Duration::new(DATE_SECONDS, 123_456_789);
    let file = fs::File::open(path).unwrap();
    file.set_modified(date).unwrap();
    assert!(date < SystemTime::now());
}

/// Returns bytes in which every short sequence is unique.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0u32..)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .take(length)
        .collect()
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Open,
    Closed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Open => "open",
            State::Closed => "closed",
        })
    }
}

/// A request that shows whether a connection is still open; the site must have this file.
pub(crate) const PROBE: &[u8] = b"GET /probe HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends requests on a connection that may be closed.
pub(crate) trait Probe {
    /// Returns whether the server accepts another request. It must send nothing before closing.
    fn state(&mut self) -> State;
    /// Like [`Probe::state`] for an arbitrary server, when the probe was sent already.
    fn outcome(&mut self) -> String;
}

impl Probe for HttpClient {
    fn state(&mut self) -> State {
        self.send(PROBE);
        match self.try_response("GET") {
            Ok(answer) => {
                assert_eq!(answer.body, b"probe", "{answer:?}");
                State::Open
            }
            Err(error) => {
                let is_silent = error.kind() == io::ErrorKind::WouldBlock;
                assert!(!is_silent, "neither open nor closed");
                assert!(self.rest().is_empty(), "it says more before it closes");
                State::Closed
            }
        }
    }

    fn outcome(&mut self) -> String {
        match self.try_response("GET") {
            Ok(answer) if answer.body == b"probe" => State::Open.to_string(),
            Ok(answer) => format!("then {}", answer.status),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => "silent".into(),
            Err(_) => State::Closed.to_string(),
        }
    }
}

/// Returns the peak resident memory of this process.
pub(crate) fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let figure = line.unwrap().split_whitespace().nth(1);
    figure.unwrap().parse().unwrap()
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
