//! Promises about requests that bring files.

use crate::connection::upload_protocols::fields::HeadFields;
use crate::connection::upload_protocols::ietf::UploadFields;
use crate::connection::upload_protocols::location::{location, upload_of, upload_of_url};
use crate::connection::upload_protocols::multipart::{
    MultipartEvent, MultipartReader, WINDOW_BYTES_MIN, last_component,
};
use crate::connection::upload_protocols::tus::{AppendFields, ConcatRole, CreationFields};
use crate::connection::upload_protocols::{fields, tus};

/// Fields of uploads are rejected, or mean what a simpler parser reads: no length is negative or
/// larger than a file can be, no name hides or leads out of its folder, no part is joined twice.
/// `data` is the lines of a head.
pub fn upload_fields(data: &[u8]) {
    let head = [b"POST / HTTP/1.1\r\n", data, b"\r\n\r\n"].concat();
    let read = HeadFields::of(&head);
    for name in ["Upload-Length", "Upload-Offset"] {
        let number = read.bytes(name);
        if let (Ok(Some(value)), Ok(Some(bytes))) = (read.once(name), &number) {
            assert_eq!(
                Some(*bytes),
                plain_number(value),
                "{}",
                value.escape_ascii()
            );
        }
        assert!(number.is_err() || number.ok().flatten() <= Some(i64::MAX as u64));
    }
    if let Ok(creation) = CreationFields::parse(&read) {
        assert!(creation.length <= Some(i64::MAX as u64));
        if let Ok(Some(path)) = creation.metadata.path() {
            let names: Vec<_> = path.as_str().split('/').collect();
            let is_bad = |name: &&str| name.is_empty() || name.starts_with('.');
            assert!(!names.iter().any(is_bad), "{path:?}");
            assert!(!path.as_str().contains(['\\', '\0', '\n']), "{path:?}");
        }
        if let ConcatRole::Final(parts) = creation.role {
            assert!((1..=256).contains(&parts.len()) && creation.length.is_none());
            for (at, part) in parts.iter().enumerate() {
                assert!(!parts[..at].contains(part), "{part}");
                let again = upload_of_url(location(part).as_bytes());
                assert!(again.is_ok_and(|again| again == *part));
            }
        }
    }
    if let Ok(append) = AppendFields::parse(&read) {
        assert!(append.offset <= i64::MAX as u64);
    }
    if let Ok(Some(digest)) = tus::checksum(&read) {
        assert_eq!(digest.hash.len(), digest.algorithm.length());
    }
    for name in ["Content-Digest", "Repr-Digest"] {
        if let Ok(Some(digest)) = read.digest(name) {
            assert_eq!(digest.hash.len(), digest.algorithm.length());
        }
    }
    if let Ok(asked) = UploadFields::parse(&read) {
        for left in [None, Some(0), Some(7), Some(u64::MAX)] {
            for (known, offset) in [(None, 0), (Some(7), 3), (None, u64::MAX)] {
                let length = asked.file_length(known, (offset, left));
                let Ok(length) = length else { continue };
                assert!(known.is_none_or(|known| length == Some(known)));
                assert!(asked.length.is_none_or(|said| length == Some(said)));
            }
        }
    }
    if let Some(Ok(id)) = upload_of(Some(data)) {
        assert!(id.as_str().len() == 32 && !id.as_str().contains(['/', '.']));
    }
}

fn plain_number(value: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| Some(u64::from(byte.checked_sub(b'0').filter(|it| *it < 10)?));
    let more = |sum: Option<u64>, byte: &u8| sum?.checked_mul(10)?.checked_add(digit(byte)?);
    value.iter().fold(Some(0), more)
}

/// However a form is split, its parts are the same, in memory of a bounded size; and a file without
/// a line that begins as a boundary is what was sent. The first four bytes determine the split.
pub fn form(data: &[u8]) {
    let (cuts, body) = data.split_at(data.len().min(4));
    let cuts: Vec<_> = cuts.iter().map(|&cut| usize::from(cut) + 1).collect();
    let start = [b"--b", body].concat();
    let whole = parts(&start, &[usize::MAX]);
    assert_eq!(whole, parts(&start, &[1]), "byte by byte");
    assert_eq!(whole, parts(&start, &cuts), "in pieces of {cuts:?}");
    for (name, _) in whole.iter().flatten() {
        let name = last_component(name.as_deref().unwrap_or_default());
        assert!(!name.contains(&b'/') && !name.contains(&b'\\'));
    }
    if body.windows(5).any(|five| five == b"\r\n--b") || body.starts_with(b"--b") {
        return;
    }
    let head = b"--b\r\nContent-Disposition: form-data; name=f; filename=n\r\n\r\n";
    let one = [&head[..], body, b"\r\n--b--"].concat();
    let expected = vec![(Some(b"n".to_vec()), body.to_vec())];
    assert_eq!(parts(&one, &cuts), Some(expected));
}

