//! Pax records: `LENGTH KEY=VALUE\n`, where the length counts the whole record.

use std::collections::BTreeMap;

use crate::error::TarFault;
use crate::header::valid_id;
use crate::limits::{DIGITS_MAX, XATTRS_MAX};
use crate::member::TarTime;
use crate::number::parse_decimal;
use crate::sparse::SparseRecords;
use crate::value::{name, number, set};

pub(crate) const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";

/// Appends a record; the length includes its own digits.
pub(crate) fn push_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Spells the name of an attribute as GNU tar does: `=` would end the key.
pub(crate) fn encode_xattr_name(name: &[u8]) -> Vec<u8> {
    let encode = |byte: &u8| match byte {
        b'=' => b"%3D".to_vec(),
        b'%' => b"%25".to_vec(),
        byte => vec![*byte],
    };
    name.iter().flat_map(encode).collect()
}

fn decode_xattr_name(mut name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    while let [byte, rest @ ..] = name {
        (decoded, name) = match name {
            [b'%', b'3', b'D', rest @ ..] => ([&decoded[..], b"="].concat(), rest),
            [b'%', b'2', b'5', rest @ ..] => ([&decoded[..], b"%"].concat(), rest),
            _ => {
                decoded.push(*byte);
                (decoded, rest)
            }
        };
    }
    decoded
}

/// The records that apply to a member.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaxRecords {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<TarTime>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) group: Option<Vec<u8>>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) sparse: SparseRecords,
    /// The keys of records without meaning here.
    pub(crate) ignored: Vec<Vec<u8>>,
}

/// Whether records apply to one member or to all that follow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PaxScope {
    Member,
    Global,
}

