//! Copies a file's metadata, in this order:
//!
//! ```text
//! owner  →  extended attributes  →  access control lists  →  mode  →  times
//! ```
//!
//! A change of owner clears set-id bits and capabilities, so it comes first; set-id bits come after
//! everything else that decides access rights; times come last, since all other changes modify
//! them.

mod file_handle;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;

use crate::fs::folder::file_type;
use crate::options::{Preserve, PreserveLevel};
use crate::report::problem::{Problem, ProblemKind, Severity};
use file_handle::FileHandle;

pub(crate) use file_handle::{Creation, FolderRole, MetadataTarget, times};

/// The facts about this process that affect how metadata is preserved.
#[derive(Clone, Debug)]
pub(crate) struct ProcessFacts {
    /// The umask; read when it is first needed.
    umask: OnceLock<u32>,
    /// The effective user.
    pub(crate) user: u32,
    /// Whether files have an SELinux security context, and it is to be preserved.
    pub(crate) has_selinux: bool,
}

impl ProcessFacts {
    /// Reads the facts that these wishes need from the kernel.
    pub(crate) fn read(wishes: &Preserve) -> Self {
        Self {
            umask: OnceLock::new(),
            user: rustix::process::geteuid().as_raw(),
            has_selinux: wishes.context.is_wanted()
                && Path::new("/sys/fs/selinux/enforce").exists(),
        }
    }

    /// Returns the umask. If `/proc` is not mounted, the first call sets it and sets it back, which
    /// affects files that other threads create in that moment.
    pub(crate) fn umask(&self) -> u32 {
        *self.umask.get_or_init(|| {
            // The umask is in the second line; reading the whole file would take many small reads.
            let mut status = [0; 256];
            let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
            let status = String::from_utf8_lossy(&status[..read.unwrap_or(0)]);
            umask_of(&status).unwrap_or_else(umask_by_setting)
        })
    }

    /// Returns whether this error means that an owner could not be set: a file can't be given away,
    /// and some file systems and namespaces have no such user.
    fn may_lack_right(&self, errno: Errno) -> bool {
        self.user != 0 && matches!(errno, Errno::PERM | Errno::INVAL)
    }
}

fn umask_of(status: &str) -> Option<u32> {
    let mut lines = status.lines();
    let octal = lines.find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(octal.trim(), 8).ok()
}

fn umask_by_setting() -> u32 {
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask);
    umask.bits()
}

const PERMISSIONS: u32 = 0o777;
const SET_ID: u32 = 0o6000;
const STICKY: u32 = 0o1000;
const SPECIAL: u32 = SET_ID | STICKY;
const GROUP_AND_OTHERS: u32 = 0o077;
const WRITE_OF_OTHERS: u32 = 0o022;

/// Returns the permission bits to create a copy with: private until its final mode or owner is set.
/// Folders can be filled, and files get their attributes, before they become read-only.
pub(crate) fn mode_at_first(
    source: &Stat,
    wishes: &Preserve,
    process: &ProcessFacts,
    role: FolderRole,
) -> u32 {
    let mut mode = mode_unasked(source, wishes, role);
    match file_type(source) {
        FileType::Symlink => return PERMISSIONS,
        FileType::Directory => mode = mode & !WRITE_OF_OTHERS | 0o700,
        // Setting an attribute needs write permission, except for root.
        _ if wishes.xattr.is_wanted() && process.user != 0 => mode |= 0o200,
        _ => {}
    }
    if wishes.mode.is_wanted() {
        mode &= !STICKY;
    }
    if wishes.mode.is_wanted() || wishes.ownership.is_wanted() {
        mode &= !(GROUP_AND_OTHERS | SET_ID);
    }
    mode
}

