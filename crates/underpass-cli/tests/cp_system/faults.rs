//! `cp` while system calls fail: each call that a copy makes, with the errnos it is known to
//! return, at its first, second and a later time, and permanently. Whatever happens, exit code 0
//! means a copy that is complete and correct, since the whole tree is compared; with `--atomic` no
//! incomplete file has the final name, and no other file is left; nothing hangs, nothing panics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use underpass_testkit::{ChildProcess, ExitReport, disk_folder, run, strace};

use crate::gnu::look::{Before, Entries, Entry, look, shown};
use crate::gnu::trees::{self, Content, Fill, Kind, Node, Piece, build};
use crate::support::{BINARY, run_faults};

/// The operand: calls count from the first one that names it.
const OPERAND: &str = "origin";

/// A system call, and the faults injected into it.
struct Call {
    /// Its names; a copy may make any of them.
    names: &'static [&'static str],
    faults: &'static [&'static str],
}

const fn call(names: &'static [&'static str], faults: &'static [&'static str]) -> Call {
    Call { names, faults }
}

const CALLS: [Call; 22] = [
    call(
        &["openat", "openat2"],
        &[
            "EACCES", "EMFILE", "ENFILE", "EINTR", "ELOOP", "ENOENT", "EIO", "ENOSPC", "ENOSYS",
        ],
    ),
    call(&["fstat"], &["EIO", "ENOMEM"]),
    call(
        &["newfstatat", "statx"],
        &["EIO", "EACCES", "ENOENT", "ENOMEM", "ENOSYS"],
    ),
    call(&["mkdirat"], &["EACCES", "EEXIST", "ENOSPC", "EROFS"]),
    call(&["getdents64"], &["EIO", "EACCES"]),
    call(&["readlinkat"], &["EIO", "EINVAL", "ENOENT"]),
    call(&["symlinkat"], &["EEXIST", "ENOSPC", "EPERM"]),
    call(
        &["linkat"],
        &["EEXIST", "EMLINK", "EPERM", "EXDEV", "ENOENT"],
    ),
    call(&["mknodat"], &["EEXIST", "EPERM", "ENOSPC"]),
    call(&["unlinkat"], &["EPERM", "EBUSY", "EACCES"]),
    call(
        &["fchmod", "fchmodat", "fchmodat2"],
        &["EPERM", "EIO", "EROFS"],
    ),
    call(&["fchown", "fchownat"], &["EPERM", "EIO", "EINVAL"]),
    call(&["utimensat"], &["EPERM", "EIO", "EACCES"]),
    call(
        &["fsetxattr", "lsetxattr", "setxattr"],
        &["ENOSPC", "EPERM", "EOPNOTSUPP", "E2BIG", "EIO", "ENOMEM"],
    ),
    call(
        &["fgetxattr", "lgetxattr", "getxattr"],
        &["EIO", "ENOMEM", "ERANGE", "EACCES"],
    ),
    call(
        &["flistxattr", "llistxattr", "listxattr"],
        &["EIO", "EOPNOTSUPP", "ERANGE", "EACCES", "ENOMEM"],
    ),
    call(
        &["renameat2", "renameat"],
        &["EXDEV", "EACCES", "EINVAL", "ENOSYS", "EEXIST", "EIO"],
    ),
    call(
        &["fsync", "fdatasync", "syncfs"],
        &["EIO", "ENOSPC", "EDQUOT"],
    ),
    call(
        &["copy_file_range", "sendfile"],
        &[
            "EXDEV", "EINVAL", "EIO", "ENOSPC", "EINTR", "ENOSYS", "EPERM", "ETXTBSY", "retval=0",
        ],
    ),
    call(
        &["ioctl"],
        &["EOPNOTSUPP", "EIO", "ENOSPC", "EXDEV", "EPERM"],
    ),
    call(&["lseek", "ftruncate"], &["EINVAL", "EIO", "EPERM"]),
    call(&["close"], &["EIO", "ENOSPC", "EDQUOT"]),
];

/// Makes one call fail, so that the fallbacks are used.
const NO_COPY_RANGE: &str = "inject=copy_file_range:error=EXDEV";

/// A variant of copying.
#[derive(Debug)]
struct Mode {
    options: &'static [&'static str],
    /// Whether the destination already exists, with other content.
    is_over: bool,
    without: &'static [&'static str],
}

