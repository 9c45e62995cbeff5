//! Splits a command line as getopt_long does, and reports the same errors.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::request::{ArgumentOrder, CalledAs, CpEnvironment, CpRequest, Draft, command};
use super::table::{OPTIONS, OptionArgument, OptionDefinition, OptionGroup};
use super::words::UsageError;

/// Parses a command line. `warn` receives the options that are ignored. An option that requests
/// information ends the parsing.
pub(super) fn parse(
    words: impl IntoIterator<Item = OsString>,
    environment: &CpEnvironment,
    warn: &mut dyn FnMut(&str),
) -> Result<CpRequest, UsageError> {
    let mut draft = Draft {
        charset: environment.charset,
        has_selinux: environment.has_selinux,
        ..Draft::default()
    };
    for item in Getopt::new(words, environment.called_as, environment.order) {
        match item? {
            ParsedWord::Operand(operand) => draft.operands.push(operand),
            ParsedWord::Option(option, argument) => option.apply(&mut draft, argument)?,
        }
        draft.warnings.drain(..).for_each(&mut *warn);
        if let Some(request) = draft.shows_only.take() {
            return Ok(request);
        }
    }
    command(draft, environment).map(|copy| CpRequest::Copy(Box::new(copy)))
}

/// An option with its argument, or an operand.
pub(super) enum ParsedWord {
    Option(&'static OptionDefinition, Option<OsString>),
    Operand(OsString),
}

/// A command line that is being parsed.
#[derive(Debug)]
pub(super) struct Getopt {
    rest: VecDeque<OsString>,
    /// The remaining letters of a bundle (`-abc`).
    letters: VecDeque<u8>,
    called_as: CalledAs,
    order: ArgumentOrder,
    /// Whether only operands follow.
    only_operands: bool,
}

impl Getopt {
    pub(super) fn new(
        words: impl IntoIterator<Item = OsString>,
        called_as: CalledAs,
        order: ArgumentOrder,
    ) -> Self {
        Self {
            rest: words.into_iter().collect(),
            letters: VecDeque::new(),
            called_as,
            order,
            only_operands: false,
        }
    }

