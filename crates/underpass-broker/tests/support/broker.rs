//! A broker in a separate process of the test program, so that a panic ends it and its memory can
//! be measured.

use std::io::{PipeWriter, pipe};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Stdio, abort};
use std::{env, fs, panic, thread};

use tempfile::TempDir;
use underpass_broker::BrokerOptions;
use underpass_net::{Inherited, ListenAt, ShutdownPhase};
use underpass_testkit::{ChildProcess, rerun};

use crate::support::client::Client;

/// The test that runs the broker if this variable names its folder.
const TEST: &str = "broker_process";
const FOLDER: &str = "UNDERPASS_TEST_BROKER_FOLDER";

/// The configuration of the broker, if it has one.
const CONFIG: &str = "UNDERPASS_TEST_BROKER_CONFIG";

/// The text that the broker prints before its address.
const GREETING: &str = "listening on ";

/// A running broker. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct BrokerProcess {
    process: ChildProcess,
    pub(crate) address: SocketAddr,
    /// The broker stops when this is closed.
    stop: PipeWriter,
    folder: TempDir,
}

impl BrokerProcess {
    #[track_caller]
    pub(crate) fn start() -> BrokerProcess {
        BrokerProcess::start_in(tempfile::tempdir().expect("a folder"))
    }

    /// Starts a broker on the folder of an earlier one.
    #[track_caller]
    pub(crate) fn start_in(folder: TempDir) -> BrokerProcess {
        BrokerProcess::start_with(folder, "")
    }

    /// Starts a broker with a configuration.
    #[track_caller]
    pub(crate) fn start_with(folder: TempDir, config: &str) -> BrokerProcess {
        let (input, stop) = pipe().expect("a pipe");
        let mut command = rerun("", TEST);
        command.env(FOLDER, folder.path()).stdin(Stdio::from(input));
        command.env(CONFIG, config);
        let process = ChildProcess::spawn(&mut command);
        let line = process.hear(GREETING);
        let address = line.rsplit(' ').next().and_then(|word| word.parse().ok());
        BrokerProcess {
            process,
            address: address.expect("an address"),
            stop,
            folder,
        }
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Returns its data folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits for a line of its log.
    #[track_caller]
    pub(crate) fn hear(&self, words: &str) -> String {
        self.process.hear(words)
    }

    /// Returns its peak memory, in bytes.
    #[track_caller]
    pub(crate) fn peak_bytes(&self) -> usize {
        let status = format!("/proc/{}/status", self.process.pid().as_raw_nonzero());
        let status = fs::read_to_string(status).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
        let kibibytes = kibibytes.and_then(|count| count.parse::<usize>().ok());
        kibibytes.expect("a number") << 10
    }

    /// Checks that a well-behaved client is served, that the peak memory is at most `bytes_max`,
    /// and that the broker ends cleanly without a panic.
    #[track_caller]
    pub(crate) fn end_well(self, bytes_max: usize) {
        self.connect().behave();
        let bytes = self.peak_bytes();
        assert!(bytes <= bytes_max, "it has had {} MiB", bytes >> 20);
        self.stop();
    }

    /// Kills it; returns its folder.
    pub(crate) fn kill(self) -> TempDir {
        self.process.kill();
        self.folder
    }

    /// Stops it; returns its folder.
    #[track_caller]
    pub(crate) fn stop(self) -> TempDir {
        self.stop_and_read().0
    }

    /// Stops it; returns its folder and its log output.
    #[track_caller]
    pub(crate) fn stop_and_read(self) -> (TempDir, String) {
        drop(self.stop);
        let report = self.process.end();
        assert_eq!(report.code, Some(0), "{report:#?}");
        assert!(!report.errors.contains("panicked"), "{report:#?}");
        (self.folder, report.errors)
    }
}

/// Runs a broker until its standard input is closed, if the environment asks for it.
pub(crate) fn run_if_asked() {
    let Some(folder) = env::var_os(FOLDER) else {
        return;
    };
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        report(what);
        abort();
    }));
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .init();
    let broker = underpass_broker::start(options(Path::new(&folder)), Inherited::default(), None)
        .expect("a broker");
    let address = &broker.server().addresses()[0];
    println!("{GREETING}{address}");
    let shutdown = broker.server().shutdown();
    thread::spawn(move || {
        let _closed = std::io::read_to_string(std::io::stdin());
        shutdown.advance(ShutdownPhase::Now);
    });
    broker.join().expect("a clean end");
}

fn options(folder: &Path) -> BrokerOptions {
    let config = env::var(CONFIG).unwrap_or_default();
    let mut options = BrokerOptions::parse(&config).expect("a configuration");
    if !config.contains("[[listener]]") {
        options.listeners = vec![ListenAt::from(SocketAddr::from(([127, 0, 0, 1], 0))).into()];
    }
    options.data = folder.to_owned();
    options.workers = 2.try_into().ok();
    options.topics.partitions = 4;
    options.groups.initial_rebalance_delay_ms = 0;
    options.cleaner.backoff_ms = 20;
    options
}
