//! Runs many cases with two programs, and reports the differences.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use underpass_testkit::{Cases, copy_program, in_parallel};

use super::cases::Case;
use super::compare::{Difference, compare, of_one};
use super::differences::{DIFFERENCES, Known, unexplained};
use super::gnu_version;
use super::look::{Entries, shown};
use super::run::{Outcome, Program, arguments, line, run};

/// Number of failures shown in full, unless `UNDERPASS_CP_SHOWN` sets another.
const SHOWN: usize = 20;

/// A folder for worlds, open to every user.
pub(crate) struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in(roomy()).expect("a folder");
        let anybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), anybody).expect("permissions");
        Self { folder }
    }

    /// The machine's, or the one that `UNDERPASS_GNU_CP` names.
    pub(crate) fn gnu() -> Program {
        let path = env::var_os("UNDERPASS_GNU_CP").unwrap_or("/usr/bin/cp".into());
        let folder = Path::new(&path).parent().expect("the path of a file");
        Program {
            folder: folder.to_owned(),
            first: Vec::new(),
            knows_jobs: false,
        }
    }

    /// Installs our cp under the name `cp`, executable by every user.
    pub(crate) fn ours(&self) -> Program {
        let folder = self.folder.path().join("bin");
        fs::create_dir(&folder).expect("a folder");
        let binary = Path::new(env!("CARGO_BIN_EXE_underpass"));
        let here = folder.join("underpass");
        if fs::hard_link(binary, &here).is_err() {
            copy_program(binary, &here);
        }
        symlink("underpass", folder.join("cp")).expect("a link");
        Program {
            folder,
            first: Vec::new(),
            knows_jobs: true,
        }
    }

    /// Installs a GNU cp that deletes its simple backups when it ends.
    pub(crate) fn without_backups(&self) -> Program {
        let folder = self.folder.path().join("without-backups");
        fs::create_dir(&folder).expect("a folder");
        let gnu = Self::gnu();
        let script = format!(
            "#!/bin/sh\n{} \"$@\"\nended=$?\n/usr/bin/find .. -name '*~' -delete\nexit $ended\n",
            gnu.folder.join("cp").display()
        );
        fs::write(folder.join("cp"), script).expect("room");
        let anybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.join("cp"), anybody).expect("permissions");
        Program { folder, ..gnu }
    }

    /// Plays cases, one per processor at a time; failures are sorted by number.
    pub(crate) fn play(&self, cases: &Cases, programs: [&Program; 2]) -> Played {
        let played = Mutex::new(Played::new(cases.seed));
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        in_parallel(workers, cases.numbers.clone(), |worker, number| {
            let folder = self.folder.path().join(format!("worker-{worker}"));
            fs::create_dir_all(&folder).expect("a folder");
            let one = play_one(&folder, cases.seed, number, programs);
            played.lock().expect("nobody failed").add(one);
        });
        let mut played = played.into_inner().expect("nobody failed");
        played.failures.sort_by_key(|failure| failure.case.number);
        played
    }
}

/// Returns a folder on a disk, if every user may write to it.
fn roomy() -> PathBuf {
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let is_open = |folder: &Path| {
        folder
            .metadata()
            .is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
    };
    match disk.ancestors().all(is_open) {
        true => disk.to_owned(),
        false => env::temp_dir(),
    }
}

fn play_one(folder: &Path, seed: u64, number: u64, programs: [&Program; 2]) -> One {
    let case = Case::of(seed, number);
    let [gnu, ours] = programs.map(|program| {
        run(folder, &case, program).unwrap_or_else(|error| panic!("case {number}: {error}"))
    });
    let differences = compare(&case, &gnu, &ours);
    let command = line(&arguments(&folder.join("world"), &case, programs[1]));
    One {
        case,
        command,
        gnu,
        ours,
        differences,
    }
}

struct One {
    case: Case,
    command: String,
    gnu: Outcome,
    ours: Outcome,
    differences: Vec<Difference>,
}

pub(crate) struct Failure {
    seed: u64,
    pub(crate) case: Case,
    command: String,
    pub(crate) differences: Vec<Difference>,
    outcomes: [Outcome; 2],
}

