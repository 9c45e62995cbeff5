use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const BOUNDARY: &str = "----x";

fn reader() -> MultipartReader {
    let media = format!("multipart/form-data; boundary={BOUNDARY}");
    MultipartReader::of(media.as_bytes()).unwrap().unwrap()
}

/// The name of a part's file, and its content.
type FormPart = (Option<Vec<u8>>, Vec<u8>);

/// Reads a body that arrives in these pieces: its parts.
fn read(pieces: &[&[u8]]) -> Result<Vec<FormPart>, HttpError> {
    let (mut reader, mut window, mut parts) = (reader(), Vec::new(), Vec::new());
    let mut pieces = pieces.iter();
    let mut open = false;
    loop {
        let (taken, event) = reader.read(&window)?;
        match event {
            Some(MultipartEvent::Part(name)) => {
                assert!(!std::mem::replace(&mut open, true));
                parts.push((name, Vec::new()));
            }
            Some(MultipartEvent::Content) => {
                assert!(open && taken > 0);
                parts.last_mut().unwrap().1.extend(&window[..taken]);
            }
            Some(MultipartEvent::PartEnd) => assert!(std::mem::replace(&mut open, false)),
            Some(MultipartEvent::End) => {
                assert!(!open);
                return Ok(parts);
            }
            None if taken == 0 => match pieces.next() {
                Some(piece) => window.extend_from_slice(piece),
                None => return Err(UNFINISHED),
            },
            None => {}
        }
        window.drain(..taken);
    }
}

fn part(disposition: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), format!("--{BOUNDARY}--\r\n").into_bytes()].concat()
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    part(
        &format!("form-data; name=\"f\"; filename=\"{name}\""),
        content,
    )
}

/// The file name of a part with these parameters.
fn named(parameters: &str) -> Result<Option<String>, HttpError> {
    let body = form(&[part(&format!("form-data; {parameters}"), b"")]);
    let name = read(&[&body])?.remove(0).0;
    Ok(name.map(|name| String::from_utf8(last_component(&name).to_vec()).unwrap()))
}

#[test]
fn a_form_is_the_same_however_it_is_split() {
    let almost = b"\r\n----\r\n--\r\n------\r\n----y\r\r\n----";
    let body = form(&[
        part("form-data; name=\"text\"", b"value"),
        file("a", b""),
        file("b", almost),
        file("", b""),
    ]);
    let expected = vec![
        (None, b"value".to_vec()),
        (Some(b"a".to_vec()), Vec::new()),
        (Some(b"b".to_vec()), almost.to_vec()),
        (None, Vec::new()),
    ];
    assert_eq!(read(&[&body]), Ok(expected.clone()));
    for first in 0..body.len() {
        for second in first..body.len() {
            let pieces = [&body[..first], &body[first..second], &body[second..]];
            assert_eq!(read(&pieces).as_ref(), Ok(&expected), "{first} {second}");
        }
    }
    let bytes: Vec<_> = body.chunks(1).collect();
    assert_eq!(read(&bytes), Ok(expected));
}

#[test]
fn a_line_break_before_the_form_and_anything_after_it_are_ignored() {
    let body = [&b"\r\n"[..], &form(&[file("a", b"1")]), b"anything --"].concat();
    assert_eq!(read(&[&body]).unwrap().len(), 1);
    assert!(read(&[b"preamble\r\n", &body]).is_err());
}

#[test]
fn every_beginning_of_a_form_is_unfinished() {
    let body = form(&[file("a", b"content"), part("form-data; name=b", b"")]);
    for length in 0..body.len() - 2 {
        let begun = read(&[&body[..length]]);
        // The closing boundary is complete with its second hyphen.
        assert_eq!(begun, Err(UNFINISHED), "{length}");
    }
}

#[test]
fn names_are_decoded_as_browsers_encode_them() {
    for (parameters, expected) in [
        ("name=a; filename=\"b.txt\"", Some("b.txt")),
        ("name=a; filename=b.txt", Some("b.txt")),
        ("FILENAME=\"b\" ; name=\"filename=c\"", Some("b")),
        ("filename=\"C:\\x\\y\"", Some("y")),
        ("filename=\"/etc/passwd\"", Some("passwd")),
        ("filename=\"../../x\"", Some("x")),
        ("filename=\"..\"", Some("..")),
        ("filename=\"a/\"", Some("")),
        ("filename=\"a%22b%0D%0a%41\"", Some("a\"b\r\n%41")),
        ("filename=\"a\\\"b\"", Some("a\"b")),
        ("filename=\"a;b=c\"", Some("a;b=c")),
        ("filename=\"\u{e4}\"", Some("\u{e4}")),
        ("filename=\"x\"; filename*=UTF-8''%C3%A4%2Fb", Some("b")),
        ("filename*=utf-8'en'%e2%82%ac", Some("\u{20ac}")),
        ("filename=\"\"", None),
        ("name=\"a\"", None),
        ("name=\"a\";", None),
    ] {
        assert_eq!(
            named(parameters),
            Ok(expected.map(str::to_owned)),
            "{parameters}"
        );
    }
    for malformed in [
        "filename=\"a",
        "filename=\"a\"b",
        "filename",
        "filename=\"a\"; filename=\"b\"",
        "filename*=latin-1''a",
        "filename*=UTF-8",
        "\"a\"=b",
    ] {
        assert!(named(malformed).is_err(), "{malformed}");
    }
}

