//! Finds the end of a chunked body that nobody wants: RFC 9112, section 7.1, strictly.
//!
//! ```text
//!  5;ext CRLF  hello CRLF  0 CRLF  trailer: x CRLF  CRLF
//!  └ Size      └ Data└ DataEnd     └ Trailer        └ done
//! ```
//!
//! Every byte is looked at once and none is kept, so the input may come in any pieces.

use crate::http::status::Refusal;
use crate::limits::CHUNK_EXTRAS_BYTES_MAX;

/// A chunked body half-way read.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    /// Payload bytes so far, including those announced and still to come.
    data: u64,
    /// Bytes of extensions and trailers so far.
    extras: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Size { size: u64, digits: u8 },
    Extension { size: u64 },
    SizeFeed { size: u64 },
    Data { left: u64 },
    DataReturn,
    DataFeed,
    Trailer { line: TrailerLine },
    TrailerFeed { line: TrailerLine },
    Done,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TrailerLine {
    Empty,
    Name,
    Value,
}

/// How far a body has been read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reach {
    /// It goes on.
    Within,
    /// It has ended.
    End,
}

const MALFORMED: Refusal = Refusal::bad("the chunked body is malformed");

impl Chunked {
    pub(crate) fn new() -> Chunked {
        Chunked {
            state: State::Size { size: 0, digits: 0 },
            data: 0,
            extras: 0,
        }
    }

    /// How long the payload is at least, as far as announced.
    pub(crate) fn announced(&self) -> u64 {
        self.data
    }

    /// Reads on; returns how many bytes belong to the body, all of them unless it ends.
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<(usize, Reach), Refusal> {
        let mut taken = 0;
        while let Some(&byte) = input.get(taken) {
            match &mut self.state {
                State::Done => break,
                State::Data { left } => {
                    let rest = input.len() - taken;
                    let step = rest.min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= step as u64;
                    taken += step;
                    if *left == 0 {
                        self.state = State::DataReturn;
                    }
                }
                state => {
                    *state = state.next(byte)?;
                    taken += 1;
                    self.count()?;
                }
            }
        }
        match self.state {
            State::Done => Ok((taken, Reach::End)),
            _ => Ok((taken, Reach::Within)),
        }
    }

    /// Keeps count of what the byte just read brought.
    fn count(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::Data { left } => self.data = self.data.saturating_add(left),
            State::Extension { .. } | State::Trailer { .. } => self.extras += 1,
            _ => {}
        }
        match self.extras > CHUNK_EXTRAS_BYTES_MAX {
            true => Err(Refusal::bad("chunk extensions and trailers are too long")),
            false => Ok(()),
        }
    }
}

impl State {
    /// The state after a byte that is not payload.
    fn next(self, byte: u8) -> Result<State, Refusal> {
        match (self, byte) {
            (State::Size { size, digits }, b'\r') if digits > 0 => Ok(State::SizeFeed { size }),
            (State::Size { size, digits }, b';') if digits > 0 => Ok(State::Extension { size }),
            (State::Size { size, digits }, _) if digits < 16 => {
                let digit = char::from(byte).to_digit(16).ok_or(MALFORMED)?;
                Ok(State::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                })
            }
            (State::Extension { size }, b'\r') => Ok(State::SizeFeed { size }),
            (State::Extension { size }, _) if is_text(byte) => Ok(State::Extension { size }),
            (State::SizeFeed { size: 0 }, b'\n') => Ok(State::Trailer {
                line: TrailerLine::Empty,
            }),
            (State::SizeFeed { size }, b'\n') => Ok(State::Data { left: size }),
            (State::DataReturn, b'\r') => Ok(State::DataFeed),
            (State::DataFeed, b'\n') => Ok(State::Size { size: 0, digits: 0 }),
            (State::Trailer { line }, b'\r') if line != TrailerLine::Name => {
                Ok(State::TrailerFeed { line })
            }
            (State::Trailer { line }, _) => Ok(State::Trailer {
                line: line.next(byte)?,
            }),
            (
                State::TrailerFeed {
                    line: TrailerLine::Empty,
                },
                b'\n',
            ) => Ok(State::Done),
            (State::TrailerFeed { .. }, b'\n') => Ok(State::Trailer {
                line: TrailerLine::Empty,
            }),
            _ => Err(MALFORMED),
        }
    }
}

impl TrailerLine {
    fn next(self, byte: u8) -> Result<TrailerLine, Refusal> {
        match (self, byte) {
            (TrailerLine::Name, b':') => Ok(TrailerLine::Value),
            (TrailerLine::Empty | TrailerLine::Name, _)
                if crate::request::request_line::is_token(byte) =>
            {
                Ok(TrailerLine::Name)
            }
            (TrailerLine::Value, _) if is_text(byte) => Ok(TrailerLine::Value),
            _ => Err(MALFORMED),
        }
    }
}

/// What a value or an extension may have: no control byte but the tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn read_all(body: &[u8]) -> Result<(usize, Reach), Refusal> {
        Chunked::new().read(body)
    }

    #[test]
    fn a_body_ends_where_it_says() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"5\r\nhello\r\n0\r\n\r\n",
            b"00A\r\n0123456789\r\n000\r\n\r\n",
            b"5;a=b;c=\"d\"\r\nhello\r\n0;x\r\nT: x\r\nU:\r\n\r\n",
        ] {
            let with_more = [body, b"GET"].concat();
            assert_eq!(read_all(&with_more), Ok((body.len(), Reach::End)));
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
            b"5\r\nhello!\r\n",
            b"5\r\nhello\n",
            b"0\r\nno colon\r\n\r\n",
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
        let mut body = Chunked::new();
        assert_eq!(body.read(b"FFFFFFFFFFFFFFFF\r\n"), Ok((18, Reach::Within)));
        assert_eq!(body.announced(), u64::MAX);
    }

    #[test]
    fn extras_are_bounded() {
        let extension = [b"0;".to_vec(), vec![b'a'; CHUNK_EXTRAS_BYTES_MAX + 1]].concat();
        assert!(read_all(&extension).is_err());
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
            body in vec(select(&b"0125aF;:=x \r\n\n"[..]), 0..64),
            cuts in vec(1usize..8, 0..64),
        ) {
            let whole = read_all(&body);
            let mut pieces = Chunked::new();
            let mut outcome = Ok((0, Reach::Within));
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
                if !matches!(outcome, Ok((_, Reach::Within))) {
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
            let mut reader = Chunked::new();
            prop_assert_eq!(reader.read(&body), Ok((body.len(), Reach::End)));
            let total: usize = chunks.iter().map(Vec::len).sum();
            prop_assert_eq!(reader.announced(), total as u64);
        }
    }
}
