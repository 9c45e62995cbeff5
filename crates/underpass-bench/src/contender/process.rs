//! Processes of contenders: bound to a processor, watched, stopped by their process id.
//!
//! A long-running contender is started through a wrapper, which is this program again: it moves to
//! a processor, asks the kernel for SIGTERM when its parent dies, and becomes the command. So no
//! process stays behind however a measurement ends, and the process id is the command's.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::role::SubprocessRole;
use crate::document::Contender;
use crate::error::{Error, ErrorContext, Result};
use crate::machine::proc;

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// Options that print a version, the most common first.
pub(crate) const VERSION_OPTIONS: [&str; 4] = ["--version", "-v", "-V", "version"];
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);
const VERSION_CHARS_MAX: usize = 120;
/// The most that is kept of what a program prints.
const PRINTED_BYTES_MAX: u64 = 64 << 10;
const UNKNOWN_VERSION: &str = "version unknown";

#[derive(Debug, Clone, Default)]
pub(crate) struct CommandSpec {
    /// Unique among the contenders.
    pub(crate) name: String,
    pub(crate) version: String,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
}

impl CommandSpec {
    /// Its entry in the document.
    pub(crate) fn entry(&self) -> Contender {
        let words = self.command.iter();
        Contender {
            name: self.name.clone(),
            version: self.version.clone(),
            command: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            environment: Vec::new(),
            configuration: None,
        }
    }

    /// The command through the wrapper; the caller sets its streams.
    pub(crate) fn on(&self, processor: Option<usize>) -> Result<Command> {
        let command = self.command.clone();
        let role = SubprocessRole::Become { processor, command };
        let mut wrapped = Command::new(own_program()?);
        wrapped.args(role.arguments());
        Ok(wrapped)
    }

    /// The command itself, without input. Ctrl-C doesn't reach it.
    fn direct(&self) -> Result<Command> {
        let (program, arguments) = split(&self.command)?;
        let mut command = Command::new(program);
        command
            .process_group(0)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(command)
    }

    fn check(&self, ended: io::Result<(ExitStatus, Vec<u8>)>) -> Result<()> {
        let why = match &ended {
            Ok((status, _)) if status.success() => return Ok(()),
            Ok((status, kept)) => format!("{status}: {}", String::from_utf8_lossy(kept).trim()),
            Err(error) => error.to_string(),
        };
        Err(Error::Contender(format!("running {}: {why}", self.name)))
    }
}

fn split(command: &[OsString]) -> Result<(&OsString, &[OsString])> {
    let split = command.split_first();
    split.ok_or_else(|| Error::Setting("the command is empty".into()))
}

pub(crate) fn own_program() -> Result<OsString> {
    let path = std::env::current_exe().context(|| "finding this program".into())?;
    Ok(path.into_os_string())
}

/// The program `underpass`: next to this one, or in `PATH`.
pub(crate) fn underpass() -> Result<OsString> {
    const NAME: &str = "underpass";
    let own = std::env::current_exe().context(|| "finding this program".into())?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let next_to_it = [own.with_file_name(NAME)].into_iter();
    let mut all = next_to_it.chain(folders.map(|folder| folder.join(NAME)));
    let found = all.find(|path| path.is_file());
    found.map(PathBuf::into_os_string).ok_or_else(|| {
        let own = own.display();
        Error::Setting(format!("cannot find `{NAME}` next to {own} or in PATH"))
    })
}

/// A process of a contender that runs until it is stopped.
pub(crate) struct ChildProcess {
    name: String,
    child: Child,
}

impl ChildProcess {
    /// Starts it. Ctrl-C doesn't reach it: the measurement stops it.
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
        let ended = ended.context(|| format!("waiting for {}", self.name))?;
        Ok(ended.is_some())
    }

    /// Ends it with SIGKILL, as a crash would. Its descendants stay.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed
            .context(|| format!("killing {}", self.name))
            .map(drop)
    }

    /// Ends it and its descendants, with SIGTERM first and SIGKILL after 10 seconds. Does nothing
    /// if it has ended, because its process id may belong to another process.
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
        let why = format!("{} ignored SIGTERM for {STOP_TIMEOUT:?}", self.name);
        Err(Error::Contender(why))
    }
}

