//! Files that were opened a moment ago, by path: what most requests ask for.
//!
//! Resolving and opening a name costs as much as a sixth of a small answer. A file that is asked
//! for again within [`FRESH_FOR`] is found here instead, and is *looked at* every time, so that its
//! size and validators are always those of this moment. What may be late is the name:
//!
//! | what happened to the name | when it is noticed |
//! |---|---|
//! | its file was written, cut, extended | at once |
//! | its file was deleted or replaced by rename | at once: the old one has no name left |
//! | … and the old one has another name (a hard link) | after a second |
//! | a folder or a symlink on the way was changed, permission was taken away | after a second |
//!
//! It is bounded, and nothing stays open for longer than two seconds after it was last opened.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{FileType, fstat};

use crate::limits::{FRESH_FOR, OPEN_FILES_MAX};
use crate::mime::MediaType;
use crate::path::SitePath;
use crate::resolve::File;
use crate::validator::{State, Validators};

/// The open files of one worker: two generations, so that the bound is kept without keeping order.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    young: HashMap<Vec<u8>, Opened>,
    old: HashMap<Vec<u8>, Opened>,
}

#[derive(Debug)]
struct Opened {
    descriptor: Arc<OwnedFd>,
    at: SystemTime,
    state: State,
    validators: Validators,
    media: MediaType,
}

impl OpenFiles {
    /// The file of this path, if it was opened a moment ago and still has a name.
    pub(crate) fn find(&mut self, path: SitePath, now: SystemTime) -> Result<File, SitePath> {
        if !self.young.contains_key(path.bytes()) {
            let Some((name, opened)) = self.old.remove_entry(path.bytes()) else {
                return Err(path);
            };
            self.keep(name, opened);
        }
        let looked = self
            .young
            .get_mut(path.bytes())
            .and_then(|opened| opened.look(now));
        match looked {
            Some((descriptor, size, validators, media)) => Ok(File {
                descriptor,
                path,
                size,
                validators,
                media,
            }),
            None => {
                self.young.remove(path.bytes());
                Err(path)
            }
        }
    }

    /// Keeps a file that was just opened.
    pub(crate) fn insert(&mut self, file: &File, state: State, now: SystemTime) {
        let opened = Opened {
            descriptor: Arc::clone(&file.descriptor),
            at: now,
            state,
            validators: file.validators.clone(),
            media: file.media,
        };
        self.keep(file.path.bytes().to_vec(), opened);
    }

    fn keep(&mut self, name: Vec<u8>, opened: Opened) {
        if self.young.len() >= OPEN_FILES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, opened);
    }

    /// Closes what is not fresh any more.
    pub(crate) fn sweep(&mut self, now: SystemTime) {
        for generation in [&mut self.young, &mut self.old] {
            generation.retain(|_, opened| opened.is_fresh(now));
        }
    }

    /// Closes everything: descriptors have run out.
    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }
}

impl Opened {
    fn is_fresh(&self, now: SystemTime) -> bool {
        now.duration_since(self.at).is_ok_and(|age| age < FRESH_FOR)
    }

    /// What is true of the file now.
    fn look(&mut self, now: SystemTime) -> Option<(Arc<OwnedFd>, u64, Validators, MediaType)> {
        if !self.is_fresh(now) {
            return None;
        }
        let stat = fstat(&self.descriptor).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || stat.st_nlink == 0 {
            return None;
        }
        let state = State::of(&stat);
        if state != self.state || self.validators.modified.is_none() {
            self.state = state;
            self.validators = Validators::new(state, now);
        }
        let size = self.state.size;
        Some((
            Arc::clone(&self.descriptor),
            size,
            self.validators.clone(),
            self.media,
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn opened(path: &Path, name: &[u8], now: SystemTime, files: &mut OpenFiles) {
        let descriptor: OwnedFd = fs::File::open(path).unwrap().into();
        let state = State::of(&fstat(&descriptor).unwrap());
        let file = File {
            descriptor: Arc::new(descriptor),
            path: SitePath::parse(name).unwrap(),
            size: state.size,
            validators: Validators::new(state, now),
            media: MediaType::of(name),
        };
        files.insert(&file, state, now);
    }

    fn find(files: &mut OpenFiles, name: &[u8], now: SystemTime) -> Option<File> {
        files.find(SitePath::parse(name).unwrap(), now).ok()
    }

    #[test]
    fn what_is_found_is_as_it_is_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "one").unwrap();
        let (mut files, now) = (OpenFiles::default(), SystemTime::now());
        opened(&path, b"/f", now, &mut files);
        let before = find(&mut files, b"/f", now).unwrap();
        fs::write(&path, "longer").unwrap();
        let after = find(&mut files, b"/f", now).unwrap();
        assert_eq!((before.size, after.size), (3, 6));
        assert_ne!(before.validators, after.validators);
    }

    #[test]
    fn a_file_without_a_name_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("f"), folder.path().join("new"));
        let (mut files, now) = (OpenFiles::default(), SystemTime::now());
        for replace in [true, false] {
            fs::write(&path, "old").unwrap();
            opened(&path, b"/f", now, &mut files);
            assert!(find(&mut files, b"/f", now).is_some());
            if replace {
                fs::write(&new, "new").unwrap();
                fs::rename(&new, &path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            assert!(find(&mut files, b"/f", now).is_none());
        }
        assert!(files.is_empty());
    }

    #[test]
    fn it_is_bounded_in_number_and_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "x").unwrap();
        let (mut files, now) = (OpenFiles::default(), SystemTime::now());
        for number in 0..2 * OPEN_FILES_MAX {
            opened(&path, format!("/{number}").as_bytes(), now, &mut files);
            assert!(files.young.len() + files.old.len() <= OPEN_FILES_MAX);
        }
        let last = format!("/{}", 2 * OPEN_FILES_MAX - 1);
        assert!(find(&mut files, last.as_bytes(), now).is_some());
        let later = now + FRESH_FOR;
        assert!(find(&mut files, last.as_bytes(), later).is_none());
        files.sweep(later);
        assert!(files.is_empty());
    }
}