/// The results of all cases.
pub(crate) struct Played {
    seed: u64,
    version: (u32, u32),
    pub(crate) cases: usize,
    /// Cases that succeeded, and that hung, with GNU cp.
    pub(crate) succeeded: usize,
    pub(crate) hung: usize,
    pub(crate) failures: Vec<Failure>,
    /// Number of occurrences of each known difference.
    pub(crate) seen: Vec<usize>,
}

impl Played {
    fn new(seed: u64) -> Self {
        let seen = vec![0; DIFFERENCES.len()];
        Self {
            seed,
            version: gnu_version(),
            cases: 0,
            succeeded: 0,
            hung: 0,
            failures: Vec::new(),
            seen,
        }
    }

    fn add(&mut self, one: One) {
        self.cases += 1;
        self.succeeded += usize::from(one.gnu.end == "exit code 0");
        self.hung += usize::from(one.gnu.end == "it hung");
        let differences = unexplained(&one.case, one.differences, self.version, &mut self.seen);
        if !differences.is_empty() {
            self.failures.push(Failure {
                seed: self.seed,
                case: one.case,
                command: one.command,
                differences,
                outcomes: [one.gnu, one.ours],
            });
        }
    }

    /// The known differences of this version, and how often each was seen.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&'static Known, usize)> {
        let known = DIFFERENCES.iter().zip(self.seen.iter().copied());
        known.filter(|(known, _)| known.versions.contain(self.version))
    }

    /// Counts, and the first failures in full.
    pub(crate) fn report(&self) -> String {
        let mut report = format!(
            "{} cases (GNU cp: {} ended with 0, {} hung), {} differ",
            self.cases,
            self.succeeded,
            self.hung,
            self.failures.len()
        );
        for (known, seen) in self.known() {
            let _ = write!(report, "\n  known: {} ({seen} times)", known.name);
        }
        for (what, count) in self.counts() {
            let _ = write!(report, "\n  {count:5} {what}");
        }
        let shown = env::var("UNDERPASS_CP_SHOWN").ok();
        let shown = shown.and_then(|shown| shown.parse().ok()).unwrap_or(SHOWN);
        for failure in self.failures.iter().take(shown) {
            let _ = write!(report, "\n\n{failure}");
        }
        let rest = self.failures.iter().skip(shown);
        for failure in rest {
            let _ = write!(
                report,
                "\nalso case {}: {}",
                failure.case.number, failure.command
            );
        }
        report
    }

    /// Returns the number of cases for each kind of difference, the most frequent first.
    fn counts(&self) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for failure in &self.failures {
            let mut words: Vec<_> = failure.differences.iter().map(|one| &one.what).collect();
            words.sort_unstable();
            words.dedup();
            for word in words {
                *counts.entry(word.clone()).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let case = &self.case;
        writeln!(
            f,
            "case {}: as {:?}, umask {}",
            case.number, case.user, case.umask
        )?;
        writeln!(f, "  {}", self.command)?;
        for (name, value) in &case.environment {
            writeln!(f, "  {name}={value:?}")?;
        }
        if case.drawn.has("-i") {
            writeln!(f, "  answers {:?}", case.answers)?;
        }
        writeln!(
            f,
            "  again: UNDERPASS_CP_SEED={} UNDERPASS_CP_CASE={} cargo test -p underpass-cli \
             --test cp_system -- --ignored our_cp",
            self.seed, case.number
        )?;
        for difference in &self.differences {
            writeln!(f, "- {}", difference.to_string().replace('\n', "\n  "))?;
        }
        for (name, outcome) in ["GNU", "ours"].iter().zip(&self.outcomes) {
            writeln!(f, "  {name}: {}", outcome.end)?;
            for (word, said) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
                for line in String::from_utf8_lossy(said).lines() {
                    writeln!(f, "    {word}: {line}")?;
                }
            }
            list(f, &outcome.entries)?;
        }
        Ok(())
    }
}

fn list(f: &mut std::fmt::Formatter<'_>, entries: &Entries) -> std::fmt::Result {
    for (path, entry) in entries {
        writeln!(f, "    {}  {}", shown(path), of_one(entry))?;
    }
    Ok(())
}
