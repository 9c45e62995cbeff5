//! Checks, before anything is measured, that a server sends the right bytes.

use std::net::SocketAddr;

use super::exchange::{BodySink, ClientExchange};
use super::request::ConnectionReuse;
use super::test_file::TestFile;
use super::transport::ServerAddress;
use crate::error::{Error, Result};

/// Fetches every file over one connection and compares hashes. Returns the connection, which is
/// still open.
pub(crate) fn verify(address: &ServerAddress, files: &[TestFile]) -> Result<ClientExchange> {
    let mut exchange = ClientExchange::connect_ready(address)?;
    for file in files {
        file.check(&mut exchange, address.socket)?;
    }
    Ok(exchange)
}

/// Checks that a server from which there are tickets resumes sessions.
pub(crate) fn verify_resumption(address: &ServerAddress) -> Result<()> {
    match ClientExchange::connect_ready(address)?.is_resumed() {
        true => Ok(()),
        false => Err(Error::Answer("it resumes no sessions".into())),
    }
}

impl TestFile {
    /// Fetches it over this connection and compares its hash.
    pub(super) fn check(&self, exchange: &mut ClientExchange, address: SocketAddr) -> Result<()> {
        let mut body = BodySink::hash();
        exchange.fetch(&self.target(address, ConnectionReuse::KeepAlive), &mut body)?;
        let path = &self.url_path;
        if body.finish() != Some(self.sha256) {
            return Err(Error::Answer(format!(
                "{path}: the hash of the body differs"
            )));
        }
        if exchange.has_ended() {
            let what = format!("{path}: more bytes than announced, or the connection was closed");
            return Err(Error::Answer(what));
        }
        Ok(())
    }
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
        verify(&address.into(), &[file]).map(drop)
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
