//! Headers of members, written: ustar, preceded by pax records for values that do not fit there.
//!
//! ```text
//!  [ pax head │ records │ zeros ]                         only where needed
//!  [ ustar head │ map of a sparse file │ content │ zeros ]     all in blocks of 512 bytes
//! ```

use crate::header::{BLOCK, ID_MAX, NAME_BYTES_MAX, NUMBER_MAX, OWNER_BYTES_MAX, UstarHeader};
use crate::member::{Member, MemberKind, TarTime};
use crate::pax::{XATTR_PREFIX, encode_xattr_name, push_record};
use crate::sparse;

/// The end of an archive.
pub const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Returns the zeros that fill the last block of `size` bytes of content.
pub fn padding(size: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let over = (size % BLOCK as u64) as usize;
    &ZEROS[..(BLOCK - over) % BLOCK]
}

impl Member {
    /// Appends the headers: everything before the content, of which
    /// [`stored`](MemberKind::stored) bytes follow, and their [`padding`].
    ///
    /// Devices, FIFOs and unknown types are written without what only they have.
    pub fn write(&self, out: &mut Vec<u8>) {
        let map = match &self.kind {
            MemberKind::SparseFile { size, extents } => sparse::write_map(extents, *size),
            _ => Vec::new(),
        };
        let stored = self.kind.stored().saturating_add(map.len() as u64);
        let records = self.records(stored);
        if !records.is_empty() {
            let head = UstarHeader::new(b"pax", b'x', 0o644, records.len() as u64, 0);
            out.extend_from_slice(&head.finish());
            out.extend_from_slice(&records);
            out.extend_from_slice(padding(records.len() as u64));
        }
        let seconds = u64::try_from(self.modified.seconds).unwrap_or(0);
        let path = self.header_path();
        let mut head = UstarHeader::new(&path, self.kind.flag(), self.mode, stored, seconds);
        head.target(self.kind.target().unwrap_or_default());
        head.user(self.owner.uid, &self.owner.user);
        head.group(self.owner.gid, &self.owner.group);
        out.extend_from_slice(&head.finish());
        out.extend_from_slice(&map);
    }

    /// Returns the path for the header. That of a sparse file tells readers without the extension
    /// that the content is not the file's; a folder's ends with a slash.
    fn header_path(&self) -> Vec<u8> {
        let path = self.written_path();
        let MemberKind::SparseFile { .. } = self.kind else {
            return path;
        };
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let prefix = b"GNUSparseFile.0/";
        let name = &name[..name.len().min(NAME_BYTES_MAX - prefix.len())];
        [prefix, name].concat()
    }

    fn written_path(&self) -> Vec<u8> {
        match self.kind {
            MemberKind::Folder if !self.path.ends_with(b"/") => [&self.path[..], b"/"].concat(),
            _ => self.path.clone(),
        }
    }

    fn records(&self, stored: u64) -> Vec<u8> {
        let mut records = Vec::new();
        let records = &mut records;
        if let MemberKind::SparseFile { size, .. } = &self.kind {
            push_record(records, b"GNU.sparse.major", b"1");
            push_record(records, b"GNU.sparse.minor", b"0");
            push_record(records, b"GNU.sparse.name", &self.path);
            let size = size.to_string();
            push_record(records, b"GNU.sparse.realsize", size.as_bytes());
        } else {
            push_text(records, b"path", &self.written_path(), NAME_BYTES_MAX);
        }
        if let Some(target) = self.kind.target() {
            push_text(records, b"linkpath", target, NAME_BYTES_MAX);
        }
        if stored > NUMBER_MAX {
            push_record(records, b"size", stored.to_string().as_bytes());
        }
        let TarTime {
            seconds,
            nanoseconds,
        } = self.modified;
        if nanoseconds != 0 || u64::try_from(seconds).is_err() || seconds as u64 > NUMBER_MAX {
            push_record(records, b"mtime", time(self.modified).as_bytes());
        }
        for (key, id) in [(b"uid", self.owner.uid), (b"gid", self.owner.gid)] {
            if id > ID_MAX {
                push_record(records, key, id.to_string().as_bytes());
            }
        }
        push_text(records, b"uname", &self.owner.user, OWNER_BYTES_MAX);
        push_text(records, b"gname", &self.owner.group, OWNER_BYTES_MAX);
        for (name, value) in &self.xattrs {
            let key = [XATTR_PREFIX, &encode_xattr_name(name)].concat();
            push_record(records, &key, value);
        }
        std::mem::take(records)
    }
}

