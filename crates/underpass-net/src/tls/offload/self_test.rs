//! Tests that this process can open what kernel TLS seals, over a connection to itself.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Instant;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use underpass::Side;
use underpass::kernel_tls::{
    Cipher, Rekeying, SendingSupport, TrafficKey, Version, attach, install, send_record,
};
use underpass::tcp::loopback_pair;

use crate::limits::SELF_TEST_TIMEOUT;
use crate::tls::records::HEADER_BYTES;

/// Sizes around record boundaries, and one larger than a socket buffer.
const BODY_BYTES: [usize; 7] = [1, 16_383, 16_384, 16_385, 65_535, 65_537, 1_048_577];
const HEAD: [u8; 200] = [b'h'; 200];
/// The number of records sent before the kernel has the key.
const FIRST_NUMBER: u64 = 7;

const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Has the kernel encrypt files of several sizes in every suite of `support`, each after a head,
/// over connections of this process to itself, and compares all received data. Takes some tens of
/// milliseconds, at most a few seconds.
///
/// # Errors
/// The difference, or the call that failed.
pub fn self_test(support: &SendingSupport) -> Result<(), String> {
    let started = Instant::now();
    let before = sockets_sealed_by_kernel();
    let content: Vec<u8> = (0_usize..1 << 21)
        .map(|at| ((at * 31) >> 3) as u8)
        .collect();
    let file = memory_file(&content).map_err(|error| format!("a file in memory: {error}"))?;
    for &(version, cipher) in &support.suites {
        let rekeying = match version {
            Version::Tls12 => Rekeying::Absent,
            Version::Tls13 => support.rekeying,
        };
        let trial = SuiteTrial {
            version,
            cipher,
            rekeying,
        };
        let done = trial.run(&content, &file);
        done.map_err(|why| format!("{} with {}: {why}", version.name(), cipher.name()))?;
        if started.elapsed() > SELF_TEST_TIMEOUT {
            return Err(format!("it took more than {SELF_TEST_TIMEOUT:?}"));
        }
    }
    // Containers may hide the counters.
    match (before, sockets_sealed_by_kernel()) {
        (Some(before), Some(after)) if after < before + support.suites.len() as u64 => {
            Err("/proc/net/tls_stat does not show that the kernel has sealed anything".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the number of sockets for which the kernel was given a sending key.
fn sockets_sealed_by_kernel() -> Option<u64> {
    let counters = fs::read_to_string("/proc/net/tls_stat").ok()?;
    let value = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        let is_counted = matches!(name, "TlsTxSw" | "TlsTxDevice");
        is_counted
            .then(|| value.trim().parse::<u64>().ok())
            .flatten()
    };
    Some(counters.lines().filter_map(value).sum())
}

fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let file = File::from(memfd_create("self-test", MemfdFlags::CLOEXEC)?);
    io::Write::write_all(&mut &file, content)?;
    Ok(file.into())
}

/// The test of one suite.
#[derive(Clone, Copy)]
struct SuiteTrial {
    version: Version,
    cipher: Cipher,
    rekeying: Rekeying,
}

impl SuiteTrial {
    fn run(self, content: &[u8], file: &OwnedFd) -> Result<(), String> {
        let (ours, theirs) = self.connect().map_err(|error| error.to_string())?;
        let received = thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&theirs));
            let sent = self.send(&ours, file);
            // The receiver waits for the end.
            let ended = ours.shutdown(Shutdown::Write);
            let received = receiver
                .join()
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            sent.and(ended).and(received)
        });
        let mut received = received.map_err(|error| error.to_string())?;
        self.judge(&mut received, content)
    }

    /// Compares received data with the expected records.
    fn judge(self, received: &mut [u8], content: &[u8]) -> Result<(), String> {
        match self.open(received)? == self.expected(content) {
            true => Ok(()),
            false => Err("what arrives is not what was sent".to_owned()),
        }
    }

    fn connect(self) -> io::Result<(TcpStream, TcpStream)> {
        let (ours, theirs) = loopback_pair()?;
        for end in [&ours, &theirs] {
            end.set_read_timeout(Some(SELF_TEST_TIMEOUT))?;
            end.set_write_timeout(Some(SELF_TEST_TIMEOUT))?;
        }
        attach(&ours)?;
        Ok((ours, theirs))
    }

    fn send(self, ours: &TcpStream, file: &OwnedFd) -> io::Result<()> {
        self.install(ours, 1, FIRST_NUMBER)?;
        for bytes in BODY_BYTES {
            send_body(ours, file, bytes)?;
        }
        if self.rekeying == Rekeying::Works {
            send_control(ours, HANDSHAKE, &KEY_UPDATE)?;
            self.install(ours, 2, 0)?;
            send_body(ours, file, BODY_BYTES[0])?;
        }
        send_control(ours, ALERT, &CLOSE_NOTIFY)
    }

    fn install(self, ours: &TcpStream, secret: u8, number: u64) -> io::Result<()> {
        let (key, iv) = self.secrets(secret);
        let key = TrafficKey::new(self.version, self.cipher, &key, &iv, number);
        let key = key.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(install(ours, Side::Sink, &key)?)
    }

    /// Returns keys for the test only.
    fn secrets(self, secret: u8) -> (Vec<u8>, [u8; 12]) {
        (vec![secret; self.cipher.key_bytes()], [secret ^ 0x55; 12])
    }

    fn expected(self, content: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let body = |bytes: usize| (DATA, [&HEAD[..], &content[..bytes]].concat());
        let mut all: Vec<_> = BODY_BYTES.map(body).into();
        if self.rekeying == Rekeying::Works {
            all.extend([(HANDSHAKE, KEY_UPDATE.to_vec()), body(BODY_BYTES[0])]);
        }
        all.push((ALERT, CLOSE_NOTIFY.to_vec()));
        // Data is compared joined, wherever its records end.
        let mut joined: Vec<(u8, Vec<u8>)> = Vec::new();
        all.into_iter().for_each(|record| join(&mut joined, record));
        joined
    }

    fn open(self, mut records: &mut [u8]) -> Result<Vec<(u8, Vec<u8>)>, String> {
        let (mut opened, mut secret, mut number) = (Vec::new(), 1, FIRST_NUMBER);
        while let [_, _, _, high, low, ..] = *records {
            let length = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
            let all = std::mem::take(&mut records);
            let split = all.split_at_mut_checked(length);
            let (record, rest) = split.ok_or("the last record is torn")?;
            let record = self.open_record(record, secret, number);
            let record = record.ok_or("a record cannot be opened")?;
            number += 1;
            if record.0 == HANDSHAKE {
                (secret, number) = (2, 0);
            }
            join(&mut opened, record);
            records = rest;
        }
        Ok(opened)
    }

    fn open_record(self, record: &mut [u8], secret: u8, number: u64) -> Option<(u8, Vec<u8>)> {
        let (key, iv) = self.secrets(secret);
        let key = LessSafeKey::new(UnboundKey::new(algorithm(self.cipher), &key).ok()?);
        let (head, opaque) = record.split_at_mut(HEADER_BYTES);
        let is_explicit = self.version == Version::Tls12 && self.cipher != Cipher::ChaCha20Poly1305;
        let (explicit, sealed) = opaque.split_at_mut_checked(if is_explicit { 8 } else { 0 })?;
        let mut nonce = iv;
        let (_, counted) = nonce.split_at_mut(4);
        match is_explicit {
            true => counted.copy_from_slice(explicit),
            false => counted
                .iter_mut()
                .zip(number.to_be_bytes())
                .for_each(|(byte, digit)| *byte ^= digit),
        }
        let mut aad = head.to_vec();
        if self.version == Version::Tls12 {
            let length = u16::try_from(sealed.len().checked_sub(16)?).ok()?;
            aad = [&number.to_be_bytes()[..], &head[..3], &length.to_be_bytes()].concat();
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let content = key.open_in_place(nonce, Aad::from(&aad), sealed).ok()?;
        match (self.version, &*content) {
            (Version::Tls12, content) => Some((head[0], content.to_vec())),
            (Version::Tls13, [content @ .., kind]) => Some((*kind, content.to_vec())),
            (Version::Tls13, []) => None,
        }
    }
}

