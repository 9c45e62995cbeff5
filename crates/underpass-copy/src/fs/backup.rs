//! Backups of old destinations (`--backup`).

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::fs::atomic_file::{rename_to_nothing, replace};
use crate::options::Backup;

/// The maximum length of a backup's name in bytes: one less than most file systems allow.
const NAME_BYTES_MAX: usize = 254;

/// The suffix used if the given one is empty, or makes the name too long.
const TILDE: &[u8] = b"~";

/// Renames `name` in `dir` as `backup` specifies, and returns its new name.
/// A simple backup replaces an earlier one. A numbered one replaces nothing, even if others make
/// backups concurrently, unless the file system supports neither renaming without replacing nor
/// links: there, a file that appears between the check and the renaming is lost.
///
/// A suffix that is empty, or has a slash before its end, is replaced by `~`. A name that would be
/// too long is cut and gets `~` instead; numbered, it is an error if that exists (EEXIST).
/// `Backup::None` renames nothing.
///
/// # Errors
/// The error of renaming, or of reading the folder. Nothing has been changed then.
pub(crate) fn make(dir: BorrowedFd<'_>, name: &CStr, backup: &Backup) -> Result<CString, Errno> {
    let highest = highest(dir, name, backup)?;
    with_free_name(name, backup, highest, |new, kind| match kind {
        BackupKind::Simple => rustix::fs::renameat(dir, name, dir, new),
        BackupKind::Numbered => rename_to_nothing(dir, name, new),
    })
}

/// Links `name` to the name of its backup, so that `name` always exists: its replacement is renamed
/// over it afterwards. If the file system has no hard links, `name` is renamed.
///
/// # Errors
/// As [`make`].
pub(crate) fn keep(dir: BorrowedFd<'_>, name: &CStr, backup: &Backup) -> Result<(), Errno> {
    let link = |new: &CStr| rustix::fs::linkat(dir, name, dir, new, AtFlags::empty());
    let highest = highest(dir, name, backup)?;
    let kept = with_free_name(name, backup, highest, |new, kind| match link(new) {
        Err(Errno::EXIST) if kind == BackupKind::Simple => replace(dir, new, link),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            make(dir, name, backup).map(drop)
        }
        done => done,
    });
    kept.map(drop)
}

/// Returns the name that a backup of `name` would get now.
///
/// # Errors
/// The error of reading the folder.
pub(crate) fn name_for(
    dir: BorrowedFd<'_>,
    name: &CStr,
    backup: &Backup,
) -> Result<CString, Errno> {
    with_free_name(name, backup, highest(dir, name, backup)?, |_, _| Ok(()))
}

/// The kind of a backup's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackupKind {
    /// A suffix.
    Simple,
    /// An unused number.
    Numbered,
}

/// Calls `give` with the name of the backup; if that is numbered and taken, with the next one.
fn with_free_name(
    name: &CStr,
    backup: &Backup,
    mut number: Option<Decimal>,
    give: impl Fn(&CStr, BackupKind) -> Result<(), Errno>,
) -> Result<CString, Errno> {
    loop {
        number = number.map(Decimal::next);
        let (suffix, kind) = match (&number, backup) {
            (Some(number), _) => (
                [b".~", &number.digits[..], b"~"].concat(),
                BackupKind::Numbered,
            ),
            (None, Backup::Simple(suffix) | Backup::Existing(suffix)) => {
                (usable(suffix.as_bytes()).to_vec(), BackupKind::Simple)
            }
            (None, Backup::None | Backup::Numbered) => return Ok(name.to_owned()),
        };
        let (new, fit) = with_suffix(name.to_bytes(), &suffix)?;
        match give(&new, kind) {
            // Another process took that number.
            Err(Errno::EXIST) if kind == BackupKind::Numbered && fit == SuffixFit::Whole => (),
            given => return given.map(|()| new),
        }
    }
}

