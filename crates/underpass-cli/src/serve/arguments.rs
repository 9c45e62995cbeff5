//! The arguments of `underpass serve`, converted to its options. Precedence, highest first: named
//! flags, `--set`, environment variables, the configuration.

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use bytesize::ByteSize;
use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::de::{DeserializeOwned, IntoDeserializer};
use underpass::limits::JOINED_BYTES_MAX;
use underpass::{Mechanism, Policy};
use underpass_net::{BadListenAt, Confine, TlsOptions, User};
use underpass_serve::rules::{
    CacheRule, CorsOrigin, FieldValue, FileName, Hidden, Pattern, Symlinks, UrlPath,
};
use underpass_serve::{
    Access, AccessQuestion, ClientPlace, Coding, ConfigOverride, Explain, Grantee, HttpListen,
    LogFormat, OneLogin, ServerOptions, SiteOptions, StatusAddress, UploadOptions,
};

use super::advice::with_advice;
use super::tools::ServeTool;
use crate::passwords::{password_file, typed_password};

/// Serve the files of a folder over HTTP
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServeArguments {
    #[command(subcommand)]
    pub(super) tool: Option<ServeTool>,

    /// Serve this folder; nothing outside it can be read [default: the root in the configuration,
    /// or the current folder]
    #[arg(value_name = "DIR", env = "UNDERPASS_DIR")]
    folder: Option<PathBuf>,

    /// Read options and sites from this TOML file; flags and environment variables override it
    #[arg(long, value_name = "FILE", env = "UNDERPASS_CONFIG")]
    config: Option<PathBuf>,

    /// Check this configuration and everything it names, print what would be served or every
    /// mistake, and exit
    #[arg(long, value_name = "FILE")]
    pub(super) check: Option<PathBuf>,

    /// Set an option of the configuration; may be repeated: connections.rate-max=10000000,
    /// requests.head-timeout=5s, site.etag=mtime-size (the first site), site.2.pretty=true. The
    /// value is TOML, or text without quotes
    #[arg(long, value_name = "KEY=VALUE", value_parser = ConfigOverride::parse)]
    pub(super) set: Vec<ConfigOverride>,

    /// Listen on this port of 127.0.0.1, or of what --listen names without a port [default: 8080]
    #[arg(short, long, value_name = "PORT", value_parser = port)]
    port: Option<u16>,

    /// Listen here; may be repeated: PORT (this machine only), :PORT (every interface), ADDR:PORT
    /// or NAME:PORT (port 0 is a free one), unix:/path[,mode=0660], or systemd[:NAME] for sockets
    /// passed by systemd. http: or https: before it says what is spoken; with a certificate it is
    /// HTTPS [default: 127.0.0.1:8080]
    #[arg(
        long,
        visible_alias = "bind",
        alias = "host",
        short = 'l',
        short_alias = 'b',
        value_name = "WHERE",
        env = "UNDERPASS_LISTEN",
        value_delimiter = ' ',
        value_parser = resolvable
    )]
    listen: Vec<String>,

    /// Serve HTTPS with this certificate: a PEM file with the chain, the server's own first
    #[arg(
        long,
        alias = "tls-cert",
        value_name = "FILE",
        env = "UNDERPASS_CERT",
        requires = "key"
    )]
    cert: Option<PathBuf>,

    /// Serve HTTPS with a certificate for the names and addresses of this machine that is made at
    /// the first start; its fingerprint is printed
    #[arg(long, conflicts_with_all = ["cert", "key"])]
    tls_self_signed: bool,

    /// The private key of --cert: a PEM file without a password
    #[arg(
        long,
        alias = "tls-key",
        value_name = "FILE",
        env = "UNDERPASS_KEY",
        requires = "cert"
    )]
    key: Option<PathBuf>,

    /// Give responses in progress this long to complete on a stop: 500ms, 30s, 2min [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    stop_timeout: Option<Duration>,

    /// Run this many worker threads, 1 or more [default: the CPUs available to this process]
    #[arg(long, value_name = "N", env = "UNDERPASS_WORKERS", value_parser = workers)]
    workers: Option<NonZeroUsize>,

    /// Switch to this user, permanently, once the sockets are open: NAME or NAME:GROUP, or numeric
    /// ids. Needs root
    #[arg(long, value_name = "NAME[:GROUP]")]
    user: Option<User>,

    /// Restrict workers by Landlock to reading what is served: as far as this kernel supports it
    /// (auto), completely or refuse to start (required), or not at all (off) [default: auto]
    #[arg(long, value_name = "HOW")]
    confine: Option<Confine>,

    /// Send all bodies, small ones too, by this mechanism and never fall back: reset the connection
    /// if it is refused. For measuring and for isolating faults [sendfile, splice, read_write]
    #[arg(long, value_name = "MECHANISM")]
    pub(super) only: Option<Mechanism>,

    /// Send responses of up to this many bytes, head included, in one write; 0 for none, at most
    /// 1048576. `underpass bench small` measures the best value for this machine [default: 8192]
    #[arg(long, value_name = "BYTES", value_parser = joined)]
    join: Option<u64>,

    #[command(flatten)]
    access: AccessArguments,

    #[command(flatten)]
    files: FileArguments,

    #[command(flatten)]
    pub(super) reporting: ReportingArguments,
}

