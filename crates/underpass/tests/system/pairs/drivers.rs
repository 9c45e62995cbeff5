//! Drivers written against the public interface of an outbox, as another crate would write them: a
//! blocking one with the kernel's mechanisms, and one that seals records in its own buffer.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use underpass::drive::{RelayBuffers, SourceAndSink, perform};
use underpass::{
    Due, Error, Fault, FileRange, Kernel, Mechanism, MsgMore, Outbox, Piece, Policy, Sink, Source,
    Step, Transfer, Unsent,
};

use underpass_testkit::{self as testkit, SeededRandom, assert_same, within};

use super::ends::{Mode, file_of, set_mode, tcp};
use super::event_loop::{range, reader};

/// Sends the contents of an outbox to a connected socket; blocks until done.
pub(crate) fn flush(
    outbox: &mut Outbox,
    socket: impl AsFd,
    kernel: &Kernel,
    policy: Policy,
) -> Result<(), Error> {
    let sink = Sink::new(socket)?;
    while let Some(due) = outbox.due(&policy) {
        match due {
            Due::Send(parts, more) => {
                let flags = match more {
                    MsgMore::Set => SendFlags::NOSIGNAL | SendFlags::MORE,
                    MsgMore::Unset => SendFlags::NOSIGNAL,
                };
                let result = rustix::net::send(&sink.fd, &parts.concat(), flags);
                let result = result.map(|sent| sent as u64);
                if outbox.sent(result, sink.end.waits)?.is_some() {
                    wait_for(&sink.fd)?;
                }
            }
            Due::Load => {
                outbox.load(|file, buffer, from| Some(rustix::io::pread(file, buffer, from)))?;
            }
            Due::Range(range) => {
                let range = range.clone();
                flush_range(outbox, &range, &sink, kernel, &policy)?;
            }
        }
    }
    Ok(())
}

fn flush_range<F: AsFd>(
    outbox: &mut Outbox,
    range: &FileRange,
    sink: &Sink<F>,
    kernel: &Kernel,
    policy: &Policy,
) -> Result<(), Error> {
    let source = match range.source() {
        Ok(source) => source,
        Err(errno) => return outbox.ended(Err(errno.into())),
    };
    let plan = kernel.plan(&source, sink, policy);
    let mut transfer = Transfer::new(&source, sink, plan);
    let (ends, mut buffers) = (SourceAndSink::of(&source, sink), RelayBuffers::default());
    while let Some(op) = transfer.next_op() {
        let step = transfer.record(perform(op, &ends, &mut buffers, kernel));
        outbox.moved(&transfer.take_account());
        match step {
            Step::Wait(_) => wait_for(&sink.fd)?,
            Step::Refused(refusal) => kernel.learn(&refusal, &source.end, &sink.end),
            Step::Again | Step::Done | Step::Failed => (),
        }
    }
    buffers.give_back(kernel);
    outbox.ended(transfer.finish())
}

fn wait_for(socket: impl AsFd) -> Result<(), Errno> {
    poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None).map(drop)
}

/// Seals the contents of an outbox into records in its own buffer: length, sequence number,
/// scrambled content, sum.
#[derive(Default)]
struct Sealer {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were sent.
    sent: usize,
    /// The end of each record in the buffer, and the number of owed bytes it holds.
    records: Vec<(usize, usize)>,
    number: u32,
}

const RECORD_BYTES_MAX: usize = 1000;
const RECORDS_AT_ONCE: usize = 7;
const SEAL_BYTES: usize = 10;

impl Sealer {
    fn flush(&mut self, outbox: &mut Outbox, socket: &TcpStream) -> Result<(), Error> {
        while !outbox.is_empty() {
            self.fill(outbox)?;
            match rustix::net::send(socket, &self.buffer[self.sent..], SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => wait_for(socket)?,
                Err(errno) => return Err(outbox.error(Fault::PeerGone, Some(errno))),
            }
            self.count(outbox);
        }
        Ok(())
    }

