//! What `underpass serve` is told: by flags, by environment variables and by a configuration, in
//! this order of precedence, all of it in one schema. Of flags, those with a name beat `--set`.

use std::env::VarError;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;
use underpass::limits::JOINED_BYTES_MAX;
use underpass::{Mechanism, Policy};
use underpass_net::{Confine, ListenAt, User};
use underpass_serve::rules::{
    CacheRule, FieldValue, FileName, Hidden, Origin, Pattern, Symlinks, UrlPath,
};
use underpass_serve::{Channel, Coding, Options, Setting, SiteOptions};

use super::telling::Telling;

/// Serve the files of a folder over HTTP
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder whose files are served; nothing outside of it can be read [default: the current
    /// one, or what the configuration says]
    #[arg(value_name = "DIR", env = "UNDERPASS_DIR")]
    folder: Option<PathBuf>,

    /// Read a configuration; flags override what it says
    #[arg(long, value_name = "FILE", env = "UNDERPASS_CONFIG")]
    config: Option<PathBuf>,

    /// Read a configuration, open what it names, say what would be served or what is wrong, and
    /// end
    #[arg(long, value_name = "FILE")]
    pub(super) check: Option<PathBuf>,

    /// Set any option of the configuration, once for each: connections.rate-max=10000000,
    /// requests.head-timeout=5s, site.etag=mtime-size (the first site), site.2.pretty=true. The
    /// value is TOML, or text without quotes. UNDERPASS_SET has several, one a line or separated
    /// by semicolons
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<Setting>,

    /// Where to wait for connections, once for each place: ADDR:PORT (0.0.0.0:8080 for every
    /// interface, [::]:8080 for version 6 too, port 0 for a free port), unix:/path[,mode=0660], or
    /// systemd[:NAME] for sockets that were passed at the start [default: 127.0.0.1:8080]
    #[arg(
        long,
        value_name = "WHERE",
        env = "UNDERPASS_LISTEN",
        value_delimiter = ' '
    )]
    listen: Vec<ListenAt>,

    /// How long answers under way have to end when the server is told to stop [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    stop_timeout: Option<Duration>,

    /// Threads that answer, each with its own connections [default: the cores this process may use]
    #[arg(long, value_name = "N", env = "UNDERPASS_WORKERS")]
    workers: Option<NonZeroUsize>,

    /// Become this user once it listens, for good: NAME or NAME:GROUP. Only root can, and should
    #[arg(long, value_name = "NAME[:GROUP]")]
    user: Option<User>,

    /// Whether workers give up everything but reading what is served (Landlock): as far as this
    /// kernel can, or not at all, or else don't start [auto, required, off; default: auto]
    #[arg(long, value_name = "HOW")]
    confine: Option<Confine>,

    /// Send bodies by this mechanism and no other, small ones too: a connection is reset rather
    /// than served in another way. For measuring, and to find out which one is at fault
    /// [sendfile, splice, read_write]
    #[arg(long, value_name = "MECHANISM")]
    pub(super) only: Option<Mechanism>,

    /// Answers that fit into so many bytes with their head leave in one write, 0 for none;
    /// `underpass bench small` tells what suits this machine [default: 8192]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(..=JOIN_MAX))]
    join: Option<u64>,

    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    pub(super) telling: Telling,
}

/// What a path leads to, and what is said of it; for every site that is served.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Files")]
struct Files {
    /// What folders are answered with, the first that is there [default: index.html]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = FileName::parse)]
    index: Option<Vec<FileName>>,

    /// Answer with this file where there is nothing: for web applications that read the path
    #[arg(long, value_name = "PATH", value_parser = UrlPath::parse, env = "UNDERPASS_FALLBACK")]
    fallback: Option<UrlPath>,

    /// Answer /about with about.html
    #[arg(long)]
    pretty: bool,

    /// Neither list folders without an index nor send folders as one file (?download=tar)
    #[arg(long)]
    no_listing: bool,

    /// Answer ?hash=sha256 and ?hash=blake3 with the hash of a file, and send files with theirs to
    /// those who want it (Repr-Digest); everybody who may ask has whole files read for one line
    #[arg(long)]
    hashes: bool,

    /// Send copies in these codings that lie beside files (app.js.br), to those who take them; the
    /// first is preferred [br, zstd, gzip]
    #[arg(long, value_name = "CODING", value_delimiter = ',', value_parser = coding)]
    precompressed: Option<Vec<Coding>>,

    /// Compress text and what is like it while it is sent, in these codings, for those who take
    /// them; the first is preferred. Copies that lie beside files go before [br, zstd, gzip]
    #[arg(long, value_name = "CODING", value_delimiter = ',', value_parser = coding)]
    compress: Option<Vec<Coding>>,

    /// Names that begin with a dot, but for .well-known [denied (default), shown]
    #[arg(long, value_name = "WHAT", value_parser = hidden)]
    hidden: Option<Hidden>,

    /// Which symbolic links are followed [none, inside (default), all]
    #[arg(long, value_name = "WHICH", value_parser = symlinks)]
    symlinks: Option<Symlinks>,

    /// Say this of all files, as Cache-Control, before the rules of a configuration
    #[arg(long, value_name = "VALUE", value_parser = FieldValue::parse,
          env = "UNDERPASS_CACHE_CONTROL")]
    cache_control: Option<FieldValue>,

    /// Say of files with a hash in their names (app.3f9ab2c1.js) that they never change
    #[arg(long)]
    immutable: bool,

    /// Let scripts of this web site read what is served (https://app.example), or of all (*)
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', value_parser = Origin::parse,
          env = "UNDERPASS_CORS")]
    cors: Option<Vec<Origin>>,
}

