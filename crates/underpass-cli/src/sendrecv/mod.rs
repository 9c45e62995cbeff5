//! `underpass send` and `underpass recv`: one transfer between two machines.

mod arguments;
mod display;
mod invitation;
mod outcome;

use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use underpass_net::{ShutdownPhase, SignalAction, watch_signals};
use underpass_sendrecv::{
    ConnectOptions, Encryption, Error, Invitation, Item, ItemKind, KeptTicket, Security,
    TransferProgress, TransferRole, WaitingSide, pull, pull_to_stdout, push, redeem,
};

pub(crate) use arguments::{ReceiveArguments, SendArguments};
pub(crate) use outcome::CommandResult;

use self::arguments::TransferArguments;
use self::display::Display;
use self::invitation::{InvitationLines, Offering};
use self::outcome::{CommandError, failure, usage};
use crate::console;

/// The exit code after Ctrl-C, as shells give it.
const INTERRUPTED: u8 = 130;

/// Sends items, to a waiting receiver or by waiting for one.
///
/// # Errors
/// A message for the user, and the exit code.
pub(crate) fn send(arguments: &SendArguments) -> CommandResult {
    let (invitation, paths) = arguments.invitation_and_paths()?;
    let items = items(&paths)?;
    let transfer = &arguments.transfer;
    match invitation {
        Some(invitation) => {
            let options = connect(transfer, invitation)?;
            let total = items.iter().map(size_of).sum();
            let attributes = arguments.attributes();
            run(transfer, total, |progress| {
                push(&options, &items, attributes, progress)
            })
        }
        None => {
            let what = paths
                .iter()
                .map(|path| absolute(path).display().to_string());
            let what = format!("send {}", Vec::from_iter(what).join("\n"));
            let role = TransferRole::Offer(items.clone(), arguments.attributes());
            wait(transfer, role, &what, Offering::Items(items))
        }
    }
}

/// Receives items, from a waiting sender or by waiting for one.
///
/// # Errors
/// A message for the user, and the exit code.
pub(crate) fn receive(arguments: &ReceiveArguments) -> CommandResult {
    let (invitation, folder) = arguments.invitation_and_folder()?;
    if folder.as_os_str() == "-" {
        return receive_to_stdout(arguments, invitation);
    }
    check_is_local(&folder)?;
    make_folder(&folder)?;
    let mut target = arguments.target(folder);
    let transfer = &arguments.transfer;
    match invitation {
        Some(invitation) => {
            let states = states()?;
            let options = connect(transfer, invitation)?;
            let what = format!(
                "{} {}",
                options.ticket.secret.token(),
                absolute(&target.folder).display()
            );
            target.state = states.join(format!("from-{}", file_name(&what)));
            run(transfer, 0, |progress| pull(&options, &target, progress))
        }
        None => {
            let what = format!("recv {}", absolute(&target.folder).display());
            let offering = Offering::Folder(target.folder.clone());
            wait(transfer, TransferRole::Receive(target), &what, offering)
        }
    }
}

/// Receives one file into standard output.
fn receive_to_stdout(
    arguments: &ReceiveArguments,
    invitation: Option<Invitation>,
) -> CommandResult {
    let invitation = invitation.ok_or_else(|| {
        usage("standard output needs the ticket of a side that waits: 'underpass send FILE'")
    })?;
    // Events must not be mixed with content.
    console::OUTPUT_IS_LOG.store(true, Relaxed);
    let options = connect(&arguments.transfer, invitation)?;
    run(&arguments.transfer, 0, |progress| {
        pull_to_stdout(&options, progress)
    })
}

fn items(paths: &[PathBuf]) -> Result<Vec<Item>, CommandError> {
    paths.iter().try_for_each(|path| check_is_local(path))?;
    let items: Result<Vec<_>, _> = paths.iter().map(|path| Item::at(path)).collect();
    let items = items.map_err(|error| failure(&error))?;
    for (index, item) in items.iter().enumerate() {
        if items[..index].iter().any(|other| other.name == item.name) {
            let name = &item.name;
            return Err(usage(format!(
                "two of the paths end with '{name}', and would have the same name at the receiver; \
                 send their folder, or one after the other"
            )));
        }
    }
    Ok(items)
}

