//! Checks, before anything is measured, that a server sends the right bytes.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::request::ConnectionReuse;
use super::response::parse_head;
use super::test_file::TestFile;
use crate::content::Sha256Hash;
use crate::error::{Error, ErrorContext, Result};

const TIMEOUT: Duration = Duration::from_secs(10);
const BLOCK_BYTES: usize = 256 << 10;

/// Fetches every file over one connection and compares hashes.
pub(crate) fn verify(address: SocketAddr, files: &[TestFile]) -> Result<()> {
    let mut stream = TcpStream::connect(address).context(|| format!("connecting to {address}"))?;
    stream
        .set_read_timeout(Some(TIMEOUT))
        .context(|| "setting a timeout".into())?;
    for file in files {
        let request = file.target(address, ConnectionReuse::KeepAlive).request;
        stream
            .write_all(&request)
            .context(|| "sending a request".into())?;
        if receive_hash(&mut stream, file.bytes)? != file.sha256 {
            return Err(Error::Answer(format!(
                "{}: the hash of the body differs",
                file.url_path
            )));
        }
    }
    Ok(())
}

fn receive_hash(stream: &mut impl Read, owed: u64) -> Result<Sha256Hash> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut received = 0;
    let head = loop {
        received += read_some(stream, &mut block[received..])?;
        if let Some(head) = parse_head(&block[..received], ConnectionReuse::KeepAlive)? {
            break head;
        }
    };
    if head.body_bytes != owed {
        return Err(Error::Answer(format!(
            "announces {} bytes where {owed} are expected",
            head.body_bytes
        )));
    }
    let with_head = &block[head.head_bytes..received];
    let mut hash = Sha256::new_with_prefix(with_head);
    let mut left = owed.checked_sub(with_head.len() as u64);
    while let Some(some @ 1..) = left {
        let got = read_some(stream, &mut block)?;
        hash.update(&block[..got]);
        left = some.checked_sub(got as u64);
    }
    left.ok_or_else(|| Error::Answer("more bytes than announced".into()))?;
    Ok(hash.finalize().into())
}

fn read_some(stream: &mut impl Read, space: &mut [u8]) -> Result<usize> {
    match stream.read(space).context(|| "reading a response".into())? {
        0 => Err(Error::Answer(
            "the server closed the connection, or its head has no end".into(),
        )),
        got => Ok(got),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_body_alone() {
        let mut answer = &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..];
        let expected: Sha256Hash = Sha256::digest(b"hello").into();
        assert_eq!(receive_hash(&mut answer, 5).unwrap(), expected);
    }

    #[test]
    fn short_and_long_bodies_are_errors() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for body in ["hell", "hello!"] {
            let answer = format!("{head}{body}");
            assert!(receive_hash(&mut answer.as_bytes(), 5).is_err(), "{body}");
        }
    }
}
