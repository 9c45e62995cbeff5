//! This project's own worker: moves files with a given mechanism.
//!
//! It follows the protocol of all workers (see `worker_process`), and adds the account of each job.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;

use underpass::drive::blocking::Driver;
use underpass::{Account, Cloning, Kernel, Policy, Sink, Source};

pub(crate) use super::role::MoverSettings;
use crate::content;
use crate::error::{Error, ErrorContext, Result};

/// Does one job for each line of standard input until it ends.
pub(crate) fn work(settings: MoverSettings) -> Result<()> {
    let mover = Mover {
        settings,
        kernel: Kernel::probe(),
    };
    answer(&format!("ready underpass {}", env!("CARGO_PKG_VERSION")))?;
    for line in io::stdin().lock().lines() {
        let line = line.context(|| "reading a job".into())?;
        answer(&match mover.job(&line) {
            Ok(account) => {
                let json = serde_json::to_string(&account).unwrap_or_default();
                format!("ok {} {json}", account.bytes())
            }
            Err(error) => format!("failed {error}"),
        })?;
    }
    Ok(())
}

fn answer(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.context(|| "answering".into())
}

struct Mover {
    settings: MoverSettings,
    kernel: Kernel,
}

impl Mover {
    fn job(&self, line: &str) -> Result<Account> {
        let words: Vec<&str> = line.split('\t').collect();
        let unknown = || Error::Setting(format!("not a job: {line:?}"));
        match words[..] {
            ["send", file, address] => self.send(file, address),
            ["copy", from, to, times] => self.copy(from, to, times.parse().map_err(|_| unknown())?),
            _ => Err(unknown()),
        }
    }

    fn run<F: AsFd, G: AsFd>(
        &self,
        source: &Source<F>,
        sink: &Sink<G>,
        what: &str,
    ) -> Result<Account> {
        let policy = match (self.settings.only, self.settings.unshared) {
            (Some(only), _) => Policy::only(only),
            (None, true) => Policy::default().cloning(Cloning::Never),
            (None, false) => Policy::default(),
        };
        let mut driver = Driver::new(&self.kernel).policy(policy);
        if let Some(bytes) = self.settings.call_bytes {
            driver = driver.call_bytes_max(bytes);
        }
        let done = driver.run(source, sink);
        done.map_err(|error| Error::Contender(format!("{what}: {error}")))
    }

    /// Sends a whole file over a new connection, and waits until the other side has all of it.
    fn send(&self, file: &str, address: &str) -> Result<Account> {
        let context = || format!("sending {file} to {address}");
        let from = File::open(file).context(context)?;
        let mut socket = TcpStream::connect(address).context(context)?;
        let source = Source::whole(&from).context(context)?;
        let sink = Sink::new(&socket).context(context)?;
        let account = self.run(&source, &sink, &context())?;
        socket.shutdown(Shutdown::Write).context(context)?;
        socket.read_to_end(&mut Vec::new()).context(context)?;
        Ok(account)
    }

    /// Copies a file several times, each time into a new one of the same name.
    fn copy(&self, from: &str, to: &str, times: u32) -> Result<Account> {
        let context = || format!("copying {from} to {to}");
        let mut all = Account::default();
        for _ in 0..times {
            content::remove(Path::new(to))?;
            let source_file = File::open(from).context(context)?;
            let sink_file = File::create_new(to).context(context)?;
            let source = Source::whole(&source_file).context(context)?;
            let sink = Sink::new(&sink_file).context(context)?;
            all.add(&self.run(&source, &sink, &context())?);
        }
        Ok(all)
    }
}