/// The name of a part's file, and its content.
type ReadPart = (Option<Vec<u8>>, Vec<u8>);

/// Returns the parts of a form that comes in pieces of these sizes, if it is complete and valid.
fn parts(body: &[u8], cuts: &[usize]) -> Option<Vec<ReadPart>> {
    let mut reader = MultipartReader::of(b"multipart/form-data; boundary=b").ok()??;
    let (mut window, mut parts) = (Vec::new(), Vec::<ReadPart>::new());
    let (mut there, mut cuts) = (0_usize, cuts.iter().cycle());
    loop {
        let (taken, event) = reader.read(&window).ok()?;
        match event {
            Some(MultipartEvent::Part(name)) => parts.push((name, Vec::new())),
            Some(MultipartEvent::Content) => {
                assert!(taken > 0);
                let (_, content) = parts.last_mut().expect("content of a part");
                content.extend_from_slice(&window[..taken]);
            }
            Some(MultipartEvent::PartEnd) => {}
            Some(MultipartEvent::End) => return Some(parts),
            None if taken == 0 => {
                assert!(
                    window.len() < WINDOW_BYTES_MIN,
                    "{} bytes wait",
                    window.len()
                );
                let to = there.saturating_add(*cuts.next()?).min(body.len());
                if to == there {
                    return None;
                }
                window.extend_from_slice(&body[there..to]);
                there = to;
            }
            None => {}
        }
        window.drain(..taken);
    }
}

/// A number that is read is the number that was written.
pub fn upload_number(number: u64) {
    let read = fields::number(number.to_string().as_bytes());
    assert_eq!(read.ok(), Some(number).filter(|it| *it <= i64::MAX as u64));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::text;

    const FIELDS: &[&str] = &[
        "\r\n",
        "\r\n",
        "Tus-Resumable: 1.0.0\r\n",
        "Upload-Length: ",
        "Upload-Offset: ",
        "Upload-Defer-Length: 1\r\n",
        "Upload-Metadata: filename ",
        "relativePath ",
        "YQ==",
        "Li4vYQ==",
        "L2EvYg==",
        ",",
        " ",
        "Upload-Concat: final;",
        "Upload-Concat: partial\r\n",
        "?upload=0123456789abcdef0123456789abcdef",
        "?upload=fedcba98765432100123456789abcdef",
        "upload=0123456789abcdef0123456789abcdef",
        "Upload-Checksum: sha1 ",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "Upload-Complete: ?1\r\n",
        "Upload-Incomplete: ?0\r\n",
        "Upload-Draft-Interop-Version: 6\r\n",
        "Repr-Digest: sha-256=:AAAA:\r\n",
        "0",
        "9",
        "9223372036854775807",
        "-",
    ];

    const FORMS: &[&str] = &[
        "\r\n",
        "\r\n",
        "\r\n--b\r\n",
        "\r\n--b--",
        "\r\n--bb",
        "--b",
        "-",
        "\r",
        "Content-Disposition: form-data; name=f; filename=\"a\"\r\n\r\n",
        "Content-Disposition: form-data; name=f\r\n\r\n",
        "filename*=UTF-8''%2e%2e%2f",
        "Content-Transfer-Encoding: binary\r\n",
        "; filename=",
        "..\\",
        "content",
        "\0",
    ];

    proptest! {
        #[test]
        fn fields_of_uploads(data in text(FIELDS)) {
            super::upload_fields(&data);
        }

        #[test]
        fn forms(cuts in any::<[u8; 4]>(), data in text(FORMS)) {
            super::form(&[&cuts[..], &data].concat());
        }

        #[test]
        fn numbers(number in any::<u64>()) {
            super::upload_number(number);
        }
    }
}
