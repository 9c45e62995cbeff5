//! The space on a file system that a receiver may fill.

use std::os::fd::BorrowedFd;

use rustix::fs::{StatVfs, fstatvfs};

use crate::error::{Doing, Error};

/// One in this many inodes stays free where their number is fixed: empty files take nothing else,
/// and other programs need some.
const INODES_KEPT_SHARE: u64 = 20;

/// The space that may be filled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FreeSpace {
    free: u64,
    kept: u64,
    /// The number of files that may be made.
    pub(crate) inodes: u64,
}

impl FreeSpace {
    /// Looks at the file system of a folder, of which `kept` bytes stay free.
    pub(crate) fn of(folder: BorrowedFd<'_>, kept: u64) -> Result<FreeSpace, Error> {
        let stat = fstatvfs(folder).doing("looking at the file system")?;
        Ok(FreeSpace {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            kept,
            inodes: inodes(&stat),
        })
    }

    /// Returns the bytes that may be filled.
    pub(crate) fn bytes(&self) -> u64 {
        self.free.saturating_sub(self.kept)
    }

    /// Refuses more bytes than may be filled.
    pub(crate) fn check(&self, needed: u64) -> Result<(), Error> {
        let (free, kept) = (self.free, self.kept);
        match needed > self.bytes() {
            true => Err(Error::TooFull { needed, free, kept }),
            false => Ok(()),
        }
    }
}

/// Returns the number of files that may be made. File systems that make inodes as they need them
/// report none at all.
fn inodes(stat: &StatVfs) -> u64 {
    match stat.f_files {
        0 => u64::MAX,
        all => stat.f_favail.saturating_sub(all / INODES_KEPT_SHARE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_numbers() {
        let space = FreeSpace {
            free: 700 << 20,
            kept: 256 << 20,
            inodes: 1,
        };
        assert_eq!(space.bytes(), 444 << 20);
        assert_eq!(space.check(444 << 20), Ok(()));
        let refused = space.check((444 << 20) + 1).unwrap_err().to_string();
        assert_eq!(
            refused,
            "there is not enough space: 445 MiB are needed and 700 MiB are free, of which 256 MiB \
             stay free"
        );
    }
}
