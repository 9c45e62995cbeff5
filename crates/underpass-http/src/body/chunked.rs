//! Tells framing from payload in a chunked body: RFC 9112, section 7.1, strictly.
//!
//! ```text
//!  5;ext CRLF  hello CRLF  0 CRLF  trailer: x CRLF  CRLF
//!  └ Size      └ Data└ DataEnd     └ Trailer        └ done
//! ```
//!
//! Each byte is examined once and none is kept, so the input may arrive in any pieces.

use crate::limits::CHUNK_EXTRAS_BYTES_MAX;
use crate::status::HttpError;
use crate::token::{is_text, is_token};

/// A partially read chunked body.
#[derive(Debug)]
pub struct ChunkedReader {
    state: ChunkedState,
    /// Payload bytes so far, including those announced and still to come.
    data: u64,
    /// Bytes of extensions and trailers so far.
    extras: usize,
}

#[derive(Clone, Copy, Debug)]
enum ChunkedState {
    /// The size so far, and its number of digits.
    Size(u64, u8),
    Extension(u64, ExtensionPart),
    SizeFeed(u64),
    /// The number of bytes left.
    Data(u64),
    DataReturn,
    DataFeed,
    Trailer(TrailerLine),
    TrailerFeed(TrailerLine),
    Done,
}

/// A part of `;name=value`, with white space as defined in section 7.1.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ExtensionPart {
    Start,
    Name,
    NameEnd,
    ValueStart,
    Token,
    Quoted,
    Escaped,
    QuotedEnd,
    ValueEnd,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TrailerLine {
    Empty,
    Name,
    Value,
}

/// The position in a body after a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyPosition {
    /// Within the body.
    Within,
    /// At its end.
    End,
}

/// The part of a body that comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextPart {
    /// Bytes of framing.
    Framing,
    /// As many bytes of the payload of a chunk.
    Payload(u64),
    /// Nothing: the body is complete.
    End,
}

/// The longest payload: Linux has no longer file, and offsets of files are signed.
const PAYLOAD_BYTES_MAX: u64 = i64::MAX as u64;

const TOO_LONG: HttpError = HttpError::bad("the chunked body is longer than any file");

const MALFORMED: HttpError = HttpError::bad("the chunked body is malformed");

impl Default for ChunkedReader {
    fn default() -> ChunkedReader {
        ChunkedReader::new()
    }
}

impl ChunkedReader {
    /// Creates a reader for a body of which nothing was read.
    pub fn new() -> ChunkedReader {
        ChunkedReader {
            state: ChunkedState::Size(0, 0),
            data: 0,
            extras: 0,
        }
    }

    /// Returns the payload length announced so far.
    pub fn announced(&self) -> u64 {
        self.data
    }

    /// Reads input; returns how many bytes belong to the body: all of them, unless it ends.
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, BodyPosition), HttpError> {
        let mut taken = 0;
        loop {
            let (read, next) = self.read_framing(&input[taken..])?;
            taken += read;
            let left = match next {
                NextPart::Framing => return Ok((taken, BodyPosition::Within)),
                NextPart::End => return Ok((taken, BodyPosition::End)),
                NextPart::Payload(left) => left,
            };
            let rest = input.len() - taken;
            let step = rest.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.took(step as u64);
            taken += step;
            if rest == step {
                return Ok((taken, BodyPosition::Within));
            }
        }
    }

    /// Whether all of the body was read.
    pub fn is_done(&self) -> bool {
        matches!(self.state, ChunkedState::Done)
    }

    /// Reads on to the next byte of payload; returns how many bytes of framing were before it.
    pub fn read_framing(&mut self, input: &[u8]) -> Result<(usize, NextPart), HttpError> {
        let mut taken = 0;
        loop {
            let position = match self.state {
                ChunkedState::Done => NextPart::End,
                ChunkedState::Data(left) => NextPart::Payload(left),
                _ => NextPart::Framing,
            };
            match input.get(taken) {
                Some(&byte) if position == NextPart::Framing => {
                    let next = self.state.next(byte)?;
                    self.count(next)?;
                    self.state = next;
                    taken += 1;
                }
                _ => return Ok((taken, position)),
            }
        }
    }

    /// Notes that `bytes` of the payload of a chunk were taken, no more than it has.
    pub fn took(&mut self, bytes: u64) {
        if let ChunkedState::Data(left) = &mut self.state {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.state = ChunkedState::DataReturn;
            }
        }
    }

    /// Counts the bytes that the byte before `state` announced or consumed.
    fn count(&mut self, state: ChunkedState) -> Result<(), HttpError> {
        match state {
            ChunkedState::Data(left) => {
                let data = self.data.checked_add(left);
                self.data = data
                    .filter(|data| *data <= PAYLOAD_BYTES_MAX)
                    .ok_or(TOO_LONG)?;
            }
            ChunkedState::Extension(..) | ChunkedState::Trailer(_) => self.extras += 1,
            _ => {}
        }
        match self.extras > CHUNK_EXTRAS_BYTES_MAX {
            true => Err(HttpError::bad("chunk extensions and trailers are too long")),
            false => Ok(()),
        }
    }
}