    /// Seals more of the outbox, skipping bytes that are sealed and not yet sent.
    fn fill(&mut self, outbox: &mut Outbox) -> Result<(), Error> {
        let mut plain = Vec::new();
        let sealed: usize = self.records.iter().map(|(_, bytes)| bytes).sum();
        let room = (RECORDS_AT_ONCE - self.records.len()) * RECORD_BYTES_MAX;
        let mut reads = 0;
        for unsent in outbox.unsent(sealed as u64) {
            let left = room - plain.len();
            match unsent {
                _ if left == 0 => break,
                Unsent::Bytes(bytes) => plain.extend_from_slice(&bytes[..left.min(bytes.len())]),
                Unsent::Range { file, offset, len } => {
                    let start = plain.len();
                    plain.resize(start + left.min(len as usize), 0);
                    let read = rustix::io::pread(file, &mut plain[start..], offset);
                    reads += 1;
                    plain.truncate(start + read.unwrap_or(0));
                    if read == Ok(0) && start == 0 && sealed == 0 {
                        return Err(outbox.error(Fault::Truncated, None));
                    }
                    if (read.unwrap_or(0) as u64) < len {
                        break;
                    }
                }
            }
        }
        outbox.advance(0, reads);
        plain
            .chunks(RECORD_BYTES_MAX)
            .for_each(|chunk| self.seal(chunk));
        Ok(())
    }

    fn seal(&mut self, plain: &[u8]) {
        self.buffer.extend((plain.len() as u16).to_le_bytes());
        self.buffer.extend(self.number.to_le_bytes());
        self.buffer
            .extend(plain.iter().map(|byte| byte ^ self.number as u8));
        self.buffer.extend(sum(plain, self.number).to_le_bytes());
        self.number += 1;
        self.records.push((self.buffer.len(), plain.len()));
    }

    /// Counts owed bytes as sent once the socket has their whole record.
    fn count(&mut self, outbox: &mut Outbox) {
        let whole = |&&(end, _): &&(usize, usize)| end <= self.sent;
        let records = self.records.iter().take_while(whole).count();
        for (_, bytes) in self.records.drain(..records) {
            outbox.advance(bytes as u64, 1);
        }
        if self.records.is_empty() {
            self.buffer.clear();
            self.sent = 0;
        }
    }
}

fn sum(plain: &[u8], number: u32) -> u32 {
    plain.iter().fold(number, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
    })
}

/// Opens sealed records; panics if one is torn, missing or repeated.
fn opened(sealed: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest, mut number) = (Vec::new(), sealed, 0_u32);
    while rest.len() >= SEAL_BYTES {
        let len = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        assert_eq!(rest[2..6], number.to_le_bytes(), "records are in order");
        let start = plain.len();
        plain.extend(rest[6..6 + len].iter().map(|byte| byte ^ number as u8));
        assert_eq!(
            rest[6 + len..][..4],
            sum(&plain[start..], number).to_le_bytes()
        );
        rest = &rest[SEAL_BYTES + len..];
        number += 1;
    }
    assert!(rest.is_empty(), "a torn record");
    plain
}

fn heads_and_ranges(
    random: &mut SeededRandom,
    file: &File,
    content: &[u8],
) -> (Outbox, Vec<u8>, u64) {
    let (mut outbox, mut expected, mut payload) = (Outbox::new(), Vec::new(), 0);
    for _ in 0..random.below(9) {
        let len = [0, 1, 999, 1000, 1001, 7003, 200_000][random.below(7) as usize];
        let offset = random.below(content.len() as u64 - len as u64) as usize;
        let bytes = &content[offset..offset + len];
        expected.extend_from_slice(bytes);
        outbox.push(match random.below(3) {
            0 => Piece::Bytes(bytes.to_vec()),
            1 => {
                payload += len as u64;
                Piece::Content(Arc::new(bytes.to_vec()))
            }
            _ => {
                payload += len as u64;
                range(file, offset as u64, len as u64)
            }
        });
    }
    (outbox, expected, payload)
}

#[test]
fn a_driver_seals_in_its_own_buffer_and_counts_whole_records() {
    within(|| {
        let content = testkit::content(60, 600_000);
        let file = file_of(&content);
        for seed in 0..40 {
            let mut random = SeededRandom::new(seed);
            let (mut outbox, expected, payload) = heads_and_ranges(&mut random, &file, &content);
            let (ours, theirs) = tcp();
            rustix::net::sockopt::set_socket_send_buffer_size(&ours, 1).expect("a small buffer");
            set_mode(&ours, Mode::Polling);
            let reader = reader(theirs);
            let mut sealer = Sealer::default();
            sealer.flush(&mut outbox, &ours).expect("sends");
            drop(ours);
            assert_same(&opened(&reader.join().expect("reads")), &expected, "opened");
            let account = outbox.account();
            assert_eq!(account.bytes(), payload, "seed {seed}");
            assert_eq!(
                account.of(Mechanism::ReadWrite).bytes,
                payload,
                "seed {seed}"
            );
            assert_eq!(outbox.sent_bytes(), expected.len() as u64, "seed {seed}");
        }
    });
}

