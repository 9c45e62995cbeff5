//! Separate file systems for tests, which end with the namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use underpass_testkit::{assert_private_mounts, mount, mount_image};

/// A type of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Tmpfs,
    Ext4,
    Xfs,
    Btrfs,
}

pub(crate) const FAMILIES: [Family; 4] = [Family::Tmpfs, Family::Ext4, Family::Xfs, Family::Btrfs];

impl Family {
    pub(crate) fn clones(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs)
    }
}

/// Returns an empty folder on a tmpfs that all tests share.
pub(crate) fn spot() -> PathBuf {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let base = BASE.get_or_init(|| {
        assert_private_mounts();
        let base = Path::new("/mnt");
        mount(&["-t", "tmpfs", "-o", "nr_inodes=4m", "none"], base);
        base.to_owned()
    });
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let spot = base.join(format!("s{number}"));
    fs::create_dir(&spot).expect("a folder");
    spot
}

/// Mounts a new file system of about so many MiB; XFS needs at least 300.
pub(crate) fn mounted(family: Family, mib: u64) -> PathBuf {
    let at = spot();
    let make: &[&str] = match family {
        Family::Tmpfs => {
            mount(&["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"], &at);
            return at;
        }
        Family::Ext4 => &["mkfs.ext4", "-q", "-F", "-m", "0"],
        Family::Xfs => &["mkfs.xfs", "-q"],
        Family::Btrfs => &["mkfs.btrfs", "-q"],
    };
    mount_image(make, mib, &at);
    at
}
