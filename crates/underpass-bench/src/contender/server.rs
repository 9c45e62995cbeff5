//! A server under test: a command with placeholders, a process that accepts connections.
//!
//! ```text
//!   nginx -p {own} -c {file:peers/nginx.conf}        what the user gives
//!     │
//!     ▼  a free port, a directory of its own, the file copied there and filled in
//!   nginx -p /tmp/…/server-1 -c /tmp/…/server-1/0/nginx.conf
//! ```
//!
//! On the command line, an unknown name in braces is an error. In a copied file only the known
//! names are replaced, because configurations have other braces.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::named::NamedCommand;
use super::process::{self, ChildProcess, CommandSpec};
use crate::document::Contender;
use crate::error::{Error, ErrorContext, Result};
use crate::load::ServerAddress;
use crate::tls::TlsSetup;

const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// The most that is shown of a failed server's output.
const OUTPUT_BYTES_MAX: usize = 2000;

/// All that is needed to start one server repeatedly.
#[derive(Debug)]
pub(crate) struct ServerSetup {
    command: CommandSpec,
    configuration: Option<String>,
    address: SocketAddr,
    own: PathBuf,
    /// The Unix socket of its metrics, if it is our own.
    metrics: Option<PathBuf>,
}

/// Whether a server counts by which mechanisms it sends bodies. That costs a little, so it is off
/// while the server is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsMode {
    Off,
    On,
}

pub(crate) struct ServerProcess {
    process: ChildProcess,
    address: ServerAddress,
}

impl ServerSetup {
    /// `underpass`, as the server of this subcommand, for the folder `root`, with one worker and
    /// additional arguments.
    pub(crate) fn own(
        (name, subcommand): (&str, &str),
        more: &[String],
        (root, tls): (&Path, Option<&TlsSetup>),
        own: PathBuf,
    ) -> Result<ServerSetup> {
        let address = free_address()?;
        let listen = address.to_string();
        let options = ["--listen", &listen, "--workers", "1"].map(OsString::from);
        let mut command = vec![process::underpass()?, subcommand.into(), root.into()];
        command.extend(options.into_iter().chain(more.iter().map(OsString::from)));
        if let Some(tls) = tls {
            let (cert, key) = (tls.cert().into(), tls.key().into());
            command.extend(["--cert".into(), cert, "--key".into(), key]);
        }
        Ok(ServerSetup {
            command: CommandSpec {
                name: name.to_owned(),
                version: match tls {
                    None => format!("underpass {}", env!("CARGO_PKG_VERSION")),
                    Some(_) => format!("underpass {}, AWS-LC", env!("CARGO_PKG_VERSION")),
                },
                command,
            },
            configuration: None,
            address,
            metrics: Some(own.join("status")),
            own,
        })
    }

