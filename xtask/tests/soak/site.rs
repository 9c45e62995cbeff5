//! The served files, and every state that each of them has had.
//!
//! | kind | how it changes | what a body may be |
//! |---|---|---|
//! | page | a new one is renamed over it | a whole version |
//! | log | bytes are appended, and now and then it is cut short | so many bytes of one stream |
//! | guest | it is unlinked and comes again | the version, or 404 |
//!
//! A byte of a log depends only on its offset, so that a body sent while the log was cut short and
//! grew again is still a state it had, except for zeros: truncation clears the rest of the last
//! block of pages, which may be on its way to a client.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use underpass_testkit::SeededRandom;

pub(crate) const PAGES: u64 = 6;
pub(crate) const LOGS: u64 = 2;
const LOG_BYTES_MAX: usize = 3 << 20;

/// Sizes around the ones that are joined with the head, sent in one turn, and in several turns.
const PAGE_BYTES: [u64; 6] = [100, 7_000, 9_000, 200_000, 2_500_000, 6_000_000];

/// The interval between changes.
const PACE: Duration = Duration::from_millis(4);

#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
    /// The versions of each page, which differ in length.
    versions: Vec<Mutex<Vec<Version>>>,
    /// The bytes of which each log is a prefix.
    stream: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    seed: u64,
    bytes: usize,
}

/// A file of the site.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Name {
    Page(u64),
    Log(u64),
    Guest,
}

impl Name {
    pub(crate) fn path(self) -> String {
        match self {
            Name::Page(number) => format!("pages/{number}.html"),
            Name::Log(number) => format!("logs/{number}.log"),
            Name::Guest => "guest.txt".into(),
        }
    }
}

/// Returns whether a line is about a log.
pub(crate) fn is_log(line: &str) -> bool {
    line.contains("logs/")
}

impl Site {
    pub(crate) fn new(seed: u64) -> io::Result<Site> {
        let folder = tempfile::tempdir()?;
        for name in ["pages", "logs"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let site = Site {
            folder,
            versions: (0..PAGES).map(|_| Mutex::default()).collect(),
            stream: content(Version {
                seed,
                bytes: LOG_BYTES_MAX,
            }),
        };
        let mut random = SeededRandom::of_case(seed, 0);
        for number in 0..PAGES {
            site.publish(number, &mut random)?;
        }
        for number in 0..LOGS {
            fs::write(site.file(Name::Log(number)), &site.stream[..100_000])?;
        }
        fs::write(site.file(Name::Guest), GUEST)?;
        Ok(site)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, name: Name) -> std::path::PathBuf {
        self.folder.path().join(name.path())
    }

    /// Changes files until it is `over`. An error ends the process with its reason, since a load
    /// without changes would prove nothing.
    pub(crate) fn keep(&self, mut random: SeededRandom, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            if let Err(error) = self.change(&mut random) {
                eprintln!("error: the files can't be changed: {error}");
                std::process::exit(1);
            }
            std::thread::sleep(PACE);
        }
    }

    fn change(&self, random: &mut SeededRandom) -> io::Result<()> {
        let log = Name::Log(random.below(LOGS));
        match random.below(20) {
            0..=5 => {
                let number = random.below(PAGES);
                self.publish(number, random)
            }
            6 => {
                let file = OpenOptions::new().write(true).open(self.file(log))?;
                let length = file.metadata()?.len();
                file.set_len(length / (1 + random.below(8)))
            }
            7..=17 => self.append(log, random),
            18 => fs::remove_file(self.file(Name::Guest)).or_else(absent),
            _ => {
                let new = self.folder.path().join("guest.new");
                fs::write(&new, GUEST)?;
                fs::rename(new, self.file(Name::Guest))
            }
        }
    }

    /// Replaces a page by a new version.
    fn publish(&self, number: u64, random: &mut SeededRandom) -> io::Result<()> {
        let new = self.folder.path().join("page.new");
        let version = {
            let versions = self.versions[number as usize].lock();
            let mut versions = versions.expect("nobody panicked");
            let version = Version {
                seed: random.next_u64(),
                bytes: PAGE_BYTES[number as usize] as usize + versions.len(),
            };
            // Recorded before a client can see it.
            versions.push(version);
            version
        };
        fs::write(&new, content(version))?;
        fs::rename(new, self.file(Name::Page(number)))
    }

    fn append(&self, log: Name, random: &mut SeededRandom) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(self.file(log))?;
        let from = file.metadata()?.len() as usize;
        let count = 1 + random.below(60_000) as usize;
        let to = (from + count).min(LOG_BYTES_MAX);
        file.write_all(&self.stream[from.min(to)..to])
    }

    /// Returns whether a file of `size` ever had these bytes at `offset`.
    pub(crate) fn had(&self, name: Name, size: usize, offset: usize, bytes: &[u8]) -> bool {
        let is_part = |whole: &[u8]| whole.get(offset..offset + bytes.len()) == Some(bytes);
        match name {
            Name::Guest => size == GUEST.len() && is_part(GUEST),
            Name::Log(_) => {
                let whole = self.stream.get(..size).unwrap_or_default();
                let part = whole.get(offset..offset + bytes.len());
                part.is_some_and(|part| is_part_or_cleared(part, bytes))
            }
            Name::Page(number) => {
                let Ok(versions) = self.versions[number as usize].lock() else {
                    return false;
                };
                let version = versions
                    .iter()
                    .find(|version| version.bytes == size)
                    .copied();
                drop(versions);
                version.is_some_and(|version| is_part(&content(version)))
            }
        }
    }
}

fn is_part_or_cleared(part: &[u8], bytes: &[u8]) -> bool {
    part == bytes
        || part
            .iter()
            .zip(bytes)
            .all(|(had, come)| had == come || *come == 0)
}

const GUEST: &[u8] = b"somebody who comes and goes\n";

fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

fn content(version: Version) -> Vec<u8> {
    let mut random = SeededRandom::of_case(version.seed, version.bytes as u64);
    let mut content = Vec::with_capacity(version.bytes + 8);
    while content.len() < version.bytes {
        content.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    content.truncate(version.bytes);
    content
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn a_body_of_no_version_is_found_out() {
    let site = Site::new(7).expect("a site");
    let page = fs::read(site.file(Name::Page(1))).expect("a page");
    assert!(site.had(Name::Page(1), page.len(), 0, &page));
    assert!(site.had(Name::Page(1), page.len(), 10, &page[10..20]));
    assert!(!site.had(Name::Page(1), page.len(), 11, &page[10..20]));
    assert!(!site.had(Name::Page(1), page.len() - 1, 0, &page[1..]));
    let mut other = page.clone();
    other[5_000] ^= 1;
    assert!(!site.had(Name::Page(1), other.len(), 0, &other));
    site.publish(1, &mut SeededRandom::of_case(7, 7))
        .expect("another version");
    assert!(site.had(Name::Page(1), page.len(), 0, &page), "one it had");
}
