//! A self-signed certificate for this machine, kept between starts.
//!
//! The key never changes, so that clients can pin it. The certificate is signed again before it
//! expires, and when the machine has a name or an address that it lacks.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use zeroize::Zeroizing;

use crate::address::machine::{addresses, host_name};
use crate::tls::error::TlsError;
use crate::tls::info::CertificateFacts;
use crate::tls::reading::{LoadedCertificate, load};
use crate::tls::settings::{CertificateFiles, TlsOptions};

const DAY: Duration = Duration::from_secs(86_400);

/// The validity of a certificate: clients reject more than 398 days.
const VALIDITY: Duration = Duration::from_secs(397 * 86_400);

/// The time before its expiry at which a certificate is renewed.
const RENEWAL: Duration = Duration::from_secs(30 * 86_400);

const FOLDER_MODE: u32 = 0o700;
const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o644;

/// The maximum number of symbolic links to follow, as in the kernel.
const LINKS_MAX: usize = 40;

/// Reads the certificate in these files, creating or renewing it if necessary.
pub(crate) fn load_or_make(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<LoadedCertificate, TlsError> {
    let names = Names::of_machine();
    let present = load(files, provider);
    if let Ok(present) = &present
        && names.are_in(&present.facts)
        && present.facts.not_after > SystemTime::now() + RENEWAL
    {
        return Ok(present.clone());
    }
    match (make(files, &names), present) {
        (Ok(()), _) => load(files, provider),
        // An old certificate is better than none.
        (Err(_), Ok(present)) => Ok(present),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Returns options with a certificate for this machine that is kept in `folder`, created or renewed
/// if necessary. The folder is created with mode 0700.
///
/// # Errors
/// [`TlsError::Write`], [`TlsError::Read`], [`TlsError::Content`].
pub fn self_signed_in(folder: &Path) -> Result<TlsOptions, TlsError> {
    let files = CertificateFiles::in_folder(folder);
    load_or_make(&files, &aws_lc_rs::default_provider())?;
    Ok(TlsOptions::of(files.cert, files.key))
}

/// The names and addresses that the certificate must cover.
struct Names {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Names {
    fn of_machine() -> Names {
        let mut names = vec!["localhost".to_owned()];
        names.extend(host_name().filter(|name| name != "localhost"));
        Names {
            names,
            addresses: addresses(),
        }
    }

    fn are_in(&self, facts: &CertificateFacts) -> bool {
        let mut names = self.names.iter();
        let mut addresses = self.addresses.iter();
        names.all(|name| facts.is_for(name))
            && addresses.all(|address| facts.addresses.contains(address))
    }

    fn params(&self) -> Result<CertificateParams, rcgen::Error> {
        let addresses = self.addresses.iter().map(IpAddr::to_string);
        let all: Vec<_> = self.names.iter().cloned().chain(addresses).collect();
        let mut params = CertificateParams::new(all)?;
        let host = self.names.last().map_or("localhost", String::as_str);
        let subject = &mut params.distinguished_name;
        *subject = rcgen::DistinguishedName::new();
        subject.push(DnType::CommonName, format!("underpass on {host}"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = SystemTime::now();
        params.not_before = (now - DAY).into();
        params.not_after = (now + VALIDITY - DAY).into();
        Ok(params)
    }
}

/// Signs a certificate with the existing key, or with a new one.
fn make(files: &CertificateFiles, names: &Names) -> Result<(), TlsError> {
    let failed = |path: &Path, source| TlsError::Write {
        path: path.to_owned(),
        source,
    };
    let wrong = |error: rcgen::Error| TlsError::Content {
        path: files.key.clone(),
        why: format!("the key cannot be used, remove it to have another one made: {error}"),
    };
    if let Some(folder) = files.key.parent() {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(FOLDER_MODE).create(folder);
        made.map_err(|error| failed(folder, error))?;
    }
    let key = key(&files.key).map_err(|error| failed(&files.key, error))?;
    let key = KeyPair::from_pem(&key).map_err(wrong)?;
    let params = names.params().map_err(wrong)?;
    let certificate = params.self_signed(&key).map_err(wrong)?;
    replace(&files.cert, certificate.pem().as_bytes()).map_err(|error| failed(&files.cert, error))
}

/// Replaces a certificate atomically: a process that reads it gets the old or the new one.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = behind_links(path)?;
    let new = beside(&path);
    let written = write(&new, content, CERTIFICATE_MODE);
    written
        .and_then(|()| fs::rename(&new, &path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
}

/// Returns the file that a path leads to, which need not exist: a link stays a link.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else {
            return Ok(path);
        };
        path = path.with_file_name("").join(target);
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// Returns the key in a file, which is created if it does not exist. If two processes create it at
/// the same time, one wins, and both use its key.
fn key(path: &Path) -> io::Result<Zeroizing<String>> {
    let path = &behind_links(path)?;
    if !fs::exists(path)? {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
        let pem = Zeroizing::new(key.serialize_pem());
        let new = beside(path);
        let linked = write(&new, pem.as_bytes(), KEY_MODE).and_then(|()| fs::hard_link(&new, path));
        let _ = fs::remove_file(&new);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    fs::read_to_string(path).map(Zeroizing::new)
}

/// Returns a temporary name for the replacement of `path`.
fn beside(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.new", process::id()))
}

fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // A leftover of a process that was killed.
    let _ = fs::remove_file(path);
    let mut file: File = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_certificate_is_kept_and_renewed_with_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles::in_folder(&folder.path().join("state"));
        let provider = aws_lc_rs::default_provider();
        let load = || load_or_make(&files, &provider).unwrap().facts;
        let first = load();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&files.key), 0o600);
        assert_eq!(mode(files.key.parent().unwrap()), 0o700);
        assert!(
            first.is_for("localhost") && first.names.len() <= 2,
            "{first:?}"
        );
        assert!(
            first.addresses.contains(&"127.0.0.1".parse().unwrap()),
            "{first:?}"
        );
        assert_eq!(load(), first);
        let names = Names {
            names: vec!["other".to_owned()],
            addresses: Vec::new(),
        };
        make(&files, &names).unwrap();
        let renewed = load();
        assert!(renewed.names == first.names && renewed.sha256 != first.sha256);
        assert_eq!(renewed.key_sha256, first.key_sha256);
        assert_eq!(
            fs::read_dir(folder.path().join("state")).unwrap().count(),
            2
        );
        fs::write(&files.cert, "").unwrap();
        assert_eq!(load().key_sha256, first.key_sha256);
        fs::write(&files.key, "no key").unwrap();
        let error = load_or_make(&files, &provider).unwrap_err().to_string();
        assert!(
            error.contains("remove it to have another one made"),
            "{error}"
        );
    }

    #[test]
    fn links_stay_links_and_what_they_lead_to_is_made_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (state, kept) = (folder.path().join("state"), folder.path().join("kept"));
        fs::create_dir(&state).unwrap();
        fs::create_dir(&kept).unwrap();
        let files = CertificateFiles::in_folder(&state);
        // A link to another link, which leads to a missing file; then a direct link.
        symlink("again.pem", &files.cert).unwrap();
        symlink("../kept/cert.pem", state.join("again.pem")).unwrap();
        symlink(kept.join("key.pem"), &files.key).unwrap();
        let provider = aws_lc_rs::default_provider();
        let first = load_or_make(&files, &provider).unwrap().facts;
        let names = Names {
            names: vec!["other".to_owned()],
            addresses: Vec::new(),
        };
        make(&files, &names).unwrap();
        let renewed = load_or_make(&files, &provider).unwrap().facts;
        assert_ne!(renewed.sha256, first.sha256);
        assert_eq!(renewed.key_sha256, first.key_sha256);
        for link in [&files.cert, &files.key, &state.join("again.pem")] {
            assert!(fs::symlink_metadata(link).unwrap().is_symlink(), "{link:?}");
        }
        for name in ["cert.pem", "key.pem"] {
            let file = fs::symlink_metadata(kept.join(name)).unwrap();
            assert!(file.is_file(), "{name}");
        }
        let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!((count(&state), count(&kept)), (3, 2));
        // A link to itself leads nowhere.
        fs::remove_file(&files.cert).unwrap();
        symlink(&files.cert, &files.cert).unwrap();
        assert!(load_or_make(&files, &provider).is_err());
    }
}
