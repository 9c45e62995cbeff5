//! Promises about arbitrary bytes that a server sends: called by fuzz targets with evolved bytes,
//! and by the tests below with random ones.
//!
//! This is not a public interface: it is part of the crate in tests and with the feature `fuzz`.

#![allow(missing_docs, reason = "hidden; what each promises stands beside it")]

use crate::error::MessageError;
use crate::response::framing::{ResponseFraming, ResponseTo};
use crate::response::head::{ResponseHead, ResponseProgress, ResponseScanner};

const BYTES_MAX: usize = 4 << 10;

/// However a response head is split over reads, the verdict is the same; and it frames its body as
/// a line-by-line parser finds it framed. The first four bytes determine the split.
pub fn response(data: &[u8]) {
    let (cuts, head) = data.split_at(data.len().min(4));
    let whole = verdict(head, &[usize::MAX]);
    assert_eq!(whole, verdict(head, &[1]), "byte by byte");
    let cuts: Vec<_> = cuts.iter().map(|&cut| usize::from(cut) + 1).collect();
    assert_eq!(whole, verdict(head, &cuts), "in pieces of {cuts:?}");
    if let Some(Ok((length, head, framing))) = whole {
        check_framing(head, framing);
        assert!(length <= BYTES_MAX);
    }
}

type Verdict<'b> = Result<(usize, &'b [u8], Framed), MessageError>;
type Framed = Result<ResponseFraming, MessageError>;

/// Reads a head in pieces of these sizes, repeated; returns `None` if it is incomplete.
fn verdict<'b>(input: &'b [u8], cuts: &[usize]) -> Option<Verdict<'b>> {
    let mut scan = ResponseScanner::new(BYTES_MAX);
    let mut there = 0_usize;
    for cut in cuts.iter().cycle() {
        there = there.saturating_add(*cut).min(input.len());
        match scan.advance(&input[..there]) {
            Err(error) => return Some(Err(error)),
            Ok(ResponseProgress::Partial) if there == input.len() => return None,
            Ok(ResponseProgress::Partial) => {}
            Ok(ResponseProgress::Complete) => {
                let head = &input[..scan.length()];
                let complete = |parsed: ResponseHead<'_>| {
                    let bodiless = ResponseFraming::of(&parsed, ResponseTo::Head);
                    assert_eq!(bodiless, Ok(ResponseFraming::None));
                    let framing = ResponseFraming::of(&parsed, ResponseTo::Other);
                    (scan.length(), head, framing)
                };
                return Some(scan.parse(&input[..there]).map(complete));
            }
        }
    }
    None
}

fn check_framing(head: &[u8], framing: Framed) {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut lines = text.strip_suffix("\r\n\r\n").expect("a head").split("\r\n");
    let line = lines.next().expect("a status line");
    let status = &line["http/1.1 ".len()..][..3];
    let fields: Vec<_> = lines
        .map(|line| line.split_once(':').expect("a field"))
        .collect();
    let named = |name: &str| {
        let named = fields.iter().filter(|(field, _)| *field == name);
        named
            .map(|(_, value)| value.trim_matches([' ', '\t']))
            .collect::<Vec<_>>()
    };
    let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
    match framing {
        Ok(ResponseFraming::None) => {
            assert!(
                status.starts_with('1') || ["204", "304"].contains(&status),
                "{text}"
            );
        }
        Ok(ResponseFraming::Length(length)) => {
            let mut members = lengths.iter().flat_map(|line| line.split(','));
            assert!(
                members.all(|member| member.trim().parse() == Ok(length)),
                "{text}"
            );
            assert!(codings.is_empty() && !lengths.is_empty(), "{text}");
        }
        Ok(ResponseFraming::Chunked) => {
            assert_eq!(
                (&codings[..], lengths.len()),
                (&["chunked"][..], 0),
                "{text}"
            );
            assert!(
                text.starts_with("http/1.1") || !text.starts_with("http/1.0"),
                "{text}"
            );
        }
        Ok(ResponseFraming::UntilClose) => {
            assert!(lengths.is_empty() && codings.is_empty(), "{text}");
        }
        Err(_) => assert!(lengths.len() + codings.len() > 0, "{text}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    const HEADS: &[&str] = &[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 206\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 204 \r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 ",
        "Content-Length: 5\r\n",
        "content-length: 05, 5\r\n",
        "Content-Length:\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "A: b\r\n",
        "\r\n",
        "\r\n",
        "\r",
        "\n",
        " ",
        ":",
        "7",
    ];

    proptest! {
        #[test]
        fn responses(
            cuts in vec(any::<u8>(), 4),
            first in select(HEADS),
            words in vec(prop_oneof![
                24 => select(HEADS).prop_map(|word| word.as_bytes().to_vec()),
                1 => vec(any::<u8>(), 1..3),
            ], 0..12),
        ) {
            super::response(&[&cuts, first.as_bytes(), &words.concat()].concat());
        }
    }
}
