//! Runs a case with one cp: makes a world, runs cp in it, and records the state of the world.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::cases::{Case, Jobs};
use super::look::{Before, Entries, look};
use super::trees::{build, placed};

/// After this time a cp counts as hung, on which some cases rely: both must end alike. GNU cp
/// copies a folder into itself for seconds before no path can be longer, and takes more on a busy
/// machine.
const HANG: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};

/// A program that runs under the name `cp`.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The folder that contains it.
    pub(crate) folder: PathBuf,
    /// Arguments before those of a case.
    pub(crate) first: Vec<String>,
    /// Whether it knows `-j`.
    pub(crate) knows_jobs: bool,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// An exit code or a signal.
    pub(crate) end: String,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) entries: Entries,
}

/// Runs a case in a separate folder, and removes it.
pub(crate) fn run(folder: &Path, case: &Case, program: &Program) -> io::Result<Outcome> {
    let world = folder.join("world");
    build(&world, &case.world.nodes)?;
    let before = Before::of(&world)?;
    let said = |name: &str| folder.join(name);
    fs::write(said("answers"), case.answers)?;
    let mut child = command(&world, case, program)
        .stdin(File::open(said("answers"))?)
        .stdout(File::create(said("stdout"))?)
        .stderr(File::create(said("stderr"))?)
        .spawn()?;
    let end = wait(&mut child)?;
    let outcome = Outcome {
        end: end.map_or_else(|| "it hung".to_owned(), ended),
        stdout: fs::read(said("stdout"))?,
        stderr: fs::read(said("stderr"))?,
        entries: look(&world, &before)?,
    };
    remove(&world)?;
    Ok(outcome)
}

/// Removes a world with `rm`, which needs no stack per level: some trees are thousands deep.
fn remove(world: &Path) -> io::Result<()> {
    let status = Command::new("/bin/rm").arg("-rf").arg(world).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other("rm -rf")),
    }
}

/// Returns the arguments with the world's path inserted.
pub(crate) fn arguments(world: &Path, case: &Case, program: &Program) -> Vec<OsString> {
    let jobs: &[&str] = match case.jobs {
        Jobs::Four if program.knows_jobs => &["-j", "4"],
        _ => &[],
    };
    let first = jobs
        .iter()
        .copied()
        .chain(program.first.iter().map(String::as_str));
    let own = case
        .arguments
        .iter()
        .map(|argument| inserted(world, argument));
    first.map(OsString::from).chain(own).collect()
}

/// Inserts the world's path, also after `--target-directory=` and `-t`.
fn inserted(world: &Path, argument: &[u8]) -> OsString {
    let at = argument
        .windows(2)
        .position(|two| two == super::trees::HERE)
        .unwrap_or(0);
    let (before, text) = argument.split_at(at);
    OsString::from_vec([before, &placed(world, text)].concat())
}

/// The shell sets the umask, which the standard library can't.
fn command(world: &Path, case: &Case, program: &Program) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args([
            "-c",
            "umask \"$1\"; shift; exec cp \"$@\"",
            "sh",
            case.umask,
        ])
        .args(arguments(world, case, program))
        .current_dir(world.join("here"))
        .env_clear()
        .env("PATH", &program.folder)
        .env("LC_ALL", "C")
        .envs(case.environment.iter().copied());
    if case.user.id() != 0 {
        command.uid(case.user.id()).gid(case.user.id());
    }
    command
}

fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let mut polled = [PollFd::new(&ended, PollFlags::IN)];
    if poll(&mut polled, Some(&HANG))? == 0 {
        child.kill()?;
        child.wait()?;
        return Ok(None);
    }
    child.wait().map(Some)
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "neither code nor signal".to_owned(),
    }
}

/// Returns a command line for a shell.
pub(crate) fn line(arguments: &[OsString]) -> String {
    let mut line = "cp".to_owned();
    for argument in arguments {
        line.push(' ');
        line.push_str(&quoted(argument));
    }
    line
}

fn quoted(argument: &OsStr) -> String {
    let bytes = argument.as_encoded_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=./,@".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if !bytes.is_empty() && bytes.iter().all(is_plain) => text.to_owned(),
        _ => format!("$'{}'", bytes.escape_ascii()),
    }
}
