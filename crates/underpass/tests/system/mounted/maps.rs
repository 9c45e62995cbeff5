//! Sparse files: the maps of their data, and a comparison of two files.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use underpass_testkit::{self as testkit, SeededRandom};

const BLOCK: u64 = 4096;

/// A file's length and its data, the rest being holes.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) len: u64,
    /// Offset and length.
    pub(crate) data: Vec<(u64, u64)>,
}

impl Map {
    /// Returns maps that were once handled wrongly.
    pub(crate) fn special() -> Vec<Self> {
        let map = |len, data: &[(u64, u64)]| Self {
            len,
            data: data.into(),
        };
        vec![
            map(0, &[]),
            map(1, &[(0, 1)]),
            map(3 << 20, &[]),
            map((3 << 20) + 1, &[]),
            map(2 << 20, &[(0, 1)]),
            map(2 << 20, &[((2 << 20) - 1, 1)]),
            map((1 << 20) + 5, &[(1 << 19, 70_000)]),
            map(
                2 << 20,
                &[(BLOCK - 1, 1), (2 * BLOCK, 1), (100 * BLOCK - 1, 2)],
            ),
            map(3 << 20, &[(0, 1_300_000), (2 << 20, 1 << 20)]),
            map(3 << 20, &[(1 << 20, 1_200_001)]),
        ]
    }

    pub(crate) fn random(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let (mut data, mut at) = (Vec::new(), 0);
        for _ in 0..random.below(9) {
            at += random.below(60) * BLOCK + random.below(3) * random.below(BLOCK);
            let len = match random.below(5) {
                0 => 1,
                1 => random.below(BLOCK) + 1,
                2 => (random.below(6) + 1) * BLOCK,
                3 => random.below(100_000) + 1,
                _ => random.below(600_000) + 1,
            };
            data.push((at, len));
            at += len;
        }
        let len = at + random.below(2) * random.below(600_000);
        Self { len, data }
    }

    /// Writes the file, and allocates its blocks.
    pub(crate) fn write(&self, file: &File, seed: u64) {
        file.set_len(self.len).expect("a length");
        for (at, len) in &self.data {
            let bytes = testkit::content(seed + at, *len as usize);
            file.write_all_at(&bytes, *at).expect("room");
        }
        file.sync_all().expect("allocated");
    }
}

/// Returns the file system's map: offset and length of each piece of data.
pub(crate) fn data_of(file: &File) -> Vec<(u64, u64)> {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let start = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return data,
            start => start.expect("finds data"),
        };
        at = seek(file, SeekFrom::Hole(start)).expect("finds the hole behind it");
        data.push((start, at - start));
    }
}

/// Returns length and hash of every piece of data, without holes: for files larger than memory too.
pub(crate) fn contents_of(file: &File) -> (u64, Vec<(u64, String)>) {
    let pieces = data_of(file).into_iter().map(|(at, len)| {
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, at).expect("reads");
        (at, testkit::sha256(&bytes))
    });
    let pieces = pieces.collect();
    (file.metadata().expect("metadata").len(), pieces)
}

/// Returns the hash of the file, with holes as zeros.
pub(crate) fn hash_of(file: &File) -> String {
    let len = file.metadata().expect("metadata").len();
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0).expect("reads");
    testkit::sha256(&bytes)
}

pub(crate) fn allocated(file: &File) -> u64 {
    file.metadata().expect("metadata").blocks() * 512
}
