//! Encodes messages, with gaps that are filled from file ranges.

use crate::protocol::reader::MessageVersion;

/// An encoder of a message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Writer {
    bytes: Vec<u8>,
    gaps: Vec<Gap>,
}

/// A place for bytes that are not in memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gap {
    /// The number of bytes in memory before the gap.
    pub at: usize,
    /// The number of bytes from elsewhere.
    pub length: u32,
}

impl Writer {
    /// Returns the encoded bytes and the gaps in them.
    pub fn into_parts(self) -> (Vec<u8>, Vec<Gap>) {
        (self.bytes, self.gaps)
    }

    /// Returns the length of the message, including gaps.
    pub fn length(&self) -> u64 {
        let gaps: u64 = self.gaps.iter().map(|gap| u64::from(gap.length)).sum();
        self.bytes.len() as u64 + gaps
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a gap for bytes from elsewhere.
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

    /// Writes the length of a string, or null.
    pub(crate) fn string_length(&mut self, version: MessageVersion, length: Option<usize>) {
        match (version.flexible, length) {
            (true, length) => self.varint(length.map_or(0, |length| length as u32 + 1)),
            (false, length) => {
                let length = length.map_or(-1, |length| i16::try_from(length).unwrap_or(i16::MAX));
                self.put(&length.to_be_bytes());
            }
        }
    }

    /// Writes the length of bytes or the count of an array, or null.
    pub(crate) fn length_of(&mut self, version: MessageVersion, length: Option<usize>) {
        match (version.flexible, length) {
            (true, length) => self.varint(length.map_or(0, |length| length as u32 + 1)),
            (false, length) => {
                let length = length.map_or(-1, |length| length as i32);
                self.put(&length.to_be_bytes());
            }
        }
    }

    /// Writes the tagged fields after a structure, in tag order. They must not have gaps.
    pub(crate) fn tagged(&mut self, fields: &[(u32, Writer)]) {
        self.varint(fields.len() as u32);
        for (tag, field) in fields {
            self.varint(*tag);
            self.varint(field.bytes.len() as u32);
            self.put(&field.bytes);
        }
    }
}
