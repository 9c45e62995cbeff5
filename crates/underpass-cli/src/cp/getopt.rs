//! Splits a command line as getopt_long does, and finds the same faults in it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::mistake::Mistake;
use super::table::{Argument, Definition, Id, OPTIONS};

/// Whether options may follow operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// They may.
    Free,
    /// The first operand ends the options (`POSIXLY_CORRECT`).
    OptionsFirst,
}

/// An option with its argument, or what is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Option(Id, Option<OsString>),
    Operand(OsString),
}

/// A command line that is being read.
#[derive(Debug)]
pub(super) struct Words {
    rest: VecDeque<OsString>,
    /// Letters left of a bundle (`-abc`).
    letters: VecDeque<u8>,
    order: Order,
    ended: Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    NotYet,
    /// Nothing but operands follows.
    Options,
}

impl Words {
    pub(super) fn new(words: impl IntoIterator<Item = OsString>, order: Order) -> Self {
        Self {
            rest: words.into_iter().collect(),
            letters: VecDeque::new(),
            order,
            ended: Ended::NotYet,
        }
    }

    fn long(&mut self, word: &OsStr) -> Result<Item, Mistake> {
        let text = &word.as_bytes()[2..];
        let (name, given) = match text.iter().position(|byte| *byte == b'=') {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        let definition = find(name, word)?;
        let long = definition.long.unwrap_or_default();
        let given = given.map(|given| OsString::from_vec(given.to_vec()));
        let given = match (definition.argument, given) {
            (Argument::None, Some(_)) => {
                let message = format!("option '--{long}' doesn't allow an argument");
                return Err(Mistake::usage(message));
            }
            (Argument::Required(_), None) => Some(self.rest.pop_front().ok_or_else(|| {
                Mistake::usage(format!("option '--{long}' requires an argument"))
            })?),
            (_, given) => given,
        };
        Ok(Item::Option(definition.id, given))
    }

    fn short(&mut self, letter: u8) -> Result<Item, Mistake> {
        let byte = [letter];
        let shown = OsStr::from_bytes(&byte);
        let is_meant =
            |definition: &&Definition| definition.short.bytes().any(|short| short == letter);
        let definition = OPTIONS
            .iter()
            .find(is_meant)
            .ok_or_else(|| Mistake::about("invalid option -- '", shown, "'"))?;
        let given =
            match definition.argument {
                Argument::Required(_) if !self.letters.is_empty() => {
                    Some(OsString::from_vec(self.letters.drain(..).collect()))
                }
                Argument::Required(_) => Some(self.rest.pop_front().ok_or_else(|| {
                    Mistake::about("option requires an argument -- '", shown, "'")
                })?),
                Argument::None | Argument::Optional(_) => None,
            };
        Ok(Item::Option(definition.id, given))
    }
}

impl Iterator for Words {
    type Item = Result<Item, Mistake>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(letter) = self.letters.pop_front() {
            return Some(self.short(letter));
        }
        let word = self.rest.pop_front()?;
        match word.as_bytes() {
            _ if self.ended == Ended::Options => Some(Ok(Item::Operand(word))),
            b"--" => {
                self.ended = Ended::Options;
                self.next()
            }
            [b'-', b'-', ..] => Some(self.long(&word)),
            [b'-', letters @ ..] if !letters.is_empty() => {
                self.letters = letters.iter().copied().collect();
                self.next()
            }
            _ => {
                if self.order == Order::OptionsFirst {
                    self.ended = Ended::Options;
                }
                Some(Ok(Item::Operand(word)))
            }
        }
    }
}

/// The long option that a name, or the beginning of one, means. Ours are only looked at where none
/// of GNU's begins so: what is short for something to GNU stays so.
fn find(name: &[u8], word: &OsStr) -> Result<&'static Definition, Mistake> {
    let named = |definition: &&Definition| definition.long.map(str::as_bytes) == Some(name);
    if let Some(exact) = OPTIONS.iter().find(named) {
        return Ok(exact);
    }
    let begins = |definition: &&Definition| {
        let long = definition.long.map(str::as_bytes);
        long.is_some_and(|long| long.starts_with(name))
    };
    let (gnu, ours): (Vec<&Definition>, Vec<&Definition>) = OPTIONS
        .iter()
        .filter(begins)
        .partition(|definition| definition.is_gnu());
    let candidates = if gnu.is_empty() { ours } else { gnu };
    let Some((first, others)) = candidates.split_first() else {
        return Err(Mistake::about("unrecognized option '", word, "'"));
    };
    let others: Vec<_> = others.iter().filter(|other| other.id != first.id).collect();
    if others.is_empty() {
        return Ok(first);
    }
    let longs = std::iter::once(first).chain(others);
    let longs: String = longs
        .filter_map(|candidate| candidate.long)
        .map(|long| format!(" '--{long}'"))
        .collect();
    let after = format!("' is ambiguous; possibilities:{longs}");
    Err(Mistake::about("option '", word, &after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Vec<Item>, Mistake> {
        Words::new(words.iter().map(OsString::from), Order::Free).collect()
    }

    fn option(id: Id, argument: &str) -> Item {
        Item::Option(id, (!argument.is_empty()).then(|| argument.into()))
    }

    fn operand(word: &str) -> Item {
        Item::Operand(word.into())
    }

    #[test]
    fn words_are_split_as_getopt_does() {
        let table: [(&[&str], Vec<Item>); 12] = [
            (&["-Sx"], vec![option(Id::Suffix, "x")]),
            (&["-S", "x"], vec![option(Id::Suffix, "x")]),
            (&["-S="], vec![option(Id::Suffix, "=")]),
            (
                &["-vSx"],
                vec![option(Id::Verbose, ""), option(Id::Suffix, "x")],
            ),
            (&["--suffix=x"], vec![option(Id::Suffix, "x")]),
            (&["--suf", "x"], vec![option(Id::Suffix, "x")]),
            (
                &["--backup", "x"],
                vec![option(Id::Backup, ""), operand("x")],
            ),
            (&["--backup=x"], vec![option(Id::Backup, "x")]),
            (&["--", "-v"], vec![operand("-v")]),
            (&["a", "-v"], vec![operand("a"), option(Id::Verbose, "")]),
            (&["-"], vec![operand("-")]),
            (&["--pa"], vec![option(Id::Parents, "")]),
        ];
        for (words, expected) in table {
            assert_eq!(read(words), Ok(expected), "{words:?}");
        }
    }

    #[test]
    fn ours_do_not_stand_in_the_way_of_abbreviations() {
        for (word, id) in [
            ("--f", Id::Force),
            ("--o", Id::OneFileSystem),
            ("--i", Id::Interactive),
            ("--verb", Id::Verbose),
            ("--veri", Id::Verify),
            ("--jo", Id::Jobs),
            ("--res", Id::Resume),
            ("--upd", Id::Update),
        ] {
            let words = Words::new([word.into(), "1".into()], Order::Free);
            let first = words.into_iter().next().map(|item| match item {
                Ok(Item::Option(id, _)) => Some(id),
                _ => None,
            });
            assert_eq!(first, Some(Some(id)), "{word}");
        }
    }

    #[test]
    fn operands_may_end_the_options() {
        let words = ["a", "-v"].map(OsString::from);
        let items: Result<Vec<_>, _> = Words::new(words, Order::OptionsFirst).collect();
        assert_eq!(items, Ok(vec![operand("a"), operand("-v")]));
    }
}
