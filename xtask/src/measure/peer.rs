//! The servers that can be compared, and how each is set up to be at its best.
//!
//! Every peer serves the same directory with one worker. nginx comes three times: tuned (the one
//! to beat), as its defaults leave it, and without `sendfile`, which shows what a copying server
//! costs.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use super::error::{Doing, Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// This project's server
    Underpass,
    /// nginx, tuned: sendfile, tcp_nopush, open_file_cache
    Nginx,
    /// nginx with sendfile on and nothing else touched
    NginxPlain,
    /// nginx with sendfile off: what copying costs
    NginxCopying,
    /// lighttpd
    Lighttpd,
}

/// A server to compare, and whatever sets this variant of it apart.
pub(crate) struct Contender {
    pub(crate) peer: Peer,
    /// For underpass the path of another build, `NAME=VALUE` in its environment or one more
    /// argument; for the others one more line of configuration.
    pub(crate) variant: Option<String>,
}

/// Everything needed to start one server.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) configuration: Option<String>,
    pub(crate) address: SocketAddr,
}

/// Where a server finds things.
pub(crate) struct Place<'a> {
    /// The directory to serve.
    pub(crate) root: &'a Path,
    /// The server's own directory: configuration, pid file, log.
    pub(crate) own: &'a Path,
    pub(crate) address: SocketAddr,
    pub(crate) underpass: &'a Path,
}

impl Contender {
    /// Writes the configuration, and says how to start the server with it.
    pub(crate) fn set_up(&self, place: &Place<'_>) -> Result<Setup> {
        let program = self.peer.program(place);
        let version = version_of(&program, self.peer)?;
        let file = place.own.join("server.conf");
        let mut setup = Setup {
            name: self.peer.name(),
            version,
            program,
            arguments: self.peer.arguments(place, &file),
            environment: Vec::new(),
            configuration: None,
            address: place.address,
        };
        let line = self.vary(&mut setup);
        setup.configuration = match self.peer {
            Peer::Underpass => None,
            Peer::Nginx => Some(nginx(place, &format!("{NGINX_TUNED}{line}"))),
            Peer::NginxPlain => Some(nginx(place, &format!("{NGINX_PLAIN}{line}"))),
            Peer::NginxCopying => Some(nginx(place, &format!("{NGINX_COPYING}{line}"))),
            Peer::Lighttpd => Some(lighttpd(place) + &line),
        };
        if let Some(text) = &setup.configuration {
            std::fs::write(&file, text).doing(|| format!("writing {}", file.display()))?;
        }
        Ok(setup)
    }

    /// Puts the variant where it belongs; one for a configuration is the line to add there.
    fn vary(&self, setup: &mut Setup) -> String {
        let Some(variant) = &self.variant else {
            return String::new();
        };
        setup.name = format!("{} {variant}", setup.name);
        match (self.peer, variant.split_once('=')) {
            (Peer::Nginx | Peer::NginxPlain | Peer::NginxCopying, _) => {
                return format!("    {variant};\n");
            }
            (Peer::Lighttpd, _) => return format!("{variant}\n"),
            (Peer::Underpass, _) if variant.starts_with('/') => setup.program = variant.into(),
            (Peer::Underpass, Some((name, value))) if !name.starts_with('-') => {
                setup.environment.push((name.to_owned(), value.to_owned()));
            }
            (Peer::Underpass, _) => setup.arguments.push(variant.clone()),
        }
        String::new()
    }
}

impl Peer {
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn program(self, place: &Place<'_>) -> PathBuf {
        match self {
            Peer::Underpass => place.underpass.to_owned(),
            Peer::Nginx | Peer::NginxPlain | Peer::NginxCopying => "/usr/sbin/nginx".into(),
            Peer::Lighttpd => "/usr/sbin/lighttpd".into(),
        }
    }

    fn arguments(self, place: &Place<'_>, file: &Path) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        match self {
            Peer::Underpass => {
                let listen = place.address.to_string();
                words(&[
                    "serve",
                    &path(place.root),
                    "--listen",
                    &listen,
                    "--workers",
                    "1",
                ])
            }
            Peer::Nginx | Peer::NginxPlain | Peer::NginxCopying => {
                words(&["-p", &path(place.own), "-c", &path(file), "-e", "stderr"])
            }
            Peer::Lighttpd => words(&["-D", "-f", &path(file)]),
        }
    }
}

fn version_of(program: &Path, peer: Peer) -> Result<String> {
    let flag = if peer == Peer::Underpass {
        "--version"
    } else {
        "-v"
    };
    let missing = |error| Error::Setting(format!("{} does not run: {error}", program.display()));
    let output = Command::new(program).arg(flag).output().map_err(missing)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Ok(said
        .lines()
        .next()
        .unwrap_or("version unknown")
        .trim()
        .to_owned())
}

const NGINX_TUNED: &str = "\
    sendfile on;
    tcp_nopush on;
    open_file_cache max=4096 inactive=60s;
    open_file_cache_valid 60s;
";

const NGINX_PLAIN: &str = "    sendfile on;\n";

const NGINX_COPYING: &str = "    sendfile off;\n";

/// The limits are wide enough never to matter: a closed connection would be an error.
fn nginx(place: &Place<'_>, tuning: &str) -> String {
    let mut text = String::new();
    if rustix::process::geteuid().is_root() {
        text.push_str("user root;\n");
    }
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let (own, root, address) = (place.own.display(), place.root.display(), place.address);
    let _ = write!(
        text,
        "\
worker_processes 1;
worker_rlimit_nofile 16384;
daemon off;
pid {own}/nginx.pid;
error_log {own}/error.log;
events {{
    worker_connections 8192;
}}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 300s;
    send_timeout 300s;
{tuning}"
    );
    for kind in temporary {
        let _ = writeln!(text, "    {kind}_temp_path {own}/{kind};");
    }
    let _ = write!(
        text,
        "\
    server {{
        listen {address} backlog=4096;
        root {root};
    }}
}}
"
    );
    text
}

fn lighttpd(place: &Place<'_>) -> String {
    let (own, root, address) = (place.own.display(), place.root.display(), place.address);
    format!(
        "\
server.document-root = \"{root}\"
server.bind = \"{}\"
server.port = {}
server.errorlog = \"{own}/error.log\"
server.max-fds = 16384
server.max-connections = 8192
server.listen-backlog = 4096
server.max-keep-alive-requests = 1000000000
server.max-keep-alive-idle = 300
server.max-read-idle = 300
server.max-write-idle = 300
mimetype.assign = ( \"\" => \"application/octet-stream\" )
",
        address.ip(),
        address.port()
    )
}