const fn mode(options: &'static [&'static str], is_over: bool) -> Mode {
    Mode {
        options,
        is_over,
        without: &[],
    }
}

const MODES: [Mode; 10] = [
    mode(&["-a"], false),
    mode(&["-a"], true),
    mode(&["-a", "--atomic"], false),
    mode(&["-a", "--atomic", "--fsync"], true),
    mode(&["-a", "--verify"], false),
    mode(&["-a", "-b"], true),
    mode(&["-a", "--remove-destination"], true),
    mode(&["-r", "--preserve=all"], false),
    mode(&["-r", "-p", "--preserve=links,xattr", "--fsync"], false),
    Mode {
        options: &["-a"],
        is_over: false,
        without: &[NO_COPY_RANGE],
    },
];

impl Mode {
    fn has(&self, option: &str) -> bool {
        self.options.contains(&option)
    }
}

struct Case {
    mode: &'static Mode,
    call: String,
    /// `EIO`, or `retval=0`.
    fault: &'static str,
    /// As counted by strace: per thread, from 1; with a trailing `+`, that call and all later ones.
    when: String,
}

impl Case {
    fn injection(&self) -> String {
        let fault = match self.fault.starts_with('E') {
            true => format!("error={}", self.fault),
            false => self.fault.to_owned(),
        };
        format!("inject={}:{fault}:when={}", self.call, self.when)
    }

    /// Returns whether the run must fail once the fault was injected, which the tree does not show.
    fn must_fail(&self) -> bool {
        self.call.contains("sync") && self.mode.has("--fsync")
    }

    /// Returns whether a lost attribute is allowed. `-a` reports a file that loses one, but not
    /// where attributes are not supported or not permitted; `--preserve=all` also reports the
    /// latter. `is_named` says whether a message names the file.
    fn excuses(&self, word: &str, is_named: bool) -> bool {
        let is_reported = is_named || self.fault == "EOPNOTSUPP";
        let is_lost = LOSSES.contains(&self.fault);
        let is_tried = self.mode.has("-a") && !is_lost
            || (self.mode.has("-a") || self.mode.has("--preserve=all")) && is_reported;
        // A source without attributes loses none.
        let has_none = self.call.contains("listxattr") && self.fault == "EOPNOTSUPP";
        word.starts_with("xattr ") && self.call.contains("xattr") && (is_tried || has_none)
    }
}

/// Errors that lose something the destination could have had.
const LOSSES: [&str; 4] = ["EIO", "ENOMEM", "ENOSPC", "EDQUOT"];

#[test]
#[ignore = "needs root and strace; run by cargo xtask test"]
fn a_copy_is_complete_or_the_exit_code_is_not_0() {
    let ground = Ground::new();
    let (cases, absent) = cases(&ground);
    assert!(absent.is_empty(), "never called: {absent:?}");
    run_faults(&cases, |number, case| ground.run(number, case));
}

/// Regardless of the order in which a folder lists two names of one file.
#[test]
#[ignore = "needs root and strace; run by cargo xtask test"]
fn names_of_one_file_stay_that_or_the_exit_code_is_not_0() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("from")).expect("room");
    fs::write(path("from/one"), "content").expect("room");
    fs::hard_link(path("from/one"), path("from/two")).expect("room");
    let copy = |when: usize| {
        let injection = format!("inject=newfstatat:error=EIO:when={when}");
        let _ = fs::remove_dir_all(path("to"));
        let mut strace = strace(&path("log"), &["trace=newfstatat", &injection]);
        let cp = strace.args([BINARY, "cp", "-a", "-j", "1", "from", "to"]);
        run(cp.current_dir(folder.path()))
    };
    let mut reported = 0;
    let mut when = 1;
    loop {
        let done = copy(when);
        let came = fs::read_to_string(path("log")).expect("a log");
        if !came.contains("INJECTED") {
            break;
        }
        let links = fs::metadata(path("to/one")).map_or(0, |one| one.nlink());
        let is_same = links == 2;
        reported += usize::from(done.code != Some(0));
        assert!(is_same || done.code != Some(0), "{when}: {links} {done:?}");
        when += 1;
    }
    assert!(when > 3 && reported > 0, "{when} {reported}");
}