/// A connection whose peer is slow holds as much memory. Nothing of this size is any faster so.
const JOIN_MAX: u64 = 1 << 20;

/// What is served, and how. Called again, it reads the configuration again.
///
/// # Errors
/// For people: which file, what is wrong and where.
pub(crate) fn options(arguments: &Arguments) -> Result<Options, String> {
    let (mut options, _) = arguments.load(arguments.config.as_deref())?;
    choose_folder(&mut options.sites, arguments.folder.as_ref())?;
    if !arguments.listen.is_empty() {
        options.listen.clone_from(&arguments.listen);
    }
    let timeout = &mut options.connections.stop_timeout;
    *timeout = arguments.stop_timeout.unwrap_or(*timeout);
    options.workers = arguments.workers.or(options.workers);
    options.user = arguments.user.clone().or(options.user);
    options.confine = arguments.confine.unwrap_or(options.confine);
    options.policy = arguments.only.map(Policy::only).unwrap_or_default();
    if let Some(join) = arguments.join {
        options.connections.joined_bytes_max = join;
    }
    arguments.telling.override_in(&mut options);
    for site in &mut options.sites {
        arguments.files.override_in(site)?;
    }
    Ok(options)
}

/// Variables that a flag stands behind, and the key that `--set` knows it by.
const VARIABLES: [(&str, &str); 6] = [
    ("folder", "site.root"),
    ("listen", "listen"),
    ("workers", "workers"),
    ("fallback", "site.fallback"),
    ("cache_control", "site.cache"),
    ("cors", "site.cors.origins"),
];

impl Arguments {
    /// Forgets variables that a flag beats: where `--set` says the same, whose flag is another one.
    pub(crate) fn rank(&mut self, matches: &ArgMatches) {
        for (id, key) in VARIABLES {
            let is_set = self.set.iter().any(|setting| setting.decides(key));
            if !is_set || matches.value_source(id) != Some(ValueSource::EnvVariable) {
                continue;
            }
            match id {
                "folder" => self.folder = None,
                "listen" => self.listen.clear(),
                "workers" => self.workers = None,
                "fallback" => self.files.fallback = None,
                "cache_control" => self.files.cache_control = None,
                _ => self.files.cors = None,
            }
        }
    }

    /// What a file and all settings come to, and the settings.
    ///
    /// # Errors
    /// As [`options`].
    pub(super) fn load(&self, file: Option<&Path>) -> Result<(Options, Vec<Setting>), String> {
        let mut settings = match std::env::var(SET_VARIABLE) {
            Ok(text) => Setting::parse_all(&text, Channel::Environment)
                .map_err(|why| format!("{SET_VARIABLE}: {why}"))?,
            Err(VarError::NotPresent) => Vec::new(),
            Err(error) => return Err(format!("{SET_VARIABLE}: {error}")),
        };
        settings.extend(self.set.iter().cloned());
        let options = Options::load_with(file, &settings);
        let options = options.map_err(|error| super::with_advice(&error))?;
        Ok((options, settings))
    }
}

const SET_VARIABLE: &str = "UNDERPASS_SET";

fn setting(text: &str) -> Result<Setting, String> {
    Setting::parse(text, Channel::Flag)
}

/// The folder of the command line is the one site, or that of the one there is.
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
                "the configuration has several sites, and {} can be the folder of one only; leave \
                 it away",
                folder.display()
            ));
        }
    }
    Ok(())
}

impl Files {
    fn override_in(&self, site: &mut SiteOptions) -> Result<(), String> {
        if let Some(index) = &self.index {
            site.index.clone_from(index);
        }
        if self.fallback.is_some() {
            site.fallback.clone_from(&self.fallback);
        }
        if let Some(precompressed) = &self.precompressed {
            site.precompressed.clone_from(precompressed);
        }
        if let Some(compress) = &self.compress {
            site.compress.clone_from(compress);
        }
        if let Some(control) = &self.cache_control {
            let paths = vec![Pattern::parse("/**")?];
            let control = control.clone();
            site.cache.insert(0, CacheRule { paths, control });
        }
        if let Some(origins) = &self.cors {
            site.cors.origins.clone_from(origins);
        }
        site.hidden = self.hidden.unwrap_or(site.hidden);
        site.symlinks = self.symlinks.unwrap_or(site.symlinks);
        if self.no_listing {
            site.listing = false;
            site.archives = Some(false);
        }
        site.hashes |= self.hashes;
        site.pretty |= self.pretty;
        site.immutable |= self.immutable;
        Ok(())
    }
}

fn coding(name: &str) -> Result<Coding, String> {
    let mut all = Coding::ALL.into_iter();
    all.find(|coding| coding.name() == name)
        .ok_or_else(|| "it is none of br, zstd and gzip".to_owned())
}

fn hidden(word: &str) -> Result<Hidden, String> {
    match word {
        "denied" => Ok(Hidden::Denied),
        "shown" => Ok(Hidden::Shown),
        _ => Err("it is neither denied nor shown".to_owned()),
    }
}

fn symlinks(word: &str) -> Result<Symlinks, String> {
    match word {
        "none" => Ok(Symlinks::None),
        "inside" => Ok(Symlinks::Inside),
        "all" => Ok(Symlinks::All),
        _ => Err("it is none of none, inside and all".to_owned()),
    }
}

/// What `--join` is where nobody says.
const _: () = assert!(JOINED_BYTES_MAX == 8192, "the help of --join says 8192");
