//! The access files of a site, and how they are reread when they change.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;

use crate::access::links::LinkKey;
use crate::access::options::AccessOptions;
use crate::access::passwords::PasswordFile;
use crate::access::rules::AccessRules;
use crate::access::tokens::TokenFile;
use crate::access::verifier::VerifiedLogins;
use crate::error::Error;
use crate::limits::ACCESS_FILE_BYTES_MAX;

/// The access control of a site.
#[derive(Debug)]
pub(crate) struct SiteAccess {
    pub(crate) options: AccessOptions,
    pub(crate) rules: Arc<AccessRules>,
    present: Mutex<Arc<CredentialSet>>,
    /// The number of reloads, so that workers can check for one without a lock.
    version: AtomicU64,
    /// The states of the files at the last attempt to read them.
    seen: Mutex<Vec<FileState>>,
    /// Whether a file could not be read then.
    is_wrong: AtomicBool,
}

/// The users, tokens and keys that credentials are checked against.
#[derive(Debug)]
pub(crate) struct CredentialSet {
    pub(crate) passwords: Option<Arc<PasswordFile>>,
    pub(crate) tokens: Arc<TokenFile>,
    pub(crate) link_keys: Vec<Arc<LinkKey>>,
}

/// A worker's cache of the logins of one site.
#[derive(Debug, Default)]
pub(crate) struct SiteLogins {
    present: Option<(u64, Arc<CredentialSet>)>,
    pub(crate) verified: VerifiedLogins,
}

impl SiteLogins {
    /// Returns the current credential set.
    pub(crate) fn present(&mut self, access: &SiteAccess) -> Arc<CredentialSet> {
        match &self.present {
            Some((version, present)) if *version == access.version() => Arc::clone(present),
            _ => Arc::clone(&self.present.insert(access.present()).1),
        }
    }
}

const MIXED_COSTS: &str = "the hashes of some users take longer to verify than those of others, so \
                           that clients can find out who is a user by the time; hash all of them \
                           alike (underpass serve hash)";

/// Identifies a version of a file; `None` if its metadata can't be read.
type FileState = Option<(u64, u64, u64, i64, i64, i64, i64)>;

impl SiteAccess {
    /// Reads the files of a site; `None` if everyone may read the site.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Config`].
    pub(crate) fn open(options: &AccessOptions) -> Result<Option<SiteAccess>, Error> {
        if !options.is_configured() {
            return Ok(None);
        }
        options.check().map_err(Error::Config)?;
        let seen = states(options);
        Ok(Some(SiteAccess {
            options: options.clone(),
            rules: Arc::new(AccessRules::new(options.effective_rules())),
            present: Mutex::new(Arc::new(CredentialSet::read(options)?)),
            version: AtomicU64::new(0),
            seen: Mutex::new(seen),
            is_wrong: AtomicBool::new(false),
        }))
    }

    /// Returns the current credential set and its version.
    pub(crate) fn present(&self) -> (u64, Arc<CredentialSet>) {
        let present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        (self.version(), Arc::clone(&present))
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Rereads the files if any has changed. Returns warnings; the earlier content of an invalid
    /// file stays in use until it changes again.
    pub(crate) fn refresh(&self) -> Vec<String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let states = states(&self.options);
        if *seen == states {
            return Vec::new();
        }
        *seen = states;
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, wrong) = present.read_again(&self.options);
        *present = Arc::new(read);
        self.version.fetch_add(1, Ordering::Release);
        let kept = |error| format!("{error}; what this file held before stays in use");
        let was_wrong = self.is_wrong.swap(!wrong.is_empty(), Ordering::Relaxed);
        let mut warnings: Vec<_> = wrong.into_iter().map(kept).collect();
        if was_wrong && warnings.is_empty() {
            warnings.push("the files of access can be read again, and are in use".to_owned());
        }
        warnings.extend(present.warnings(&self.options));
        warnings
    }
}

