//! The arguments of `send` and `recv`.

use std::env;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use underpass_net::{ConnectionLimits, ListenAt};
use underpass_sendrecv::{
    Attributes, Encryption, Existing, HiddenNames, ListenOptions, ReceiveOptions, Ticket,
};

use super::outcome::{CommandError, failure, usage};

/// The variable with a ticket, which other users cannot see there.
const TICKET: &str = "UNDERPASS_TICKET";

/// How long a connection may move nothing before it is made again.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Send files and folders to another machine, and continue where a lost connection has stopped
///
/// With a ticket from a waiting 'underpass recv' it connects; without one it waits, and prints the
/// ticket for the other side.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SendArguments {
    /// Files and folders, and the ticket of a waiting receiver (or in UNDERPASS_TICKET); '-' is
    /// standard input
    #[arg(value_name = "FILE... [TICKET]", required = true)]
    words: Vec<PathBuf>,

    /// Send owners and extended attributes of the files in folders, too
    #[arg(short = 'a', long)]
    archive: bool,

    #[command(flatten)]
    pub(super) transfer: TransferArguments,
}

/// Receive files and folders from another machine, and continue where a lost connection has stopped
///
/// With a ticket from a waiting 'underpass send' it connects; without one it waits, and prints the
/// ticket for the other side.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReceiveArguments {
    /// The folder to store into [default: the current one], and the ticket of a waiting sender (or
    /// in UNDERPASS_TICKET)
    #[arg(value_name = "[TICKET] [DIR]", num_args = 0..=2)]
    words: Vec<PathBuf>,

    /// Replace files that exist
    #[arg(short, long)]
    force: bool,

    /// Take names that begin with a dot, such as .profile
    #[arg(long)]
    hidden: bool,

    /// Leave this much free on the file system
    #[arg(long, value_name = "BYTES", default_value = "256 MiB")]
    keep_free: ByteSize,

    #[command(flatten)]
    pub(super) transfer: TransferArguments,
}

/// What both sides have in common.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TransferArguments {
    /// Wait on this port of all interfaces, or at this address: PORT, ADDR or ADDR:PORT
    #[arg(short, long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Wait without encryption, for networks that are trusted: nothing passes user space
    #[arg(long)]
    plain: bool,

    /// Wait for this many transfers; 0 waits until it is stopped
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,

    /// Connect to this address instead of the ticket's: HOST or HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,

    /// Try for this long to restore a lost connection
    #[arg(long, value_name = "SPAN", default_value = "10m",
          value_parser = humantime::parse_duration)]
    pub(super) retry: Duration,

    /// Send at most this many bytes per second
    #[arg(long, value_name = "BYTES")]
    bwlimit: Option<ByteSize>,

    /// Report how the bytes were moved
    #[arg(long)]
    pub(super) explain: bool,

    /// Print one JSON object per event
    #[arg(long)]
    pub(super) json: bool,

    /// Show no progress
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl SendArguments {
    /// Separates the ticket from the paths.
    pub(super) fn ticket_and_paths(&self) -> Result<(Option<Ticket>, Vec<PathBuf>), CommandError> {
        let (ticket, paths) = separate(&self.words)?;
        match paths.is_empty() {
            true => Err(usage("name the files to send before the ticket")),
            false => Ok((ticket, paths)),
        }
    }

    pub(super) fn attributes(&self) -> Attributes {
        match self.archive {
            true => Attributes::All,
            false => Attributes::Usual,
        }
    }
}

impl ReceiveArguments {
    /// Separates the ticket from the folder.
    pub(super) fn ticket_and_folder(&self) -> Result<(Option<Ticket>, PathBuf), CommandError> {
        let (ticket, mut paths) = separate(&self.words)?;
        let folder = paths.pop().unwrap_or_else(|| ".".into());
        match paths.is_empty() {
            true => Ok((ticket, folder)),
            false => Err(usage(format!(
                "'{}' is not a ticket; received files go to one folder",
                paths[0].display()
            ))),
        }
    }