    /// A server that the user names, serving `root`.
    pub(crate) fn of(
        named: &NamedCommand,
        (root, tls): (&Path, Option<&TlsSetup>),
        own: PathBuf,
    ) -> Result<ServerSetup> {
        let address = free_address()?;
        let mut placeholders = Placeholders {
            root,
            tls,
            own: &own,
            address,
            copied: Vec::new(),
        };
        let words = named.words.iter();
        let filled = words.map(|word| Ok(placeholders.fill(word)?.into()));
        let command = filled
            .collect::<Result<Vec<OsString>>>()
            .map_err(|error| error.of(&named.name))?;
        let copied = placeholders.copied;
        Ok(ServerSetup {
            command: CommandSpec {
                name: named.name.clone(),
                version: match tls {
                    None => process::version_by(&command[0], &process::VERSION_OPTIONS),
                    Some(_) => process::version_with_crypto(&command[0]),
                },
                command,
            },
            configuration: (!copied.is_empty()).then(|| copied.join("\n")),
            address,
            own,
            metrics: None,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.command.name
    }

    pub(crate) fn own_directory(&self) -> &Path {
        &self.own
    }

    /// The Unix socket of its metrics, where it listens if it is started with them.
    pub(crate) fn metrics(&self) -> Option<&Path> {
        self.metrics.as_deref()
    }

    pub(crate) fn entry(&self) -> Contender {
        Contender {
            configuration: self.configuration.clone(),
            ..self.command.entry()
        }
    }

    /// Starts it on `processor`; returns once it accepts connections.
    pub(crate) fn start(
        &self,
        processor: Option<usize>,
        metrics: MetricsMode,
        tls: Option<&TlsSetup>,
    ) -> Result<ServerProcess> {
        let mut server = self.spawn(processor, metrics, tls)?;
        match wait_until_accepting(self.address, &mut server.process)? {
            Ok(()) => Ok(server),
            Err(why) => Err(self.failed(server, why)),
        }
    }

    /// Stops a server; returns the error, with the end of its output.
    pub(crate) fn failed(&self, mut server: ServerProcess, why: &str) -> Error {
        // Why it did not start matters more than how it ends.
        let _ = server.process.stop();
        Error::Contender(format!(
            "{} {why} and doesn't accept connections on {}; its output: {}",
            self.name(),
            self.address,
            end_of(&self.log())
        ))
    }

    fn log(&self) -> PathBuf {
        self.own.join("output.log")
    }

    /// Starts it on `processor`, and doesn't wait.
    pub(crate) fn spawn(
        &self,
        processor: Option<usize>,
        metrics: MetricsMode,
        tls: Option<&TlsSetup>,
    ) -> Result<ServerProcess> {
        let log = self.log();
        let context = || format!("creating {}", log.display());
        let output = File::create(&log).context(context)?;
        let errors = output.try_clone().context(context)?;
        let mut command = self.command.clone();
        if let (MetricsMode::On, Some(socket)) = (metrics, &self.metrics) {
            let address = format!("unix:{}", socket.display());
            command.command.extend(["--status".into(), address.into()]);
        }
        let mut command = command.on(processor)?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        Ok(ServerProcess {
            process: ChildProcess::start(self.name(), &mut command)?,
            address: ServerAddress {
                socket: self.address,
                tls: tls.map(TlsSetup::client),
            },
        })
    }
}

fn wait_until_accepting(
    address: SocketAddr,
    process: &mut ChildProcess,
) -> Result<std::result::Result<(), &'static str>> {
    let start = Instant::now();
    loop {
        let accepts = TcpStream::connect(address).is_ok();
        if process.has_ended()? {
            return Ok(Err(
                "ended at once (a server has to stay in the foreground)",
            ));
        }
        if accepts {
            return Ok(Ok(()));
        }
        if start.elapsed() > START_TIMEOUT {
            return Ok(Err("does not start within 10 seconds"));
        }
        sleep(POLL);
    }
}

impl ServerProcess {
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Whether it ended by itself.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        self.process.has_ended()
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        self.process.stop()
    }

    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill()
    }
}

struct Placeholders<'a> {
    root: &'a Path,
    tls: Option<&'a TlsSetup>,
    own: &'a Path,
    address: SocketAddr,
    /// The texts of the files that were copied.
    copied: Vec<String>,
}

const KNOWN: &str = "{root} {host} {port} {address} {own} {file:PATH}, with --tls {cert} {key}";

impl Placeholders<'_> {
    /// A word of a command line with its placeholders replaced.
    fn fill(&mut self, word: &str) -> Result<String> {
        let mut filled = String::new();
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            match after.split_once('}') {
                Some((inside, behind)) if is_name(inside) => {
                    filled.push_str(&self.value(inside)?);
                    rest = behind;
                }
                _ => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        Ok(filled + rest)
    }

    fn value(&mut self, name: &str) -> Result<String> {
        if let Some(path) = name.strip_prefix("file:") {
            return self.copy(Path::new(path));
        }
        let known = self.values().into_iter().find(|(known, _)| *known == name);
        let value = known.map(|(_, value)| value);
        value.ok_or_else(|| {
            Error::Contender(format!(
                "unknown placeholder {{{name}}}; expected one of {KNOWN}"
            ))
        })
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = vec![
            ("root", self.root.display().to_string()),
            ("host", self.address.ip().to_string()),
            ("port", self.address.port().to_string()),
            ("address", self.address.to_string()),
            ("own", self.own.display().to_string()),
        ];
        if let Some(tls) = self.tls {
            values.push(("cert", tls.cert().display().to_string()));
            values.push(("key", tls.key().display().to_string()));
        }
        values
    }

    /// Copies a file into the server's directory, keeping its name, which matters to some servers.
    fn copy(&mut self, from: &Path) -> Result<String> {
        let text = fs::read_to_string(from).context(|| format!("reading {}", from.display()))?;
        let filled = self.values().iter().fold(text, |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), value)
        });
        let folder = self.own.join(self.copied.len().to_string());
        let to = folder.join(from.file_name().unwrap_or_default());
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&to, &filled));
        written.context(|| format!("writing {}", to.display()))?;
        self.copied.push(filled);
        Ok(to.display().to_string())
    }
}

