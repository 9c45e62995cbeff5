//! The rights that a confined worker lacks, tried by a real worker.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::AddAssign;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use underpass::{Piece, Policy};
use underpass_net::{
    Confine, Connection, ConnectionLimits, Error, Inherited, ListenerConfig, Protocol, Reach,
    ReadOutcome, Server as NetServer, ServerConfig, ShutdownPhase, WhileDraining, confine_as,
    start,
};
use underpass_testkit::WAIT_MAX;

/// Executes each line's command, on a worker's thread and then on one of its blocking threads, and
/// responds with both results.
#[derive(Clone)]
struct Obedient {
    root: Arc<OwnedFd>,
    how: Confine,
    /// The ABI of Landlock.
    abi: i32,
}

/// An empty summary.
struct Nothing;

impl AddAssign<&Nothing> for Nothing {
    fn add_assign(&mut self, _other: &Nothing) {}
}

impl Protocol for Obedient {
    type Worker = ();
    type Service = ();
    type Summary = Nothing;

    fn confine(&self) -> Result<(), Error> {
        let reach = Reach {
            readable: vec![self.root.as_fd()],
            ..Reach::default()
        };
        confine_as(&reach, self.how, self.abi).map(drop)
    }

    fn worker(&self) {}

    async fn serve_connection(_worker: Rc<()>, _service: (), mut stream: Connection) {
        stream.start_deadline(WAIT_MAX);
        loop {
            let end = stream.input().iter().position(|&byte| byte == b'\n');
            if let Some(end) = end {
                let line = String::from_utf8(stream.input()[..end].to_vec()).unwrap();
                stream.consume(end + 1);
                let here = reported(obey(&line));
                let there = tokio::task::spawn_blocking(move || reported(obey(&line)));
                let there = there.await.unwrap();
                let answer = format!("{here} {there}\n");
                stream.outbox().push(Piece::Bytes(answer.into_bytes()));
                stream.flush().await.unwrap();
            } else if !matches!(
                stream.fill(WhileDraining::Ends).await,
                Ok(ReadOutcome::Bytes(_))
            ) {
                return;
            }
        }
    }

    fn finish(_worker: &()) -> Nothing {
        Nothing
    }
}

fn reported(result: io::Result<()>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0)
}

fn obey(line: &str) -> io::Result<()> {
    let (what, on) = line.split_once(' ').unwrap();
    match what {
        "read" => fs::read(on).map(drop),
        "list" => fs::read_dir(on).map(drop),
        "write" => OpenOptions::new().write(true).open(on).map(drop),
        "ioctl" => {
            let device = OpenOptions::new().write(true).open(on)?;
            Ok(rustix::io::ioctl_fionread(device).map(drop)?)
        }
        "make" => File::create_new(on).map(drop),
        "remove" => fs::remove_file(on),
        "truncate" => Ok(nix::unistd::truncate(on, 0)?),
        "run" => {
            let mut child = Command::new(on).stdin(Stdio::null()).spawn()?;
            child.wait().map(drop)
        }
        "connect" => TcpStream::connect(on).map(drop),
        "listen" => TcpListener::bind(on).map(drop),
        "signal" => {
            let process = Pid::from_raw(on.parse().unwrap()).unwrap();
            Ok(kill_process(process, Signal::CONT)?)
        }
        _ => unreachable!("{what}"),
    }
}

/// A server of a folder, next to a file that no worker may read.
struct Server {
    running: Option<NetServer<Nothing>>,
    folder: tempfile::TempDir,
    lines: BufReader<TcpStream>,
}

impl Server {
    fn start(how: Confine) -> Server {
        Server::start_as(how, NEWEST).unwrap()
    }

    fn start_as(how: Confine, abi: i32) -> Result<Server, Error> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("inside"), "inside").unwrap();
        fs::write(folder.path().join("outside"), "outside").unwrap();
        symlink("../outside", root.join("link")).unwrap();
        fs::copy("/bin/true", root.join("program")).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let protocol = Obedient {
            root: Arc::new(rustix::fs::open(&root, flags, Mode::empty()).unwrap()),
            how,
            abi,
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let setup = ServerConfig {
            protocol,
            listeners: vec![ListenerConfig::new(any.into(), ())],
            workers: 1,
            policy: Policy::default(),
            limits: ConnectionLimits::default(),
        };
        let running = start(&setup, Inherited::default())?;
        let socket = TcpStream::connect(running.address().unwrap()).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        Ok(Server {
            running: Some(running),
            folder,
            lines: BufReader::new(socket),
        })
    }

    fn inside(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    /// Returns the results on the worker's thread and on a blocking thread: errors, 0 for none.
    fn ask(&mut self, what: &str, on: impl AsRef<Path>) -> [i32; 2] {
        let line = format!("{what} {}\n", on.as_ref().display());
        self.lines.get_mut().write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        self.lines.read_line(&mut answer).unwrap();
        let codes: Vec<i32> = answer
            .split_whitespace()
            .map(|code| code.parse().unwrap())
            .collect();
        codes.try_into().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown().advance(ShutdownPhase::Now);
            running.join();
        }
    }
}

const FINE: [i32; 2] = [0, 0];

/// The newest ABI of Landlock that these tests need.
const NEWEST: i32 = 6;

fn both(errno: Errno) -> [i32; 2] {
    [errno.raw_os_error(); 2]
}

