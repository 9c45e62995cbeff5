//! A server under test: a command with placeholders, a process that accepts connections.
//!
//! ```text
//!   nginx -p {own} -c {file:peers/nginx.conf}        what the user says
//!     │
//!     ▼  a free port, a directory of its own, the file copied there and filled in
//!   nginx -p /tmp/…/server-1 -c /tmp/…/server-1/0/nginx.conf
//! ```
//!
//! On the command line a name in braces that is no placeholder is an error. In a copied file only
//! the known ones are replaced: configurations have braces of their own.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::contender::named::NamedCommand;
use crate::contender::process::{ChildProcess, CommandSpec};
use crate::document::Contender;
use crate::error::{Error, ErrorContext, Result};

const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// What a server that failed said, at most so much of it.
const SAID_BYTES_MAX: usize = 2000;

/// What programs that know their version are asked by, the most usual first.
const VERSION_QUESTIONS: [&str; 4] = ["--version", "-v", "-V", "version"];
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);
const VERSION_CHARS_MAX: usize = 120;
const UNKNOWN_VERSION: &str = "version unknown";

/// Everything needed to start one server, over and over.
#[derive(Debug)]
pub(crate) struct ServerSetup {
    program: CommandSpec,
    configuration: Option<String>,
    /// Where it listens.
    address: SocketAddr,
    /// A directory of its own.
    own: PathBuf,
    /// What it is started with to tell how bodies travel, if it can: our own, by a Unix socket.
    telling: Option<PathBuf>,
}

/// Whether a server tells how bodies travel. It costs a little, so none does while it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsMode {
    Nothing,
    Metrics,
}

/// A server that accepts connections.
pub(crate) struct ServerProcess {
    process: ChildProcess,
    address: SocketAddr,
}

impl ServerSetup {
    /// This program, serving `root` with one worker and so many more arguments.
    pub(crate) fn own(
        name: &str,
        more: &[String],
        root: &Path,
        own: PathBuf,
    ) -> Result<ServerSetup> {
        let address = free_address()?;
        let program = std::env::current_exe().context(|| "finding this program".into())?;
        let mut command = vec![program.into(), OsString::from("serve"), root.into()];
        let listen = address.to_string();
        command.extend(["--listen", &listen, "--workers", "1"].map(OsString::from));
        command.extend(more.iter().map(OsString::from));
        Ok(ServerSetup {
            program: CommandSpec {
                name: name.to_owned(),
                version: format!("underpass {}", env!("CARGO_PKG_VERSION")),
                command,
                environment: Vec::new(),
            },
            configuration: None,
            address,
            telling: Some(own.join("status")),
            own,
        })
    }

    /// A server that the user names, serving `root`.
    pub(crate) fn of(named: &NamedCommand, root: &Path, own: PathBuf) -> Result<ServerSetup> {
        let address = free_address()?;
        let mut place = Placeholders {
            root,
            own: &own,
            address,
            copied: Vec::new(),
        };
        let words = named.words.iter();
        let filled: Result<Vec<OsString>> =
            words.map(|word| Ok(place.fill(word)?.into())).collect();
        let command = filled.map_err(|error| error.of(&named.name))?;
        let version = version_of(&command[0], &own);
        let configuration = (!place.copied.is_empty()).then(|| place.copied.join("\n"));
        Ok(ServerSetup {
            program: CommandSpec {
                name: named.name.clone(),
                version,
                command,
                environment: Vec::new(),
            },
            configuration,
            address,
            own,
            telling: None,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.program.name
    }

    /// For files that are about this server.
    pub(crate) fn own_directory(&self) -> &Path {
        &self.own
    }

    /// Where it tells how bodies travel, when it is started for that.
    pub(crate) fn telling(&self) -> Option<&Path> {
        self.telling.as_deref()
    }

    /// How it stands in the document.
    pub(crate) fn entry(&self) -> Contender {
        Contender {
            configuration: self.configuration.clone(),
            ..self.program.entry()
        }
    }

    /// Starts it on `processor`; returns once it accepts connections.
    pub(crate) fn start(
        &self,
        processor: Option<usize>,
        telling: MetricsMode,
    ) -> Result<ServerProcess> {
        let log = self.own.join("output.log");
        let context = || format!("creating {}", log.display());
        let output = File::create(&log).context(context)?;
        let errors = output.try_clone().context(context)?;
        let mut program = self.program.clone();
        if let (MetricsMode::Metrics, Some(socket)) = (telling, &self.telling) {
            let address = format!("unix:{}", socket.display());
            program.command.extend(["--status".into(), address.into()]);
        }
        let mut command = program.on(processor)?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let mut process = ChildProcess::start(self.name(), &mut command)?;
        match self.wait_until_accepting(&mut process)? {
            Accepting::Yes => Ok(ServerProcess {
                process,
                address: self.address,
            }),
            Accepting::Not(why) => {
                // Why it did not start is what matters.
                let _ = process.stop();
                let said = fs::read(&log).unwrap_or_default();
                let (name, address) = (self.name(), self.address);
                Err(Error::Contender(format!(
                    "{name} {why}, and takes no connections on {address}; it said: {}",
                    last_of(&String::from_utf8_lossy(&said))
                )))
            }
        }
    }

    fn wait_until_accepting(&self, process: &mut ChildProcess) -> Result<Accepting> {
        let start = Instant::now();
        loop {
            let accepts = TcpStream::connect(self.address).is_ok();
            if process.has_ended()? {
                let why = "ended at once (a server has to stay in the foreground)";
                return Ok(Accepting::Not(why));
            }
            if accepts {
                return Ok(Accepting::Yes);
            }
            if start.elapsed() > START_TIMEOUT {
                return Ok(Accepting::Not("does nothing for 10 seconds"));
            }
            sleep(POLL);
        }
    }
}

enum Accepting {
    Yes,
    Not(&'static str),
}

impl ServerProcess {
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// See [`ChildProcess::stop`].
    pub(crate) fn stop(mut self) -> Result<()> {
        self.process.stop()
    }
}

/// What placeholders stand for.
struct Placeholders<'a> {
    root: &'a Path,
    own: &'a Path,
    address: SocketAddr,
    /// The texts of the files that were copied.
    copied: Vec<String>,
}

const KNOWN: &str = "{root} {host} {port} {address} {own} {file:PATH}";

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
            Error::Contender(format!("{{{name}}} is no placeholder; there are {KNOWN}"))
        })
    }

    fn values(&self) -> [(&'static str, String); 5] {
        [
            ("root", self.root.display().to_string()),
            ("host", self.address.ip().to_string()),
            ("port", self.address.port().to_string()),
            ("address", self.address.to_string()),
            ("own", self.own.display().to_string()),
        ]
    }

    /// Copies a file into the server's directory, under its own name, which some servers look at.
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

/// Other things in braces, such as JSON, are left as they are.
fn is_name(inside: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    inside.starts_with("file:") || (!inside.is_empty() && inside.chars().all(is_letter))
}

/// A loopback address nobody listens on now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.context(|| "looking for a free port".into())
}

