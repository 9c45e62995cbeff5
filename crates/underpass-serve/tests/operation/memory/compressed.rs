//! A large file compressed for a slow client.

use std::fs;
use std::io::{self, Read, Write};

use underpass_testkit::{HttpClient, is_alone};

use crate::support::{Server, peak_kib};

const LENGTH: u64 = 200 << 20;
/// Memory for compression, in addition to what this process needs anyway. Noise at the start makes
/// the compressed body larger than the socket buffers.
const GROWTH_KIB_MAX: u64 = 24 << 10;
const NOISE: usize = 64 << 20;

/// The chunks of a body, as a stream.
struct Body<'c> {
    client: &'c mut HttpClient,
    chunk: Vec<u8>,
    read: usize,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.chunk.len() {
            self.chunk = self.client.chunk()?.unwrap_or_default();
            self.read = 0;
        }
        let count = (&self.chunk[self.read..]).read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

/// Reads the plain file until the connection ends, and returns the number of bytes with the head.
fn read_plain(server: &Server) -> u64 {
    let mut client = server.connect();
    client.send("GET /large.txt HTTP/1.0\r\n\r\n");
    io::copy(&mut client.socket, &mut io::sink()).unwrap()
}

/// Hashes a decoded body.
fn hash(mut plain: impl Read) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut plain, &mut hasher).unwrap();
    hasher.finalize()
}

#[test]
fn memory_is_that_of_a_window_and_a_batch() {
    if !is_alone(module_path!(), "memory_is_that_of_a_window_and_a_batch") {
        return;
    }
    let server = Server::configured("compress = ['br', 'zstd', 'gzip']");
    let path = server.site().join("large.txt");
    let mut file = fs::File::create(&path).unwrap();
    let mut noise = blake3::Hasher::new().finalize_xof();
    let mut piece = vec![0; 1 << 20];
    for _ in 0..NOISE >> 20 {
        noise.fill(&mut piece);
        file.write_all(&piece).unwrap();
    }
    file.set_len(LENGTH).unwrap();
    let expected = hash(fs::File::open(&path).unwrap());
    let before = peak_kib();
    for coding in ["br", "zstd", "gzip"] {
        let mut client = HttpClient::connect_slow(server.address());
        client.send(format!(
            "GET /large.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"
        ));
        assert_eq!(client.head().field("content-encoding"), Some(coding));
        // While another client reads all of the plain file, the server has filled the sockets and
        // waits.
        client.await_bytes(1);
        assert!(read_plain(&server) > LENGTH);
        let body = Body {
            client: &mut client,
            chunk: Vec::new(),
            read: 0,
        };
        let hashed = match coding {
            "br" => hash(brotli::Decompressor::new(body, 4096)),
            "zstd" => hash(zstd::stream::Decoder::new(body).unwrap()),
            _ => hash(flate2::read::GzDecoder::new(body)),
        };
        assert_eq!(hashed, expected, "{coding}");
    }
    let growth = peak_kib() - before;
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more");
}
