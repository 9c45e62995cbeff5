//! A tree being received: a tar stream becomes a folder.
//!
//! ```text
//!  socket ─► bytes of headers ─► PartialTree::push ─► folders, links, small files
//!     └────► content ─ splice ─► PartialTree::wants names file and offset ─► PartialTree::moved
//!
//!  .underpass-uploads/ID/       the tree so far          ── commit ──► FOLDER/NAME
//!  .underpass-uploads/ID.json   its checkpoint: members, hash of their headers, place in the next
//! ```
//!
//! Nothing is visible under its name before all of it is there. A checkpoint is written at least
//! every half second or 64 MiB, and only what it says is reported: after the end of a process
//! the sender continues behind it, and less than that is sent again.

mod build;
mod commit;
mod error;
mod file;
mod folders;
mod metadata;
mod path;
mod settings;
mod start;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{fsync, syncfs};
use rustix::io::Errno;
use underpass_tar::{HeaderChain, MemberKind, ReadMember, TarEvent, TarReader};

use crate::beneath::{FOLDER, open_beneath};
use crate::checkpoint::{CutMember, FolderState, TreeCheckpoint, spell};
use crate::error::{Doing, Error};
use crate::folder::UploadFolder;
use crate::partial::SyncPolicy;
use crate::path::RelativePath;
use crate::record::{UploadId, UploadRecord, seconds};
use crate::tree::build::TreeBuilder;
use crate::tree::commit::{count_entries, merge, name_folder};
use crate::tree::folders::{TreeFolders, restore};

pub use crate::tree::build::TreeSummary;
pub use crate::tree::error::{TreeError, TreeFault};
pub use crate::tree::settings::{
    HiddenNames, LinkTargets, PreservedMetadata, TreeLimits, TreeMerge, TreeSettings,
};

/// Bytes of content and time after which a checkpoint is written: what is sent twice at most.
const CHECKPOINT_BYTES: u64 = 64 << 20;
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(500);

/// The same where each checkpoint is written to disk with everything before it.
const DURABLE_CHECKPOINT_BYTES: u64 = 256 << 20;
const DURABLE_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// A tree being received, locked against other processes. Dropping one without a record removes it;
/// one with a record stays as its last checkpoint says.
///
/// After an error nothing more can be received. After [`TreeFault::Failed`] a tree with a record
/// can be [kept](PartialTree::keep) and resumed; after others only discarded.
#[derive(Debug)]
pub struct PartialTree {
    folder: Arc<UploadFolder>,
    id: UploadId,
    record: Option<UploadRecord>,
    settings: TreeSettings,
    reader: TarReader,
    builder: TreeBuilder,
    /// Bytes that the reader wants.
    header_bytes: usize,
    is_ended: bool,
    /// The error that has ended it.
    failed: Option<TreeError>,
    members: u64,
    entries: u64,
    bytes: u64,
    chain: HeaderChain,
    last_path: Vec<u8>,
    /// Bytes of content since the last checkpoint, and its time.
    since: u64,
    noted: Instant,
    /// Whether a former process may have made members after its last checkpoint.
    is_resumed: bool,
    /// Whether it is removed when it is dropped.
    is_temporary: bool,
}

/// What a tree wants next.
#[derive(Clone, Debug)]
pub enum TreeInput {
    /// Bytes for [`push`](PartialTree::push): headers and padding. More may be pushed than these,
    /// which contain no content.
    Headers(usize),
    /// Content: to be pushed, or written to this file by the caller, which then reports it by
    /// [`moved`](PartialTree::moved).
    Content {
        /// The file.
        file: Arc<OwnedFd>,
        /// The offset in it.
        offset: u64,
        /// Bytes that belong there, one after the other.
        len: u64,
    },
    /// Nothing: the stream has ended. Zeros may be pushed.
    End,
}

