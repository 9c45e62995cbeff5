//! Maps of sparse files: which parts of the file are in the archive.
//!
//! GNU tar has written four forms. The oldest is in the header and in blocks after it (type
//! `S`); 0.0 has a pax record for each number, 0.1 one record for all; 1.0 has the map before the
//! content.

use crate::error::TarFault;
use crate::header::BLOCK;
use crate::limits::{DIGITS_MAX, EXTENTS_MAX};
use crate::member::SparseExtent;
use crate::number::{parse_decimal, parse_field};
use crate::value::{name, number, set};

/// The records `GNU.sparse.*` of a member.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseRecords {
    major: Option<u64>,
    minor: Option<u64>,
    pub(crate) name: Option<Vec<u8>>,
    real_size: Option<u64>,
    size: Option<u64>,
    block_count: Option<u64>,
    /// The map of 0.1, or what 0.0 has listed.
    extents: Vec<SparseExtent>,
    offset: Option<u64>,
    has_map: bool,
    has_list: bool,
}

/// What the records say of a member.
#[derive(Debug)]
pub(crate) enum SparseForm {
    None,
    /// The map is in the records.
    Known {
        size: u64,
        extents: Vec<SparseExtent>,
    },
    /// The map is at the start of the content.
    InContent {
        size: u64,
    },
}

impl SparseRecords {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarFault> {
        const MAJOR: &str = "GNU.sparse.major";
        const MINOR: &str = "GNU.sparse.minor";
        const REAL: &str = "GNU.sparse.realsize";
        const SIZE: &str = "GNU.sparse.size";
        const BLOCKS: &str = "GNU.sparse.numblocks";
        match key {
            b"major" => set(&mut self.major, MAJOR, number(MAJOR, value)?),
            b"minor" => set(&mut self.minor, MINOR, number(MINOR, value)?),
            b"realsize" => set(&mut self.real_size, REAL, number(REAL, value)?),
            b"size" => set(&mut self.size, SIZE, number(SIZE, value)?),
            b"numblocks" => set(&mut self.block_count, BLOCKS, number(BLOCKS, value)?),
            b"name" => {
                let key = "GNU.sparse.name";
                set(&mut self.name, key, name(key, value)?)
            }
            b"offset" => {
                let offset = number("GNU.sparse.offset", value)?;
                self.has_list = true;
                match self.offset.replace(offset) {
                    None => Ok(()),
                    Some(_) => Err(TarFault::SparseMap),
                }
            }
            b"numbytes" => {
                let len = number("GNU.sparse.numbytes", value)?;
                let offset = self.offset.take().ok_or(TarFault::SparseMap)?;
                push(&mut self.extents, SparseExtent { offset, len })
            }
            b"map" if self.has_map => Err(TarFault::Contradiction("GNU.sparse.map")),
            b"map" => self.add_map(value),
            _ => Err(TarFault::Record("GNU.sparse")),
        }
    }

    /// Reads the map of 0.1: numbers between commas.
    fn add_map(&mut self, value: &[u8]) -> Result<(), TarFault> {
        self.has_map = true;
        if value.is_empty() {
            return Ok(());
        }
        let mut numbers = value.split(|&byte| byte == b',');
        while let Some(offset) = numbers.next() {
            let len = numbers.next().ok_or(TarFault::SparseMap)?;
            let offset = number("GNU.sparse.map", offset)?;
            let len = number("GNU.sparse.map", len)?;
            push(&mut self.extents, SparseExtent { offset, len })?;
        }
        Ok(())
    }

    /// Returns the form that the records describe, of which every record must be a part.
    pub(crate) fn form(&mut self) -> Result<SparseForm, TarFault> {
        let extents = std::mem::take(&mut self.extents);
        let is_0 = self.size.is_some() || self.block_count.is_some() || self.has_map;
        let is_0 = is_0 || self.has_list;
        match (self.major, self.minor, self.real_size, self.size) {
            (Some(1), Some(0), Some(size), None) if !is_0 => Ok(SparseForm::InContent { size }),
            (None, None, None, None) if !is_0 && self.name.is_none() => Ok(SparseForm::None),
            (None | Some(0), None | Some(0 | 1), None, Some(size)) => {
                let count = extents.len() as u64;
                let is_counted = self.block_count.is_none_or(|blocks| blocks == count);
                let is_whole = self.offset.is_none() && !(self.has_map && self.has_list);
                match is_counted && is_whole && (self.has_map || self.has_list) {
                    true => Ok(SparseForm::Known { size, extents }),
                    false => Err(TarFault::SparseMap),
                }
            }
            _ => Err(TarFault::SparseMap),
        }
    }
}