/// Access control, for every site.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Access")]
struct AccessArguments {
    /// Serve this user only; the password is asked for, or read from --password-file, or from the
    /// variable UNDERPASS_PASSWORD. Several users and rules: docs/access.md
    #[arg(
        long,
        short_alias = 'a',
        alias = "basic-auth",
        value_name = "USER",
        conflicts_with = "users"
    )]
    auth: Option<String>,

    /// Read the password of --auth from the first line of this file
    #[arg(long, value_name = "FILE", requires = "auth")]
    password_file: Option<PathBuf>,

    /// Serve the users of this file only: lines that `underpass serve hash USER` or
    /// `htpasswd -B` prints
    #[arg(long, aliases = ["auth-file", "htpasswd"], value_name = "FILE")]
    users: Option<PathBuf>,

    /// With --check: print who would get what instead, and by which rule: user:anna, token:ci,
    /// certificate:NAME, links or everyone, a method, a path
    #[arg(long = "as", value_names = ["WHO", "METHOD", "PATH"], num_args = 3, requires = "check")]
    asked: Option<Vec<String>>,

    /// With --as: the address of the client, or `unix` for one of a Unix socket
    #[arg(long, value_name = "ADDRESS", requires = "asked")]
    from: Option<ClientPlace>,

    /// With --as: the host name of the request
    #[arg(long, value_name = "NAME", requires = "asked")]
    at: Option<String>,

    /// The password typed at the start, since a reload cannot ask for it.
    #[arg(skip)]
    typed: OnceLock<OneLogin>,
}

/// The mapping of paths to files, and the header fields of files, for every site.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Files")]
struct FileArguments {
    /// Serve the first of these files that exists for a folder [default: index.html]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = FileName::parse)]
    index: Option<Vec<FileName>>,

    /// Serve this file for paths that do not exist, as single-page applications need it
    #[arg(long, value_name = "PATH", value_parser = UrlPath::parse, env = "UNDERPASS_FALLBACK")]
    fallback: Option<UrlPath>,

    /// Serve about.html for /about
    #[arg(long)]
    pretty: bool,

    /// Disable listings of folders without an index, and tar archives of folders (?download=tar)
    #[arg(long)]
    no_listing: bool,

    /// Answer ?hash=sha256 and ?hash=blake3 with the hash of the file, and send Repr-Digest on
    /// request. Note: a request of one line makes the server read a whole file
    #[arg(long)]
    hashes: bool,

    /// Take files in by PUT and from the page; separated by commas: a folder of the site that they
    /// are limited to, `overwrite` to let them replace others, `delete` to let clients remove and
    /// rename [--upload=/incoming,overwrite]
    #[arg(long, short_alias = 'u', value_name = "WHAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = UploadOptions::parse)]
    upload: Option<UploadOptions>,

    /// Serve precompressed copies beside files (app.js.br for app.js) to clients that accept these
    /// codings; the first is preferred [br, zstd, gzip]
    #[arg(long, value_name = "CODING", value_delimiter = ',', value_parser = word::<Coding>)]
    precompressed: Option<Vec<Coding>>,

