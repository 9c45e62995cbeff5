//! The real tool while system calls fail: every errno that moving bytes is known to return, at the
//! probe, at the first real call, at a later one, and permanently. The result is the correct file
//! and exit code 0, or exit code 1 and a line with both paths, the errno and the number of bytes
//! moved: never a wrong file with exit code 0, never a hang, never a panic.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use underpass_testkit::{
    ChildProcess, ExitReport, ServerProcess, WAIT_MAX, content, disk_folder, sha256, strace,
};

use crate::support::{BINARY, curl, example, run_faults, text};

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

/// Errors handled by a fallback to another mechanism, or by a retry.
const SURVIVED: [&str; 14] = [
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
    "EOVERFLOW",
    "ENOTTY",
    "ESPIPE",
];

/// Errors after which nothing else may be tried.
const FINAL: [&str; 4] = ["ENOSPC", "EDQUOT", "ENOMEM", "EROFS"];

/// The invocations that fail, counted from 1; the first one is the probe at the start, or for ioctl
/// a query of the terminal.
const WHENS: [&str; 7] = ["1", "2", "3", "4", "1+", "2+", "3+"];

/// A mechanism for moving bytes, and the conditions under which it is used.
#[derive(Clone, Copy, Debug)]
struct Route {
    /// The call that fails.
    call: &'static str,
    /// The arguments of the tool.
    arguments: &'static [&'static str],
    /// Calls made to fail, so that the tool chooses this one.
    without: &'static [&'static str],
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    File,
    Fifo,
    Socket,
}

const ROUTES: [Route; 9] = [
    route("ioctl", &[], &[], Source::File),
    route("copy_file_range", &[], &[NO_SPLICE], Source::File),
    route("sendfile", &[], &[NO_COPY_RANGE, NO_SPLICE], Source::File),
    route("splice", &[], &[NO_COPY_RANGE], Source::File),
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

const SERVED: [Route; 2] = [
    route("splice", &[], &[], Source::File),
    route(
        "sendfile",
        &[],
        &["inject=splice:error=EINVAL"],
        Source::File,
    ),
];

/// In turns into the pipe and out of it: bytes inside the pipe exist nowhere else.
const RECEIVED: [Route; 1] = [route("splice", &[], &[], Source::Socket)];

const NO_COPY_RANGE: &str = "inject=copy_file_range:error=EXDEV:when=2+";
const NO_SPLICE: &str = "inject=splice:error=EINVAL:when=2+";

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
    /// `error=EIO` or `retval=0`.
    fault: String,
    when: &'static str,
}

impl Case {
    /// Returns the fault in strace's notation.
    fn injection(&self) -> String {
        let Self { route, fault, when } = self;
        format!("inject={}:{fault}:when={when}", route.call)
    }

    /// Returns whether the result must be right.
    fn is_survived(&self) -> bool {
        let errno = self.fault.strip_prefix("error=");
        self.route.arguments.is_empty()
            && match errno {
                Some(errno) => SURVIVED.contains(&errno),
                // A clone that shares nothing leaves an empty file, and is reported.
                None => self.route.call != "ioctl",
            }
    }

    /// Returns whether the run must fail once the fault was injected. Probes may fail in any way.
    fn is_final(&self) -> bool {
        let errno = self.fault.strip_prefix("error=");
        !self.when.starts_with('1') && errno.is_some_and(|errno| FINAL.contains(&errno))
    }

    /// Returns an objection to the outcome, if any.
    fn judge(&self, succeeded: bool, came: bool) -> Option<String> {
        match succeeded {
            true if came && self.is_final() => Some("went on after a final fault".to_owned()),
            false if self.is_survived() => Some("could have gone on".to_owned()),
            _ => None,
        }
    }

    fn may_end(&self) -> bool {
        match self.route.source {
            Source::File => false,
            Source::Fifo => true,
            Source::Socket => self.when != "3",
        }
    }

    /// Returns whether no kernel shows this fault and it looks like a correct result.
    fn is_unknowable(&self) -> bool {
        let persistent = self.when.ends_with('+');
        // An interrupted call is repeated for as long as it is interrupted.
        (self.fault == "error=EINTR" && persistent)
            // A stream ends with 0; the third call is in the other direction.
            || (self.fault == "retval=0" && self.may_end())
            // A file is cloned by one call.
            || (self.route.call == "ioctl" && self.when > "2+")
    }
}