/// Runs a program to its end on the processor of this thread. Anything but success is an error with
/// what it printed, which may be as much as a pipe holds. It is killed after `limit`.
pub(crate) fn run(command: &CommandSpec, limit: Duration) -> Result<()> {
    let child = command.direct()?.spawn();
    let ended = child.and_then(|child| {
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let mut end = [PollFd::new(&pidfd, PollFlags::IN)];
        let has_ended = poll(&mut end, Timespec::try_from(limit).ok().as_ref())? > 0;
        if !has_ended {
            kill_group(child.id());
        }
        Ok((wait_for(child)?, has_ended))
    });
    match ended {
        Ok((_, false)) => Err(overdue(command, limit)),
        ended => command.check(ended.map(|(end, _)| end)),
    }
}

pub(crate) fn overdue(command: &CommandSpec, limit: Duration) -> Error {
    Error::Contender(format!("{} does not end within {limit:.0?}", command.name))
}

/// Kills a program that was started to run to its end, and what it has started.
pub(crate) fn kill_group(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // An error means that it has just ended.
    let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
}

/// Does the same while a thread watches the process: `watch` gets the process id, and a channel
/// that is closed when the program has ended.
pub(crate) fn run_watched<T: Send>(
    command: &CommandSpec,
    watch: impl FnOnce(u32, &Receiver<()>) -> T + Send,
) -> Result<T> {
    let name = &command.name;
    let child = command.direct()?.spawn();
    let child = child.map_err(|error| Error::Contender(format!("running {name}: {error}")))?;
    let pid = child.id();
    let (running, end) = mpsc::channel();
    let (ended, seen) = thread::scope(|scope| {
        let watching = scope.spawn(move || watch(pid, &end));
        let ended = wait_for(child);
        drop(running);
        (ended, watching.join())
    });
    command.check(ended)?;
    seen.map_err(|_| Error::Contender(format!("watching {name} failed")))
}

/// Waits for the end of a program, and keeps the beginning of what it prints.
fn wait_for(mut child: Child) -> io::Result<(ExitStatus, Vec<u8>)> {
    let (mut kept, mut printed) = (Vec::new(), child.stderr.take());
    if let Some(printed) = &mut printed {
        printed.take(PRINTED_BYTES_MAX).read_to_end(&mut kept)?;
        io::copy(printed, &mut io::sink())?;
    }
    Ok((child.wait()?, kept))
}

/// The version that a program prints with `--version`.
pub(crate) fn version_of(command: &CommandSpec) -> String {
    let program = command.command.first().cloned().unwrap_or_default();
    version_by(&program, &VERSION_OPTIONS[..1])
}

/// The version that a program prints with the first of these options that it accepts.
pub(crate) fn version_by(program: &OsStr, options: &[&str]) -> String {
    let mut options = options.iter();
    let line = options.find_map(|option| version_line(&output_with(program, option)?));
    line.unwrap_or_else(|| UNKNOWN_VERSION.to_owned())
}

/// Libraries that servers encrypt with, as they call them.
const CRYPTO_LIBRARIES: [&str; 5] = ["OpenSSL", "BoringSSL", "LibreSSL", "AWS-LC", "GnuTLS"];

/// The version of a program, and the library that it says it encrypts with.
pub(crate) fn version_with_crypto(program: &OsStr) -> String {
    let version = version_by(program, &VERSION_OPTIONS);
    let mut options = VERSION_OPTIONS.iter();
    let library = options.find_map(|option| crypto_library(&output_with(program, option)?));
    match library.filter(|library| !version.contains(library)) {
        Some(library) => format!("{version}, {library}"),
        None => version,
    }
}

/// The library that is named last, because nginx says with which one it was built and then with
/// which one it runs.
fn crypto_library(output: &str) -> Option<String> {
    let words: Vec<_> = output.split([' ', '\n', '(', ')', ':']).collect();
    let mut pairs = words.windows(2).rev();
    let is_named = |pair: &&[&str]| {
        CRYPTO_LIBRARIES.contains(&pair[0]) && pair[1].starts_with(|c: char| c.is_ascii_digit())
    };
    pairs.find(is_named).map(|pair| pair.join(" "))
}

