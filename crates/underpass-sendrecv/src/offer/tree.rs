//! A tree as a stream of tar, from any position on.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{SeekFrom, Stat, fgetxattr, flistxattr, seek};
use rustix::io::Errno;
use underpass::{FileRange, Piece, SharedFile};
use underpass_tar::{
    END, HeaderChain, Member, MemberKind, MemberOwner, SparseExtent, TarTime, padding,
};

use super::walk::{Content, Walk, WalkEntry, has_changed};
use crate::error::Error;
use crate::profile::TreePosition;

/// Contents of up to this size are read and leave with their headers; larger ones go by ranges.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Bytes of headers and small files that leave together.
const BATCH_BYTES: usize = 256 << 10;

/// Extents of a sparse file; one with more is sent whole.
const EXTENTS_MAX: usize = 10_000;

/// What is sent of metadata.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attributes {
    /// Modes and times.
    Usual,
    /// Owners and extended attributes, too.
    All,
}

/// A tree being sent.
pub(crate) struct TreeStream {
    root: PathBuf,
    walk: Walk,
    attributes: Attributes,
    prefix: Option<Vec<u8>>,
    /// The members that were produced, and the hash over their headers.
    members: u64,
    chain: HeaderChain,
    /// Bytes of content that the receiver has already.
    skipped: u64,
    /// Bytes that were read but have not been taken.
    buffer: Vec<u8>,
    /// Large files whose ranges are being sent: whether they changed is looked at afterwards.
    sent: Vec<(Vec<u8>, Arc<File>, Stat)>,
    /// An entry that was produced by [`seek`](TreeStream::seek).
    next: Option<(WalkEntry, u64)>,
    is_ended: bool,
    /// Entries that cannot be sent, with the reason.
    left_out: Vec<(PathBuf, &'static str, Option<Errno>)>,
    /// Files that changed while they were sent.
    changed: Vec<PathBuf>,
}

/// Whether a tree is the one of which a part was received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Continued {
    /// It is: the stream continues at the position, except that a member that has changed is sent
    /// whole.
    At(TreePosition),
    /// An entry before the position was added, removed or changed.
    Changed,
}

impl TreeStream {
    /// Opens a tree; nothing but the folder itself is read yet.
    /// The paths of members begin with `prefix`, or are relative to the tree.
    pub(crate) fn of(
        root: &Path,
        attributes: Attributes,
        prefix: Option<&str>,
    ) -> Result<TreeStream, Error> {
        let walk = Walk::of(root).map_err(|errno| Error::Source {
            path: root.to_owned(),
            doing: "opening the folder",
            errno,
        })?;
        Ok(TreeStream {
            root: root.to_owned(),
            walk,
            attributes,
            prefix: prefix.map(|prefix| prefix.as_bytes().to_vec()),
            members: 0,
            chain: HeaderChain::new(),
            skipped: 0,
            buffer: Vec::new(),
            sent: Vec::new(),
            next: None,
            is_ended: false,
            left_out: Vec::new(),
            changed: Vec::new(),
        })
    }

    /// Skips the members before a position, comparing their headers.
    pub(crate) fn seek(&mut self, position: &TreePosition) -> Result<Continued, Error> {
        while self.members < position.members {
            let Some((_, member)) = self.entry()? else {
                return Ok(Continued::Changed);
            };
            self.account(&member);
        }
        if self.chain != position.chain {
            return Ok(Continued::Changed);
        }
        let mut reached = TreePosition {
            cut: None,
            ..*position
        };
        if let Some((chain, present)) = position.cut
            && let Some((entry, member)) = self.entry()?
        {
            let mut headers = Vec::new();
            member.write(&mut headers);
            let is_same = self.chain.then(&headers) == chain && present <= member.kind.stored();
            if is_same {
                self.skipped += present;
                reached.cut = position.cut;
            }
            self.next = Some((entry, if is_same { present } else { 0 }));
        }
        Ok(Continued::At(reached))
    }

