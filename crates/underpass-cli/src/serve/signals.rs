//! Signals to a running server: reload, upgrade, reopening the log, stop.

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use underpass_net::{Notifier, Server, SignalAction, watch_signals};
use underpass_serve::{FileServer, ServeSummary, ServerOptions};

use super::advice::with_advice;
use super::banner::{place, say};

/// Reloads and upgrades that may wait for the one in progress. More of the same add nothing.
const QUEUE_MAX: usize = 8;

/// Handles signals from now on. `options` reads the configuration again.
///
/// A stop takes effect at once, even during a reload or an upgrade; these run one after another on
/// a separate thread.
pub(super) fn handle(
    server: &Arc<FileServer>,
    notifier: &Arc<Notifier>,
    options: impl Fn() -> Result<ServerOptions, String> + Send + 'static,
) -> Result<(), String> {
    let (sender, queue) = sync_channel(QUEUE_MAX);
    let handler = SignalHandler {
        server: Arc::clone(server),
        notifier: Arc::clone(notifier),
        options,
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || handler.run(&queue))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    watch_signals(dispatch(server, notifier, sender)).map_err(|error| error.to_string())
}

fn dispatch(
    server: &Arc<FileServer>,
    notifier: &Arc<Notifier>,
    sender: SyncSender<SignalAction>,
) -> impl FnMut(SignalAction) + Send + 'static {
    let shutdown = server.running().shutdown();
    let (server, notifier) = (Arc::downgrade(server), Arc::clone(notifier));
    move |action| match action {
        SignalAction::Stop => {
            notifier.stopping();
            shutdown.escalate();
        }
        SignalAction::Reopen => {
            if let Some(server) = server.upgrade() {
                server.reopen_log();
            }
        }
        // A full queue holds the same requests already.
        SignalAction::Reload | SignalAction::Upgrade => {
            let _ = sender.try_send(action);
        }
    }
}

struct SignalHandler<F> {
    server: Arc<FileServer>,
    notifier: Arc<Notifier>,
    options: F,
}

impl<F: Fn() -> Result<ServerOptions, String>> SignalHandler<F> {
    fn run(&self, queue: &Receiver<SignalAction>) {
        for action in queue {
            match action {
                SignalAction::Reload => self.reload(),
                SignalAction::Upgrade => self.upgrade(),
                SignalAction::Stop | SignalAction::Reopen => {}
            }
        }
    }

    fn reload(&self) {
        self.notifier.reloading();
        let outcome = (self.options)().and_then(|options| {
            self.server
                .reload(&options)
                .map_err(|error| with_advice(&error))
        });
        let status = status(self.server.running());
        match outcome {
            Ok(()) => say(&format!("reloaded; {status}")),
            Err(why) => {
                tracing::error!("reload failed, the previous configuration stays in effect: {why}");
            }
        }
        self.notifier.ready(&status);
    }

    /// Starts the program's file, which may have been replaced, with the same arguments.
    fn upgrade(&self) {
        let mut arguments = env::args_os();
        let mut command = Command::new(arguments.next().unwrap_or_else(|| "underpass".into()));
        command.args(arguments);
        let upgraded = self.server.running().upgrade(command, |successor| {
            self.notifier.succeeded_by(successor.id());
            say(&format!(
                "process {} has taken over; this one exits after its last response",
                successor.id()
            ));
        });
        if let Err(error) = upgraded {
            tracing::error!("upgrade failed, this process continues to serve: {error}");
        }
    }
}

pub(super) fn status(server: &Server<ServeSummary>) -> String {
    format!("serving on {}", place(&server.addresses()))
}
