//! Processes of contenders: bound to a processor, watched, stopped by their process id.
//!
//! A long-running contender is started through a wrapper, which is this program again: it moves to
//! a processor, asks the kernel for SIGTERM when its parent dies, and becomes the command. So no
//! process stays behind however a measurement ends, and the process id is the command's.

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::role::SubprocessRole;
use crate::document::Contender;
use crate::error::{Error, ErrorContext, Result};
use crate::machine::proc;

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// The interval at which a program that runs to its end is checked.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

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
    pub(crate) command: Vec<OsString>,
}

impl CommandSpec {
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

/// The limit on a program: a duration, and a flag that is set when the user wants to stop.
#[derive(Clone, Copy)]
pub(crate) struct RunLimit<'a> {
    pub(crate) time: Duration,
    pub(crate) stop: &'a AtomicBool,
}

impl RunLimit<'_> {
    fn check(&self, name: &str, start: Instant) -> Result<()> {
        let why = match (self.stop.load(Ordering::Relaxed), self.time) {
            (true, _) => "was interrupted".to_owned(),
            (false, time) if start.elapsed() > time => format!("does not end within {time:.0?}"),
            _ => return Ok(()),
        };
        Err(Error::Contender(format!("{name} {why}")))
    }
}

/// Runs a program to its end on the processors of this thread, and calls `look` with its process id
/// every 10 ms. Kills its process group past the limit and if `look` fails. If the program fails,
/// the error has the beginning of its standard error.
pub(crate) fn run(
    command: &CommandSpec,
    limit: RunLimit<'_>,
    mut look: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    let name = &command.name;
    let failed = |why| Error::Contender(format!("running {name}: {why}"));
    let child = command.direct()?.spawn();
    let mut child = child.map_err(|error| failed(error.to_string()))?;
    let start = Instant::now();
    let (mut printed, mut kept) = (child.stderr.take(), Vec::new());
    let looked = loop {
        let looked = limit.check(name, start).and_then(|()| look(child.id()));
        let waited = wait_for_end(&child, &mut printed, &mut kept);
        match (looked, waited) {
            (Err(error), _) => break Err(error),
            (Ok(()), Ok(false)) => {}
            (Ok(()), waited) => break waited.map(drop),
        }
    };
    // Until it is waited for, no other process has its id.
    kill_group(child.id());
    let status = child.wait();
    looked?;
    match status.map_err(|error| failed(error.to_string()))? {
        status if status.success() => Ok(()),
        status => {
            let printed = String::from_utf8_lossy(&kept);
            Err(failed(format!("{status}: {}", printed.trim())))
        }
    }
}

/// Waits until a program prints something or ends, but not for long; returns whether it has ended
/// and all that it has printed was read. Keeps the beginning of that.
fn wait_for_end(
    child: &Child,
    printed: &mut Option<ChildStderr>,
    kept: &mut Vec<u8>,
) -> Result<bool> {
    let context = || "waiting for a program".into();
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context(context)?;
    let mut ends = vec![PollFd::new(&pidfd, PollFlags::IN)];
    ends.extend(printed.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    match poll(&mut ends, Some(&LOOK)) {
        Err(Errno::INTR) => return Ok(false),
        polled => polled.context(context)?,
    };
    let happened: Vec<_> = ends.iter().map(|end| !end.revents().is_empty()).collect();
    let (has_ended, has_printed) = (happened[0], happened.get(1) == Some(&true));
    if let Some(pipe) = printed.as_mut().filter(|_| has_printed) {
        let mut some = vec![0; PRINTED_BYTES_MAX as usize];
        let read = pipe.read(&mut some).context(context)?;
        kept.extend(&some[..read.min(some.len() - kept.len())]);
        printed.take_if(|_| read == 0);
    }
    Ok(has_ended && !has_printed)
}

/// Kills a program that was started to run to its end, and its process group.
fn kill_group(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // An error means that all have ended.
    let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
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

/// The output of a program for an option; `None` if it rejects it or runs for over 2 seconds.
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

/// Binds the calling thread, and its later children, to one processor.
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

    /// Allows the calling thread, and its later children, to use every processor again.
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
        let limit = RunLimit {
            time: Duration::from_secs(60),
            stop: &AtomicBool::new(false),
        };
        let failed = run(&loud, limit, |_| Ok(())).unwrap_err().to_string();
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