    /// Bytes of content before the position that was sought.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the next pieces of the stream, which have `bytes` bytes in all; none at its end.
    pub(crate) fn batch(&mut self) -> Result<Option<(Vec<Piece>, u64)>, Error> {
        self.look_at_sent();
        if self.is_ended {
            return Ok(None);
        }
        let mut pieces = Vec::new();
        while self.buffer.len() < BATCH_BYTES && pieces.is_empty() {
            let Some((entry, present)) = self.next_entry()? else {
                self.buffer.extend_from_slice(&END);
                self.is_ended = true;
                break;
            };
            self.produce(entry, present, &mut pieces)?;
        }
        if !self.buffer.is_empty() {
            pieces.push(Piece::Bytes(std::mem::take(&mut self.buffer)));
        }
        let bytes = pieces.iter().map(Piece::len).sum();
        Ok(Some((pieces, bytes)))
    }

    /// Returns what the user should know of the members sent so far.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(|(path, why, errno)| {
            let errno = errno.map_or_else(String::new, |errno| format!(": {errno}"));
            format!("{} was not sent: {why}{errno}", path.display())
        });
        let changed = self
            .changed
            .iter()
            .map(|path| format!("{} changed while it was sent", path.display()));
        left_out.chain(changed).collect()
    }

    /// Fails if the copy may differ from the tree.
    pub(crate) fn outcome(&self) -> Result<(), Error> {
        if let Some(path) = self.changed.first() {
            return Err(Error::Changed { path: path.clone() });
        }
        let unreadable = self.left_out.iter();
        let mut unreadable = unreadable.filter_map(|(path, _, errno)| Some((path, (*errno)?)));
        match unreadable.next() {
            Some((path, errno)) => Err(Error::Source {
                path: path.clone(),
                doing: "it was not sent",
                errno,
            }),
            None => Ok(()),
        }
    }

    fn next_entry(&mut self) -> Result<Option<(WalkEntry, u64)>, Error> {
        match self.next.take() {
            Some(next) => Ok(Some(next)),
            None => Ok(self.entry()?.map(|(entry, _)| (entry, 0))),
        }
    }

    /// Appends a member: headers and small contents to the buffer, large contents as pieces.
    fn produce(
        &mut self,
        entry: WalkEntry,
        present: u64,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Error> {
        let mut member = self.member(&entry);
        let Content::File(file) = entry.content else {
            self.push_headers(&member);
            return Ok(());
        };
        let file = File::from(file);
        let size = member.kind.stored();
        if size <= SMALL_BYTES_MAX && matches!(member.kind, MemberKind::File { .. }) && present == 0
        {
            let content = self.read(&entry.path, &file, size)?;
            member.kind = MemberKind::File {
                size: content.len() as u64,
            };
            self.push_headers(&member);
            self.buffer.extend_from_slice(&content);
            self.buffer.extend_from_slice(padding(content.len() as u64));
            if has_changed(&file, &entry.stat) {
                self.changed.push(self.path(&entry.path));
            }
            return Ok(());
        }
        self.push_headers(&member);
        pieces.push(Piece::Bytes(std::mem::take(&mut self.buffer)));
        let duplicate = file.try_clone().map_err(|error| Error::Source {
            path: self.path(&entry.path),
            doing: "duplicating its descriptor",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
        })?;
        let shared = SharedFile::new(OwnedFd::from(duplicate));
        let mut skip = present;
        for extent in extents(&member.kind) {
            let skipped = skip.min(extent.len);
            skip -= skipped;
            if extent.len > skipped {
                pieces.push(Piece::Range(FileRange {
                    file: Arc::clone(&shared),
                    offset: extent.offset + skipped,
                    len: extent.len - skipped,
                }));
            }
        }
        self.buffer.extend_from_slice(padding(size));
        self.sent.push((entry.path, Arc::new(file), entry.stat));
        Ok(())
    }

    fn push_headers(&mut self, member: &Member) {
        let start = self.buffer.len();
        member.write(&mut self.buffer);
        self.chain = self.chain.then(&self.buffer[start..]);
        self.members += 1;
    }

    fn account(&mut self, member: &Member) {
        let mut headers = Vec::new();
        member.write(&mut headers);
        self.chain = self.chain.then(&headers);
        self.skipped += member.kind.stored();
        self.members += 1;
    }

    /// Reads a small file: what it has now, at most the size that it had.
    fn read(&self, path: &[u8], file: &File, size: u64) -> Result<Vec<u8>, Error> {
        let mut content = vec![0; size as usize];
        let mut filled = 0;
        while filled < content.len() {
            match file.read_at(&mut content[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::Source {
                        path: self.path(path),
                        doing: "reading it",
                        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
                    });
                }
            }
        }
        content.truncate(filled);
        Ok(content)
    }

    fn look_at_sent(&mut self) {
        for (path, file, stat) in std::mem::take(&mut self.sent) {
            if has_changed(&file, &stat) {
                self.changed.push(self.path(&path));
            }
        }
    }

    /// Returns the next entry that can be sent.
    fn entry(&mut self) -> Result<Option<(WalkEntry, Member)>, Error> {
        loop {
            let entry = self.walk.next().map_err(|(path, errno)| Error::Source {
                path: self.path(&path),
                doing: "reading the folder",
                errno,
            })?;
            let Some(entry) = entry else {
                return Ok(None);
            };
            let left_out = match &entry.content {
                Content::Special => ("a socket, pipe or device", None),
                Content::Unreadable(errno) => ("cannot be read", Some(*errno)),
                _ => {
                    let member = self.member(&entry);
                    return Ok(Some((entry, member)));
                }
            };
            self.left_out
                .push((self.path(&entry.path), left_out.0, left_out.1));
        }
    }

    fn path(&self, beneath: &[u8]) -> PathBuf {
        let beneath = std::ffi::OsString::from_vec(beneath.to_vec());
        self.root.join(beneath)
    }

    /// Returns the name of a member by its path beneath the tree.
    fn name(&self, beneath: &[u8]) -> Vec<u8> {
        match (&self.prefix, beneath) {
            (None, []) => b".".to_vec(),
            (None, beneath) => beneath.to_vec(),
            (Some(prefix), []) => prefix.clone(),
            (Some(prefix), beneath) => [&prefix[..], b"/", beneath].concat(),
        }
    }

    fn member(&self, entry: &WalkEntry) -> Member {
        let stat = &entry.stat;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let kind = match &entry.content {
            Content::Symlink(target) => MemberKind::Symlink(target.clone()),
            Content::HardLink(first) => MemberKind::HardLink(self.name(first)),
            Content::File(file) => match holes(file, stat, size) {
                Some(extents) => MemberKind::SparseFile { size, extents },
                None => MemberKind::File { size },
            },
            _ => MemberKind::Folder,
        };
        let path = self.name(&entry.path);
        let modified = TarTime {
            seconds: stat.st_mtime,
            nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        };
        let mut member = Member::new(path, kind, stat.st_mode & 0o7777, modified);
        if self.attributes == Attributes::All {
            member.owner = MemberOwner {
                uid: stat.st_uid,
                gid: stat.st_gid,
                ..MemberOwner::default()
            };
            if let Content::File(file) = &entry.content {
                member.xattrs = xattrs(file);
            }
        }
        member
    }
}

