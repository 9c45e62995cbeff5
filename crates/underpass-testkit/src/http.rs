//! An HTTP client that reads exactly the announced length of a response.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::{WAIT_MAX, sha256};

/// A connection, and the bytes that were read ahead. Requests can be sent in parts and without
/// waiting for their responses.
#[derive(Debug)]
pub struct HttpClient<S = TcpStream> {
    /// The underlying stream, to be read only by the client.
    pub socket: S,
    unread: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The status line and the fields, including the empty line after them.
    pub head: String,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl HttpClient {
    /// Connects; every read and write is bounded by [`WAIT_MAX`].
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::bounded(TcpStream::connect(address).expect("connects"))
    }

    /// Connects from another address of this machine.
    #[track_caller]
    pub fn connect_from(source: [u8; 4], address: SocketAddr) -> Self {
        let socket = unconnected();
        bind(&socket, &SocketAddr::from((source, 0))).expect("an address of this machine");
        connect(&socket, &address).expect("connects");
        Self::bounded(socket.into())
    }

    /// Connects with a small receive buffer, so that unread bytes stay with the server.
    #[track_caller]
    pub fn connect_slow(address: SocketAddr) -> Self {
        let socket = unconnected();
        set_socket_recv_buffer_size(&socket, 64 << 10).expect("a size");
        connect(&socket, &address).expect("connects");
        Self::bounded(socket.into())
    }

    fn bounded(socket: TcpStream) -> Self {
        let limited = socket
            .set_read_timeout(Some(WAIT_MAX))
            .and_then(|()| socket.set_write_timeout(Some(WAIT_MAX)))
            .and_then(|()| socket.set_nodelay(true));
        limited.expect("options of a socket");
        Self::over(socket)
    }

    /// Waits until the server has reset the connection, without reading.
    #[track_caller]
    pub fn await_reset(&self) {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::empty())];
        let limit = Timespec::try_from(WAIT_MAX).expect("a minute");
        assert_eq!(poll(&mut wanted, Some(&limit)), Ok(1), "no reset");
        assert!(wanted[0].revents().contains(PollFlags::ERR));
    }
}

/// Creates a socket that a process started meanwhile does not inherit.
fn unconnected() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket")
}

impl HttpClient<UnixStream> {
    /// Connects to a Unix socket; every read and write is bounded by [`WAIT_MAX`].
    #[track_caller]
    pub fn connect_unix(path: &Path) -> Self {
        let socket = UnixStream::connect(path).expect("connects");
        let limited = socket
            .set_read_timeout(Some(WAIT_MAX))
            .and_then(|()| socket.set_write_timeout(Some(WAIT_MAX)));
        limited.expect("options of a socket");
        Self::over(socket)
    }
}

impl<S: Read + Write> HttpClient<S> {
    /// Wraps any stream.
    pub fn over(socket: S) -> Self {
        let unread = Vec::new();
        Self { socket, unread }
    }