fn last_of(said: &str) -> &str {
    let said = said.trim();
    let from = said.len().saturating_sub(SAID_BYTES_MAX);
    let from = (from..said.len()).find(|&at| said.is_char_boundary(at));
    match from.map_or("", |from| &said[from..]) {
        "" => "nothing",
        said => said,
    }
}

/// What a program says of itself; each question has a moment to be answered.
fn version_of(program: &OsString, own: &Path) -> String {
    let said = VERSION_QUESTIONS
        .iter()
        .find_map(|question| sensible_line(&answer_to(question, program, own)?));
    said.unwrap_or_else(|| UNKNOWN_VERSION.to_owned())
}

/// What a program prints for a question that it doesn't take for an error.
fn answer_to(question: &str, program: &OsString, own: &Path) -> Option<String> {
    let log = own.join("version.log");
    let output = File::create(&log).ok()?;
    let errors = output.try_clone().ok()?;
    let mut child = Command::new(program)
        .arg(question)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .ok()?;
    let start = Instant::now();
    while start.elapsed() < VERSION_TIMEOUT {
        if let Some(status) = child.try_wait().ok()? {
            let said = fs::read(&log).ok()?;
            return status
                .success()
                .then(|| String::from_utf8_lossy(&said).into_owned());
        }
        sleep(POLL);
    }
    // It took the question for something else, and goes on.
    let _ = child.kill().and_then(|()| child.wait());
    None
}

/// The first line that may be a version: with a digit, and not a page long.
fn sensible_line(said: &str) -> Option<String> {
    let mut lines = said.lines().map(str::trim);
    let line = lines.find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(line.chars().take(VERSION_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(word: &str, own: &Path) -> Result<(String, Vec<String>)> {
        let mut place = Placeholders {
            root: Path::new("/www"),
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
    fn a_version_is_the_first_line_with_a_digit() {
        let said = "\n  nginx version:   nginx/1.22.1\nbuilt with 3\n";
        let line = sensible_line(said);
        assert_eq!(line.as_deref(), Some("nginx version: nginx/1.22.1"));
        assert_eq!(sensible_line("usage: x\n"), None);
    }

    #[test]
    fn programs_are_asked_for_their_version_and_some_have_none() {
        let own = tempfile::tempdir().unwrap();
        let of = |program: &str| version_of(&program.into(), own.path());
        assert!(of("cargo").starts_with("cargo 1."), "{}", of("cargo"));
        assert_eq!(of("false"), UNKNOWN_VERSION);
        assert_eq!(of("/nowhere/server"), UNKNOWN_VERSION);
    }

    #[test]
    fn what_a_server_said_last_is_told() {
        assert_eq!(last_of(" \n"), "nothing");
        assert_eq!(last_of("bind: taken\n"), "bind: taken");
        let long = "é".repeat(SAID_BYTES_MAX);
        assert_eq!(last_of(&long).len(), SAID_BYTES_MAX);
    }
}
