//! What is asked of a server: by a file in TOML, by flags, or by code. One schema for all.
//!
//! Keys are the names of the fields with dashes, every one may be left out, and one that is not
//! known is an error with its place: a limit that is misspelt must not be missing silently.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Deserialize;
use underpass::Policy;
use underpass_net::ListenAt;

use crate::error::Error;
use crate::limits::Limits;

/// How sites are served.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Where to listen, all of it: `ADDR:PORT`, `unix:/path[,mode=0660]`, `systemd[:NAME]`.
    pub listen: Vec<ListenAt>,
    /// Threads that answer; as many as there are cores for this process where it is left out.
    pub workers: Option<NonZeroUsize>,
    /// What is served, by the name that a request is for. The first one answers for all names that
    /// no site has.
    #[serde(rename = "site")]
    pub sites: Vec<SiteOptions>,
    /// The times a request has.
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
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080)).into()],
            workers: None,
            sites: Vec::new(),
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
    /// let text = "listen = ['0.0.0.0:80', 'unix:/run/www']
    /// [[site]]
    /// root = '/srv/www'
    /// names = ['example.org']";
    /// assert_eq!(Options::parse(text)?.sites[0].names, ["example.org"]);
    /// assert!(Options::parse("lisen = ['0.0.0.0:80']").is_err());
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
