//! What is shown of a transfer: lines for the other side, events, and the progress.

use std::io::{IsTerminal, stderr};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use underpass_sendrecv::{
    Item, ItemKind, Security, Ticket, TransferEvent, TransferProgress, shown,
};

use super::arguments::TransferArguments;
use crate::console::{say, say_error};
use crate::layout::counted;

/// The interval between updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// Returns the lines that lead to a waiting receiver.
pub(super) fn receiver_lines(ticket: &Ticket, folder: &Path) -> String {
    let curl = address(ticket).map(|address| {
        let url = url(ticket, address);
        format!("\n  curl {}-T FILE {url}", pinned(ticket))
    });
    format!(
        "receiving into {}; on the other machine:\n  underpass send FILE... {ticket}{}",
        folder.display().to_string().escape_debug(),
        curl.unwrap_or_default()
    )
}

/// Returns the lines that lead to a waiting sender.
pub(super) fn sender_lines(ticket: &Ticket, items: &[Item]) -> String {
    let names = items.iter().map(|item| shown(&item.name));
    let mut lines = format!(
        "offering {}; on the other machine:\n  underpass recv {ticket}",
        Vec::from_iter(names).join(", ")
    );
    for item in items {
        if let (ItemKind::File(_), Some(address)) = (&item.kind, address(ticket)) {
            let url = url(ticket, address) + &encoded(&item.name);
            lines += &format!("\n  curl {}-C - -O {url}", pinned(ticket));
        }
    }
    lines
}

fn address(ticket: &Ticket) -> Option<SocketAddr> {
    ticket.sockets().next()
}

fn url(ticket: &Ticket, address: SocketAddr) -> String {
    let scheme = match ticket.security {
        Security::Encrypted { .. } => "https",
        Security::Plain => "http",
    };
    format!("{scheme}://{address}/{}/", ticket.secret.token())
}

fn encoded(name: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    name.bytes()
        .map(|byte| match is_plain(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// Returns the options by which curl recognizes the waiting side. curl checks the key even with
/// `-k`, which is needed because no authority has signed the certificate.
fn pinned(ticket: &Ticket) -> String {
    match &ticket.security {
        Security::Encrypted { key_sha256 } => {
            let pin = STANDARD.encode(key_sha256);
            format!("--fail-with-body -k --pinnedpubkey 'sha256//{pin}' --noproxy '*' ")
        }
        Security::Plain => "--fail-with-body --noproxy '*' ".to_owned(),
    }
}

/// A thread that shows what happens.
pub(super) struct Display {
    over: Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    pub(super) fn start(
        arguments: &TransferArguments,
        progress: &Arc<TransferProgress>,
    ) -> Display {
        let (over, until) = channel();
        let mut shown = Shown::new(arguments, progress);
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
    json: bool,
    explain: bool,
    quiet: bool,
}

impl Shown {
    fn new(arguments: &TransferArguments, progress: &Arc<TransferProgress>) -> Shown {
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