/// Returns the bits of a new copy before the umask, if its mode isn't the source's.
fn mode_unasked(source: &Stat, wishes: &Preserve, role: FolderRole) -> u32 {
    let goes_along = match (wishes.mode, file_type(source)) {
        (PreserveLevel::Never, FileType::Directory) => {
            return match role {
                FolderRole::Copy => PERMISSIONS | source.st_mode & STICKY,
                FolderRole::Parent => PERMISSIONS,
            };
        }
        (PreserveLevel::Never, FileType::Socket) => return PERMISSIONS,
        (PreserveLevel::Never, _) => return 0o666,
        (_, FileType::Directory) => PERMISSIONS | STICKY,
        (_, FileType::RegularFile | FileType::Symlink) => PERMISSIONS,
        (_, _) => PERMISSIONS | SPECIAL,
    };
    source.st_mode & goes_along
}

/// Puts the metadata of `source`, whose state was `stat` when it was opened, on `dest`: owner, then
/// extended attributes, ACLs and mode, then times. Makes no call if nothing is left to do.
///
/// Continues after an error, except if `dest` is not the file that was created: then it is left
/// alone. The returned problems have no path yet.
pub(crate) fn preserve(
    source: MetadataTarget<'_>,
    stat: &Stat,
    dest: MetadataTarget<'_>,
    creation: Creation,
    wishes: &Preserve,
    process: &ProcessFacts,
) -> Vec<Problem> {
    let mut job = MetadataCopy {
        stat,
        creation,
        wishes,
        process,
        mode: FinalMode::of(stat, creation, wishes, process),
        errors: Vec::new(),
    };
    if job.is_done() {
        return Vec::new();
    }
    let dest = match FileHandle::on_dest(dest, stat, creation) {
        Ok(dest) => dest,
        Err(error) => return vec![error],
    };
    let owner = job.set_owner(&dest);
    job.set_all_of_source(source, &dest, owner);
    job.set_times(&dest);
    job.errors.dedup_by(|one, other| sound_alike(one, other));
    job.errors
}

/// The metadata for one copy.
struct MetadataCopy<'a> {
    stat: &'a Stat,
    creation: Creation,
    wishes: &'a Preserve,
    process: &'a ProcessFacts,
    mode: FinalMode,
    errors: Vec<Problem>,
}

/// The change of permission bits that remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FinalMode {
    /// Nothing.
    AsMade,
    /// Those of the source, with its access control lists.
    OfSource,
    /// The current bits with `with` added and `without` removed: an access control list of the
    /// folder may have removed some already.
    Changed { with: u32, without: u32 },
    /// `granted`, less what the default access control list of the folder takes, or without one
    /// the umask; and `withheld`, which was left out until the folder has its owner, less what the
    /// umask takes.
    Limited { granted: u32, withheld: u32 },
    /// These bits, and no access control list.
    OnlyThese(u32),
}

impl FinalMode {
    fn of(stat: &Stat, creation: Creation, wishes: &Preserve, process: &ProcessFacts) -> Self {
        if file_type(stat) == FileType::Symlink {
            return Self::AsMade;
        }
        if wishes.mode.is_wanted() {
            return Self::OfSource;
        }
        let Creation::New { mode, lent, role } = creation else {
            return Self::AsMade;
        };
        let unasked = mode_unasked(stat, wishes, role);
        let (lacking, without) = (unasked & !mode, mode & !unasked | lent);
        match (wishes.mode, role) {
            (_, FolderRole::Parent) if lacking != 0 => {
                let withheld = match wishes.ownership.is_wanted() {
                    true => stat.st_mode & GROUP_AND_OTHERS,
                    false => 0,
                };
                Self::Limited {
                    granted: unasked & PERMISSIONS & !withheld,
                    withheld,
                }
            }
            (PreserveLevel::Never, FolderRole::Copy) => Self::OnlyThese(unasked & !process.umask()),
            _ if lacking | without == 0 => Self::AsMade,
            _ => match lacking & !process.umask() {
                0 if without == 0 => Self::AsMade,
                with => Self::Changed { with, without },
            },
        }
    }
}

/// Whether a copy has the right owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    /// It has, or needs none.
    Settled,
    /// It has not: bits that would lend the owner's rights must not be set.
    Refused,
}

