//! The files served: made once, deterministic, with known hashes.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use sha2::{Digest as _, Sha256};

use super::error::{Doing, Result};
use super::exchange::Target;

pub(crate) type Sha256Hash = [u8; 32];

/// How much is generated, hashed and written at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// One file of the site.
#[derive(Debug, Clone)]
pub(crate) struct Specimen {
    pub(crate) path: PathBuf,
    pub(crate) url_path: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: Sha256Hash,
}

/// A directory of equal-sized files below the root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) name: &'static str,
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

impl Batch {
    /// Makes the files of this batch below `root`, and puts them on disk.
    pub(crate) fn make(&self, root: &Path) -> Result<Vec<Specimen>> {
        let directory = format!("{}-{}", self.name, self.bytes);
        let path = root.join(&directory);
        std::fs::create_dir_all(&path).doing(|| format!("creating {}", path.display()))?;
        (0..self.count)
            .map(|i| self.make_one(root, &format!("{directory}/{i:04}.bin"), i))
            .collect()
    }

    fn make_one(&self, root: &Path, name: &str, index: usize) -> Result<Specimen> {
        let path = root.join(name);
        let doing = || format!("writing {}", path.display());
        let file = File::create(&path).doing(doing)?;
        let mut writer = BufWriter::with_capacity(BLOCK_BYTES, &file);
        let mut noise = Noise::seeded(self.bytes, index as u64);
        let mut hash = Sha256::new();
        let mut left = self.bytes;
        let mut block = vec![0; BLOCK_BYTES];
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
            noise.fill(&mut block[..length]);
            hash.update(&block[..length]);
            writer.write_all(&block[..length]).doing(doing)?;
            left -= length as u64;
        }
        writer.flush().doing(doing)?;
        drop(writer);
        let sha256 = hash.finalize().into();
        Ok(Specimen {
            url_path: format!("/{name}"),
            bytes: self.bytes,
            sha256,
            path,
        })
    }
}

impl Specimen {
    pub(crate) fn target(&self, address: SocketAddr) -> Target {
        Target::get(address, &self.url_path, self.bytes)
    }

    /// Writes what is dirty to disk and drops the file from the page cache.
    pub(crate) fn evict(&self) -> Result<()> {
        let doing = || format!("evicting {}", self.path.display());
        let file = File::open(&self.path).doing(doing)?;
        file.sync_data().doing(doing)?;
        fadvise(&file, 0, None, Advice::DontNeed).doing(doing)
    }

    /// Reads the file once, so that its pages are in the page cache.
    pub(crate) fn warm(&self) -> Result<()> {
        let doing = || format!("reading {}", self.path.display());
        let mut file = File::open(&self.path).doing(doing)?;
        std::io::copy(&mut file, &mut std::io::sink())
            .doing(doing)
            .map(drop)
    }
}

/// `SplitMix64`: plain, fast, the same everywhere, and it does not compress.
struct Noise(u64);

impl Noise {
    fn seeded(kind: u64, index: u64) -> Noise {
        Noise(kind.rotate_left(32) ^ index)
    }

    fn fill(&mut self, block: &mut [u8]) {
        for chunk in block.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_batch_is_the_same_everywhere_and_its_hash_is_that_of_its_bytes() {
        let root = tempfile::tempdir().unwrap();
        let batch = Batch {
            name: "odd",
            count: 2,
            bytes: BLOCK_BYTES as u64 + 13,
        };
        let first = batch.make(root.path()).unwrap();
        let again = batch.make(root.path()).unwrap();
        for (a, b) in first.iter().zip(&again) {
            let content = std::fs::read(&a.path).unwrap();
            assert_eq!(content.len() as u64, a.bytes);
            assert_eq!(a.sha256, <Sha256Hash>::from(Sha256::digest(&content)));
            assert_eq!(a.sha256, b.sha256);
        }
        assert_ne!(first[0].sha256, first[1].sha256);
    }
}