/// Returns the suffix to use: it must not lead into another folder.
fn usable(suffix: &[u8]) -> &[u8] {
    let end = suffix.iter().rposition(|&byte| byte != b'/');
    match end {
        Some(end) if !suffix[..end].contains(&b'/') => suffix,
        _ => TILDE,
    }
}

/// Whether a name keeps its whole suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SuffixFit {
    Whole,
    Cut,
}

fn with_suffix(name: &[u8], suffix: &[u8]) -> Result<(CString, SuffixFit), Errno> {
    let (new, fit) = if name.len() + suffix.len() <= NAME_BYTES_MAX {
        ([name, suffix].concat(), SuffixFit::Whole)
    } else {
        let kept = name.len().min(NAME_BYTES_MAX - TILDE.len());
        ([&name[..kept], TILDE].concat(), SuffixFit::Cut)
    };
    let new = CString::new(new).map_err(|_| Errno::INVAL)?;
    Ok((new, fit))
}

/// Returns the highest number of the existing backups, if the folder may be read; `None` if the
/// next backup has no number.
fn highest(dir: BorrowedFd<'_>, name: &CStr, backup: &Backup) -> Result<Option<Decimal>, Errno> {
    let mut highest = match backup {
        Backup::None | Backup::Simple(_) => return Ok(None),
        Backup::Existing(_) => None,
        Backup::Numbered => Some(Decimal::default()),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = match openat(dir, c".", flags, Mode::empty()) {
        Err(Errno::ACCESS) => return Ok(highest),
        opened => opened?,
    };
    for entry in Dir::new(dir)? {
        let number = Decimal::of(name.to_bytes(), entry?.file_name().to_bytes());
        highest = highest.max(number);
    }
    Ok(highest)
}

/// A number of any length, without leading zeros; empty for 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Decimal {
    /// Number of digits: the larger number is the longer one.
    len: usize,
    digits: Vec<u8>,
}

