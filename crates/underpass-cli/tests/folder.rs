//! A folder as people have them, big files and hundreds of small ones, downloaded by many
//! connections at once, whole and in ranges.

#[path = "support/served.rs"]
mod served;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use served::Served;
use sha2::{Digest, Sha256};

const MIB: u64 = 1 << 20;

/// Sizes of the big ones, none of them round.
const BIG: [u64; 3] = [512 * MIB + 1, 300 * MIB - 4095, 200 * MIB + 77_777];

const SMALL_FILES: u64 = 400;

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }

    fn write(&mut self, path: &Path, len: u64) {
        let mut block = Vec::with_capacity(MIB as usize);
        while block.len() < MIB as usize {
            block.extend_from_slice(&self.below(1 << 30).to_le_bytes()[..4]);
        }
        let (mut file, mut left) = (File::create(path).expect("a file"), len);
        while left > 0 {
            // No block is like the one before it.
            block.rotate_left(4093);
            let now = left.min(MIB);
            file.write_all(&block[..now as usize]).expect("room");
            left -= now;
        }
    }
}

/// The folder that is served, and the one that is filled from it.
struct Ground {
    folder: tempfile::TempDir,
    names: Vec<String>,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        for name in ["here", "there"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let mut ground = Self {
            folder,
            names: Vec::new(),
        };
        let mut random = Random(1);
        for (number, len) in BIG.into_iter().enumerate() {
            ground.add(&mut random, format!("big-{number}"), len);
        }
        for number in 0..SMALL_FILES {
            let len = match number % 8 {
                0 => number / 8 % 3,
                1 => 16_384 + random.below(3),
                2 => random.below(2_000_000),
                _ => random.below(20_000),
            };
            ground.add(&mut random, format!("small-{number}"), len);
        }
        ground
    }

    fn add(&mut self, random: &mut Random, name: String, len: u64) {
        random.write(&self.here().join(&name), len);
        self.names.push(name);
    }

    fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    fn there(&self, name: &str) -> PathBuf {
        self.folder.path().join("there").join(name)
    }

    /// One run of curl over all downloads, many at a time.
    fn download(&self, server: &Served, downloads: &[Download]) {
        let mut config = String::from("parallel\nparallel-max = 24\nfail\nsilent\nshow-error\n");
        for Download { name, range, to } in downloads {
            let (url, to) = (server.url(name), self.there(to));
            writeln!(config, "url = \"{url}\"\noutput = \"{}\"", to.display()).expect("text");
            if let Some((from, len)) = range {
                writeln!(config, "range = {from}-{}", from + len - 1).expect("text");
            }
            config.push_str("next\nfail\nsilent\nshow-error\n");
        }
        let path = self.folder.path().join("config");
        std::fs::write(
            &path,
            config.trim_end_matches("next\nfail\nsilent\nshow-error\n"),
        )
        .expect("room");
        let output = Command::new("curl")
            .args(["--max-time", "300", "--config"])
            .arg(&path)
            .output()
            .expect("curl starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
    }

    fn hash_here(&self, name: &str) -> Vec<u8> {
        hash([self.here().join(name)])
    }
}

/// What is fetched, and under which name it is kept.
struct Download {
    name: String,
    range: Option<(u64, u64)>,
    to: String,
}

/// Of the files one behind the other; those without a byte may be missing.
fn hash(files: impl IntoIterator<Item = PathBuf>) -> Vec<u8> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; MIB as usize]);
    for path in files {
        let Ok(mut file) = File::open(&path) else {
            continue;
        };
        while let read @ 1.. = file.read(&mut buffer).expect("reads") {
            hash.update(&buffer[..read]);
        }
    }
    hash.finalize().to_vec()
}

#[test]
#[ignore = "needs curl; run by cargo xtask test"]
fn a_folder_is_downloaded_whole_and_in_ranges_by_many_at_once() {
    let ground = Ground::new();
    let server = Served::start(&ground.here());

    let whole = ground.names.iter().map(|name| Download {
        name: name.clone(),
        range: None,
        to: name.clone(),
    });
    ground.download(&server, &whole.collect::<Vec<_>>());
    for name in &ground.names {
        let got = hash([ground.there(name)]);
        assert_eq!(got, ground.hash_here(name), "{name}");
    }

    let mut random = Random(2);
    let mut parts = Vec::new();
    for (number, len) in BIG.into_iter().enumerate() {
        let mut from = 0;
        while from < len {
            let part = (1 + random.below(40 * MIB)).min(len - from);
            parts.push(Download {
                name: format!("big-{number}"),
                range: Some((from, part)),
                to: format!("part-{number}-{from:012}"),
            });
            from += part;
        }
    }
    ground.download(&server, &parts);
    for number in 0..BIG.len() {
        let name = format!("big-{number}");
        let of_this = parts.iter().filter(|part| part.name == name);
        let got = hash(of_this.map(|part| ground.there(&part.to)));
        assert_eq!(got, ground.hash_here(&name), "{name}, put together");
    }

    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let big = 2 * BIG.into_iter().sum::<u64>();
    let sent = |by: &str| -> Option<u64> {
        let (before, _) = ended.stdout.split_once(&format!(" bytes by {by}"))?;
        before.split_whitespace().next_back()?.parse().ok()
    };
    let sent = sent("splice").unwrap_or(0) + sent("sendfile").unwrap_or(0);
    assert!(
        sent >= big,
        "{sent} bytes of {big} were not read: {ended:?}"
    );
}
