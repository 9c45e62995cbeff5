//! `Content-Disposition`: under which name a client saves an answer (RFC 6266).

use crate::path::encoded;

/// Appends the field to a head: the name as a token for old clients, where it is not plain ASCII
/// also in the extended form of RFC 8187.
pub(crate) fn push_attachment(head: &mut Vec<u8>, name: &[u8]) {
    head.extend_from_slice(b"\r\nContent-Disposition: attachment; filename=\"");
    let is_plain = |byte: &u8| (b' '..0x7f).contains(byte) && !b"\"\\%".contains(byte);
    head.extend(name.iter().map(|byte| match is_plain(byte) {
        true => *byte,
        false => b'_',
    }));
    head.push(b'"');
    if !name.iter().all(is_plain) {
        // The extended form is UTF-8.
        head.extend_from_slice(b"; filename*=UTF-8''");
        let lossy = String::from_utf8_lossy(name);
        for part in encoded(lossy.as_bytes()) {
            let safe = part.bytes().flat_map(|byte| match byte {
                b'(' | b')' | b'*' | b',' | b':' | b'@' => format!("%{byte:02X}").into_bytes(),
                other => vec![other],
            });
            head.extend(safe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_kinds() {
        for (name, expected) in [
            (&b"a b.tar"[..], "filename=\"a b.tar\""),
            (b"a\"b\\", "filename=\"a_b_\"; filename*=UTF-8''a%22b%5C"),
            (b"\r\n", "filename=\"__\"; filename*=UTF-8''%0D%0A"),
            (
                "ü(1)".as_bytes(),
                "filename=\"__(1)\"; filename*=UTF-8''%C3%BC%281%29",
            ),
            (b"\xff", "filename=\"_\"; filename*=UTF-8''%EF%BF%BD"),
        ] {
            let mut head = Vec::new();
            push_attachment(&mut head, name);
            let expected = format!("\r\nContent-Disposition: attachment; {expected}");
            assert_eq!(String::from_utf8(head).unwrap(), expected);
        }
    }
}
