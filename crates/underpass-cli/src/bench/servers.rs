//! The experiments that load servers: `http`, `small`, `cold` and `many`.

use clap::Args;
use underpass::Mechanism;
use underpass_bench::experiment::{cold, http, many, small};
use underpass_bench::{ClientBehavior, ConnectionReuse, NamedCommand};

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
    /// Open a connection for every request, which the server is asked to close
    #[arg(long)]
    reconnect: bool,
    /// Requests of a round [default: as many as begin in a second or so]
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Also measure our own server when it may use only these mechanisms; `none` for none
    #[arg(long, value_name = "MECHANISM,…", value_delimiter = ',',
          default_values = ["sendfile", "read_write"], value_parser = mechanism_or_none)]
    only: Vec<Option<Mechanism>>,
    #[command(flatten)]
    pub(super) beside: Beside,
}

/// Small bodies: where one write beats head and sendfile
#[derive(Debug, Args)]
pub(super) struct Small {
    /// Body sizes, such as 1KiB,64KiB [default: 1 to 256 KiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// Connections open at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: usize,
    #[command(flatten)]
    pub(super) beside: Beside,
}

/// How long a hot request takes while files stream that are not in memory
#[derive(Debug, Args)]
pub(super) struct Cold {
    /// The size of a cold file
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = bytes)]
    size: u64,
    /// How many cold files [default: 8, with --quick 2]
    #[arg(long, value_name = "N")]
    files: Option<usize>,
    /// Connections over which they stream
    #[arg(long, value_name = "N", default_value_t = 2)]
    streams: usize,
    /// Stream files that are in memory instead: what is left of a turn for a small request beside
    /// readers at full speed
    #[arg(long, conflicts_with = "disk_mib")]
    warm: bool,
    /// Let servers read at most so many MiB per second from the disk, as root: a virtual
    /// machine's disk is often its host's memory
    #[arg(long, value_name = "MIB")]
    disk_mib: Option<u64>,
    #[command(flatten)]
    pub(super) beside: Beside,
}

/// Slow readers of one large file, or idle connections: memory, and what others notice
#[derive(Debug, Args)]
pub(super) struct Many {
    /// The size of the file [default: 1 GiB, with --quick 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    size: Option<u64>,
    /// How many connections
    #[arg(long, value_name = "N", default_value_t = 1000)]
    connections: usize,
    /// Have them idle, after an answer of 1 KiB, rather than read slowly
    #[arg(long, conflicts_with = "size")]
    idle: bool,
    #[command(flatten)]
    pub(super) beside: Beside,
}

/// Whom else to measure, and how
#[derive(Debug, Args)]
pub(super) struct Beside {
    /// Also measure this server, as in 'nginx=nginx -p {own} -c {file:nginx.conf}' (docs/bench.md)
    #[arg(long = "server", value_name = "NAME=COMMAND")]
    servers: Vec<NamedCommand>,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Http {
    pub(super) fn options(&self) -> http::HttpOptions {
        http::HttpOptions {
            servers: self.beside.servers.clone(),
            only: self.only.iter().copied().flatten().collect(),
            sizes: self.sizes.clone(),
            files: self.files,
            connections: self.connections,
            connection: match self.reconnect {
                true => ConnectionReuse::PerRequest,
                false => ConnectionReuse::KeepAlive,
            },
            requests: self.requests,
            ..http::HttpOptions::default()
        }
    }
}

impl Small {
    pub(super) fn options(&self) -> small::SmallOptions {
        small::SmallOptions {
            servers: self.beside.servers.clone(),
            sizes: self.sizes.clone(),
            connections: self.connections,
            ..small::SmallOptions::default()
        }
    }
}

impl Cold {
    pub(super) fn options(&self) -> cold::ColdOptions {
        cold::ColdOptions {
            servers: self.beside.servers.clone(),
            size: self.size,
            files: self.files,
            streams: self.streams,
            streamed: match self.warm {
                true => cold::StreamOrigin::FromMemory,
                false => cold::StreamOrigin::FromDisk,
            },
            disk_mib: self.disk_mib,
            ..cold::ColdOptions::default()
        }
    }
}

impl Many {
    pub(super) fn options(&self) -> many::ManyOptions {
        many::ManyOptions {
            servers: self.beside.servers.clone(),
            size: self.size,
            connections: self.connections,
            pastime: match self.idle {
                true => ClientBehavior::Idle,
                false => ClientBehavior::SlowReader,
            },
            ..many::ManyOptions::default()
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
