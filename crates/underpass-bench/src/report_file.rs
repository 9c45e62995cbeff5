//! The destination of a report.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{ErrorContext, Result};

/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;

/// Writes a report to a file. A regular file is replaced atomically, unless its folder is not
/// writable: a concurrent reader gets the whole old one or the whole new one. Links are followed
/// and never replaced. A pipe, a device and an open descriptor (`/dev/stdout`) are written to.
///
/// # Errors
///
/// [`Error::System`](crate::Error::System) if no file can be created in the directory, where the
/// old file stays; or if it cannot be written to.
pub fn write_report(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let content = content.as_ref();
    let written = match target(path) {
        Ok(Target::Output) => {
            let mut output = io::stdout().lock();
            output.write_all(content).and_then(|()| output.flush())
        }
        Ok(Target::Appended(path)) => append(&path, content),
        Ok(Target::Replaced(path)) => replace(&path, content),
        Err(error) => Err(error),
    };
    written.context(|| format!("write {}", path.display()))
}

/// Checks that [`write_report`] can create or replace a report at a path. Nothing is left there.
/// Open descriptors, pipes and devices are not checked.
///
/// # Errors
///
/// [`Error::System`](crate::Error::System) if it cannot.
pub fn check_report_path(path: &Path) -> Result<()> {
    let checked = match target(path) {
        Ok(Target::Replaced(path)) => check_replaceable(&path),
        Ok(Target::Appended(path)) if path.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(Target::Output | Target::Appended(_)) => Ok(()),
        Err(error) => Err(error),
    };
    checked.context(|| format!("cannot write a report to {}", path.display()))
}

fn check_replaceable(path: &Path) -> io::Result<()> {
    match tempfile::tempfile_in(folder_of(path)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && path.exists() => {
            OpenOptions::new().append(true).open(path).map(drop)
        }
        created => created.map(drop),
    }
}

enum Target {
    /// Standard output, maybe in the middle of a file.
    Output,
    /// A descriptor, a pipe or a device.
    Appended(PathBuf),
    /// A regular file, or nothing yet.
    Replaced(PathBuf),
}

fn target(path: &Path) -> io::Result<Target> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = folder_of(&path).to_owned();
        // Links in /proc lead to open files, which need not have their name any more.
        let resolved = folder.canonicalize()?;
        if resolved.starts_with("/proc") {
            let own = PathBuf::from(format!("/proc/{}/fd/1", std::process::id()));
            let is_output = path.file_name().map(|name| resolved.join(name)) == Some(own);
            return Ok(if is_output {
                Target::Output
            } else {
                Target::Appended(path)
            });
        }
        match fs::read_link(&path) {
            Ok(link) => path = folder.join(link),
            Err(_) if path.exists() && !path.is_file() => return Ok(Target::Appended(path)),
            Err(_) => return Ok(Target::Replaced(path)),
        }
    }
    Err(Errno::LOOP.into())
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn append(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .open(path)?
        .write_all(content)
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = folder_of(path);
    let mut file = tempfile::Builder::new();
    let file = file.permissions(PermissionsExt::from_mode(0o666));
    let mut file = match file.tempfile_in(folder) {
        Ok(file) => file,
        // A file may be writable where its folder is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && path.exists() => {
            return fs::write(path, content);
        }
        Err(error) => return Err(error),
    };
    file.write_all(content)?;
    let _: File = file.persist(path).map_err(|refused| refused.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_file_behind_links_is_replaced_and_the_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        symlink("sub/file", at("one")).unwrap();
        symlink("one", at("two")).unwrap();
        for content in ["first", "second"] {
            write_report(&at("two"), content).unwrap();
            assert_eq!(fs::read_to_string(at("sub/file")).unwrap(), content);
            assert!(at("one").is_symlink() && at("two").is_symlink());
        }
        assert_eq!(fs::read_dir(at("sub")).unwrap().count(), 1);
    }

    #[test]
    fn what_a_descriptor_leads_to_is_written_to_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "before ").unwrap();
        let open = File::open(&file).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&open);
        symlink(format!("/proc/self/fd/{descriptor}"), &link).unwrap();
        write_report(&link, "after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "before after");
        assert!(link.is_symlink());
        write_report(Path::new("/dev/null"), "x").unwrap();
        let full = write_report(Path::new("/dev/full"), "x").unwrap_err();
        assert!(full.to_string().contains("/dev/full"), "{full}");
    }

    #[test]
    fn links_that_lead_nowhere_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("link", &link).unwrap();
        assert!(write_report(&link, "x").is_err());
        assert!(write_report(&folder.path().join("no/file"), "x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
