//! `underpass serve` as a process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, ExitStatus, id};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::http::{HttpClient, HttpResponse};
use crate::process::{ChildProcess, ExitReport};

/// Returns an address of this machine on which nothing listens, for a program that cannot report
/// its port. Its IP is unique to this call: another test may be given the same port.
pub fn free_address() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = id().to_be_bytes();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let ip = Ipv4Addr::new(127, high | 0x80, low, call);
    let listener = TcpListener::bind((ip, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

/// A running server; dropping it kills it, and its successors.
#[derive(Debug)]
pub struct ServerProcess {
    process: ChildProcess,
    /// The server itself: it may be the child of a tracer, or a successor.
    server: Pid,
    greeting: String,
}

impl ServerProcess {
    /// Starts a server on a free port of 127.0.0.1. `tool` starts the binary, directly or through
    /// another program.
    #[track_caller]
    pub fn serve(mut tool: Command, options: &[&str], folder: &Path) -> Self {
        let serve = tool.args(["serve", "--listen", "127.0.0.1:0"]);
        Self::spawn(serve.args(options).arg(folder))
    }

    /// Runs a command line unchanged; returns when the server accepts connections.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        let process = ChildProcess::spawn(command);
        // The last line of the greeting.
        process.hear("press Ctrl-C to stop");
        Self {
            server: process.traced_pid(),
            greeting: process.said(),
            process,
        }
    }

    /// Returns the text that the server printed when it started, on standard error if standard
    /// output has its log.
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// Returns the first TCP address of the greeting.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        let (_, rest) = self.greeting.split_once("://").expect("an address");
        let address = rest.split(['/', ' ', '\n']).next().unwrap_or_default();
        address.parse().expect("an address")
    }

    /// Returns the URL of a file.
    #[track_caller]
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address())
    }

    /// Opens a connection.
    #[track_caller]
    pub fn connect(&self) -> HttpClient {
        HttpClient::connect(self.address())
    }

    /// Sends a request on a new connection.
    #[track_caller]
    pub fn get(&self, target: &str) -> HttpResponse {
        self.connect().get(target)
    }

    /// Returns the server's process.
    pub fn pid(&self) -> Pid {
        self.server
    }

    /// Sends a signal to the server.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.server, signal).expect("it runs");
    }

    /// Waits for a line with `words`, and returns it.
    #[track_caller]
    pub fn hear(&self, words: &str) -> String {
        self.process.hear(words)
    }

    /// Reloads the configuration.
    #[track_caller]
    pub fn reload(&self) {
        self.signal(Signal::HUP);
        self.hear("reloaded; ");
    }

    /// Starts a successor, which receives the signals from here on.
    #[track_caller]
    pub fn upgrade(&mut self) {
        self.signal(Signal::USR2);
        let line = self.hear("has taken over");
        let pid = line.split_whitespace().nth(1);
        let pid = pid.and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        self.server = pid.expect("the number of the successor");
    }

    /// Returns whether the process that was started has ended.
    pub fn is_over(&mut self) -> bool {
        self.process.is_over()
    }

    /// Waits for the end of the process that was started; its successors may continue.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// Returns the number of open descriptors of the server.
    #[track_caller]
    pub fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.server.as_raw_nonzero());
        fs::read_dir(folder).expect("it runs").count()
    }

    /// Returns the resident memory of the server in bytes.
    #[track_caller]
    pub fn resident_bytes(&self) -> usize {
        let status = format!("/proc/{}/status", self.server.as_raw_nonzero());
        let status = fs::read_to_string(status).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
        let kibibytes = kibibytes.and_then(|count| count.parse::<usize>().ok());
        kibibytes.expect("a number") << 10
    }

    /// Waits for an end that something else has caused.
    #[track_caller]
    pub fn end(self) -> ExitReport {
        self.process.end()
    }

    /// Stops the server by SIGTERM.
    #[track_caller]
    pub fn stop(self) -> ExitReport {
        self.signal(Signal::TERM);
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that prints the server's greeting, and ends at SIGTERM.
    fn stand_in(also: &str) -> ServerProcess {
        let greet = "echo serving http://127.0.0.1:4711/; echo press Ctrl-C to stop";
        let script = format!("trap 'exit 7' TERM; {also} {greet}; while :; do :; done");
        ServerProcess::spawn(Command::new("sh").args(["-c", &script]))
    }

    #[test]
    fn it_is_ready_behind_its_greeting_and_stops_by_a_signal() {
        let server = stand_in("");
        assert_eq!(server.address(), SocketAddr::from(([127, 0, 0, 1], 4711)));
        assert_eq!(server.url("f"), "http://127.0.0.1:4711/f");
        assert!(server.descriptors() > 0 && server.resident_bytes() > 0);
        let report = server.stop();
        assert_eq!((report.code, &report.output[..]), (Some(7), ""));
    }

    #[test]
    fn the_successor_gets_the_signals() {
        // The successor reports itself: before that, it may still have the traps of the first one.
        let starts =
            r#"trap 'sh -c "echo process \$\$ has taken over; exec sleep 600" & exit 3' USR2;"#;
        let mut server = stand_in(starts);
        let before = server.pid();
        server.upgrade();
        assert_ne!(server.pid(), before);
        assert_eq!(server.wait().code(), Some(3));
        assert!(server.stop().output.is_empty());
    }
}
