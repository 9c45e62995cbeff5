//! Both ends of a move, with a thread at each: a feeder of the source, a collector of the sink.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::OptionalActions;
use underpass::{Account, Error, Kernel, Policy, Sink, Source, drive::blocking::Driver};

use underpass_testkit as testkit;

/// The kinds of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    File,
    Memory,
    Zero,
    Null,
    Terminal,
    Pipe,
    Tcp,
    Unix,
}

/// How an end reports that it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Blocking,
    Polling,
}

/// A source and the content it delivers.
pub(crate) struct Origin {
    pub(crate) fd: OwnedFd,
    pub(crate) content: Vec<u8>,
    /// The master side; once it is closed, a terminal drops its input.
    _computer: Option<OwnedFd>,
}

/// A sink, and the thread that receives its content at the other side.
pub(crate) struct Target {
    pub(crate) fd: OwnedFd,
    collected: Option<Receiver<Vec<u8>>>,
    made: Made,
}

/// Creates an empty file on a disk, without a name.
pub(crate) fn file() -> File {
    tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file")
}

/// Creates a file on a disk with this content.
pub(crate) fn file_of(content: &[u8]) -> File {
    let mut file = file();
    file.write_all(content).expect("room on the disk");
    file
}

/// Creates a file in memory.
pub(crate) fn memory() -> File {
    File::from(rustix::fs::memfd_create("underpass", MemfdFlags::CLOEXEC).expect("memory"))
}

/// Reads all of a file.
pub(crate) fn content_of(file: impl AsFd) -> Vec<u8> {
    let mut content = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match rustix::io::pread(&file, &mut buffer, content.len() as u64).expect("reads") {
            0 => return content,
            read => content.extend_from_slice(&buffer[..read]),
        }
    }
}

pub(crate) fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let one = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
    (one, listener.accept().expect("accepts").0)
}

pub(crate) fn unix() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("a pair")
}

/// Returns read end and write end.
pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).expect("a pipe")
}

/// Returns the master side and the terminal side, which changes no byte.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let computer = rustix::pty::openpt(flags).expect("a terminal");
    rustix::pty::unlockpt(&computer).expect("unlocks");
    let screen = rustix::pty::ioctl_tiocgptpeer(&computer, flags).expect("its other end");
    let mut modes = rustix::termios::tcgetattr(&screen).expect("modes");
    modes.make_raw();
    rustix::termios::tcsetattr(&screen, OptionalActions::Now, &modes).expect("raw");
    (computer, screen)
}

pub(crate) fn set_mode(fd: impl AsFd, mode: Mode) {
    let flags = rustix::fs::fcntl_getfl(&fd).expect("flags") - OFlags::NONBLOCK;
    let flags = match mode {
        Mode::Blocking => flags,
        Mode::Polling => flags | OFlags::NONBLOCK,
    };
    rustix::fs::fcntl_setfl(&fd, flags).expect("flags");
}

impl Origin {
    pub(crate) fn make(made: Made, mode: Mode, seed: u64, len: usize) -> Self {
        let content = match made {
            Made::Zero => vec![0; len],
            _ => testkit::content(seed, len),
        };
        let mut kept = None;
        let fd: OwnedFd = match made {
            Made::File => file_of(&content).into(),
            Made::Memory => {
                let mut memory = memory();
                memory.write_all(&content).expect("memory");
                memory.into()
            }
            Made::Zero => File::open("/dev/zero").expect("/dev/zero").into(),
            Made::Null => panic!("/dev/null has no content"),
            Made::Terminal => {
                let (computer, screen) = terminal();
                kept = Some(computer.try_clone().expect("a descriptor"));
                fed(screen, computer, &content)
            }
            Made::Pipe => {
                let (read, write) = pipe();
                fed(read, write, &content)
            }
            Made::Tcp => {
                let (one, other) = tcp();
                fed(one.into(), other.into(), &content)
            }
            Made::Unix => {
                let (one, other) = unix();
                fed(one.into(), other.into(), &content)
            }
        };
        set_mode(&fd, mode);
        Self {
            fd,
            content,
            _computer: kept,
        }
    }
}

/// Returns `end`, with a thread writing to its other side. The thread is not joined: if a move is
/// refused, it may never finish writing.
fn fed(end: OwnedFd, other: OwnedFd, content: &[u8]) -> OwnedFd {
    let content = content.to_vec();
    std::thread::spawn(move || File::from(other).write_all(&content));
    end
}

impl Target {
    pub(crate) fn make(made: Made, mode: Mode) -> Self {
        let (fd, other): (OwnedFd, Option<OwnedFd>) = match made {
            Made::File => (file().into(), None),
            Made::Memory => (memory().into(), None),
            Made::Null | Made::Zero => {
                let null = File::options().write(true).open("/dev/null");
                (null.expect("/dev/null").into(), None)
            }
            Made::Terminal => {
                let (computer, screen) = terminal();
                (screen, Some(computer))
            }
            Made::Pipe => {
                let (read, write) = pipe();
                (write, Some(read))
            }
            Made::Tcp => {
                let (one, other) = tcp();
                rustix::net::sockopt::set_socket_send_buffer_size(&one, 1).expect("a small buffer");
                (one.into(), Some(other.into()))
            }
            Made::Unix => {
                let (one, other) = unix();
                rustix::net::sockopt::set_socket_send_buffer_size(&one, 1).expect("a small buffer");
                (one.into(), Some(other.into()))
            }
        };
        set_mode(&fd, mode);
        let collected = other.map(collect);
        Self {
            fd,
            collected,
            made,
        }
    }

    /// Waits for `expected` bytes and returns all; `None` if nothing can be read back.
    ///
    /// Closing a terminal loses bytes that its other side has not read, so it is closed afterwards.
    pub(crate) fn arrived(self, expected: usize) -> Option<Vec<u8>> {
        if matches!(self.made, Made::Null | Made::Zero) {
            return None;
        }
        let Some(collected) = self.collected else {
            return Some(content_of(&self.fd));
        };
        let mut arrived = Vec::new();
        while arrived.len() < expected {
            match collected.recv_timeout(underpass_testkit::WAIT_MAX) {
                Ok(sip) => arrived.extend(sip),
                Err(_) => return Some(arrived),
            }
        }
        drop(self.fd);
        arrived.extend(collected.into_iter().flatten());
        Some(arrived)
    }
}

/// Reads more slowly than the mover: small pieces until the other side is closed, which a terminal
/// reports as an error.
fn collect(end: OwnedFd) -> Receiver<Vec<u8>> {
    let (sender, collected) = mpsc::channel();
    std::thread::spawn(move || {
        let mut end = File::from(end);
        let mut sip = [0; 7001];
        while let Ok(read @ 1..) = end.read(&mut sip) {
            let _ = sender.send(sip[..read].to_vec());
        }
    });
    collected
}

/// Moves exactly the origin's content.
pub(crate) fn move_all(
    origin: &Origin,
    target: &Target,
    policy: Policy,
) -> Result<Account, Box<Error>> {
    let source = Source::range(&origin.fd, 0, origin.content.len() as u64).expect("a source");
    let sink = Sink::new(&target.fd).expect("a sink");
    Driver::new(&Kernel::unprobed())
        .policy(policy)
        .run(&source, &sink)
        .map_err(Box::new)
}
