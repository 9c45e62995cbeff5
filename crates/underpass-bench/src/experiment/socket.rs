//! `bench socket`: a file through a TCP socket, by size and mechanism.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};
use underpass::{Mechanism, limits};

use super::sample::PlayMetric;
use super::sizes::{host_and_port, parse_size, sizes_of_cases};
use super::transfer::{self, TransferCase, TransferContender, TransferEnvironment, TransferSet};
use super::{ExperimentContext, Measurable, RunScale};
use crate::contender::named::NamedCommand;
use crate::contender::receiver::{ReceiveMode, TestReceiver};
use crate::content;
use crate::document::{Axis, Experiment, PayloadPath, Unit};
use crate::error::{Error, Result};

const MB: u64 = 1_000_000;

/// The sizes that the published experiment used.
const SIZES: &[u64] = &[
    7 * MB,
    21 * MB,
    63 * MB,
    98 * MB,
    200 * MB,
    350 * MB,
    700 * MB,
    1000 * MB,
];
const SIZES_QUICK: &[u64] = &[7 * MB, 63 * MB];

/// Smaller files are sent several times for one figure, up to about this many bytes or this often.
const SAMPLE_BYTES_FULL: u64 = 100 * MB;
const SAMPLE_BYTES_QUICK: u64 = 14 * MB;
const TIMES_MAX: u64 = 1000;

/// The size of the file that every contender sends before anything is measured.
const TRIAL_BYTES: u64 = 3 * MB + 17;

/// Buffers for read/write. The largest is the mover's default.
const BUFFERS: [u64; 4] = [limits::BUFFER_BYTES as u64, 64 << 10, 8 << 10, 4 << 10];

/// The options of `bench socket`.
#[derive(Args, Clone, Debug)]
pub struct SocketOptions {
    /// Send files of these sizes, such as 7MB,1GiB [default: 7 to 1000 MB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<u64>,
    /// Choose what the receiver does with the bytes
    #[arg(long, value_name = "HOW", default_value = "both")]
    receiver: ReceiverChoice,
    /// Send to `underpass bench sink` on another machine
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    to: Option<(String, u16)>,
    /// Measure this program too, which takes jobs on its standard input (docs/bench.md)
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<NamedCommand>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReceiverChoice {
    /// Discard them in the kernel: shows the sender's cost alone
    Discard,
    /// Copy them into a buffer, as programs do
    Copy,
    /// Measure both, one after the other
    Both,
}

impl Measurable for SocketOptions {
    fn weight(&self, scale: RunScale, rounds: usize) -> u64 {
        let contenders = (2 + BUFFERS.len() + self.peers.len()) as u64;
        let sizes = self.sizes(scale).into_iter();
        let all: u64 = sizes.map(|size| weight_of(size, scale)).sum();
        all * contenders * (rounds as u64 + 1) * self.modes().len() as u64
    }

    fn run(&self, setting: &ExperimentContext) -> Result<Vec<Experiment>> {
        let mut set = TransferSet::new(SocketEnvironment {
            scale: setting.scale,
            remote: self.to.clone(),
            mode: ReceiveMode::Discard,
            receiver: TestReceiver::start()?,
            folder: setting.scratch.subdirectory("socket")?,
            stop: setting.runner.stop,
        });
        let zero_copy = [Mechanism::Sendfile, Mechanism::Splice].map(transfer::mover_with);
        let own = zero_copy
            .into_iter()
            .chain(transfer::read_writers(&BUFFERS));
        for command in own.chain(self.peers.iter().map(|peer| Ok(peer.command(&[])))) {
            set.admit_worker(command?, setting.processors.contender)?;
        }
        let mut experiments = Vec::new();
        for &mode in self.modes() {
            set.environment.mode = mode;
            let sizes = self.sizes(setting.scale);
            experiments.push(set.play(self.describe(mode), &sizes, setting)?);
        }
        let last = experiments.last_mut();
        last.into_iter()
            .for_each(|one| one.notes.extend(set.stop()));
        Ok(experiments)
    }
}

fn weight_of(size: u64, scale: RunScale) -> u64 {
    20 + times(size, scale) * size / (3 * MB)
}

fn times(size: u64, scale: RunScale) -> u64 {
    let sample_bytes = scale.pick(SAMPLE_BYTES_FULL, SAMPLE_BYTES_QUICK);
    transfer::times(size, sample_bytes, TIMES_MAX)
}

struct SocketEnvironment<'a> {
    scale: RunScale,
    /// The host of another receiver, and its port that discards; the next port copies.
    remote: Option<(String, u16)>,
    mode: ReceiveMode,
    receiver: TestReceiver,
    folder: PathBuf,
    stop: &'a AtomicBool,
}

