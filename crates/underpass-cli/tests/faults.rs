//! The real tool while system calls fail: every errno that moving bytes is known to meet, at the
//! probe, at the first real call, at a later one, and for good. What comes out is the right file
//! and exit code 0, or a line that names the paths and the errno, and exit code 1: never a wrong
//! file with exit code 0, never a hang, never a panic.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

/// Three calls of 8 MiB, the last one with an odd end.
const LEN: usize = (20 << 20) + 123;

const ERRNOS: [&str; 22] = [
    "EINTR",
    "EAGAIN",
    "ENOSYS",
    "EXDEV",
    "EINVAL",
    "EOPNOTSUPP",
    "EPERM",
    "EACCES",
    "EBADF",
    "ETXTBSY",
    "ENOENT",
    "EFBIG",
    "EOVERFLOW",
    "EIO",
    "ENOSPC",
    "EDQUOT",
    "ENOMEM",
    "ENOTTY",
    "ESPIPE",
    "EROFS",
    "EISDIR",
    "ENOBUFS",
];

/// Which of the calls of one kind: they are counted from 1, and the first one of all but ioctl is
/// the probe at the start.
const WHENS: [&str; 5] = ["1", "2", "3", "1+", "2+"];

/// A way of the bytes, and what it takes to have them go there.
#[derive(Clone, Copy, Debug)]
struct Route {
    /// The call that fails.
    call: &'static str,
    /// What the tool is told.
    arguments: &'static [&'static str],
    /// Calls that never work, so that the free choice comes to this one.
    without: &'static [&'static str],
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    File,
    Fifo,
}

const ROUTES: [Route; 9] = [
    route("ioctl", &[], &[], Source::File),
    route("copy_file_range", &[], &[], Source::File),
    route("sendfile", &[], &[NO_COPY_RANGE], Source::File),
    route("splice", &[], &[NO_COPY_RANGE, NO_SENDFILE], Source::File),
    route("splice", &[], &[], Source::Fifo),
    route("ioctl", &["--only", "clone"], &[], Source::File),
    route(
        "copy_file_range",
        &["--only", "copy_range"],
        &[],
        Source::File,
    ),
    route("sendfile", &["--only", "sendfile"], &[], Source::File),
    route("splice", &["--only", "splice"], &[], Source::File),
];

const NO_COPY_RANGE: &str = "inject=copy_file_range:error=EXDEV:when=2+";
const NO_SENDFILE: &str = "inject=sendfile:error=EINVAL:when=2+";

const fn route(
    call: &'static str,
    arguments: &'static [&'static str],
    without: &'static [&'static str],
    source: Source,
) -> Route {
    Route {
        call,
        arguments,
        without,
        source,
    }
}

#[derive(Clone, Debug)]
struct Case {
    route: Route,
    /// `error=EIO`, `retval=0`.
    fault: String,
    when: &'static str,
}

impl Case {
    /// Faults that no kernel shows, and that nobody could tell from the truth.
    fn is_unknowable(&self) -> bool {
        let persistent = self.when.ends_with('+');
        // A call that is interrupted is made again as often as it is interrupted.
        (self.fault == "error=EINTR" && persistent)
            // A stream says by 0 that it has ended.
            || (self.fault == "retval=0" && self.route.source == Source::Fifo)
    }
}

fn cases() -> Vec<Case> {
    let faults: Vec<String> = ERRNOS
        .iter()
        .map(|errno| format!("error={errno}"))
        .chain(["retval=0".to_owned()])
        .collect();
    let mut cases = Vec::new();
    for route in ROUTES {
        for fault in &faults {
            for when in WHENS {
                let fault = fault.clone();
                cases.push(Case { route, fault, when });
            }
        }
    }
    cases.retain(|case| !case.is_unknowable());
    cases
}

