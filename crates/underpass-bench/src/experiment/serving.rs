//! Servers side by side: what `http`, `small`, `cold` and `many` share.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use underpass::Mechanism;

use super::ExperimentContext;
use super::sample::{FileResidency, PlaySample, notes_of};
use crate::contender::named::NamedCommand;
use crate::contender::server::{MetricsMode, ServerProcess, ServerSetup};
use crate::contender::server_metrics;
use crate::content;
use crate::document::{Case, Experiment, PayloadPath};
use crate::error::{self, Error, Result};
use crate::load::{
    FileSet, LoadClient, LoadStream, StreamResult, TestFile, verify, verify_resumption,
};
use crate::machine::network;
use crate::machine::proc;
use crate::machine::throttle::DiskThrottle;
use crate::machine::window::observe;
use crate::rounds::contenders::{ContenderList, ContenderSet};
use crate::rounds::interleave::Played;
use crate::tls::TlsSetup;
use crate::tls::options::{TlsLoadOptions, TlsResumption};

const COUNT_INTERVAL: Duration = Duration::from_millis(25);

/// The limit for a server to count its last responses.
const COUNT_TIMEOUT: Duration = Duration::from_secs(2);

/// Each completes "NAME failed …" where a server fails outside of the rounds.
const VERIFIED: &str = "when its responses were compared with the files";
pub(crate) const COUNTED: &str = "while it counted by which mechanisms bodies were sent";

/// Files in the page cache. Less than this may be a part of the server's program that it needs for
/// the first time.
pub(crate) const IN_CACHE: FileResidency = FileResidency::Cached {
    aside_bytes: 256 << 10,
};

/// The file that each server must deliver before anything is measured.
const TRIAL: FileSet = FileSet {
    name: "trial",
    count: 1,
    bytes: 100_003,
};

/// Our own server, with a name and additional arguments.
pub(crate) struct ServerVariant {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    scheme: VariantScheme,
}

/// The scheme of a variant of our server in an experiment with TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VariantScheme {
    Https,
    PlainHttp,
}

/// The contenders, and the terms of their encryption.
pub(crate) struct ServerContenders<'a> {
    pub(crate) own: &'a [ServerVariant],
    pub(crate) others: &'a [NamedCommand],
    pub(crate) tls: Option<(&'a TlsLoadOptions, TlsResumption)>,
}

impl ServerVariant {
    pub(crate) fn new(name: &str, arguments: &[&str]) -> ServerVariant {
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        ServerVariant {
            name: name.to_owned(),
            arguments: arguments.collect(),
            scheme: VariantScheme::Https,
        }
    }

    pub(crate) fn plain() -> ServerVariant {
        ServerVariant::new("underpass", &[])
    }

    pub(crate) fn only(mechanism: Mechanism) -> ServerVariant {
        let name = format!("underpass, {mechanism} only");
        ServerVariant::new(&name, &["--only", mechanism.name()])
    }

    /// The same without TLS in an experiment with it: what a mechanism costs that cannot encrypt.
    pub(crate) fn over_plain_http(self) -> ServerVariant {
        ServerVariant {
            name: format!("{}, plain HTTP", self.name),
            scheme: VariantScheme::PlainHttp,
            ..self
        }
    }
}

/// The servers of an experiment, and the directory that all of them serve.
pub(crate) struct ServerSet {
    site: PathBuf,
    trial: Vec<TestFile>,
    tls: Option<TlsSetup>,
    processor: Option<usize>,
    /// The congestion control of this loopback; `None` where it is the machine's.
    control: Option<String>,
    throttle: Option<DiskThrottle>,
    entries: Vec<ServerEntry>,
    list: ContenderList,
}

/// A server with its setup; running from `ServerSet::run` on.
struct ServerEntry {
    setup: ServerSetup,
    scheme: VariantScheme,
    server: Option<ServerProcess>,
}