impl PaxRecords {
    /// Reads the records of an extension.
    pub(crate) fn parse(mut text: &[u8], scope: PaxScope) -> Result<PaxRecords, TarFault> {
        let mut records = PaxRecords::default();
        while !text.is_empty() {
            let (key, value, rest) = split_record(text).ok_or(TarFault::MalformedRecord)?;
            if scope == PaxScope::Global {
                check_global(key)?;
            }
            records.add(key, value)?;
            text = rest;
        }
        Ok(records)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarFault> {
        match key {
            b"path" => set(&mut self.path, "path", name("path", value)?),
            b"linkpath" => set(&mut self.target, "linkpath", name("linkpath", value)?),
            b"size" => set(&mut self.size, "size", number("size", value)?),
            b"mtime" => {
                let time = parse_time(value).ok_or(TarFault::Record("mtime"))?;
                set(&mut self.modified, "mtime", time)
            }
            b"uid" => set(&mut self.uid, "uid", id("uid", value)?),
            b"gid" => set(&mut self.gid, "gid", id("gid", value)?),
            b"uname" => set(&mut self.user, "uname", value.to_vec()),
            b"gname" => set(&mut self.group, "gname", value.to_vec()),
            // BINARY: names are bytes, as here in every case.
            b"hdrcharset" => match value {
                b"BINARY" | b"ISO-IR 10646 2000 UTF-8" => Ok(()),
                _ => Err(TarFault::Record("hdrcharset")),
            },
            b"atime" | b"ctime" | b"comment" => Ok(()),
            _ => {
                if let Some(attribute) = key.strip_prefix(XATTR_PREFIX) {
                    self.add_xattr(attribute, value)
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.add(key, value)
                } else {
                    self.ignored.push(key.to_vec());
                    Ok(())
                }
            }
        }
    }

    fn add_xattr(&mut self, attribute: &[u8], value: &[u8]) -> Result<(), TarFault> {
        if attribute.is_empty() || attribute.contains(&0) {
            return Err(TarFault::Record("SCHILY.xattr"));
        }
        let former = (self.xattrs).insert(decode_xattr_name(attribute), value.to_vec());
        match former {
            Some(former) if former != value => Err(TarFault::Contradiction("SCHILY.xattr")),
            _ if self.xattrs.len() > XATTRS_MAX => Err(TarFault::TooManyXattrs),
            _ => Ok(()),
        }
    }

    /// Adds later global records to these.
    pub(crate) fn replace_by(&mut self, later: PaxRecords) {
        self.modified = later.modified.or(self.modified);
        self.uid = later.uid.or(self.uid);
        self.gid = later.gid.or(self.gid);
        self.user = later.user.or(self.user.take());
        self.group = later.group.or(self.group.take());
    }
}

/// Rejects records that would give all members one name or size, or whose number is not bounded.
fn check_global(key: &[u8]) -> Result<(), TarFault> {
    Err(TarFault::Global(match key {
        b"path" => "path",
        b"linkpath" => "linkpath",
        b"size" => "size",
        _ if key.starts_with(XATTR_PREFIX) => "SCHILY.xattr",
        _ if key.starts_with(b"GNU.sparse.") => "GNU.sparse",
        _ => return Ok(()),
    }))
}

/// Returns key and value of the first record, and the rest.
fn split_record(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digits = text
        .iter()
        .take(DIGITS_MAX)
        .position(|&byte| byte == b' ')?;
    let length = parse_decimal(&text[..digits]).ok()?;
    if text[0] == b'0' {
        return None;
    }
    let (record, rest) = text.split_at_checked(usize::try_from(length).ok()?)?;
    let record = record.get(digits + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    let (key, value) = (&record[..equals], &record[equals + 1..]);
    let is_key = !key.is_empty() && !key.contains(&0);
    is_key.then_some((key, value, rest))
}

fn id(key: &'static str, value: &[u8]) -> Result<u32, TarFault> {
    valid_id(Some(number(key, value)?)).ok_or(TarFault::Record(key))
}

/// Reads seconds with a fraction, of which nanoseconds are kept, rounded down.
fn parse_time(text: &[u8]) -> Option<TarTime> {
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        text => (false, text),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let seconds = i64::try_from(parse_decimal(parts.next()?).ok()?).ok()?;
    let fraction = parts.next().unwrap_or(b"0");
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (kept, rest) = fraction.split_at(fraction.len().min(9));
    let nanoseconds = kept
        .iter()
        .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    let nanoseconds = nanoseconds * 10u32.pow(9 - kept.len() as u32);
    if !is_negative {
        return Some(TarTime {
            seconds,
            nanoseconds,
        });
    }
    let up = u32::from(rest.iter().any(|&digit| digit != b'0'));
    Some(match nanoseconds + up {
        0 => TarTime {
            seconds: -seconds,
            nanoseconds: 0,
        },
        nanoseconds => TarTime {
            seconds: -seconds - 1,
            nanoseconds: 1_000_000_000 - nanoseconds,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<PaxRecords, TarFault> {
        PaxRecords::parse(text, PaxScope::Member)
    }

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for length in 0..1200 {
            let mut records = Vec::new();
            push_record(&mut records, b"path", &vec![b'x'; length]);
            let reported = records.split(|&byte| byte == b' ').next().unwrap();
            assert_eq!(String::from_utf8_lossy(reported), records.len().to_string());
            let (key, value, rest) = split_record(&records).unwrap();
            assert_eq!((key, value.len(), rest.len()), (&b"path"[..], length, 0));
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        for text in [
            &b"6 a=b"[..],
            b"6 a=b\n6 a=b",
            b"5 a=b\n",
            b"7 a=b\n",
            b"06 a=b\n",
            b"6  a=b\n",
            b" 6 a=b\n",
            b"+6 a=b\n",
            b"5 =b\n",
            b"5 ab\n",
            b"3 \n",
            b"1 a=b\n",
            b"0 a=b\n",
            b"8 a\0b=c\n",
            b"99999999999999999999 a=b\n",
            b"\n",
            b"\0",
        ] {
            let parsed = parse(text).map(drop);
            assert_eq!(
                parsed,
                Err(TarFault::MalformedRecord),
                "{}",
                text.escape_ascii()
            );
        }
    }

    #[test]
    fn values_are_checked_and_do_not_contradict() {
        for (text, fault) in [
            (&b"8 path=\n"[..], TarFault::Record("path")),
            (b"11 path=a\0\n", TarFault::Record("path")),
            (b"9 size=-\n", TarFault::Record("size")),
            (b"8 size=\n", TarFault::Record("size")),
            (b"10 size=0x\n", TarFault::Record("size")),
            (b"29 size=18446744073709551616\n", TarFault::Record("size")),
            (b"11 mtime=1.\n", TarFault::Record("mtime")),
            (b"12 mtime=1e9\n", TarFault::Record("mtime")),
            (b"18 uid=4294967295\n", TarFault::Record("uid")),
            (b"16 hdrcharset=a\n", TarFault::Record("hdrcharset")),
            (b"18 SCHILY.xattr.=\n", TarFault::Record("SCHILY.xattr")),
            (b"9 path=a\n9 path=b\n", TarFault::Contradiction("path")),
            (b"10 size=1\n10 size=2\n", TarFault::Contradiction("size")),
            (
                b"20 SCHILY.xattr.a=1\n20 SCHILY.xattr.a=2\n",
                TarFault::Contradiction("SCHILY.xattr"),
            ),
        ] {
            let mut text = text.to_vec();
            relength(&mut text);
            let parsed = parse(&text).map(drop);
            assert_eq!(parsed, Err(fault), "{}", text.escape_ascii());
        }
        assert!(parse(b"9 path=a\n9 path=a\n").is_ok_and(|records| records.path.is_some()));
        for key in [
            "path",
            "linkpath",
            "size",
            "SCHILY.xattr.a",
            "GNU.sparse.map",
        ] {
            let mut text = Vec::new();
            push_record(&mut text, key.as_bytes(), b"1");
            let parsed = PaxRecords::parse(&text, PaxScope::Global);
            assert!(matches!(parsed, Err(TarFault::Global(_))), "{key}");
        }
    }

    /// Writes the correct lengths into a list of records.
    fn relength(text: &mut Vec<u8>) {
        let mut corrected = Vec::new();
        for record in text
            .split(|&byte| byte == b'\n')
            .filter(|record| !record.is_empty())
        {
            let space = record.iter().position(|&byte| byte == b' ').unwrap();
            let record = &record[space + 1..];
            let equals = record.iter().position(|&byte| byte == b'=').unwrap();
            push_record(&mut corrected, &record[..equals], &record[equals + 1..]);
        }
        *text = corrected;
    }

    #[test]
    fn times_are_rounded_down() {
        for (text, seconds, nanoseconds) in [
            (&b"0"[..], 0, 0),
            (b"1.5", 1, 500_000_000),
            (b"1.0000000019", 1, 1),
            (b"-1", -1, 0),
            (b"-0.5", -1, 500_000_000),
            (b"-0.0000000001", -1, 999_999_999),
            (b"-1.000000001", -2, 999_999_999),
        ] {
            let time = TarTime {
                seconds,
                nanoseconds,
            };
            assert_eq!(parse_time(text), Some(time), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn names_of_attributes_survive() {
        for name in [&b"user.a"[..], b"user.a=b", b"user.100%", b"user.%3D"] {
            assert_eq!(decode_xattr_name(&encode_xattr_name(name)), name);
        }
    }
}