fn size_of(item: &Item) -> u64 {
    match &item.kind {
        ItemKind::File(path) => path.metadata().map_or(0, |metadata| metadata.len()),
        ItemKind::Tree(_) | ItemKind::Stdin => 0,
    }
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns how the waiting side is reached, having exchanged a code for its ticket.
fn connect(
    arguments: &TransferArguments,
    invitation: Invitation,
) -> Result<ConnectOptions, CommandError> {
    arguments.check_connecting()?;
    let limits = arguments.limits();
    let (ticket, to) = match invitation {
        Invitation::Ticket(ticket) => {
            let to = arguments.addresses_to(ticket.port)?;
            (ticket, to)
        }
        Invitation::Code(addressed) => {
            let given = arguments.addresses_of(addressed.address.as_ref())?;
            let redeemed = redeem(&addressed.code, &given, &limits);
            let (ticket, answered) = redeemed.map_err(|error| failure(&error))?;
            // The other addresses are for the time when the waiting machine has moved.
            let to = [answered].into_iter().chain(ticket.sockets());
            let to = to
                .enumerate()
                .filter(|(index, to)| *index == 0 || *to != answered);
            (ticket.clone(), to.map(|(_, to)| to).collect())
        }
    };
    Ok(ConnectOptions {
        ticket,
        to,
        limits,
        retry_timeout: arguments.retry,
    })
}

/// Runs the connecting side, and shows its progress.
fn run(
    arguments: &TransferArguments,
    total: u64,
    transfer: impl FnOnce(&Arc<TransferProgress>) -> Result<(), Error>,
) -> CommandResult {
    let progress = Arc::new(TransferProgress::default());
    progress
        .total
        .store(total, std::sync::atomic::Ordering::Relaxed);
    interrupt_ends()?;
    let display = Display::start(arguments, &progress, None);
    let done = transfer(&progress);
    display.finish(done.is_ok());
    done.map_err(|error| failure(&error))
}

/// Ends the process on a signal. What was received stays, and the same command continues.
fn interrupt_ends() -> CommandResult {
    let watched = watch_signals(|action| {
        if action == SignalAction::Stop {
            console::say_error("interrupted; the same command continues");
            console::finish();
            std::process::exit(INTERRUPTED.into());
        }
    });
    watched.map_err(|error| (error.to_string(), 1))
}

/// Runs the waiting side.
fn wait(
    arguments: &TransferArguments,
    role: TransferRole,
    what: &str,
    offering: Offering,
) -> CommandResult {
    let states = states()?;
    let kept = KeptTicket::open(&states, what).map_err(|error| failure(&error))?;
    let options = arguments.listening()?;
    let listening = WaitingSide::start(role, &options, kept);
    let listening = listening.map_err(|error| failure(&error))?;
    let shutdown = listening.shutdown();
    let watched = watch_signals(move |action| {
        // What was received stays: there is nothing to wait for.
        while action == SignalAction::Stop && shutdown.phase() != ShutdownPhase::Now {
            shutdown.escalate();
        }
    });
    watched.map_err(|error| (error.to_string(), 1))?;
    if listening.ticket.security == Security::Plain {
        console::say_error(
            "not encrypted: use --plain only in networks that you trust; both sides prove that \
             they know the ticket, and others can read and change what is sent",
        );
    }
    let invitation = InvitationLines {
        ticket: listening.ticket.clone(),
        offering,
    };
    // A code is an event, as the next one is.
    if options.encryption != Encryption::TlsByCode {
        console::say(&invitation.of_ticket());
    }
    let display = Display::start(arguments, &listening.progress, Some(invitation));
    let is_complete = listening.wait();
    display.finish(is_complete);
    match is_complete {
        true => Ok(()),
        false => Err((
            "stopped before the transfer was complete; the same command continues with the same \
             ticket"
                .to_owned(),
            INTERRUPTED,
        )),
    }
}

/// Refuses a path that does not exist and is meant as a place on another machine, as of scp.
fn check_is_local(path: &Path) -> CommandResult {
    let text = path.to_string_lossy();
    let host = text.split_once(':').map(|(host, _)| host).or_else(|| {
        let (user, host) = text.split_once('@')?;
        (!user.is_empty()).then_some(host)
    });
    let is_host = host.is_some_and(|host| !host.is_empty() && !host.contains('/'));
    match is_host && path.symlink_metadata().is_err() {
        true => Err(usage(format!(
            "'{}' is not here, and no other machine is reached by name: start 'underpass recv' \
             there, and send with the ticket that it prints, or the other way around",
            text.escape_debug()
        ))),
        false => Ok(()),
    }
}

/// Makes the folder to receive into, if only the folder itself is missing.
fn make_folder(folder: &Path) -> Result<(), CommandError> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err((format!("cannot make {}: {error}", folder.display()), 1))
        }
        _ => Ok(()),
    }
}

/// Returns a file name for a text of any length.
fn file_name(text: &str) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Returns the folder for tickets.
fn states() -> Result<PathBuf, CommandError> {
    state_folder().ok_or_else(|| usage("no folder for the ticket; set XDG_STATE_HOME or HOME"))
}

fn state_folder() -> Option<PathBuf> {
    let variable = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let own = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    Some(own?.join("underpass/tickets"))
}