/// Network file systems report lost writes only when the file is closed.
#[test]
#[ignore = "needs root and strace; run by cargo xtask test"]
fn a_copy_whose_file_can_not_be_closed_has_failed() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    for (options, is_over) in [
        (&["-j", "1"][..], false),
        (&["-j", "1"], true),
        (&["-j", "1", "--atomic"], false),
        (&["-j", "1", "--atomic", "-b"], true),
        (&["-j", "1", "--atomic", "--resume"], true),
    ] {
        let copy = |when: usize| {
            let injection = format!("inject=close:error=ENOSPC:when={when}");
            fs::write(path("from"), "new").expect("room");
            let _ = fs::remove_file(path("to"));
            let _ = fs::remove_file(path("to~"));
            if is_over {
                fs::write(path("to"), "old").expect("room");
            }
            let mut strace = strace(&path("log"), &["trace=close", &injection]);
            let cp = strace
                .args([BINARY, "cp"])
                .args(options)
                .args(["from", "to"]);
            run(cp.current_dir(folder.path()))
        };
        let mut failed = 0;
        for when in 1.. {
            let report = copy(when);
            if !fs::read_to_string(path("log"))
                .expect("a log")
                .contains("INJECTED")
            {
                break;
            }
            if report.errors.contains("error while loading") {
                // The program has not started.
                continue;
            }
            let is_named = report
                .errors
                .contains("failed to close 'to': No space left on device");
            assert_eq!(
                report.code,
                Some(i32::from(is_named)),
                "{options:?}: {report:?}"
            );
            failed += usize::from(is_named);
            if is_named && options.contains(&"--atomic") {
                let old = fs::read_to_string(path("to")).ok();
                assert_eq!(old.as_deref(), is_over.then_some("old"), "{options:?}");
                assert!(!path("to~").exists(), "nothing was backed up");
            }
        }
        assert_eq!(failed, 1, "{options:?}, over {is_over}");
    }
}

/// A pipe's pages past the point of truncation read as zeros.
#[test]
#[ignore = "needs root and strace; run by cargo xtask test"]
fn a_source_that_is_cut_off_while_a_pipe_holds_it_is_an_error() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("from"), vec![7; 200_000]).expect("room");
    // The first call asks the kernel, the second fills the pipe.
    let slow = "inject=splice:delay_enter=1000000:when=3";
    let mut strace = strace(&path("log"), &["trace=splice", slow]);
    let cp = strace.args([BINARY, "cp", "--only=splice", "from", "to"]);
    let mut copying = ChildProcess::spawn(cp.current_dir(folder.path()));
    copying.until(|| fs::read_to_string(path("log")).is_ok_and(|log| log.contains("= 200000")));
    let source = fs::File::options().write(true).open(path("from"));
    source.and_then(|file| file.set_len(1000)).expect("shorter");
    let report = copying.end();
    let said =
        "'from' became shorter while it was copied (splice; to 'to'; 200000 bytes had moved)";
    report.assert_failed(1, &[said]);
}

/// They look complete: a user to whom only some are named would keep the others.
#[test]
#[ignore = "needs root and strace; run by cargo xtask test"]
fn complete_files_that_a_full_disk_does_not_keep_are_all_named() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("from")).expect("room");
    for number in 0..5 {
        fs::write(path("from").join(format!("f{number}")), "content").expect("room");
    }
    for (call, options, said) in [
        ("fsync", &["--fsync=file"][..], "failed to sync"),
        ("fsync", &["--fsync=file", "--verify"], "failed to sync"),
        ("fsync", &["--fsync=file", "--atomic"], "failed to sync"),
        ("utimensat", &["-p"], "preserving times for"),
        ("fchmod", &["-p"], "preserving permissions for"),
        (
            "syncfs",
            &["--fsync=end"],
            "failed to sync the file system of",
        ),
    ] {
        for error in ["ENOSPC", "EDQUOT"] {
            let _ = fs::remove_dir_all(path("to"));
            let injection = format!("inject={call}:error={error}");
            let mut strace = strace(&path("log"), &[&format!("trace={call}"), &injection]);
            let cp = strace.args([BINARY, "cp", "-rT", "-j1"]).args(options);
            let report = run(cp.args(["from", "to"]).current_dir(folder.path()));
            assert_eq!(report.code, Some(1), "{call} {options:?}: {report:?}");
            // Elsewhere GNU's messages quote names differently.
            let lines = report.errors.replace(['\u{2018}', '\u{2019}'], "'");
            for number in (0..5).filter(|_| call != "syncfs") {
                let name = format!("{said} 'to/f{number}': ");
                assert_eq!(lines.matches(&name).count(), 1, "{name}: {report:?}");
            }
            assert!(lines.contains(&format!("{said} 'to")), "{report:?}");
            assert!(
                report.errors.contains(&format!("({call}: {error})")),
                "{report:?}"
            );
        }
    }
}

