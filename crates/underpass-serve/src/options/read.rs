//! Reads a configuration file, and overrides.

use std::path::Path;

use toml::Table;

use crate::error::Error;
use crate::options::ServerOptions;
use crate::options::mistakes::mistakes;
use crate::options::settings::ConfigOverride;

impl ServerOptions {
    /// Reads a configuration file, if any, and applies `settings` in order, which override it.
    /// Relative roots are relative to the file's folder; those in settings, to the current folder.
    ///
    /// # Errors
    /// [`Error::ConfigFile`] if the file cannot be read, [`Error::Config`] if it or a setting is
    /// invalid.
    pub fn load_with(
        file: Option<&Path>,
        settings: &[ConfigOverride],
    ) -> Result<ServerOptions, Error> {
        let Some(file) = file else {
            return apply("", settings);
        };
        let text = std::fs::read_to_string(file).map_err(|error| Error::ConfigFile {
            path: file.to_owned(),
            error,
        })?;
        let before = ServerOptions::parse(&text).map_err(|error| match error {
            Error::Config(what) => Error::Config(format!("{}: {what}", file.display())),
            error => error,
        })?;
        let mut options = apply(&text, settings)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let of_file = options.sites.iter_mut().take(before.sites.len());
        options.tls.relative_to(folder);
        for (number, site) in (1..).zip(of_file) {
            if !settings.iter().any(|setting| setting.decides_root(number)) {
                site.root = folder.join(&site.root);
            }
            site.access.relative_to(folder);
        }
        Ok(options)
    }

    /// Parses a configuration.
    ///
    /// # Errors
    /// [`Error::Config`]: the mistakes and their places, on several lines.
    ///
    /// # Examples
    /// ```
    /// use underpass_serve::ServerOptions;
    ///
    /// let text = "listen = ['0.0.0.0:80', 'unix:/run/www']
    /// [[site]]
    /// root = '/srv/www'
    /// names = ['example.org']";
    /// assert_eq!(ServerOptions::parse(text)?.sites[0].names, ["example.org"]);
    /// assert!(ServerOptions::parse("lisen = ['0.0.0.0:80']").is_err());
    /// # Ok::<(), underpass_serve::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<ServerOptions, Error> {
        toml::from_str(text).map_err(|error| Error::Config(mistakes(text, error)))
    }
}

/// Applies `settings` to the valid configuration `text`.
///
/// # Errors
/// [`Error::Config`]: all invalid settings.
pub(super) fn apply(text: &str, settings: &[ConfigOverride]) -> Result<ServerOptions, Error> {
    let mut options = ServerOptions::parse(text)?;
    if settings.is_empty() {
        return Ok(options);
    }
    let mut table: Table =
        toml::from_str(text).map_err(|error| Error::Config(error.to_string()))?;
    let mut wrong = Vec::new();
    for setting in settings {
        match setting.apply(&mut table) {
            Ok(changed) => options = changed,
            Err(why) => wrong.push(format!("{setting}: {why}")),
        }
    }
    match wrong.is_empty() {
        true => Ok(options),
        false => Err(Error::Config(wrong.join("\n\n"))),
    }
}
