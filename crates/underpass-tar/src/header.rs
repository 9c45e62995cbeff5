//! Header blocks, written and taken apart.
//!
//! ```text
//!  0 name · 100 mode · 108 uid · 116 gid · 124 size · 136 mtime · 148 checksum · 156 type
//!  157 target · 257 magic · 265 user · 297 group · 329, 337 device · 345 prefix (ustar only)
//! ```

use crate::error::TarFault;
use crate::number::{NotANumber, parse_field};

pub(crate) const BLOCK: usize = 512;

/// The maximum of a number in 11 octal digits.
pub(crate) const NUMBER_MAX: u64 = 0o777_7777_7777;
/// The maximum of a number in 7 octal digits.
pub(crate) const ID_MAX: u32 = 0o777_7777;
pub(crate) const NAME_BYTES_MAX: usize = 100;
/// User and group names end with a zero byte.
pub(crate) const OWNER_BYTES_MAX: usize = 31;

/// A ustar header that is being made.
pub(crate) struct UstarHeader([u8; BLOCK]);

impl UstarHeader {
    pub(crate) fn new(path: &[u8], flag: u8, mode: u32, size: u64, seconds: u64) -> UstarHeader {
        let mut head = UstarHeader([0; BLOCK]);
        head.text(0, NAME_BYTES_MAX, path);
        head.octal(100, 7, mode.into());
        head.octal(108, 7, 0);
        head.octal(116, 7, 0);
        head.octal(124, 11, size);
        head.octal(136, 11, seconds);
        head.0[156] = flag;
        head.text(257, 8, b"ustar\x0000");
        head
    }

    pub(crate) fn target(&mut self, target: &[u8]) {
        self.text(157, NAME_BYTES_MAX, target);
    }

    pub(crate) fn user(&mut self, uid: u32, name: &[u8]) {
        self.octal(108, 7, uid.into());
        self.text(265, OWNER_BYTES_MAX, name);
    }

    pub(crate) fn group(&mut self, gid: u32, name: &[u8]) {
        self.octal(116, 7, gid.into());
        self.text(297, OWNER_BYTES_MAX, name);
    }

    /// Writes as much of the text as fits; the full text is in a pax record.
    fn text(&mut self, at: usize, room: usize, text: &[u8]) {
        let length = text.len().min(room);
        self.0[at..at + length].copy_from_slice(&text[..length]);
    }

    /// Writes 0 for a number that does not fit; its value is in a pax record.
    fn octal(&mut self, at: usize, digits: usize, number: u64) {
        let fits = number < 1 << (3 * digits);
        let number = if fits { number } else { 0 };
        for place in 0..digits {
            let digit = (number >> (3 * (digits - 1 - place))) as u8 & 7;
            self.0[at + place] = b'0' + digit;
        }
    }

    /// Returns the header with its checksum, for which the checksum field counts as spaces.
    pub(crate) fn finish(mut self) -> [u8; BLOCK] {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|&byte| u64::from(byte)).sum();
        self.octal(148, 6, sum);
        self.0[154] = 0;
        self.0
    }
}

/// The formats of a header, by its magic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HeaderFormat {
    /// Unix v7: no magic, only short names.
    V7,
    /// POSIX: the name may have a prefix.
    Ustar,
    /// GNU: the place of the prefix has other fields.
    Gnu,
}

/// A header block that has been received, with a correct checksum.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedHeader<'b> {
    block: &'b [u8; BLOCK],
    pub(crate) format: HeaderFormat,
}

