//! A slow disk: a control group limits what the servers read from storage.
//!
//! A virtual machine's disk is often its host's memory, and reading a cold file then costs less
//! than a page fault does elsewhere. With the speed of a real disk, the figures show whether a
//! server waits for it. The file is `io.max` in version 2 of control groups and
//! `blkio.throttle.read_bps_device` in version 1.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorContext, Result};
use crate::machine::proc::process_tree;

const VERSION_2: &str = "/sys/fs/cgroup";
const VERSION_1: &str = "/sys/fs/cgroup/blkio";

pub(crate) struct DiskThrottle {
    group: PathBuf,
}

impl DiskThrottle {
    /// Creates a group that reads at most this many bytes per second from the disk below
    /// `directory`. Its name begins with that of the directory, by which [`remove`] finds it.
    pub(crate) fn create(directory: &Path, bytes_per_second: u64) -> Result<DiskThrottle> {
        let device = whole_disk(directory)?;
        let (hierarchy, file, limit) = if has_io_controller() {
            let enable = Path::new(VERSION_2).join("cgroup.subtree_control");
            write(&enable, "+io")?;
            let limit = format!("{device} rbps={bytes_per_second}");
            (VERSION_2, "io.max", limit)
        } else {
            let limit = format!("{device} {bytes_per_second}");
            (VERSION_1, "blkio.throttle.read_bps_device", limit)
        };
        let group = create_group(Path::new(hierarchy), &prefix_of(directory))?;
        write(&group.join(file), &limit)?;
        Ok(DiskThrottle { group })
    }

    /// Limits a process and its descendants.
    pub(crate) fn add(&self, pid: u32) -> Result<()> {
        let processes = self.group.join("cgroup.procs");
        let tree = process_tree(pid)?;
        tree.into_iter()
            .try_for_each(|pid| write(&processes, &pid.to_string()))
    }
}

/// Removes the groups of `directory` whose processes have ended.
pub(crate) fn remove(directory: &Path) {
    for hierarchy in [VERSION_2, VERSION_1] {
        remove_groups(Path::new(hierarchy), &prefix_of(directory));
    }
}

/// No group of another directory has this prefix, which is followed by a number.
fn prefix_of(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default();
    format!("{}-", name.display())
}

/// Creates a group for one of the experiments of a run, which share a directory.
fn create_group(hierarchy: &Path, prefix: &str) -> Result<PathBuf> {
    let mut number = 1;
    loop {
        let group = hierarchy.join(format!("{prefix}{number}"));
        match fs::create_dir(&group) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            created => {
                created.context(|| format!("limiting the disk by {}", group.display()))?;
                return Ok(group);
            }
        }
    }
}

fn remove_groups(hierarchy: &Path, prefix: &str) {
    for entry in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn has_io_controller() -> bool {
    let controllers = Path::new(VERSION_2).join("cgroup.controllers");
    let controllers = fs::read_to_string(controllers).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "io")
}

/// The disk of a directory, as `major:minor`. Limits apply to whole disks; sysfs has the directory
/// of a partition inside that of its disk.
fn whole_disk(directory: &Path) -> Result<String> {
    let context = || format!("finding the disk of {}", directory.display());
    let device = fs::metadata(directory).context(context)?.dev();
    let number = (rustix::fs::major(device), rustix::fs::minor(device));
    let entry = PathBuf::from(format!("/sys/dev/block/{}:{}", number.0, number.1));
    let Ok(entry) = entry.canonicalize() else {
        let what = format!(
            "{} is not on a disk whose speed can be limited",
            directory.display()
        );
        return Err(Error::Setting(what));
    };
    let disk = match entry.join("partition").exists() {
        true => entry.parent().unwrap_or(&entry),
        false => &entry,
    };
    let number = fs::read_to_string(disk.join("dev")).context(context)?;
    Ok(number.trim().to_owned())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).context(|| format!("writing {text:?} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_a_group_of_its_own_and_all_are_removed() {
        let hierarchy = tempfile::tempdir().unwrap();
        let create = |prefix| create_group(hierarchy.path(), prefix).unwrap();
        let groups = [
            create("bench-a1-"),
            create("bench-a1-"),
            create("bench-a1b-"),
        ];
        let names = groups.each_ref().map(|group| group.file_name().unwrap());
        assert_eq!(names, ["bench-a1-1", "bench-a1-2", "bench-a1b-1"]);
        remove_groups(hierarchy.path(), "bench-a1-");
        assert_eq!(groups.map(|group| group.exists()), [false, false, true]);
    }
}
