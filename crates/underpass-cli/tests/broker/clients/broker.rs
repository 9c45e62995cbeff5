//! The broker under test.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;
use underpass_testkit::{ChildProcess, run};

use super::oracle::{Kafka, faults};

/// A broker that a test may stop and start.
#[derive(Debug)]
pub(crate) enum Broker {
    /// This project's broker.
    Underpass(Underpass),
    /// Kafka, if `UNDERPASS_TEST_BROKER` is `kafka`: it shows that the tests expect Kafka's
    /// behaviour.
    Kafka(Kafka),
}

/// This project's broker in a temporary folder.
#[derive(Debug)]
pub(crate) struct Underpass {
    home: TempDir,
    port: u16,
    options: Vec<String>,
    process: Option<ChildProcess>,
}

impl Broker {
    pub(crate) fn start() -> Broker {
        match env::var("UNDERPASS_TEST_BROKER").as_deref() {
            Ok("kafka") => Broker::Kafka(Kafka::start()),
            _ => Broker::with(&[]),
        }
    }

    /// Starts this project's broker with more options.
    pub(crate) fn with(options: &[&str]) -> Broker {
        let mut broker = Underpass::new(options);
        broker.resume();
        Broker::Underpass(broker)
    }

    /// Starts this project's broker with a copy of another one's folder.
    pub(crate) fn with_folder_of(data: &Path) -> Broker {
        let mut broker = Underpass::new(&[]);
        let mut copy = Command::new("cp");
        run(copy.arg("-r").arg(data).arg(broker.data())).assert_success();
        // The metadata log of Kafka's controller means nothing to other brokers.
        fs::remove_dir_all(broker.data().join("__cluster_metadata-0")).unwrap();
        broker.resume();
        Broker::Underpass(broker)
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Broker::Underpass(broker) => format!("127.0.0.1:{}", broker.port),
            Broker::Kafka(kafka) => kafka.address(),
        }
    }

    /// Stops it cleanly.
    pub(crate) fn stop(&mut self) {
        match self {
            Broker::Underpass(broker) => broker.stop(),
            Broker::Kafka(kafka) => kafka.stop(),
        }
    }

    pub(crate) fn kill(&mut self) {
        match self {
            Broker::Underpass(broker) => broker.process.take().unwrap().kill(),
            Broker::Kafka(kafka) => kafka.kill(),
        }
    }

    /// Restarts it with the same folder and port, and waits until it is up.
    pub(crate) fn resume(&mut self) {
        match self {
            Broker::Underpass(broker) => broker.resume(),
            Broker::Kafka(kafka) => kafka.resume(),
        }
    }

    /// Returns the folder that has a subfolder for each partition.
    pub(crate) fn data(&self) -> PathBuf {
        match self {
            Broker::Underpass(broker) => broker.data(),
            Broker::Kafka(kafka) => kafka.data(),
        }
    }

    /// Stops it and has Kafka's own tool check its files.
    pub(crate) fn end(mut self) {
        self.stop();
        assert_eq!(faults(&self.data()), [""; 0]);
    }
}

impl Underpass {
    fn new(options: &[&str]) -> Underpass {
        let home = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        Underpass {
            home,
            port,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            process: None,
        }
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn resume(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_underpass"));
        command
            .arg("broker")
            .arg(self.data())
            .args(["--port", &self.port.to_string(), "--partitions", "4"])
            .args(&self.options)
            .stdin(Stdio::null());
        let process = ChildProcess::spawn(&mut command);
        process.hear("press Ctrl-C");
        self.process = Some(process);
    }

    /// Ends it with SIGTERM. It must have logged no warning, except about adopted topics and, if it
    /// has a certificate, about unknown clients.
    fn stop(&mut self) {
        let process = self.process.take().unwrap();
        process.signal(Signal::TERM);
        let report = process.end();
        report.assert_success();
        let mut lines = report.errors.lines();
        let has_strangers = self.options.iter().any(|option| option == "--cert");
        let is_expected =
            |line: &&str| line.contains("it is adopted") || has_strangers && line.contains("TLS");
        let complaint = lines.find(|line| !is_expected(line));
        assert_eq!(complaint, None);
    }
}
