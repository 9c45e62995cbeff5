//! Resolves the links of a path, so that access rules see the final name.
//!
//! Access to a file depends on its name, so a link must not bypass the rules for its target. A path
//! is therefore followed here, link by link, and the final name is opened without following any
//! link:
//!
//! ```text
//!  public/latest/x ─► public/latest is a link to ../releases/7 ─► releases/7/x   no link in it
//! ```
//!
//! A case-insensitive folder (exFAT, NTFS, casefold of ext4) has many names for one file. There a
//! name is found only in the spelling that the folder stores.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, FsWord, OFlags, Stat, fstatfs, readlinkat, statat};
use rustix::io::Errno;

use crate::limits::LINKS_FOLLOWED_MAX;
use crate::rules::Symlinks;
use crate::site::beneath::open;

/// A path without links, and whether it exists.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct SettledPath {
    pub(crate) name: Vec<u8>,
    /// The reason why it cannot be opened. The name is the one it would have.
    pub(crate) missing: Option<Errno>,
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const LINK: OFlags = PLACE.union(OFlags::NOFOLLOW);

/// Follows the links of a path beneath `root`, if `symlinks` permits.
///
/// # Errors
/// The path leads out of the root or in circles, or cannot be followed: its final name is unknown.
pub(crate) fn settle(
    root: BorrowedFd<'_>,
    path: &[u8],
    symlinks: Symlinks,
) -> Result<SettledPath, Errno> {
    let settled = |name: Vec<u8>, missing| Ok(SettledPath { name, missing });
    let name = match open(root, place(path), PLACE, Symlinks::None) {
        Ok(_) => path.to_vec(),
        Err(Errno::LOOP) if symlinks == Symlinks::None => return Err(Errno::LOOP),
        Err(Errno::LOOP) => match follow(root, path)? {
            SettledPath {
                name,
                missing: None,
            } => name,
            missing => return Ok(missing),
        },
        Err(errno) => return settled(path.to_vec(), Some(errno)),
    };
    match is_spelt_so(root, &name) {
        Ok(true) => settled(name, None),
        Ok(false) => settled(name, Some(Errno::NOENT)),
        Err(errno) => settled(name, Some(errno)),
    }
}

/// Whether a path, or a folder on its way, is spelt in another way than on the disk, which does not
/// tell letter cases apart. What does not exist is spelt right.
pub(crate) fn is_spelt_otherwise(root: BorrowedFd<'_>, path: &[u8]) -> bool {
    let mut present = Some(path);
    while let Some(path) = present {
        match open(root, place(path), PLACE, Symlinks::None) {
            Err(Errno::NOENT) => present = parent(path),
            Ok(_) => return !matches!(is_spelt_so(root, path), Ok(true)),
            // It is not written through.
            Err(_) => return false,
        }
    }
    false
}

fn place(path: &[u8]) -> &[u8] {
    match path {
        b"" => b".",
        path => path,
    }
}

/// Follows one component after the other.
fn follow(root: BorrowedFd<'_>, path: &[u8]) -> Result<SettledPath, Errno> {
    let mut left: Vec<Vec<u8>> = names(path).rev().map(<[u8]>::to_vec).collect();
    let mut name = Vec::new();
    let mut links = 0;
    while let Some(next) = left.pop() {
        if next == b".." {
            name = parent(&name).ok_or(Errno::XDEV)?.to_vec();
            continue;
        }
        let there = joined(&name, &next);
        match target(root, &there) {
            Ok(None) => name = there,
            Ok(Some(target)) => {
                links += 1;
                if links > LINKS_FOLLOWED_MAX || left.len() > NAMES_MAX {
                    return Err(Errno::LOOP);
                }
                if target.starts_with(b"/") {
                    return Err(Errno::XDEV);
                }
                left.extend(names(&target).rev().map(<[u8]>::to_vec));
            }
            Err(errno) => {
                let name = rest(there, left)?;
                let missing = Some(errno);
                return Ok(SettledPath { name, missing });
            }
        }
    }
    Ok(SettledPath {
        name,
        missing: None,
    })
}

/// The maximum number of components left to follow: links can add many.
const NAMES_MAX: usize = 8192;

/// Returns the components of a path, without `.`.
pub(crate) fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let names = path.split(|&byte| byte == b'/');
    names.filter(|name| !name.is_empty() && *name != b".")
}

pub(crate) fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder {
        b"" => name.to_vec(),
        folder => [folder, b"/", name].concat(),
    }
}

/// Returns the folder of a name; the root has none.
fn parent(name: &[u8]) -> Option<&[u8]> {
    if name.is_empty() {
        return None;
    }
    let slash = name.iter().rposition(|&byte| byte == b'/');
    Some(&name[..slash.unwrap_or(0)])
}