impl ServerSet {
    /// Starts all servers, our own ones and then the user's, adds the cases that `play` returns to
    /// the experiment, and stops the servers.
    pub(crate) fn run<C: IntoIterator<Item = Case>>(
        mut experiment: Experiment,
        contenders: ServerContenders<'_>,
        (setting, throttle): (&ExperimentContext, Option<DiskThrottle>),
        play: impl FnOnce(&mut ServerSet) -> Result<C>,
    ) -> Result<Vec<Experiment>> {
        let directory = |what: &str| {
            let path = format!("{}/{what}", experiment.name);
            setting.scratch.subdirectory(&path)
        };
        let site = directory("www")?;
        let tls = match contenders.tls {
            None => None,
            Some((tls, resumption)) => TlsSetup::make(tls, resumption, &directory("tls")?)?,
        };
        if let Some(tls) = &tls {
            let terms = tls.describe();
            experiment.measured += &format!(" Every handshake leads to {terms}.");
        }
        let mut servers = ServerSet {
            trial: TRIAL.make(&site)?,
            site,
            tls,
            processor: setting.processors.contender,
            control: setting.control.map(str::to_owned),
            throttle,
            entries: Vec::new(),
            list: ContenderList::default(),
        };
        let admitted = servers.admit_all(contenders, directory);
        let played = admitted.and_then(|()| {
            let setups = servers.entries.iter().map(|entry| &entry.setup);
            experiment.contenders = setups.map(ServerSetup::entry).collect();
            experiment.rounds = setting.runner.rounds;
            experiment.notes.extend(servers.list.missing());
            experiment.cases.extend(play(&mut servers)?);
            experiment.notes.extend(servers.list.new_failures());
            experiment.left_out = servers.list.left_out();
            Ok(experiment)
        });
        // Each server is stopped whatever the result is.
        let running = servers.entries.into_iter().filter_map(|entry| entry.server);
        let notes = error::notes(running.map(ServerProcess::stop));
        let mut experiment = played?;
        experiment.notes.extend(notes);
        Ok(vec![experiment])
    }

    /// Admits servers that deliver a small file unchanged, and notes why others are left out. Our
    /// own servers must be admitted.
    fn admit_all(
        &mut self,
        contenders: ServerContenders<'_>,
        directory: impl Fn(&str) -> Result<PathBuf>,
    ) -> Result<()> {
        let (variants, others) = (contenders.own, contenders.others);
        for (index, variant) in variants.iter().enumerate() {
            let own = directory(&format!("server-{index}"))?;
            let site = (&*self.site, self.tls_of(variant.scheme));
            let setup = ServerSetup::own((&variant.name, "serve"), &variant.arguments, site, own)?;
            self.admit(setup, variant.scheme)?;
        }
        for (index, named) in others.iter().enumerate() {
            let own = directory(&format!("server-{}", variants.len() + index))?;
            let setup = ServerSetup::of(named, (&self.site, self.tls.as_ref()), own)?;
            if let Err(error) = self.admit(setup, VariantScheme::Https) {
                self.list.reject(&named.name, error)?;
            }
        }
        Ok(())
    }

    fn tls_of(&self, scheme: VariantScheme) -> Option<&TlsSetup> {
        let tls = self.tls.as_ref();
        tls.filter(|_| scheme == VariantScheme::Https)
    }

    fn admit(&mut self, setup: ServerSetup, scheme: VariantScheme) -> Result<()> {
        let index = self.entries.len();
        self.entries.push(ServerEntry {
            setup,
            scheme,
            server: None,
        });
        let admitted = self.restart(index).and_then(|()| {
            let tried = self.try_out(index);
            tried.map_err(|error| error.of(self.name(index)))
        });
        if admitted.is_err() {
            let rejected = self.entries.pop().and_then(|entry| entry.server);
            // Why it is rejected matters more than how it ends.
            let _ = rejected.map(ServerProcess::stop);
        } else {
            self.list.admit(self.entries[index].setup.name());
        }
        admitted
    }

    /// Checks that a server sends the right bytes under the right terms.
    fn try_out(&self, index: usize) -> Result<()> {
        let address = self.server(index)?.address();
        let open = verify(address, &self.trial)?;
        if let Some(control) = &self.control {
            network::check_accepted(address.socket, control)?;
        }
        drop(open);
        match &address.tls {
            Some(tls) if tls.resumes() => verify_resumption(address),
            _ => Ok(()),
        }
    }

    /// Creates the files of a set in the directory that is served, writes them to disk, has every
    /// server send every one of them, and compares hashes. Servers that fail are left out from here
    /// on, with a note on the next case.
    pub(crate) fn make(&mut self, files: FileSet) -> Result<Vec<TestFile>> {
        let files = files.make(&self.site)?;
        content::flush_file_system(&self.site)?;
        for index in self.list.standing() {
            if let Err(error) = verify(self.server(index)?.address(), &files) {
                self.leave_out(index, VERIFIED, error)?;
            }
        }
        Ok(files)
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        self.entries[index].setup.name()
    }

