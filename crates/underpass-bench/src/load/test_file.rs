//! The files that are served: created once, with known hashes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::request::{ConnectionReuse, RequestTarget};
use crate::content::{self, Sha256Hash};
use crate::error::{ErrorContext, Result};

#[derive(Debug, Clone)]
pub(crate) struct TestFile {
    pub(crate) path: PathBuf,
    pub(crate) url_path: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: Sha256Hash,
}

/// A directory of equal-sized files below the root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileSet {
    pub(crate) name: &'static str,
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

impl FileSet {
    /// Creates the files of this set below `root`.
    pub(crate) fn make(&self, root: &Path) -> Result<Vec<TestFile>> {
        let directory = format!("{}-{}", self.name, self.bytes);
        let path = root.join(&directory);
        std::fs::create_dir_all(&path).context(|| format!("creating {}", path.display()))?;
        let all = (0..self.count).map(|index| {
            let name = format!("{directory}/{index:04}.bin");
            let path = root.join(&name);
            Ok(TestFile {
                url_path: format!("/{name}"),
                bytes: self.bytes,
                sha256: content::make(&path, self.bytes, index as u64)?,
                path,
            })
        });
        all.collect()
    }
}

/// The requests for these files, from the server at this address.
pub(crate) fn targets_of(
    files: &[TestFile],
    address: SocketAddr,
    reuse: ConnectionReuse,
) -> Vec<RequestTarget> {
    let targets = files.iter().map(|file| file.target(address, reuse));
    targets.collect()
}

impl TestFile {
    pub(crate) fn target(&self, address: SocketAddr, reuse: ConnectionReuse) -> RequestTarget {
        RequestTarget::get(address, &self.url_path, self.bytes, reuse)
    }

    pub(crate) fn evict(&self) -> Result<()> {
        content::evict(&self.path)
    }

    pub(crate) fn warm(&self) -> Result<()> {
        content::warm(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_files_of_one_size_with_their_hashes_and_paths() {
        let root = tempfile::tempdir().unwrap();
        let set = FileSet {
            name: "odd",
            count: 2,
            bytes: 1013,
        };
        let files = set.make(root.path()).unwrap();
        assert_eq!(files[1].url_path, "/odd-1013/0001.bin");
        for file in &files {
            let read = content::hash(&root.path().join(&file.url_path[1..])).unwrap();
            assert_eq!((file.bytes, file.sha256), (1013, read));
        }
        assert_ne!(files[0].sha256, files[1].sha256);
    }
}
