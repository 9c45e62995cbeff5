//! What is configured about taking files in.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;
use underpass_net::size;
use underpass_receive::{RelativePath, SyncPolicy, UploadsMax};

use crate::rules::parse_path;

/// A folder that takes files in, with everything beneath it. Access rules apply, with the methods
/// `PUT` and `DELETE`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct UploadOptions {
    /// The folder, as a path of the site: `/incoming`. The whole site by default. It must exist,
    /// and the server's user must be able to write to it.
    pub path: FolderPath,
    /// Whether a file may be replaced by one of the same name.
    pub overwrite: bool,
    /// Whether files and folders may be removed, renamed and moved.
    pub delete: bool,
    /// The largest file; no bound by default but the free space.
    #[serde(deserialize_with = "size::some_bytes")]
    pub file_bytes_max: Option<NonZeroU64>,
    /// Bytes of the file system that stay free.
    #[serde(deserialize_with = "size::bytes")]
    pub keep_free: u64,
    /// Requests that bring files at once; more get 503.
    pub at_once_max: usize,
    /// Resumable uploads that are not complete; more get 503.
    pub unfinished_max: usize,
    /// Those of one client: of a user, a token or a certificate, or else of an IPv4 address or the
    /// first 64 bits of an IPv6 address. Half of `unfinished_max` by default, so that one client
    /// does not keep out all others.
    pub unfinished_per_client_max: Option<NonZeroUsize>,
    /// How long a resumable upload waits for more.
    #[serde(with = "humantime_serde")]
    pub expire_after: Duration,
    /// When received bytes are written to disk: `none`, `end` or `chunk`.
    pub sync: SyncPolicy,
    /// The permissions of received files, as `"0640"`; what the umask leaves of 0666 by default.
    pub mode: Option<FileMode>,
}

impl Default for UploadOptions {
    fn default() -> UploadOptions {
        UploadOptions {
            path: FolderPath::default(),
            overwrite: false,
            delete: false,
            file_bytes_max: None,
            keep_free: 256 << 20,
            at_once_max: 64,
            unfinished_max: 1000,
            unfinished_per_client_max: None,
            expire_after: Duration::from_secs(24 * 3600),
            sync: SyncPolicy::End,
            mode: None,
        }
    }
}

impl UploadOptions {
    /// Reads what a command line says of uploads, separated by commas: a folder as `/incoming`,
    /// `overwrite`, `delete`. Nothing means new files anywhere.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<UploadOptions, String> {
        let mut options = UploadOptions::default();
        let mut has_folder = false;
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word {
                "overwrite" => options.overwrite = true,
                "delete" => options.delete = true,
                folder if folder.starts_with('/') && has_folder => {
                    return Err(format!(
                        "{folder:?} is a second folder; several need a [[site.upload]] each, in a \
                         configuration"
                    ));
                }
                folder if folder.starts_with('/') => {
                    options.path = FolderPath::parse(folder)?;
                    has_folder = true;
                }
                _ => return Err(unknown(word)),
            }
        }
        Ok(options)
    }

    /// The number of resumable uploads that may be incomplete.
    pub(crate) fn unfinished(&self) -> UploadsMax {
        let per_client = self.unfinished_per_client_max.map(NonZeroUsize::get);
        UploadsMax {
            all: self.unfinished_max,
            per_client: per_client.unwrap_or(self.unfinished_max.div_ceil(2)),
        }
    }
}

/// Returns what is wrong with a word of a command line, and what was probably meant.
fn unknown(word: &str) -> String {
    let is_number = word.starts_with(|first: char| first.is_ascii_digit());
    let cure = match word.to_ascii_lowercase().as_str() {
        "yes" | "y" | "true" | "on" | "1" | "all" | "any" | "new" | "files" | "enable" | "put" => {
            "--upload alone takes new files in".to_owned()
        }
        "no" | "n" | "false" | "off" | "0" | "none" | "disable" => {
            "without --upload nothing is taken in; omit it".to_owned()
        }
        "rw" | "write" | "replace" | "modify" | "edit" | "force" | "update" => {
            "files may be replaced by --upload=overwrite, removed by --upload=delete".to_owned()
        }
        "remove" | "rm" | "rename" | "move" | "mv" | "mkdir" => {
            "files may be removed and renamed by --upload=delete; folders are made by every upload"
                .to_owned()
        }
        _ if is_number => {
            "limits are options of [[site.upload]] in a configuration, as file-bytes-max".to_owned()
        }
        _ => format!(
            "expected overwrite, delete, or a folder of the site that begins with a slash, as \
             /{}",
            word.trim_start_matches(['.', '/'])
        ),
    };
    format!("{word:?} is not known; {cure}")
}

/// The path of a folder of a site; none for the root.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct FolderPath(pub(crate) Option<RelativePath>);

impl FolderPath {
    /// Reads one: `/`, `/incoming`, `/incoming/`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<FolderPath, String> {
        let path = parse_path(text)?;
        match path.bytes() {
            b"" => Ok(FolderPath(None)),
            path => match RelativePath::parse(path) {
                Ok(path) => Ok(FolderPath(Some(path))),
                Err(error) => Err(format!("{text:?}: {error}")),
            },
        }
    }

    /// The path without slashes at its ends; empty for the root.
    pub fn as_str(&self) -> &str {
        self.0.as_ref().map_or("", RelativePath::as_str)
    }
}

impl TryFrom<String> for FolderPath {
    type Error = String;

    fn try_from(text: String) -> Result<FolderPath, String> {
        FolderPath::parse(&text)
    }
}

/// Permissions of a file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct FileMode(pub(crate) u32);

impl TryFrom<String> for FileMode {
    type Error = String;

    fn try_from(text: String) -> Result<FileMode, String> {
        let is_octal = text.len() == 4 && text.starts_with('0');
        let mode = u32::from_str_radix(&text, 8).ok().filter(|_| is_octal);
        // The server must be able to read what it has received.
        mode.filter(|mode| mode & 0o400 != 0 && mode & 0o111 == 0)
            .map(FileMode)
            .ok_or_else(|| {
                format!("mode {text:?}: expected 0400 to 0666 in octal, such as \"0640\"")
            })
    }
}