fn push(extents: &mut Vec<SparseExtent>, extent: SparseExtent) -> Result<(), TarFault> {
    // An empty one at the end may be added.
    if extents.len() > EXTENTS_MAX {
        return Err(TarFault::TooManyExtents);
    }
    extents.push(extent);
    Ok(())
}

/// Checks that extents ascend without overlap within a file of `size` bytes, that their content is
/// what the archive stores, and that each but the last fills its blocks. Of another one GNU tar
/// takes the content from whole blocks, libarchive without gaps.
pub(crate) fn check(extents: &[SparseExtent], size: u64, stored: u64) -> Result<(), TarFault> {
    let (mut end, mut sum) = (0, 0u64);
    for extent in extents {
        if sum % BLOCK as u64 != 0 && extent.len > 0 {
            return Err(TarFault::SparseMap);
        }
        let next = extent.offset.checked_add(extent.len);
        let next = next.filter(|&next| extent.offset >= end && next <= size);
        end = next.ok_or(TarFault::SparseMap)?;
        // The sum is at most the end.
        sum += extent.len;
    }
    match sum == stored && i64::try_from(size).is_ok() {
        true => Ok(()),
        false => Err(TarFault::SparseMap),
    }
}

/// Adds the extents of an old GNU header: pairs of numbers. Returns whether a blank one ended them.
pub(crate) fn add_old(extents: &mut Vec<SparseExtent>, field: &[u8]) -> Result<bool, TarFault> {
    for pair in field.chunks_exact(24) {
        let number = |field: &[u8]| {
            let number = parse_field(field).map_err(|_| TarFault::SparseMap)?;
            let number = number.map(u64::try_from).transpose();
            number.map_err(|_| TarFault::SparseMap)
        };
        let (Some(offset), Some(len)) = (number(&pair[..12])?, number(&pair[12..])?) else {
            return Ok(true);
        };
        push(extents, SparseExtent { offset, len })?;
    }
    Ok(false)
}

/// Writes the map of 1.0 for a file of `size` bytes: the count and the numbers, a line each, to the
/// end of a block.
pub(crate) fn write_map(extents: &[SparseExtent], size: u64) -> Vec<u8> {
    // GNU tar gives the file the size only if an extent, possibly empty, ends there.
    let ends = |extent: &SparseExtent| extent.offset.checked_add(extent.len) == Some(size);
    let end = SparseExtent {
        offset: size,
        len: 0,
    };
    let end = (!extents.last().is_some_and(ends)).then_some(&end);
    let count = extents.len() + usize::from(end.is_some());
    let mut map = format!("{count}\n").into_bytes();
    for extent in extents.iter().chain(end) {
        map.extend_from_slice(format!("{}\n{}\n", extent.offset, extent.len).as_bytes());
    }
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// The map of 1.0, as far as its blocks have arrived.
#[derive(Debug, Default)]
pub(crate) struct SparseMapReader {
    /// Bytes of the blocks.
    pub(crate) read: u64,
    count: Option<usize>,
    digits: Vec<u8>,
    offset: Option<u64>,
    extents: Vec<SparseExtent>,
}

impl SparseMapReader {
    /// Takes a block. Returns the extents if it was the last one.
    pub(crate) fn add(&mut self, block: &[u8]) -> Result<Option<Vec<SparseExtent>>, TarFault> {
        self.read += block.len() as u64;
        for (at, &byte) in block.iter().enumerate() {
            if byte != b'\n' {
                if self.digits.len() >= DIGITS_MAX {
                    return Err(TarFault::SparseMap);
                }
                self.digits.push(byte);
                continue;
            }
            let number = parse_decimal(&self.digits).map_err(|_| TarFault::SparseMap)?;
            self.digits.clear();
            self.take_number(number)?;
            if self.count == Some(self.extents.len()) && self.offset.is_none() {
                return match block[at + 1..].iter().all(|&byte| byte == 0) {
                    true => Ok(Some(std::mem::take(&mut self.extents))),
                    false => Err(TarFault::SparseMap),
                };
            }
        }
        Ok(None)
    }

    fn take_number(&mut self, number: u64) -> Result<(), TarFault> {
        if self.count.is_none() {
            let count = usize::try_from(number).ok();
            let count = count.filter(|&count| count <= EXTENTS_MAX + 1);
            self.count = Some(count.ok_or(TarFault::TooManyExtents)?);
            return Ok(());
        }
        match self.offset.take() {
            None => self.offset = Some(number),
            Some(offset) => push(
                &mut self.extents,
                SparseExtent {
                    offset,
                    len: number,
                },
            )?,
        }
        Ok(())
    }
}
