//! The entries of a folder, depth first and sorted: every walk of an unchanged tree yields the same
//! sequence, so that a transfer can continue by position.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use rustix::io::Errno;

/// Folders that are open at the same time; each level of a tree needs one.
const DEPTH_MAX: usize = 200;

/// One entry of a tree.
#[derive(Debug)]
pub(crate) struct WalkEntry {
    /// Its path beneath the top folder, without a slash at either end; empty for the top folder.
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
    pub(crate) content: Content,
}

/// The kind of an entry.
#[derive(Debug)]
pub(crate) enum Content {
    /// A regular file, open for reading.
    File(OwnedFd),
    Folder,
    /// The text of a symbolic link, which is not followed.
    Symlink(Vec<u8>),
    /// Another name of an earlier file: that file's path.
    HardLink(Vec<u8>),
    /// A socket, pipe or device, which is not sent.
    Special,
    /// It could not be read.
    Unreadable(Errno),
}

/// A walk through a folder.
pub(crate) struct Walk {
    levels: Vec<WalkLevel>,
    /// The path of the innermost folder.
    path: Vec<u8>,
    /// The first names of files that have several.
    links: HashMap<(u64, u64), Vec<u8>>,
    top: Option<(OwnedFd, Stat)>,
}

/// An open folder, whose names are being visited.
struct WalkLevel {
    folder: OwnedFd,
    names: SortedNames,
    next: usize,
    /// The length of the path without this folder.
    path_before: usize,
}

impl Walk {
    /// Starts a walk. A symbolic link to the folder is followed: the caller has named it.
    ///
    /// # Errors
    /// Those of openat(2); `ENOTDIR` for anything but a folder.
    pub(crate) fn of(folder: &Path) -> Result<Walk, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&folder)?;
        Ok(Walk {
            levels: Vec::new(),
            path: Vec::new(),
            links: HashMap::new(),
            top: Some((folder, stat)),
        })
    }

    /// Returns the next entry; the top folder is the first.
    ///
    /// # Errors
    /// Those of reading a folder, with its path.
    pub(crate) fn next(&mut self) -> Result<Option<WalkEntry>, (Vec<u8>, Errno)> {
        if let Some((folder, stat)) = self.top.take() {
            self.enter(folder, 0)?;
            return Ok(Some(WalkEntry {
                path: Vec::new(),
                stat,
                content: Content::Folder,
            }));
        }
        loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let Some(name) = level.names.get(level.next) else {
                self.path.truncate(level.path_before);
                self.levels.pop();
                continue;
            };
            level.next += 1;
            let path = joined(&self.path, name);
            match statat(&level.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                // Removed since the folder was read.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err((path, errno)),
                Ok(stat) => return self.visit(path, stat).map(Some),
            }
        }
    }

    fn visit(&mut self, path: Vec<u8>, stat: Stat) -> Result<WalkEntry, (Vec<u8>, Errno)> {
        let start = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        let name = path[start..].to_vec();
        let Some(level) = self.levels.last() else {
            return Err((path, Errno::BADF));
        };
        let (content, stat) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match openat(&level.folder, &name[..], flags, Mode::empty()) {
                    Ok(folder) => {
                        let before = self.path.len();
                        self.path.clone_from(&path);
                        self.enter(folder, before)?;
                        (Content::Folder, stat)
                    }
                    Err(errno) => (Content::Unreadable(errno), stat),
                }
            }
            FileType::RegularFile => self.file(&path, &name, stat),
            FileType::Symlink => match readlinkat(&level.folder, &name[..], Vec::new()) {
                Ok(target) => (Content::Symlink(target.into_bytes()), stat),
                Err(errno) => (Content::Unreadable(errno), stat),
            },
            _ => (Content::Special, stat),
        };
        Ok(WalkEntry {
            path,
            stat,
            content,
        })
    }

    /// Opens a file, unless it is another name of one that was visited.
    fn file(&mut self, path: &[u8], name: &[u8], stat: Stat) -> (Content, Stat) {
        let Some(level) = self.levels.last() else {
            return (Content::Unreadable(Errno::BADF), stat);
        };
        if stat.st_nlink > 1 {
            let first = self.links.get(&(stat.st_dev, stat.st_ino));
            if let Some(first) = first {
                return (Content::HardLink(first.clone()), stat);
            }
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&level.folder, name, flags, Mode::empty());
        let opened = opened.and_then(|file| rustix::fs::fstat(&file).map(|stat| (file, stat)));
        match opened {
            // It was replaced since it was looked at.
            Ok((_, now)) if FileType::from_raw_mode(now.st_mode) != FileType::RegularFile => {
                (Content::Special, now)
            }
            Ok((file, now)) => {
                if now.st_nlink > 1 {
                    self.links.insert((now.st_dev, now.st_ino), path.to_vec());
                }
                (Content::File(file), now)
            }
            Err(errno) => (Content::Unreadable(errno), stat),
        }
    }

    fn enter(&mut self, folder: OwnedFd, path_before: usize) -> Result<(), (Vec<u8>, Errno)> {
        let failed = |errno| (self.path.clone(), errno);
        if self.levels.len() >= DEPTH_MAX {
            return Err(failed(Errno::NAMETOOLONG));
        }
        let names = SortedNames::of(&folder).map_err(failed)?;
        self.levels.push(WalkLevel {
            folder,
            names,
            next: 0,
            path_before,
        });
        Ok(())
    }
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder {
        [] => name.to_vec(),
        folder => [folder, b"/", name].concat(),
    }
}

