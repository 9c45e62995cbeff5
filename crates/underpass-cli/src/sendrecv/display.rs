//! Shows a transfer: its events and its progress.

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use underpass_sendrecv::{TransferEvent, TransferProgress, shown};

use super::arguments::TransferArguments;
use super::invitation::InvitationLines;
use crate::console::{say, say_error};
use crate::layout::counted;

/// The interval between updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// A thread that shows what happens.
pub(super) struct Display {
    over: Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    pub(super) fn start(
        arguments: &TransferArguments,
        progress: &Arc<TransferProgress>,
        invitation: Option<InvitationLines>,
    ) -> Display {
        let (over, until) = channel();
        let mut shown = Shown::new(arguments, progress, invitation);
        let thread = thread::Builder::new()
            .name("progress".into())
            .spawn(move || {
                loop {
                    match until.recv_timeout(INTERVAL) {
                        Err(RecvTimeoutError::Timeout) => shown.update(),
                        Ok(is_complete) => return shown.finish(is_complete),
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            });
        Display {
            over,
            // Nothing is shown where no thread can be started.
            thread: thread.ok(),
        }
    }

    /// Shows the end.
    pub(super) fn finish(self, is_complete: bool) {
        let _ = self.over.send(is_complete);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

struct Shown {
    progress: Arc<TransferProgress>,
    bar: ProgressBar,
    begun: Instant,
    /// The lines for the other side, on a waiting side.
    invitation: Option<InvitationLines>,
    json: bool,
    explain: bool,
    quiet: bool,
}

impl Shown {
    fn new(
        arguments: &TransferArguments,
        progress: &Arc<TransferProgress>,
        invitation: Option<InvitationLines>,
    ) -> Shown {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let draws = stderr().is_terminal() && !is_dumb && !arguments.quiet && !arguments.json;
        let bar = match draws {
            true => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Shown {
            progress: Arc::clone(progress),
            bar,
            begun: Instant::now(),
            invitation,
            json: arguments.json,
            explain: arguments.explain,
            quiet: arguments.quiet,
        }
    }

    fn update(&mut self) {
        for event in self.progress.take_events() {
            self.show(&event);
        }
        let (bytes, total) = (self.bytes(), self.progress.total.load(Relaxed));
        self.bar.set_position(bytes);
        if bytes == 0 {
            return;
        }
        let rate = self.bar.per_sec() as u64;
        let mut line = format!("{}/s, {}", HumanBytes(rate), HumanBytes(bytes));
        if total > 0 {
            self.bar.set_length(total.max(bytes));
            line += &format!(" of {}", HumanBytes(total));
            if rate > 0 {
                line += &format!(", {:#} left", HumanDuration(self.bar.eta()));
            }
        }
        self.bar.set_message(line);
    }

    fn bytes(&self) -> u64 {
        self.progress.bytes.load(Relaxed)
    }

    fn show(&self, event: &TransferEvent) {
        let value = match event {
            TransferEvent::Connected(peer) => json!({"event": "connected", "peer": peer}),
            TransferEvent::Continued { name, bytes } => {
                json!({"event": "continued", "name": name, "bytes": bytes})
            }
            TransferEvent::Complete { name, bytes } => {
                json!({"event": "complete", "name": name, "bytes": bytes})
            }
            TransferEvent::Sent { name, bytes } => {
                json!({"event": "sent", "name": name, "bytes": bytes})
            }
            TransferEvent::Lost(why) => json!({"event": "lost", "why": why}),
            TransferEvent::Rejected(peer) => json!({"event": "rejected", "peer": peer}),
            TransferEvent::Code(code) => {
                let sockets = self
                    .invitation
                    .iter()
                    .flat_map(|lines| lines.ticket.sockets());
                let addresses = Vec::from_iter(sockets.map(|address| address.to_string()));
                json!({"event": "code", "code": &**code.text(), "addresses": addresses})
            }
            TransferEvent::WrongCode { peer, delay } => {
                json!({"event": "wrong_code", "peer": peer, "delay": delay.as_secs()})
            }
            TransferEvent::Warning(text) => json!({"event": "warning", "text": text}),
        };
        if self.json {
            return say(&value.to_string());
        }
        let line = match event {
            TransferEvent::Connected(_)
            | TransferEvent::Complete { .. }
            | TransferEvent::Continued { .. }
                if self.quiet =>
            {
                return;
            }
            TransferEvent::Connected(peer) => format!("connected to {peer}"),
            TransferEvent::Continued { name, bytes } => {
                format!("{}: {} are there already", shown(name), HumanBytes(*bytes))
            }
            TransferEvent::Complete { name, bytes } => {
                format!("{}: complete, {}", shown(name), HumanBytes(*bytes))
            }
            TransferEvent::Sent { name, bytes } => {
                format!("{}: sent, {}", shown(name), HumanBytes(*bytes))
            }
            TransferEvent::Lost(why) => format!("{}; connecting again", shown(why)),
            TransferEvent::Rejected(peer) => {
                format!("rejected {peer}: it does not have the ticket")
            }
            TransferEvent::Code(code) => {
                let lines = self.invitation.as_ref().map(|lines| lines.of_code(code));
                return self.bar.suspend(|| say(&lines.unwrap_or_default()));
            }
            TransferEvent::WrongCode { peer, delay } => format!(
                "{peer} tried a wrong code, and the code is used up; another one in {} s",
                delay.as_secs()
            ),
            TransferEvent::Warning(text) => format!("warning: {}", shown(text)),
        };
        self.bar.suspend(|| say_error(&line));
    }

    fn finish(mut self, is_complete: bool) {
        self.update();
        self.bar.finish_and_clear();
        let (bytes, files) = (self.bytes(), self.progress.files.load(Relaxed));
        let seconds = self.begun.elapsed().as_secs_f64();
        let account = self.progress.account();
        if self.json {
            let account = serde_json::to_value(&account).unwrap_or_default();
            let end = json!({
                "event": "end", "complete": is_complete, "bytes": bytes, "items": files,
                "seconds": seconds, "account": account,
            });
            return say(&end.to_string());
        }
        if is_complete && !self.quiet {
            let (items, bytes) = (counted(files, "item"), HumanBytes(bytes));
            say_error(&format!("{items}, {bytes}"));
        }
        if self.explain {
            say_error(&account.to_string());
        }
    }
}
