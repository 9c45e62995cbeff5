//! Sizes, numbers and addresses as people type them, and labels for sizes.

/// Each with the name that it has in a label.
const UNITS: [(u64, &str); 6] = [
    (1 << 30, "GiB"),
    (1_000_000_000, "GB"),
    (1 << 20, "MiB"),
    (1_000_000, "MB"),
    (1 << 10, "KiB"),
    (1000, "KB"),
];

/// Parses `7MB`, `64KiB` or `1G`: a whole number and a decimal or binary unit. As in GNU's tools, a
/// single letter is binary.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = match unit.trim() {
        letter if letter.len() == 1 => format!("{letter}iB"),
        unit => unit.to_owned(),
    };
    let known = UNITS
        .iter()
        .find(|(_, name)| name.eq_ignore_ascii_case(&unit));
    let factor = match known {
        Some((factor, _)) => *factor,
        None if unit.is_empty() => 1,
        None => return Err("expected a unit of K, KiB, KB, M, MiB, MB, G, GiB, GB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a whole number")?;
    let size = number.checked_mul(factor).filter(|&size| size > 0);
    size.ok_or_else(|| "expected a size of at least 1 byte".to_owned())
}

/// The largest number of connections, files, requests or rounds: products of two of them with a
/// size are still numbers.
const COUNT_MAX: u32 = 1_000_000;

/// Parses a number of connections, files, requests or rounds, of which there is at least one.
///
/// # Errors
/// The text is not a whole number, 0, or too large.
pub fn parse_count<N: TryFrom<u32>>(text: &str) -> Result<N, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=COUNT_MAX).contains(number));
    let number = number.and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| format!("expected a whole number from 1 to {COUNT_MAX}"))
}

/// Parses `HOST:PORT`, where the next port is used too.
///
/// # Errors
/// The host, the port or the next port is missing.
pub fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or("expected HOST:PORT")?;
    match port.parse() {
        Ok(port @ 1..=65534) if !host.is_empty() => Ok((host.to_owned(), port)),
        _ => Err("expected a host, and a port from 1 to 65534".into()),
    }
}

/// Formats a size as a whole number of the largest unit that divides it: `7 MB`, `10 KiB`, `1 GiB`.
pub(crate) fn size_label(bytes: u64) -> String {
    let mut units = UNITS.iter();
    match units.find(|&&(unit, _)| bytes >= unit && bytes.is_multiple_of(unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

/// Returns the sizes of the cases: the requested ones, or else the usual ones; each once, the
/// smallest first.
pub(crate) fn sizes_of_cases(requested: &[u64], usual: &[u64]) -> Vec<u64> {
    let sizes = if requested.is_empty() {
        usual
    } else {
        requested
    };
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["7MB", "64KiB", "1G", "123", "10 kb"].map(|text| parse_size(text).ok());
        let expected = [7_000_000, 65_536, 1 << 30, 123, 10_000].map(Some);
        assert_eq!(sizes, expected);
        for text in ["", "MB", "7XB", "-1", "0", "99999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_begin_with_one() {
        assert_eq!(parse_count::<usize>("1000000"), Ok(1_000_000));
        for text in ["0", "-1", "", "1000001", "99999999999999999999", "x"] {
            assert!(parse_count::<u64>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sink_has_a_host_and_a_port_with_one_after_it() {
        assert_eq!(host_and_port("::1:70"), Ok(("::1".into(), 70)));
        for text in ["here", ":70", "here:x", "here:0", "here:65535"] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_is_one_case_however_often_it_is_requested() {
        assert_eq!(sizes_of_cases(&[30, 10, 30], &[7]), [10, 30]);
        assert_eq!(sizes_of_cases(&[], &[7]), [7]);
    }

    #[test]
    fn sizes_are_named_by_the_unit_that_fits() {
        let sizes = [10_240, 7_000_000, 1 << 30, 1_000_000_000, 100 << 20, 1234];
        let labels = sizes.map(size_label);
        let expected = ["10 KiB", "7 MB", "1 GiB", "1 GB", "100 MiB", "1234 bytes"];
        assert_eq!(labels, expected);
    }
}
