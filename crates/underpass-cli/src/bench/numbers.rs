//! Sizes and addresses as people type them.

/// `7MB`, `64KiB`, `1G`: a whole number, and a decimal or binary unit; a single letter is binary,
/// as GNU's tools have it.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 10] = [
        ("", 1),
        ("K", 1 << 10),
        ("KiB", 1 << 10),
        ("KB", 1000),
        ("M", 1 << 20),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("G", 1 << 30),
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
    ];
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))
        .ok_or("the unit is none of K, KiB, KB, M, MiB, MB, G, GiB, GB")?;
    let number: u64 = number.parse().map_err(|_| "a whole number is needed")?;
    let size = number.checked_mul(unit.1).filter(|&size| size > 0);
    size.ok_or_else(|| "a size from 1 byte on is needed".to_owned())
}

pub(super) fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = text.rsplit_once(':').ok_or("expected HOST:PORT")?;
    let port: u16 = port.parse().map_err(|_| "the port is no number")?;
    match port.checked_add(1) {
        Some(_) if !host.is_empty() => Ok((host.to_owned(), port)),
        _ => Err("a host, and a port below 65535, are needed".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["7MB", "64KiB", "1G", "123", "10 kb"].map(|text| bytes(text).ok());
        let expected = [7_000_000, 65_536, 1 << 30, 123, 10_000].map(Some);
        assert_eq!(sizes, expected);
        for text in ["", "MB", "7XB", "-1", "0", "99999999999G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sink_has_a_host_and_a_port_with_one_behind_it() {
        assert_eq!(host_and_port("::1:70"), Ok(("::1".into(), 70)));
        for text in ["here", ":70", "here:x", "here:65535"] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }
}
