//! `underpass cp SRC DST`: one file, so that the mover can be tried through the real binary.
//!
//! Trees, metadata and GNU's options are `cp`'s own chapter; what stands here is the shortest way
//! from two names to a transfer that does no harm: it never empties a file that it is about to
//! read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use underpass::drive::blocking::Driver;
use underpass::{Account, Host, Mechanism, Plan, Policy, Sink, Source};

/// Copy one file, keeping its holes and sharing its blocks where the file system can
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The file to copy; a pipe or a device is copied until it ends
    #[arg(value_name = "SRC")]
    source: PathBuf,

    /// Where to: an existing file is overwritten in place, into a folder it goes under its own name
    #[arg(value_name = "DST")]
    sink: PathBuf,

    /// Use this mechanism and no other: an error rather than a fallback
    /// [clone, copy_range, sendfile, splice, read_write]
    #[arg(long, value_name = "MECHANISM")]
    only: Option<Mechanism>,

    /// Say what was planned and how the bytes travelled
    #[arg(long)]
    explain: bool,
}

/// Copies, and says on standard output how if that was asked.
///
/// The error is one line for people: what was being done, to which path, and what the kernel
/// said. What the destination has got by then stays there.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let sink_path = into_folder(&arguments.source, &arguments.sink);
    let (from, to) = open_both(&arguments.source, &sink_path)?;
    let policy = arguments.only.map(Policy::only).unwrap_or_default();
    let both = || format!("{} to {}", quoted(&arguments.source), quoted(&sink_path));
    let (plan, copied) =
        copy(&from, &to, policy).map_err(|error| format!("cannot look at {}: {error}", both()))?;
    if arguments.explain {
        println!("plan: {plan}");
    }
    match copied {
        Ok(account) => {
            if arguments.explain {
                println!("account: {account}");
            }
            Ok(())
        }
        Err(error) => {
            if arguments.explain {
                println!("account: {}", error.account);
            }
            Err(format!("cannot copy {}: {error}", both()))
        }
    }
}

fn copy(
    from: &File,
    to: &File,
    policy: Policy,
) -> io::Result<(Plan, Result<Account, underpass::Error>)> {
    let host = Host::probe();
    let (source, sink) = (Source::whole(from)?, Sink::new(to)?);
    let driver = Driver::new(&host).policy(policy);
    Ok((driver.plan(&source, &sink), driver.run(&source, &sink)))
}

fn into_folder(source: &Path, sink: &Path) -> PathBuf {
    match source.file_name() {
        Some(name) if sink.is_dir() => sink.join(name),
        _ => sink.to_owned(),
    }
}

/// Opens the source, then the sink: a new file with the source's permissions less the umask, or an
/// existing one, which is emptied once it is known to be another.
fn open_both(source_path: &Path, sink_path: &Path) -> Result<(File, File), String> {
    let cannot = |what: &str, path: &Path| {
        let place = quoted(path);
        let what = what.to_owned();
        move |error: io::Error| format!("cannot {what} {place}: {error}")
    };
    let from = File::open(source_path).map_err(cannot("open", source_path))?;
    let source = from.metadata().map_err(cannot("look at", source_path))?;
    if source.is_dir() {
        return Err(format!(
            "{} is a folder; only single files are copied yet",
            quoted(source_path)
        ));
    }
    let to = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(source.permissions().mode() & 0o777)
        .open(sink_path)
        .map_err(cannot("open for writing", sink_path))?;
    let sink = to.metadata().map_err(cannot("look at", sink_path))?;
    if (source.dev(), source.ino()) == (sink.dev(), sink.ino()) {
        let (source, sink) = (quoted(source_path), quoted(sink_path));
        return Err(format!(
            "{source} and {sink} are the same file; nothing was changed"
        ));
    }
    if sink.file_type().is_file() && sink.len() > 0 {
        to.set_len(0).map_err(cannot("empty", sink_path))?;
    }
    Ok((from, to))
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}
