//! Decodes messages of a peer. Allocates nothing based on lengths alone: counts are compared with
//! the remaining bytes, and the number of elements in a message is limited.

use thiserror::Error;

/// The largest number of array elements in a message.
const ELEMENTS_MAX: usize = 1 << 20;

/// The number of array elements for which memory is reserved before the first one was read.
const CAPACITY_MAX: usize = 64;

/// The longest string: variable lengths could be larger, but the strings are also written with
/// lengths of two bytes.
const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// The largest size of the tagged fields of a structure, in bytes.
const TAGGED_BYTES_MAX: usize = 128 * 1024;

/// The reason why a message is invalid, and the position.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{fault} at byte {at}")]
pub struct DecodeError {
    /// The kind of error.
    pub fault: DecodeFault,
    /// The number of bytes read before the error.
    pub at: usize,
}

/// The kinds of decoding errors.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum DecodeFault {
    /// The message is truncated.
    #[error("the message is cut off")]
    CutOff,
    /// Bytes follow the message.
    #[error("there are bytes behind the message")]
    Trailing,
    /// A length or a count is negative, or larger than the rest.
    #[error("a length is wrong")]
    Length,
    /// A required value is null.
    #[error("a value is null that must not be")]
    Null,
    /// A variable-length number is too long.
    #[error("a variable-length number is too long")]
    Varint,
    /// The message does not have this version.
    #[error("the version is not known")]
    Version,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// The arrays have too many elements in total.
    #[error("the message has too many elements")]
    Elements,
}

/// The version of a message, and whether it has variable lengths and tagged fields (KIP-482).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageVersion {
    /// The number.
    pub number: i16,
    /// Whether the encoding is the flexible one.
    pub flexible: bool,
}

/// A decoder of bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    elements_left: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            bytes,
            at: 0,
            elements_left: ELEMENTS_MAX,
        }
    }

    /// Makes an error at the current position.
    pub fn error(&self, fault: DecodeFault) -> DecodeError {
        DecodeError { fault, at: self.at }
    }

    /// Returns the remaining bytes.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// `Trailing`.
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.rest().is_empty() {
            true => Ok(()),
            false => Err(self.error(DecodeFault::Trailing)),
        }
    }

    /// Returns the next `count` bytes.
    ///
    /// # Errors
    /// `CutOff`.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let taken = self.rest().get(..count);
        let taken = taken.ok_or_else(|| self.error(DecodeFault::CutOff))?;
        self.at += count;
        Ok(taken)
    }

    /// Returns the next bytes as an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes
            .try_into()
            .map_err(|_| self.error(DecodeFault::CutOff))
    }

    /// Reads a variable-length number: groups of seven bits, lowest first.
    pub(crate) fn varint(&mut self) -> Result<u32, DecodeError> {
        let mut number = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).map_err(|_| self.error(DecodeFault::Varint));
            }
        }
        Err(self.error(DecodeFault::Varint))
    }

    /// Reads a length: in the flexible encoding a varint of the length plus one, 0 for null;
    /// otherwise of a fixed size, −1 for null.
    fn length(
        &mut self,
        version: MessageVersion,
        fixed: impl FnOnce(&mut Self) -> Result<i32, DecodeError>,
    ) -> Result<Option<usize>, DecodeError> {
        let length = match version.flexible {
            true => i64::from(self.varint()?) - 1,
            false => i64::from(fixed(self)?),
        };
        match length {
            -1 => Ok(None),
            length => {
                let fits = usize::try_from(length)
                    .ok()
                    .filter(|length| *length <= self.rest().len());
                fits.map(Some)
                    .ok_or_else(|| self.error(DecodeFault::Length))
            }
        }
    }

    /// Reads a string, or null.
    pub(crate) fn string(
        &mut self,
        version: MessageVersion,
    ) -> Result<Option<&'a str>, DecodeError> {
        let short = |reader: &mut Self| Ok(i32::from(i16::from_be_bytes(reader.array()?)));
        let Some(length) = self.length(version, short)? else {
            return Ok(None);
        };
        if length > STRING_BYTES_MAX {
            return Err(self.error(DecodeFault::Length));
        }
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes);
        text.map(Some).map_err(|_| self.error(DecodeFault::Utf8))
    }

    /// Reads bytes, or null.
    pub(crate) fn bytes(
        &mut self,
        version: MessageVersion,
    ) -> Result<Option<&'a [u8]>, DecodeError> {
        let long = |reader: &mut Self| Ok(i32::from_be_bytes(reader.array()?));
        match self.length(version, long)? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the elements of an array, or null.
    pub(crate) fn elements<T>(
        &mut self,
        version: MessageVersion,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let long = |reader: &mut Self| Ok(i32::from_be_bytes(reader.array()?));
        let Some(count) = self.length(version, long)? else {
            return Ok(None);
        };
        let left = self.elements_left.checked_sub(count);
        self.elements_left = left.ok_or_else(|| self.error(DecodeFault::Elements))?;
        let mut elements = Vec::with_capacity(count.min(CAPACITY_MAX));
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// Visits the tagged fields after a structure. The visitor must read all bytes of a field, or
    /// return `Ok(false)` to skip it.
    pub(crate) fn tagged(
        &mut self,
        mut field: impl FnMut(u32, &mut Reader<'a>) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let start = self.at;
        for _ in 0..self.varint()? {
            let (tag, size) = (self.varint()?, self.varint()? as usize);
            if self.at + size > start + TAGGED_BYTES_MAX {
                return Err(self.error(DecodeFault::Length));
            }
            let end = self.at + size;
            let Some(bytes) = self.bytes.get(..end) else {
                return Err(self.error(DecodeFault::CutOff));
            };
            let mut inside = Reader {
                bytes,
                at: self.at,
                elements_left: self.elements_left,
            };
            if field(tag, &mut inside)? {
                inside.end()?;
                self.elements_left = inside.elements_left;
            }
            self.at = end;
        }
        Ok(())
    }
}