#[test]
#[ignore = "needs Landlock of ABI 6; run by cargo xtask test"]
fn a_confined_worker_reads_beneath_its_root_and_nothing_else() {
    let mut server = Server::start(Confine::Required);
    let (inside, outside) = (
        server.inside("inside"),
        server.folder.path().join("outside"),
    );
    let (root, link) = (server.inside("."), server.inside("link"));
    assert_eq!(server.ask("read", &inside), FINE);
    assert_eq!(server.ask("list", &root), FINE);
    assert_eq!(server.ask("read", &outside), both(Errno::ACCESS));
    assert_eq!(server.ask("read", &link), both(Errno::ACCESS));
    assert_eq!(server.ask("read", "/etc/passwd"), both(Errno::ACCESS));
    assert_eq!(server.ask("read", "/proc/self/status"), both(Errno::ACCESS));
    assert_eq!(server.ask("list", "/"), both(Errno::ACCESS));
}

#[test]
#[ignore = "needs Landlock of ABI 6; run by cargo xtask test"]
fn a_confined_worker_changes_and_runs_nothing_not_even_beneath_its_root() {
    let mut server = Server::start(Confine::Required);
    let (inside, program) = (server.inside("inside"), server.inside("program"));
    let (new, outside) = (server.inside("new"), server.folder.path().join("outside"));
    for (what, on) in [
        ("write", &inside),
        ("remove", &inside),
        ("truncate", &inside),
        ("make", &new),
        ("write", &outside),
        ("truncate", &outside),
        ("run", &program),
    ] {
        assert_eq!(server.ask(what, on), both(Errno::ACCESS), "{what} {on:?}");
    }
    assert_eq!(server.ask("run", "/bin/true"), both(Errno::ACCESS));
    assert_eq!(fs::read(&inside).unwrap(), b"inside");
    // Cold files are read by sending them there.
    assert_eq!(server.ask("write", "/dev/null"), FINE);
}

#[test]
#[ignore = "needs Landlock of ABI 6; run by cargo xtask test"]
fn a_confined_worker_makes_no_connection_and_sends_no_signal() {
    let mut server = Server::start(Confine::Required);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(server.ask("connect", address), both(Errno::ACCESS));
    assert_eq!(server.ask("listen", "127.0.0.1:0"), both(Errno::ACCESS));
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let signalled = server.ask("signal", other.id().to_string());
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(signalled, both(Errno::PERM));
}

/// Tries the rights of a kernel of each ABI: older ones can deny fewer.
#[test]
#[ignore = "needs Landlock of ABI 6; run by cargo xtask test"]
fn a_worker_is_confined_as_far_as_each_abi_reaches_and_serves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for abi in 1..=NEWEST {
        let mut server = Server::start_as(Confine::Auto, abi).unwrap();
        let (inside, outside) = (
            server.inside("inside"),
            server.folder.path().join("outside"),
        );
        let (root, link, new) = (
            server.inside("."),
            server.inside("link"),
            server.inside("new"),
        );
        for (what, on) in [("read", &inside), ("list", &root)] {
            assert_eq!(server.ask(what, on), FINE, "{abi}: {what}");
        }
        assert_eq!(server.ask("write", "/dev/null"), FINE, "{abi}: cold files");
        for (what, on) in [
            ("read", &outside),
            ("read", &link),
            ("write", &inside),
            ("write", &outside),
            ("remove", &inside),
            ("make", &new),
        ] {
            assert_eq!(server.ask(what, on), both(Errno::ACCESS), "{abi}: {what}");
        }
        assert_eq!(server.ask("list", "/"), both(Errno::ACCESS), "{abi}");
        assert_eq!(server.ask("run", "/bin/true"), both(Errno::ACCESS), "{abi}");
        let since = |first: i32, errno| match abi >= first {
            true => both(errno),
            false => FINE,
        };
        let refused = since(3, Errno::ACCESS);
        assert_eq!(server.ask("truncate", &outside), refused, "{abi}");
        let refused = since(4, Errno::ACCESS);
        assert_eq!(server.ask("connect", &address), refused, "{abi}");
        let command = match abi {
            ..5 => both(Errno::NOTTY),
            _ => both(Errno::ACCESS),
        };
        assert_eq!(server.ask("ioctl", "/dev/null"), command, "{abi}");
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let signalled = server.ask("signal", other.id().to_string());
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(signalled, since(6, Errno::PERM), "{abi}");
    }
}

#[test]
#[ignore = "needs Landlock of ABI 6; run by cargo xtask test"]
fn confinement_that_is_required_covers_every_way_to_change_a_file() {
    for abi in 1..=NEWEST {
        let started = Server::start_as(Confine::Required, abi);
        let reported = started.map(drop).map_err(|error| error.to_string());
        match abi {
            ..3 => assert!(reported.unwrap_err().contains("ABI 3"), "{abi}"),
            _ => assert_eq!(reported, Ok(()), "{abi}"),
        }
    }
}

#[test]
#[ignore = "needs Landlock of ABI 6; run by cargo xtask test"]
fn the_main_thread_keeps_its_rights_and_a_stop_reaches_the_workers() {
    let server = Server::start(Confine::Required);
    assert!(fs::write(server.folder.path().join("outside"), "changed").is_ok());
    assert!(Command::new("/bin/true").status().unwrap().success());
    drop(server);
}

#[test]
#[ignore = "needs Landlock of ABI 6; run by cargo xtask test"]
fn without_confinement_the_same_worker_can_do_all_that() {
    let mut server = Server::start(Confine::Off);
    let (outside, link) = (server.folder.path().join("outside"), server.inside("link"));
    assert_eq!(server.ask("read", &outside), FINE);
    assert_eq!(server.ask("read", &link), FINE);
    assert_eq!(server.ask("write", &outside), FINE);
    assert_eq!(server.ask("run", "/bin/true"), FINE);
}
