//! Makes the members of a tree in its folder.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, ftruncate, linkat, openat,
    statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use underpass_tar::{Member, MemberKind, ReadMember};

use crate::beneath::{FOLDER, open_beneath};
use crate::checkpoint::FolderState;
use crate::error::{Doing, Error};
use crate::space::FreeSpace;
use crate::tree::error::TreeFault;
use crate::tree::file::UnfinishedFile;
use crate::tree::folders::TreeFolders;
use crate::tree::metadata::{
    final_mode, set_link_metadata, set_mode, set_owner_and_xattrs, set_times,
};
use crate::tree::path::{names, stays_beneath};
use crate::tree::settings::{LinkTargets, TreeSettings};

/// Files of this size and more get their blocks before their content, so that a full disk is
/// noticed then, and their blocks are together.
const ALLOCATED_BYTES_MIN: u64 = 1 << 20;

/// Space that a member takes beside its content: an inode, an entry, the rest of a block.
const MEMBER_BYTES: u64 = 4096;

/// What has been made of a tree since it was begun or resumed, by this process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TreeSummary {
    /// Regular files.
    pub files: u64,
    /// Folders that the sender has named.
    pub folders: u64,
    /// Symbolic and hard links.
    pub links: u64,
    /// Extended attributes that were not taken over: not asked for, of another namespace than
    /// `user`, or not supported by the file system.
    pub xattrs_left_out: u64,
    /// Pax records without meaning here, such as vendors' extensions.
    pub records_ignored: u64,
}

/// The members of a tree, made one after the other.
#[derive(Debug)]
pub(super) struct TreeBuilder {
    pub(super) folders: TreeFolders,
    /// The file whose content arrives.
    pub(super) file: Option<UnfinishedFile>,
    pub(super) summary: TreeSummary,
    settings: TreeSettings,
    /// The permissions that files get which are made with others: the umask and the folder's
    /// default access list decide.
    made: BTreeMap<u32, u32>,
    /// Whether names that are taken may be those of members that arrived after the last checkpoint
    /// of a former process.
    may_replace: bool,
    /// Bytes and inodes that may be taken before the file system is looked at again.
    space_left: u64,
    inodes_left: u64,
}

impl TreeBuilder {
    pub(super) fn new(folders: TreeFolders, settings: TreeSettings, may_replace: bool) -> Self {
        TreeBuilder {
            folders,
            file: None,
            summary: TreeSummary::default(),
            settings,
            made: BTreeMap::new(),
            may_replace,
            space_left: 0,
            inodes_left: 0,
        }
    }

    /// Makes a member. If it is a file, it is open then, until its content is complete.
    pub(super) fn begin(&mut self, read: ReadMember) -> Result<(), TreeFault> {
        let (member, present) = (read.member, read.present);
        self.summary.records_ignored += read.ignored.len() as u64;
        let path = member.path.clone();
        let path = names(&path, &self.settings)?;
        let Some((&name, parents)) = path.split_last() else {
            return match member.kind {
                MemberKind::Folder => Ok(self.root(&member)?),
                _ => Err(TreeFault::Refused("the top is not a folder")),
            };
        };
        refuse_special(&member.kind)?;
        self.reserve(member.kind.stored() - present)?;
        self.folders.go_to(parents)?;
        match &member.kind {
            MemberKind::Folder => self.folder(name, &member)?,
            MemberKind::Symlink(target) => self.symlink(name, target, parents.len(), &member)?,
            MemberKind::HardLink(target) => self.hard_link(name, target)?,
            _ => {
                let (file, made) = match present {
                    0 => self.create(name, &member)?,
                    present => self.reopen(name, &member, present)?,
                };
                let mut file = UnfinishedFile::new(file, member, read.chain, made);
                file.advance(present);
                self.file = Some(file);
            }
        }
        Ok(())
    }

    /// Looks at the file system before the next member.
    pub(super) fn look_at_space(&mut self) {
        self.space_left = 0;
    }

    /// Gives the file that is complete its metadata, and closes it.
    pub(super) fn finish_file(&mut self) -> Result<Option<UnfinishedFile>, Error> {
        let Some(file) = self.file.take() else {
            return Ok(None);
        };
        let (member, preserve) = (&file.member, self.settings.preserve);
        let left_out = set_owner_and_xattrs(file.file.as_fd(), member, preserve)?;
        let mode = final_mode(member, file.made, preserve);
        set_mode(file.file.as_fd(), file.made, mode)?;
        if preserve.times {
            set_times(&*file.file, member.modified).doing("setting the time")?;
        }
        self.summary.xattrs_left_out += left_out;
        self.summary.files += 1;
        Ok(Some(file))
    }

    /// Takes space from what the receiver may fill.
    fn reserve(&mut self, content: u64) -> Result<(), Error> {
        let wanted = content.saturating_add(MEMBER_BYTES);
        if self.space_left < wanted || self.inodes_left == 0 {
            let space = FreeSpace::of(self.folders.root(), self.settings.keep_free)?;
            space.check(wanted)?;
            (self.space_left, self.inodes_left) = (space.bytes(), space.inodes);
        }
        self.inodes_left = self.inodes_left.checked_sub(1).ok_or(Error::NoInodes)?;
        self.space_left -= wanted;
        Ok(())
    }

    /// Notes what the top gets at the end.
    fn root(&mut self, member: &Member) -> Result<(), Error> {
        self.folders.go_to(&[])?;
        let made = fstat(self.folders.root()).doing("looking at the top")?;
        self.folder_metadata(member, made.st_mode & 0o7777)
    }

