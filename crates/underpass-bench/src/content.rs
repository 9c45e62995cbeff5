//! Test files: deterministic, with known hashes, in the page cache or not.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{Advice, fadvise, syncfs};
use sha2::{Digest as _, Sha256};

use crate::error::{ErrorContext, Result};

pub(crate) type Sha256Hash = [u8; 32];

/// The unit of generating, hashing and writing.
const BLOCK_BYTES: usize = 256 << 10;

/// Writes a file of noise that depends on nothing but its length and `seed`.
pub(crate) fn make(path: &Path, bytes: u64, seed: u64) -> Result<Sha256Hash> {
    let context = || format!("writing {}", path.display());
    let file = File::create(path).context(context)?;
    let mut writer = BufWriter::with_capacity(BLOCK_BYTES, &file);
    let mut noise = fastrand::Rng::with_seed(bytes.rotate_left(32) ^ seed);
    let mut hash = Sha256::new();
    let mut left = bytes;
    let mut block = vec![0; BLOCK_BYTES];
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        noise.fill(&mut block[..length]);
        hash.update(&block[..length]);
        writer.write_all(&block[..length]).context(context)?;
        left -= length as u64;
    }
    writer.flush().context(context)?;
    Ok(hash.finalize().into())
}

pub(crate) fn hash(path: &Path) -> Result<Sha256Hash> {
    let context = || format!("reading {}", path.display());
    let mut file = File::open(path).context(context)?;
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block).context(context)? {
            0 => return Ok(hash.finalize().into()),
            read => hash.update(&block[..read]),
        }
    }
}

/// Waits until a file is on disk, so that writing it back doesn't disturb a measurement.
pub(crate) fn flush_to_disk(path: &Path) -> Result<()> {
    let file = File::open(path).and_then(|file| file.sync_data());
    file.context(|| format!("writing {} to disk", path.display()))
}

/// Waits until everything on the file system of a directory is on disk, so that writing it back
/// doesn't disturb a measurement.
pub(crate) fn flush_file_system(directory: &Path) -> Result<()> {
    let context = || format!("writing the files of {} to disk", directory.display());
    syncfs(File::open(directory).context(context)?).context(context)
}

/// Writes a file to disk and drops it from the page cache.
pub(crate) fn evict(path: &Path) -> Result<()> {
    let context = || format!("evicting {}", path.display());
    let file = File::open(path).context(context)?;
    file.sync_data().context(context)?;
    fadvise(&file, 0, None, Advice::DontNeed).context(context)
}

/// Reads the file once, so that its pages are in the page cache.
pub(crate) fn warm(path: &Path) -> Result<()> {
    let context = || format!("reading {}", path.display());
    let mut file = File::open(path).context(context)?;
    io::copy(&mut file, &mut io::sink())
        .context(context)
        .map(drop)
}

/// Removes a file or a whole directory, if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => std::fs::remove_dir_all(path),
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.context(|| format!("removing {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_everywhere_and_its_hash_is_that_of_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("noise");
        let bytes = BLOCK_BYTES as u64 + 13;
        let first = make(&path, bytes, 1).unwrap();
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content.len() as u64, bytes);
        assert_eq!(first, <Sha256Hash>::from(Sha256::digest(&content)));
        assert_eq!(first, hash(&path).unwrap());
        assert_eq!(first, make(&path, bytes, 1).unwrap());
        assert_ne!(first, make(&path, bytes, 2).unwrap());
    }
}
