//! The source of copies: made of the same noise everywhere, and compared with its copies.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, SeekFrom, fadvise, ioctl_ficlone, seek};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use walkdir::WalkDir;

use crate::content::{self, Sha256Hash};
use crate::error::{ErrorContext as _, Result};

/// Files of a folder of a tree.
const FILES_PER_FOLDER: u64 = 100;

/// The data of a sparse file: this many pieces of this many bytes, far from each other.
const PIECES: u64 = 16;
const PIECE_BYTES: u64 = 64 << 10;

/// The unit of comparison; where all of it is zeros it may be a hole.
const PAGE_BYTES: u64 = 4096;
const BLOCK_BYTES: usize = 1 << 20;

/// About what an entry takes besides its data, including its name.
const INODE_BYTES: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopySource {
    /// Files in folders.
    Tree {
        files: u64,
        file_bytes: u64,
    },
    File {
        bytes: u64,
    },
    /// A long file with little in it.
    Sparse {
        bytes: u64,
    },
}

/// How large a source or a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeSize {
    pub(crate) entries: u64,
    /// The lengths of all files.
    pub(crate) bytes: u64,
}

impl CopySource {
    /// Creates it at `path`, which must not exist.
    pub(crate) fn make(&self, path: &Path) -> Result<()> {
        match *self {
            CopySource::Tree { files, file_bytes } => make_tree(path, files, file_bytes),
            CopySource::File { bytes } => content::make(path, bytes, 1).map(drop),
            CopySource::Sparse { bytes } => make_sparse(path, bytes),
        }
    }

    /// Regular files in it.
    pub(crate) fn files(&self) -> u64 {
        match *self {
            CopySource::Tree { files, .. } => files,
            CopySource::File { .. } | CopySource::Sparse { .. } => 1,
        }
    }

    pub(crate) fn entries(&self) -> u64 {
        match *self {
            CopySource::Tree { files, .. } => 1 + files.div_ceil(FILES_PER_FOLDER) + files,
            CopySource::File { .. } | CopySource::Sparse { .. } => 1,
        }
    }

    /// About how much disk space one of it takes.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let data = match *self {
            CopySource::Tree { files, file_bytes } => {
                files.saturating_mul(file_bytes.next_multiple_of(PAGE_BYTES))
            }
            CopySource::File { bytes } => bytes,
            CopySource::Sparse { bytes } => bytes.min(PIECES * PIECE_BYTES),
        };
        data.saturating_add(self.entries().saturating_mul(INODE_BYTES))
    }
}

fn make_tree(path: &Path, files: u64, file_bytes: u64) -> Result<()> {
    let make_folder =
        |path: &Path| fs::create_dir(path).context(|| format!("creating {}", path.display()));
    make_folder(path)?;
    let mut folder = PathBuf::new();
    for number in 0..files {
        if number % FILES_PER_FOLDER == 0 {
            folder = path.join(format!("folder-{:05}", number / FILES_PER_FOLDER));
            make_folder(&folder)?;
        }
        let name = format!("file-{:02}", number % FILES_PER_FOLDER);
        content::make(&folder.join(name), file_bytes, number)?;
    }
    Ok(())
}

fn make_sparse(path: &Path, bytes: u64) -> Result<()> {
    let context = || format!("writing {}", path.display());
    content::make(path, PIECE_BYTES.min(bytes), 1)?;
    let piece = fs::read(path).context(context)?;
    let file = File::options().write(true).open(path).context(context)?;
    file.set_len(bytes).context(context)?;
    for number in 1..PIECES {
        let at = (bytes / PIECES * number).next_multiple_of(PIECE_BYTES);
        if at + PIECE_BYTES <= bytes {
            file.write_all_at(&piece, at).context(context)?;
        }
    }
    Ok(())
}

/// The hash of all names and kinds below a path, and of all lengths and bytes; holes are zeros.
pub(crate) fn digest(root: &Path) -> Result<Sha256Hash> {
    let mut hash = Sha256::new();
    visit(root, &mut |path, metadata| {
        let below = path.strip_prefix(root).unwrap_or(path);
        hash.update(below.as_os_str().as_bytes());
        hash.update([0, u8::from(metadata.is_dir()), u8::from(metadata.is_file())]);
        if metadata.is_file() {
            hash.update(metadata.len().to_le_bytes());
            of_data(path, |at, page| {
                hash.update(at.to_le_bytes());
                hash.update(page);
            })?;
        }
        Ok(())
    })?;
    Ok(hash.finalize().into())
}

/// Reads it, so that it is in the page cache; returns its size.
pub(crate) fn warm(root: &Path) -> Result<TreeSize> {
    let mut size = TreeSize::default();
    visit(root, &mut |path, metadata| {
        size.add(metadata);
        match metadata.is_file() {
            true => of_data(path, |_, _| ()),
            false => Ok(()),
        }
    })?;
    Ok(size)
}

