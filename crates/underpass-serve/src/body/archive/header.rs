//! The headers of tar members: ustar, preceded by pax records for values that do not fit there
//! (POSIX.1-2017, pax, "pax Interchange Format").
//!
//! ```text
//!  [ pax head │ records │ zeros ]   only where needed
//!  [ ustar head │ content │ zeros ]     all in blocks of 512 bytes
//! ```

use underpass_http::fields::validator::FileTime;

const BLOCK: usize = 512;

/// A member of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Member<'m> {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: MemberKind<'m>,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) modified: FileTime,
}

/// The type of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemberKind<'m> {
    Folder,
    File { size: u64 },
    Link(&'m [u8]),
}

/// The maximum of a number in 11 octal digits.
const NUMBER_MAX: u64 = 0o777_7777_7777;
const NAME_BYTES_MAX: usize = 100;

impl Member<'_> {
    /// Appends the headers.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let records = self.records();
        if !records.is_empty() {
            let head = UstarHeader::new(b"pax", b'x', 0o644, records.len() as u64, 0);
            out.extend_from_slice(&head.finish());
            out.extend_from_slice(&records);
            out.extend_from_slice(padding(records.len() as u64));
        }
        let (flag, size, target) = match self.kind {
            MemberKind::Folder => (b'5', 0, &b""[..]),
            MemberKind::File { size } => (b'0', size, &b""[..]),
            MemberKind::Link(target) => (b'2', 0, target),
        };
        let seconds = u64::try_from(self.modified.seconds).unwrap_or(0);
        let mut head = UstarHeader::new(&self.path, flag, self.mode, size, seconds);
        head.text(157, NAME_BYTES_MAX, target);
        out.extend_from_slice(&head.finish());
    }

    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        let name = |records: &mut Vec<u8>, key, value: &[u8]| {
            // A short name that is not UTF-8 stays in the ustar header: a record for it would
            // require a `hdrcharset` record, which GNU tar does not know.
            let is_text = std::str::from_utf8(value).is_ok();
            if value.len() > NAME_BYTES_MAX || is_text && !value.is_ascii() {
                push_record(records, key, value);
            }
        };
        name(&mut records, "path", &self.path);
        if let MemberKind::Link(target) = self.kind {
            name(&mut records, "linkpath", target);
        }
        if let MemberKind::File { size } = self.kind
            && size > NUMBER_MAX
        {
            push_record(&mut records, "size", size.to_string().as_bytes());
        }
        let FileTime {
            seconds,
            nanoseconds,
        } = self.modified;
        if nanoseconds != 0 || u64::try_from(seconds).is_err() || seconds as u64 > NUMBER_MAX {
            push_record(&mut records, "mtime", time(self.modified).as_bytes());
        }
        records
    }
}

/// Formats seconds with a fraction. File systems count nanoseconds forward, before 1970 too.
fn time(time: FileTime) -> String {
    let nanoseconds = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, fraction) = (
        nanoseconds.unsigned_abs() / 1_000_000_000,
        nanoseconds.unsigned_abs() % 1_000_000_000,
    );
    format!("{sign}{seconds}.{fraction:09}")
}

/// Appends `LENGTH KEY=VALUE\n`; the length includes its own digits.
fn push_record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Returns the zeros that fill the last block of a file of `size` bytes.
pub(crate) fn padding(size: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let over = (size % BLOCK as u64) as usize;
    &ZEROS[..(BLOCK - over) % BLOCK]
}

/// A ustar header. Owner and group are root: the owners of the files are not disclosed.
struct UstarHeader([u8; BLOCK]);

impl UstarHeader {
    fn new(path: &[u8], flag: u8, mode: u32, size: u64, seconds: u64) -> UstarHeader {
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
    fn finish(mut self) -> [u8; BLOCK] {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|&byte| u64::from(byte)).sum();
        self.octal(148, 6, sum);
        self.0[154] = 0;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(path: &[u8], kind: MemberKind<'_>, seconds: i64, nanoseconds: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let modified = FileTime {
            seconds,
            nanoseconds,
        };
        let path = path.to_vec();
        let member = Member {
            path,
            kind,
            mode: 0o644,
            modified,
        };
        member.write(&mut out);
        out
    }

    #[test]
    fn what_fits_is_one_block() {
        let head = member(b"a/b", MemberKind::File { size: 0o1234 }, 1, 0);
        assert_eq!(head.len(), BLOCK);
        assert_eq!(&head[..4], b"a/b\0");
        assert_eq!(&head[124..136], b"00000001234\0");
        assert_eq!(&head[257..265], b"ustar\x0000");
        let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
        let own: u32 = head[148..156].iter().map(|&byte| u32::from(byte)).sum();
        let expected = format!("{:06o}\0 ", sum - own + 8 * u32::from(b' '));
        assert_eq!(&head[148..156], expected.as_bytes());
    }

    #[test]
    fn what_does_not_fit_has_records() {
        let long = vec![b'n'; 101];
        let large = NUMBER_MAX + 1;
        for (head, record) in [
            (
                member(&long, MemberKind::Folder, 0, 0),
                "111 path=nnn".to_owned(),
            ),
            (
                member("ü".as_bytes(), MemberKind::Folder, 0, 0),
                "11 path=ü\n".into(),
            ),
            (
                member(b"l", MemberKind::Link(&long), 0, 0),
                "115 linkpath=nnn".into(),
            ),
            (
                member(b"f", MemberKind::File { size: large }, 0, 0),
                format!("19 size={large}\n"),
            ),
            (
                member(b"f", MemberKind::Folder, 1, 5),
                "21 mtime=1.000000005\n".into(),
            ),
            (
                member(b"f", MemberKind::Folder, -1, 500_000_000),
                "22 mtime=-0.500000000\n".into(),
            ),
        ] {
            assert_eq!(head.len(), 3 * BLOCK, "{record}");
            assert_eq!(head[156], b'x');
            let records = &head[BLOCK..2 * BLOCK];
            assert!(
                records.starts_with(record.as_bytes()),
                "{}",
                records.escape_ascii()
            );
        }
    }

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for length in 0..1200 {
            let mut records = Vec::new();
            push_record(&mut records, "path", &vec![b'x'; length]);
            let reported = records.split(|&byte| byte == b' ').next().unwrap();
            assert_eq!(String::from_utf8_lossy(reported), records.len().to_string());
        }
    }

    #[test]
    fn contents_end_with_their_block() {
        assert_eq!(
            [0, 1, 511, 512, 513].map(|size| padding(size).len()),
            [0, 511, 1, 0, 511]
        );
    }
}