    /// Compress text-like files while sending, for clients that accept these codings; the first is
    /// preferred, and precompressed copies take precedence [br, zstd, gzip]
    #[arg(long, value_name = "CODING", value_delimiter = ',', value_parser = word::<Coding>)]
    compress: Option<Vec<Coding>>,

    /// Deny or show names that begin with a dot; .well-known is always shown [denied (default),
    /// shown]
    #[arg(long, value_name = "WHAT", value_parser = word::<Hidden>)]
    hidden: Option<Hidden>,

    /// Follow no symbolic links, only relative ones that stay inside the folder, or all [none,
    /// inside (default), all]
    #[arg(long, value_name = "WHICH", value_parser = word::<Symlinks>)]
    symlinks: Option<Symlinks>,

    /// Send this Cache-Control with all files, ahead of the rules in the configuration
    #[arg(long, value_name = "VALUE", value_parser = FieldValue::parse,
          env = "UNDERPASS_CACHE_CONTROL")]
    cache_control: Option<FieldValue>,

    /// Mark files with a hash in their names (app.3f9ab2c1.js) as immutable for caches
    #[arg(long)]
    immutable: bool,

    /// Allow scripts of this web origin (https://app.example) to read responses, or of any (*)
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', value_parser = CorsOrigin::parse,
          env = "UNDERPASS_CORS")]
    cors: Option<Vec<CorsOrigin>>,
}

/// The access log, metrics, `--explain` and the QR code.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportingArguments {
    /// Write an access log, a line per response, to standard output or --log-file: `combined` as
    /// Apache and nginx do, or `json` with all fields [default format: combined]
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "combined")]
    log: Option<LogFormat>,

    /// Append the access log to this file; SIGUSR1 reopens it after a rotation
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// Serve Prometheus metrics and health checks here: PORT (this machine only), ADDR:PORT or
    /// unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    status: Option<StatusAddress>,

    /// Add Underpass-Plan (how this body will be sent) and Underpass-Previous (how the previous
    /// one on the connection was sent) to responses, for debugging
    #[arg(long)]
    explain: bool,

    /// Print the address as a QR code
    #[arg(long)]
    pub(super) qr: bool,

    /// Print at the start how workers are confined, and how bodies are sent
    #[arg(short, long)]
    pub(super) verbose: bool,
}

/// The memory that a connection with a slow peer holds. Larger responses gain nothing.
const JOIN_MAX: u64 = 1 << 20;

/// Reads the configuration and merges everything into the options to serve with.
///
/// # Errors
/// A message for the user: the file, the mistake and its position.
pub(crate) fn options(arguments: &ServeArguments) -> Result<ServerOptions, String> {
    let mut options = arguments.load(arguments.config.as_deref())?;
    choose_folder(&mut options.sites, arguments.folder.as_ref())?;
    let listen = arguments.listen()?;
    override_by(
        Some(listen).filter(|listen| !listen.is_empty()),
        &mut options.listen,
    );
    if let (Some(cert), Some(key)) = (&arguments.cert, &arguments.key) {
        options.tls.certificates = TlsOptions::of(cert, key).certificates;
        options.tls.self_signed = false;
    }
    options.tls.self_signed |= arguments.tls_self_signed;
    let connections = &mut options.connections;
    override_by(arguments.stop_timeout, &mut connections.stop_timeout);
    override_by(arguments.join, &mut connections.joined_bytes_max);
    override_by(arguments.confine, &mut options.confine);
    options.workers = arguments.workers.or(options.workers);
    options.user = arguments.user.clone().or(options.user);
    options.policy = arguments.only.map(Policy::only).unwrap_or_default();
    arguments.reporting.override_in(&mut options);
    let login = arguments.access.login()?;
    for site in &mut options.sites {
        arguments.files.override_in(site)?;
        arguments.access.override_in(site, login.as_ref());
    }
    Ok(options)
}

