//! Brokers side by side: each has its own folder, and the same topics.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::contender::named::NamedCommand;
use crate::contender::scratch::Scratch;
use crate::contender::server::{MetricsMode, ServerProcess, ServerSetup};
use crate::content;
use crate::document::{Case, Experiment};
use crate::error::{self, Error, ErrorContext, Result};
use crate::experiment::ExperimentContext;
use crate::experiment::sample::{FileResidency, PlaySample, notes_of};
use crate::experiment::serving::{ServerVariant, observe_work};
use crate::load::kafka::{
    BrokerConnection, BrokerLoad, BrokerStream, PreparedTopic, StreamEnd, create_topic,
};
use crate::machine::throttle::DiskThrottle;
use crate::rounds::contenders::{ContenderList, ContenderSet};
use crate::rounds::interleave::Played;
use crate::rounds::runner::RoundRunner;
use crate::tls::TlsSetup;

/// A virtual machine that recovers its logs on a busy processor takes its time.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// The limit for all partitions of a new topic to get a leader.
const LEADERS_TIMEOUT: Duration = Duration::from_secs(60);

/// Below the folder of a measurement.
const FOLDER: &str = "log";

const POLL: Duration = Duration::from_millis(1);

/// Completes "NAME failed …" where a broker fails outside of the rounds.
const FILLED: &str = "when its topics were filled and compared";
pub(super) const WARMED_UP: &str = "before the rounds, under the same load";

pub(super) struct BrokerSet {
    entries: Vec<BrokerEntry>,
    tls: Option<TlsSetup>,
    processor: Option<usize>,
    throttle: Option<DiskThrottle>,
    list: ContenderList,
}

struct BrokerEntry {
    setup: ServerSetup,
    data: PathBuf,
    process: Option<ServerProcess>,
}

impl BrokerSet {
    /// Starts all brokers with empty folders, our own ones first, adds the cases that `play`
    /// returns to the experiment, stops the brokers and removes their folders.
    pub(super) fn run(
        mut experiment: Experiment,
        (own, others): (&[ServerVariant], &[NamedCommand]),
        (tls, throttle): (Option<TlsSetup>, Option<DiskThrottle>),
        setting: &ExperimentContext,
        play: impl FnOnce(&mut BrokerSet) -> Result<Vec<Case>>,
    ) -> Result<Experiment> {
        let mut brokers = BrokerSet {
            entries: Vec::new(),
            tls,
            processor: setting.processors.contender,
            throttle,
            list: ContenderList::default(),
        };
        let folder = setting.scratch.subdirectory(FOLDER)?;
        let played = brokers
            .admit_all((own, others), setting.scratch)
            .and_then(|()| {
                let setups = brokers.entries.iter().map(|entry| &entry.setup);
                experiment.contenders = setups.map(ServerSetup::entry).collect();
                experiment.rounds = setting.runner.rounds;
                experiment.notes.extend(brokers.list.missing());
                experiment.cases = play(&mut brokers)?;
                experiment.notes.extend(brokers.list.new_failures());
                experiment.left_out = brokers.list.left_out();
                Ok(experiment)
            });
        // An orderly end would write data that is not needed.
        let running = brokers
            .entries
            .into_iter()
            .filter_map(|entry| entry.process);
        let notes = error::notes(running.map(ServerProcess::kill));
        let removed = fs::remove_dir_all(&folder).context(|| "removing the logs".into());
        let mut experiment = played?;
        experiment.notes.extend(notes);
        removed.map(|()| experiment)
    }

    /// Our own brokers must be admitted.
    fn admit_all(
        &mut self,
        (own, others): (&[ServerVariant], &[NamedCommand]),
        scratch: &Scratch,
    ) -> Result<()> {
        for index in 0..own.len() + others.len() {
            let made = |what| scratch.subdirectory(&format!("{FOLDER}/{index}/{what}"));
            let (data, own_folder) = (made("data")?, made("own")?);
            let terms = (&*data, self.tls.as_ref());
            let setup = match own.get(index) {
                Some(one) => {
                    let name = (&*one.name, "broker");
                    ServerSetup::own(name, &one.arguments, terms, own_folder)
                }
                None => ServerSetup::of(&others[index - own.len()], terms, own_folder),
            };
            self.entries.push(BrokerEntry {
                setup: setup?,
                data,
                process: None,
            });
            let place = self.entries.len() - 1;
            match self.start(place) {
                Ok(_) => self.list.admit(self.entries[place].setup.name()),
                Err(error) if index < own.len() => return Err(error),
                Err(error) => {
                    self.entries.pop();
                    self.list.reject(&others[index - own.len()].name, error)?;
                }
            }
        }
        Ok(())
    }

