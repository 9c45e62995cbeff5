//! Colour, and lines that fit.

use std::io::IsTerminal;

/// The width of the report in columns.
pub(super) const WIDTH: usize = 80;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Colour,
    Plain,
}

/// The parameter of the terminal's "select graphic rendition".
#[derive(Clone, Copy, Debug)]
pub(super) enum Ink {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Paint {
    /// Colour on a terminal that can, unless `NO_COLOR` says no.
    pub(super) fn for_stdout() -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if std::io::stdout().is_terminal() && !forbidden && !dumb {
            Self::Colour
        } else {
            Self::Plain
        }
    }

    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        match self {
            Self::Colour => format!("\x1b[{}m{text}\x1b[0m", ink as u8),
            Self::Plain => text.to_owned(),
        }
    }
}

/// Breaks a text at blanks; the first line begins with `head`, the others with as many blanks. Words
/// that fit nowhere are broken where the line ends.
pub(super) fn wrap(head: &str, text: &str) -> String {
    let indent = head.chars().count();
    let room = WIDTH.saturating_sub(indent).max(10);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = visible(word).collect();
        let line = lines.last_mut().expect("there is a first line");
        let used = line.chars().count();
        if used > 0 && used + 1 + word.len() <= room {
            line.push(' ');
            line.extend(word);
            continue;
        }
        if used > 0 {
            lines.push(String::new());
        }
        while word.len() > room {
            let rest = word.split_off(room);
            lines.last_mut().expect("there is a line").extend(word);
            lines.push(String::new());
            word = rest;
        }
        lines.last_mut().expect("there is a line").extend(word);
    }
    let mut wrapped = String::new();
    for (number, line) in lines.iter().enumerate() {
        let head = if number == 0 {
            head
        } else {
            &" ".repeat(indent)
        };
        wrapped.push_str(format!("{head}{line}").trim_end());
        wrapped.push('\n');
    }
    wrapped
}

/// The names of files are other people's: control characters must not reach the terminal.
fn visible(word: &str) -> impl Iterator<Item = char> + '_ {
    word.chars().flat_map(|char| {
        let escaped = char.is_control().then(|| char.escape_default());
        let plain = (!char.is_control()).then_some(char);
        escaped.into_iter().flatten().chain(plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_and_indented() {
        let text = wrap("  A  ", &"word ".repeat(40));
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.starts_with("  A  word"));
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("     word"))
        );
    }

    #[test]
    fn a_word_that_fits_nowhere_is_broken() {
        let text = wrap("    ", &"x".repeat(200));
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.matches('x').count(), 200);
        assert!(text.lines().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(wrap("", "a\x1b[31mb"), "a\\u{1b}[31mb\n");
    }

    #[test]
    fn plain_text_stays_plain() {
        assert_eq!(Paint::Plain.ink(Ink::Red, "no"), "no");
        assert_eq!(Paint::Colour.ink(Ink::Green, "ok"), "\x1b[32mok\x1b[0m");
    }
}