/// Returns the target of a link; `None` if it is not a link.
fn target(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let place = open(root, path, LINK, Symlinks::None)?;
    match readlinkat(&place, "", Vec::new()) {
        Ok(target) => Ok(Some(target.into_bytes())),
        // Not a link (readlinkat(2)).
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns the final name of a path with a missing component.
fn rest(mut name: Vec<u8>, left: Vec<Vec<u8>>) -> Result<Vec<u8>, Errno> {
    for next in left.into_iter().rev() {
        name = match &next[..] {
            b".." => parent(&name).ok_or(Errno::XDEV)?.to_vec(),
            next => joined(&name, next),
        };
    }
    Ok(name)
}

/// Whether every component of a path without links is spelt as in its folder.
fn is_spelt_so(root: BorrowedFd<'_>, path: &[u8]) -> Result<bool, Errno> {
    let mut folder = Vec::new();
    for name in names(path) {
        if !is_the_name(root, &folder, name)? {
            return Ok(false);
        }
        folder = joined(&folder, name);
    }
    Ok(true)
}

fn is_the_name(root: BorrowedFd<'_>, folder: &[u8], name: &[u8]) -> Result<bool, Errno> {
    let folder = open(root, place(folder), PLACE, Symlinks::None)?;
    let look = |name: &[u8]| statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let other = match in_other_case(name) {
        Some(other) => look(&other).map(Some),
        None if name.is_ascii() && tells_cases_apart(&folder) => return Ok(true),
        None => Ok(None),
    };
    match other {
        Err(Errno::NOENT) => Ok(true),
        Ok(Some(other)) if !is_same(&look(name)?, &other) => Ok(true),
        // One name for both letter cases, or two names of one file.
        Ok(_) => lists(&folder, name),
        Err(errno) => Err(errno),
    }
}

/// Returns the name with the case of its first ASCII letter changed.
fn in_other_case(name: &[u8]) -> Option<Vec<u8>> {
    let letter = name.iter().position(u8::is_ascii_alphabetic)?;
    let mut other = name.to_vec();
    other[letter] ^= 0x20;
    Some(other)
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    let id = |stat: &Stat| {
        (
            stat.st_dev,
            stat.st_ino,
            FileType::from_raw_mode(stat.st_mode),
        )
    };
    id(one) == id(other)
}

/// Whether a file system is known to have a single name per file for digits and signs; some have
/// short names for long ones. Unknown ones are treated like those.
fn tells_cases_apart(folder: &OwnedFd) -> bool {
    /// From statfs(2): ext2 to ext4, XFS, Btrfs, tmpfs, overlay, NFS, ZFS, F2FS, EROFS, squashfs,
    /// bcachefs.
    const KNOWN: [FsWord; 11] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x794c_7630,
        0x6969,
        0x2fc1_2fc1,
        0xf2f5_2010,
        0xe0f5_e1e2,
        0x7371_7368,
        0xca45_1a4e,
    ];
    fstatfs(folder).is_ok_and(|found| KNOWN.contains(&found.f_type))
}

/// Whether a folder has an entry with exactly this name.
fn lists(folder: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    let readable = open(
        folder.as_fd(),
        b".",
        crate::site::beneath::OPEN,
        Symlinks::None,
    )?;
    for entry in Dir::new(readable)? {
        if entry?.file_name().to_bytes() == name {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn settled(root: &Path, path: &str, symlinks: Symlinks) -> String {
        let root = OwnedFd::from(fs::File::open(root).unwrap());
        match settle(root.as_fd(), path.as_bytes(), symlinks) {
            Ok(settled) => {
                let name = String::from_utf8(settled.name).unwrap();
                match settled.missing {
                    None => name,
                    Some(errno) => format!("{name} ({})", underpass::errno::name(errno)),
                }
            }
            Err(errno) => underpass::errno::name(errno).into_owned(),
        }
    }

    #[test]
    fn links_are_followed_to_the_name_they_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for folder in ["a/b", "c/d", "out"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("c/d/f"), "").unwrap();
        for (link, target) in [
            ("a/to-d", "../c/d"),
            ("a/to-f", "to-d/f"),
            ("a/b/up", "../../a/to-d/../d/f"),
            ("a/dangling", "../c/none/./x"),
            ("a/out", "../../x"),
            ("a/absolute", "/etc/passwd"),
            ("a/circle", "circle"),
            ("a/self", "."),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        for (path, expected) in [
            ("", ""),
            ("c/d/f", "c/d/f"),
            ("c/d", "c/d"),
            ("c/none", "c/none (ENOENT)"),
            ("c/d/f/x", "c/d/f/x (ENOTDIR)"),
            ("a/to-d", "c/d"),
            ("a/to-d/f", "c/d/f"),
            ("a/to-d/none/x", "c/d/none/x (ENOENT)"),
            ("a/to-f", "c/d/f"),
            ("a/to-f/x", "c/d/f/x (ENOTDIR)"),
            ("a/b/up", "c/d/f"),
            ("a/dangling", "c/none/x (ENOENT)"),
            ("a/dangling/y", "c/none/x/y (ENOENT)"),
            ("a/out", "EXDEV"),
            ("a/absolute", "EXDEV"),
            ("a/circle", "ELOOP"),
            ("a/self/self/b", "a/b"),
        ] {
            assert_eq!(settled(root, path, Symlinks::Inside), expected, "{path}");
        }
        assert_eq!(settled(root, "a/to-f", Symlinks::None), "ELOOP");
        assert_eq!(settled(root, "c/d/f", Symlinks::None), "c/d/f");
    }

    #[test]
    fn two_files_and_two_names_of_one_may_differ_in_case() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::write(root.join("file"), "1").unwrap();
        fs::write(root.join("File"), "2").unwrap();
        fs::write(root.join("name"), "3").unwrap();
        fs::hard_link(root.join("name"), root.join("Name")).unwrap();
        fs::write(root.join("\u{fc}"), "4").unwrap();
        for name in ["file", "File", "name", "Name", "\u{fc}"] {
            assert_eq!(settled(root, name, Symlinks::Inside), name);
        }
        assert_eq!(settled(root, "FILE", Symlinks::Inside), "FILE (ENOENT)");
    }
}