pub(super) fn algorithm(cipher: Cipher) -> &'static Algorithm {
    match cipher {
        Cipher::Aes128Gcm => &AES_128_GCM,
        Cipher::Aes256Gcm => &AES_256_GCM,
        Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    }
}

/// Appends a record; data is joined with preceding data.
fn join(records: &mut Vec<(u8, Vec<u8>)>, (kind, content): (u8, Vec<u8>)) {
    match records.last_mut() {
        Some((DATA, before)) if kind == DATA => before.extend(content),
        _ => records.push((kind, content)),
    }
}

fn receive(mut theirs: &TcpStream) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    theirs.read_to_end(&mut received)?;
    Ok(received)
}

fn send_body(ours: &TcpStream, file: &OwnedFd, bytes: usize) -> io::Result<()> {
    if send(ours, &HEAD, SendFlags::MORE | SendFlags::NOSIGNAL)? != HEAD.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let (mut offset, end) = (0, bytes as u64);
    while offset < end {
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        if sendfile(ours, file, Some(&mut offset), left)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Sends a control record. Waits for room in the socket, since the call itself does not.
fn send_control(ours: &TcpStream, kind: u8, content: &[u8]) -> io::Result<()> {
    let timeout = Timespec::try_from(SELF_TEST_TIMEOUT).map_err(io::Error::other)?;
    loop {
        match send_record(ours, kind, content) {
            Err(Errno::AGAIN) => {
                if poll(&mut [PollFd::new(ours, PollFlags::OUT)], Some(&timeout))? == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            sent => return Ok(sent?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn trials() -> Vec<SuiteTrial> {
        let trials = Cipher::ALL.map(|cipher| {
            [
                (Version::Tls12, Rekeying::Absent),
                (Version::Tls13, Rekeying::Absent),
                (Version::Tls13, Rekeying::Works),
            ]
            .map(|(version, rekeying)| SuiteTrial {
                version,
                cipher,
                rekeying,
            })
        });
        trials.into_iter().flatten().collect()
    }

    fn sample() -> Vec<u8> {
        (0_usize..1 << 21).map(|at| (at * 7) as u8).collect()
    }

    /// Returns the output of a correct kernel, and the positions of its records.
    fn sent(trial: SuiteTrial, content: &[u8]) -> (Vec<u8>, Vec<Range<usize>>) {
        let (mut all, mut records) = (Vec::new(), Vec::new());
        let (mut secret, mut number) = (1, FIRST_NUMBER);
        for (kind, content) in trial.expected(content) {
            for part in content.chunks(16 << 10) {
                let start = all.len();
                all.extend(seal(trial, (secret, number), kind, part));
                records.push(start..all.len());
                number += 1;
            }
            if kind == HANDSHAKE {
                (secret, number) = (2, 0);
            }
        }
        (all, records)
    }

    fn seal(trial: SuiteTrial, (secret, number): (u8, u64), kind: u8, content: &[u8]) -> Vec<u8> {
        let (key, iv) = trial.secrets(secret);
        let key = LessSafeKey::new(UnboundKey::new(algorithm(trial.cipher), &key).unwrap());
        let mut nonce = iv;
        for (byte, digit) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= digit;
        }
        let is_explicit =
            trial.version == Version::Tls12 && trial.cipher != Cipher::ChaCha20Poly1305;
        let explicit = match is_explicit {
            true => nonce[4..].to_vec(),
            false => Vec::new(),
        };
        let (kind, mut inner) = match trial.version {
            Version::Tls12 => (kind, content.to_vec()),
            Version::Tls13 => (DATA, [content, &[kind]].concat()),
        };
        let length = (explicit.len() + inner.len() + 16) as u16;
        let [high, low] = length.to_be_bytes();
        let head = [kind, 3, 3, high, low];
        let [high, low] = (content.len() as u16).to_be_bytes();
        let aad = match trial.version {
            Version::Tls12 => [&number.to_be_bytes()[..], &[kind, 3, 3, high, low]].concat(),
            Version::Tls13 => head.to_vec(),
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::from(&aad), &mut inner)
            .unwrap();
        [&head[..], &explicit, &inner].concat()
    }

    #[test]
    fn a_byte_that_differs_is_found() {
        let content = sample();
        for trial in trials() {
            let (mut sent, records) = sent(trial, &content);
            trial.judge(&mut sent.clone(), &content).unwrap();
            // The first records, one in the middle, and the last: head, content and tag.
            let middle = records.len() / 2;
            for number in [0, 1, middle, records.len() - 1] {
                let Range { start, end } = records[number].clone();
                for at in [
                    start,
                    start + 2,
                    start + 3,
                    start + 4,
                    start + 5,
                    start + 6,
                    end - 1,
                ] {
                    sent[at] ^= 1;
                    let judged = trial.judge(&mut sent.clone(), &content);
                    assert!(judged.is_err(), "{}: byte {at}", trial.cipher.name());
                    sent[at] ^= 1;
                }
            }
        }
    }

    #[test]
    fn records_out_of_order_repeated_or_missing_are_found() {
        let content = sample();
        for trial in trials() {
            let (sent, records) = sent(trial, &content);
            let record = |number: usize| &sent[records[number].clone()];
            let middle = records.len() / 2;
            for first in [0, middle, records.len() - 2] {
                let before = &sent[..records[first].start];
                let behind = &sent[records[first + 1].end..];
                for wrong in [
                    vec![record(first + 1), record(first)],
                    vec![record(first), record(first), record(first + 1)],
                    vec![record(first + 1)],
                ] {
                    let mut wrong = [before, &wrong.concat(), behind].concat();
                    let judged = trial.judge(&mut wrong, &content);
                    assert!(judged.is_err(), "{} at {first}", trial.cipher.name());
                }
            }
        }
    }

    #[test]
    fn a_last_record_that_is_torn_is_found() {
        let content = sample();
        for trial in trials() {
            let (sent, records) = sent(trial, &content);
            let last = records[records.len() - 1].clone();
            for end in [last.end - 1, last.start + 5, last.start + 4, last.start] {
                let judged = trial.judge(&mut sent[..end].to_vec(), &content);
                assert!(judged.is_err(), "{} to {end}", trial.cipher.name());
            }
        }
    }

    /// Authentic records with other content.
    #[test]
    fn content_of_another_place_is_found() {
        let content = sample();
        for trial in trials() {
            let (mut sent, _) = sent(trial, &content[1..]);
            assert!(trial.judge(&mut sent, &content).is_err());
        }
    }
}