impl<'b> ReceivedHeader<'b> {
    /// Checks checksum and magic.
    pub(crate) fn parse(block: &'b [u8; BLOCK]) -> Result<ReceivedHeader<'b>, TarFault> {
        let stored = parse_field(&block[148..156]);
        let Ok(Some(stored)) = stored else {
            return Err(TarFault::Checksum);
        };
        // Historic implementations sum signed bytes.
        let of_bytes = |byte: u8| i64::from(byte);
        if stored != sum(block, of_bytes) && stored != sum(block, |byte| byte.cast_signed().into())
        {
            return Err(TarFault::Checksum);
        }
        let format = match &block[257..265] {
            b"ustar  \0" => HeaderFormat::Gnu,
            b"ustar\x0000" => HeaderFormat::Ustar,
            [0, 0, 0, 0, 0, 0, 0, 0] => HeaderFormat::V7,
            _ => return Err(TarFault::Magic),
        };
        Ok(ReceivedHeader { block, format })
    }

    pub(crate) fn flag(&self) -> u8 {
        self.block[156]
    }

    /// The name, with its prefix in a ustar header.
    pub(crate) fn path(&self) -> Vec<u8> {
        let name = text(&self.block[..100]);
        let prefix = match self.format {
            HeaderFormat::Ustar => text(&self.block[345..500]),
            HeaderFormat::Gnu | HeaderFormat::V7 => b"",
        };
        match prefix {
            [] => name.to_vec(),
            prefix => [prefix, b"/", name].concat(),
        }
    }

    pub(crate) fn target(&self) -> &'b [u8] {
        text(&self.block[157..257])
    }

    pub(crate) fn mode(&self) -> Result<u32, TarFault> {
        let mode = self.number(100..108, "mode")?.unwrap_or(0);
        // Some implementations store the file type in the upper bits.
        let mode = u32::try_from(mode).map_err(|_| TarFault::Field("mode"))?;
        Ok(mode & 0o7777)
    }

    /// The size, which must not be blank.
    pub(crate) fn size(&self) -> Result<u64, TarFault> {
        let size = self.number(124..136, "size")?;
        let size = size.and_then(|size| u64::try_from(size).ok());
        size.ok_or(TarFault::Field("size"))
    }

    pub(crate) fn mtime(&self) -> Result<i64, TarFault> {
        Ok(self.number(136..148, "mtime")?.unwrap_or(0))
    }

    pub(crate) fn uid(&self) -> Result<u32, TarFault> {
        self.id(108..116, "uid")
    }

    pub(crate) fn gid(&self) -> Result<u32, TarFault> {
        self.id(116..124, "gid")
    }

    pub(crate) fn user(&self) -> &'b [u8] {
        self.owner(265..297)
    }

    pub(crate) fn group(&self) -> &'b [u8] {
        self.owner(297..329)
    }

    /// The four extents of an old GNU sparse header, whether more follow, and the file's size.
    pub(crate) fn sparse(&self) -> (&'b [u8], bool, &'b [u8]) {
        (
            &self.block[386..482],
            self.block[482] != 0,
            &self.block[483..495],
        )
    }

    fn owner(&self, at: std::ops::Range<usize>) -> &'b [u8] {
        match self.format {
            HeaderFormat::V7 => b"",
            HeaderFormat::Ustar | HeaderFormat::Gnu => text(&self.block[at]),
        }
    }

    fn id(&self, at: std::ops::Range<usize>, field: &'static str) -> Result<u32, TarFault> {
        let id = self.number(at, field)?.unwrap_or(0);
        valid_id(u64::try_from(id).ok()).ok_or(TarFault::Field(field))
    }

    fn number(
        &self,
        at: std::ops::Range<usize>,
        field: &'static str,
    ) -> Result<Option<i64>, TarFault> {
        parse_field(&self.block[at]).map_err(|NotANumber| TarFault::Field(field))
    }
}

/// Sums the bytes of a header, of which the checksum itself counts as spaces.
fn sum(block: &[u8; BLOCK], number: impl Fn(u8) -> i64) -> i64 {
    let add = |part: &[u8]| part.iter().map(|&byte| number(byte)).sum::<i64>();
    add(&block[..148]) + add(&[b' '; 8]) + add(&block[156..])
}

/// Returns a number of a user or group. The largest one means nobody in system calls.
pub(crate) fn valid_id(id: Option<u64>) -> Option<u32> {
    u32::try_from(id?).ok().filter(|&id| id != u32::MAX)
}

/// Returns the bytes before the first zero.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0);
    &field[..end.unwrap_or(field.len())]
}
