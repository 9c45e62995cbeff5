//! A regular file of the site, open, with everything an answer says about it.

use std::cell::{OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{Stat, fstat};
use underpass::SharedFile;
use underpass::drive::tokio::read_cached;

use crate::http::coding::Coding;
use crate::http::fields::push_field;
use crate::http::validator::{FileTime, Validators};
use crate::limits::CONTENT_BYTES_MAX;
use crate::request::path::SitePath;
use crate::site::rules::{EtagRecipe, RepresentationHeaders};

/// An open file under the path that led to it.
#[derive(Clone, Debug)]
pub(crate) struct SiteFile {
    pub(crate) path: SitePath,
    pub(crate) state: Rc<FileSnapshot>,
    /// The name it is to be saved under, if it is not to be shown.
    pub(crate) save_as: Option<Box<[u8]>>,
}

/// What was true of a file when it was last looked at.
#[derive(Debug)]
pub(crate) struct FileSnapshot {
    pub(crate) descriptor: Arc<SharedFile>,
    pub(crate) size: u64,
    pub(crate) validators: Validators,
    pub(crate) label: Rc<RepresentationHeaders>,
    /// The fields of every answer with content of this file, written out: most answers to most
    /// requests are the same but for their date.
    pub(crate) fields: Vec<u8>,
    /// Copies of it in content codings, as far as anybody asked for them.
    pub(crate) copies: PrecompressedCopies,
    /// What it holds, once that has been worth keeping.
    content: OnceCell<Vec<u8>>,
    pub(crate) changed: FileTime,
    /// The change time, which cannot be set.
    touched: FileTime,
}

/// What is known of the copies of one state of a file.
pub(crate) type PrecompressedCopies = RefCell<[Precompressed; Coding::ALL.len()]>;

/// What is known of one copy.
#[derive(Debug, Default)]
pub(crate) enum Precompressed {
    #[default]
    Unknown,
    Missing,
    There(Rc<FileSnapshot>),
}

impl SiteFile {
    /// A file that was just opened, at the time `now`.
    pub(crate) fn new(
        opened: OwnedFd,
        path: SitePath,
        stat: &Stat,
        label: RepresentationHeaders,
        now: SystemTime,
    ) -> SiteFile {
        let state = FileSnapshot::new(SharedFile::new(opened), stat, Rc::new(label), now);
        SiteFile::known(path, Rc::new(state))
    }

    /// A file whose state is known.
    pub(crate) fn known(path: SitePath, state: Rc<FileSnapshot>) -> SiteFile {
        let save_as = None;
        SiteFile {
            path,
            state,
            save_as,
        }
    }

    /// The same file, to be compressed while it is sent.
    pub(crate) fn into_compressed(self, coding: Coding) -> SiteFile {
        let state = Rc::new(self.state.compressed(coding));
        SiteFile { state, ..self }
    }

    /// The same, to be saved under its own name.
    pub(crate) fn into_download(self) -> SiteFile {
        let name = self.path.bytes().rsplit(|&byte| byte == b'/').next();
        let save_as = name.map(Box::from);
        SiteFile { save_as, ..self }
    }
}

impl FileSnapshot {
    fn new(
        descriptor: Arc<SharedFile>,
        stat: &Stat,
        label: Rc<RepresentationHeaders>,
        now: SystemTime,
    ) -> FileSnapshot {
        let (size, changed) = (size(stat), FileTime::of(stat));
        let inode = match label.etag {
            EtagRecipe::MtimeSizeInode => Some(stat.st_ino),
            EtagRecipe::MtimeSize => None,
        };
        let validators = Validators::new(changed, size, inode, label.coding, now);
        FileSnapshot {
            descriptor,
            size,
            fields: written(&validators, RANGES, &label, label.coding),
            validators,
            label,
            content: OnceCell::new(),
            copies: PrecompressedCopies::default(),
            changed,
            touched: touched(stat),
        }
    }

    /// The same state, to be compressed while it is sent: of unknown length, without ranges.
    fn compressed(&self, coding: Coding) -> FileSnapshot {
        let validators = self.validators.compressed(coding);
        FileSnapshot {
            descriptor: Arc::clone(&self.descriptor),
            size: self.size,
            fields: written(&validators, b"", &self.label, Some(coding)),
            validators,
            label: Rc::clone(&self.label),
            content: OnceCell::new(),
            copies: PrecompressedCopies::default(),
            changed: self.changed,
            touched: self.touched,
        }
    }

    /// The same open file, as it is now.
    pub(crate) fn looked_at_again(
        self: &Rc<FileSnapshot>,
        stat: &Stat,
        now: SystemTime,
    ) -> Rc<FileSnapshot> {
        match self.is_as(stat) {
            true => Rc::clone(self),
            false => {
                let descriptor = Arc::clone(&self.descriptor);
                Rc::new(FileSnapshot::new(
                    descriptor,
                    stat,
                    Rc::clone(&self.label),
                    now,
                ))
            }
        }
    }

    /// Whether nothing of it has changed, its date having settled.
    fn is_as(&self, stat: &Stat) -> bool {
        self.looks_as(stat) && self.validators.modified.is_some()
    }

    /// Whether its size and its times are these.
    fn looks_as(&self, stat: &Stat) -> bool {
        self.size == size(stat)
            && self.changed == FileTime::of(stat)
            && self.touched == touched(stat)
    }

    /// Whether the open file still looks as this says: it is asked.
    pub(crate) fn is_still_so(&self) -> bool {
        fstat(&self.descriptor).is_ok_and(|stat| self.looks_as(&stat))
    }

    /// What the file holds, if that is in memory.
    pub(crate) fn content(&self) -> Option<&[u8]> {
        self.content.get().map(Vec::as_slice)
    }

    /// Keeps what the file holds, if it is small, its date has settled (or a change that no date
    /// shows could go unseen), and it is in the page cache. Returns how many bytes that takes.
    pub(crate) fn keep_content(&self) -> usize {
        if self.size > CONTENT_BYTES_MAX
            || self.validators.modified.is_none()
            || self.content.get().is_some()
        {
            return 0;
        }
        let content = read_cached(&self.descriptor, self.size as usize).unwrap_or_default();
        match content.is_empty() {
            true => 0,
            false => self.content.get_or_init(|| content).len(),
        }
    }
}

/// What every answer with content of a file says.
fn written(
    validators: &Validators,
    ranges: &[u8],
    label: &RepresentationHeaders,
    coding: Option<Coding>,
) -> Vec<u8> {
    let mut fields = Vec::with_capacity(FIELDS_BYTES + label.fields.len());
    validators.push_to(&mut fields);
    fields.extend_from_slice(ranges);
    fields.extend_from_slice(&label.fields);
    if let Some(coding) = coding {
        push_field(&mut fields, "Content-Encoding", coding.name());
    }
    fields
}

const RANGES: &[u8] = b"\r\nAccept-Ranges: bytes";

fn touched(stat: &Stat) -> FileTime {
    FileTime {
        seconds: stat.st_ctime,
        nanoseconds: stat.st_ctime_nsec as u32,
    }
}

/// What the written fields need at most, about.
const FIELDS_BYTES: usize = 192;

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
