//! `underpass broker [DIR]`: runs the Kafka-compatible broker until it ends.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use underpass_broker::{BrokerOptions, FsyncPolicy, RunningBroker};
use underpass_net::{Address, Inherited, Notifier, SignalAction, watch_signals};

mod arguments;
mod check;

pub(crate) use arguments::BrokerArguments;

use arguments::BrokerTool;

use crate::console::say;
use crate::layout::{counted, monitoring};

/// The interval at which certificate files are read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Serves until a signal ends it.
///
/// # Errors
/// A message for the user: what failed, why and what to try.
pub(crate) fn run(arguments: &BrokerArguments) -> Result<(), String> {
    if let Some(BrokerTool::Check(check)) = &arguments.tool {
        return check::run(check);
    }
    let options = arguments.options()?;
    let (inherited, _) = Inherited::take().map_err(|error| error.to_string())?;
    let broker = underpass_broker::start(options.clone(), inherited);
    let broker = Arc::new(broker.map_err(|error| with_advice(&error))?);
    let notifier = Arc::new(Notifier::from_environment());
    handle_signals(&broker, &notifier, arguments.clone())?;
    say(&greeting(&options, &broker));
    notifier.ready(&format!("serving on {}", place(&broker)));
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
    broker: &Arc<RunningBroker>,
    notifier: &Arc<Notifier>,
    arguments: BrokerArguments,
) -> Result<(), String> {
    let (sender, reloads) = channel();
    let (weak, notified) = (Arc::downgrade(broker), Arc::clone(notifier));
    let thread = thread::Builder::new().name("reloads".into());
    let look_after = move || {
        loop {
            let asked = match reloads.recv_timeout(REFRESH_INTERVAL) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(broker) = weak.upgrade() else {
                return;
            };
            match asked {
                true => reload(&broker, &notified, &arguments),
                false => {
                    if let Err(error) = broker.refresh_certificates() {
                        tracing::warn!("the certificates in use are kept: {error}");
                    }
                }
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
        SignalAction::Reload => drop(sender.send(())),
        SignalAction::Reopen => {}
        SignalAction::Upgrade => {
            tracing::warn!("a broker hands nothing over: stop it, and start the new one");
        }
    };
    watch_signals(obey).map_err(|error| error.to_string())
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
