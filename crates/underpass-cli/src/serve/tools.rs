//! `underpass serve hash` and `underpass serve sign`: create the contents of password files and
//! token files, and links.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use underpass_serve::{
    ServerOptions, SiteOptions, link_warnings, new_token, password_line, signed_link,
};

use super::advice::with_advice;

use crate::layout::{complain, print_aside, print_result};
use crate::passwords::typed_password;

/// A command that does not serve.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum ServeTool {
    /// Print a line for a password file or a token file
    Hash(HashArguments),
    /// Print a link that expires, to a file or a folder
    Sign(SignArguments),
}

/// Print a line for a password file (`users`), or a new token and its line for a token file
/// (`tokens`)
#[derive(Clone, Debug, clap::Args)]
pub(super) struct HashArguments {
    /// The name of the user or the token; the password is asked for, or read from standard input
    #[arg(value_name = "NAME")]
    name: String,

    /// Make a token at random: it is printed to standard error, its line for the file to standard
    /// output
    #[arg(long)]
    token: bool,

    /// Let the token expire after this time: 24h, 90d
    #[arg(long = "for", value_name = "TIME", requires = "token",
          value_parser = humantime::parse_duration)]
    lifetime: Option<Duration>,
}

/// Print a link that expires: whoever has it may read the file, or everything in the folder
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SignArguments {
    /// The path in the site, as on the disk or as in a URL: /report.pdf, or with a slash at its end
    /// a folder, /drop/acme/; a query is kept: '/drop/acme/?download=tar'
    #[arg(value_name = "PATH")]
    path: String,

    /// Let the link expire after this time: 1h, 24h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = lifetime,
          required_unless_present = "until")]
    lifetime: Option<Duration>,

    /// Let the link expire then, in UTC: 2030-01-31, '2030-01-31 18:00:00'
    #[arg(long, value_name = "DATE", value_parser = date, conflicts_with = "lifetime")]
    until: Option<SystemTime>,

    /// Sign with the first of the `link-keys` of this configuration
    #[arg(
        long,
        value_name = "FILE",
        env = "UNDERPASS_CONFIG",
        required_unless_present = "key"
    )]
    config: Option<PathBuf>,

    /// Sign with this key instead: a file with 32 bytes or more
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Of several sites in the configuration, the one with this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    site: usize,

    /// Print a whole URL that begins with this: https://files.example.org
    #[arg(long, value_name = "URL", value_parser = base)]
    base: Option<String>,
}

/// Runs a tool; `configured` reads a configuration.
///
/// # Errors
/// A message for the user.
pub(super) fn run(
    tool: &ServeTool,
    configured: impl FnOnce(Option<&Path>) -> Result<ServerOptions, String>,
) -> Result<(), String> {
    match tool {
        ServeTool::Hash(arguments) if arguments.token => {
            let expires = arguments.lifetime.map(later).transpose()?;
            let made = new_token(&arguments.name, expires)?;
            // Separate streams, so that `>> tokens` appends only the line, and the token is shown.
            print_aside(&made.token)?;
            print_result(&made.line)?;
        }
        ServeTool::Hash(arguments) => {
            let password = typed_password(&arguments.name)?;
            print_result(&password_line(&arguments.name, &password)?)?;
        }
        ServeTool::Sign(arguments) => {
            let site = arguments.site(configured)?;
            let expires = match (arguments.until, arguments.lifetime) {
                (Some(until), _) if until <= SystemTime::now() => {
                    return Err("--until is in the past: the link would be refused".to_owned());
                }
                (Some(until), _) => until,
                (None, lifetime) => later(lifetime.unwrap_or_default())?,
            };
            let path = path_in_url(&site.root, &arguments.path);
            let link = signed_link(&site.access, &path, expires);
            let link = link.map_err(|error| with_advice(&error))?;
            if arguments.key.is_none() {
                let warnings = link_warnings(&site, &path);
                warnings.iter().for_each(|what| tracing::warn!("{what}"));
            }
            let base = arguments.base.as_deref().unwrap_or_default();
            print_result(&format!("{}{link}", base.trim_end_matches('/')))?;
            let expires = humantime::format_rfc3339_seconds(expires);
            complain(&format!("valid until {expires}\n"));
        }
    }
    Ok(())
}

impl SignArguments {
    fn site(
        &self,
        configured: impl FnOnce(Option<&Path>) -> Result<ServerOptions, String>,
    ) -> Result<SiteOptions, String> {
        if let Some(key) = &self.key {
            let mut site = SiteOptions::default();
            site.access.link_keys = vec![key.clone()];
            return Ok(site);
        }
        let options = configured(self.config.as_deref())?;
        let number = self.site.checked_sub(1);
        let site = number.and_then(|number| options.sites.into_iter().nth(number));
        site.ok_or_else(|| format!("there is no site {}: numbers start at 1", self.site))
    }
}

/// Parses a time span.
fn lifetime(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "expected for example 1h, 24h or 7d".to_owned())
}

/// Parses a date, with or without a time of day.
fn date(text: &str) -> Result<SystemTime, String> {
    let whole = match text.len() {
        10 => format!("{text} 00:00:00"),
        _ => text.trim_end_matches('Z').replace('T', " "),
    };
    humantime::parse_rfc3339_weak(&whole)
        .map_err(|_| "expected for example 2030-01-31 or '2030-01-31 18:00:00'".to_owned())
}

/// Checks the start of a URL.
fn base(text: &str) -> Result<String, String> {
    match text.starts_with("https://") || text.starts_with("http://") {
        true => Ok(text.to_owned()),
        false => Err(format!("expected a URL with its scheme: https://{text}")),
    }
}

/// Encodes a path for a URL: characters with a meaning there are escaped if a file has exactly this
/// name on the disk.
fn path_in_url(root: &Path, path: &str) -> String {
    let is_there = |name: &str| !name.is_empty() && root.join(name).symlink_metadata().is_ok();
    let whole = path.trim_start_matches('/');
    let (name, query) = match whole.rsplit_once('?') {
        Some((name, query)) if !is_there(whole) => (name, format!("?{query}")),
        _ => (whole, String::new()),
    };
    if !name.contains(['%', '?', '#']) || !is_there(name) {
        return path.to_owned();
    }
    let encoded = name
        .replace('%', "%25")
        .replace('?', "%3F")
        .replace('#', "%23");
    format!("/{encoded}{query}")
}

fn later(lifetime: Duration) -> Result<SystemTime, String> {
    if lifetime.is_zero() || lifetime > LIFETIME_MAX {
        return Err("--for takes a time of up to 100 years, as 24h or 90d".to_owned());
    }
    let time = SystemTime::now().checked_add(lifetime);
    time.ok_or_else(|| "the clock is too late".to_owned())
}

const LIFETIME_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);
