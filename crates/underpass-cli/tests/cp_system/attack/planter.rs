//! An attacker that waits until a copy starts, and then plants links in the existing destination
//! immediately: within the same tick of the clock that stamps inodes.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::sshfs::{Mounted, by_sshfs};

/// The names of the files that are copied.
const FILES: usize = 24;

/// The content that must not be overwritten.
const SECRET: &str = "secret";

/// A tree that is copied over another one, and the target of the links.
pub(crate) struct Trap {
    /// Where the folder is mounted, if it is.
    _mounted: Option<Mounted>,
    path: PathBuf,
    _folders: [tempfile::TempDir; 2],
}

/// Where a trap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    Disk,
    Fuse,
}

impl Trap {
    pub(crate) fn new(ground: Ground) -> Self {
        let folder = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let folders = [folder(), folder()];
        let [disk, fuse] = [&folders[0], &folders[1]].map(tempfile::TempDir::path);
        let trap = Self {
            _mounted: (ground == Ground::Fuse).then(|| by_sshfs(disk, fuse)),
            path: match ground {
                Ground::Disk => disk.to_owned(),
                Ground::Fuse => fuse.to_owned(),
            },
            _folders: folders,
        };
        for name in ["src", "dst", "spare"] {
            fs::create_dir(trap.path(name)).expect("room");
        }
        for number in 0..FILES {
            fs::write(trap.path("src").join(number.to_string()), "copied").expect("room");
            fs::write(trap.path("dst").join(number.to_string()), "old").expect("room");
            let link = trap.path("spare").join(number.to_string());
            symlink("secret", link).expect("room");
        }
        fs::write(trap.path("dst/secret"), SECRET).expect("room");
        trap
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.path
    }

    /// Returns whether something was written through a planted link.
    pub(crate) fn is_sprung(&self) -> bool {
        fs::read_to_string(self.path("dst/secret")).expect("it is there") != SECRET
    }

    /// Watches both trees, starting now.
    pub(crate) fn watch(&self) -> OwnedFd {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
        let any = WatchFlags::OPEN | WatchFlags::ACCESS | WatchFlags::MODIFY;
        for name in ["src", "dst"] {
            inotify::add_watch(&watch, self.path(name), any).expect("a watch");
        }
        watch
    }

    /// Plants all links as soon as either tree is touched, or gives up when `over` is set. Returns
    /// the number of links planted.
    pub(crate) fn plant(&self, watch: &OwnedFd, over: &AtomicBool) -> usize {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        while !over.load(Ordering::Relaxed) {
            if inotify::Reader::new(watch, &mut buffer).next().is_ok() {
                let names = (0..FILES).map(|number| number.to_string());
                let planted = |name: &String| {
                    fs::rename(self.path("spare").join(name), self.path("dst").join(name)).is_ok()
                };
                return names.filter(planted).count();
            }
            std::hint::spin_loop();
        }
        0
    }
}