impl ServeArguments {
    /// Drops values from the environment that a `--set` of the same key overrides. clap only ranks
    /// variables and flags of the same argument.
    pub(crate) fn rank(&mut self, matches: &ArgMatches) {
        let set = self.set.clone();
        let is_set = |id, key| {
            matches.value_source(id) == Some(ValueSource::EnvVariable)
                && set.iter().any(|setting| setting.decides(key))
        };
        let files = &mut self.files;
        self.folder.take_if(|_| is_set("folder", "site.root"));
        let from_environment =
            self.port.is_some() && matches.value_source("listen") == Some(ValueSource::EnvVariable);
        self.listen
            .retain(|_| !is_set("listen", "listen") && !from_environment);
        self.workers.take_if(|_| is_set("workers", "workers"));
        let (fallback, cache) = (&mut files.fallback, &mut files.cache_control);
        fallback.take_if(|_| is_set("fallback", "site.fallback"));
        cache.take_if(|_| is_set("cache_control", "site.cache"));
        files.cors.take_if(|_| is_set("cors", "site.cors.origins"));
    }

    /// Returns the question of `--as`, if there is one.
    pub(super) fn question(&self) -> Result<Option<AccessQuestion>, String> {
        self.access.question()
    }

    /// Returns the options of a configuration.
    pub(super) fn configured(file: Option<&Path>) -> Result<ServerOptions, String> {
        let options = ServerOptions::load_with(file, &[]);
        let mut options = options.map_err(|error| with_advice(&error))?;
        choose_folder(&mut options.sites, None)?;
        Ok(options)
    }

    /// Returns all addresses of --listen and --port; none without these options.
    fn listen(&self) -> Result<Vec<HttpListen>, String> {
        let mut all = Vec::new();
        let alone = self.port.filter(|_| self.listen.is_empty());
        let alone = alone.map(|port| port.to_string());
        for text in self.listen.iter().chain(&alone) {
            let resolved = HttpListen::resolve(text, self.port);
            all.extend(resolved.map_err(|error| error.to_string())?);
        }
        Ok(all)
    }

    /// Loads the file with all settings applied.
    ///
    /// # Errors
    /// As [`options`].
    pub(super) fn load(&self, file: Option<&Path>) -> Result<ServerOptions, String> {
        ServerOptions::load_with(file, &self.set).map_err(|error| with_advice(&error))
    }
}

/// Rejects invalid addresses; valid ones are resolved again at each reload.
fn resolvable(text: &str) -> Result<String, BadListenAt> {
    HttpListen::resolve(text, None).map(|_| text.to_owned())
}

fn workers(text: &str) -> Result<NonZeroUsize, String> {
    let at_least_one = "expected a number from 1; leave it out for one worker per CPU";
    text.parse().map_err(|_| at_least_one.to_owned())
}

fn port(text: &str) -> Result<u16, String> {
    let number = "expected a number from 0, a free one, to 65535";
    text.parse().map_err(|_| number.to_owned())
}

fn joined(text: &str) -> Result<u64, String> {
    let bytes = text
        .parse()
        .ok()
        .filter(|ByteSize(bytes)| *bytes <= JOIN_MAX);
    let bytes = bytes.map(|ByteSize(bytes)| bytes);
    bytes.ok_or_else(|| "expected bytes, such as 8192 or 16KiB, at most 1MiB".to_owned())
}

/// Applies the folder of the command line: as the only site, or as the root of the only one.
pub(super) fn choose_folder(
    sites: &mut Vec<SiteOptions>,
    folder: Option<&PathBuf>,
) -> Result<(), String> {
    match (&mut sites[..], folder) {
        ([], folder) => {
            let folder = folder.cloned().unwrap_or_else(|| PathBuf::from("."));
            sites.push(SiteOptions::of(folder));
        }
        ([site], Some(folder)) => site.root.clone_from(folder),
        (_, None) => {}
        (_, Some(folder)) => {
            return Err(format!(
                "the configuration has several sites, and {} can replace the root of a single one \
                 only; omit it",
                folder.display()
            ));
        }
    }
    Ok(())
}