impl SocketEnvironment<'_> {
    /// Sends a file; the worker must report as many bytes.
    fn send(
        &self,
        contender: &mut TransferContender,
        file: &Path,
        address: &str,
    ) -> Result<Vec<PayloadPath>> {
        let name = &contender.command.name;
        let worker = contender.worker.as_mut();
        let worker = worker.ok_or_else(|| Error::Contender(format!("{name} takes no jobs")))?;
        let done = worker.job(&["send", &file.to_string_lossy(), address], self.stop)?;
        let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
        match done.bytes == bytes {
            true => Ok(done.paths),
            false => Err(Error::Answer(format!(
                "reports {} bytes of {bytes} as sent",
                done.bytes
            ))),
        }
    }

    /// The bytes of one transfer must have arrived; returns their hash.
    fn receive(&self, bytes: u64) -> Result<Option<content::Sha256Hash>> {
        let received = self.receiver.received()?;
        match received.bytes == bytes {
            true => Ok(received.sha256),
            false => Err(Error::Answer(format!(
                "{} bytes of {bytes} arrived",
                received.bytes
            ))),
        }
    }
}

impl TransferEnvironment for SocketEnvironment<'_> {
    const NAME: &'static str = "socket";
    const METRICS_FIRST: &'static [PlayMetric] = &[];
    const OTHER_SIDE: &'static str = "the receiver";

    /// The receiver of the trial is always here, because bytes on another machine can't be
    /// compared.
    fn verify(&self, contender: &mut TransferContender) -> Result<Vec<PayloadPath>> {
        let file = self.folder.join("trial");
        let sha256 = content::make(&file, TRIAL_BYTES, 0)?;
        self.receiver.set_mode(ReceiveMode::Hash);
        let address = self.receiver.address().to_string();
        let sent = self.send(contender, &file, &address);
        let compared = sent.and_then(|counts| match self.receive(TRIAL_BYTES)? {
            Some(hash) if hash == sha256 => Ok(counts),
            _ => Err(Error::Answer("other bytes arrived".into())),
        });
        compared.map_err(|error| match error {
            Error::Answer(what) => Error::Answer(format!("{}: {what}", contender.command.name)),
            other => other,
        })
    }

    fn prepare(&mut self, size: u64) -> Result<TransferCase> {
        let file = self.folder.join(size.to_string());
        if !file.exists() {
            content::make(&file, size, 1)?;
            content::flush_to_disk(&file)?;
        }
        let times = times(size, self.scale);
        Ok(TransferCase {
            file,
            size,
            times,
            load: match times {
                1 => "sent once for each figure".to_owned(),
                times => format!("sent {times} times for each figure"),
            },
            weight: weight_of(size, self.scale),
        })
    }

    fn transfer(
        &self,
        file: &Path,
        contender: &mut TransferContender,
        times: u64,
    ) -> Result<Vec<PayloadPath>> {
        self.receiver.set_mode(self.mode);
        let address = match &self.remote {
            None => self.receiver.address().to_string(),
            Some((host, port)) if self.mode == ReceiveMode::Discard => format!("{host}:{port}"),
            Some((host, port)) => format!("{host}:{}", port + 1),
        };
        let send = |_| self.send(contender, file, &address);
        let counts: Result<Vec<_>> = (0..times).map(send).collect();
        Ok(counts?.concat())
    }

    fn finish(&self, size: u64, times: u64) -> Result<()> {
        match self.remote {
            Some(_) => Ok(()),
            None => (0..times).try_for_each(|_| self.receive(size).map(drop)),
        }
    }

    /// Late bytes from the failed contender must not count for the next one.
    fn recover(&mut self) -> Result<()> {
        self.receiver = TestReceiver::start()?;
        Ok(())
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }
}

impl SocketOptions {
    fn sizes(&self, scale: RunScale) -> Vec<u64> {
        sizes_of_cases(&self.sizes, scale.pick(SIZES, SIZES_QUICK))
    }

    fn modes(&self) -> &'static [ReceiveMode] {
        match self.receiver {
            ReceiverChoice::Discard => &[ReceiveMode::Discard],
            ReceiverChoice::Copy => &[ReceiveMode::Copy],
            ReceiverChoice::Both => &[ReceiveMode::Discard, ReceiveMode::Copy],
        }
    }

    fn describe(&self, mode: ReceiveMode) -> Experiment {
        let (variant, receiver) = match mode {
            ReceiveMode::Discard => (
                "receiver discards",
                "a receiver that has the kernel discard the bytes, which shows the sender's cost \
                 alone",
            ),
            _ => (
                "receiver copies",
                "a receiver that copies the bytes into a buffer, as programs do that read them",
            ),
        };
        let route = match &self.to {
            Some((host, port)) => format!("to {host}:{port}"),
            None => "over loopback".to_owned(),
        };
        Experiment {
            name: "socket".into(),
            variant: variant.into(),
            title: format!("A file through a TCP socket, {variant}"),
            measured: format!(
                "A file from the page cache is sent over a new TCP connection, {route}, to \
                 {receiver}. Time ends when the receiver has all of it; processor time is the \
                 sender's."
            ),
            reading: "Lower is cheaper. Where the sender costs less but takes as long, the \
                      receiver is the bottleneck: over loopback it makes the one copy that is \
                      left."
                .into(),
            axis: Axis {
                label: "file size".into(),
                unit: Unit::Bytes,
            },
            ..Experiment::default()
        }
    }
}