/// The sorted names in a folder. Half a million of them take about 10 MB: they are kept in one
/// buffer.
struct SortedNames {
    bytes: Vec<u8>,
    /// The start and the end of each name.
    ranges: Vec<(u32, u32)>,
}

impl SortedNames {
    fn of(folder: &OwnedFd) -> Result<SortedNames, Errno> {
        let mut names = SortedNames {
            bytes: Vec::new(),
            ranges: Vec::new(),
        };
        for entry in Dir::read_from(folder.as_fd())? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let start = u32::try_from(names.bytes.len()).map_err(|_| Errno::OVERFLOW)?;
            names.bytes.extend_from_slice(name);
            let end = u32::try_from(names.bytes.len()).map_err(|_| Errno::OVERFLOW)?;
            names.ranges.push((start, end));
        }
        let bytes = &names.bytes;
        let name = |(start, end): (u32, u32)| &bytes[start as usize..end as usize];
        names.ranges.sort_unstable_by(|a, b| name(*a).cmp(name(*b)));
        Ok(names)
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = *self.ranges.get(index)?;
        Some(&self.bytes[start as usize..end as usize])
    }
}

/// Returns whether a file has changed since `before`.
pub(crate) fn has_changed(file: &File, before: &Stat) -> bool {
    rustix::fs::fstat(file).map_or(true, |now| {
        let stamp = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        stamp(&now) != stamp(before)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_tree_is_visited_in_the_same_order_each_time_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        fs::create_dir_all(top.join("b/inner")).unwrap();
        fs::create_dir(top.join("empty")).unwrap();
        for name in ["b/inner/2", "b/inner/10", "a", "b.txt", "b/z"] {
            fs::write(top.join(name), name).unwrap();
        }
        fs::hard_link(top.join("a"), top.join("b/again")).unwrap();
        symlink("/etc", top.join("etc")).unwrap();
        let visit = || {
            let mut walk = Walk::of(top).unwrap();
            let mut found = Vec::new();
            while let Some(entry) = walk.next().unwrap() {
                let kind = match entry.content {
                    Content::File(_) => "file".to_owned(),
                    Content::Folder => "folder".to_owned(),
                    Content::Symlink(to) => format!("-> {}", String::from_utf8(to).unwrap()),
                    Content::HardLink(to) => format!("= {}", String::from_utf8(to).unwrap()),
                    other => panic!("{other:?}"),
                };
                found.push((String::from_utf8(entry.path).unwrap(), kind));
            }
            found
        };
        let expected = [
            ("", "folder"),
            ("a", "file"),
            ("b", "folder"),
            ("b/again", "= a"),
            ("b/inner", "folder"),
            ("b/inner/10", "file"),
            ("b/inner/2", "file"),
            ("b/z", "file"),
            ("b.txt", "file"),
            ("empty", "folder"),
            ("etc", "-> /etc"),
        ];
        let expected = expected.map(|(path, kind)| (path.to_owned(), kind.to_owned()));
        assert_eq!(visit(), expected);
        assert_eq!(visit(), expected);
    }
}
