//! Whether a binary needs nothing but the kernel: as much of ELF as says so (elf(5)).

const HEADER_BYTES: usize = 64;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;

/// Whether the binary runs without a loader and without libraries.
///
/// # Errors
/// Why it does not, or what is wrong with the file.
pub(super) fn check_static(bytes: &[u8]) -> Result<(), String> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err("this is no ELF of 64 bits, little-endian".to_owned());
    }
    let cut = || "this ELF is cut short".to_owned();
    let (start, size, count) = (
        number(bytes, 32, 8).ok_or_else(cut)?,
        number(bytes, 54, 2).ok_or_else(cut)?,
        number(bytes, 56, 2).ok_or_else(cut)?,
    );
    for segment in 0..count {
        let at = start.saturating_add(segment * size);
        let field = |offset, width| number(bytes, at.saturating_add(offset), width);
        match field(0, 4).ok_or_else(cut)? {
            PT_INTERP => return Err("it names a loader (PT_INTERP): it is not static".to_owned()),
            PT_DYNAMIC => {
                let (at, length) = (field(8, 8).ok_or_else(cut)?, field(32, 8).ok_or_else(cut)?);
                if needs_library(bytes, at, length).ok_or_else(cut)? {
                    return Err("it needs a library (DT_NEEDED): it is not static".to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a dynamic section, which a static binary has too where it can be anywhere in memory,
/// names a library.
fn needs_library(bytes: &[u8], start: u64, length: u64) -> Option<bool> {
    for entry in 0..length / 16 {
        match number(bytes, start.checked_add(entry * 16)?, 8)? {
            0 => return Some(false),
            DT_NEEDED => return Some(true),
            _ => {}
        }
    }
    Some(false)
}

/// A little-endian number of so many bytes.
fn number(bytes: &[u8], at: u64, width: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |all, byte| (all << 8) | u64::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF with one segment of a type, at whose place an entry of a dynamic section stands.
    fn elf(segment: u64, entry: u64) -> Vec<u8> {
        let mut bytes = vec![0; 192];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: u64, width: usize| {
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        };
        put(32, 64, 8);
        put(54, 56, 2);
        put(56, 1, 2);
        put(64, segment, 4);
        put(72, 128, 8);
        put(96, 32, 8);
        put(128, entry, 8);
        bytes
    }

    #[test]
    fn loaders_and_libraries_are_found() {
        assert_eq!(check_static(&elf(1, 0)), Ok(()));
        assert_eq!(check_static(&elf(PT_DYNAMIC, 5)), Ok(()));
        for (segment, entry, what) in [(PT_INTERP, 0, "loader"), (PT_DYNAMIC, 1, "library")] {
            let why = check_static(&elf(segment, entry)).unwrap_err();
            assert!(why.contains(what), "{why}");
        }
    }

    #[test]
    fn this_very_test_is_not_static_and_anything_else_is_no_elf() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        if !cfg!(target_feature = "crt-static") {
            assert!(check_static(&own).unwrap_err().contains("loader"));
        }
        for length in [0, 6, 63, 64, 70, 127, 140] {
            assert!(
                check_static(&elf(PT_DYNAMIC, 1)[..length]).is_err(),
                "{length}"
            );
        }
        assert!(check_static(b"#!/bin/sh\n").is_err());
    }
}