impl MetadataCopy<'_> {
    fn is_done(&self) -> bool {
        let wished = [
            self.wishes.ownership,
            self.wishes.timestamps,
            self.wishes.xattr,
        ];
        self.mode == FinalMode::AsMade
            && !self.wants_label()
            && !wished.into_iter().any(|wish| wish.is_wanted())
    }

    fn wants_label(&self) -> bool {
        self.wishes.context.is_wanted() && self.process.has_selinux
    }

    fn set_owner(&mut self, dest: &FileHandle<'_>) -> OwnerState {
        let wish = self.wishes.ownership;
        if !wish.is_wanted() {
            return OwnerState::Settled;
        }
        let Err((errno, call)) = self.change_owner(dest) else {
            return OwnerState::Settled;
        };
        if wish == PreserveLevel::Required && !self.process.may_lack_right(errno) {
            let problem = Problem::failed(ProblemKind::Ownership, "", errno);
            self.errors.push(problem.by_call(call));
        }
        OwnerState::Refused
    }

    fn change_owner(&self, dest: &FileHandle<'_>) -> Result<(), (Errno, &'static str)> {
        let now = dest.stat().map_err(|errno| (errno, "fstat"))?;
        let (user, group) = (self.stat.st_uid, self.stat.st_gid);
        if (now.st_uid, now.st_gid) == (user, group) {
            return Ok(());
        }
        if self.creation == Creation::Existing && self.mode == FinalMode::OfSource {
            // The new owner gets no more than both modes allow, and nobody else gets anything. If
            // this fails, the next call fails too.
            let _ = file_handle::set_only(dest, now.st_mode & self.stat.st_mode & 0o700);
        }
        dest.chown(Some(user), group).map_err(|errno| {
            if matches!(errno, Errno::PERM | Errno::INVAL) {
                // The group alone may be one of ours.
                let _ = dest.chown(None, group);
            }
            (errno, "fchownat")
        })
    }

    /// Sets attributes, label, lists and mode, reading them from the source.
    fn set_all_of_source(
        &mut self,
        source: MetadataTarget<'_>,
        dest: &FileHandle<'_>,
        owner: OwnerState,
    ) {
        let reads =
            self.wishes.xattr.is_wanted() || self.wants_label() || self.mode == FinalMode::OfSource;
        let source = reads.then(|| FileHandle::on_source(source, self.stat));
        let source = source.transpose().unwrap_or_else(|problem| {
            self.errors.push(problem);
            None
        });
        if let Some(source) = &source {
            self.set_attributes(source, dest);
        }
        self.set_mode(source.as_ref(), dest, owner);
    }

    fn set_attributes(&mut self, source: &FileHandle<'_>, dest: &FileHandle<'_>) {
        if self.wishes.xattr.is_wanted() {
            let elsewhere = self.wants_label().then_some(file_handle::SELINUX);
            let found = file_handle::copy_all(source, dest, elsewhere);
            self.errors.extend(to_tell(self.wishes.xattr, found));
        }
        if self.wants_label() {
            let found = file_handle::copy_label(source, dest);
            self.errors.extend(to_tell(self.wishes.context, found));
        }
    }

    fn set_mode(
        &mut self,
        source: Option<&FileHandle<'_>>,
        dest: &FileHandle<'_>,
        owner: OwnerState,
    ) {
        let found = match (self.mode, source) {
            (FinalMode::AsMade, _) => Vec::new(),
            (FinalMode::OfSource, Some(source)) => file_handle::copy_lists(
                source,
                dest,
                self.mode_of_source(owner),
                file_type(self.stat),
            ),
            // Permissions that cannot be read are not granted.
            (FinalMode::OfSource, None) => {
                file_handle::set_only(dest, self.mode_of_source(owner) & !GROUP_AND_OTHERS)
            }
            (FinalMode::OnlyThese(mode), _) => {
                file_handle::set_only(dest, mode & !STICKY | self.inherited(dest))
            }
            (FinalMode::Limited { granted, withheld }, _) => {
                self.set_limited(dest, granted, withheld)
            }
            (FinalMode::Changed { with, without }, _) => {
                let now = dest.stat().map(|now| now.st_mode & (PERMISSIONS | SPECIAL));
                let result = now.and_then(|now| dest.chmod((now | with) & !without));
                file_handle::mode_error(result).into_iter().collect()
            }
        };
        if self.wishes.mode != PreserveLevel::BestEffort {
            self.errors.extend(found);
        }
    }

    /// Returns the mode of the source, without bits that would lend rights of another owner.
    fn mode_of_source(&self, owner: OwnerState) -> u32 {
        self.stat.st_mode & (PERMISSIONS | SPECIAL) & !lent(self.stat, owner)
    }

    /// Returns the special bits that stay: the one that a folder inherits from its parent, so that
    /// files in it get the parent's group, or else the sticky bit it was created with.
    fn inherited(&self, dest: &FileHandle<'_>) -> u32 {
        let bits = match file_type(self.stat) {
            FileType::Directory => dest.stat().map_or(0, |now| now.st_mode & SPECIAL),
            _ => 0,
        };
        match bits & SET_ID {
            0 => bits,
            inherited => inherited,
        }
    }

    fn set_limited(&self, dest: &FileHandle<'_>, granted: u32, withheld: u32) -> Vec<Problem> {
        let umask = self.process.umask();
        let (limit, error) = match file_handle::default_limit(dest) {
            Ok(limit) => (limit.unwrap_or(!umask), None),
            // Permissions that cannot be read are not granted.
            Err(error) => (!GROUP_AND_OTHERS, Some(error)),
        };
        let mode = granted & limit | withheld & !umask;
        let result = dest.stat().and_then(|now| {
            let mode = mode | now.st_mode & SPECIAL;
            // A change by an owner outside of the folder's group would clear the inherited bit.
            match mode == now.st_mode & (PERMISSIONS | SPECIAL) {
                true => Ok(()),
                false => dest.chmod(mode),
            }
        });
        error
            .into_iter()
            .chain(file_handle::mode_error(result))
            .collect()
    }

    fn set_times(&mut self, dest: &FileHandle<'_>) {
        let wish = self.wishes.timestamps;
        if !wish.is_wanted() {
            return;
        }
        if let (Err(errno), PreserveLevel::Required) = (dest.set_times(self.stat), wish) {
            self.errors
                .push(Problem::failed(ProblemKind::Times, "", errno));
        }
    }
}

