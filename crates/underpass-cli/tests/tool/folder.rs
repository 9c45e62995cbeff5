//! A realistic folder, with big files and hundreds of small ones, downloaded over many connections
//! at the same time, whole and in ranges.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write, empty};
use std::path::{Path, PathBuf};

use underpass_testkit::{SeededRandom, ServerProcess, content, disk_folder, sha256_reader};

use crate::support::{curl, text, underpass};

const MIB: u64 = 1 << 20;

/// Sizes of the big files, none of them round.
const BIG: [u64; 3] = [512 * MIB + 1, 300 * MIB - 4095, 200 * MIB + 77_777];

const SMALL_FILES: u64 = 400;

/// Writes a new file in which every block differs from the previous one.
fn write(random: &mut SeededRandom, path: &Path, len: u64) {
    let mut block = content(random.next_u64(), MIB);
    let (mut file, mut left) = (File::create(path).expect("a file"), len);
    while left > 0 {
        block.rotate_left(4093);
        let now = left.min(MIB);
        file.write_all(&block[..now as usize]).expect("room");
        left -= now;
    }
}

/// The folder that is served, and the one for downloads.
struct Ground {
    folder: tempfile::TempDir,
    names: Vec<String>,
}

impl Ground {
    fn new() -> Self {
        let folder = disk_folder();
        for name in ["here", "there"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let mut ground = Self {
            folder,
            names: Vec::new(),
        };
        let mut random = SeededRandom::new(1);
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

    fn add(&mut self, random: &mut SeededRandom, name: String, len: u64) {
        write(random, &self.here().join(&name), len);
        self.names.push(name);
    }

    fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    fn there(&self, name: &str) -> PathBuf {
        self.folder.path().join("there").join(name)
    }

    /// Runs curl once for all downloads, many at a time.
    fn download(&self, server: &ServerProcess, downloads: &[Download]) {
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
        curl(&["--config", text(&path)]).assert_success();
    }

    fn hash_here(&self, name: &str) -> (u64, String) {
        hash([self.here().join(name)])
    }
}

/// A file or range to fetch, and the name to store it under.
struct Download {
    name: String,
    range: Option<(u64, u64)>,
    to: String,
}

/// Hashes the concatenation of files; missing ones count as empty.
fn hash(files: impl IntoIterator<Item = PathBuf>) -> (u64, String) {
    let mut all: Box<dyn Read> = Box::new(empty());
    for file in files.into_iter().filter_map(|path| File::open(path).ok()) {
        all = Box::new(all.chain(file));
    }
    sha256_reader(all)
}

#[test]
#[ignore = "needs curl; run by cargo xtask test"]
fn a_folder_is_downloaded_whole_and_in_ranges_by_many_at_once() {
    let ground = Ground::new();
    let server = ServerProcess::serve(underpass(), &["--workers", "1"], &ground.here());

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

    let mut random = SeededRandom::new(2);
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
    ended.assert_success();
    let big = 2 * BIG.into_iter().sum::<u64>();
    let sent = |by: &str| -> Option<u64> {
        let (before, _) = ended.output.split_once(&format!(" bytes by {by}"))?;
        before.split_whitespace().next_back()?.parse().ok()
    };
    let sent = sent("splice").unwrap_or(0) + sent("sendfile").unwrap_or(0);
    assert!(
        sent >= big,
        "{sent} bytes of {big} were not read: {ended:?}"
    );
}
