//! The options of `bench log`, and its contenders.

use clap::{Args, ValueEnum};

use super::brokers::BrokerSet;
use crate::contender::named::NamedCommand;
use crate::document::{Case, Experiment};
use crate::error::{Error, Result};
use crate::experiment::ExperimentContext;
use crate::experiment::serving::ServerVariant;
use crate::experiment::sizes::{parse_count, parse_size};
use crate::machine::throttle::DiskThrottle;
use crate::tls::TlsSetup;
use crate::tls::options::{TlsLoadOptions, TlsResumption};

/// The options of `bench log`.
#[derive(Args, Clone, Debug)]
pub struct LogBenchOptions {
    /// Measure only these cases [default: all; with --tls: fetch]
    #[arg(long, value_name = "CASE,…", value_delimiter = ',')]
    cases: Vec<LogCase>,
    /// Fetch a topic of this size [default: 1 GiB, with --quick 32 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) size: Option<u64>,
    /// Fetch a slice of each of this many partitions together [default: 1000, with --quick 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(2..=10_000))]
    pub(super) partitions: Option<i32>,
    /// Produce batches of these sizes [default: 16KiB,64KiB,256KiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_size)]
    pub(super) batches: Vec<u64>,
    /// Restart with a folder of this size [default: 1 GiB, with --quick 32 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) restart_size: Option<u64>,
    /// Limit what brokers read from the disk in `replay`, in MiB per second, as root; use it where
    /// the disk of a virtual machine is its host's memory
    #[arg(long, value_name = "MIB", value_parser = parse_count::<u64>)]
    pub(super) disk_mib: Option<u64>,
    #[command(flatten)]
    tls: TlsLoadOptions,
    /// Measure this broker too, as in 'mine=broker {root} --listen {address}'; {root} is a folder
    /// for its log (docs/bench.md)
    #[arg(long = "server", value_name = "NAME=COMMAND")]
    pub(super) servers: Vec<NamedCommand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogCase {
    /// One consumer, and sixteen of the same data, that is in the page cache
    Fetch,
    /// A slice of 1 KiB of each of a thousand partitions in one request
    Small,
    /// Batches that are not synced
    Produce,
    /// Batches that are synced before they are acknowledged
    Durable,
    /// New records while a consumer reads old ones from the disk
    Replay,
    /// From the start of the process to its first answer, and memory
    Start,
    /// The same after SIGKILL under load, to the answer for every partition
    Restart,
}

impl LogBenchOptions {
    pub(super) fn cases(&self) -> Vec<LogCase> {
        match (&self.cases[..], &self.tls.suite) {
            ([], None) => LogCase::value_variants().to_vec(),
            ([], Some(_)) => vec![LogCase::Fetch],
            (cases, _) => cases.to_vec(),
        }
    }

    /// Measures `play` with our broker, in these variants, and the others.
    pub(super) fn measure(
        &self,
        mut experiment: Experiment,
        own: &[ServerVariant],
        setting: &ExperimentContext,
        play: impl FnOnce(&mut BrokerSet) -> Result<Vec<Case>>,
    ) -> Result<Experiment> {
        setting
            .runner
            .progress
            .begin(&format!("log, {}", experiment.variant));
        let folder = setting.scratch.subdirectory("log-tls")?;
        let tls = TlsSetup::make(&self.tls, TlsResumption::Never, &folder)?;
        if let Some(tls) = &tls {
            experiment.variant += ", TLS";
            experiment.title += " over TLS";
            experiment.measured += &format!(" Every handshake leads to {}.", tls.describe());
        }
        let throttle = match self
            .disk_mib
            .filter(|_| experiment.variant.starts_with("replay"))
        {
            Some(_) if !rustix::process::geteuid().is_root() => {
                return Err(Error::Setting("--disk-mib requires root".into()));
            }
            Some(mib) => Some(DiskThrottle::create(setting.scratch.path(), mib << 20)?),
            None => None,
        };
        let mut others = self.servers.clone();
        if tls.is_none() {
            let is_kept = |word: &String| !["{cert}", "{key}"].contains(&word.as_str());
            others
                .iter_mut()
                .for_each(|other| other.words.retain(is_kept));
        }
        BrokerSet::run(experiment, (own, &others), (tls, throttle), setting, play)
    }
}

/// An experiment of this name, still without cases.
pub(super) fn experiment(variant: &str, title: &str, measured: &str, reading: &str) -> Experiment {
    Experiment {
        name: "log".into(),
        variant: variant.into(),
        title: title.into(),
        measured: measured.into(),
        reading: reading.into(),
        ..Experiment::default()
    }
}
