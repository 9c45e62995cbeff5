//! HTTPS against clients that violate the protocol: the right alert or the right service, and no
//! other client is disturbed.

mod client;
mod handshakes;
mod records;
mod renewals;
mod streams;

use std::path::PathBuf;

use tempfile::TempDir;
use underpass_serve::ServerOptions;
use underpass_testkit::{HttpClient, wait_until};

use crate::support::Server;
use crate::tls::{Authority, Client, ClientBuilder, SUITES, connect, serve};

pub(crate) const REQUEST: &[u8] = b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n";
pub(crate) const CONTENT: &[u8] = b"content";

/// A server under attack, and a client that must not be affected.
pub(crate) struct Attacked {
    pub(crate) authority: Authority,
    pub(crate) server: Server,
    bystander: Client,
    status: PathBuf,
    _folder: TempDir,
}

impl Attacked {
    pub(crate) fn new() -> Attacked {
        Attacked::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServerOptions)) -> Attacked {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join("status");
        let server = serve(&authority, |options| {
            options.status.listen = Some(status.clone().into());
            change(options);
        });
        server.write("f", CONTENT);
        let config = authority.client().config();
        let mut bystander = connect(&config, server.address(), "localhost");
        assert_eq!(bystander.get("/f").body, CONTENT);
        Attacked {
            authority,
            server,
            bystander,
            status,
            _folder: folder,
        }
    }

    /// Returns a client configuration for each cipher suite.
    pub(crate) fn suites(&self) -> Vec<ClientBuilder> {
        let builder = |(version, suite)| ClientBuilder {
            versions: vec![version],
            suite: Some(suite),
            ..self.authority.client()
        };
        SUITES.map(builder).to_vec()
    }

    /// Checks that other clients are served, on an existing connection and on a new one.
    pub(crate) fn serves_others(&mut self) {
        assert_eq!(self.bystander.get("/f").body, CONTENT);
        let config = self.authority.client().config();
        let mut another = connect(&config, self.server.address(), "localhost");
        assert_eq!(another.get("/f").body, CONTENT);
    }

    /// Stops the server and fails if a worker has panicked.
    pub(crate) fn stop(self) {
        // The server waits for connections that clients leave open.
        drop(self.bystander);
        self.server.stop();
    }

    /// Returns a value of a metric, by its name with labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let mut scrape = HttpClient::connect_unix(&self.status);
        let text = scrape.get("/metrics").text().to_string();
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
        values.next().unwrap().trim().parse().unwrap()
    }

    /// Returns the number of handshakes with this outcome.
    fn handshakes(&self, outcome: &str) -> u64 {
        self.metric(&format!(
            "underpass_tls_handshakes_total{{outcome=\"{outcome}\"}}"
        ))
    }

    /// Waits until so many handshakes have had this outcome.
    pub(crate) fn await_handshakes(&self, outcome: &str, count: u64) {
        wait_until(outcome, || self.handshakes(outcome) >= count);
        assert_eq!(self.handshakes(outcome), count, "{outcome}");
    }
}
