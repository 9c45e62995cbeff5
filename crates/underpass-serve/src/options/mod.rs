//! What is asked of a server: by a file in TOML, by flags, or by code. One schema for all.
//!
//! Keys are the names of the fields with dashes, every one may be left out, and one that is not
//! known is an error with its place: a limit that is misspelt must not be missing silently.

pub(crate) mod listen;
mod mistakes;
mod read;
pub(crate) mod settings;
pub(crate) mod uploads;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Deserialize;
use underpass::Policy;
use underpass_monitor::StatusOptions;
use underpass_net::{Confine, TlsOptions, User};

use crate::access::options::AccessOptions;
use crate::answer::explain::Explain;
use crate::http::coding::Coding;
use crate::limits::RequestLimits;
use crate::log::LogOptions;
use crate::options::listen::HttpListen;
use crate::options::uploads::UploadOptions;
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
    /// Where to listen, all of it: `PORT`, `:PORT`, `ADDR:PORT`, `NAME:PORT` (all addresses of the
    /// name), `unix:/path[,mode=0660]`, `systemd[:NAME]`; each with `http:` or `https:` before it
    /// to choose what is spoken there.
    #[serde(deserialize_with = "listen::resolved")]
    pub listen: Vec<HttpListen>,
    /// Certificates, and how TLS is spoken where HTTPS is.
    pub tls: TlsOptions,
    /// Threads that answer; as many as there are cores for this process where it is left out.
    pub workers: Option<NonZeroUsize>,
    /// What is served, by the name that a request is for. The first one answers for all names that
    /// no site has.
    #[serde(rename = "site")]
    pub sites: Vec<SiteOptions>,
    /// The user that the process becomes once it listens: `NAME` or `NAME:GROUP`. Only root can
    /// change users, and should: its rights are needed for ports below 1024 and nothing else.
    pub user: Option<User>,
    /// Whether workers confine themselves to reading the served folders, so that a bug in this
    /// program opens nothing else: `auto`, `required` or `off`.
    pub confine: Confine,
    /// The bounds of requests.
    pub requests: RequestLimits,
    /// The bounds of connections.
    pub connections: underpass_net::ConnectionLimits,
    /// What is written about requests.
    pub log: LogOptions,
    /// Where metrics and health are served.
    pub status: StatusOptions,
    /// Whether responses report the plan for their body, and how the previous body was sent.
    pub explain: Explain,
    /// The mechanisms that may send bodies. If none can, a response is reset after its head.
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
    /// same as `listing` by default, since an archive lists a folder too.
    pub archives: Option<bool>,
    /// Whether `?hash=sha256` and `?hash=blake3` return the hash of a file, and files are sent with
    /// theirs (`Repr-Digest`) on request. Off by default: it lets every client have whole files
    /// read for one line of response.
    pub hashes: bool,
    /// Names of index files; the first that exists is the response to its folder.
    pub index: Vec<FileName>,
    /// Whether `/about` returns `about.html` where no file `about` exists.
    pub pretty: bool,
    /// The file that is sent, with status 200, where the path leads nowhere: the page of a web
    /// application that interprets the path itself.
    pub fallback: Option<UrlPath>,
    /// Pages for error responses, by status.
    pub error_pages: BTreeMap<PageStatus, UrlPath>,
    /// Redirects, applied before anything else.
    #[serde(rename = "redirect")]
    pub redirects: Vec<Redirect>,
    /// Rewrites: paths that return what another path leads to.
    #[serde(rename = "rewrite")]
    pub rewrites: Vec<Rewrite>,
    /// Lists of candidates for a path, tried in order.
    #[serde(rename = "try")]
    pub tries: Vec<TryRule>,
    /// Names that begin with a dot.
    pub hidden: Hidden,
    /// Symbolic links.
    pub symlinks: Symlinks,
    /// Codings whose files are looked up beside a file (`app.js.br`) and sent to clients that
    /// accept them, in order of preference.
    pub precompressed: Vec<Coding>,
    /// Codings in which files without such a copy are compressed while they are sent, in order of
    /// preference. It costs processor time for each response.
    pub compress: Vec<Coding>,
    /// Files smaller than this are not compressed.
    pub compress_bytes_min: u64,
    /// Media types of files that are compressed.
    pub compress_types: Vec<MediaPattern>,
    /// What entity-tags are made of.
    pub etag: EtagRecipe,
    /// Media types.
    pub types: TypeOptions,
    /// How long files may be kept by clients and caches.
    pub cache: Vec<CacheRule>,
    /// Whether files whose names contain a hash of their content are sent as immutable, unless a
    /// rule of `cache` matches.
    pub immutable: bool,
    /// Fields that are sent with files.
    #[serde(rename = "header")]
    pub headers: Vec<HeaderRule>,
    /// Fields that restrict what browsers do with the content.
    pub security: SecurityOptions,
    /// Which other origins may read what is served.
    pub cors: CorsOptions,
    /// Whether `?download` has browsers save a file instead of showing it.
    pub download: bool,
    /// Who may read what is served.
    pub access: AccessOptions,
    /// Folders that take files in; none by default.
    #[serde(rename = "upload")]
    pub uploads: Vec<UploadOptions>,
}

impl Default for ServerOptions {
    /// No site yet, the local machine only, port 8080, a worker for each core.
    fn default() -> ServerOptions {
        ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080)).into()],
            tls: TlsOptions::default(),
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
            access: AccessOptions::default(),
            uploads: Vec::new(),
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
