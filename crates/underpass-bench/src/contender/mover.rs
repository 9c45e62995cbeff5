//! This project's own porter: moves files as it is told, by the mechanism it is told, and says how.
//!
//! It keeps the contract that every porter keeps (see `porter`), and adds the account of each job.

use std::fs::{self, File};
use std::io::{self, BufRead as _, Read as _};
use std::net::{Shutdown, TcpStream};

use underpass::drive::blocking::Driver;
use underpass::{Account, Cloning, Kernel, Mechanism, Policy, Sink, Source};

use crate::error::{Error, ErrorContext, Result};

/// What a mover is told when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoverSettings {
    /// The only mechanism it may use; none for what the plan says.
    pub only: Option<Mechanism>,
    /// What one call may move, in bytes; none for the mover's own choice.
    pub call_bytes: Option<u64>,
    /// Whether blocks may be shared.
    pub cloning: Cloning,
}

impl MoverSettings {
    pub(crate) fn arguments(self) -> Vec<String> {
        let only = self.only.map(|only| format!("--only={}", only.name()));
        let call_bytes = self.call_bytes.map(|bytes| format!("--call-bytes={bytes}"));
        let unshared = (self.cloning == Cloning::Never).then(|| "--unshared".to_owned());
        [only, call_bytes, unshared].into_iter().flatten().collect()
    }
}

/// Does one job for each line of standard input until it ends.
pub(crate) fn work(settings: &MoverSettings) -> Result<()> {
    let kernel = Kernel::probe();
    let mut out = io::stdout().lock();
    say(
        &mut out,
        &format!("ready underpass {}", env!("CARGO_PKG_VERSION")),
    )?;
    for line in io::stdin().lock().lines() {
        let line = line.context(|| "reading a job".into())?;
        let answer = match do_job(&line, settings, &kernel) {
            Ok((bytes, account)) => {
                let account = serde_json::to_string(&account).unwrap_or_default();
                format!("ok {bytes} {account}")
            }
            Err(error) => format!("failed {error}"),
        };
        say(&mut out, &answer)?;
    }
    Ok(())
}

fn say(out: &mut impl io::Write, line: &str) -> Result<()> {
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    said.context(|| "answering".into())
}

fn do_job(line: &str, settings: &MoverSettings, kernel: &Kernel) -> Result<(u64, Account)> {
    let words: Vec<&str> = line.split('\t').collect();
    match words[..] {
        ["send", file, address] => send(file, address, settings, kernel),
        ["copy", from, to, times] => {
            let times = times.parse().map_err(|_| unknown(line))?;
            copy(from, to, times, settings, kernel)
        }
        _ => Err(unknown(line)),
    }
}

fn unknown(line: &str) -> Error {
    Error::Setting(format!("not a job: {line:?}"))
}

fn driver<'h>(settings: &MoverSettings, kernel: &'h Kernel) -> Driver<'h> {
    let policy = match settings.only {
        Some(only) => Policy::only(only),
        None => Policy::default().cloning(settings.cloning),
    };
    let driver = Driver::new(kernel).policy(policy);
    match settings.call_bytes {
        Some(bytes) => driver.call_bytes_max(bytes),
        None => driver,
    }
}

/// Sends a whole file over a new connection, and waits until the other side has all of it.
fn send(
    file: &str,
    address: &str,
    settings: &MoverSettings,
    kernel: &Kernel,
) -> Result<(u64, Account)> {
    let context = || format!("sending {file} to {address}");
    let from = File::open(file).context(context)?;
    let mut socket = TcpStream::connect(address).context(context)?;
    let (source, sink) = (
        Source::whole(&from).context(context)?,
        Sink::new(&socket).context(context)?,
    );
    let account = driver(settings, kernel)
        .run(&source, &sink)
        .map_err(|error| Error::Contender(format!("{}: {error}", context())))?;
    socket.shutdown(Shutdown::Write).context(context)?;
    socket.read_to_end(&mut Vec::new()).context(context)?;
    Ok((account.bytes(), account))
}

/// Copies a file over and over, each time into a new one of the same name.
fn copy(
    from: &str,
    to: &str,
    times: u32,
    settings: &MoverSettings,
    kernel: &Kernel,
) -> Result<(u64, Account)> {
    let context = || format!("copying {from} to {to}");
    let mut all = Account::default();
    for _ in 0..times {
        match fs::remove_file(to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context(context);
            }
            _ => {}
        }
        let source_file = File::open(from).context(context)?;
        let sink_file = File::create_new(to).context(context)?;
        let source = Source::whole(&source_file).context(context)?;
        let sink = Sink::new(&sink_file).context(context)?;
        let account = driver(settings, kernel)
            .run(&source, &sink)
            .map_err(|error| Error::Contender(format!("{}: {error}", context())))?;
        all.add(&account);
    }
    Ok((all.bytes(), all))
}