impl PartialTree {
    fn new(
        (folder, id): (&Arc<UploadFolder>, UploadId),
        root: OwnedFd,
        record: Option<UploadRecord>,
        settings: TreeSettings,
    ) -> Result<PartialTree, Error> {
        let mut folders = TreeFolders::new(root, settings.preserve.times);
        let known = record.as_ref().and_then(UploadRecord::tree).cloned();
        let is_resumed = known.is_some();
        let checkpoint = known.unwrap_or_default();
        if is_resumed {
            let path = crate::checkpoint::unspell(&checkpoint.folder).ok_or(Error::Gone)?;
            folders.resume(&path, &checkpoint.levels)?;
        }
        let chain = checkpoint.chain;
        let reader = match &checkpoint.cut {
            Some(cut) => TarReader::within(chain, cut.chain, cut.offset),
            None => TarReader::after(chain),
        };
        let last_path = crate::checkpoint::unspell(&checkpoint.path);
        Ok(PartialTree {
            folder: Arc::clone(folder),
            id,
            is_temporary: record.is_none(),
            record,
            settings,
            reader,
            builder: TreeBuilder::new(folders, settings, is_resumed),
            header_bytes: 512,
            is_ended: false,
            failed: None,
            members: checkpoint.members,
            entries: checkpoint.entries,
            bytes: checkpoint.bytes,
            chain,
            last_path: last_path.unwrap_or_default(),
            since: 0,
            noted: Instant::now(),
            is_resumed,
        })
    }

    /// Its name among the partial files.
    pub fn id(&self) -> &UploadId {
        &self.id
    }

    /// Its record, if it can be resumed, with the last checkpoint: what the sender may skip.
    pub fn record(&self) -> Option<&UploadRecord> {
        self.record.as_ref()
    }

    /// Members that are complete, and bytes of content, those before a resumption included.
    pub fn progress(&self) -> (u64, u64) {
        (self.members, self.bytes)
    }

    /// The hash over the headers of the complete members.
    pub fn chain(&self) -> HeaderChain {
        self.chain
    }

    /// Gives up what is there of the member in progress, which has changed at its sender: the
    /// stream continues with its headers and all of its content. Call it before anything is pushed.
    pub fn forget_cut(&mut self) {
        self.reader = TarReader::after(self.chain);
        if let Some(checkpoint) = self.record.as_mut().and_then(|record| record.tree.as_mut()) {
            checkpoint.cut = None;
        }
    }

    /// What this process has made.
    pub fn summary(&self) -> TreeSummary {
        self.builder.summary
    }

    /// What comes next in the stream.
    pub fn wants(&self) -> TreeInput {
        match &self.builder.file {
            Some(file) => {
                let (offset, len) = file.next();
                TreeInput::Content {
                    file: Arc::clone(&file.file),
                    offset,
                    len,
                }
            }
            None if self.is_ended => TreeInput::End,
            None => TreeInput::Headers(self.header_bytes),
        }
    }