impl AccessArguments {
    /// Returns the user of --auth, if given.
    fn login(&self) -> Result<Option<OneLogin>, String> {
        let Some(user) = &self.auth else {
            return Ok(None);
        };
        check_user(user)?;
        if let Some(login) = self.typed.get() {
            return Ok(Some(login.clone()));
        }
        let password = match (&self.password_file, std::env::var_os(PASSWORD_VARIABLE)) {
            (Some(file), _) => password_file(file)?,
            (None, Some(password)) => password.into_encoded_bytes(),
            (None, None) if io::stdin().is_terminal() => {
                let login = OneLogin::new(user, &typed_password(user)?)?;
                return Ok(Some(self.typed.get_or_init(|| login).clone()));
            }
            (None, None) => {
                return Err(format!(
                    "--auth {user}: there is no terminal to ask for the password; name a file \
                     with --password-file, or set {PASSWORD_VARIABLE}"
                ));
            }
        };
        OneLogin::new(user, &password).map(Some)
    }

    fn override_in(&self, site: &mut SiteOptions, login: Option<&OneLogin>) {
        if let Some(login) = login {
            site.access.login = Some(login.clone());
            site.access.users = None;
        }
        if let Some(users) = &self.users {
            site.access.users = Some(users.clone());
        }
    }

    /// Returns the question of `--as`.
    ///
    /// # Errors
    /// A message for the user.
    fn question(&self) -> Result<Option<AccessQuestion>, String> {
        let Some([who, method, path]) = self.asked.as_deref() else {
            return Ok(None);
        };
        let asker = match Grantee::parse(who) {
            Ok(Grantee::Everyone) => None,
            Ok(asker) => Some(asker),
            // `--as anna`
            Err(_) if !who.contains(':') => Some(Grantee::User(Some(who.as_str().into()))),
            Err(why) => return Err(format!("--as: {why}")),
        };
        Ok(Some(AccessQuestion {
            host: self.at.clone(),
            asker,
            client: self.from,
            method: method.clone(),
            path: path.clone(),
        }))
    }
}

const PASSWORD_VARIABLE: &str = "UNDERPASS_PASSWORD";

/// Rejects an argument with a password, without repeating it: other users see process arguments.
fn check_user(text: &str) -> Result<(), String> {
    match text.split_once(':') {
        Some((user, _)) => Err(format!(
            "--auth: a password must not be an argument, because every user of the machine sees \
             it; use --auth {user}, which asks for it"
        )),
        None => Ok(()),
    }
}

impl FileArguments {
    fn override_in(&self, site: &mut SiteOptions) -> Result<(), String> {
        override_by(self.index.clone(), &mut site.index);
        override_by(self.precompressed.clone(), &mut site.precompressed);
        override_by(self.compress.clone(), &mut site.compress);
        override_by(self.cors.clone(), &mut site.cors.origins);
        override_by(self.hidden, &mut site.hidden);
        override_by(self.symlinks, &mut site.symlinks);
        override_by(self.fallback.clone().map(Some), &mut site.fallback);
        if let Some(control) = self.cache_control.clone() {
            let paths = vec![Pattern::parse("/**")?];
            site.cache.insert(0, CacheRule { paths, control });
        }
        if self.no_listing {
            site.listing = false;
            site.archives = Some(false);
        }
        site.hashes |= self.hashes;
        if let Some(upload) = &self.upload {
            site.uploads.retain(|other| other.path != upload.path);
            site.uploads.push(upload.clone());
        }
        site.pretty |= self.pretty;
        site.immutable |= self.immutable;
        Ok(())
    }
}

impl ReportingArguments {
    /// Applies these options. Either of the log options enables the log.
    fn override_in(&self, options: &mut ServerOptions) {
        let output = self.log.map(|_| Access::Output);
        let access = self.log_file.clone().map(Access::from).or(output);
        override_by(access, &mut options.log.access);
        override_by(self.log, &mut options.log.format);
        override_by(self.status.clone().map(Some), &mut options.status.listen);
        if self.explain {
            options.explain = Explain::On;
        }
    }
}

fn override_by<T>(argument: Option<T>, option: &mut T) {
    if let Some(value) = argument {
        *option = value;
    }
}

/// Parses a word as the configuration does.
fn word<T: DeserializeOwned>(word: &str) -> Result<T, serde::de::value::Error> {
    T::deserialize(word.into_deserializer())
}

const _: () = assert!(JOINED_BYTES_MAX == 8192, "the help of --join says 8192");