    fn long(&mut self, word: &OsStr) -> Result<ParsedWord, UsageError> {
        let text = &word.as_bytes()[2..];
        let (name, given) = match text.iter().position(|byte| *byte == b'=') {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        let definition = find(name, word, self.called_as)?;
        let long = definition.long.unwrap_or_default();
        let given = given.map(|given| OsString::from_vec(given.to_vec()));
        let given = match (definition.argument, given) {
            (OptionArgument::None(_), Some(_)) => {
                let message = format!("option '--{long}' doesn't allow an argument");
                return Err(UsageError::with_hint(message));
            }
            (OptionArgument::Required(..), None) => {
                Some(self.rest.pop_front().ok_or_else(|| {
                    UsageError::with_hint(format!("option '--{long}' requires an argument"))
                })?)
            }
            (_, given) => given,
        };
        Ok(ParsedWord::Option(definition, given))
    }

    fn short(&mut self, letter: u8) -> Result<ParsedWord, UsageError> {
        let byte = [letter];
        let shown = OsStr::from_bytes(&byte);
        let is_meant =
            |definition: &&OptionDefinition| definition.short.bytes().any(|short| short == letter);
        let definition = OPTIONS
            .iter()
            .find(is_meant)
            .ok_or_else(|| UsageError::about("invalid option -- '", shown, "'"))?;
        let given = match definition.argument {
            OptionArgument::Required(..) if !self.letters.is_empty() => {
                Some(OsString::from_vec(self.letters.drain(..).collect()))
            }
            OptionArgument::Required(..) => Some(self.rest.pop_front().ok_or_else(|| {
                UsageError::about("option requires an argument -- '", shown, "'")
            })?),
            OptionArgument::None(_) | OptionArgument::Optional(..) => None,
        };
        Ok(ParsedWord::Option(definition, given))
    }
}

impl Iterator for Getopt {
    type Item = Result<ParsedWord, UsageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(letter) = self.letters.pop_front() {
            return Some(self.short(letter));
        }
        let word = self.rest.pop_front()?;
        match word.as_bytes() {
            _ if self.only_operands => Some(Ok(ParsedWord::Operand(word))),
            b"--" => {
                self.only_operands = true;
                self.next()
            }
            [b'-', b'-', ..] => Some(self.long(&word)),
            [b'-', letters @ ..] if !letters.is_empty() => {
                self.letters = letters.iter().copied().collect();
                self.next()
            }
            _ => {
                if self.order == ArgumentOrder::OptionsFirst {
                    self.only_operands = true;
                }
                Some(Ok(ParsedWord::Operand(word)))
            }
        }
    }
}

/// Finds the long option for a name or a prefix of one. Ours are considered only if no option of
/// GNU's has the prefix, so that abbreviations of GNU's stay valid.
fn find(
    name: &[u8],
    word: &OsStr,
    called_as: CalledAs,
) -> Result<&'static OptionDefinition, UsageError> {
    let named = |definition: &&OptionDefinition| definition.long.map(str::as_bytes) == Some(name);
    if let Some(exact) = OPTIONS.iter().find(named) {
        return Ok(exact);
    }
    let begins = |definition: &&OptionDefinition| {
        let long = definition.long.map(str::as_bytes);
        long.is_some_and(|long| long.starts_with(name))
    };
    let (gnu, ours): (Vec<&OptionDefinition>, Vec<&OptionDefinition>) = OPTIONS
        .iter()
        .filter(begins)
        .partition(|definition| definition.is_gnu());
    let (candidates, ours) = match gnu.is_empty() {
        true => (ours, Vec::new()),
        false => (gnu, ours),
    };
    let Some((first, others)) = candidates.split_first() else {
        return Err(UsageError::about("unrecognized option '", word, "'"));
    };
    let others: Vec<_> = others
        .iter()
        .filter(|other| other.group != OptionGroup::GnuHidden)
        .collect();
    if others.is_empty() {
        return Ok(first);
    }
    // GNU's messages list only GNU's options.
    let ours = ours.iter().filter(|_| called_as == CalledAs::Underpass);
    let longs = std::iter::once(first).chain(others).chain(ours);
    let longs: String = longs
        .filter_map(|candidate| candidate.long)
        .map(|long| format!(" '--{long}'"))
        .collect();
    let after = format!("' is ambiguous; possibilities:{longs}");
    Err(UsageError::about("option '", word, &after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options by their names, operands without one.
    type Read = (Option<&'static str>, OsString);

    fn read(words: &[&str], order: ArgumentOrder) -> Result<Vec<Read>, UsageError> {
        let read = |item| match item {
            ParsedWord::Option(option, argument) => {
                (Some(option.name()), argument.unwrap_or_default())
            }
            ParsedWord::Operand(operand) => (None, operand),
        };
        let words = Getopt::new(words.iter().map(OsString::from), CalledAs::Cp, order);
        words.map(|item| item.map(read)).collect()
    }

    fn option(name: &'static str, argument: &str) -> Read {
        (Some(name), argument.into())
    }

    fn operand(word: &str) -> Read {
        (None, word.into())
    }

    #[test]
    fn words_are_split_as_getopt_does() {
        let table: [(&[&str], Vec<Read>); 12] = [
            (&["-Sx"], vec![option("suffix", "x")]),
            (&["-S", "x"], vec![option("suffix", "x")]),
            (&["-S="], vec![option("suffix", "=")]),
            (
                &["-vSx"],
                vec![option("verbose", ""), option("suffix", "x")],
            ),
            (&["--suffix=x"], vec![option("suffix", "x")]),
            (&["--suf", "x"], vec![option("suffix", "x")]),
            (&["--backup", "x"], vec![option("backup", ""), operand("x")]),
            (&["--backup=x"], vec![option("backup", "x")]),
            (&["--", "-v"], vec![operand("-v")]),
            (&["a", "-v"], vec![operand("a"), option("verbose", "")]),
            (&["-"], vec![operand("-")]),
            (&["--pa"], vec![option("parents", "")]),
        ];
        for (words, expected) in table {
            assert_eq!(
                read(words, ArgumentOrder::Permuted),
                Ok(expected),
                "{words:?}"
            );
        }
    }

    #[test]
    fn ours_do_not_stand_in_the_way_of_abbreviations() {
        for (word, name) in [
            ("--f", "force"),
            ("--o", "one-file-system"),
            ("--i", "interactive"),
            ("--verb", "verbose"),
            ("--veri", "verify"),
            ("--jo", "jobs"),
            ("--res", "resume"),
            ("--upd", "update"),
        ] {
            let read = read(&[word, "1"], ArgumentOrder::Permuted).expect("an option");
            assert_eq!(read[0].0, Some(name), "{word}");
        }
    }

    #[test]
    fn possibilities_are_those_of_the_program() {
        let gnus = "option '--re' is ambiguous; possibilities: '--recursive' \
                    '--remove-destination' '--reflink'";
        for (called_as, ours) in [(CalledAs::Cp, ""), (CalledAs::Underpass, " '--resume'")] {
            let found = find(b"re", OsStr::new("--re"), called_as);
            let message = found.err().expect("ambiguous").message;
            assert_eq!(message.to_str(), Some(&*format!("{gnus}{ours}")));
        }
    }

    #[test]
    fn operands_may_end_the_options() {
        let read = read(&["a", "-v"], ArgumentOrder::OptionsFirst);
        assert_eq!(read, Ok(vec![operand("a"), operand("-v")]));
    }
}
