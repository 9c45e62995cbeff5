//! What is asked of a server: by a file in TOML, by flags, or by code. One schema for all.
//!
//! Keys are the names of the fields with dashes, every one may be left out, and one that is not
//! known is an error with its place: a limit that is misspelt must not be missing silently.

mod mistakes;
mod read;
pub(crate) mod settings;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Deserialize;
use underpass::Policy;
use underpass_net::{Confine, ListenAt, User};

use crate::answer::explain::Explain;
use crate::http::coding::Coding;
use crate::limits::RequestLimits;
use crate::log::LogOptions;
use crate::monitor::address::StatusOptions;
use crate::site::rules::mime::TypeOptions;
use crate::site::rules::{
    CacheRule, CorsOptions, EtagRecipe, FileName, HeaderRule, Hidden, HostName, MediaPattern,
    PageStatus, Redirect, Rewrite, SecurityOptions, Symlinks, TryRule, UrlPath, usual_bytes_min,
    usual_types,
};

/// How sites are served.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerOptions {
    /// Where to listen, all of it: `ADDR:PORT`, `unix:/path[,mode=0660]`, `systemd[:NAME]`.
    pub listen: Vec<ListenAt>,
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
    pub requests: RequestLimits,
    /// The bounds of connections.
    pub connections: underpass_net::ConnectionLimits,
    /// What is written about requests.
    pub log: LogOptions,
    /// Who may ask for metrics, and where.
    pub status: StatusOptions,
    /// Whether answers say how their bodies are planned to leave, and how the previous one did.
    pub explain: Explain,
    /// How bodies may leave. Where it leaves no way, an answer ends after its head, with a reset.
    #[serde(skip)]
    pub policy: Policy,
}

/// How one site is served: what a path leads to, and what is said of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SiteOptions {
    /// The folder whose files are served; nothing outside of it can be read. In a file a relative
    /// one is relative to that file.
    pub root: PathBuf,
    /// The host names it answers to: `example.org`, or `*.example.org` for all below.
    pub names: Vec<HostName>,
    /// Whether folders without an index are listed, as a page or as JSON. Without it they are
    /// answered with 403.
    pub listing: bool,
    /// Whether folders can be downloaded as one file, by `?download=tar` and `?download=tar.zst`;
    /// as `listing` where it is left out, since an archive tells what is in a folder too.
    pub archives: Option<bool>,
    /// Whether `?hash=sha256` and `?hash=blake3` answer with the hash of a file, and files come
    /// with theirs (`Repr-FileDigest`) for those who want it. Off unless it is turned on: it lets
    /// everybody who may ask have whole files read for one line of answer.
    pub hashes: bool,
    /// What a folder is answered with: the first of these that is there.
    pub index: Vec<FileName>,
    /// Whether `/about` is answered with `about.html` where there is no file of the very name.
    pub pretty: bool,
    /// What is answered, with status 200, where nothing is: the page of a web application that
    /// reads the path itself.
    pub fallback: Option<UrlPath>,
    /// Pages for answers that are errors, by status.
    pub error_pages: BTreeMap<PageStatus, UrlPath>,
    /// Paths that clients are sent away from, before anything else is looked at.
    #[serde(rename = "redirect")]
    pub redirects: Vec<Redirect>,
    /// Paths that are answered with what another path leads to.
    #[serde(rename = "rewrite")]
    pub rewrites: Vec<Rewrite>,
    /// What paths lead to by lists that are tried in their order.
    #[serde(rename = "try")]
    pub tries: Vec<TryRule>,
    /// Names that begin with a dot.
    pub hidden: Hidden,
    /// Symbolic links.
    pub symlinks: Symlinks,
    /// Codings whose files are looked for beside a file (`app.js.br`) and sent to those who take
    /// them, the ones preferred first. None costs nothing.
    pub precompressed: Vec<Coding>,
    /// Codings in which files are compressed while they are sent to those who take them, the ones
    /// preferred first, where no copy lies beside. It costs processor time for each answer.
    pub compress: Vec<Coding>,
    /// Files smaller than this are not.
    pub compress_bytes_min: u64,
    /// Media types of those that are.
    pub compress_types: Vec<MediaPattern>,
    /// What entity-tags are made of.
    pub etag: EtagRecipe,
    /// Media types.
    pub types: TypeOptions,
    /// How long files may be kept by clients and caches.
    pub cache: Vec<CacheRule>,
    /// Whether files whose names carry a hash of their content are told as never changing, if no
    /// rule of `cache` is about them.
    pub immutable: bool,
    /// Fields that are sent with files.
    #[serde(rename = "header")]
    pub headers: Vec<HeaderRule>,
    /// Fields that tell browsers to be careful.
    pub security: SecurityOptions,
    /// Which other web sites may read what is served.
    pub cors: CorsOptions,
    /// Whether a file that is asked for with `?download` is to be saved, not shown.
    pub download: bool,
}

impl Default for ServerOptions {
    /// No site yet, the local machine only, port 8080, a worker for each core.
    fn default() -> ServerOptions {
        ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080)).into()],
            workers: None,
            sites: Vec::new(),
            user: None,
            confine: Confine::default(),
            requests: RequestLimits::default(),
            connections: underpass_net::ConnectionLimits::default(),
            log: LogOptions::default(),
            status: StatusOptions::default(),
            explain: Explain::default(),
            policy: Policy::default(),
        }
    }
}

impl ServerOptions {
    /// One site, in the folder `root`.
    pub fn of(root: impl Into<PathBuf>) -> ServerOptions {
        ServerOptions {
            sites: vec![SiteOptions::of(root)],
            ..ServerOptions::default()
        }
    }
}

impl Default for SiteOptions {
    /// The current folder, under every name, as it lies there: `index.html` for folders, names
    /// with dots hidden, links inside followed, nothing compressed, folders without an index
    /// listed.
    fn default() -> SiteOptions {
        SiteOptions {
            root: PathBuf::from("."),
            names: Vec::new(),
            listing: true,
            archives: None,
            hashes: false,
            index: FileName::parse("index.html").into_iter().collect(),
            pretty: false,
            fallback: None,
            error_pages: BTreeMap::new(),
            redirects: Vec::new(),
            rewrites: Vec::new(),
            tries: Vec::new(),
            hidden: Hidden::default(),
            symlinks: Symlinks::default(),
            precompressed: Vec::new(),
            compress: Vec::new(),
            compress_bytes_min: usual_bytes_min(),
            compress_types: usual_types(),
            etag: EtagRecipe::default(),
            types: TypeOptions::default(),
            cache: Vec::new(),
            immutable: false,
            headers: Vec::new(),
            security: SecurityOptions::default(),
            cors: CorsOptions::default(),
            download: true,
        }
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