/// Also with several workers, and only for that file.
#[test]
#[ignore = "needs root and strace; run by cargo xtask test"]
fn each_file_that_can_not_be_closed_is_named_by_several_workers() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let names: Vec<_> = (0..12)
        .map(|number| format!("{}/f{number}", number % 3))
        .collect();
    for (number, name) in names.iter().enumerate() {
        fs::create_dir_all(path("from").join(&name[..1])).expect("room");
        fs::write(path("from").join(name), vec![b'x'; number * 10_000]).expect("room");
    }
    for lost in &names {
        let _ = fs::remove_dir_all(path("to"));
        // Any worker may close it.
        let mut strace = strace(&path("log"), &["inject=close:error=EDQUOT"]);
        let lost = path("to").join(lost);
        let cp = strace.arg("--trace-path").arg(&lost);
        let cp = cp
            .args([BINARY, "cp", "-r", "-j4"])
            .args([path("from"), path("to")]);
        let report = run(cp);
        let closed = fs::read_to_string(path("log")).expect("a log");
        assert_eq!(closed.matches("(INJECTED)").count(), 1, "{closed}");
        let failed = "failed to close '";
        let said = format!("{failed}{}': Disk quota exceeded", lost.display());
        assert!(report.errors.contains(&said), "{report:?}");
        assert_eq!(report.errors.matches(failed).count(), 1, "{report:?}");
        assert_eq!(report.code, Some(1), "{report:?}");
        for (number, name) in names.iter().enumerate() {
            let copy = fs::metadata(path("to").join(name)).expect("a copy");
            assert_eq!(copy.len(), number as u64 * 10_000, "{name}");
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, injection) = (self.mode, self.injection());
        let over = if mode.is_over { "over" } else { "to nothing" };
        write!(
            f,
            "{:?} {:?} {over}: {injection}",
            mode.options, mode.without
        )
    }
}

/// Returns all cases, and the calls that no mode makes.
fn cases(ground: &Ground) -> (Vec<Case>, Vec<&'static [&'static str]>) {
    let mut cases = Vec::new();
    let mut absent: Vec<_> = CALLS.iter().map(|call| call.names).collect();
    for mode in &MODES {
        let counts = ground.counts(mode);
        for call in &CALLS {
            for name in call.names {
                let Some(&(before, after)) = counts.get(*name) else {
                    continue;
                };
                absent.retain(|names| names != &call.names);
                for fault in call.faults {
                    for when in whens(before, after) {
                        cases.push(Case {
                            mode,
                            call: (*name).to_owned(),
                            fault,
                            when,
                        });
                    }
                }
            }
        }
    }
    // A call that is always interrupted is retried for ever.
    cases.retain(|case| case.fault != "EINTR" || !case.when.ends_with('+'));
    // An early end is detected by reading once more, unless every call returns 0.
    cases.retain(|case| case.fault != "retval=0" || !case.when.ends_with('+'));
    (cases, absent)
}

/// Returns the first, the second, a middle and the last call, and all calls.
fn whens(before: usize, after: usize) -> Vec<String> {
    let chosen: BTreeSet<_> = [1, 2, after / 2, after].into_iter().collect();
    let chosen = chosen.into_iter().filter(|at| (1..=after).contains(at));
    let mut whens: Vec<_> = chosen.map(|at| (before + at).to_string()).collect();
    whens.push(format!("{}+", before + 1));
    whens
}

/// The source, and the folder for copies.
struct Ground {
    folder: tempfile::TempDir,
    source: Entries,
}

impl Ground {
    fn new() -> Self {
        let folder = disk_folder();
        build(&folder.path().join(OPERAND), &origin()).expect("a source");
        let source = look(&folder.path().join(OPERAND), &Before::default()).expect("a source");
        Self { folder, source }
    }