#[test]
fn sealed_bytes_count_when_the_socket_has_their_record() {
    within(|| {
        let content = testkit::content(61, 600_000);
        let file = file_of(&content);
        let (ours, mut theirs) = tcp();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 1).expect("a small buffer");
        set_mode(&ours, Mode::Polling);
        let (mut outbox, mut sealer) = (Outbox::new(), Sealer::default());
        outbox.push(Piece::Bytes(b"head".to_vec()));
        outbox.push(range(&file, 0, 600_000));
        let mut taken = 0;
        loop {
            sealer.fill(&mut outbox).expect("reads");
            match rustix::net::send(&ours, &sealer.buffer[sealer.sent..], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    taken += sent as u64;
                    sealer.sent += sent;
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    break;
                }
            }
            sealer.count(&mut outbox);
        }
        let record = (RECORD_BYTES_MAX + SEAL_BYTES) as u64;
        let whole = taken / record * RECORD_BYTES_MAX as u64;
        assert_eq!(outbox.sent_bytes(), whole, "{taken} bytes in the socket");
        // Sealed records leave first, and the rest may then go by the kernel.
        while !sealer.records.is_empty() {
            let mut room = vec![0; 100_000];
            let _read = theirs.read(&mut room).expect("reads");
            if let Ok(sent) =
                rustix::net::send(&ours, &sealer.buffer[sealer.sent..], SendFlags::NOSIGNAL)
            {
                sealer.sent += sent;
            }
            sealer.count(&mut outbox);
        }
        let sent = outbox.sent_bytes();
        let reader = reader(theirs);
        flush(&mut outbox, &ours, &Kernel::unprobed(), Policy::default()).expect("sends");
        drop(ours);
        let rest = &content[sent as usize - 4..];
        let got = reader.join().expect("reads");
        assert_same(&got[got.len() - rest.len()..], rest, "what the kernel sent");
        assert_eq!(outbox.account().bytes(), 600_000);
    });
}

#[test]
fn a_driver_meets_a_file_that_ends_early() {
    within(|| {
        let content = testkit::content(62, 50_000);
        let file = file_of(&content);
        let (ours, theirs) = tcp();
        set_mode(&ours, Mode::Polling);
        let reader = reader(theirs);
        let (mut outbox, mut sealer) = (Outbox::new(), Sealer::default());
        outbox.push(range(&file, 0, 60_000));
        let error = sealer.flush(&mut outbox, &ours).expect_err("it ends early");
        drop(ours);
        assert_eq!((error.fault, error.moved()), (Fault::Truncated, 50_000));
        assert_same(
            &opened(&reader.join().expect("reads")),
            &content,
            "what was there",
        );
    });
}

/// If a driver is dropped between a call and its record, its bytes must not reach the next
/// transfer.
#[test]
fn a_pipe_that_still_holds_bytes_is_not_used_again() {
    let kernel = Kernel::unprobed();
    let policy = Policy::only(Mechanism::Splice);
    let (first, second) = (testkit::content(21, 1000), testkit::content(22, 1000));
    let file = |content: &[u8]| {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(content).expect("room");
        file
    };
    let (one, other) = (file(&first), file(&second));
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");

    let (source, sink) = (
        Source::whole(&one).expect("a source"),
        Sink::new(&ours).expect("a sink"),
    );
    let transfer = Transfer::new(&source, &sink, kernel.plan(&source, &sink, &policy));
    let mut buffers = RelayBuffers::default();
    let fill = transfer.next_op().expect("a call");
    assert!(fill.fills(), "{fill:?}");
    let filled = perform(
        fill,
        &SourceAndSink::of(&source, &sink),
        &mut buffers,
        &kernel,
    );
    assert_eq!(filled, Ok(1000));
    buffers.give_back(&kernel);

    let source = Source::whole(&other).expect("a source");
    let driver = underpass::drive::blocking::Driver::new(&kernel).policy(policy);
    let account = driver.run(&source, &sink).expect("sends");
    assert_eq!(account.of(Mechanism::Splice).bytes, 1000);
    drop(ours);
    let mut received = Vec::new();
    theirs.read_to_end(&mut received).expect("an end");
    testkit::assert_same(&received, &second, "the second file");
}
