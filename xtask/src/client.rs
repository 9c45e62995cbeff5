//! As much of an HTTP client as it takes to see whether an answer is what it says.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a byte may take before the server counts as hanging.
const HANG: Duration = Duration::from_secs(30);

/// A connection, and what was read of it too early.
pub(crate) struct HttpClient {
    pub(crate) socket: TcpStream,
    unread: Vec<u8>,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    text: String,
}

impl HttpClient {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<HttpClient> {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(HANG))?;
        socket.set_write_timeout(Some(HANG))?;
        socket.set_nodelay(true)?;
        Ok(HttpClient {
            socket,
            unread: Vec::new(),
        })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    pub(crate) fn head(&mut self) -> io::Result<ResponseHead> {
        let end = loop {
            let end = self.unread.windows(4).position(|four| four == b"\r\n\r\n");
            match end {
                Some(end) => break end + 4,
                None => self.read_some()?,
            }
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let status = text.get(9..12).and_then(|status| status.parse().ok());
        match status {
            Some(status) => Ok(ResponseHead { status, text }),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// So many bytes of a body.
    pub(crate) fn body(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let early = self.unread.len().min(length);
        let mut body: Vec<u8> = self.unread.drain(..early).collect();
        body.resize(length, 0);
        self.socket.read_exact(&mut body[early..])?;
        Ok(body)
    }

    fn read_some(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        match self.socket.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.unread.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }
}

impl ResponseHead {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().skip(1).find_map(|line| {
            let (named, value) = line.split_once(": ")?;
            named.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn length(&self) -> usize {
        let length = self.field("content-length");
        length.and_then(|length| length.parse().ok()).unwrap_or(0)
    }
}
