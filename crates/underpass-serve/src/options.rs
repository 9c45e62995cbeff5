//! What is asked of a server: by a file in TOML, by flags, or by code. One schema for all.
//!
//! Keys are the names of the fields with dashes, every one may be left out, and one that is not
//! known is an error with its place: a limit that is misspelt must not be missing silently.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Deserialize;
use underpass::Policy;
use underpass_net::{Confine, User};

use crate::error::Error;
use crate::limits::Limits;

/// How sites are served.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Where to listen. With port 0 the kernel chooses a port.
    pub listen: SocketAddr,
    /// Threads that answer; as many as there are cores for this process where it is left out.
    pub workers: Option<NonZeroUsize>,
    /// What is served, by the name that a request is for. The first one answers for all names that
    /// no site has.
    #[serde(rename = "site")]
    pub sites: Vec<SiteOptions>,
    /// Who the process becomes when it listens, for good: `NAME` or `NAME:GROUP`. Only root can,
    /// and should: its rights are needed for ports below 1024, and for nothing after that.
    pub user: Option<User>,
    /// Whether workers confine themselves to reading what is served, so that a mistake in this
    /// program opens nothing else: `auto`, `required` or `off`.
    pub confine: Confine,
    /// The bounds of requests.
    pub requests: Limits,
    /// The bounds of connections.
    pub connections: underpass_net::Limits,
    /// How bodies may leave. Where it leaves no way, an answer ends after its head, with a reset.
    #[serde(skip)]
    pub policy: Policy,
}

/// How one site is served.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SiteOptions {
    /// The folder whose files are served; nothing outside of it can be read.
    pub root: PathBuf,
    /// The host names it answers to, without ports, in any case.
    pub names: Vec<String>,
}

impl Default for Options {
    /// No site yet, the local machine only, port 8080, a worker for each core.
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            workers: None,
            sites: Vec::new(),
            user: None,
            confine: Confine::default(),
            requests: Limits::default(),
            connections: underpass_net::Limits::default(),
            policy: Policy::default(),
        }
    }
}

impl Options {
    /// One site, in the folder `root`.
    pub fn of(root: impl Into<PathBuf>) -> Options {
        Options {
            sites: vec![SiteOptions::of(root)],
            ..Options::default()
        }
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// [`Error::Config`]: what is wrong and where, over several lines.
    ///
    /// # Examples
    /// ```
    /// use underpass_serve::Options;
    ///
    /// let text = "listen = '0.0.0.0:80'\n[[site]]\nroot = '/srv/www'\nnames = ['example.org']\n";
    /// assert_eq!(Options::parse(text)?.sites[0].names, ["example.org"]);
    /// assert!(Options::parse("lisen = '0.0.0.0:80'").is_err());
    /// # Ok::<(), underpass_serve::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Options, Error> {
        toml::from_str(text).map_err(|error| Error::Config(error.to_string()))
    }
}

impl SiteOptions {
    /// The folder `root` with everything at its default.
    pub fn of(root: impl Into<PathBuf>) -> SiteOptions {
        SiteOptions {
            root: root.into(),
            ..SiteOptions::default()
        }
    }
}