    pub(super) fn target(&self, folder: PathBuf) -> ReceiveOptions {
        ReceiveOptions {
            folder,
            existing: match self.force {
                true => Existing::Replaced,
                false => Existing::Kept,
            },
            hidden: match self.hidden {
                true => HiddenNames::Allowed,
                false => HiddenNames::Refused,
            },
            keep_free: self.keep_free.as_u64(),
            state: PathBuf::new(),
        }
    }
}

impl TransferArguments {
    pub(super) fn listening(&self) -> Result<ListenOptions, CommandError> {
        let at = match &self.listen {
            None => addresses(":0")?,
            Some(text) => match text.parse::<u16>() {
                Ok(port) => addresses(&format!(":{port}"))?,
                Err(_) => addresses(text)?,
            },
        };
        Ok(ListenOptions {
            at,
            encryption: match self.plain {
                true => Encryption::None,
                false => Encryption::Tls,
            },
            count: (self.count > 0).then_some(self.count),
            limits: self.limits(),
        })
    }

    pub(super) fn limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            rate_max: self.bwlimit.and_then(|rate| NonZeroU64::new(rate.as_u64())),
            stall_timeout: STALL_TIMEOUT,
            ..ConnectionLimits::default()
        }
    }

    /// Refuses options of a waiting side where a ticket is given.
    pub(super) fn check_connecting(&self) -> Result<(), CommandError> {
        match self.listen.is_some() || self.plain || self.count != 1 {
            true => Err(usage(
                "--listen, --plain and --count are for the side that waits; this one connects",
            )),
            false => Ok(()),
        }
    }

    /// Returns the addresses to connect to instead of the ticket's.
    pub(super) fn addresses_to(&self, port: u16) -> Result<Vec<SocketAddr>, CommandError> {
        let Some(text) = &self.to else {
            return Ok(Vec::new());
        };
        let is_whole = text.parse::<SocketAddr>().is_ok()
            || text
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok());
        let bare = text.trim_matches(['[', ']']);
        let found = match (is_whole, bare.parse::<IpAddr>()) {
            (true, _) => text.to_socket_addrs(),
            (false, Ok(ip)) => return Ok(vec![SocketAddr::new(ip, port)]),
            (false, Err(_)) => (text.as_str(), port).to_socket_addrs(),
        };
        match found.map(Vec::from_iter) {
            Ok(found) if !found.is_empty() => Ok(found),
            Ok(_) => Err(usage(format!("'{text}' has no address"))),
            Err(error) => Err(usage(format!("--to {text}: {error}"))),
        }
    }
}

/// Resolves an address to listen at; without a port the kernel chooses one.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, CommandError> {
    let port = match text.parse::<SocketAddr>() {
        Ok(_) => None,
        Err(_) if text.starts_with(':') => None,
        Err(_) => Some(0),
    };
    let resolved = ListenAt::resolve(text, port).map_err(|error| usage(error.to_string()))?;
    resolved
        .into_iter()
        .map(|at| match at {
            ListenAt::Tcp(address) => Ok(address),
            _ => Err(usage(format!("--listen {text}: name a port or an address"))),
        })
        .collect()
}

/// Separates a ticket from other words; one in the environment counts if there is none.
fn separate(words: &[PathBuf]) -> Result<(Option<Ticket>, Vec<PathBuf>), CommandError> {
    let is_ticket = |word: &&PathBuf| word.to_str().is_some_and(Ticket::is_likely);
    let mut tickets = words.iter().filter(is_ticket);
    let text = tickets
        .next()
        .and_then(|word| word.to_str())
        .map(str::to_owned);
    if tickets.next().is_some() {
        return Err(usage("there are two tickets"));
    }
    let text = text.or_else(|| env::var(TICKET).ok().filter(|text| !text.is_empty()));
    let ticket = text.map(|text| text.parse::<Ticket>());
    let ticket = ticket.transpose().map_err(|error| failure(&error.into()))?;
    let paths = words.iter().filter(|word| !is_ticket(word)).cloned();
    Ok((ticket, paths.collect()))
}