fn states(options: &AccessOptions) -> Vec<FileState> {
    let state = |path: &PathBuf| {
        let found = fs::metadata(path).ok()?;
        Some((
            found.dev(),
            found.ino(),
            found.len(),
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ))
    };
    options.files().map(state).collect()
}

impl CredentialSet {
    fn read(options: &AccessOptions) -> Result<CredentialSet, Error> {
        let single = options.login.as_ref();
        let single = single.map(|login| PasswordFile::parse(&login.line));
        let nothing = CredentialSet {
            passwords: single.transpose().map_err(Error::Config)?.map(Arc::new),
            tokens: Arc::default(),
            link_keys: Vec::new(),
        };
        match nothing.read_again(options) {
            (read, wrong) if wrong.is_empty() => Ok(read),
            (_, wrong) => Err(Error::Several(wrong)),
        }
    }

    /// Warns of files that let nobody in, and of users that differ in verification time.
    pub(crate) fn warnings(&self, options: &AccessOptions) -> Vec<String> {
        let users = self.passwords.as_ref().map_or(0, |users| users.len());
        let files = [
            (&options.users, users, "users"),
            (&options.tokens, self.tokens.len(), "tokens"),
        ];
        let empty = files.into_iter().filter(|(_, count, _)| *count == 0);
        let mut warnings = Vec::from_iter(empty.filter_map(|(path, _, what)| {
            let path = path.as_ref()?.display();
            Some(format!("{path} contains no {what}: it lets nobody in"))
        }));
        if self
            .passwords
            .as_ref()
            .is_some_and(|users| users.has_mixed_costs())
        {
            warnings.push(MIXED_COSTS.to_owned());
        }
        warnings
    }

    /// Reads all files; for an invalid one, keeps its earlier content.
    fn read_again(&self, options: &AccessOptions) -> (CredentialSet, Vec<Error>) {
        let mut wrong = Vec::new();
        let users = options.users.as_deref();
        let users = users.map(|path| parsed(path, PasswordFile::parse));
        let tokens = options.tokens.as_deref();
        let tokens = tokens.map(|path| parsed(path, TokenFile::parse));
        let keys = options.link_keys.iter().enumerate().map(|(number, path)| {
            let key = kept(Some(link_key(path)), &mut wrong);
            key.or_else(|| self.link_keys.get(number).cloned())
        });
        let link_keys = keys.collect::<Vec<_>>().into_iter().flatten().collect();
        let set = CredentialSet {
            passwords: kept(users, &mut wrong).or_else(|| self.passwords.clone()),
            tokens: kept(tokens, &mut wrong).unwrap_or_else(|| Arc::clone(&self.tokens)),
            link_keys,
        };
        (set, wrong)
    }
}

/// Returns the value if it was read, and adds an error to `wrong`.
fn kept<T>(read: Option<Result<T, Error>>, wrong: &mut Vec<Error>) -> Option<Arc<T>> {
    read?.map_err(|error| wrong.push(error)).ok().map(Arc::new)
}

/// Returns the key that links are signed with.
///
/// # Errors
/// [`Error::File`], and [`Error::Config`] if no key is configured.
pub(crate) fn first_link_key(options: &AccessOptions) -> Result<LinkKey, Error> {
    let Some(path) = options.link_keys.first() else {
        let what = "access: there is no key in `link-keys` to sign links with";
        return Err(Error::Config(what.to_owned()));
    };
    link_key(path)
}

fn link_key(path: &Path) -> Result<LinkKey, Error> {
    LinkKey::parse(&read(path)?).map_err(|what| wrong(path, what))
}

fn parsed<T>(path: &Path, parse: fn(&str) -> Result<T, String>) -> Result<T, Error> {
    let content = read(path)?;
    let text = std::str::from_utf8(&content);
    let text = text.map_err(|_| wrong(path, "it is not UTF-8".to_owned()))?;
    // Windows editors start files with a byte order mark, which is not part of the first name.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    parse(text).map_err(|what| wrong(path, what))
}

