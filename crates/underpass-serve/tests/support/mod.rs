//! A server in this process and a client that sees every byte.

#![allow(dead_code, reason = "every test target uses its own part")]

pub(crate) mod digest;
pub(crate) mod rows;

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use underpass_net::Server as NetServer;
use underpass_serve::{ServeSummary, ServerOptions, SiteOptions, serve};

/// How long a client waits for a byte before the test has failed. Nothing is ever timed by it.
const HANG: Duration = Duration::from_secs(20);

/// The date of files whose date matters, and how HTTP writes it.
pub(crate) const DATE_SECONDS: u64 = 784_111_777;
pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// A server with a folder of its own.
pub(crate) struct Server {
    server: underpass_serve::FileServer,
    options: ServerOptions,
    root: TempDir,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(|_| {})
    }

    /// With options other than the usual: one worker, a free port.
    pub(crate) fn with(change: impl FnOnce(&mut ServerOptions)) -> Server {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("site");
        fs::create_dir(&site).unwrap();
        let mut options = ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            workers: NonZeroUsize::new(1),
            ..ServerOptions::of(site)
        };
        change(&mut options);
        let server = serve(&options).unwrap();
        Server {
            server,
            options,
            root,
        }
    }

    /// With a site as a configuration has it, but for its root.
    pub(crate) fn configured(site: &str) -> Server {
        let text = format!("[[site]]\n{site}");
        let site = ServerOptions::parse(&text).unwrap().sites.remove(0);
        Server::with(|options| {
            let root = std::mem::take(&mut options.sites[0].root);
            options.sites[0] = SiteOptions { root, ..site };
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.running().address().unwrap()
    }

    pub(crate) fn server(&self) -> &underpass_serve::FileServer {
        &self.server
    }

    /// What it was started with.
    pub(crate) fn options(&self) -> &ServerOptions {
        &self.options
    }

    pub(crate) fn running(&self) -> &NetServer<ServeSummary> {
        self.server.running()
    }

    /// The folder that is served.
    pub(crate) fn site(&self) -> std::path::PathBuf {
        self.root.path().join("site")
    }

    /// What lies beside the served folder and must never be seen.
    pub(crate) fn outside(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file of the site, old enough for its date to count.
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.site().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        make_old(&path);
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Sends one request on a connection of its own and returns the answer.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect();
        client.send(request);
        client.answer()
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    /// The same with fields of its own, one a line.
    pub(crate) fn get_with(&self, target: &str, fields: &str) -> Answer {
        self.ask(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"
        ))
    }

    pub(crate) fn stop(self) -> ServeSummary {
        self.server.running().shutdown().escalate();
        let mut summary = ServeSummary::default();
        for worker in self.server.running().join() {
            summary.add(&worker);
        }
        summary
    }
}

/// Gives a file the date [`DATE`].
pub(crate) fn make_old(path: &Path) {
    let date = UNIX_EPOCH + Duration::new(DATE_SECONDS, 123_456_789);
    let file = fs::File::open(path).unwrap();
    file.set_modified(date).unwrap();
    assert!(date < SystemTime::now());
}

/// Bytes in which every short run tells where it stands.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0u32..)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .take(length)
        .collect()
}