    /// Sends bytes. The server may have closed the connection; its response can still be read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _may_be_closed = self.socket.write_all(bytes.as_ref());
    }

    /// Sends a GET.
    pub fn ask(&mut self, target: &str) {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }

    /// Sends a GET and reads the response.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> HttpResponse {
        self.ask(target);
        self.response()
    }

    /// Sends a HEAD and reads the response.
    #[track_caller]
    pub fn ask_head(&mut self, target: &str) -> HttpResponse {
        self.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.head()
    }

    /// Reads a response to anything but HEAD.
    #[track_caller]
    pub fn response(&mut self) -> HttpResponse {
        self.try_response("GET").expect("a response")
    }

    /// Reads a head, and leaves a body unread.
    #[track_caller]
    pub fn head(&mut self) -> HttpResponse {
        self.try_response("HEAD").expect("a head")
    }

    /// Reads a response to a request of that method: to its length, its last chunk, or the end of
    /// the connection.
    ///
    /// # Errors
    ///
    /// Those of the connection, `UnexpectedEof` if it ends too soon, `InvalidData` for a response
    /// that is not HTTP.
    pub fn try_response(&mut self, method: &str) -> io::Result<HttpResponse> {
        let end = self.position(b"\r\n\r\n")? + 4;
        let head = self.read_exact(end)?;
        let head = String::from_utf8_lossy(&head).into_owned();
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        let status = status.and_then(|status| status.parse().ok());
        let mut response = HttpResponse {
            status: status.ok_or(io::ErrorKind::InvalidData)?,
            head,
            body: Vec::new(),
        };
        if method != "HEAD" && !matches!(response.status, 100 | 204 | 304) {
            response.body = self.body(&response)?;
        }
        Ok(response)
    }

    fn body(&mut self, response: &HttpResponse) -> io::Result<Vec<u8>> {
        let length = response.field("content-length");
        match (length, response.field("transfer-encoding")) {
            (Some(_), None) => self.read_exact(response.length()?),
            (None, Some("chunked")) => {
                let mut body = Vec::new();
                while let Some(chunk) = self.chunk()? {
                    body.extend_from_slice(&chunk);
                }
                Ok(body)
            }
            (None, None) => self.read_to_end(),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Reads one chunk; `None` for the last one.
    ///
    /// # Errors
    ///
    /// As those of [`HttpClient::try_response`].
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = self.position(b"\r\n")?;
        let line = self.read_exact(end + 2)?;
        let size = std::str::from_utf8(&line[..end]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.ok_or(io::ErrorKind::InvalidData)?;
        let mut chunk = self.read_exact(size + 2)?;
        match chunk.split_off(size) == b"\r\n" {
            true => Ok((size > 0).then_some(chunk)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Reads exactly `length` bytes, without framing.
    ///
    /// # Errors
    ///
    /// Those of the connection, and `UnexpectedEof` if it ends too soon.
    pub fn read_exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            self.read_some()?;
        }
        let rest = self.unread.split_off(length);
        Ok(std::mem::replace(&mut self.unread, rest))
    }

    /// Waits until `count` bytes have arrived, and leaves them unread.
    #[track_caller]
    pub fn await_bytes(&mut self, count: usize) {
        while self.unread.len() < count {
            self.read_some().expect("more bytes");
        }
    }

    /// Reads until the server closes the connection properly.
    ///
    /// # Errors
    ///
    /// Those of the connection: a reset, no end within [`WAIT_MAX`].
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.read_some() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(std::mem::take(&mut self.unread));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until the connection ends, properly or not.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.read_some().is_ok() {}
        std::mem::take(&mut self.unread)
    }

    /// Checks that the server closes the connection without sending anything.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        let rest = self.read_to_end().expect("an end");
        assert!(rest.is_empty(), "{}", rest.escape_ascii());
    }

    fn position(&mut self, end: &[u8]) -> io::Result<usize> {
        loop {
            let mut windows = self.unread.windows(end.len());
            match windows.position(|window| window == end) {
                Some(at) => return Ok(at),
                None => self.read_some()?,
            }
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

impl HttpResponse {
    /// Returns the value of a field that occurs at most once.
    ///
    /// # Panics
    ///
    /// Panics if it occurs twice.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (named, value) = line.split_once(": ")?;
            named.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = values.next();
        assert_eq!(values.next(), None, "{name} stands twice: {}", self.head);
        value
    }

    /// Returns the length that the head announces.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it announces none.
    pub fn length(&self) -> io::Result<usize> {
        let length = self.field("content-length");
        let length = length.and_then(|length| length.parse().ok());
        length.ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Returns whether the server closes the connection after this response.
    pub fn is_last(&self) -> bool {
        self.field("connection") == Some("close")
    }

    /// Returns the SHA-256 of the body.
    pub fn sha256(&self) -> String {
        sha256(&self.body)
    }

    /// Returns the body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A scripted server whose response arrives a few bytes at a time.
    struct Script(Cursor<Vec<u8>>);

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(5);
            self.0.read(&mut buffer[..most])
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(said: &str) -> HttpClient<Script> {
        HttpClient::over(Script(Cursor::new(said.into())))
    }

    #[test]
    fn bodies_are_read_by_length_by_chunks_and_to_the_end() {
        let mut client = client(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
             HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n\
             HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nab\r\na\r\n0123456789\r\n0\r\n\r\n\
             HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nto the end",
        );
        assert_eq!(client.response().body, b"abc");
        assert_eq!(client.response().status, 304);
        assert_eq!(client.response().text(), "ab0123456789");
        let last = client.response();
        assert_eq!((last.status, last.text()), (404, "to the end"));
        assert!(last.is_last());
        client.assert_closed();
    }

    #[test]
    fn a_head_leaves_its_body() {
        let mut client = client("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde");
        let head = client.head();
        assert_eq!(head.length().ok(), Some(5));
        client.await_bytes(4);
        assert_eq!(client.read_exact(2).ok(), Some(b"ab".to_vec()));
        assert_eq!(client.rest(), b"cde");
    }

    #[test]
    fn what_is_cut_or_no_http_is_an_error() {
        let kind = |said: &str| {
            let response = client(said).try_response("GET");
            response.map_err(|error| error.kind()).err()
        };
        let cut = Some(io::ErrorKind::UnexpectedEof);
        assert_eq!(kind("HTTP/1.1 200 OK\r\n"), cut);
        assert_eq!(kind("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"), cut);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(kind(&format!("{chunked}3\r\nabc\r\n")), cut);
        let invalid = Some(io::ErrorKind::InvalidData);
        assert_eq!(kind(&format!("{chunked}3\r\nabcd\r\n")), invalid);
        assert_eq!(kind("220 ready\r\n\r\n"), invalid);
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(kind(both), invalid);
    }

    #[test]
    #[should_panic(expected = "stands twice")]
    fn a_field_that_stands_twice_is_found() {
        let response = client("HTTP/1.1 200 OK\r\nEtag: 1\r\netag: 2\r\n\r\n").head();
        response.field("etag");
    }
}