/// Returns the errors to report about attributes that are preserved at this level.
fn to_tell(wish: PreserveLevel, mut errors: Vec<Problem>) -> Vec<Problem> {
    match wish {
        PreserveLevel::Required => (),
        PreserveLevel::Warn => {
            errors.retain(|error| error.errno != Some(Errno::OPNOTSUPP));
        }
        PreserveLevel::BestEffort => errors.retain(is_loss),
        PreserveLevel::Never | PreserveLevel::Unset => errors.clear(),
    }
    if wish != PreserveLevel::Required {
        for error in &mut errors {
            error.severity = Severity::Warning;
        }
    }
    errors
}

/// Returns whether an attribute that the destination could have was lost, rather than not supported
/// or not permitted there.
fn is_loss(error: &Problem) -> bool {
    use Errno as E;
    matches!(error.errno, Some(E::IO | E::NOMEM | E::NOSPC | E::DQUOT))
}

/// Returns whether two errors have the same message.
fn sound_alike(one: &Problem, other: &Problem) -> bool {
    let is_mode = |error: &Problem| matches!(error.kind, ProblemKind::Mode | ProblemKind::Acl);
    let same_what = one.kind == other.kind || (is_mode(one) && is_mode(other));
    same_what && one.errno == other.errno && one.other == other.other
}

/// Returns the bits that must not be set if the owner is another one: the sticky bit of a folder
/// takes rights away and stays.
fn lent(stat: &Stat, owner: OwnerState) -> u32 {
    match (owner, file_type(stat)) {
        (OwnerState::Settled, _) => 0,
        (OwnerState::Refused, FileType::Directory) => SET_ID,
        (OwnerState::Refused, _) => SPECIAL,
    }
}
