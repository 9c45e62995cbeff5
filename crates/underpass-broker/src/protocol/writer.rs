//! Writes what a peer gets: bytes, and gaps that the ranges of files fill.

use crate::protocol::reader::MessageVersion;

/// A message that is being written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Writer {
    bytes: Vec<u8>,
    gaps: Vec<Gap>,
}

/// A place for bytes that are not in memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gap {
    /// How many bytes of the message in memory stand before it.
    pub at: usize,
    /// How many bytes come from elsewhere.
    pub length: u32,
}

impl Writer {
    /// What was written, and the gaps in it.
    pub fn into_parts(self) -> (Vec<u8>, Vec<Gap>) {
        (self.bytes, self.gaps)
    }

    /// How long the message is, gaps included.
    pub fn length(&self) -> u64 {
        let gaps: u64 = self.gaps.iter().map(|gap| u64::from(gap.length)).sum();
        self.bytes.len() as u64 + gaps
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Leaves room for bytes from elsewhere.
    pub fn gap(&mut self, length: u32) {
        let at = self.bytes.len();
        self.gaps.push(Gap { at, length });
    }

    pub(crate) fn varint(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// The length of a string, or null.
    pub(crate) fn string_length(&mut self, version: MessageVersion, length: Option<usize>) {
        match (version.flexible, length) {
            (true, length) => self.varint(length.map_or(0, |length| length as u32 + 1)),
            (false, length) => {
                let length = length.map_or(-1, |length| i16::try_from(length).unwrap_or(i16::MAX));
                self.put(&length.to_be_bytes());
            }
        }
    }

    /// The length of bytes or the count of an array, or null.
    pub(crate) fn length_of(&mut self, version: MessageVersion, length: Option<usize>) {
        match (version.flexible, length) {
            (true, length) => self.varint(length.map_or(0, |length| length as u32 + 1)),
            (false, length) => {
                let length = length.map_or(-1, |length| length as i32);
                self.put(&length.to_be_bytes());
            }
        }
    }

    /// The tagged fields behind a structure, in the order of their tags. None of them has a gap.
    pub(crate) fn tagged(&mut self, fields: &[(u32, Writer)]) {
        self.varint(fields.len() as u32);
        for (tag, field) in fields {
            self.varint(*tag);
            self.varint(field.bytes.len() as u32);
            self.put(&field.bytes);
        }
    }
}