fn cases(routes: &[Route]) -> Vec<Case> {
    let faults: Vec<String> = ERRNOS
        .iter()
        .map(|errno| format!("error={errno}"))
        .chain(["retval=0".to_owned()])
        .collect();
    let mut cases = Vec::new();
    for &route in routes {
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

/// The source, and the folder for copies.
struct Ground {
    folder: tempfile::TempDir,
    source: PathBuf,
    content: Vec<u8>,
    hash: String,
}

impl Ground {
    fn new(len: usize) -> Self {
        let folder = disk_folder();
        let source = folder.path().join("source");
        let content = content(1, len);
        std::fs::write(&source, &content).expect("room");
        let hash = sha256(&content);
        Self {
            folder,
            source,
            content,
            hash,
        }
    }

    /// Runs a case; returns the failure, if any, and whether the fault was injected.
    fn run(&self, number: usize, case: &Case) -> (Option<String>, bool) {
        let path = |kind: &str| self.folder.path().join(format!("{kind}-{number}"));
        let (sink, log) = (path("sink"), path("log"));
        let source = match case.route.source {
            Source::File => self.source.clone(),
            Source::Fifo | Source::Socket => self.feed(path("fifo")),
        };
        let injection = case.injection();
        let expressions = [
            &["trace=ioctl,copy_file_range,sendfile,splice"],
            case.route.without,
        ];
        let expressions = [&expressions.concat()[..], &[&injection]].concat();
        let mut strace = strace(&log, &expressions);
        let cp = strace.args([BINARY, "cp"]).args(case.route.arguments);
        let report = ChildProcess::spawn(cp.arg(&source).arg(&sink)).try_end();
        let came = std::fs::read_to_string(&log).is_ok_and(|log| has_injected(&log, case));
        let wrong = self
            .judge(case, &source, &sink, report.as_ref())
            .or_else(|| case.judge(report.is_some_and(|report| report.code == Some(0)), came));
        for path in [&sink, &log] {
            let _ = std::fs::remove_file(path);
        }
        (wrong, came)
    }

    /// Serves a download while a call fails; returns the same as `run`.
    fn serve(&self, number: usize, case: &Case) -> (Option<String>, bool) {
        let path = |kind: &str| self.folder.path().join(format!("{kind}-{number}"));
        let (got, log) = (path("got"), path("log"));
        let injection = case.injection();
        let expressions = [&["trace=sendfile,splice", &injection], case.route.without].concat();
        let mut tool = strace(&log, &expressions);
        tool.arg(BINARY);
        let server = ServerProcess::serve(tool, &["--workers", "1"], self.folder.path());
        let code = curl(&["-o", text(&got), &server.url("source")]).code;
        let whole = std::fs::read(&got).is_ok_and(|got| sha256(got) == self.hash);
        let small = curl(&[&server.url("small")]).output;
        let ended = server.stop();
        let wrong = match code {
            Some(0) if !whole => Some("a wrong file that curl takes for right".to_owned()),
            // Partial file, empty reply, failure while receiving.
            Some(0 | 18 | 52 | 56) => None,
            code => Some(format!("curl ended with {code:?}")),
        };
        let came = std::fs::read_to_string(&log).is_ok_and(|log| has_injected(&log, case));
        let wrong = wrong
            .or_else(|| case.judge(code == Some(0), came))
            .or_else(|| (small != "a small one").then(|| "serves nobody any more".to_owned()))
            .or_else(|| (ended.code != Some(0)).then(|| format!("{ended:?}")));
        for path in [&got, &log] {
            let _ = std::fs::remove_file(path);
        }
        (wrong, came)
    }

    /// Receives from a socket while a call fails; returns the same as `run`.
    fn receive(&self, number: usize, case: &Case) -> (Option<String>, bool) {
        let path = |kind: &str| self.folder.path().join(format!("{kind}-{number}"));
        let (got, log) = (path("got"), path("log"));
        let mut strace = strace(&log, &["trace=splice", &case.injection()]);
        let receiver = strace.arg(example("recv_to_file"));
        let receiver = ChildProcess::spawn(receiver.args(["127.0.0.1:0", text(&got)]));
        let address = receiver.hear(":");
        let mut socket = TcpStream::connect(address).expect("connects");
        socket.set_write_timeout(Some(WAIT_MAX)).expect("an option");
        // The receiver may give up in the middle.
        let _ = socket.write_all(&self.content);
        drop(socket);
        let Some(report) = receiver.try_end() else {
            return (Some("it hangs".to_owned()), true);
        };
        let content = std::fs::read(&got).unwrap_or_default();
        let whole = sha256(&content) == self.hash;
        let wrong = match report.code {
            Some(0) if !whole => Some(format!("exit code 0, {} bytes", content.len())),
            Some(1) if !self.content.starts_with(&content) => Some("wrong bytes".to_owned()),
            Some(0 | 1) => None,
            code => Some(format!("exit code {code:?}")),
        };
        let came = std::fs::read_to_string(&log).is_ok_and(|log| has_injected(&log, case));
        let wrong = wrong.or_else(|| case.judge(report.code == Some(0), came));
        for path in [&got, &log] {
            let _ = std::fs::remove_file(path);
        }
        (
            wrong.map(|wrong| format!("{wrong}: {}", report.errors)),
            came,
        )
    }

    /// Makes a FIFO that yields the content.
    fn feed(&self, fifo: PathBuf) -> PathBuf {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).expect("a FIFO");
        let (path, content) = (fifo.clone(), self.content.clone());
        std::thread::spawn(move || {
            // The reader may give up in the middle.
            let _ = File::options()
                .write(true)
                .open(path)
                .and_then(|mut fifo| fifo.write_all(&content));
        });
        fifo
    }

    fn judge(
        &self,
        case: &Case,
        source: &Path,
        sink: &Path,
        report: Option<&ExitReport>,
    ) -> Option<String> {
        let Some(ExitReport {
            code, errors: said, ..
        }) = report
        else {
            return Some("it hangs".to_owned());
        };
        let content = std::fs::read(sink).unwrap_or_default();
        let whole = sha256(&content) == self.hash;
        match code {
            Some(0) if whole => None,
            Some(0) => Some(format!("exit code 0, {} of {LEN} bytes", content.len())),
            Some(1) => complaint(case, source, sink, said)
                .or_else(|| miscount(sink, said))
                .or_else(|| {
                    let right = self.content.starts_with(&content);
                    (!right).then(|| "what was moved is not the source's".to_owned())
                })
                .map(|complaint| format!("{complaint}: {said}")),
            code => Some(format!("exit code {code:?}: {said}")),
        }
    }
}

/// Returns an element missing from the error message: both paths, the bytes moved, the errno.
fn complaint(case: &Case, source: &Path, sink: &Path, said: &str) -> Option<String> {
    let lacks = |what: &str| (!said.contains(what)).then(|| format!("does not say {what}"));
    let errno = case.fault.strip_prefix("error=").unwrap_or("");
    // If the disk was full from the start, no part of the copy is left.
    let is_removed = ["ENOSPC", "EDQUOT"].contains(&errno) && !sink.exists();
    lacks(&source.display().to_string())
        .or_else(|| lacks(&sink.display().to_string()))
        .or_else(|| lacks(" bytes had moved)").filter(|_| !is_removed))
        // A forced clone without an injected fault gets the file system's own error.
        .or_else(|| lacks(errno).filter(|_| !said.contains("EOPNOTSUPP")))
        .or_else(|| (said.lines().count() != 1).then(|| "not one line".to_owned()))
}

/// Compares the reported number of bytes with the file. If the rejected copy left no file, it only
/// checks that the number is a multiple of the page size and less than the total.
fn miscount(sink: &Path, said: &str) -> Option<String> {
    let (before, _) = said.split_once(" bytes had moved")?;
    let reported: Option<u64> = before.rsplit(' ').next()?.parse().ok();
    let right = match (reported, std::fs::metadata(sink)) {
        (Some(reported), Ok(there)) => there.len() == reported,
        (Some(reported), Err(_)) => reported < LEN as u64 && reported % 4096 == 0,
        (None, _) => false,
    };
    (!right).then(|| "reports another number of bytes than are there".to_owned())
}

fn has_injected(log: &str, case: &Case) -> bool {
    let call = match case.route.call {
        "ioctl" => "FICLONE",
        call => call,
    };
    log.lines()
        .any(|line| line.contains(call) && line.contains("(INJECTED)"))
}

#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn a_copy_is_right_or_its_error_is_reported() {
    let ground = Ground::new(LEN);
    run_faults(&cases(&ROUTES), |number, case| ground.run(number, case));
}

/// A client gets the whole file, or a connection that ends early; the next client is served
/// normally.
#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn a_download_comes_out_right_or_breaks_off() {
    let ground = Ground::new(6 << 20);
    std::fs::write(ground.folder.path().join("small"), "a small one").expect("room");
    let mut cases = cases(&SERVED);
    // A socket that always had room gives no sign that it has room again.
    cases.retain(|case| case.fault != "error=EAGAIN");
    run_faults(&cases, |number, case| ground.serve(number, case));
}

/// Bytes taken from a socket and still in the pipe can't be read again.
#[test]
#[ignore = "needs strace and curl; run by cargo xtask test"]
fn what_is_received_is_right_or_its_error_is_reported() {
    let ground = Ground::new(6 << 20);
    let mut cases = cases(&RECEIVED);
    // On a blocking socket it means a timeout.
    cases.retain(|case| case.fault != "error=EAGAIN");
    run_faults(&cases, |number, case| ground.receive(number, case));
}