    /// Returns, for each call, how many precede the first use of the operand and how many follow,
    /// in the thread with the most calls.
    fn counts(&self, mode: &'static Mode) -> BTreeMap<String, (usize, usize)> {
        // With `?`, strace ignores a name that it doesn't know.
        let names = CALLS.iter().flat_map(|call| call.names);
        let names: Vec<_> = names.map(|name| format!("?{name}")).collect();
        let names = format!("trace={}", names.join(","));
        let place = self.place("counting", mode);
        let expressions = [&[&names[..]], mode.without].concat();
        let report = self.strace(&place, &expressions, mode);
        let log = fs::read_to_string(place.join("log")).expect("a log");
        report.expect("it does not hang").assert_success();
        let mut counts: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
        let mut has_begun = false;
        for line in log.lines() {
            has_begun |= line.contains(OPERAND);
            let Some((thread, rest)) = line.split_once(' ') else {
                continue;
            };
            let Some((name, _)) = rest.trim_start().split_once('(') else {
                continue;
            };
            let count = counts
                .entry((name.to_owned(), thread.to_owned()))
                .or_default();
            match has_begun {
                true => count.1 += 1,
                false => count.0 += 1,
            }
        }
        fs::remove_dir_all(place).expect("its own");
        let mut most: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for ((name, _), count) in counts.into_iter().filter(|(_, count)| count.1 > 0) {
            let known = most.entry(name).or_default();
            if count.1 > known.1 {
                *known = count;
            }
        }
        most
    }

    /// Runs a case; returns the failure, if any, and whether the fault was injected.
    fn run(&self, number: usize, case: &Case) -> (Option<String>, bool) {
        let place = self.place(&format!("case-{number}"), case.mode);
        let (trace, injection) = (format!("trace={}", case.call), case.injection());
        let expressions = [&[&trace[..]], case.mode.without, &[&injection]].concat();
        let report = self.strace(&place, &expressions, case.mode);
        let log = fs::read_to_string(place.join("log")).unwrap_or_default();
        let came = log.contains("(INJECTED)");
        let copy = look(&place.join("to"), &Before::default()).expect("a copy, or none");
        let wrong = self.judge(case, report.as_ref(), &copy, came);
        fs::remove_dir_all(place).expect("its own");
        (wrong.map(|wrong| format!("{wrong}\n    {report:?}")), came)
    }

    /// Makes a separate folder for a run, with the destination that the mode needs.
    fn place(&self, name: &str, mode: &Mode) -> PathBuf {
        let place = self.folder.path().join(name);
        fs::create_dir_all(place.join("to")).expect("room");
        if mode.is_over {
            let mut old = origin();
            old.retain(|node| matches!(node.kind, Kind::File(_) | Kind::Folder));
            for node in &mut old {
                node.times = [(5, 5), (6, 6)];
                node.xattrs.clear();
                if let Kind::File(content) = &mut node.kind {
                    *content = Content::plain(OLD_LEN, 200);
                }
            }
            build(&place.join("to").join(OPERAND), &old).expect("a destination");
        }
        place
    }

    /// Copies under strace; returns `None` if the copy hangs.
    fn strace(&self, place: &Path, expressions: &[&str], mode: &Mode) -> Option<ExitReport> {
        let mut strace = strace(&place.join("log"), expressions);
        let cp = strace.args([BINARY, "cp", "-j", "1"]).args(mode.options);
        let cp = cp.arg(OPERAND).arg(place.join("to"));
        ChildProcess::spawn(cp.current_dir(self.folder.path()).stdin(Stdio::null())).try_end()
    }

    fn judge(
        &self,
        case: &Case,
        report: Option<&ExitReport>,
        copy: &Entries,
        came: bool,
    ) -> Option<String> {
        let Some(ExitReport {
            code, errors: said, ..
        }) = report
        else {
            return Some("it hangs".to_owned());
        };
        if said.contains("panicked") {
            return Some("it panicked".to_owned());
        }
        let torn = case
            .mode
            .has("--atomic")
            .then(|| self.torn(case, copy))
            .flatten();
        match code {
            Some(0) if came && case.must_fail() => Some("exit code 0 after that".to_owned()),
            Some(0) => self.difference(case, said, copy).or(torn),
            Some(1) if said.is_empty() => Some("exit code 1, and nothing said".to_owned()),
            Some(1) => torn,
            _ => Some("another end".to_owned()),
        }
    }

