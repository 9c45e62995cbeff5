//! The folders of a tree on the way to the present member.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, fchmod, fstat, mkdirat};
use rustix::io::Errno;
use underpass_tar::TarTime;

use crate::beneath::{FOLDER, open_beneath};
use crate::checkpoint::FolderState;
use crate::error::{Doing, Error};
use crate::tree::metadata::set_times;

/// The open folder of the present member, and what the folders above it get when they are left:
/// creating names in a folder changes its time. Two descriptors are open, however deep it is.
#[derive(Debug)]
pub(super) struct TreeFolders {
    root: OwnedFd,
    /// The folder of the present member, if it is not the root.
    current: Option<OwnedFd>,
    names: Vec<Vec<u8>>,
    /// The states of the root and of each of the names.
    levels: Vec<FolderState>,
    /// Whether folders that were there before keep their times.
    keeps_times: bool,
}

impl TreeFolders {
    pub(super) fn new(root: OwnedFd, keeps_times: bool) -> TreeFolders {
        TreeFolders {
            root,
            current: None,
            names: Vec::new(),
            levels: vec![FolderState::default()],
            keeps_times,
        }
    }

    /// Returns to the folder of a checkpoint.
    pub(super) fn resume(&mut self, path: &[u8], levels: &[FolderState]) -> Result<(), Error> {
        let names = path
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty());
        self.names = names.map(<[u8]>::to_vec).collect();
        if levels.len() != self.names.len() + 1 {
            return Err(Error::Gone);
        }
        self.levels = levels.to_vec();
        self.reopen()
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(super) fn current(&self) -> BorrowedFd<'_> {
        self.current.as_ref().unwrap_or(&self.root).as_fd()
    }

    /// The path of the present folder.
    pub(super) fn path(&self) -> Vec<u8> {
        self.names.join(&b'/')
    }

    pub(super) fn levels(&self) -> &[FolderState] {
        &self.levels
    }

    /// Goes to a folder, by the names from the root. Folders that are left get their metadata;
    /// those that are missing are made.
    pub(super) fn go_to(&mut self, path: &[&[u8]]) -> Result<(), Error> {
        let is_common = |(own, other): &(&Vec<u8>, &&[u8])| own == other;
        let common = self.names.iter().zip(path).take_while(is_common).count();
        self.leave(common)?;
        for name in &path[common..] {
            self.enter(name)?;
        }
        Ok(())
    }

    /// Makes a folder in the present one, if it is not there, and goes to it. Returns its
    /// permissions if it was made.
    pub(super) fn make(&mut self, name: &[u8], mode: u32) -> Result<Option<u32>, Error> {
        let doing = "making a folder";
        let mode = Mode::from_raw_mode(mode | 0o700);
        match mkdirat(self.current(), name, mode) {
            Ok(()) => {
                let made = open_beneath(self.current(), name, FOLDER).doing(doing)?;
                let mode = fstat(&made).doing(doing)?.st_mode & 0o7777;
                self.push(name, made, FolderState::default());
                Ok(Some(mode))
            }
            Err(Errno::EXIST) => self.enter(name).map(|()| None),
            Err(errno) => Err(Error::of(doing, errno)),
        }
    }

    /// Sets the metadata that the present folder gets when it is left.
    pub(super) fn set_state(&mut self, state: FolderState) {
        if let Some(level) = self.levels.last_mut() {
            *level = state;
        }
    }

    /// Leaves all folders but the root, whose state is returned.
    pub(super) fn leave_all(&mut self) -> Result<FolderState, Error> {
        self.leave(0)?;
        Ok(self.levels[0])
    }

    fn enter(&mut self, name: &[u8]) -> Result<(), Error> {
        let folder = match open_beneath(self.current(), name, FOLDER) {
            Err(Errno::NOENT) => return self.make(name, 0o777).map(drop),
            folder => folder.doing("opening a folder")?,
        };
        let stat = fstat(&folder).doing("looking at a folder")?;
        let modified = TarTime {
            seconds: stat.st_mtime,
            nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        };
        // It was left before: its time is what the sender wants, and so is its mode.
        let mode = stat.st_mode & 0o7777;
        let is_writable = mode & 0o700 == 0o700;
        if !is_writable {
            let mode = Mode::from_raw_mode(mode | 0o700);
            fchmod(&folder, mode).doing("making a folder writable")?;
        }
        let state = FolderState::new(
            (!is_writable).then_some(mode),
            self.keeps_times.then_some(modified),
        );
        self.push(name, folder, state);
        Ok(())
    }

    fn push(&mut self, name: &[u8], folder: OwnedFd, state: FolderState) {
        self.current = Some(folder);
        self.names.push(name.to_vec());
        self.levels.push(state);
    }

    /// Leaves folders until `depth` are left.
    fn leave(&mut self, depth: usize) -> Result<(), Error> {
        let mut is_open = true;
        while self.names.len() > depth {
            let state = self.levels.last().copied().unwrap_or_default();
            if state != FolderState::default() {
                if !is_open {
                    self.reopen()?;
                }
                restore(self.current(), &state)?;
            }
            self.names.pop();
            self.levels.pop();
            is_open = false;
        }
        if !is_open {
            self.reopen()?;
        }
        Ok(())
    }

    /// Opens the present folder by its path.
    fn reopen(&mut self) -> Result<(), Error> {
        self.current = match &self.path()[..] {
            [] => None,
            path => Some(open_beneath(self.root(), path, FOLDER).doing("opening a folder")?),
        };
        Ok(())
    }
}

/// Gives a folder its mode and time.
pub(super) fn restore(folder: BorrowedFd<'_>, state: &FolderState) -> Result<(), Error> {
    if let Some(mode) = state.mode {
        fchmod(folder, Mode::from_raw_mode(mode)).doing("setting a folder's mode")?;
    }
    match state.modified() {
        Some(modified) => set_times(folder, modified).doing("setting a folder's time"),
        None => Ok(()),
    }
}
