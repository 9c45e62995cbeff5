//! The names in a folder, a batch at a time.
//!
//! A batch is sorted by inode number: file systems keep inodes near each other that have near
//! numbers, and names in whatever order suits them.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Names in a batch, unless more come at once.
const BATCH_NAMES: usize = 8192;

/// What is read at once.
const BUFFER_BYTES: usize = 32 << 10;

/// Names that were read and not looked at.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Those left, the next one last.
    left: Vec<Listed>,
    is_read: bool,
}

#[derive(Debug)]
struct Listed {
    inode: u64,
    kind: FileType,
    name: CString,
}

impl Listing {
    /// The next name, and what the folder says it is. Reads on where the folder was left.
    pub(crate) fn next(
        &mut self,
        folder: BorrowedFd<'_>,
    ) -> Result<Option<(CString, FileType)>, Errno> {
        if self.left.is_empty() {
            self.read(folder, BATCH_NAMES)?;
        }
        Ok(self.left.pop().map(|next| (next.name, next.kind)))
    }

    /// Reads all there is, so that the folder can be closed.
    pub(crate) fn read_all(&mut self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        self.read(folder, usize::MAX)
    }

    fn read(&mut self, folder: BorrowedFd<'_>, names_max: usize) -> Result<(), Errno> {
        if self.is_read {
            return Ok(());
        }
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(folder, &mut buffer);
        self.is_read = true;
        let mut read = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                read.push(Listed {
                    inode: entry.ino(),
                    kind: entry.file_type(),
                    name: name.to_owned(),
                });
            }
            if entries.is_buffer_empty() && read.len() >= names_max {
                self.is_read = false;
                break;
            }
        }
        // Several names of one inode stay in the folder's order.
        read.sort_by_key(|listed| listed.inode);
        read.reverse();
        // What is left of an earlier batch comes first, and so stands last.
        read.append(&mut self.left);
        self.left = read;
        Ok(())
    }
}