    /// Returns a difference between source and copy that is not excused.
    fn difference(&self, case: &Case, said: &str, copy: &Entries) -> Option<String> {
        self.source.iter().find_map(|(path, source)| {
            let name = shown(path);
            let Some(copy) = copy.get(&below(path)) else {
                return Some(format!("exit code 0, and no {name}"));
            };
            let words: BTreeSet<_> = source.keys().chain(copy.keys()).collect();
            words
                .into_iter()
                .filter(|word| !["atime", "inode", "blocks"].contains(&word.as_str()))
                .find_map(|word| {
                    let states = [source, copy].map(|entry| state(entry, word));
                    let is_named = self.names_of(path).any(|name| is_named(said, name));
                    (states[0] != states[1] && !case.excuses(word, is_named)).then(|| {
                        format!(
                            "exit code 0, and {name}: {word} {:?}, not {:?}",
                            states[1], states[0]
                        )
                    })
                })
        })
    }

    /// Returns every name of the source's file that has this one.
    fn names_of<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let file = self.source.get(path).and_then(|entry| entry.get("links"));
        let others = self.source.iter();
        let others = others.filter(move |(_, it)| file.is_some() && it.get("links") == file);
        let others = others.map(|(other, _)| other.as_slice());
        others.chain([path])
    }

    /// Returns an incomplete file, or a name that the source doesn't have.
    fn torn(&self, case: &Case, copy: &Entries) -> Option<String> {
        copy.iter().find_map(|(path, copy)| {
            if path.is_empty() {
                return None;
            }
            let source = path
                .strip_prefix(OPERAND.as_bytes())
                .map(|rest| rest.strip_prefix(b"/").unwrap_or(rest))
                .and_then(|path| self.source.get(path));
            let Some(source) = source else {
                // If removal fails, a file is left.
                return (case.call != "unlinkat").then(|| format!("{} is left", shown(path)));
            };
            let is_old = case.mode.is_over && state(copy, "size") == OLD_LEN.to_string();
            let is_whole = state(copy, "content") == state(source, "content");
            (!is_old && !is_whole).then(|| format!("{} is torn", shown(path)))
        })
    }
}

const OLD_LEN: usize = 3_333;

fn below(path: &[u8]) -> Vec<u8> {
    trees::join(OPERAND.as_bytes(), path)
        .strip_suffix(b"/")
        .map_or_else(|| trees::join(OPERAND.as_bytes(), path), <[u8]>::to_vec)
}

/// Returns whether a message names this file of the source, or of the copy, in quotes.
fn is_named(said: &str, path: &[u8]) -> bool {
    let path = String::from_utf8_lossy(&below(path)).into_owned();
    let mut quoted = said.split('\'').skip(1).step_by(2);
    quoted.any(|name| name == path || name.ends_with(&format!("/{path}")))
}

/// Returns an attribute of an entry, with hard links named as in the copy.
fn state(entry: &Entry, word: &str) -> String {
    let state = entry.get(word).cloned().unwrap_or_default();
    state.replace(&format!("{OPERAND}/"), "")
}

/// Returns the source: every kind of file, every kind of metadata.
fn origin() -> Vec<Node> {
    let noise = |offset, len| Piece {
        offset,
        len,
        fill: Fill::Noise(7),
    };
    let sparse = Content {
        len: 600_000,
        pieces: vec![noise(65_536, 70_000), noise(400_000, 5)],
    };
    let xattrs = || vec![("user.colour", b"blue".to_vec())];
    let node = |path: &str, kind, mode, xattrs| Node {
        path: path.into(),
        kind,
        mode,
        owner: (1000, 7),
        times: [(1_000_000_000, 1), (1_000_000_001, 123_456_789)],
        xattrs,
    };
    vec![
        node("", Kind::Folder, 0o755, xattrs()),
        node(
            "plain",
            Kind::File(Content::plain(300_001, 1)),
            0o640,
            xattrs(),
        ),
        node("empty", Kind::File(Content::default()), 0o4755, Vec::new()),
        node("sparse", Kind::File(sparse), 0o444, Vec::new()),
        node("link", Kind::Symlink(b"plain".to_vec()), 0o777, Vec::new()),
        node("fifo", Kind::Fifo, 0o600, Vec::new()),
        node("locked", Kind::Folder, 0o555, Vec::new()),
        node(
            "locked/inside",
            Kind::File(Content::plain(5_000, 2)),
            0o600,
            xattrs(),
        ),
        node(
            "locked/second",
            Kind::HardLink(b"plain".to_vec()),
            0,
            Vec::new(),
        ),
        node("locked/deeper", Kind::Folder, 0o2700, Vec::new()),
        node(
            "locked/deeper/last",
            Kind::File(Content::plain(77, 3)),
            0o600,
            Vec::new(),
        ),
    ]
}