/// Drops its pages that are on disk from the page cache; returns its size.
pub(crate) fn drop_from_cache(root: &Path) -> Result<TreeSize> {
    let mut size = TreeSize::default();
    visit(root, &mut |path, metadata| {
        size.add(metadata);
        if !metadata.is_file() {
            return Ok(());
        }
        let dropped = File::open(path)
            .and_then(|file| fadvise(&file, 0, None, Advice::DontNeed).map_err(io::Error::from));
        dropped.context(|| format!("evicting {}", path.display()))
    })?;
    Ok(size)
}

impl TreeSize {
    fn add(&mut self, metadata: &Metadata) {
        self.entries += 1;
        if metadata.is_file() {
            self.bytes += metadata.len();
        }
    }
}

/// Whether files of this folder can share blocks.
pub(crate) fn shares_blocks(folder: &Path) -> Result<bool> {
    let (from, to) = (folder.join("blocks"), folder.join("shared"));
    content::make(&from, 64 << 10, 0)?;
    let context = || format!("trying to share blocks in {}", folder.display());
    let shared = ioctl_ficlone(
        File::create(&to).context(context)?,
        File::open(&from).context(context)?,
    );
    content::remove(&from)?;
    content::remove(&to)?;
    Ok(shared.is_ok())
}

/// Visits a path and everything below it, each directory before its entries, in the order of names.
fn visit(root: &Path, look: &mut impl FnMut(&Path, &Metadata) -> Result<()>) -> Result<()> {
    for entry in WalkDir::new(root).sort_by_file_name() {
        let looked = entry.and_then(|entry| Ok((entry.metadata()?, entry)));
        let (metadata, entry) = looked.context(|| format!("looking below {}", root.display()))?;
        look(entry.path(), &metadata)?;
    }
    Ok(())
}

/// Reads a file and passes every page that isn't all zeros, with its offset; skips holes.
fn of_data(path: &Path, mut look: impl FnMut(u64, &[u8])) -> Result<()> {
    let context = || format!("reading {}", path.display());
    let file = File::open(path).context(context)?;
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = 0;
    loop {
        let data = match seek(&file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(()),
            data => data.context(context)?,
        };
        let end = seek(&file, SeekFrom::Hole(data)).context(context)?;
        at = data / PAGE_BYTES * PAGE_BYTES;
        while at < end {
            let read = file.read_at(&mut block, at).context(context)?;
            let pages = block[..read].chunks(PAGE_BYTES as usize);
            for (page, offset) in pages.zip((at..).step_by(PAGE_BYTES as usize)) {
                if page.iter().any(|&byte| byte != 0) {
                    look(offset, page);
                }
            }
            // It was truncated meanwhile.
            if read == 0 {
                return Ok(());
            }
            at += read as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: CopySource = CopySource::Tree {
        files: 250,
        file_bytes: 10,
    };

    #[test]
    fn a_tree_has_as_many_entries_as_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        TREE.make(&tree).unwrap();
        let size = warm(&tree).unwrap();
        assert_eq!((TREE.entries(), TREE.files()), (1 + 3 + 250, 250));
        assert_eq!((size.entries, size.bytes), (254, 2500));
        assert_eq!(drop_from_cache(&tree).unwrap(), size);
    }

    #[test]
    fn what_is_the_same_has_the_same_digest_and_nothing_else_has() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            TREE.make(&at(name)).unwrap();
        }
        let expected = digest(&at("a")).unwrap();
        assert_eq!(digest(&at("b")).unwrap(), expected);
        let change = |name: &str, change: &dyn Fn(&Path)| {
            TREE.make(&at(name)).unwrap();
            change(&at(name).join("folder-00001/file-07"));
            assert_ne!(digest(&at(name)).unwrap(), expected, "{name}");
        };
        change("less", &|file| fs::remove_file(file).unwrap());
        change("other name", &|file| {
            fs::rename(file, file.with_extension("x")).unwrap();
        });
        change("other bytes", &|file| {
            fs::write(file, "0123456789").unwrap();
        });
        change("longer", &|file| {
            let file = File::options().write(true).open(file).unwrap();
            file.set_len(100).unwrap();
        });
    }

    #[test]
    fn holes_are_zeros_and_little_is_on_the_disk() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let (sparse, filled) = (folder.path().join("sparse"), folder.path().join("filled"));
        let source = CopySource::Sparse { bytes: 16 << 20 };
        source.make(&sparse).unwrap();
        assert!(fs::metadata(&sparse).unwrap().blocks() * 512 <= 2 * PIECES * PIECE_BYTES);
        fs::write(&filled, fs::read(&sparse).unwrap()).unwrap();
        assert_eq!(digest(&sparse).unwrap(), digest(&filled).unwrap());
        assert_eq!(warm(&sparse).unwrap().bytes, 16 << 20);
    }
}
