//! What happens to a server while it runs: it reloads, hands over to a new program, stops.

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use underpass_net::{Notifier, Server, SignalAction, watch_signals};
use underpass_serve::{FileServer, Options, Summary};

use super::greeting::place;
use super::{say, with_advice};

/// Requests to reload or upgrade that wait for the one under way. More of the same add nothing.
const ASKS_MAX: usize = 8;

/// Obeys signals from here on. `options` reads the configuration anew, whatever it consists of.
///
/// A stop is obeyed at once, also while a reload or an upgrade is under way; those are done one
/// after another on a thread of their own.
pub(super) fn obey(
    server: &Arc<FileServer>,
    notifier: &Arc<Notifier>,
    options: impl Fn() -> Result<Options, String> + Send + 'static,
) -> Result<(), String> {
    let (ask, asked) = sync_channel(ASKS_MAX);
    let life = Life {
        server: Arc::clone(server),
        notifier: Arc::clone(notifier),
        options,
    };
    thread::Builder::new()
        .name("life".into())
        .spawn(move || life.go_on(&asked))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    watch_signals(pass_on(server, notifier, ask)).map_err(|error| error.to_string())
}

fn pass_on(
    server: &Arc<FileServer>,
    notifier: &Arc<Notifier>,
    ask: SyncSender<SignalAction>,
) -> impl FnMut(SignalAction) + Send + 'static {
    let shutdown = server.running().shutdown();
    let (server, notifier) = (Arc::downgrade(server), Arc::clone(notifier));
    move |asked| match asked {
        SignalAction::Stop => {
            notifier.stopping();
            shutdown.escalate();
        }
        SignalAction::Reopen => {
            if let Some(server) = server.upgrade() {
                server.reopen_log();
            }
        }
        // Where so many wait already one more is the same.
        SignalAction::Reload | SignalAction::Upgrade => {
            let _ = ask.try_send(asked);
        }
    }
}

struct Life<F> {
    server: Arc<FileServer>,
    notifier: Arc<Notifier>,
    options: F,
}

impl<F: Fn() -> Result<Options, String>> Life<F> {
    fn go_on(&self, asked: &Receiver<SignalAction>) {
        for ask in asked {
            match ask {
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
            Err(why) => tracing::error!("not reloaded, going on as before: {why}"),
        }
        self.notifier.ready(&status);
    }

    /// The same arguments for the file that this program was started from, which may be another
    /// one by now.
    fn upgrade(&self) {
        let mut arguments = env::args_os();
        let mut command = Command::new(arguments.next().unwrap_or_else(|| "underpass".into()));
        command.args(arguments);
        let upgraded = self.server.running().upgrade(command, |successor| {
            self.notifier.succeeded_by(successor.id());
            say(&format!(
                "process {} has taken over; this one ends with its last answer",
                successor.id()
            ));
        });
        if let Err(error) = upgraded {
            tracing::error!("not upgraded, going on as before: {error}");
        }
    }
}

pub(super) fn status(server: &Server<Summary>) -> String {
    format!("serving on {}", place(&server.addresses()))
}
