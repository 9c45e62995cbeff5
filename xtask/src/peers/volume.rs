//! File systems that are made for a measurement.
//!
//! Each is in a sparse file below `target/peers`, mounted in a mount namespace that ends with the
//! command, and the file has no name any more once it is mounted: nothing stays, however it ends.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use super::installation::{FOLDER, Installation};
use super::table::PeerFileSystem;
use crate::needs::{PRIVATE_MOUNTS, lack_of};
use crate::workspace::Fallible;

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

impl PeerFileSystem {
    /// Why there can't be one here.
    pub(super) fn lack(self) -> Option<String> {
        let tools = match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "XFS",
            Self::Btrfs => "Btrfs",
        };
        lack_of(&["root", "mounts", "loop devices", tools])
    }

    /// A command that runs `program` with the file system mounted. Its image is there already.
    pub(super) fn command(
        self,
        installation: &Installation<'_>,
        program: &str,
    ) -> Fallible<Command> {
        let image = self.make(installation)?;
        let [unshare, arguments @ ..] = PRIVATE_MOUNTS;
        let mut command = installation.command(unshare);
        command
            .args(arguments)
            .args(["sh", "-c", MOUNT, "sh"])
            .arg(image)
            .arg(program);
        Ok(command)
    }

    /// Removes an image that was not mounted.
    pub(super) fn clear(self, installation: &Installation<'_>) {
        // Mounted, it has no name.
        let _ = fs::remove_file(self.image(installation));
    }

    fn make(self, installation: &Installation<'_>) -> Fallible<PathBuf> {
        let image = self.image(installation);
        File::create(&image)?.set_len(BYTES)?;
        let [program, arguments @ ..] = self.steps() else {
            return Err("nothing to run".into());
        };
        let status = installation
            .command(program)
            .args(arguments)
            .arg(&image)
            .status()?;
        if status.success() {
            return Ok(image);
        }
        self.clear(installation);
        Err(format!("{program}: {status}").into())
    }

    fn image(self, installation: &Installation<'_>) -> PathBuf {
        let name = format!("{self:?}.img").to_lowercase();
        installation.workspace.root.join(FOLDER).join(name)
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