    pub(crate) fn own_directory(&self, index: usize) -> &Path {
        self.entries[index].setup.own_directory()
    }

    pub(crate) fn server(&self, index: usize) -> Result<&ServerProcess> {
        let server = self.entries[index].server.as_ref();
        server.ok_or_else(|| Error::Contender(format!("{} is not running", self.name(index))))
    }

    /// Starts a fresh process of a server.
    pub(crate) fn restart(&mut self, index: usize) -> Result<()> {
        self.restart_with(index, MetricsMode::Off)
    }

    fn restart_with(&mut self, index: usize, metrics: MetricsMode) -> Result<()> {
        let entry = &mut self.entries[index];
        // One that ignores SIGTERM is killed, and the next one is measured.
        let _ = entry.server.take().map(ServerProcess::stop);
        let entry = &self.entries[index];
        let tls = self.tls_of(entry.scheme);
        let server = entry.setup.start(self.processor, metrics, tls)?;
        if let Some(throttle) = &self.throttle {
            throttle.add(server.pid())?;
        }
        self.entries[index].server = Some(server);
        Ok(())
    }

    /// By which mechanisms a server with metrics sends bodies in `work`, which is not timed and
    /// returns the number of body bytes. The server is restarted before and afterwards.
    pub(crate) fn count_payload(
        &mut self,
        index: usize,
        work: impl FnOnce(&ServerProcess) -> Result<u64>,
    ) -> Result<Vec<PayloadPath>> {
        let Some(socket) = self.entries[index].setup.metrics().map(Path::to_owned) else {
            return Ok(Vec::new());
        };
        self.restart_with(index, MetricsMode::On)?;
        let bytes = work(self.server(index)?)?;
        let start = Instant::now();
        loop {
            let paths = server_metrics::payload_paths(&socket, index)?;
            let sum: u64 = paths.iter().map(|one| one.bytes).sum();
            // The server counts the last responses a moment after it has sent them.
            if sum >= bytes || start.elapsed() > COUNT_TIMEOUT {
                self.restart(index)?;
                return Ok(paths);
            }
            thread::sleep(COUNT_INTERVAL);
        }
    }

    /// The notes on a case, including failures before its rounds.
    pub(crate) fn notes(&mut self, played: &Played<PlaySample>) -> Vec<String> {
        notes_of(played, &mut self.list, "the client")
    }
}

impl ContenderSet for ServerSet {
    fn list(&mut self) -> &mut ContenderList {
        &mut self.list
    }

    fn dismiss(&mut self, contender: usize) -> Result<()> {
        let server = self.entries[contender].server.take();
        let _ = server.map(ServerProcess::stop);
        Ok(())
    }
}

/// Runs a stream on a server. Fails once `stop` is set.
pub(crate) fn observe_stream(
    server: &ServerProcess,
    stream: LoadStream<'_>,
    residency: FileResidency,
    stop: &AtomicBool,
) -> Result<PlaySample> {
    let mut client = LoadClient::connect(server.address(), stream)?;
    observe_work(server.pid(), residency, || Ok(vec![client.run(stop)?]))
}

/// Runs streams on a server with this process id. Requests and latencies are those of the first
/// stream, bytes the sum of all.
pub(crate) fn observe_work(
    pid: u32,
    residency: FileResidency,
    work: impl FnOnce() -> Result<Vec<StreamResult>>,
) -> Result<PlaySample> {
    let stored = proc::storage_read_bytes(pid)?;
    let (mut results, window) = observe(pid, work)?;
    let stored_now = proc::storage_read_bytes(pid)?;
    let read = stored_now.zip(stored);
    let body_bytes = results.iter().map(|result| result.body_bytes).sum();
    let mut first = results.swap_remove(0);
    first.latencies_ns.sort_unstable();
    first.heads_ns.sort_unstable();
    Ok(PlaySample {
        residency,
        latencies_ns: first.latencies_ns,
        heads_ns: first.heads_ns,
        peak_resident_bytes: Some(proc::peak_resident_bytes(pid)?),
        storage_read_bytes: read.map(|(now, then)| now.saturating_sub(then)),
        ..PlaySample::of(window, first.requests, body_bytes)
    })
}
