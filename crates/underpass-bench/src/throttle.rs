//! A slow disk: what the servers read from storage is limited, by a control group.
//!
//! A virtual machine's disk is often its host's memory, and a cold file costs it less than a page
//! fault would elsewhere. Where a read takes as long as on a real disk, a server that waits for it
//! shows. Both generations of control groups are known: version 2 calls it `io.max`, version 1
//! `blkio.throttle.read_bps_device`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error, Result};
use crate::proc::process_tree;

const VERSION_2: &str = "/sys/fs/cgroup";
const VERSION_1: &str = "/sys/fs/cgroup/blkio";

pub(crate) struct Throttle {
    group: PathBuf,
}

impl Throttle {
    /// A group that reads at most so many bytes per second from the disk below `directory`. Its
    /// name is the directory's; [`remove`] finds it by that.
    pub(crate) fn create(directory: &Path, bytes_per_second: u64) -> Result<Throttle> {
        let device = whole_disk(directory)?;
        let name = directory.file_name().unwrap_or_default();
        let (group, file, limit) = if has_io_controller() {
            let enable = Path::new(VERSION_2).join("cgroup.subtree_control");
            write(&enable, "+io")?;
            let limit = format!("{device} rbps={bytes_per_second}");
            (Path::new(VERSION_2).join(name), "io.max", limit)
        } else {
            let limit = format!("{device} {bytes_per_second}");
            let group = Path::new(VERSION_1).join(name);
            (group, "blkio.throttle.read_bps_device", limit)
        };
        fs::create_dir(&group).doing(|| format!("limiting the disk by {}", group.display()))?;
        write(&group.join(file), &limit)?;
        Ok(Throttle { group })
    }

    /// Puts a process and its descendants under the limit.
    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        let processes = self.group.join("cgroup.procs");
        let tree = process_tree(pid)?;
        tree.into_iter()
            .try_for_each(|pid| write(&processes, &pid.to_string()))
    }
}

/// Removes the group that was made for `directory`, if there is one and its processes are gone.
pub(crate) fn remove(directory: &Path) {
    let name = directory.file_name().unwrap_or_default();
    for hierarchy in [VERSION_2, VERSION_1] {
        // Mostly there is none.
        let _ = fs::remove_dir(Path::new(hierarchy).join(name));
    }
}

fn has_io_controller() -> bool {
    let controllers = Path::new(VERSION_2).join("cgroup.controllers");
    let controllers = fs::read_to_string(controllers).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "io")
}

/// The disk that a directory is on, as `major:minor`. Limits are for whole disks: a partition is
/// a directory in that of its disk.
fn whole_disk(directory: &Path) -> Result<String> {
    let doing = || format!("finding the disk of {}", directory.display());
    let device = fs::metadata(directory).doing(doing)?.dev();
    let number = (rustix::fs::major(device), rustix::fs::minor(device));
    let entry = PathBuf::from(format!("/sys/dev/block/{}:{}", number.0, number.1));
    let Ok(entry) = entry.canonicalize() else {
        let what = format!(
            "{} is on no disk that could be limited",
            directory.display()
        );
        return Err(Error::Setting(what));
    };
    let disk = match entry.join("partition").exists() {
        true => entry.parent().unwrap_or(&entry),
        false => &entry,
    };
    let number = fs::read_to_string(disk.join("dev")).doing(doing)?;
    Ok(number.trim().to_owned())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(|| format!("writing {text:?} to {}", path.display()))
}
