//! `Content-Disposition` of a file that is to be saved: RFC 6266, its name in the form of RFC 8187.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What a name in the extended form may have as it is: `attr-char`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Appends the field for a file of this name. What cannot stand between quotes, or what browsers
/// read in two ways, is a line below in the plain form, and stands in the extended one, which
/// every browser prefers. A name that is not UTF-8 has its odd bytes replaced.
pub(crate) fn push_attachment(head: &mut Vec<u8>, name: &[u8]) {
    let name = String::from_utf8_lossy(name);
    head.extend_from_slice(b"\r\nContent-Disposition: attachment; filename=\"");
    let plain = |letter: char| match letter {
        '"' | '\\' | '%' => b'_',
        ' '..='~' => letter as u8,
        _ => b'_',
    };
    head.extend(name.chars().map(plain));
    head.push(b'"');
    if name
        .chars()
        .any(|letter| plain(letter) as u32 != letter as u32)
    {
        head.extend_from_slice(b"; filename*=UTF-8''");
        for part in percent_encode(name.as_bytes(), ENCODED) {
            head.extend_from_slice(part.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &[u8]) -> String {
        let mut head = Vec::new();
        push_attachment(&mut head, name);
        let text = String::from_utf8(head).unwrap();
        text.strip_prefix("\r\nContent-Disposition: attachment; ")
            .unwrap()
            .to_owned()
    }

    #[test]
    fn names_beyond_ascii_are_encoded_and_none_breaks_out() {
        assert_eq!(written(b"a b.txt"), "filename=\"a b.txt\"");
        assert_eq!(
            written("Bücher.txt".as_bytes()),
            "filename=\"B_cher.txt\"; filename*=UTF-8''B%C3%BCcher.txt"
        );
        assert_eq!(
            written(b"a\"; x=\"\r\nb\\%41"),
            "filename=\"a_; x=___b__41\"; filename*=UTF-8''a%22%3B%20x%3D%22%0D%0Ab%5C%2541"
        );
        assert_eq!(
            written(b"\xff"),
            "filename=\"_\"; filename*=UTF-8''%EF%BF%BD"
        );
    }

    proptest::proptest! {
        #[test]
        fn a_field_is_one_line(name in proptest::collection::vec(0u8.., 0..32)) {
            let line = written(&name);
            proptest::prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            proptest::prop_assert_eq!(line.matches('"').count(), 2);
        }
    }
}
