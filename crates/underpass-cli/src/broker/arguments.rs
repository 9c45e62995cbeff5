//! The arguments of `underpass broker`, converted to its options. Flags override the configuration.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use underpass_broker::{AdvertisedAddress, BrokerListener, BrokerOptions, FsyncPolicy};
use underpass_net::{ListenAt, TlsOptions};
use underpass_serve::StatusAddress;

use super::check::CheckArguments;

/// Serve topics to Kafka clients, from log files in Kafka's format
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BrokerArguments {
    #[command(subcommand)]
    pub(super) tool: Option<BrokerTool>,

    /// Keep topics in this folder, which is made if there is none; one that a stopped Kafka has
    /// left is taken over [default: that of the configuration, or underpass-data]
    #[arg(value_name = "DIR", env = "UNDERPASS_BROKER_DATA")]
    data: Option<PathBuf>,

    /// Read options from this TOML file; flags override it
    #[arg(long, value_name = "FILE", env = "UNDERPASS_BROKER_CONFIG")]
    config: Option<PathBuf>,

    /// Listen on this port of 127.0.0.1, or of what --listen names without a port [default: 9092]
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,

    /// Listen here; may be repeated: PORT (this machine only), :PORT (every interface), ADDR:PORT,
    /// unix:/PATH or systemd[:NAME]
    #[arg(short, long, value_name = "ADDRESS")]
    listen: Vec<String>,

    /// Send clients to this address, HOST or HOST:PORT, instead of the one by which they have
    /// reached the broker: for clients behind NAT or a container's port mapping
    #[arg(long, value_name = "HOST[:PORT]")]
    advertised: Option<AdvertisedAddress>,

    /// When records are synced to the disk [default: acks]
    #[arg(long, value_name = "WHEN")]
    fsync: Option<SyncMoment>,

    /// Give topics that clients ask for, and that do not exist, this many partitions [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    partitions: Option<i32>,

    /// Refuse topics that do not exist, instead of making them when clients ask for them
    #[arg(long)]
    no_auto_create: bool,

    /// Speak TLS with this certificate and those that lead to its authority, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Make clients log in as users of this file, which `underpass broker hash` makes: by SCRAM, or
    /// with TLS also by PLAIN
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,

    /// Serve metrics and health at this address, as 9090 (this machine only), ADDR:PORT or
    /// unix:PATH: /metrics for Prometheus, /health and /ready
    #[arg(long, value_name = "ADDRESS")]
    status: Option<StatusAddress>,

    /// Run this many worker threads, 1 or more [default: the CPUs available to this process]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum BrokerTool {
    Check(CheckArguments),
    Hash(UserArguments),
}

/// Print the lines of a user for a file of users, with hashes of the password
#[derive(Clone, Debug, clap::Args)]
pub(super) struct UserArguments {
    /// The name of the user; the password is asked for, or read from standard input
    #[arg(value_name = "NAME")]
    pub(super) name: String,
}

/// When records are synced.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SyncMoment {
    /// Before acks=all is answered, others within a second: what was acknowledged with acks=all
    /// survives a power failure
    Acks,
    /// Every second
    Interval,
    /// When the kernel sees fit, as Kafka does
    Never,
}

impl From<SyncMoment> for FsyncPolicy {
    fn from(fsync: SyncMoment) -> FsyncPolicy {
        match fsync {
            SyncMoment::Acks => FsyncPolicy::Acks,
            SyncMoment::Interval => FsyncPolicy::Interval,
            SyncMoment::Never => FsyncPolicy::Never,
        }
    }
}

impl BrokerArguments {
    /// Reads the configuration, and returns the options.
    pub(super) fn options(&self) -> Result<BrokerOptions, String> {
        let mut options = match &self.config {
            Some(file) => read(file)?,
            None => BrokerOptions::default(),
        };
        if let Some(data) = &self.data {
            options.data.clone_from(data);
        }
        if !self.listen.is_empty() || self.port.is_some() {
            options.listeners = self.listeners()?;
        }
        if let Some(advertised) = &self.advertised {
            for listener in &mut options.listeners {
                listener.advertised = Some(advertised.clone());
            }
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            options.tls = TlsOptions {
                certificates: TlsOptions::of(cert, key).certificates,
                ..options.tls
            };
        }
        if let Some(users) = &self.users {
            options.require_logins(users.clone());
        }
        options.fsync = self.fsync.map_or(options.fsync, Into::into);
        options.topics.partitions = self.partitions.unwrap_or(options.topics.partitions);
        options.topics.auto_create &= !self.no_auto_create;
        options.workers = self.workers.or(options.workers);
        options.status.listen = self.status.clone().or(options.status.listen);
        if options.listeners.is_empty() {
            return Err("the configuration has no [[listener]]: nobody could connect".to_owned());
        }
        Ok(options)
    }

    fn listeners(&self) -> Result<Vec<BrokerListener>, String> {
        let port = self.port.unwrap_or(underpass_broker::PORT);
        if self.listen.is_empty() {
            let at = ListenAt::from(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            return Ok(vec![at.into()]);
        }
        let mut listeners = Vec::new();
        for text in &self.listen {
            // An address with a port contradicts --port.
            let is_whole = text.parse::<ListenAt>().is_ok() || text.contains(':');
            let port = match self.port {
                None if is_whole => None,
                _ => Some(port),
            };
            let resolved = ListenAt::resolve(text, port).map_err(|error| error.to_string())?;
            listeners.extend(resolved.into_iter().map(BrokerListener::from));
        }
        Ok(listeners)
    }
}

/// Reads a configuration. Its paths are relative to its folder.
fn read(file: &Path) -> Result<BrokerOptions, String> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| format!("cannot read the configuration {shown}: {error}"))?;
    let options = BrokerOptions::parse(&text);
    let mut options = options.map_err(|error| format!("{shown}: {}", error.to_string().trim()))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    options.data = folder.join(&options.data);
    options.tls.relative_to(folder);
    if let Some(users) = &mut options.sasl.users {
        *users = folder.join(&users);
    }
    Ok(options)
}
