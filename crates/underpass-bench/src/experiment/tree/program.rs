//! A program that copies once: started, and watched until it ends.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::contender::named::NamedCommand;
use crate::contender::process::{self, CommandSpec, Processors, RunLimit};
use crate::error::{Error, Result};
use crate::machine::proc;

/// A program that runs for a shorter time has no peak memory. It is read every 10 ms, so growth in
/// the last milliseconds is missed. (The `ru_maxrss` of a child that has ended is never less than
/// what this program had when it started the child.)
const LIFE_MIN: Duration = Duration::from_millis(100);

/// The placeholder for an option about sharing blocks.
const REFLINK: &str = "{reflink}";

/// `underpass cp` with this many threads.
pub(crate) fn own(jobs: usize) -> Result<NamedCommand> {
    let program = process::underpass()?;
    let program = program.to_string_lossy();
    let jobs = jobs.to_string();
    let words = [
        &*program, "cp", "-r", "-j", &jobs, REFLINK, "{from}", "{to}",
    ];
    Ok(NamedCommand {
        name: format!("underpass cp -j {jobs}"),
        words: words.map(str::to_owned).into(),
    })
}

/// The command that copies `from` to `to`, with an option about sharing blocks or without any.
pub(crate) fn command(
    named: &NamedCommand,
    reflink: Option<&str>,
    from: &Path,
    to: &Path,
) -> CommandSpec {
    let mut named = named.clone();
    named
        .words
        .retain(|word| word != REFLINK || reflink.is_some());
    let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
    let reflink = (REFLINK, reflink.unwrap_or_default());
    named.command(&[("{from}", &from), ("{to}", &to), reflink])
}

/// Runs a program on all processors to its end; returns its peak resident memory in bytes, if it
/// ran for long enough. One that takes more than `disk_bytes_max` is killed.
pub(crate) fn run(
    program: &CommandSpec,
    processors: &Processors,
    (to, disk_bytes_max): (&Path, Option<u64>),
    limit: RunLimit<'_>,
) -> Result<Option<u64>> {
    let check = || match takes_more(to, disk_bytes_max) {
        true => {
            let why = format!("{}: the holes are filled", program.name);
            Err(Error::Answer(why))
        }
        false => Ok(()),
    };
    let (start, mut peak) = (Instant::now(), None);
    let look = |pid| {
        peak = peak.max(proc::peak_resident_of(pid));
        check()
    };
    // Children run on the processors of the thread that starts them.
    let on_all_processors = || {
        processors.release()?;
        process::run(program, limit, look)
    };
    let done = thread::scope(|scope| scope.spawn(on_all_processors).join());
    done.unwrap_or_else(|_| Err(Error::Contender("a thread failed".into())))?;
    check()?;
    Ok(peak.filter(|_| start.elapsed() >= LIFE_MIN))
}

fn takes_more(path: &Path, disk_bytes_max: Option<u64>) -> bool {
    let taken = || fs::metadata(path).map_or(0, |file| file.blocks() * 512);
    disk_bytes_max.is_some_and(|max| taken() > max)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn the_option_for_sharing_replaces_its_placeholder() {
        let named: NamedCommand = "gnu=cp -r {reflink} {from} {to}".parse().unwrap();
        let words = |reflink| {
            let program = command(&named, reflink, Path::new("/f"), Path::new("/t"));
            program.command
        };
        assert_eq!(words(None), ["cp", "-r", "/f", "/t"]);
        let always = ["cp", "-r", "--reflink=always", "/f", "/t"];
        assert_eq!(words(Some("--reflink=always")), always);
        assert_eq!(words(Some("--reflink=never"))[2], "--reflink=never");
    }

    fn run_within(
        time: Duration,
        program: &CommandSpec,
        to: (&Path, Option<u64>),
    ) -> Result<Option<u64>> {
        let stop = &AtomicBool::new(false);
        run(program, &Processors::find(), to, RunLimit { time, stop })
    }

    #[test]
    fn a_program_that_does_not_end_is_stopped_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let named: NamedCommand = "hanging=sh -c 'sleep 1000 & wait'".parse().unwrap();
        let program = command(&named, None, folder.path(), folder.path());
        let error = run_within(Duration::from_millis(50), &program, (folder.path(), None));
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "hanging does not end within 50ms");
    }

    #[test]
    fn a_program_that_fills_holes_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        let endless = "endless=sh -c 'while :; do head -c 1M /dev/zero; done > {to}'";
        let named: NamedCommand = endless.parse().unwrap();
        let program = command(&named, None, &to, &to);
        let stopped = run_within(LIMIT, &program, (&to, Some(8 << 20)));
        assert!(matches!(stopped, Err(Error::Answer(_))), "{stopped:?}");
    }

    #[test]
    fn a_program_has_peak_memory() {
        let folder = tempfile::tempdir().unwrap();
        let named: NamedCommand = "sleeper=sleep 0.2".parse().unwrap();
        let program = command(&named, None, folder.path(), folder.path());
        let peak = run_within(LIMIT, &program, (folder.path(), None)).unwrap();
        assert!(peak.is_some_and(|peak| peak > 100 << 10), "{peak:?}");
    }
}
