//! A process under test: on its own processor, watched, stopped by pid.
//!
//! It is started through a wrapper, this program again: it moves to a processor, asks the kernel
//! for SIGTERM should its parent die, and becomes the command. No process is left behind however a
//! measurement ends, and the pid is the command's own.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::contender::role::SubprocessRole;
use crate::document::Contender;
use crate::error::{Error, ErrorContext, Result};
use crate::machine::proc;

const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// What is started, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandSpec {
    /// Unique among the contenders.
    pub(crate) name: String,
    pub(crate) version: String,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(String, String)>,
}

pub(crate) struct ChildProcess {
    name: String,
    child: Child,
}

impl CommandSpec {
    /// How it stands in the document.
    pub(crate) fn entry(&self) -> Contender {
        let words = self.command.iter();
        Contender {
            name: self.name.clone(),
            version: self.version.clone(),
            command: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            environment: self.environment.clone(),
            configuration: None,
        }
    }

    /// The command by which it runs on `processor`: streams are the caller's to set.
    pub(crate) fn on(&self, processor: Option<usize>) -> Result<Command> {
        let wrapper = std::env::current_exe().context(|| "finding this program".into())?;
        let command = self.command.clone();
        let mut wrapped = Command::new(wrapper);
        wrapped
            .args(SubprocessRole::Become { processor, command }.arguments())
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(wrapped)
    }
}

impl ChildProcess {
    /// Starts it. Ctrl-C does not reach it: whoever measures stops it.
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<ChildProcess> {
        let started = command.process_group(0).spawn();
        let child = started.context(|| format!("starting {name}"))?;
        Ok(ChildProcess {
            name: name.to_owned(),
            child,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether it ended by itself.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        let ended = self.child.try_wait();
        let ended = ended.context(|| format!("looking at {}", self.name))?;
        Ok(ended.is_some())
    }

    /// Ends it and its descendants: SIGTERM first, SIGKILL after a while. One that has ended is
    /// left alone: its number may be another's.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if self.has_ended()? {
            return Ok(());
        }
        let tree = proc::process_tree(self.pid())?;
        signal(self.pid(), Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < STOP_TIMEOUT {
            if self.has_ended()? {
                return Ok(());
            }
            sleep(POLL);
        }
        tree.into_iter().for_each(|pid| signal(pid, Signal::KILL));
        let killed = self.child.wait();
        killed.context(|| format!("killing {}", self.name))?;
        Err(Error::Contender(format!(
            "{} ignored SIGTERM for {STOP_TIMEOUT:?}",
            self.name
        )))
    }
}

/// Runs a program without streams of its own on the processor of this thread; anything but success
/// is an error with what it said.
pub(crate) fn run_to_its_end(program: &CommandSpec) -> Result<()> {
    let output = without_streams(program)?.output();
    succeeded(program, output)
}

/// Does the same, and lets a thread `watch` it by its pid meanwhile: it is told by a channel that
/// hangs up when the program has ended.
pub(crate) fn run_watched<T: Send>(
    program: &CommandSpec,
    watch: impl FnOnce(u32, &Receiver<()>) -> T + Send,
) -> Result<T> {
    let child = without_streams(program)?
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.map_err(|error| not_run(program, &error))?;
    let pid = child.id();
    let (running, end) = mpsc::channel();
    let (output, seen) = thread::scope(|scope| {
        let watching = scope.spawn(move || watch(pid, &end));
        let output = child.wait_with_output();
        drop(running);
        (output, watching.join())
    });
    succeeded(program, output)?;
    seen.map_err(|_| Error::Contender(format!("watching {} failed", program.name)))
}

fn without_streams(program: &CommandSpec) -> Result<Command> {
    let (name, arguments) = program
        .command
        .split_first()
        .ok_or_else(|| Error::Setting("no command to run".into()))?;
    let mut command = Command::new(name);
    // Ctrl-C is for this program only.
    command
        .process_group(0)
        .args(arguments)
        .stdin(Stdio::null());
    Ok(command)
}

/// What isn't there can't be measured, which is nobody's fault.
fn not_run(program: &CommandSpec, error: &io::Error) -> Error {
    Error::Contender(format!("running {}: {error}", program.name))
}

fn succeeded(program: &CommandSpec, output: io::Result<Output>) -> Result<()> {
    let output = output.map_err(|error| not_run(program, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let (name, status) = (&program.name, output.status);
    let said = String::from_utf8_lossy(&output.stderr);
    let why = format!("running {name}: {status}: {}", said.trim());
    Err(Error::Contender(why))
}

/// The first line that a program says of itself when asked for its version.
pub(crate) fn version_of(program: &CommandSpec) -> String {
    let Some(name) = program.command.first() else {
        return String::new();
    };
    let output = Command::new(name)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let said = output.map(|output| [output.stdout, output.stderr].concat());
    let said = said.unwrap_or_default();
    let line = String::from_utf8_lossy(&said)
        .lines()
        .next()
        .unwrap_or("")
        .trim()
        .to_owned();
    if line.is_empty() {
        "version unknown".to_owned()
    } else {
        line
    }
}

/// The wrapper's part: moves to a processor and becomes the command. Returns only on failure.
pub(crate) fn become_command(processor: Option<usize>, command: &[OsString]) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .context(|| "asking to end with the parent".into())?;
    if let Some(processor) = processor {
        bind_to(processor)?;
    }
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| Error::Setting("no command to become".into()))?;
    let failed = Command::new(program).args(arguments).exec();
    Err(failed).context(|| format!("becoming {}", program.display()))
}

/// Keeps the calling thread, and what it starts from here on, on one processor.
pub(crate) fn bind_to(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).context(|| format!("moving to processor {processor}"))
}

/// A processor for those measured and another for whoever measures, if there are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processors {
    pub(crate) contender: Option<usize>,
    pub(crate) bench: Option<usize>,
    /// All that this process may use.
    all: CpuSet,
}

impl Processors {
    /// Lets the calling thread, and what it starts from here on, use every processor again.
    pub(crate) fn leave(&self) -> Result<()> {
        if self.all.count() == 0 {
            return Ok(());
        }
        sched_setaffinity(None, &self.all).context(|| "moving to all processors".into())
    }

    /// The first two processors that this process may use.
    pub(crate) fn find() -> Processors {
        let allowed = rustix::thread::sched_getaffinity(None).ok();
        let mut processors = (0..CpuSet::MAX_CPU)
            .filter(|&processor| allowed.is_some_and(|set| set.is_set(processor)));
        let all = allowed.unwrap_or_default();
        match (processors.next(), processors.next()) {
            (Some(contender), Some(bench)) => Processors {
                contender: Some(contender),
                bench: Some(bench),
                all,
            },
            _ => Processors {
                contender: None,
                bench: None,
                all,
            },
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // One that is already gone is what was wanted.
        let _ = kill_process(pid, signal);
    }
}