/// Returns the parts of a file that are stored, in order.
fn extents(kind: &MemberKind) -> Vec<SparseExtent> {
    match kind {
        MemberKind::SparseFile { extents, .. } => extents.clone(),
        kind => vec![SparseExtent {
            offset: 0,
            len: kind.stored(),
        }],
    }
}

/// Returns the parts of a file that are not holes; none if it has no holes that are worth it.
fn holes(file: &OwnedFd, stat: &Stat, size: u64) -> Option<Vec<SparseExtent>> {
    let allocated = u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512);
    if allocated >= size || size <= SMALL_BYTES_MAX {
        return None;
    }
    let mut extents = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = seek(file, SeekFrom::Hole(start)).ok()?.min(size);
        if end > start {
            extents.push(SparseExtent {
                offset: start,
                len: end - start,
            });
        }
        if extents.len() > EXTENTS_MAX || end <= at {
            return None;
        }
        at = end;
    }
    Some(extents)
}

/// Returns the extended attributes of a file that a receiver may set.
fn xattrs(file: &OwnedFd) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut names = vec![0; 64 << 10];
    let Ok(length) = flistxattr(file, &mut names[..]) else {
        return found;
    };
    for name in names[..length].split(|byte| *byte == 0) {
        let mut value = vec![0; 64 << 10];
        if !name.starts_with(b"user.") {
            continue;
        }
        if let Ok(length) = fgetxattr(file, name, &mut value[..]) {
            found.insert(name.to_vec(), value[..length].to_vec());
        }
    }
    found
}
