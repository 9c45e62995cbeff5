//! Bytes per second, as rsync's users write them.

use std::ffi::OsStr;

/// Reads `RATE`: a number of KiB, or one with a suffix: `K`, `KiB`, `M`, `G`, `T` are powers of
/// 1024, `KB`, `MB`, `GB`, `TB` powers of 1000, `B` single bytes. 0 is no limit. `None` where it
/// is invalid.
pub(super) fn read(rate: &OsStr) -> Option<Option<u64>> {
    let rate = rate.to_str()?;
    let is_digit = |char: char| char.is_ascii_digit() || char == '.';
    let end = rate.find(|char| !is_digit(char)).unwrap_or(rate.len());
    let (number, suffix) = rate.split_at(end);
    let number: f64 = number.parse().ok()?;
    let bytes = number * unit(suffix)?;
    if bytes == 0.0 {
        return Some(None);
    }
    let fits = bytes.is_finite() && bytes < u64::MAX as f64;
    fits.then(|| Some((bytes as u64).max(1)))
}

fn unit(suffix: &str) -> Option<f64> {
    let suffix = suffix.to_ascii_lowercase();
    let mut letters = suffix.chars();
    let power = match letters.next() {
        None => return Some(1024.0),
        Some('b') if suffix == "b" => return Some(1.0),
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some(_) => return None,
    };
    match letters.as_str() {
        "" | "ib" => Some(1024_f64.powi(power)),
        "b" => Some(1000_f64.powi(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_rsync_reads_them() {
        for (rate, expected) in [
            ("1", Some(Some(1024))),
            ("1k", Some(Some(1024))),
            ("1.5M", Some(Some(3 << 19))),
            ("2GiB", Some(Some(2 << 30))),
            ("2MB", Some(Some(2_000_000))),
            ("100b", Some(Some(100))),
            ("0", Some(None)),
            ("", None),
            ("M", None),
            ("1x", None),
            ("1kk", None),
            ("-1", None),
            ("1.2.3", None),
        ] {
            assert_eq!(read(rate.as_ref()), expected, "{rate}");
        }
    }
}