impl MemberKind {
    fn flag(&self) -> u8 {
        match self {
            MemberKind::File { .. } | MemberKind::SparseFile { .. } => b'0',
            MemberKind::HardLink(_) => b'1',
            MemberKind::Symlink(_) => b'2',
            MemberKind::CharacterDevice => b'3',
            MemberKind::BlockDevice => b'4',
            MemberKind::Folder => b'5',
            MemberKind::Fifo => b'6',
            MemberKind::Other { flag, .. } => *flag,
        }
    }

    fn target(&self) -> Option<&[u8]> {
        match self {
            MemberKind::Symlink(target) | MemberKind::HardLink(target) => Some(target),
            _ => None,
        }
    }
}

/// Adds a record for a text that is too long for its field, or not ASCII.
fn push_text(records: &mut Vec<u8>, key: &[u8], value: &[u8], bytes_max: usize) {
    // A short text that is not UTF-8 stays in the ustar header: a record for it would require a
    // `hdrcharset` record, which GNU tar does not know.
    let is_text = std::str::from_utf8(value).is_ok();
    if value.len() > bytes_max || is_text && !value.is_ascii() {
        push_record(records, key, value);
    }
}

/// Formats seconds with a fraction. File systems count nanoseconds forward, before 1970 too.
fn time(time: TarTime) -> String {
    let nanoseconds = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, fraction) = (
        nanoseconds.unsigned_abs() / 1_000_000_000,
        nanoseconds.unsigned_abs() % 1_000_000_000,
    );
    format!("{sign}{seconds}.{fraction:09}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &[u8], kind: MemberKind, seconds: i64, nanoseconds: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let modified = TarTime {
            seconds,
            nanoseconds,
        };
        Member::new(path, kind, 0o644, modified).write(&mut out);
        out
    }

    #[test]
    fn what_fits_is_one_block() {
        let head = written(b"a/b", MemberKind::File { size: 0o1234 }, 1, 0);
        assert_eq!(head.len(), BLOCK);
        assert_eq!(&head[..4], b"a/b\0");
        assert_eq!(&head[108..124], b"0000000\x000000000\0");
        assert_eq!(&head[124..136], b"00000001234\0");
        assert_eq!(&head[257..265], b"ustar\x0000");
        assert!(head[265..].iter().all(|&byte| byte == 0));
        let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
        let own: u32 = head[148..156].iter().map(|&byte| u32::from(byte)).sum();
        let expected = format!("{:06o}\0 ", sum - own + 8 * u32::from(b' '));
        assert_eq!(&head[148..156], expected.as_bytes());
    }

    #[test]
    fn what_does_not_fit_has_records() {
        let long = vec![b'n'; 101];
        let large = NUMBER_MAX + 1;
        let folder = || MemberKind::Folder;
        for (head, record) in [
            (written(&long, folder(), 0, 0), "112 path=nnn".to_owned()),
            (
                written("ü/".as_bytes(), folder(), 0, 0),
                "12 path=ü/\n".into(),
            ),
            (
                written(b"l", MemberKind::Symlink(long.clone()), 0, 0),
                "115 linkpath=nnn".into(),
            ),
            (
                written(b"l", MemberKind::HardLink(long.clone()), 0, 0),
                "115 linkpath=nnn".into(),
            ),
            (
                written(b"f", MemberKind::File { size: large }, 0, 0),
                format!("19 size={large}\n"),
            ),
            (
                written(b"f", folder(), 1, 5),
                "21 mtime=1.000000005\n".into(),
            ),
            (
                written(b"f", folder(), -1, 500_000_000),
                "22 mtime=-0.500000000\n".into(),
            ),
        ] {
            assert_eq!(head.len(), 3 * BLOCK, "{record}");
            assert_eq!(head[156], b'x');
            let records = &head[BLOCK..2 * BLOCK];
            let text = records.escape_ascii();
            assert!(records.starts_with(record.as_bytes()), "{text}");
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
