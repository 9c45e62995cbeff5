//! The options of a server: from a TOML file, flags, or code. One schema for all.
//!
//! Keys are the field names with dashes. Each may be omitted; an unknown one is an error with its
//! position: a misspelt limit must not be ignored silently.

pub(crate) mod listen;
mod mistakes;
mod read;
pub(crate) mod secret_files;
pub(crate) mod settings;
pub(crate) mod uploads;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Deserialize;
use underpass::Policy;
use underpass_http::fields::coding::Coding;
use underpass_monitor::StatusOptions;
use underpass_net::{Confine, TlsOptions, User};

use crate::access::options::AccessOptions;
use crate::limits::RequestLimits;
use crate::log::LogOptions;
use crate::options::listen::HttpListen;
use crate::options::uploads::UploadOptions;
use crate::record::explain::Explain;
use crate::rules::mime::TypeOptions;
use crate::rules::{
    CacheRule, CorsOptions, EtagRecipe, FileName, HeaderRule, Hidden, HostName, MediaPattern,
    PageStatus, Redirect, Rewrite, SecurityOptions, Symlinks, TryRule, UrlPath, usual_bytes_min,
    usual_types,
};

/// The options of a server and its sites.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerOptions {
    /// The addresses to listen on: `PORT`, `:PORT`, `ADDR:PORT`, `NAME:PORT` (all addresses of the
    /// name), `unix:/path[,mode=0660]`, `systemd[:NAME]`; each may be preceded by `http:` or
    /// `https:` to choose the scheme.
    #[serde(deserialize_with = "listen::resolved")]
    pub listen: Vec<HttpListen>,
    /// Certificates, and the parameters of TLS.
    pub tls: TlsOptions,
    /// Worker threads; by default as many as this process has cores.
    pub workers: Option<NonZeroUsize>,
    /// The sites, chosen by the host name of a request. The first one serves all names that no site
    /// has.
    #[serde(rename = "site")]
    pub sites: Vec<SiteOptions>,
    /// The user to switch to once the sockets are open: `NAME` or `NAME:GROUP`. Only root can
    /// switch users, and should: its rights are needed only for ports below 1024.
    pub user: Option<User>,
    /// Whether workers confine themselves to reading the served folders, so that a bug in this
    /// program opens nothing else: `auto`, `required` or `off`.
    pub confine: Confine,
    /// The limits of requests.
    pub requests: RequestLimits,
    /// The limits of connections.
    pub connections: underpass_net::ConnectionLimits,
    /// Logging of requests.
    pub log: LogOptions,
    /// The address for metrics and health.
    pub status: StatusOptions,
    /// Whether responses show the plan for their body, and how the previous body was sent.
    pub explain: Explain,
    /// The mechanisms that may send bodies. If none works, a response is reset after its head.
    #[serde(skip)]
    pub policy: Policy,
}

/// The options of one site: path resolution and response fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SiteOptions {
    /// The folder whose files are served; nothing outside of it can be read. In a configuration
    /// file, a relative path is relative to that file.
    pub root: PathBuf,
    /// The host names of the site: `example.org`, or `*.example.org` for all below.
    pub names: Vec<HostName>,
    /// Whether folders without an index are listed, as a page or as JSON. Otherwise the response is
    /// 403.
    pub listing: bool,
    /// Whether folders can be downloaded as an archive, by `?download=tar` and `?download=tar.zst`;
    /// same as `listing` by default, since an archive lists a folder too.
    pub archives: Option<bool>,
    /// Whether `?hash=sha256` and `?hash=blake3` return the hash of a file, and files are sent with
    /// `Repr-Digest` on request. Off by default: it lets every client make the server read whole
    /// files for one line of response.
    pub hashes: bool,
    /// Names of index files; the first that exists is sent for its folder.
    pub index: Vec<FileName>,
    /// Whether `/about` returns `about.html` if no file `about` exists.
    pub pretty: bool,
    /// The file that is sent, with status 200, if the path is not found: the page of a web
    /// application that interprets the path itself.
    pub fallback: Option<UrlPath>,
    /// Pages for error responses, by status.
    pub error_pages: BTreeMap<PageStatus, UrlPath>,
    /// Redirects, applied before anything else.
    #[serde(rename = "redirect")]
    pub redirects: Vec<Redirect>,
    /// Rewrites: paths that are served from another path.
    #[serde(rename = "rewrite")]
    pub rewrites: Vec<Rewrite>,
    /// Lists of candidates for a path, tried in order.
    #[serde(rename = "try")]
    pub tries: Vec<TryRule>,
    /// Access to names that start with a dot.
    pub hidden: Hidden,
    /// The handling of symbolic links.
    pub symlinks: Symlinks,
    /// Codings for which a precompressed file (`app.js.br`) is looked up and sent to clients that
    /// accept it, in order of preference.
    pub precompressed: Vec<Coding>,
    /// Codings in which files without such a copy are compressed while they are sent, in order of
    /// preference. This costs processor time for each response.
    pub compress: Vec<Coding>,
    /// Files smaller than this are not compressed.
    pub compress_bytes_min: u64,
    /// Media types of files to compress.
    pub compress_types: Vec<MediaPattern>,
    /// The file attributes that entity-tags are computed from.
    pub etag: EtagRecipe,
    /// Media types.
    pub types: TypeOptions,
    /// The time for which clients and caches may store files.
    pub cache: Vec<CacheRule>,
    /// Whether files whose names contain a hash of their content are sent as immutable, unless a
    /// rule of `cache` matches.
    pub immutable: bool,
    /// Fields that are sent with files.
    #[serde(rename = "header")]
    pub headers: Vec<HeaderRule>,
    /// Fields that restrict what browsers do with the content.
    pub security: SecurityOptions,
    /// Other origins that may read the content.
    pub cors: CorsOptions,
    /// Whether `?download` makes browsers save a file instead of showing it.
    pub download: bool,
    /// Access control.
    pub access: AccessOptions,
    /// Folders that take files in; none by default.
    #[serde(rename = "upload")]
    pub uploads: Vec<UploadOptions>,
}

impl Default for ServerOptions {
    /// Returns options without a site: port 8080 of the local machine, a worker for each core.
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
    /// Returns options with one site, in the folder `root`.
    pub fn of(root: impl Into<PathBuf>) -> ServerOptions {
        ServerOptions {
            sites: vec![SiteOptions::of(root)],
            ..ServerOptions::default()
        }
    }
}

impl Default for SiteOptions {
    /// Returns the current folder, under every name: `index.html` for folders, names with a leading
    /// dot hidden, links inside followed, nothing compressed, folders without an index listed.
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
    /// Returns the folder `root` with everything at its default.
    pub fn of(root: impl Into<PathBuf>) -> SiteOptions {
        SiteOptions {
            root: root.into(),
            ..SiteOptions::default()
        }
    }
}
