//! The experiments that move files: `socket` and `copy`.

use std::path::PathBuf;

use clap::Args;
use underpass_bench::experiment::{copy, socket};
use underpass_bench::{NamedCommand, ReceiveMode};

use super::Common;
use super::numbers::{bytes, host_and_port};

/// A file through a TCP socket, by size, by every mechanism
#[derive(Debug, Args)]
pub(super) struct Socket {
    /// File sizes, such as 7MB,1GiB [default: 7 to 1000 MB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// What the receiver does with the bytes
    #[arg(long, value_name = "HOW", default_value = "both")]
    receiver: Receiver,
    /// Send to `underpass bench sink` on another machine
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    to: Option<(String, u16)>,
    /// Also measure a program that does jobs as told on its standard input (docs/bench.md)
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<NamedCommand>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Receiver {
    /// The kernel throws them away: the sender's cost alone
    Discard,
    /// It copies them into a buffer, as programs do
    Copy,
    /// One after the other
    Both,
}

/// A file to a file, by size, by every mechanism
#[derive(Debug, Args)]
pub(super) struct Copy {
    /// File sizes, such as 10KiB,1GiB [default: 10 KiB to 1 GiB]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes)]
    sizes: Vec<u64>,
    /// Copy in this folder; several times for several file systems [default: --scratch]
    #[arg(long = "in", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Also measure a program that does jobs as told on its standard input (docs/bench.md)
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<NamedCommand>,
    /// Also measure a program that is started for each copy, as in 'gnu=cp {from} {to}'
    #[arg(long = "program", value_name = "NAME=COMMAND")]
    programs: Vec<NamedCommand>,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Socket {
    pub(super) fn options(&self) -> socket::SocketOptions {
        socket::SocketOptions {
            sizes: self.sizes.clone(),
            taking: match self.receiver {
                Receiver::Discard => Some(ReceiveMode::Discard),
                Receiver::Copy => Some(ReceiveMode::Copy),
                Receiver::Both => None,
            },
            to: self.to.clone(),
            peers: self.peers.clone(),
        }
    }
}

impl Copy {
    pub(super) fn options(&self) -> copy::FileCopyOptions {
        copy::FileCopyOptions {
            sizes: self.sizes.clone(),
            folders: self.folders.clone(),
            peers: self.peers.clone(),
            programs: self.programs.clone(),
        }
    }
}
