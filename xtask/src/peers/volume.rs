//! File systems of one's own to measure on.
//!
//! Each is in a sparse file below `target/peers`, mounted in a mount namespace that ends with the
//! command, and the file has no name any more once it is mounted: nothing stays, however it ends.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use super::kit::{SHOP, Shop};
use crate::test::needs::{
    LOOP_DEVICES, MKFS_BTRFS, MKFS_EXT4, MKFS_XFS, MOUNTS, Need, PRIVATE_MOUNTS, ROOT,
};
use crate::workspace::Fallible;

/// Where it is mounted.
pub(super) const MOUNTED: &str = "/mnt";

/// Copies of trees stay until all is over: eight million files of 4 KiB fit in, with what the file
/// system needs for itself.
const BYTES: u64 = 48 << 30;

/// Attaches and mounts its first argument, and becomes the others. What was written is written to
/// the disk and not into the page cache a second time, where the kernel can.
const MOUNT: &str = r#"set -e
device=$(losetup --find --show --direct-io=on "$1" || losetup --find --show "$1")
mount "$device" /mnt || { losetup --detach "$device"; exit 1; }
losetup --detach "$device"
rm "$1"
shift
exec "$@""#;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    /// Why there can't be one here.
    pub(super) fn lack(self) -> Option<String> {
        let needs = [ROOT, MOUNTS, LOOP_DEVICES, self.maker()];
        let lack = needs.iter().find_map(Need::lack)?;
        Some(lack.to_string())
    }

    /// A command that runs `program` with the file system mounted. Its image is there already.
    pub(super) fn command(self, shop: &Shop<'_>, program: &str) -> Fallible<Command> {
        let image = self.make(shop)?;
        let [unshare, arguments @ ..] = PRIVATE_MOUNTS;
        let mut command = shop.command(unshare);
        command
            .args(arguments)
            .args(["sh", "-c", MOUNT, "sh"])
            .arg(image)
            .arg(program);
        Ok(command)
    }

    /// Removes an image that was not mounted.
    pub(super) fn clear(self, shop: &Shop<'_>) {
        // Mounted, it has no name.
        let _ = fs::remove_file(self.image(shop));
    }

    fn make(self, shop: &Shop<'_>) -> Fallible<PathBuf> {
        let image = self.image(shop);
        File::create(&image)?.set_len(BYTES)?;
        let [program, arguments @ ..] = self.steps() else {
            return Err("nothing to run".into());
        };
        let status = shop.command(program).args(arguments).arg(&image).status()?;
        if status.success() {
            return Ok(image);
        }
        self.clear(shop);
        Err(format!("{program}: {status}").into())
    }

    fn image(self, shop: &Shop<'_>) -> PathBuf {
        let name = format!("{self:?}.img").to_lowercase();
        shop.workspace.root.join(SHOP).join(name)
    }

    fn maker(self) -> Need {
        match self {
            Self::Ext4 => MKFS_EXT4,
            Self::Xfs => MKFS_XFS,
            Self::Btrfs => MKFS_BTRFS,
        }
    }

    /// With inodes enough, and nothing kept for root or twice.
    fn steps(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["mkfs.ext4", "-q", "-F", "-m", "0", "-N", "8000000"],
            Self::Xfs => &["mkfs.xfs", "-q"],
            Self::Btrfs => &["mkfs.btrfs", "-q", "--metadata", "single"],
        }
    }
}
