//! Names as `cp` displays them: quoted so that a shell reads the same bytes.

use std::fmt::{self, Write};

/// The characters that can be printed unquoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// All of Unicode, in UTF-8.
    #[default]
    Utf8,
    /// ASCII only, as in the C locale.
    Ascii,
}

/// Displays bytes in single quotes, in double quotes if they contain a single quote and nothing
/// special to a shell, and everything else unprintable as `$'\n'`.
///
/// ```
/// use underpass_copy::{Charset, Quoted};
/// let quoted = |name: &str| Quoted(name.as_bytes(), Charset::Utf8).to_string();
/// assert_eq!(quoted("a b"), "'a b'");
/// assert_eq!(quoted("it's"), r#""it's""#);
/// assert_eq!(quoted("two\nlines"), r"'two'$'\n''lines'");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8], pub Charset);

/// Displays bytes as [`Quoted`] does, but without quotes if a shell needs none.
#[derive(Clone, Copy, Debug)]
pub struct QuotedIfNeeded<'a>(pub &'a [u8], pub Charset);

/// Displays a word of a command line in typographic quotes: `‘word’`, and `'word'` in the C locale.
///
/// ```
/// use underpass_copy::{Charset, QuotedWord};
/// assert_eq!(QuotedWord(b"a\n", Charset::Utf8).to_string(), r"‘a\n’");
/// assert_eq!(QuotedWord(b"it's", Charset::Ascii).to_string(), r"'it\'s'");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct QuotedWord<'a>(pub &'a [u8], pub Charset);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, charset) = *self;
        if !name.contains(&b'\'') {
            return single_quoted(f, name, charset);
        }
        if reads_the_same_in_double_quotes(name, charset) {
            let name = String::from_utf8_lossy(name);
            return write!(f, "\"{name}\"");
        }
        single_quoted(f, name, charset)
    }
}

impl fmt::Display for QuotedIfNeeded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, charset) = *self;
        let special = |(at, byte): (usize, &u8)| match byte {
            b'#' | b'~' => at == 0,
            b'{' | b'}' => name.len() == 1,
            byte => b" !\"$&'()*;<=>?[^`|\\".contains(byte),
        };
        let prints = pieces(name, charset).all(|piece| matches!(piece, QuotedPiece::Char(_)));
        if name.is_empty() || !prints || name.iter().enumerate().any(special) {
            return Quoted(name, charset).fmt(f);
        }
        f.write_str(&String::from_utf8_lossy(name))
    }
}

impl fmt::Display for QuotedWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(word, charset) = *self;
        let (opening, closing) = match charset {
            Charset::Utf8 => ('‘', '’'),
            Charset::Ascii => ('\'', '\''),
        };
        f.write_char(opening)?;
        for piece in pieces(word, charset) {
            match piece {
                QuotedPiece::Char(char) if char == closing || char == '\\' => {
                    write!(f, "\\{char}")?;
                }
                QuotedPiece::Char(char) => f.write_char(char)?,
                QuotedPiece::Byte(byte) => escaped(f, byte)?,
            }
        }
        f.write_char(closing)
    }
}

/// The state of quoting while a name is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    /// Between single quotes.
    Outside,
    /// Between `$'` and `'`.
    Escaped,
}

fn single_quoted(f: &mut fmt::Formatter<'_>, name: &[u8], charset: Charset) -> fmt::Result {
    let mut quoting = Quoting::Outside;
    f.write_char('\'')?;
    for piece in pieces(name, charset) {
        match (piece, quoting) {
            // Inside `$'` the quote that ends it also starts the next string.
            (QuotedPiece::Char('\''), _) => {
                f.write_str("'\\''")?;
                quoting = Quoting::Outside;
            }
            (QuotedPiece::Char(char), Quoting::Outside) => f.write_char(char)?,
            (QuotedPiece::Char(char), Quoting::Escaped) => {
                write!(f, "''{char}")?;
                quoting = Quoting::Outside;
            }
            (QuotedPiece::Byte(byte), Quoting::Outside) => {
                f.write_str("'$'")?;
                escaped(f, byte)?;
                quoting = Quoting::Escaped;
            }
            (QuotedPiece::Byte(byte), Quoting::Escaped) => escaped(f, byte)?,
        }
    }
    f.write_char('\'')
}

fn escaped(f: &mut fmt::Formatter<'_>, byte: u8) -> fmt::Result {
    match byte {
        0x07 => f.write_str("\\a"),
        0x08 => f.write_str("\\b"),
        b'\t' => f.write_str("\\t"),
        b'\n' => f.write_str("\\n"),
        0x0b => f.write_str("\\v"),
        0x0c => f.write_str("\\f"),
        b'\r' => f.write_str("\\r"),
        byte => write!(f, "\\{byte:03o}"),
    }
}

/// Returns whether no character is special in double quotes, or might be to some shell.
fn reads_the_same_in_double_quotes(name: &[u8], charset: Charset) -> bool {
    pieces(name, charset)
        .enumerate()
        .all(|(at, piece)| match piece {
            QuotedPiece::Char('#' | '~') => at == 0,
            QuotedPiece::Char(char) => {
                !char.is_ascii() || char.is_ascii_alphanumeric() || " %'+,-./:@]_".contains(char)
            }
            QuotedPiece::Byte(_) => false,
        })
}

/// A part of a name.
#[derive(Clone, Copy)]
enum QuotedPiece {
    /// A character that prints.
    Char(char),
    /// A byte that is not printable, or part of an unprintable character.
    Byte(u8),
}

fn pieces(name: &[u8], charset: Charset) -> impl Iterator<Item = QuotedPiece> + '_ {
    name.utf8_chunks().flat_map(move |chunk| {
        let valid = chunk.valid().chars();
        let valid = valid.flat_map(move |char| pieces_of(char, charset).into_iter().flatten());
        valid.chain(chunk.invalid().iter().map(|&byte| QuotedPiece::Byte(byte)))
    })
}

