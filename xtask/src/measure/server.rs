//! A server under test: started on its own processor, watched, stopped by pid.
//!
//! The server is started through a wrapper, this program again: it binds itself to a processor,
//! asks the kernel for SIGTERM should its parent die, and becomes the server. No server is
//! left behind however a measurement ends, and the pid is the server's own.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::error::{Doing, Error, Result};
use super::peer::Setup;
use super::proc::{self, CpuReading};

const START_TIMEOUT: Duration = Duration::from_secs(10);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// A server is settled once it used less than this between two looks.
const SETTLED: Duration = Duration::from_micros(50);
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Which processor a part of the measurement runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processor(pub(crate) usize);

pub(crate) struct Server {
    pub(crate) setup: Setup,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts the server on `processor` and returns once it accepts connections.
    pub(crate) fn start(setup: &Setup, own: &Path, processor: Processor) -> Result<Server> {
        let log = own.join("output.log");
        let output = File::create(&log).doing(|| format!("creating {}", log.display()))?;
        let errors = output
            .try_clone()
            .doing(|| "duplicating a descriptor".into())?;
        let wrapper = std::env::current_exe().doing(|| "finding this program".into())?;
        let child = Command::new(wrapper)
            .args([
                "measure",
                "become",
                "--processor",
                &processor.0.to_string(),
                "--",
            ])
            .arg(&setup.program)
            .args(&setup.arguments)
            .envs(setup.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .doing(|| format!("starting {}", setup.name))?;
        let mut server = Server {
            setup: setup.clone(),
            child,
            log,
        };
        server.wait_until_accepting()?;
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The run time so far, once the server has nothing left to do for the last load.
    pub(crate) fn settled_cpu(&self) -> Result<CpuReading> {
        let start = Instant::now();
        let mut earlier = CpuReading::of_tree(self.pid())?;
        loop {
            sleep(POLL);
            let now = CpuReading::of_tree(self.pid())?;
            if now.since(&earlier).0 < SETTLED || start.elapsed() > SETTLE_TIMEOUT {
                return Ok(now);
            }
            earlier = now;
        }
    }

    /// Ends the server and its workers: SIGTERM first, SIGKILL after a while.
    pub(crate) fn stop(mut self) -> Result<()> {
        let tree = proc::process_tree(self.pid())?;
        signal(self.pid(), Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < STOP_TIMEOUT {
            let ended = self
                .child
                .try_wait()
                .doing(|| format!("stopping {}", self.setup.name))?;
            if ended.is_some() {
                return Ok(());
            }
            sleep(POLL);
        }
        tree.into_iter().for_each(|pid| signal(pid, Signal::KILL));
        self.child
            .wait()
            .doing(|| format!("killing {}", self.setup.name))?;
        Err(Error::Server(format!(
            "{} ignored SIGTERM for {STOP_TIMEOUT:?}",
            self.setup.name
        )))
    }

    fn wait_until_accepting(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(self.setup.address).is_err() {
            let ended = self
                .child
                .try_wait()
                .doing(|| format!("starting {}", self.setup.name))?;
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                return Err(self.failure());
            }
            sleep(POLL);
        }
        Ok(())
    }

    fn failure(&self) -> Error {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        Error::Server(format!(
            "{} does not accept connections; it said: {said}",
            self.setup.name
        ))
    }
}

/// A loopback address nobody listens on now.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").doing(|| "looking for a free port".into())?;
    listener
        .local_addr()
        .doing(|| "looking for a free port".into())
}

/// The wrapper's part: binds this process to a processor and becomes the command. Returns only
/// on failure.
pub(crate) fn become_server(processor: Processor, command: &[String]) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .doing(|| "asking to end with the parent".into())?;
    bind_to(processor)?;
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| Error::Setting("no command to become".into()))?;
    Err(Command::new(program).args(arguments).exec()).doing(|| format!("becoming {program}"))
}

/// Keeps the calling thread, and what it starts from here on, on one processor.
pub(crate) fn bind_to(processor: Processor) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor.0);
    sched_setaffinity(None, &set).doing(|| format!("moving to processor {}", processor.0))
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // One that is already gone is what was wanted.
        let _ = kill_process(pid, signal);
    }
}