/// Reads a file of a bounded size.
fn read(path: &Path) -> Result<zeroize::Zeroizing<Vec<u8>>, Error> {
    let mut content = zeroize::Zeroizing::new(Vec::new());
    let failed = |error: std::io::Error| wrong(path, error.to_string());
    // A FIFO would wait for its writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(wrong(path, "it is not a regular file".to_owned()));
    }
    let mut file = file.take(ACCESS_FILE_BYTES_MAX + 1);
    file.read_to_end(&mut content).map_err(failed)?;
    match content.len() as u64 > ACCESS_FILE_BYTES_MAX {
        true => Err(wrong(
            path,
            format!("it has more than {ACCESS_FILE_BYTES_MAX} bytes"),
        )),
        false => Ok(content),
    }
}

fn wrong(path: &Path, what: String) -> Error {
    let path = path.to_owned();
    Error::File { path, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_mistake_leaves_what_there_was_until_it_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let write = |content: &str| {
            let new = folder.path().join("new");
            fs::write(&new, content).unwrap();
            fs::rename(new, &path).unwrap();
        };
        let line = |token: &str| crate::access::tokens::line("ci", token.as_bytes(), None);
        write(&line("one"));
        let options = AccessOptions {
            tokens: Some(path.clone()),
            ..AccessOptions::default()
        };
        let access = SiteAccess::open(&options).unwrap().unwrap();
        let mut logins = SiteLogins::default();
        let mut knows = |token: &str| {
            let present = logins.present(&access);
            let found = present
                .tokens
                .verify(token.as_bytes(), std::time::SystemTime::now());
            found.is_some()
        };
        assert!(knows("one") && access.refresh().is_empty());
        write("ci:secret");
        let told = access.refresh()[0].to_string();
        assert!(told.contains("line 1"), "{told}");
        assert!(access.refresh().is_empty(), "an error is reported once");
        assert!(knows("one"));
        fs::remove_file(&path).unwrap();
        assert_eq!(access.refresh().len(), 1);
        assert!(knows("one"));
        write(&line("other"));
        let told = access.refresh();
        assert!(
            told[0].ends_with("can be read again, and are in use"),
            "{told:?}"
        );
        assert!(access.refresh().is_empty());
        assert!(knows("other") && !knows("one"));
        write("");
        let told = access.refresh();
        assert!(told[0].ends_with("contains no tokens: it lets nobody in"));
        assert!(!knows("other"));
    }

    #[test]
    fn a_mistake_in_one_file_keeps_no_other_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let hash = bcrypt::hash_with_salt("a", 4, *b"0123456789abcdef").unwrap();
        let hash = hash.format_for_version(bcrypt::Version::TwoY);
        fs::write(path("users"), format!("anna:{hash}\nben:{hash}\n")).unwrap();
        fs::write(
            path("tokens"),
            crate::access::tokens::line("ci", b"one", None),
        )
        .unwrap();
        let options = AccessOptions {
            users: Some(path("users")),
            tokens: Some(path("tokens")),
            ..AccessOptions::default()
        };
        let access = SiteAccess::open(&options).unwrap().unwrap();
        fs::write(path("users"), format!("ben:{hash}\n")).unwrap();
        fs::remove_file(path("tokens")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("tokens"), 0o600.into()).unwrap();
        let wrong = access.refresh();
        assert!(
            wrong[0].to_string().contains("not a regular file"),
            "{wrong:?}"
        );
        let (_, present) = access.present();
        let users = present.passwords.as_ref().unwrap();
        assert!(users.has("ben") && !users.has("anna"));
        assert!(
            present
                .tokens
                .verify(b"one", std::time::SystemTime::now())
                .is_some()
        );
    }

    #[test]
    fn without_rules_and_files_there_is_nothing_to_know() {
        assert!(
            SiteAccess::open(&AccessOptions::default())
                .unwrap()
                .is_none()
        );
    }
}
