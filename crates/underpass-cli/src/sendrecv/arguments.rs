//! The arguments of `send` and `recv`.

use std::env;
use std::io::{self, BufRead, IsTerminal, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use underpass_net::{ConnectionLimits, ListenAt};
use underpass_sendrecv::{
    Attributes, Encryption, Error, Existing, HiddenNames, Invitation, ListenOptions, ReceiveOptions,
};

use super::outcome::{CommandError, failure, usage};
use crate::console;

/// The variable with a ticket or code, which other users cannot see there.
const TICKET: &str = "UNDERPASS_TICKET";

/// Bytes of a line with a ticket or code.
const LINE_BYTES_MAX: u64 = 4096;

/// The time without progress after which a connection is made again.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Send files and folders to another machine, and continue where a lost connection has stopped
///
/// With a ticket or code from a waiting 'underpass recv' it connects; without one it waits, and
/// prints the ticket for the other side.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SendArguments {
    /// Files and folders, and the ticket or code of a waiting receiver (or in UNDERPASS_TICKET);
    /// '-' is standard input
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
/// With a ticket or code from a waiting 'underpass send' it connects; without one it waits, and
/// prints the ticket for the other side.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReceiveArguments {
    /// The folder to store into [default: the current one], or '-' for one file to standard output,
    /// and the ticket or code of a waiting sender (or in UNDERPASS_TICKET)
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

/// The options of both sides.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TransferArguments {
    /// Wait on this port of all interfaces, or at this address: PORT, ADDR or ADDR:PORT
    #[arg(short, long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Wait without encryption, for networks that are trusted: nothing passes user space
    #[arg(long)]
    plain: bool,

    /// Wait, and print a short code for the telephone instead of a ticket
    #[arg(long)]
    code: bool,

    /// Ask for the ticket or code: on the terminal, or as a line of standard input
    #[arg(long)]
    ask: bool,

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
    /// Separates the ticket or code from the paths.
    pub(super) fn invitation_and_paths(
        &self,
    ) -> Result<(Option<Invitation>, Vec<PathBuf>), CommandError> {
        let (invitation, paths) = separate(&self.words)?;
        if paths.is_empty() {
            return Err(usage("name the files to send before the ticket"));
        }
        if self.transfer.ask && paths.iter().any(|path| path.as_os_str() == "-") {
            return Err(usage(
                "standard input is to be sent, and cannot have the ticket: put it into \
                 UNDERPASS_TICKET",
            ));
        }
        Ok((self.transfer.asked(invitation)?, paths))
    }

    pub(super) fn attributes(&self) -> Attributes {
        match self.archive {
            true => Attributes::All,
            false => Attributes::Usual,
        }
    }
}

impl ReceiveArguments {
    /// Separates the ticket or code from the folder.
    pub(super) fn invitation_and_folder(
        &self,
    ) -> Result<(Option<Invitation>, PathBuf), CommandError> {
        let (invitation, mut paths) = separate(&self.words)?;
        let folder = paths.pop().unwrap_or_else(|| ".".into());
        match paths.is_empty() {
            true => Ok((self.transfer.asked(invitation)?, folder)),
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
            encryption: match (self.plain, self.code) {
                (false, false) => Encryption::Tls,
                (false, true) => Encryption::TlsByCode,
                (true, false) => Encryption::None,
                (true, true) => {
                    return Err(usage(
                        "--code needs encryption: without it others on the network could read the \
                         ticket that a code stands for; leave out --plain or --code",
                    ));
                }
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

    /// Returns the ticket or code, asking for it if the user wants that.
    fn asked(&self, given: Option<Invitation>) -> Result<Option<Invitation>, CommandError> {
        match (self.ask, given) {
            (true, Some(_)) => Err(usage("there is a ticket already; leave out --ask")),
            (true, None) => ask().map(Some),
            (false, given) => Ok(given),
        }
    }

    /// Refuses options of a waiting side where a ticket is given.
    pub(super) fn check_connecting(&self) -> Result<(), CommandError> {
        match self.listen.is_some() || self.plain || self.code || self.count != 1 {
            true => Err(usage(
                "--listen, --plain, --code and --count are for the side that waits; this one \
                 connects",
            )),
            false => Ok(()),
        }
    }

    /// Returns the addresses to connect to instead of the ticket's, which has this port.
    pub(super) fn addresses_to(&self, port: u16) -> Result<Vec<SocketAddr>, CommandError> {
        match &self.to {
            Some(text) => resolve(text, Some(port)),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the addresses of the side that a code is for.
    pub(super) fn addresses_of(
        &self,
        address: Option<&String>,
    ) -> Result<Vec<SocketAddr>, CommandError> {
        let text = self.to.as_ref().or(address).ok_or_else(|| {
            usage(
                "a code needs the address that the other side shows: CODE@HOST:PORT, or --to \
                 HOST:PORT",
            )
        })?;
        resolve(text, None)
    }
}

/// Returns the addresses of a host. A port that it does not name is `port`.
fn resolve(text: &str, port: Option<u16>) -> Result<Vec<SocketAddr>, CommandError> {
    let is_whole = text.parse::<SocketAddr>().is_ok()
        || text
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok());
    let bare = text.trim_matches(['[', ']']);
    let found = match (is_whole, port, bare.parse::<IpAddr>()) {
        (true, ..) => text.to_socket_addrs(),
        (false, None, _) => return Err(usage(format!("'{text}' has no port: HOST:PORT"))),
        (false, Some(port), Ok(ip)) => return Ok(vec![SocketAddr::new(ip, port)]),
        (false, Some(port), Err(_)) => (text, port).to_socket_addrs(),
    };
    match found.map(Vec::from_iter) {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(usage(format!("'{text}' has no address"))),
        Err(error) => Err(usage(format!("{text}: {error}"))),
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

/// Separates a ticket or code from other words; without one, that of the environment counts.
fn separate(words: &[PathBuf]) -> Result<(Option<Invitation>, Vec<PathBuf>), CommandError> {
    let is_invitation = |word: &&PathBuf| word.to_str().is_some_and(Invitation::is_likely);
    let mut found = words.iter().filter(is_invitation);
    let text = found
        .next()
        .and_then(|word| word.to_str())
        .map(str::to_owned);
    if found.next().is_some() {
        return Err(usage("there are two tickets"));
    }
    let text = text.or_else(|| env::var(TICKET).ok().filter(|text| !text.is_empty()));
    let invitation = text.map(|text| parse(&text)).transpose()?;
    let paths = words.iter().filter(|word| !is_invitation(word)).cloned();
    Ok((invitation, paths.collect()))
}

fn parse(text: &str) -> Result<Invitation, CommandError> {
    let parsed = text.parse::<Invitation>();
    parsed.map_err(|error| failure(&Error::from(error)))
}

/// Asks for a ticket or code. On a terminal mistyped ones are asked for again.
fn ask() -> Result<Invitation, CommandError> {
    let is_terminal = io::stdin().is_terminal();
    loop {
        if is_terminal {
            console::say_error("ticket or code that the other side shows:");
        }
        let mut line = String::new();
        let mut input = io::stdin().lock().take(LINE_BYTES_MAX);
        let read = input.read_line(&mut line);
        match read.map_err(|error| (format!("reading the ticket: {error}"), 1))? {
            0 => return Err(usage("standard input has no ticket or code")),
            _ => match parse(&line) {
                Err((message, _)) if is_terminal => console::say_error(&message),
                parsed => return parsed,
            },
        }
    }
}
