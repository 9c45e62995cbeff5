//! File systems made for a measurement.
//!
//! Each is in a sparse file below `target/peers`, mounted in a mount namespace that ends with the
//! command. The file is unlinked once it is mounted, so nothing is left, however the command ends.

use std::path::Path;
use std::process::Command;

use super::installation::{FOLDER, Installation};
use super::table::PeerFileSystem;
use crate::needs::{PRIVATE_MOUNTS, lack_of};

/// Makes a file system in the file of its first argument with the command of the second, mounts it,
/// and executes the others. Where the kernel can, writes go directly to the disk instead of to the
/// page cache a second time.
const MOUNT: &str = r#"set -e
image=$1 make=$2 device=
shift 2
trap 'rm -f "$image"; [ -z "$device" ] || losetup --detach "$device"' EXIT
trap 'exit 130' INT TERM
truncate --size 24G "$image"
$make "$image"
device=$(losetup --find --show --direct-io=on "$image" || losetup --find --show "$image")
mount "$device" /mnt
rm "$image"
losetup --detach "$device"
trap - EXIT INT TERM
exec "$@""#;

impl PeerFileSystem {
    /// Returns why one can't be made here.
    pub(super) fn lack(self) -> Option<String> {
        lack_of(&[
            "root",
            "mounts",
            "loop devices",
            "24 GiB of disk",
            self.need_and_step().0,
        ])
    }

    /// Returns a command that runs `program` with the file system mounted.
    pub(super) fn command(self, installation: &Installation<'_>, program: &str) -> Command {
        let [unshare, arguments @ ..] = PRIVATE_MOUNTS;
        let mut command = installation.command(unshare);
        command.args(arguments).args(["sh", "-c", MOUNT, "sh"]);
        let (name, step) = self.need_and_step();
        command.arg(Path::new(FOLDER).join(name).with_extension("img"));
        command.args([step, program]);
        command
    }

    /// Enough inodes for millions of files, no space reserved for root, and metadata stored once.
    fn need_and_step(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("ext4", "mkfs.ext4 -q -F -m 0 -N 8000000"),
            Self::Xfs => ("XFS", "mkfs.xfs -q"),
            Self::Btrfs => ("Btrfs", "mkfs.btrfs -q --metadata single"),
        }
    }
}
