//! The folder that items are received into, by either side.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, openat};
use underpass_receive::{
    Area, Error as ReceiveFault, HiddenNames, Overwrite, PartialFile, RelativePath, UploadRecord,
    UploadsMax,
};

use crate::error::Error;
use crate::profile::SourceStamp;

/// The time for which an unfinished item is kept.
pub(crate) const UNFINISHED_LIFETIME: Duration = Duration::from_secs(7 * 86_400);

/// Unfinished items of one folder.
pub(crate) const UNFINISHED_MAX: UploadsMax = UploadsMax {
    all: 1000,
    per_client: 1000,
};

/// The detail of a record with the stamp of the source.
const SOURCE_DETAIL: &str = "source";

/// How a receiver stores what arrives.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// The folder.
    pub folder: PathBuf,
    /// The treatment of files that exist.
    pub existing: Existing,
    /// Whether names that begin with a dot are taken.
    pub hidden: HiddenNames,
    /// Bytes that stay free on the file system.
    pub keep_free: u64,
    /// The folder for what a transfer that is started again has to know.
    pub state: PathBuf,
}

/// The treatment of files that exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Existing {
    /// They stay, and the item is refused.
    Kept,
    /// They are replaced.
    Replaced,
}

impl ReceiveOptions {
    /// Opens the folder, and removes what expired transfers have left there.
    pub(crate) fn open(&self) -> Result<Arc<Area>, Error> {
        let failed = |source| Error::Target {
            path: self.folder.display().to_string(),
            source,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, &self.folder, flags, Mode::empty());
        let folder = folder.map_err(|errno| failed(ReceiveFault::of("opening it", errno)))?;
        // Found now, not when the other side sends.
        let may_write = Access::WRITE_OK | Access::EXEC_OK;
        let checked = accessat(&folder, ".", may_write, AtFlags::EACCESS);
        checked.map_err(|errno| failed(ReceiveFault::of("writing there", errno)))?;
        let area = Area::open(folder.as_fd(), None).map_err(failed)?;
        area.sweep(SystemTime::now()).map_err(failed)?;
        Ok(Arc::new(area))
    }

    /// Checks a name that the other side gives an item.
    pub(crate) fn path_of(&self, name: &str) -> Result<RelativePath, ReceiveFault> {
        match self.hidden {
            HiddenNames::Refused => RelativePath::parse(name.as_bytes()),
            HiddenNames::Allowed => RelativePath::parse_hidden(name.as_bytes()),
        }
    }

    /// Whether a file may replace another one.
    pub(crate) fn overwrite(&self) -> Overwrite {
        match self.existing {
            Existing::Kept => Overwrite::Refused,
            Existing::Replaced => Overwrite::Allowed,
        }
    }
}

/// Returns the unfinished file of this name, with the stamp of its source.
pub(crate) fn unfinished(
    area: &Area,
    target: &RelativePath,
) -> Result<Option<(PartialFile, Option<SourceStamp>)>, ReceiveFault> {
    for (id, record) in area.records()? {
        if record.target.as_deref() != Some(target.as_str()) {
            continue;
        }
        if let Ok(partial) = area.resume(&id, SystemTime::now()) {
            let source = record.details.get(SOURCE_DETAIL);
            let source = source.and_then(|text| SourceStamp::parse(text.as_bytes()));
            return Ok(Some((partial, source)));
        }
    }
    Ok(None)
}

/// Returns a new file that can be continued.
pub(crate) fn create(
    area: &Area,
    target: &RelativePath,
    (length, source): (u64, Option<SourceStamp>),
) -> Result<PartialFile, ReceiveFault> {
    let name = Some(target.as_str());
    let mut record = UploadRecord::new(name, Some(length), UNFINISHED_LIFETIME);
    if let Some(source) = source {
        let details = &mut record.details;
        details.insert(SOURCE_DETAIL.to_owned(), source.to_string());
    }
    area.create(record, UNFINISHED_MAX)
}
