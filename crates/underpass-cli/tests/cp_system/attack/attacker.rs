//! An attacker that swaps names for links to the forbidden folder, as fast as possible.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, open, openat2, renameat_with,
    statat, symlinkat, unlinkat,
};

use underpass_testkit::SeededRandom;

use super::arena::{Arena, FILES, FOLDERS};

/// The state shared with the attacker.
#[derive(Debug)]
pub(crate) struct Attack<'a> {
    pub(crate) arena: &'a Arena,
    /// Held for writing while the arena is recreated.
    pub(crate) peace: &'a RwLock<()>,
    pub(crate) over: &'a AtomicBool,
    pub(crate) swaps: &'a AtomicU64,
}

/// A name, and its replacement.
#[derive(Debug)]
struct Prey {
    /// The folder it is in, below the arena.
    folder: PathBuf,
    name: &'static str,
    spare: PathBuf,
    /// The target of the link.
    forbidden: PathBuf,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Folder,
    /// A file that is read.
    Source,
    /// A file that is written.
    Destination,
}

impl Attack<'_> {
    /// Attacks until `over` is set.
    pub(crate) fn run(&self, seed: u64) {
        let mut random = SeededRandom::new(seed);
        let prey = self.prey();
        while !self.over.load(Ordering::Relaxed) {
            let _turn = self.peace.read().expect("nobody failed");
            let prey = &prey[random.below(prey.len())];
            if prey.place == Place::Destination && !self.arena.has_begun() {
                continue;
            }
            let Some(folder) = self.folder(prey) else {
                continue;
            };
            if self.swap(folder.as_fd(), prey) {
                self.swaps.fetch_add(1, Ordering::Relaxed);
                // The name leads astray for this long.
                for _ in 0..random.below(4000) {
                    std::hint::spin_loop();
                }
                restore(folder.as_fd(), prey);
            }
        }
    }

    fn prey(&self) -> Vec<Prey> {
        let names = FOLDERS.iter().chain(&FILES).chain(&["."]);
        let mut all = Vec::new();
        for (number, name) in names.enumerate() {
            for (side, tree) in [("src", "src"), ("dst", "dst/src")] {
                let place = match (number < FOLDERS.len() || *name == ".", side) {
                    (true, _) => Place::Folder,
                    (false, "src") => Place::Source,
                    (false, _) => Place::Destination,
                };
                // A symbolic link as the operand itself is followed on purpose.
                if *name == "." && side == "src" {
                    continue;
                }
                let (folder, last) = match (name.rsplit_once('/'), *name) {
                    (Some((folder, last)), _) => (Path::new(tree).join(folder), last),
                    (None, ".") => ("dst".into(), "src"),
                    (None, name) => (tree.into(), name),
                };
                let spare = self.arena.path("spare").join(format!("{side}-{number}"));
                let forbidden = self.arena.path("forbidden").join(name);
                all.push(Prey {
                    folder,
                    name: last,
                    spare,
                    forbidden,
                    place,
                });
            }
        }
        all
    }

    /// Opens the folder of a name, but not through a link: the attacker must not be misled by its
    /// own links.
    fn folder(&self, prey: &Prey) -> Option<OwnedFd> {
        let place = OFlags::PATH | OFlags::CLOEXEC;
        let arena = open(self.arena.folder(), place, Mode::empty()).ok()?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = place | OFlags::DIRECTORY;
        openat2(arena, &prey.folder, flags, Mode::empty(), resolve).ok()
    }

    fn swap(&self, folder: BorrowedFd<'_>, prey: &Prey) -> bool {
        if exchange(folder, prey) {
            return true;
        }
        // Nothing exists yet: a link is planted, to a file or to nothing.
        let new = self.arena.path("forbidden/new");
        let target = if prey.name == "f1" {
            &new
        } else {
            &prey.forbidden
        };
        prey.place == Place::Destination && symlinkat(target, folder, prey.name).is_ok()
    }
}

/// Removes a planted link, or swaps the name back.
fn restore(folder: BorrowedFd<'_>, prey: &Prey) {
    if !is_link(CWD, &prey.spare) {
        exchange(folder, prey);
    } else if is_link(folder, Path::new(prey.name)) {
        let _gone = unlinkat(folder, prey.name, AtFlags::empty());
    }
}

fn exchange(folder: BorrowedFd<'_>, prey: &Prey) -> bool {
    renameat_with(folder, prey.name, CWD, &prey.spare, RenameFlags::EXCHANGE).is_ok()
}

fn is_link(folder: BorrowedFd<'_>, path: &Path) -> bool {
    statat(folder, path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}
