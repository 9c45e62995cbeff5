//! The broker under test.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use underpass_testkit::{ExitReport, ServerProcess, disk_folder, strace, wait_until};

use crate::support::client::Client;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_underpass");

/// The error code of KAFKA_STORAGE_ERROR.
pub(crate) const STORAGE_ERROR: i16 = 56;

/// The offset of the records in a batch; the bytes before them depend on its creation time.
pub(crate) const RECORDS_AT: usize = 61;

/// `underpass broker` on 127.0.0.1, in a temporary folder.
#[derive(Debug)]
pub(crate) struct Broker {
    process: ServerProcess,
    folder: TempDir,
}

impl Broker {
    /// Starts a broker in a new folder on a disk.
    #[track_caller]
    pub(crate) fn start(options: &[&str]) -> Broker {
        Broker::by(Command::new(BINARY), disk_folder(), options)
    }

    /// Starts a broker in a folder left by another one.
    #[track_caller]
    pub(crate) fn start_in(folder: TempDir, options: &[&str]) -> Broker {
        Broker::by(Command::new(BINARY), folder, options)
    }

    /// Starts a broker through a program whose arguments end with the path of the binary.
    #[track_caller]
    pub(crate) fn by(mut tool: Command, folder: TempDir, options: &[&str]) -> Broker {
        tool.arg("broker")
            .arg(folder.path().join("data"))
            .args(["--workers", "1", "--listen", "127.0.0.1:0"])
            .args(options)
            .stdin(Stdio::null());
        let process = ServerProcess::spawn(&mut tool);
        Broker { process, folder }
    }

    /// Returns a command that traces the binary into `log`, with expressions of strace's `-e`.
    pub(crate) fn tracer(log: &Path, expressions: &[&str]) -> Command {
        let mut tool = strace(log, expressions);
        tool.args(["-yy", BINARY]);
        tool
    }

    /// Returns the first address it listens on.
    #[track_caller]
    pub(crate) fn address(&self) -> SocketAddr {
        tcp_addresses(self.greeting())[0]
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Returns its resident memory in bytes.
    #[track_caller]
    pub(crate) fn resident_bytes(&self) -> f64 {
        self.process.resident_bytes() as f64
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns its start-up message.
    pub(crate) fn greeting(&self) -> &str {
        self.process.greeting()
    }

    /// Waits for a line of its log.
    #[track_caller]
    pub(crate) fn hear(&self, words: &str) -> String {
        self.process.hear(words)
    }

    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Returns the process that serves.
    pub(crate) fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Starts a successor, which receives the signals from here on, and returns the process ID of
    /// its predecessor.
    #[track_caller]
    pub(crate) fn hand_over(&mut self) -> Pid {
        let predecessor = self.process.pid();
        self.process.upgrade();
        predecessor
    }

    /// Starts a successor, waits until it serves, and returns its process ID.
    #[track_caller]
    pub(crate) fn upgrade(&mut self) -> Pid {
        self.hand_over();
        self.process.hear("stopped: all is synced");
        self.process.hear("serving ");
        self.process.pid()
    }

    /// Stops it, and returns its exit report and its folder.
    #[track_caller]
    pub(crate) fn stop(self) -> (ExitReport, TempDir) {
        let report = self.process.stop();
        assert!(!report.errors.contains("panicked"), "{report:?}");
        (report, self.folder)
    }

    /// Kills it and its tracer, whose delays would keep it alive, and returns its folder.
    #[track_caller]
    pub(crate) fn kill_traced(self) -> TempDir {
        let program = format!("/proc/{}/exe", self.process.pid().as_raw_nonzero());
        drop(self.process);
        wait_until("end", || fs::read_link(&program).is_err());
        self.folder
    }

    /// Kills it, and returns its folder.
    #[track_caller]
    pub(crate) fn kill(self) -> TempDir {
        self.process.signal(Signal::KILL);
        self.process.end();
        self.folder
    }
}

/// Returns the addresses in a greeting, `serving … on ADDRESS, ADDRESS`.
#[track_caller]
pub(crate) fn tcp_addresses(greeting: &str) -> Vec<SocketAddr> {
    let (_, addresses) = greeting
        .lines()
        .next()
        .unwrap()
        .rsplit_once(" on ")
        .unwrap();
    let addresses = addresses.split(", ").map(str::parse);
    addresses.filter_map(Result::ok).collect()
}

/// Starts a broker in the folder `data` of a file system or folder.
#[track_caller]
pub(crate) fn start_in(folder: &Path, fsync: &str) -> (ServerProcess, Client) {
    let mut command = Command::new(BINARY);
    command
        .args(["broker", "-l", "127.0.0.1:0", "--fsync", fsync])
        .arg(folder.join("data"))
        .stdin(Stdio::null());
    let broker = ServerProcess::spawn(&mut command);
    let client = Client::connect(tcp_addresses(broker.greeting())[0]);
    (broker, client)
}
