//! Test data: files of random bytes, and comparisons.

use std::env;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::wait::wait_until;

use crate::SeededRandom;

/// Returns `len` bytes, none of which is 0: a hole or a lost page never passes for content.
pub fn content(seed: u64, len: impl TryInto<usize, Error: Debug>) -> Vec<u8> {
    let len = len.try_into().expect("fits into memory");
    let mut random = SeededRandom::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        let word = random.next_u64() | 0x0101_0101_0101_0101;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns the SHA-256 of bytes in hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    sha256_reader(bytes.as_ref()).1
}

/// Reads to the end; returns the length and the SHA-256 in hexadecimal.
pub fn sha256_reader(mut from: impl Read) -> (u64, String) {
    let (mut hash, mut len, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    while let read @ 1.. = from.read(&mut buffer).expect("reads") {
        hash.update(&buffer[..read]);
        len += read as u64;
    }
    let digest = hash.finalize();
    let hex = digest.iter().map(|byte| format!("{byte:02x}"));
    (len, hex.collect())
}

/// Returns the length and the SHA-256 of a file.
#[track_caller]
pub fn sha256_file(path: &Path) -> (u64, String) {
    sha256_reader(File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// Compares by length and hash, so that a failure does not print the bytes.
#[track_caller]
pub fn assert_same(got: &[u8], expected: &[u8], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    assert_eq!(sha256(got), sha256(expected), "{what}: content");
}

/// Compares two files by length and hash.
#[track_caller]
pub fn assert_same_files(one: &Path, other: &Path) {
    let are_equal = sha256_file(one) == sha256_file(other);
    assert!(
        are_equal,
        "{} and {} differ",
        one.display(),
        other.display()
    );
}

/// Writes a file to its disk and drops it from the page cache, repeatedly until `is_cached`, which
/// is given an offset and a length, is false: a page that is in use at that moment stays.
#[track_caller]
pub fn cool(file: &File, is_cached: impl Fn(&File, u64, u64) -> bool) {
    file.sync_all().expect("on the disk");
    let len = file.metadata().expect("a length").len();
    wait_until("the page cache lets go of the file", || {
        fadvise(file, 0, None, Advice::DontNeed).expect("forgets");
        let mut pages = (0..len).step_by(4096);
        !pages.any(|offset| is_cached(file, offset, 1))
    });
}

/// Creates a temporary folder on the disk that holds the build.
pub fn disk_folder() -> TempDir {
    let test = env::current_exe().expect("the path of this test");
    let profile = test.parent().and_then(Path::parent);
    let target = profile.and_then(Path::parent).expect("target/debug/deps");
    let folder = target.join("tmp");
    fs::create_dir_all(&folder).expect("a folder below target");
    tempfile::tempdir_in(folder).expect("a folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_has_no_zero_and_follows_its_seed() {
        let bytes = content(1, 1001);
        assert_eq!(bytes.len(), 1001);
        assert!(bytes.iter().all(|&byte| byte != 0));
        assert_ne!(bytes, content(2, 1001));
        assert!(content(1, 5000).starts_with(&bytes));
    }

    #[test]
    fn hashes_are_those_of_sha256() {
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256("abc"), hash);
        assert_eq!(sha256_reader(&b"abc"[..]), (3, hash.to_owned()));
    }

    #[test]
    #[should_panic(expected = "page 7: content")]
    fn another_byte_is_found() {
        assert_same(b"abc", b"abd", "page 7");
    }
}