/// Returns a printable character, or the bytes of one that is not.
fn pieces_of(char: char, charset: Charset) -> [Option<QuotedPiece>; 4] {
    if prints(char, charset) {
        return [Some(QuotedPiece::Char(char)), None, None, None];
    }
    let mut bytes = [0; 4];
    let len = char.encode_utf8(&mut bytes).len();
    std::array::from_fn(|at| (at < len).then(|| QuotedPiece::Byte(bytes[at])))
}

fn prints(char: char, charset: Charset) -> bool {
    match charset {
        _ if char.is_ascii() => !char.is_ascii_control(),
        Charset::Ascii => false,
        Charset::Utf8 => is_assigned(char),
    }
}

/// Returns whether a non-ASCII character is assigned, and neither a control character nor a line
/// separator. The C library calls those printable.
fn is_assigned(char: char) -> bool {
    match char {
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => false,
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{ffffd}' | '\u{100000}'..='\u{10fffd}' => true,
        _ if char.is_whitespace() || is_format(char) => true,
        _ => {
            // Prefixes a letter: combining marks are escaped only at the beginning of a text.
            let mut buffer = [b'a'; 5];
            let len = 1 + char.encode_utf8(&mut buffer[1..]).len();
            std::str::from_utf8(&buffer[..len])
                .is_ok_and(|text| text.escape_debug().nth(1) == Some(char))
        }
    }
}

/// Returns whether a character only affects how others are displayed (Unicode's category Cf).
fn is_format(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of GNU cp 9.1.
    #[test]
    fn names_are_quoted_for_a_shell() {
        let table: [(&[u8], &str); 29] = [
            (b"", "''"),
            (b"a", "'a'"),
            (b"a'c", r#""a'c""#),
            (b"''", r#""''""#),
            (b"#'", r##""#'""##),
            (b"a#'", r"'a#'\'''"),
            (b"~'", r#""~'""#),
            (b"{'}", r"'{'\''}'"),
            (b"'!", r"''\''!'"),
            (b"a'\"c", r#"'a'\''"c'"#),
            (b"\\'", r"'\'\'''"),
            (b"\n", r"''$'\n'"),
            (b"\n\n", r"''$'\n\n'"),
            (b"a\n\nb", r"'a'$'\n\n''b'"),
            (b"\na", r"''$'\n''a'"),
            (b"'\n", r"''\'''$'\n'"),
            (b"\n'", r"''$'\n'\'''"),
            (b"a\n'b", r"'a'$'\n'\''b'"),
            (b"a'\nb", r"'a'\'''$'\n''b'"),
            (b"a'\n", r"'a'\'''$'\n'"),
            (b"\n'\n", r"''$'\n'\'''$'\n'"),
            (b"\x07\x08\t\x0b\x0c\r", r"''$'\a\b\t\v\f\r'"),
            (b"\xff7", r"''$'\377''7'"),
            (b"\xe2\x80", r"''$'\342\200'"),
            ("é".as_bytes(), "'é'"),
            ("'é".as_bytes(), r#""'é""#),
            ("\u{80}".as_bytes(), r"''$'\302\200'"),
            ("e\u{301}\u{301}".as_bytes(), "'e\u{301}\u{301}'"),
            ("\u{301}".as_bytes(), "'\u{301}'"),
        ];
        for (name, expected) in table {
            let quoted = Quoted(name, Charset::Utf8).to_string();
            assert_eq!(quoted, expected, "{:?}", name.escape_ascii().to_string());
        }
        let ascii = Quoted("'é".as_bytes(), Charset::Ascii).to_string();
        assert_eq!(ascii, r"''\'''$'\303\251'");
    }

    #[test]
    fn the_c_library_decides_what_is_printable() {
        for printable in [
            '\u{a0}',
            '\u{ad}',
            '\u{3000}',
            '\u{200b}',
            '\u{feff}',
            '\u{e000}',
            '\u{f8ff}',
            '\u{f0000}',
            '\u{10fffd}',
            'é',
            '𝄞',
        ] {
            assert!(is_assigned(printable), "{printable:?}");
        }
        for escaped in [
            '\u{80}',
            '\u{9f}',
            '\u{2028}',
            '\u{2029}',
            '\u{378}',
            '\u{fffff}',
        ] {
            assert!(!is_assigned(escaped), "{escaped:?}");
        }
    }

    #[test]
    fn words_stand_in_the_quotes_of_prose() {
        let table: [(&[u8], &str, &str); 5] = [
            (b"a'b\"", "‘a'b\"’", "'a\\'b\"'"),
            (b"\x01\xff\\", r"‘\001\377\\’", r"'\001\377\\'"),
            ("é".as_bytes(), "‘é’", r"'\303\251'"),
            ("’".as_bytes(), r"‘\’’", r"'\342\200\231'"),
            (b"", "‘’", "''"),
        ];
        for (word, utf8, ascii) in table {
            assert_eq!(QuotedWord(word, Charset::Utf8).to_string(), utf8);
            assert_eq!(QuotedWord(word, Charset::Ascii).to_string(), ascii);
        }
    }

    #[test]
    fn names_without_meaning_to_a_shell_need_no_quotes() {
        for (name, expected) in [
            ("e/sl", "e/sl"),
            ("a b", "'a b'"),
            ("#a", "'#a'"),
            ("a#", "a#"),
            ("{}", "{}"),
            ("{", "'{'"),
            ("", "''"),
        ] {
            let quoted = QuotedIfNeeded(name.as_bytes(), Charset::Utf8).to_string();
            assert_eq!(quoted, expected);
        }
    }
}