    /// Takes bytes of the stream, all of them: headers, padding and content.
    ///
    /// # Errors
    /// [`TreeFault::Stream`], [`TreeFault::Refused`], [`TreeFault::Limit`] are the sender's faults;
    /// [`TreeFault::Failed`] is that of the file system. Later calls return the same error.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TreeError> {
        self.unless_failed(|tree| tree.take(bytes))
    }

    /// Notes content that the caller has written to the file that is
    /// [wanted](PartialTree::wants), at most as much as belongs there.
    ///
    /// # Errors
    /// [`TreeFault::Failed`] of finishing a file, or of writing the checkpoint; the former error.
    pub fn moved(&mut self, bytes: u64) -> Result<(), TreeError> {
        self.unless_failed(|tree| tree.advance(bytes))
    }

    /// After an error nothing may follow: a member would be missing.
    fn unless_failed(
        &mut self,
        step: impl FnOnce(&mut PartialTree) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        self.failed.clone().map_or(Ok(()), Err)?;
        step(self).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), TreeError> {
        while !bytes.is_empty() {
            if let Some(file) = &self.builder.file {
                let written = file.write(bytes);
                let written = written.map_err(|error| self.fail(error.into()))?;
                bytes = &bytes[written..];
                self.advance(written as u64)?;
                continue;
            }
            let (used, event) = self.reader.feed(bytes)?;
            bytes = &bytes[used..];
            match event {
                TarEvent::More(more) => self.header_bytes = more,
                TarEvent::Member(member) => self.begin(*member)?,
                TarEvent::Content(_) => {
                    return Err(self.fail(TreeFault::Refused("content without a file")));
                }
                TarEvent::End => self.is_ended = true,
            }
        }
        Ok(())
    }

    fn advance(&mut self, bytes: u64) -> Result<(), TreeError> {
        self.reader.advance(bytes);
        self.bytes += bytes;
        self.since += bytes;
        if let Some(file) = &mut self.builder.file {
            file.advance(bytes);
            if file.is_complete() {
                let finished = self.builder.finish_file();
                if let Some(file) = finished.map_err(|error| self.fail(error.into()))? {
                    self.entries += 1;
                    self.complete(file.member.path, file.chain);
                }
            }
        }
        self.note_if_due()
    }

    fn begin(&mut self, read: ReadMember) -> Result<(), TreeError> {
        let limits = &self.settings.limits;
        let (path, chain) = (read.member.path.clone(), read.chain);
        let left = read.member.kind.stored() - read.present;
        let is_folder = read.member.kind == MemberKind::Folder;
        if self.members >= limits.members_max {
            return Err(TreeFault::Limit("members").of(&path));
        }
        if self.bytes.saturating_add(left) > limits.bytes_max {
            return Err(TreeFault::Limit("bytes of content").of(&path));
        }
        self.builder.begin(read).map_err(|fault| fault.of(&path))?;
        match &self.builder.file {
            // An empty file is complete, and so may be one that was cut.
            Some(file) if file.is_complete() => self.advance(0),
            Some(_) => Ok(()),
            None => {
                self.entries += u64::from(!is_folder);
                self.complete(path, chain);
                self.note_if_due()
            }
        }
    }

    fn complete(&mut self, path: Vec<u8>, chain: HeaderChain) {
        self.last_path = path;
        self.chain = chain;
        self.members += 1;
        self.header_bytes = 512;
    }

    /// Names the member whose content is arriving, or the last one.
    fn fail(&self, fault: TreeFault) -> TreeError {
        let file = self.builder.file.as_ref();
        fault.of(file.map_or(&self.last_path, |file| &file.member.path))
    }

    fn note_if_due(&mut self) -> Result<(), TreeError> {
        let (bytes, interval) = match self.settings.sync {
            SyncPolicy::Chunk => (DURABLE_CHECKPOINT_BYTES, DURABLE_CHECKPOINT_INTERVAL),
            SyncPolicy::None | SyncPolicy::End => (CHECKPOINT_BYTES, CHECKPOINT_INTERVAL),
        };
        if self.since < bytes && self.noted.elapsed() < interval {
            return Ok(());
        }
        self.builder.look_at_space();
        Ok(self.note(None)?)
    }

    /// Writes the checkpoint of what is in files now.
    fn note(&mut self, lifetime: Option<Duration>) -> Result<(), Error> {
        self.since = 0;
        self.noted = Instant::now();
        let Some(record) = &mut self.record else {
            return Ok(());
        };
        let is_durable = self.settings.sync == SyncPolicy::Chunk;
        if is_durable {
            syncfs(self.builder.folders.root()).doing("writing the tree to disk")?;
        }
        let cut = self.builder.file.as_ref().map(|file| CutMember {
            chain: file.chain,
            offset: file.present,
        });
        record.durable = is_durable.into();
        record.lifetime = lifetime.map_or(record.lifetime, |lifetime| lifetime.as_secs());
        record.expires = seconds(SystemTime::now()).saturating_add(record.lifetime);
        record.tree = Some(TreeCheckpoint {
            members: self.members,
            entries: self.entries,
            chain: self.chain,
            path: spell(&self.last_path),
            bytes: self.bytes,
            cut,
            is_durable,
            folder: spell(&self.builder.folders.path()),
            levels: self.builder.folders.levels().to_vec(),
        });
        self.folder.write_record(&self.id, record)
    }

    /// Writes a checkpoint at the end of a connection: the tree expires after `lifetime` from now.
    ///
    /// # Errors
    /// Any of writing; the last checkpoint holds then.
    pub fn keep(&mut self, lifetime: Duration) -> Result<(), Error> {
        self.note(Some(lifetime))
    }

    /// Removes the tree and its record.
    ///
    /// # Errors
    /// [`Error::Io`]; the next sweep tries again.
    pub fn discard(mut self) -> Result<(), Error> {
        self.is_temporary = false;
        self.folder.forget(&self.id)
    }

    /// Gives the whole tree its name, in folders that are made where there are none. A folder that
    /// has the name already is merged with, if `merging` allows it: file by file, and names that
    /// are taken are found before anything has moved.
    ///
    /// # Errors
    /// [`TreeFault::Stream`] if the stream has not ended. [`TreeFault::Refused`] if a process that
    /// was killed has made members that are no longer in the stream: the source has changed.
    /// [`Error::Exists`], [`Error::Link`] and others; nothing has changed under any name then,
    /// unless two folders were being merged: a tree with a record can be resumed and committed
    /// again.
    pub fn commit(
        mut self,
        target: &RelativePath,
        merging: TreeMerge,
    ) -> Result<TreeSummary, TreeError> {
        let state = self.finish_content()?;
        let (folders, name) = target.split();
        let parent = self.folder.make_folders(folders, None)?;
        let uploads = self.folder.uploads()?;
        let old = self.id.as_str().as_bytes();
        // The top may forbid writing, which moving it does.
        let is_early = state.mode.is_none_or(|mode| mode & 0o200 != 0);
        if is_early {
            restore(self.builder.folders.root(), &state)?;
        }
        match name_folder(uploads.as_fd(), old, parent.as_fd(), name.as_bytes()) {
            Ok(()) => {
                self.is_temporary = false;
                if !is_early {
                    restore(self.builder.folders.root(), &state)?;
                }
                self.sync(|tree| fsync(tree.builder.folders.root()).and_then(|()| fsync(&parent)))?;
            }
            Err(Errno::EXIST | Errno::NOTEMPTY) if merging != TreeMerge::Refused => {
                let to = open_beneath(parent.as_fd(), name, FOLDER).doing("opening the folder")?;
                self.merge_into(to, merging)?;
            }
            Err(errno) => return Err(Error::of("naming the tree", errno).into()),
        }
        // What is left of it is removed by the next sweep where this fails.
        let _ = self.folder.forget(&self.id);
        Ok(self.builder.summary)
    }

    /// Gives each name at the top of the tree to a folder that exists: the area itself, or one
    /// beneath it. What the stream says of the top itself is not applied.
    ///
    /// # Errors
    /// As [`commit`](PartialTree::commit).
    pub fn commit_into(
        mut self,
        folder: Option<&RelativePath>,
        merging: TreeMerge,
    ) -> Result<TreeSummary, TreeError> {
        self.finish_content()?;
        let path = folder.map_or(".", RelativePath::as_str);
        let to = open_beneath(self.folder.root(), path, FOLDER).doing("opening the folder")?;
        self.merge_into(to, merging)?;
        let _ = self.folder.forget(&self.id);
        Ok(self.builder.summary)
    }

    fn merge_into(&mut self, to: OwnedFd, merging: TreeMerge) -> Result<(), TreeError> {
        merge(self.builder.folders.root(), to.as_fd(), merging)?;
        self.is_temporary = false;
        Ok(self.sync(|_| syncfs(&to))?)
    }

    /// Checks that the stream is complete, and gives all folders their metadata. Returns that of
    /// the top.
    fn finish_content(&mut self) -> Result<FolderState, TreeError> {
        self.failed.clone().map_or(Ok(()), Err)?;
        self.reader.finish()?;
        let state = self.builder.folders.leave_all()?;
        if self.is_resumed && count_entries(self.builder.folders.root())? > Some(self.entries) {
            let fault = "the source has changed: the tree has names that the stream has not";
            return Err(TreeFault::Refused(fault).of(b""));
        }
        self.note(None)?;
        self.sync(|tree| syncfs(tree.builder.folders.root()))?;
        Ok(state)
    }

    fn sync(&self, call: impl Fn(&PartialTree) -> Result<(), Errno>) -> Result<(), Error> {
        match self.settings.sync {
            SyncPolicy::None => Ok(()),
            SyncPolicy::End | SyncPolicy::Chunk => call(self).doing("writing the tree to disk"),
        }
    }
}

impl Drop for PartialTree {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = self.folder.forget(&self.id);
        }
    }
}

#[cfg(test)]
mod tests;
