//! File systems to move between, mounted once for all tests of the process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use underpass_testkit::{assert_private_mounts, mount, mount_image, run};

/// Large enough for the largest file of a test; XFS needs at least 300.
const IMAGE_MIB: u64 = 400;

/// A file system's type. There is one of each, so that equal families share a super block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Tmpfs,
    Ext4,
    Xfs,
    Btrfs,
    Overlay,
}

impl Family {
    /// Returns whether it can share blocks between files.
    pub(crate) fn clones(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs | Self::Overlay)
    }
}

/// A folder on one of them.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) family: Family,
    dir: PathBuf,
}

impl Place {
    /// Returns an unused name there.
    pub(crate) fn path(&self) -> PathBuf {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        self.dir
            .join(format!("f{}", NAMES.fetch_add(1, Ordering::Relaxed)))
    }

    /// Creates an empty file for reading and writing, deleted when it is closed.
    pub(crate) fn file(&self) -> File {
        let path = self.path();
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).expect("a new file");
        std::fs::remove_file(path).expect("a name less");
        file
    }
}

/// Returns all places; mounts them on the first use.
pub(crate) fn all() -> &'static [Place] {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    PLACES.get_or_init(mount_all)
}

pub(crate) fn place(name: &str) -> &'static Place {
    all()
        .iter()
        .find(|place| place.name == name)
        .expect("a place of that name")
}

/// Mounts a separate tmpfs of the given size.
pub(crate) fn small(bytes: u64) -> Place {
    let name = place("tmpfs").path();
    std::fs::create_dir(&name).expect("a folder");
    mount(
        &["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"],
        &name,
    );
    Place {
        name: "small",
        family: Family::Tmpfs,
        dir: name,
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name of letters")
}

fn mount_all() -> Vec<Place> {
    assert_private_mounts();
    let base = Path::new("/mnt");
    mount(&["-t", "tmpfs", "none"], base);
    let folder = |name: &str| {
        let folder = base.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    };
    mount(&["-t", "tmpfs", "-o", "size=1g", "none"], &folder("tmpfs"));
    mount_image(&["mkfs.ext4", "-q", "-F"], IMAGE_MIB, &folder("ext4"));
    mount_image(&["mkfs.xfs", "-q"], IMAGE_MIB, &folder("xfs"));
    mount_image(&["mkfs.btrfs", "-q"], IMAGE_MIB, &folder("btrfs"));
    let subvolume = base.join("btrfs/subvolume");
    let mut create = Command::new("btrfs");
    run(create.args(["subvolume", "create"]).arg(&subvolume)).assert_success();
    let options = ["lower", "upper", "work"].map(|name| folder(&format!("xfs/{name}")));
    let [lower, upper, work] = options.each_ref().map(|path| text(path));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    mount(
        &["-t", "overlay", "-o", &options, "overlay"],
        &folder("overlay"),
    );
    mount(&["--bind", text(&folder("xfs/bound"))], &folder("bind"));
    [
        ("tmpfs", Family::Tmpfs),
        ("ext4", Family::Ext4),
        ("xfs", Family::Xfs),
        ("bind", Family::Xfs),
        ("btrfs", Family::Btrfs),
        ("btrfs/subvolume", Family::Btrfs),
        ("overlay", Family::Overlay),
    ]
    .map(|(name, family)| Place {
        name,
        family,
        dir: base.join(name),
    })
    .into()
}
