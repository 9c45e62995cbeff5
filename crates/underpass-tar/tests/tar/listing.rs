//! What the reader and other programs find in an archive, in one form.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use underpass_tar::{Error, Member, MemberKind, ReadMember, TarEvent, TarReader};

/// Reads a whole archive with the contents of its members.
pub(crate) fn read(stream: &[u8]) -> Result<Vec<(ReadMember, Vec<u8>)>, Error> {
    let mut reader = TarReader::new();
    let (mut members, mut rest) = (Vec::<(ReadMember, Vec<u8>)>::new(), stream);
    loop {
        let (used, event) = reader.feed(rest)?;
        rest = &rest[used..];
        match event {
            TarEvent::Member(member) => members.push((*member, Vec::new())),
            TarEvent::Content(left) => {
                let taken = usize::try_from(left).unwrap().min(rest.len());
                let (_, content) = members.last_mut().unwrap();
                content.extend_from_slice(&rest[..taken]);
                reader.advance(taken as u64);
                rest = &rest[taken..];
                if rest.is_empty() {
                    reader.finish()?;
                }
            }
            TarEvent::More(_) | TarEvent::End if rest.is_empty() => {
                reader.finish()?;
                return Ok(members);
            }
            TarEvent::More(_) | TarEvent::End => {}
        }
    }
}

/// Returns the content of a file, holes included.
pub(crate) fn expand(member: &Member, content: &[u8]) -> Vec<u8> {
    let MemberKind::SparseFile { size, extents } = &member.kind else {
        return content.to_vec();
    };
    let (mut file, mut at) = (vec![0; usize::try_from(*size).unwrap()], 0);
    for extent in extents {
        let (offset, len) = (extent.offset as usize, extent.len as usize);
        file[offset..offset + len].copy_from_slice(&content[at..at + len]);
        at += len;
    }
    file
}

/// A tree by paths: type, mode, time, and content or target.
pub(crate) type Listing = BTreeMap<String, String>;

/// Lists what members describe, with contents by their hash. A hard link is what it is a link to.
pub(crate) fn of_members(members: &[(ReadMember, Vec<u8>)]) -> Listing {
    let mut listing = Listing::new();
    for (ReadMember { member, .. }, content) in members {
        let path = member.path.strip_prefix(b"./").unwrap_or(&member.path);
        let time = format!("{}", member.modified.seconds);
        let line = match &member.kind {
            MemberKind::Folder => format!("folder {:o} {time}", member.mode),
            MemberKind::Symlink(target) => format!("link {}", target.escape_ascii()),
            MemberKind::HardLink(target) => {
                let target = target.strip_prefix(b"./").unwrap_or(target);
                listing[&target.escape_ascii().to_string()].clone()
            }
            MemberKind::File { .. } | MemberKind::SparseFile { .. } => {
                let content = expand(member, content);
                let hash = blake3::hash(&content);
                format!("file {:o} {time} {} {hash}", member.mode, content.len())
            }
            other => format!("{other:?}"),
        };
        if path != b"." {
            listing.insert(path.escape_ascii().to_string(), line);
        }
    }
    listing
}

/// Lists what is in a folder.
pub(crate) fn of_folder(folder: &Path) -> Listing {
    let mut listing = Listing::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let (mode, time) = (stat.mode() & 0o7777, stat.mtime());
            let line = if stat.is_dir() {
                left.push(path.clone());
                format!("folder {mode:o} {time}")
            } else if stat.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                format!("link {}", target.as_os_str().as_bytes().escape_ascii())
            } else {
                let content = fs::read(&path).unwrap();
                let hash = blake3::hash(&content);
                format!("file {mode:o} {time} {} {hash}", content.len())
            };
            let name = path.strip_prefix(folder).unwrap().as_os_str();
            listing.insert(name.as_bytes().escape_ascii().to_string(), line);
        }
    }
    listing
}

/// Returns what differs between two listings.
pub(crate) fn differences<'l>(one: &'l Listing, other: &'l Listing) -> Vec<(&'l str, &'l str)> {
    let missing = one
        .iter()
        .filter(|(path, line)| other.get(*path) != Some(line));
    let added = other
        .iter()
        .filter(|(path, line)| one.get(*path) != Some(line));
    missing
        .chain(added)
        .map(|(path, line)| (path.as_str(), line.as_str()))
        .collect()
}

/// Runs a program in a folder with a stream as its input.
pub(crate) fn run(program: &str, arguments: &[&str], folder: &Path, input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(arguments.iter().map(OsStr::new))
        .current_dir(folder)
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A program that refuses its input does not read all of it.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}