impl Decimal {
    /// Returns the number of a backup of `name`: `name.~N~`.
    fn of(name: &[u8], entry: &[u8]) -> Option<Self> {
        let digits = entry.strip_prefix(name)?;
        let digits = digits.strip_prefix(b".~")?.strip_suffix(b"~")?;
        let is_number =
            matches!(digits.first(), Some(b'1'..=b'9')) && digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| Self::from(digits.to_vec()))
    }

    fn from(digits: Vec<u8>) -> Self {
        let len = digits.len();
        Self { len, digits }
    }

    fn next(self) -> Self {
        let mut digits = self.digits;
        let nines = digits.iter().rev().take_while(|&&digit| digit == b'9');
        let kept = digits.len() - nines.count();
        digits[kept..].fill(b'0');
        match kept.checked_sub(1) {
            Some(last) => digits[last] += 1,
            None => digits.insert(0, b'1'),
        }
        Self::from(digits)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    /// Creates a folder with these files, each of which contains its name.
    fn folder(names: &[&str]) -> (TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let dir = File::open(folder.path()).unwrap();
        (folder, dir)
    }

    fn content(folder: &TempDir, name: impl AsRef<Path>) -> String {
        fs::read_to_string(folder.path().join(name)).unwrap_or_default()
    }

    /// Returns the new name of `d`, and checks that it has the content of `d`.
    fn backup_of_d(names: &[&str], backup: &Backup) -> Result<String, Errno> {
        let (folder, dir) = folder(names);
        let new = make(dir.as_fd(), c"d", backup)?.into_string().unwrap();
        assert_eq!(content(&folder, &new), "d");
        assert!(!folder.path().join("d").exists());
        Ok(new)
    }

    fn numbered(names: &[&str]) -> String {
        backup_of_d(names, &Backup::Numbered).unwrap()
    }

    #[test]
    fn a_number_is_one_above_the_highest() {
        assert_eq!(numbered(&["d"]), "d.~1~");
        assert_eq!(numbered(&["d", "d.~3~", "d.~10~", "d.~9~"]), "d.~11~");
        assert_eq!(numbered(&["d", "d.~9~"]), "d.~10~");
        let long = "d.~99999999999999999999999~";
        assert_eq!(numbered(&["d", long]), "d.~100000000000000000000000~");
    }

    #[test]
    fn what_is_no_number_is_passed_over() {
        let others = [
            "d", "d.~007~", "d.~0~", "d.~a~", "d.~~", "dd.~4~", "d.~4", "d~5~",
        ];
        assert_eq!(numbered(&others), "d.~1~");
        let existing = Backup::Existing(".old".into());
        assert_eq!(backup_of_d(&others, &existing), Ok("d.old".into()));
    }

    #[test]
    fn existing_is_numbered_where_a_number_is() {
        let existing = Backup::Existing("~".into());
        assert_eq!(backup_of_d(&["d"], &existing), Ok("d~".into()));
        assert_eq!(backup_of_d(&["d", "d~"], &existing), Ok("d~".into()));
        assert_eq!(backup_of_d(&["d", "d.~1~"], &existing), Ok("d.~2~".into()));
    }

    #[test]
    fn a_suffix_stays_in_the_folder() {
        let simple = |suffix: &str| backup_of_d(&["d"], &Backup::Simple(suffix.into()));
        assert_eq!(simple(".bak"), Ok("d.bak".into()));
        assert_eq!(simple("."), Ok("d.".into()));
        for bad in ["", "/", "//", "/x", "a/b", "/../x", "a/b/"] {
            assert_eq!(simple(bad), Ok("d~".into()), "{bad}");
        }
        assert_eq!(simple("x/"), Err(Errno::NOTDIR));
    }

    #[test]
    fn a_folder_is_not_replaced() {
        let (folder, dir) = folder(&["d"]);
        fs::create_dir(folder.path().join("d~")).unwrap();
        let simple = Backup::Simple("~".into());
        assert_eq!(make(dir.as_fd(), c"d", &simple), Err(Errno::ISDIR));
        assert_eq!(content(&folder, "d"), "d");
    }

    #[test]
    fn a_long_name_is_cut() {
        let backup = |len: usize, backup: &Backup| {
            let name = "a".repeat(len);
            let (_folder, dir) = folder(&[&name]);
            let new = make(dir.as_fd(), &CString::new(name).unwrap(), backup).unwrap();
            let new = new.into_string().unwrap();
            (new.len(), new.trim_start_matches('a').to_owned())
        };
        let simple = Backup::Simple(".longer".into());
        assert_eq!(backup(247, &simple), (254, ".longer".into()));
        assert_eq!(backup(248, &simple), (249, "~".into()));
        assert_eq!(backup(250, &Backup::Numbered), (254, ".~1~".into()));
        assert_eq!(backup(252, &Backup::Numbered), (253, "~".into()));
        assert_eq!(backup(255, &Backup::Numbered), (254, "~".into()));
        assert_eq!(backup(254, &Backup::Simple("~".into())), (254, "~".into()));
    }

    #[test]
    fn a_cut_number_replaces_nothing() {
        let name = "a".repeat(252);
        let cut = format!("{name}~");
        let (folder, dir) = folder(&[&name, &cut]);
        let made = make(dir.as_fd(), &CString::new(name).unwrap(), &Backup::Numbered);
        assert_eq!(made, Err(Errno::EXIST));
        assert_eq!(content(&folder, &cut), cut);
    }

    #[test]
    fn a_number_that_somebody_else_took_is_passed_over() {
        let (folder, dir) = folder(&["d", "d.~1~", "d.~2~"]);
        let dir = dir.as_fd();
        let rename = |new: &CStr, _| rename_to_nothing(dir, c"d", new);
        let first = Some(Decimal::default());
        let new = with_free_name(c"d", &Backup::Numbered, first, rename).unwrap();
        assert_eq!(new.as_c_str(), c"d.~3~");
        for name in ["d.~1~", "d.~2~"] {
            assert_eq!(content(&folder, name), name);
        }
        assert_eq!(content(&folder, "d.~3~"), "d");
    }
}