    /// Starts a broker, and returns how long it took to its first answer.
    pub(super) fn start(&mut self, index: usize) -> Result<Duration> {
        let entry = &mut self.entries[index];
        let start = Instant::now();
        let tls = self.tls.as_ref();
        let mut process = entry.setup.spawn(self.processor, MetricsMode::Off, tls)?;
        if let Some(throttle) = &self.throttle {
            throttle.add(process.pid())?;
        }
        loop {
            let address = process.address();
            let answer = BrokerConnection::connect(address).and_then(|mut one| one.api_versions());
            let took = start.elapsed();
            if process.has_ended()? {
                return Err(entry.setup.failed(process, "ended at once"));
            }
            if answer.is_ok() {
                entry.process = Some(process);
                return Ok(took);
            }
            if took > START_TIMEOUT {
                return Err(entry.setup.failed(process, "does not start in time"));
            }
            sleep(POLL);
        }
    }

    /// Ends a broker in one of its ways.
    pub(super) fn end(&mut self, index: usize, end: fn(ServerProcess) -> Result<()>) -> Result<()> {
        self.entries[index].process.take().map_or(Ok(()), end)
    }

    pub(super) fn broker(&self, index: usize) -> Result<&ServerProcess> {
        let entry = &self.entries[index];
        let name = entry.setup.name();
        let process = entry.process.as_ref();
        process.ok_or_else(|| Error::Contender(format!("{name} is not running")))
    }

    pub(super) fn connect(&self, index: usize) -> Result<BrokerConnection> {
        BrokerConnection::connect(self.broker(index)?.address())
    }

    pub(super) fn data(&self, index: usize) -> &Path {
        &self.entries[index].data
    }

    /// Drops the log of a partition from the page cache, which a broker has where Kafka has it.
    pub(super) fn evict(&self, index: usize, topic: &str, partition: i32) -> Result<()> {
        let folder = self.data(index).join(format!("{topic}-{partition}"));
        let context = || format!("reading {}", folder.display());
        for entry in fs::read_dir(&folder).context(context)? {
            let path = entry.context(context)?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                content::evict(&path)?;
            }
        }
        Ok(())
    }

    /// Has every broker create this topic, fills it, and compares its content. Brokers that fail
    /// are left out from here on, with a note on the next case.
    pub(super) fn fill(
        &mut self,
        topic: &PreparedTopic,
        configs: &[(&str, &str)],
        runner: &RoundRunner,
    ) -> Result<()> {
        let fill =
            |brokers: &mut BrokerSet, index| brokers.fill_one(index, topic, configs, runner.stop);
        runner.once_each(self, FILLED, 0, fill).map(drop)
    }

    fn fill_one(
        &self,
        index: usize,
        topic: &PreparedTopic,
        configs: &[(&str, &str)],
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut connection = self.connect(index)?;
        connection.create(&create_topic(&topic.name, topic.partitions, configs))?;
        wait_until_led(&mut connection, topic)?;
        let end = StreamEnd::Requests(topic.batches * topic.partition_count());
        let stream = BrokerStream::producer(topic, None, end);
        BrokerLoad::connect(self.broker(index)?.address(), vec![stream])?.run(stop)?;
        connection.check(topic)?;
        content::flush_file_system(self.data(index))
    }

    /// Puts a load on a broker and measures it. Requests and latencies are those of the first
    /// stream, bytes the sum of all.
    pub(super) fn observe(
        &self,
        index: usize,
        streams: Vec<BrokerStream<'_>>,
        residency: FileResidency,
        stop: &AtomicBool,
    ) -> Result<PlaySample> {
        let broker = self.broker(index)?;
        let mut load = BrokerLoad::connect(broker.address(), streams)?;
        observe_work(broker.pid(), residency, || load.run(stop))
    }

    /// The notes on a case, including failures before its rounds.
    pub(super) fn notes(&mut self, played: &Played<PlaySample>) -> Vec<String> {
        notes_of(played, &mut self.list, "the client")
    }
}

/// Waits until every partition has a leader that knows of it, and returns the ends.
pub(super) fn wait_until_led(
    connection: &mut BrokerConnection,
    topic: &PreparedTopic,
) -> Result<Vec<i64>> {
    let start = Instant::now();
    loop {
        if connection.has_leaders(&topic.name, topic.partitions)?
            && let Some(ends) = connection.end_offsets(&topic.name, topic.partitions)?
        {
            return Ok(ends);
        }
        if start.elapsed() > LEADERS_TIMEOUT {
            return Err(Error::Answer("partitions without a leader".into()));
        }
        sleep(POLL);
    }
}

impl ContenderSet for BrokerSet {
    fn list(&mut self) -> &mut ContenderList {
        &mut self.list
    }

    fn dismiss(&mut self, contender: usize) -> Result<()> {
        let _ = self.end(contender, ServerProcess::kill);
        Ok(())
    }
}
