//! Checks, before anything is measured, that a server sends the right bytes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::exchange::{BodySink, ClientExchange, ReceiveProgress};
use super::request::ConnectionReuse;
use super::test_file::TestFile;
use crate::error::{Error, ErrorContext, Result};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Fetches every file over one connection and compares hashes.
pub(crate) fn verify(address: SocketAddr, files: &[TestFile]) -> Result<()> {
    let mut exchange = ClientExchange::connect(address)?;
    let mut body = BodySink::hash();
    for file in files {
        let target = file.target(address, ConnectionReuse::KeepAlive);
        exchange.begin(&target, Instant::now())?;
        while exchange.advance(&mut body)? == ReceiveProgress::Partial {
            let mut readable = [PollFd::new(&exchange, PollFlags::IN)];
            let timeout = Timespec::try_from(TIMEOUT).ok();
            let ready = poll(&mut readable, timeout.as_ref());
            if ready.context(|| "waiting for a response".into())? == 0 {
                return Err(Error::Answer(format!("nothing arrived for {TIMEOUT:?}")));
            }
        }
        let path = &file.url_path;
        if body.finish() != Some(file.sha256) {
            return Err(Error::Answer(format!(
                "{path}: the hash of the body differs"
            )));
        }
        if exchange.has_ended() {
            let what = format!("{path}: more bytes than announced, or the connection was closed");
            return Err(Error::Answer(what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use sha2::{Digest as _, Sha256};

    use super::*;

    /// Verifies a file whose content is `hello` with a server that sends this body.
    fn verified(body: &'static [u8]) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
            stream.write_all(&[head, body].concat()).unwrap();
            // Until the client has closed its end, unless the body is short.
            let _ = (body.len() >= 5).then(|| stream.read(&mut [0]));
        });
        let file = TestFile {
            path: "hello".into(),
            url_path: "/hello".into(),
            bytes: 5,
            sha256: Sha256::digest(b"hello").into(),
        };
        verify(address, &[file])
    }

    #[test]
    fn the_hash_is_that_of_the_body_alone() {
        verified(b"hello").unwrap();
        let differs = verified(b"jello").unwrap_err().to_string();
        assert!(differs.contains("hash"), "{differs}");
    }

    #[test]
    fn short_and_long_bodies_are_errors() {
        for body in [&b"hell"[..], b"hello!"] {
            assert!(verified(body).is_err(), "{body:?}");
        }
    }
}
