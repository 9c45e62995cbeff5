//! `underpass broker [DIR]`: runs the Kafka-compatible broker until it ends.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use underpass_broker::{BrokerOptions, FsyncPolicy, RunningBroker, user_lines};
use underpass_net::{
    Address, EarlySignals, Inherited, Notifier, ShutdownPhase, SignalAction,
    command_of_this_process,
};

mod arguments;
mod check;

pub(crate) use arguments::BrokerArguments;

use arguments::BrokerTool;

use crate::console::say;
use crate::layout::{counted, monitoring, print_result};
use crate::passwords::typed_password;

/// The interval at which certificate files are read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Serves until a signal ends it.
///
/// # Errors
/// A message for the user: what failed, why and what to try.
pub(crate) fn run(arguments: &BrokerArguments) -> Result<(), String> {
    match &arguments.tool {
        Some(BrokerTool::Check(check)) => return check::run(check),
        Some(BrokerTool::Hash(user)) => {
            let password = typed_password(&user.name)?;
            return print_result(&user_lines(&user.name, &password)?);
        }
        None => {}
    }
    let signals = EarlySignals::keep().map_err(|error| error.to_string())?;
    let (inherited, predecessor) = Inherited::take().map_err(|error| error.to_string())?;
    let options = match arguments.options() {
        Ok(options) => options,
        Err(why) => {
            if let Some(predecessor) = predecessor {
                predecessor.report_failure(&why);
            }
            return Err(why);
        }
    };
    let is_successor = predecessor.is_some();
    let broker = underpass_broker::start(options.clone(), inherited, predecessor);
    let broker = Arc::new(broker.map_err(|error| with_advice(&error))?);
    let notifier = Arc::new(Notifier::from_environment());
    handle_signals(signals, &broker, &notifier, arguments.clone())?;
    say(&greeting(&options, &broker));
    // The predecessor has reported the new main process to the service manager.
    if !is_successor {
        notifier.ready(&format!("serving on {}", place(&broker)));
    }
    let stopped = broker.join().map(|()| say("stopped: all is synced"));
    stopped.map_err(|error| {
        format!("stopped, but not in order: the next start reads the whole data folder: {error}")
    })
}

fn place(broker: &RunningBroker) -> String {
    let addresses = broker.server().addresses();
    let shown = addresses.iter().map(Address::to_string);
    Vec::from_iter(shown).join(", ")
}

fn greeting(options: &BrokerOptions, broker: &RunningBroker) -> String {
    let topics = counted(broker.topics() as u64, "topic");
    let data = options.data.display();
    let mut lines = vec![format!("serving {topics} in {data} on {}", place(broker))];
    lines.extend(monitoring(&broker.server().operator_addresses()));
    let survival = match options.fsync {
        FsyncPolicy::Acks => {
            "records acknowledged with acks=all survive a power failure".to_owned()
        }
        FsyncPolicy::Interval => {
            "a power failure loses at most the last second of records".to_owned()
        }
        FsyncPolicy::Never => {
            "a power failure loses what the kernel has not written yet".to_owned()
        }
    };
    lines.push(match broker.sync_time() {
        Ok(time) => format!(
            "{survival}; one sync of this disk takes {:.1} ms",
            time.as_secs_f64() * 1e3
        ),
        Err(error) => format!("{survival}; a sync fails: {error}"),
    });
    if rustix::process::geteuid().is_root() {
        lines.push("warning: running as root, which a broker does not need".to_owned());
    }
    lines.push("press Ctrl-C to stop".to_owned());
    lines.join("\n")
}

fn handle_signals(
    signals: EarlySignals,
    broker: &Arc<RunningBroker>,
    notifier: &Arc<Notifier>,
    arguments: BrokerArguments,
) -> Result<(), String> {
    let (sender, actions) = channel();
    let (weak, notified) = (Arc::downgrade(broker), Arc::clone(notifier));
    let thread = thread::Builder::new().name("signals".into());
    let look_after = move || {
        let mut successor = None;
        loop {
            let action = actions.recv_timeout(REFRESH_INTERVAL);
            let Some(broker) = weak.upgrade() else {
                return;
            };
            match (action, successor) {
                (Ok(_), Some(id)) => tracing::warn!(
                    "process {id} has taken over: signals for a reload or an upgrade go to it"
                ),
                (Ok(BrokerAction::Reload), None) => reload(&broker, &notified, &arguments),
                (Ok(BrokerAction::Upgrade), None) => successor = upgrade(&broker, &notified),
                (Err(RecvTimeoutError::Timeout), _) => {
                    if let Err(error) = broker.refresh_certificates() {
                        tracing::warn!("the certificates in use are kept: {error}");
                    }
                }
                (Err(RecvTimeoutError::Disconnected), _) => return,
            }
        }
    };
    let failed = |error: io::Error| format!("cannot start a thread: {error}");
    thread.spawn(look_after).map_err(failed)?;
    let (shutdown, notifier) = (broker.server().shutdown(), Arc::clone(notifier));
    let obey = move |action| match action {
        SignalAction::Stop => {
            notifier.stopping();
            shutdown.escalate();
        }
        SignalAction::Reload => drop(sender.send(BrokerAction::Reload)),
        SignalAction::Reopen => {}
        SignalAction::Upgrade => drop(sender.send(BrokerAction::Upgrade)),
    };
    signals.watch(obey).map_err(|error| error.to_string())
}

/// An action that takes too long for the signal thread.
enum BrokerAction {
    Reload,
    Upgrade,
}

/// Starts the program's file, which may have been replaced, with the same arguments, and stops.
/// Returns the new process once it has the listeners.
fn upgrade(broker: &RunningBroker, notifier: &Notifier) -> Option<u32> {
    let mut taken_over = None;
    let upgraded = broker.upgrade(command_of_this_process(), |successor| {
        let id = successor.id();
        taken_over = Some(id);
        notifier.succeeded_by(id);
        say(&format!(
            "process {id} has taken over the listeners; this one syncs and ends"
        ));
    });
    match upgraded {
        Ok(()) => {}
        Err(error) if broker.server().shutdown().phase() != ShutdownPhase::Running => {
            tracing::warn!("no upgrade: {error}");
        }
        Err(error) => {
            tracing::error!("upgrade failed, this process continues to serve: {error}");
        }
    }
    taken_over
}

fn reload(broker: &RunningBroker, notifier: &Notifier, arguments: &BrokerArguments) {
    notifier.reloading();
    let outcome = arguments.options().and_then(|options| {
        let reloaded = broker.reload(&options);
        reloaded.map_err(|error| with_advice(&error))
    });
    let status = format!("serving on {}", place(broker));
    match outcome {
        Ok(()) => say(&format!("reloaded; {status}")),
        Err(why) => {
            tracing::error!("reload failed, the previous configuration stays in effect: {why}");
        }
    }
    notifier.ready(&status);
}

fn with_advice(error: &underpass_broker::BrokerError) -> String {
    use underpass_broker::BrokerError;
    match error {
        BrokerError::Net(net) if net.is_about(&default_listener()) => {
            format!("{error}; is another broker running? choose another port with --port")
        }
        BrokerError::Log(log) if log.source().is_some() => {
            format!("cannot use the data folder: {error}")
        }
        _ => error.to_string(),
    }
}

fn default_listener() -> underpass_net::ListenAt {
    let [listener] = &BrokerOptions::default().listeners[..] else {
        unreachable!("there is one");
    };
    listener.at.clone()
}