/// A client that reads exactly what an answer claims to have.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    unread: Vec<u8>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// What has become of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Open,
    Closed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Open => "open",
            State::Closed => "closed",
        })
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket.set_write_timeout(Some(HANG)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client {
            socket,
            unread: Vec::new(),
        }
    }

    /// One that comes from another address of this machine.
    pub(crate) fn connect_from(source: [u8; 4], address: SocketAddr) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        Client::by(socket, address)
    }

    /// One with a small receive buffer, so that what it does not read stays with the server.
    pub(crate) fn slow(address: SocketAddr) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        Client::by(socket, address)
    }

    fn by(socket: Socket, address: SocketAddr) -> Client {
        socket.connect(&address.into()).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(HANG)).unwrap();
        Client {
            socket,
            unread: Vec::new(),
        }
    }

    /// Waits until the server has reset the connection, without reading.
    pub(crate) fn await_reset(&self) {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::empty())];
        let hang = Timespec::try_from(HANG).unwrap();
        assert_eq!(poll(&mut wanted, Some(&hang)), Ok(1), "no reset");
        assert!(wanted[0].revents().contains(PollFlags::ERR));
    }

    /// Reads a head and leaves the body where it is.
    pub(crate) fn head(&mut self) -> Answer {
        self.try_answer("HEAD").unwrap()
    }

    /// Waits until so many bytes behind the head are there, and leaves them to be read.
    pub(crate) fn await_bytes(&mut self, count: usize) {
        while self.unread.len() < count {
            self.read_some().unwrap();
        }
    }

    /// Reads until the server ends it, well or badly.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.read_some().is_ok() {}
        std::mem::take(&mut self.unread)
    }

    /// The server may have closed already; then the answer is waiting.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.socket.write_all(bytes.as_ref());
    }

    /// Reads an answer to anything but HEAD.
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer("GET").expect("an answer")
    }

    /// Reads an answer, or learns that there is none.
    pub(crate) fn try_answer(&mut self, method: &str) -> io::Result<Answer> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            self.read_some()?;
        };
        let head = String::from_utf8_lossy(&self.unread[..end]).into_owned();
        self.unread.drain(..end);
        if !head.starts_with("HTTP/1.1 ") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut answer = Answer {
            status: head[9..12].parse().unwrap(),
            head,
            body: Vec::new(),
        };
        let bodiless = method == "HEAD" || matches!(answer.status, 100 | 204 | 304);
        if !bodiless {
            answer.body = match (
                answer.field("content-length"),
                answer.field("transfer-encoding"),
            ) {
                (Some(length), None) => self.read_exact(length.parse().unwrap())?,
                (None, Some("chunked")) => self.chunks()?,
                (None, None) => self.rest(),
                other => panic!("two framings: {other:?}"),
            };
        }
        Ok(answer)
    }

    pub(crate) fn read_exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            self.read_some()?;
        }
        let rest = self.unread.split_off(length);
        Ok(std::mem::replace(&mut self.unread, rest))
    }

    /// Reads a chunked body to its last chunk. One that ends before is an error.
    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk()? {
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads one chunk; nothing is the last one.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                break at + 2;
            }
            self.read_some()?;
        };
        let line = self.read_exact(end)?;
        let size = std::str::from_utf8(&line[..end - 2]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let mut chunk = self.read_exact(size + 2)?;
        assert_eq!(chunk.split_off(size), b"\r\n");
        Ok((size > 0).then_some(chunk))
    }

    /// Whether the server takes another request. What it sends before closing is an error.
    pub(crate) fn state(&mut self) -> State {
        self.send(b"GET /probe HTTP/1.1\r\nHost: a\r\n\r\n");
        match self.try_answer("GET") {
            Ok(answer) => {
                assert_eq!(answer.body, b"probe", "{answer:?}");
                State::Open
            }
            Err(error) => {
                assert_ne!(
                    error.kind(),
                    io::ErrorKind::WouldBlock,
                    "neither open nor closed"
                );
                assert!(self.unread.is_empty(), "{:?}", self.unread);
                State::Closed
            }
        }
    }

    /// As [`Client::state`] of a server that may do anything.
    pub(crate) fn outcome(&mut self) -> String {
        self.send(b"GET /probe HTTP/1.1\r\nHost: a\r\n\r\n");
        match self.try_answer("GET") {
            Ok(answer) if answer.body == b"probe" => State::Open.to_string(),
            Ok(answer) => format!("then {}", answer.status),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => "silent".into(),
            Err(_) => State::Closed.to_string(),
        }
    }

    fn read_some(&mut self) -> io::Result<()> {
        let mut buffer = [0; 64 << 10];
        match self.socket.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.unread.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }
}

impl Answer {
    /// The value of a field that stands at most once.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (named, value) = line.split_once(": ")?;
            named.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = values.next();
        assert_eq!(values.next(), None, "{name} stands twice: {}", self.head);
        value
    }
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