impl ChunkedState {
    /// Returns the state after a byte that is not payload.
    fn next(self, byte: u8) -> Result<ChunkedState, HttpError> {
        use ChunkedState::{
            DataFeed, DataReturn, Done, Extension, Size, SizeFeed, Trailer, TrailerFeed,
        };
        Ok(match (self, byte) {
            (Size(size, 1..), b'\r') => SizeFeed(size),
            (Size(size, 1..), b';') => Extension(size, ExtensionPart::Start),
            (Size(size, digits @ ..16), _) => {
                let digit = char::from(byte).to_digit(16).ok_or(MALFORMED)?;
                Size(size * 16 + u64::from(digit), digits + 1)
            }
            (Extension(size, part), b'\r') if part.may_end() => SizeFeed(size),
            (Extension(size, part), _) => Extension(size, part.next(byte)?),
            (SizeFeed(0), b'\n') => Trailer(TrailerLine::Empty),
            (SizeFeed(size), b'\n') => ChunkedState::Data(size),
            (DataReturn, b'\r') => DataFeed,
            (DataFeed, b'\n') => Size(0, 0),
            (Trailer(line), b'\r') if line != TrailerLine::Name => TrailerFeed(line),
            (Trailer(line), _) => Trailer(line.next(byte)?),
            (TrailerFeed(TrailerLine::Empty), b'\n') => Done,
            (TrailerFeed(_), b'\n') => Trailer(TrailerLine::Empty),
            _ => return Err(MALFORMED),
        })
    }
}

impl ExtensionPart {
    /// Whether the line may end here.
    fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::QuotedEnd)
    }

    fn next(self, byte: u8) -> Result<ExtensionPart, HttpError> {
        use ExtensionPart::{
            Escaped, Name, NameEnd, Quoted, QuotedEnd, Start, Token, ValueEnd, ValueStart,
        };
        Ok(match (self, byte) {
            (Quoted, b'"') => QuotedEnd,
            (Quoted, b'\\') => Escaped,
            (Quoted | Escaped, _) if is_text(byte) => Quoted,
            (Name | NameEnd | Token | QuotedEnd | ValueEnd, b';') => Start,
            (Name | NameEnd, b'=') => ValueStart,
            (Name | NameEnd, b' ' | b'\t') => NameEnd,
            (Token | QuotedEnd | ValueEnd, b' ' | b'\t') => ValueEnd,
            (Start | ValueStart, b' ' | b'\t') => self,
            (ValueStart, b'"') => Quoted,
            (Start | Name, _) if is_token(byte) => Name,
            (ValueStart | Token, _) if is_token(byte) => Token,
            _ => return Err(MALFORMED),
        })
    }
}

impl TrailerLine {
    fn next(self, byte: u8) -> Result<TrailerLine, HttpError> {
        match (self, byte) {
            (TrailerLine::Name, b':') => Ok(TrailerLine::Value),
            (TrailerLine::Empty | TrailerLine::Name, _) if is_token(byte) => Ok(TrailerLine::Name),
            (TrailerLine::Value, _) if is_text(byte) => Ok(TrailerLine::Value),
            _ => Err(MALFORMED),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn read_all(body: &[u8]) -> Result<(usize, BodyPosition), HttpError> {
        ChunkedReader::new().read(body)
    }

    #[test]
    fn a_body_ends_where_it_says() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"5\r\nhello\r\n0\r\n\r\n",
            b"00A\r\n0123456789\r\n000\r\n\r\n",
            b"5;a=b;c=\"d\"\r\nhello\r\n0;x\r\nT: x\r\nU:\r\n\r\n",
            b"0; a = b ; c=\"\\\"; \\\\\t\xff\" ;d\r\n\r\n",
        ] {
            let with_more = [body, b"GET"].concat();
            assert_eq!(read_all(&with_more), Ok((body.len(), BodyPosition::End)));
        }
    }