/// Whether it can be a placeholder; other text in braces, such as JSON, is kept.
fn is_name(inside: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    inside.starts_with("file:") || (!inside.is_empty() && inside.chars().all(is_letter))
}

/// A loopback address on which no program listens now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.context(|| "finding a free port".into())
}

/// The end of what a server has printed: all of it may be more than fits into memory.
fn end_of(log: &Path) -> String {
    let mut output = [0; OUTPUT_BYTES_MAX];
    let read = File::open(log).and_then(|log| {
        let from = log.metadata()?.len().saturating_sub(output.len() as u64);
        log.read_at(&mut output, from)
    });
    let output = String::from_utf8_lossy(&output[..read.unwrap_or(0)]);
    let output = Some(output.trim()).filter(|output| !output.is_empty());
    output.unwrap_or("nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(word: &str, own: &Path) -> Result<(String, Vec<String>)> {
        let mut place = Placeholders {
            root: Path::new("/www"),
            tls: None,
            own,
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            copied: Vec::new(),
        };
        let word = place.fill(word)?;
        Ok((word, place.copied))
    }

    fn word(word: &str) -> String {
        filled(word, Path::new("/own")).unwrap().0
    }

    #[test]
    fn placeholders_are_replaced_wherever_they_stand() {
        assert_eq!(word("--root={root}/x"), "--root=/www/x");
        assert_eq!(word("{host}:{port}"), "127.0.0.1:8080");
        assert_eq!(word("{own}{address}"), "/own127.0.0.1:8080");
        assert_eq!(word("plain"), "plain");
    }

    #[test]
    fn an_unknown_placeholder_is_an_error_that_lists_the_known_ones() {
        let error = filled("{rot}", Path::new("/own")).unwrap_err().to_string();
        assert!(error.contains("{rot}") && error.contains(KNOWN), "{error}");
    }

    #[test]
    fn other_braces_are_left_alone() {
        for other in ["{\"a\": 1}", "{}", "{", "}", "a{b", "{A}"] {
            assert_eq!(word(other), other);
        }
    }

    #[test]
    fn a_file_is_copied_with_its_placeholders_replaced_and_its_braces_kept() {
        let own = tempfile::tempdir().unwrap();
        let from = own.path().join("some.conf");
        fs::write(&from, "http { listen {address}; root {root}; {other} }").unwrap();
        let asked = format!("{{file:{}}}", from.display());
        let (word, copied) = filled(&asked, own.path()).unwrap();
        assert_eq!(word, own.path().join("0/some.conf").display().to_string());
        let expected = "http { listen 127.0.0.1:8080; root /www; {other} }";
        assert_eq!(copied, [expected]);
        assert_eq!(fs::read_to_string(word).unwrap(), expected);
        let missing = filled("{file:/nowhere/x}", own.path()).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/x"), "{missing}");
    }

    #[test]
    fn the_end_of_a_servers_output_is_shown() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let end_of = |output: &[u8]| {
            fs::write(&log, output).unwrap();
            super::end_of(log.path())
        };
        assert_eq!(end_of(b" \n"), "nothing");
        assert_eq!(end_of(b"bind: taken\n"), "bind: taken");
        let long = ["x".repeat(9000), "y".repeat(2000)].concat();
        assert_eq!(end_of(long.as_bytes()), long[9000..]);
        assert_eq!(super::end_of(Path::new("/nowhere/x")), "nothing");
    }
}
