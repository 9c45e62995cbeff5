//! The experiments that load servers: `http`.

use clap::Args;
use underpass::Mechanism;
use underpass_bench::Named;
use underpass_bench::experiment::http;

use super::Common;
use super::numbers::bytes;

/// Connections that ask a server for files again and again
#[derive(Debug, Args)]
pub(super) struct Http {
    /// File sizes, such as 300MB,1KiB [default: 300 MB]
    #[arg(long, alias = "size", value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// How many files of each size, asked for in turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    files: usize,
    /// Connections open at once
    #[arg(long, value_name = "N", default_value_t = 30)]
    connections: usize,
    /// Requests of a round [default: as many as begin in a second or so]
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Also measure our own server when it may use only these mechanisms; `none` for none
    #[arg(long, value_name = "MECHANISM,…", value_delimiter = ',',
          default_values = ["splice", "read_write"], value_parser = mechanism_or_none)]
    only: Vec<Option<Mechanism>>,
    #[command(flatten)]
    beside: Beside,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Whom else to measure
#[derive(Debug, Args)]
struct Beside {
    /// Also measure this server, as in 'nginx=nginx -p {own} -c {file:nginx.conf}' (docs/bench.md)
    #[arg(long = "server", value_name = "NAME=COMMAND")]
    servers: Vec<Named>,
}

impl Http {
    pub(super) fn options(&self) -> http::Options {
        http::Options {
            servers: self.beside.servers.clone(),
            only: self.only.iter().copied().flatten().collect(),
            sizes: self.sizes.clone(),
            files: self.files,
            connections: self.connections,
            requests: self.requests,
            ..http::Options::default()
        }
    }
}

fn mechanism_or_none(text: &str) -> Result<Option<Mechanism>, String> {
    match text {
        "none" => Ok(None),
        name => name
            .parse()
            .map(Some)
            .map_err(|_| "no such mechanism".into()),
    }
}