    #[test]
    fn what_is_not_exact_is_refused() {
        for wrong in [
            &b"0x5\r\n"[..],
            b"+5\r\n",
            b"-5\r\n",
            b"5_0\r\n",
            b" 5\r\n",
            b"5 \r\n",
            b"5 ;a\r\n",
            b"\r\n",
            b";a\r\n",
            b"00000000000000005\r\n",
            b"5\nhello\r\n",
            b"5;a\nhello",
            b"5;a\x01\r\n",
            b"5;\r\n",
            b"5;;\r\n",
            b"5;a=\r\n",
            b"5;a=\"x\r\n",
            b"5;a=\"x\\\r\n",
            b"5;a=\"x\"y\r\n",
            b"5;a=x\"y\"\r\n",
            b"5;=x\r\n",
            b"5;a b\r\n",
            b"5;a \r\n",
            b"5;a=b \r\n",
            b"5;a=\"x\" \r\n",
            b"5;a/b\r\n",
            b"5;\"a\"\r\n",
            b"5\r\nhello!\r\n",
            b"5\r\nhello\n",
            b"0\r\nno colon\r\n\r\n",
            b"0\r\nnocolon\r\n\r\n",
            b"0\r\n: x\r\n\r\n",
            b"0\r\nT: x\n\r\n",
            b"0\r\n folded\r\n\r\n",
            b"0\r\n\n",
        ] {
            assert_eq!(read_all(wrong), Err(MALFORMED), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_huge_chunk_is_announced_before_it_comes() {
        let mut body = ChunkedReader::new();
        assert_eq!(
            body.read(b"7FFFFFFFFFFFFFFF\r\n"),
            Ok((18, BodyPosition::Within))
        );
        assert_eq!(body.announced(), i64::MAX as u64);
    }

    #[test]
    fn a_body_that_no_file_could_hold_is_refused_before_it_comes() {
        for body in [
            &b"FFFFFFFFFFFFFFFF\r\n"[..],
            b"8000000000000000\r\n",
            b"1\r\nx\r\n7FFFFFFFFFFFFFFF\r\n",
        ] {
            let mut reader = ChunkedReader::new();
            assert_eq!(reader.read(body), Err(TOO_LONG), "{}", body.escape_ascii());
            assert!(reader.read(b"x").is_err(), "it is no content either");
        }
    }

    #[test]
    fn extras_are_bounded() {
        let extended = |bytes| [b"0;", &vec![b'a'; bytes][..], b"\r\n\r\n"].concat();
        // The semicolon and the line end before the trailers count.
        let fits = extended(CHUNK_EXTRAS_BYTES_MAX - 2);
        assert_eq!(read_all(&fits), Ok((fits.len(), BodyPosition::End)));
        assert!(read_all(&extended(CHUNK_EXTRAS_BYTES_MAX - 1)).is_err());
        let trailers = [
            b"0\r\n".to_vec(),
            b"A: b\r\n".repeat(CHUNK_EXTRAS_BYTES_MAX),
        ]
        .concat();
        assert!(read_all(&trailers).is_err());
    }

    proptest! {
        #[test]
        fn the_split_does_not_matter(
            body in vec(select(&b"0125aF;:=x \"\\\r\n\n"[..]), 0..64),
            cuts in vec(1usize..8, 0..64),
        ) {
            let whole = read_all(&body);
            let mut pieces = ChunkedReader::new();
            let mut outcome = Ok((0, BodyPosition::Within));
            let (mut from, mut cuts) = (0, cuts.into_iter().chain(std::iter::repeat(1)));
            while from < body.len() {
                let to = body.len().min(from + cuts.next().unwrap());
                match pieces.read(&body[from..to]) {
                    Ok((taken, reach)) => {
                        from += taken;
                        outcome = Ok((from, reach));
                    }
                    Err(refusal) => outcome = Err(refusal),
                }
                if !matches!(outcome, Ok((_, BodyPosition::Within))) {
                    break;
                }
            }
            prop_assert_eq!(outcome, whole);
        }

        #[test]
        fn any_chunks_are_read_to_their_end(
            chunks in vec(vec(any::<u8>(), 1..40), 0..8),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                body.extend(chunk);
                body.extend(b"\r\n");
            }
            body.extend(b"0\r\n\r\n");
            let mut reader = ChunkedReader::new();
            prop_assert_eq!(reader.read(&body), Ok((body.len(), BodyPosition::End)));
            let total: usize = chunks.iter().map(Vec::len).sum();
            prop_assert_eq!(reader.announced(), total as u64);
        }
    }
}
