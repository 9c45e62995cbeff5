//! Signals to a running server: reload, upgrade, reopening the log, stop.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use underpass_net::{
    EarlySignals, Error, Notifier, Refreshed, ShutdownPhase, SignalAction, command_of_this_process,
};
use underpass_serve::{FileServer, ServerOptions};

use super::advice::{only_certificates, with_advice};
use super::banner::place;

use crate::console::say;
use crate::layout::monitoring;

/// The maximum number of queued reloads and upgrades. More of the same add nothing.
const QUEUE_MAX: usize = 8;

/// Handles signals from now on, and those that have arrived since the process began. `options`
/// reads the configuration again.
///
/// A stop takes effect immediately, even during a reload or an upgrade; these run one after another
/// on a separate thread.
pub(super) fn handle(
    signals: EarlySignals,
    server: &Arc<FileServer>,
    notifier: &Arc<Notifier>,
    options: impl Fn() -> Result<ServerOptions, String> + Send + 'static,
) -> Result<(), String> {
    let (sender, queue) = sync_channel(QUEUE_MAX);
    let (slow_server, slow_notifier) = (Arc::clone(server), Arc::clone(notifier));
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut successor = None;
            for action in queue {
                match (action, successor) {
                    (_, Some(id)) => tracing::warn!(
                        "process {id} has taken over: signals for a reload or an upgrade go to it"
                    ),
                    (SlowAction::Reload, None) => reload(&slow_server, &slow_notifier, &options),
                    (SlowAction::Upgrade, None) => {
                        successor = upgrade(&slow_server, &slow_notifier);
                    }
                }
            }
        })
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let watched = signals.watch(dispatch(server, notifier, sender));
    watched.map_err(|error| with_advice(&error.into()))
}

/// An action that takes too long for the signal thread.
enum SlowAction {
    Reload,
    Upgrade,
}

fn dispatch(
    server: &Arc<FileServer>,
    notifier: &Arc<Notifier>,
    sender: SyncSender<SlowAction>,
) -> impl FnMut(SignalAction) + Send + 'static {
    let shutdown = server.running().shutdown();
    let (server, notifier) = (Arc::downgrade(server), Arc::clone(notifier));
    // A full queue already has the same actions.
    let enqueue = move |action| drop(sender.try_send(action));
    move |action| match action {
        SignalAction::Stop => {
            notifier.stopping();
            shutdown.escalate();
            if shutdown.phase() == ShutdownPhase::Now
                && let Some(server) = server.upgrade()
            {
                server.abandon_log();
            }
        }
        SignalAction::Reopen => {
            if let Some(server) = server.upgrade() {
                server.reopen_log();
            }
        }
        SignalAction::Reload => enqueue(SlowAction::Reload),
        SignalAction::Upgrade => enqueue(SlowAction::Upgrade),
    }
}

fn reload(
    server: &FileServer,
    notifier: &Notifier,
    options: impl Fn() -> Result<ServerOptions, String>,
) {
    notifier.reloading();
    let outcome = match options() {
        Ok(options) => server.reload(&options).map_err(|error| with_advice(&error)),
        // Certificates are renewed even if the configuration has mistakes.
        Err(why) => Err(match server.reload_certificates() {
            Ok(Refreshed::Changed) => only_certificates(&why),
            Ok(Refreshed::Same) | Err(_) => why,
        }),
    };
    let status = status(server);
    match outcome {
        Ok(()) => say(&format!("reloaded; {status}")),
        Err(why) => {
            tracing::error!("reload failed, the previous configuration stays in effect: {why}");
        }
    }
    notifier.ready(&status);
}

/// Starts the program's file, which may have been replaced, with the same arguments. Returns the
/// new process once it is serving.
fn upgrade(server: &FileServer, notifier: &Notifier) -> Option<u32> {
    let mut taken_over = None;
    let upgraded = server.upgrade(command_of_this_process(), |successor| {
        let id = successor.id();
        taken_over = Some(id);
        notifier.succeeded_by(id);
        say(&format!(
            "process {id} has taken over; this one exits after its last response"
        ));
    });
    match upgraded {
        Ok(()) => {}
        Err(error @ Error::Stopping) => tracing::warn!("no upgrade: {error}"),
        Err(error) => {
            tracing::error!("upgrade failed, this process continues to serve: {error}");
        }
    }
    taken_over
}

/// Returns the addresses of files, and of metrics and health.
pub(super) fn status(server: &FileServer) -> String {
    let mut status = format!("serving on {}", place(&server.addresses()));
    if let Some(monitoring) = monitoring(&server.running().operator_addresses()) {
        status.push_str(&format!("; {monitoring}"));
    }
    status
}