    fn folder(&mut self, name: &[u8], member: &Member) -> Result<(), Error> {
        let made = match self.folders.make(name, member.mode & 0o777)? {
            Some(made) => made,
            None => {
                let stat = fstat(self.folders.current()).doing("looking at a folder")?;
                stat.st_mode & 0o7777
            }
        };
        self.folder_metadata(member, made)
    }

    /// Sets owner and attributes of the present folder; mode and time follow its content.
    fn folder_metadata(&mut self, member: &Member, made: u32) -> Result<(), Error> {
        let preserve = self.settings.preserve;
        let left_out = set_owner_and_xattrs(self.folders.current(), member, preserve)?;
        self.summary.xattrs_left_out += left_out;
        self.summary.folders += 1;
        // A folder inherits setgid, to hand its group on.
        let mode = final_mode(member, made, preserve) | made & 0o2000;
        self.folders.set_state(FolderState::new(
            (mode != made).then_some(mode),
            preserve.times.then_some(member.modified),
        ));
        Ok(())
    }

    fn symlink(
        &mut self,
        name: &[u8],
        target: &[u8],
        depth: usize,
        member: &Member,
    ) -> Result<(), TreeFault> {
        if self.settings.links == LinkTargets::Beneath && !stays_beneath(target, depth) {
            return Err(TreeFault::Refused("a symbolic link leads out of the tree"));
        }
        self.make(name, |folder| symlinkat(target, folder, name))
            .doing("making a symbolic link")?;
        set_link_metadata(self.folders.current(), name, member, self.settings.preserve)?;
        self.summary.xattrs_left_out += member.xattrs.len() as u64;
        self.summary.links += 1;
        Ok(())
    }

    fn hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), TreeFault> {
        const MISSING: TreeFault =
            TreeFault::Refused("a hard link leads to something other than a file of the tree");
        let doing = "making a hard link";
        let path = names(target, &self.settings)?;
        let (&target, parents) = path.split_last().ok_or(MISSING)?;
        let parents = match parents {
            [] => b".".to_vec(),
            parents => parents.join(&b'/'),
        };
        let parent = match open_beneath(self.folders.root(), &parents[..], FOLDER) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(MISSING),
            parent => parent.doing(doing)?,
        };
        let is_file = |folder: BorrowedFd<'_>, name| {
            let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        };
        if !is_file(parent.as_fd(), target) {
            return Err(MISSING);
        }
        self.make(name, |folder| {
            linkat(&parent, target, folder, name, AtFlags::empty())
        })
        .doing(doing)?;
        if !is_file(self.folders.current(), name) {
            // Somebody has put another thing in its place meanwhile.
            let _ = unlinkat(self.folders.current(), name, AtFlags::empty());
            return Err(MISSING);
        }
        self.summary.links += 1;
        Ok(())
    }

    /// Makes a name in the present folder.
    fn make<T>(
        &self,
        name: &[u8],
        call: impl Fn(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let folder = self.folders.current();
        match call(folder) {
            Err(Errno::EXIST) if self.may_replace => {
                match unlinkat(folder, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => call(folder),
                    Err(errno) => Err(errno),
                }
            }
            made => made,
        }
    }

    /// Creates a file, and returns its permissions.
    fn create(&mut self, name: &[u8], member: &Member) -> Result<(OwnedFd, u32), Error> {
        let doing = "making a file";
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // The owner has to write to it again if it is cut.
        let wanted = member.mode & 0o777 | 0o600;
        let file = self.make(name, |folder| {
            openat(folder, name, flags, Mode::from_raw_mode(wanted))
        });
        let file = file.doing(doing)?;
        let made = match self.made.get(&wanted) {
            Some(&made) => made,
            None => {
                let made = fstat(&file).doing(doing)?.st_mode & 0o7777;
                self.made.insert(wanted, made);
                made
            }
        };
        match member.kind {
            MemberKind::SparseFile { size, .. } => ftruncate(&file, size).doing(doing)?,
            MemberKind::File { size } if size >= ALLOCATED_BYTES_MIN => {
                let allocated = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, size);
                // Not every file system can.
                let is_full = |errno: &Errno| matches!(*errno, Errno::NOSPC | Errno::DQUOT);
                if let Some(errno) = allocated.err().filter(is_full) {
                    return Err(Error::of("allocating a file", errno));
                }
            }
            _ => {}
        }
        Ok((file, made))
    }

    /// Opens a file that has a part of its content.
    fn reopen(&self, name: &[u8], member: &Member, present: u64) -> Result<(OwnedFd, u32), Error> {
        let doing = "opening a file that was cut";
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open_beneath(self.folders.current(), name, flags) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                return Err(Error::Gone);
            }
            file => file.doing(doing)?,
        };
        let stat = fstat(&file).doing(doing)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_there = match member.kind {
            MemberKind::SparseFile { size: whole, .. } => size == whole,
            _ => size >= present,
        };
        if !is_file || !is_there {
            return Err(Error::Gone);
        }
        if let MemberKind::File { .. } = member.kind {
            ftruncate(&file, present).doing(doing)?;
        }
        Ok((file, stat.st_mode & 0o7777))
    }
}

fn refuse_special(kind: &MemberKind) -> Result<(), TreeFault> {
    Err(TreeFault::Refused(match kind {
        MemberKind::CharacterDevice | MemberKind::BlockDevice => "devices are not received",
        MemberKind::Fifo => "FIFOs are not received",
        MemberKind::Other { .. } => "the member is of an unknown type",
        MemberKind::Folder
        | MemberKind::File { .. }
        | MemberKind::SparseFile { .. }
        | MemberKind::Symlink(_)
        | MemberKind::HardLink(_) => return Ok(()),
    }))
}
