//! Kafka itself: a broker in a temporary folder, and its check of a log's files.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use tempfile::TempDir;
use underpass_testkit::{ChildProcess, run};

use super::installed::java;

/// A broker of Kafka 4.3.1 that is its own controller.
#[derive(Debug)]
pub(crate) struct Kafka {
    home: TempDir,
    port: u16,
    process: Option<ChildProcess>,
}

impl Kafka {
    /// Starts a broker with an empty folder, and waits until it is up.
    pub(crate) fn start() -> Kafka {
        let home = tempfile::tempdir().unwrap();
        let [port, controller_port] = free_ports();
        let mut kafka = Kafka {
            home,
            port,
            process: None,
        };
        fs::write(kafka.properties(), kafka.configuration(controller_port)).unwrap();
        let mut format = java("kafka.tools.StorageTool");
        format.args(["format", "--cluster-id", "4L6g3nShT-eMCtK--X86sw"]);
        run(format.arg("--config").arg(kafka.properties())).assert_success();
        kafka.resume();
        kafka
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stops it cleanly, so that its files can be inspected; [`Kafka::resume`] starts it again.
    pub(crate) fn stop(&mut self) {
        let process = self.process.take().unwrap();
        process.signal(Signal::TERM);
        process.end();
    }

    pub(crate) fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// Restarts it with the same folder and port, and waits until it is up.
    pub(crate) fn resume(&mut self) {
        let mut command = java("kafka.Kafka");
        let process = ChildProcess::spawn(command.arg(self.properties()).stdin(Stdio::null()));
        process.hear("Kafka Server started");
        self.process = Some(process);
    }

    /// Returns the folder that has a subfolder for each partition.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn properties(&self) -> PathBuf {
        self.home.path().join("server.properties")
    }

    fn configuration(&self, controller_port: u16) -> String {
        let (address, data) = (self.address(), self.data());
        format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller_port}\n\
             listeners=PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller_port}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
             log.dirs={}\n\
             num.partitions=4\n\
             offsets.topic.replication.factor=1\n\
             group.initial.rebalance.delay.ms=0\n",
            data.display()
        )
    }
}

/// Returns two ports that were free just now.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Runs Kafka's `DumpLogSegments` on the log and index files of every partition below a folder that
/// no broker has open, and returns its complaints, one per line.
pub(crate) fn faults(data: &Path) -> Vec<String> {
    let logs = files(data, "log");
    assert!(!logs.is_empty(), "no log in {}", data.display());
    let mut faults = dump(&logs, "--deep-iteration");
    let indexes = [files(data, "index"), files(data, "timeindex")].concat();
    faults.extend(dump(&indexes, "--index-sanity-check"));
    faults.extend(dump(&indexes, "--verify-index-only"));
    faults
}

/// Returns the partitions' files with this extension, without the controller's metadata log.
fn files(data: &Path, extension: &str) -> Vec<String> {
    let folders = fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let partitions = folders.filter(|folder| {
        let is_metadata = folder.ends_with("__cluster_metadata-0");
        folder.is_dir() && !is_metadata
    });
    let files = partitions.flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|entry| entry.unwrap().path());
    let chosen = paths.filter(|path| path.extension().is_some_and(|it| it == extension));
    let mut names = Vec::from_iter(chosen.map(|path| path.display().to_string()));
    names.sort();
    names
}

/// Strings that the tool prints for damaged files.
const COMPLAINTS: [&str; 8] = [
    "isvalid: false",
    "corrupt",
    "invalid bytes",
    "Mismatches in",
    " is followed by ",
    "out of order timestamp",
    "timestamp mismatch",
    "Exception",
];

/// Printed for every segment but the first of a partition: the tool of Kafka 4.3.1 expects offset 0
/// at the beginning of each file.
const NO_COMPLAINT: &str = "-1 is followed by ";

fn dump(files: &[String], what: &str) -> Vec<String> {
    let mut command = java("org.apache.kafka.tools.DumpLogSegments");
    let report = run(command.arg(what).args(["--files", &files.join(",")]));
    let lines = report.output.lines().chain(report.errors.lines());
    let is_complaint = |line: &&str| {
        let is_one = COMPLAINTS.iter().any(|words| line.contains(words));
        is_one && !line.trim_start().starts_with(NO_COMPLAINT)
    };
    let mut faults = Vec::from_iter(lines.filter(is_complaint).map(str::to_owned));
    if report.code != Some(0) && faults.is_empty() {
        faults.push(format!("{report:?}"));
    }
    faults
}