/// What a program prints with an option; `None` if it rejects it or doesn't end within 2 seconds.
fn output_with(program: &OsStr, option: &str) -> Option<String> {
    let mut log = tempfile::tempfile().ok()?;
    let mut child = Command::new(program)
        .arg(option)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().ok()?)
        .stderr(log.try_clone().ok()?)
        .spawn()
        .ok()?;
    let start = Instant::now();
    while start.elapsed() < VERSION_TIMEOUT {
        if let Some(status) = child.try_wait().ok()? {
            let mut output = Vec::new();
            log.rewind().ok()?;
            log.take(PRINTED_BYTES_MAX).read_to_end(&mut output).ok()?;
            let output = || String::from_utf8_lossy(&output).into_owned();
            return status.success().then(output);
        }
        sleep(POLL);
    }
    // The option has another meaning, and the program keeps running.
    let _ = child.kill().and_then(|()| child.wait());
    None
}

/// The first line that may be a version: it has a digit. Long lines are cut.
fn version_line(output: &str) -> Option<String> {
    let mut lines = output.lines().map(str::trim);
    let line = lines.find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(line.chars().take(VERSION_CHARS_MAX).collect())
}

/// The wrapper: moves to a processor and becomes the command. Returns only on failure.
pub(crate) fn become_command(processor: Option<usize>, command: &[OsString]) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .context(|| "requesting a signal at the parent's death".into())?;
    processor.map_or(Ok(()), bind_to)?;
    let (program, arguments) = split(command)?;
    let failed = Command::new(program).args(arguments).exec();
    Err(failed).context(|| format!("becoming {}", program.display()))
}

/// Binds the calling thread, and what it starts from now on, to one processor.
pub(crate) fn bind_to(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).context(|| format!("moving to processor {processor}"))
}

/// A processor for the contenders and another for this program, if there are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processors {
    pub(crate) contender: Option<usize>,
    pub(crate) bench: Option<usize>,
    /// All that this process may use.
    all: CpuSet,
}

impl Processors {
    /// The first two processors that this process may use.
    pub(crate) fn find() -> Processors {
        let all = sched_getaffinity(None).unwrap_or_default();
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|&processor| all.is_set(processor));
        let (contender, bench) = match (allowed.next(), allowed.next()) {
            (contender, bench @ Some(_)) => (contender, bench),
            _ => (None, None),
        };
        Processors {
            contender,
            bench,
            all,
        }
    }

    /// Allows the calling thread, and what it starts from now on, to use every processor again.
    pub(crate) fn release(&self) -> Result<()> {
        if self.all.count() == 0 {
            return Ok(());
        }
        sched_setaffinity(None, &self.all).context(|| "moving to all processors".into())
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // An error means that it has ended already.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_line_with_a_digit() {
        let output = "\n  nginx version:   nginx/1.22.1\nbuilt with 3\n";
        let line = version_line(output);
        assert_eq!(line.as_deref(), Some("nginx version: nginx/1.22.1"));
        assert_eq!(version_line("usage: x\n"), None);
    }

    #[test]
    fn of_what_a_failing_program_prints_the_beginning_is_kept() {
        let printed = PRINTED_BYTES_MAX * 10;
        let script = format!("head -c {printed} /dev/zero | tr '\\0' x >&2; exit 3");
        let loud = CommandSpec {
            name: "loud".into(),
            command: ["sh", "-c", &script].map(OsString::from).to_vec(),
            ..CommandSpec::default()
        };
        let failed = run_watched(&loud, |_, _| ()).unwrap_err().to_string();
        let kept = "x".repeat(64 << 10);
        assert_eq!(failed, format!("running loud: exit status: 3: {kept}"));
    }

    #[test]
    fn the_library_that_a_server_encrypts_with_is_read_off() {
        let nginx = "nginx version: nginx/1.22.1\n\
                     built with OpenSSL 3.0.22 25 Aug 2026 (running with OpenSSL 3.0.19)";
        assert_eq!(crypto_library(nginx).as_deref(), Some("OpenSSL 3.0.19"));
        let h2o = "h2o version 2.2.5\nOpenSSL: OpenSSL 3.0.19 27 Jan 2026\nmruby: YES";
        assert_eq!(crypto_library(h2o).as_deref(), Some("OpenSSL 3.0.19"));
        assert_eq!(crypto_library("--with-openssl=OpenSSL x"), None);
    }

    #[test]
    fn programs_print_their_version_and_some_have_none() {
        let of = |program: &str| version_by(program.as_ref(), &VERSION_OPTIONS);
        assert!(of("cargo").starts_with("cargo 1."), "{}", of("cargo"));
        assert_eq!(of("false"), UNKNOWN_VERSION);
        assert_eq!(of("/nowhere/server"), UNKNOWN_VERSION);
    }
}