#[test]
fn malformed_parts_are_refused() {
    let of = |part: &str| read(&[format!("--{BOUNDARY}{part}").as_bytes()]);
    let disposition = "Content-Disposition: form-data; name=a";
    for malformed in [
        "x\r\n\r\n",
        "\n\r\n",
        "-\r\n",
        "\r\n\r\n",
        &format!("\r\n{disposition}\n\nX: y\r\n\r\n"),
        &format!("\r\n{disposition}\r\n{disposition}\r\n\r\n"),
        "\r\nContent-Disposition: attachment; name=a\r\n\r\n",
        "\r\nContent-Disposition: form-data; filename=\"a\0b\"\r\n\r\n",
        "\r\nContent-Disposition: form-data; filename=\"a\u{1}b\"\r\n\r\n",
        &format!("\r\n{disposition}\r\nContent-Transfer-Encoding: base64\r\n\r\n"),
        &format!("\r\n{disposition}\r\nno field\r\n\r\n"),
        &" ".repeat(100),
    ] {
        let error = of(malformed).unwrap_err();
        assert_ne!(error, UNFINISHED, "{malformed:?}");
    }
    // A longer boundary begins with this one (RFC 2046, section 5.1).
    let longer = form(&[file("a", format!("\r\n--{BOUNDARY}y").as_bytes())]);
    assert_eq!(read(&[&longer]), Err(MALFORMED));
    let padded = format!(" \t\r\n{disposition}\r\n\r\n\r\n--{BOUNDARY}--");
    assert_eq!(of(&padded), Ok(vec![(None, Vec::new())]));
}

#[test]
fn fields_and_parts_are_bounded() {
    let long = "x".repeat(FIELDS_BYTES_MAX);
    for unfinished in ["", "\r\n\r\n"] {
        let body =
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name={long}{unfinished}");
        assert_eq!(read(&[body.as_bytes()]), Err(LONG_FIELDS));
    }
    let many = "X: y\r\n".repeat(FIELDS_MAX);
    let body = format!("--{BOUNDARY}\r\nContent-Disposition: form-data\r\n{many}\r\n");
    assert_eq!(read(&[body.as_bytes()]), Err(MALFORMED));
    let parts = |count: usize| form(&vec![file("a", b"x"); count]);
    assert_eq!(read(&[&parts(PARTS_MAX)]).unwrap().len(), PARTS_MAX);
    assert_eq!(read(&[&parts(10_000)]), Err(MANY_PARTS));
}

#[test]
fn boundaries_are_read_from_the_content_type() {
    let of = |text: &str| MultipartReader::of(text.as_bytes());
    for (text, delimiter) in [
        ("multipart/form-data; boundary=a", "\r\n--a"),
        (
            "Multipart/Form-Data;boundary=\"a b\" ; charset=x",
            "\r\n--a b",
        ),
        (
            "multipart/form-data; charset=utf-8; Boundary=----W",
            "\r\n------W",
        ),
    ] {
        let reader = of(text).unwrap().unwrap();
        assert_eq!(reader.delimiter, delimiter.as_bytes(), "{text}");
    }
    for other in ["", "text/plain; boundary=a", "multipart/mixed; boundary=a"] {
        assert!(of(other).unwrap().is_none(), "{other}");
    }
    let long = format!("multipart/form-data; boundary={}", "a".repeat(71));
    for bad in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=\"a ",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=\u{e4}",
        &long,
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn content_is_what_was_sent(
        contents in vec(vec(prop::sample::select(&b"\r\n-x"[..]), 0..40), 0..4),
        cuts in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let delimiter = format!("\r\n--{BOUNDARY}").into_bytes();
        let is_ambiguous = |content: &Vec<u8>| {
            find(&[&content[..], b"\r\n--"].concat(), &delimiter).is_some()
        };
        prop_assume!(!contents.iter().any(is_ambiguous));
        let body = form(&contents.iter().map(|content| file("n", content)).collect::<Vec<_>>());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|cut| &body[cut[0]..cut[1]]).collect();
        let expected = contents.into_iter().map(|content| (Some(b"n".to_vec()), content));
        prop_assert_eq!(read(&pieces), Ok(expected.collect()));
    }

    #[test]
    fn anything_is_read_to_an_end(
        body in vec(prop::sample::select(&b"\r\n-x: ;=\"aContent-Disposition"[..]), 0..200),
    ) {
        let body = [format!("--{BOUNDARY}").as_bytes(), &body].concat();
        let whole = read(&[&body]);
        let bytes: Vec<_> = body.chunks(1).collect();
        prop_assert_eq!(whole.is_ok(), read(&bytes).is_ok());
    }
}
