//! The state of a world: every name with all its metadata, without following links.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, lgetxattr, llistxattr, statx};
use sha2::{Digest, Sha256};

use super::trees::{at, join};

/// The state of a name, by attribute.
pub(crate) type Entry = BTreeMap<String, String>;
/// Entries by path below the world.
pub(crate) type Entries = BTreeMap<Vec<u8>, Entry>;

/// Times from 2010 on were set by the programs.
const NOW_BEGINS: i64 = 1_262_304_000;

/// Longer paths, which result from copying folders into each other, are skipped: the kernel allows
/// 4,095 bytes, including the world's own path.
const PATH_LEN_MAX: usize = 3_500;

/// Distinguishes an inode from a later one with the same number.
type Identity = (u64, i64, u32);

/// The state of a world before cp ran in it.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// The first name of every inode, and its time of last change.
    inodes: HashMap<Identity, (Vec<u8>, (i64, i64))>,
}

impl Before {
    pub(crate) fn of(world: &Path) -> io::Result<Self> {
        let mut inodes = HashMap::new();
        for path in paths(world)? {
            let full = at(world, &path);
            let metadata = fs::symlink_metadata(&full)?;
            let changed = (metadata.mtime(), metadata.mtime_nsec());
            inodes.entry(identity(&full)?).or_insert((path, changed));
        }
        Ok(Self { inodes })
    }
}

/// Returns the state of every name.
pub(crate) fn look(world: &Path, before: &Before) -> io::Result<Entries> {
    let mut entries = Entries::new();
    let mut first_names: HashMap<u64, Vec<u8>> = HashMap::new();
    for path in paths(world)? {
        let full = at(world, &path);
        let metadata = fs::symlink_metadata(&full)?;
        let mut entry = Entry::new();
        let mut note = |word: &str, state: String| entry.insert(word.to_owned(), state);
        let kind = metadata.file_type();
        note("kind", word(kind).to_owned());
        note("mode", format!("{:04o}", metadata.mode() & 0o7777));
        note("owner", format!("{}:{}", metadata.uid(), metadata.gid()));
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        note("mtime", time(changed));
        let known = before.inodes.get(&identity(&full)?);
        note(
            "inode",
            known.map_or_else(|| "new".to_owned(), |(name, _)| shown(name)),
        );
        if known.is_none_or(|(_, was)| *was != changed) {
            note("atime", time((metadata.atime(), metadata.atime_nsec())));
        }
        if !kind.is_dir() {
            let first = first_names
                .entry(metadata.ino())
                .or_insert_with(|| path.clone());
            note("links", format!("{} as {}", metadata.nlink(), shown(first)));
        }
        if kind.is_symlink() {
            note(
                "target",
                shown(fs::read_link(&full)?.as_os_str().as_bytes()),
            );
        }
        if kind.is_char_device() || kind.is_block_device() {
            note("rdev", format!("{:x}", metadata.rdev()));
        }
        if kind.is_file() {
            note("size", metadata.size().to_string());
            note("content", content(&full)?);
            note("blocks", metadata.blocks().to_string());
        }
        for (name, value) in xattrs(&full)? {
            note(&format!("xattr {}", shown(&name)), shown(&value));
        }
        entries.insert(path, entry);
    }
    Ok(entries)
}

/// Returns every path below the world, the world itself first.
fn paths(world: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    let mut waiting = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let full = at(world, &path);
        if fs::symlink_metadata(&full)?.is_dir() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&full)? {
                names.push(join(&path, &entry?.file_name().into_vec()));
            }
            names.retain(|path| path.len() < PATH_LEN_MAX);
            names.sort_unstable_by(|a, b| b.cmp(a));
            waiting.extend(names);
        }
        paths.push(path);
    }
    Ok(paths)
}

fn identity(path: &Path) -> io::Result<Identity> {
    let stat = statx(
        CWD,
        path,
        AtFlags::SYMLINK_NOFOLLOW,
        StatxFlags::INO | StatxFlags::BTIME,
    )?;
    Ok((stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}

fn word(kind: fs::FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "folder",
        _ if kind.is_file() => "file",
        _ if kind.is_symlink() => "symlink",
        _ if kind.is_fifo() => "fifo",
        _ if kind.is_socket() => "socket",
        _ if kind.is_char_device() => "character device",
        _ => "block device",
    }
}

fn time((second, nanosecond): (i64, i64)) -> String {
    match second {
        NOW_BEGINS.. => "now".to_owned(),
        _ => format!("{second}.{nanosecond:09}"),
    }
}

fn content(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut file = fs::File::open(path)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            len => hash.update(&buffer[..len]),
        }
    }
    Ok(hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn xattrs(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0_u8; 4096];
    let len = match llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut xattrs = Vec::new();
    for name in names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0_u8; 4096];
        let len = lgetxattr(path, name, &mut value[..])?;
        value.truncate(len);
        xattrs.push((name.to_vec(), value));
    }
    Ok(xattrs)
}

/// Returns bytes in printable form, on one line.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let shown = bytes.escape_ascii().to_string();
    // The length of a long name does not matter.
    if shown.len() > 300 {
        format!("{}…({} bytes)", &shown[..120], bytes.len())
    } else {
        shown
    }
}