/// The source, and where copies go.
struct Ground {
    folder: tempfile::TempDir,
    source: PathBuf,
    content: Vec<u8>,
    hash: Vec<u8>,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let source = folder.path().join("source");
        let mut state = 1_u64;
        let mut content = Vec::with_capacity(LEN + 8);
        while content.len() < LEN {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            content.extend_from_slice(&(state | 0x0101_0101_0101_0101).to_le_bytes());
        }
        content.truncate(LEN);
        std::fs::write(&source, &content).expect("room");
        let hash = Sha256::digest(&content).to_vec();
        Self {
            folder,
            source,
            content,
            hash,
        }
    }

    /// Runs a case; what is wrong with it, if anything, and whether the fault came to pass.
    fn run(&self, number: usize, case: &Case) -> (Option<String>, bool) {
        let path = |kind: &str| self.folder.path().join(format!("{kind}-{number}"));
        let (sink, log) = (path("sink"), path("log"));
        let source = match case.route.source {
            Source::File => self.source.clone(),
            Source::Fifo => self.feed(path("fifo")),
        };
        let mut strace = Command::new("strace");
        strace.args(["-f", "--seccomp-bpf", "-o"]).arg(&log);
        strace.args(["-e", "trace=ioctl,copy_file_range,sendfile,splice"]);
        for without in case.route.without {
            strace.args(["-e", without]);
        }
        let fault = format!(
            "inject={}:{}:when={}",
            case.route.call, case.fault, case.when
        );
        strace.args(["-e", &fault]);
        strace.args([
            "timeout",
            "--signal=KILL",
            "20",
            env!("CARGO_BIN_EXE_underpass"),
            "cp",
        ]);
        strace.args(case.route.arguments).arg(&source).arg(&sink);
        let output = strace.output().expect("strace starts");
        let came = std::fs::read_to_string(&log).is_ok_and(|log| has_injected(&log, case));
        let wrong = self.judge(case, &source, &sink, &output);
        for path in [&sink, &log] {
            let _ = std::fs::remove_file(path);
        }
        (wrong, came)
    }

    /// A FIFO that the content comes out of.
    fn feed(&self, fifo: PathBuf) -> PathBuf {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).expect("a FIFO");
        let (path, content) = (fifo.clone(), self.content.clone());
        std::thread::spawn(move || {
            // Who reads may give up in the middle.
            let _ = File::options()
                .write(true)
                .open(path)
                .and_then(|mut fifo| fifo.write_all(&content));
        });
        fifo
    }

    fn judge(&self, case: &Case, source: &Path, sink: &Path, output: &Output) -> Option<String> {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let content = std::fs::read(sink).unwrap_or_default();
        let whole = Sha256::digest(&content).to_vec() == self.hash;
        match output.status.code() {
            Some(0) if whole => None,
            Some(0) => Some(format!("exit code 0, {} of {LEN} bytes", content.len())),
            Some(1) => complaint(case, source, sink, &said, &content)
                .or_else(|| {
                    let right = self.content.starts_with(&content);
                    (!right).then(|| "what was moved is not the source's".to_owned())
                })
                .map(|complaint| format!("{complaint}: {said}")),
            code => Some(format!("exit code {code:?}: {said}")),
        }
    }
}

/// What the line on standard error lacks.
fn complaint(
    case: &Case,
    source: &Path,
    sink: &Path,
    said: &str,
    content: &[u8],
) -> Option<String> {
    let lacks = |what: &str| (!said.contains(what)).then(|| format!("does not say {what}"));
    let errno = case.fault.strip_prefix("error=").unwrap_or("");
    let moved = format!("; {} bytes had moved", content.len());
    lacks(&source.display().to_string())
        .or_else(|| lacks(&sink.display().to_string()))
        .or_else(|| lacks(&moved))
        // A forced clone that was let through meets the file system's own answer.
        .or_else(|| lacks(errno).filter(|_| !said.contains("EOPNOTSUPP")))
        .or_else(|| (said.lines().count() != 1).then(|| "not one line".to_owned()))
}

fn has_injected(log: &str, case: &Case) -> bool {
    log.lines()
        .any(|line| line.contains(&format!("{}(", case.route.call)) && line.contains("(INJECTED)"))
}

#[test]
#[ignore = "needs strace; run by cargo xtask test"]
fn a_copy_comes_out_right_or_says_why_not() {
    let ground = Ground::new();
    let cases = cases();
    let (next, came) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut wrong = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(number) else {
                return wrong;
            };
            let (fault, injected) = ground.run(number, case);
            came.fetch_add(usize::from(injected), Ordering::Relaxed);
            wrong.extend(fault.map(|fault| format!("{case:?}\n    {fault}")));
        }
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        let wrong = workers.map(|worker| worker.join().expect("works"));
        wrong.into_iter().flatten().collect()
    });
    let (came, all) = (came.into_inner(), cases.len());
    println!("{all} cases, the fault came to pass in {came}");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(came * 2 > all, "most faults came to pass");
}
