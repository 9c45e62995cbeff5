//! A custom driver: the contents of an outbox leave in records that are written backwards.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use underpass::{Fault, FileRange, Outbox, Piece, SharedFile, Unsent};

const RECORD_BYTES: usize = 10_000;

pub fn reversed(path: &Path) -> Result<(), Box<dyn Error>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut outbox = Outbox::new();
    outbox.push(Piece::Bytes(b"head".to_vec()));
    let shared = SharedFile::new(file.try_clone()?.into());
    outbox.push(Piece::Range(FileRange {
        file: shared,
        offset: 0,
        len,
    }));

    let (mut ours, mut theirs) = UnixStream::pair()?;
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).map(|_| got)
    });
    let mut record = Vec::new();
    while !outbox.is_empty() {
        let reads = fill(&mut record, &outbox, &file)?;
        record.reverse();
        ours.write_all(&record)?;
        // The socket has the whole record: only now does it count.
        outbox.advance(record.len() as u64, reads + 1);
    }
    drop(ours);

    let mut got = reader.join().map_err(|_| "the reader panicked")??;
    got.chunks_mut(RECORD_BYTES).for_each(<[u8]>::reverse);
    let whole = got.strip_prefix(b"head") == Some(&std::fs::read(path)?);
    println!(
        "sealed {} bytes, {}",
        outbox.account().bytes(),
        if whole { "whole" } else { "torn" }
    );
    Ok(())
}

/// Reads the next record, and returns the number of calls that took.
fn fill(record: &mut Vec<u8>, outbox: &Outbox, file: &File) -> Result<u64, Box<dyn Error>> {
    record.clear();
    let mut calls = 0;
    for unsent in outbox.unsent(0) {
        let room = RECORD_BYTES - record.len();
        match unsent {
            _ if room == 0 => break,
            Unsent::Bytes(bytes) => record.extend_from_slice(&bytes[..bytes.len().min(room)]),
            Unsent::Range { offset, len, .. } => {
                let start = record.len();
                record.resize(start + room.min(len as usize), 0);
                calls += 1;
                if file.read_exact_at(&mut record[start..], offset).is_err() {
                    return Err(outbox.error(Fault::Truncated, None).into());
                }
            }
        }
    }
    Ok(calls)
}
