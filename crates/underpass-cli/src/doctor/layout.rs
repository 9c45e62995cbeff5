//! Colours, line wrapping, and lists of equal findings.

use std::io::IsTerminal;

/// The width of the report in columns.
pub(super) const WIDTH: usize = 80;

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Styling {
    Colour,
    Plain,
}

/// The parameter of the terminal's "select graphic rendition".
#[derive(Clone, Copy, Debug)]
pub(super) enum Style {
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Styling {
    /// Colours on a capable terminal unless `NO_COLOR` is set.
    pub(super) fn for_stdout() -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if std::io::stdout().is_terminal() && !forbidden && !dumb {
            Self::Colour
        } else {
            Self::Plain
        }
    }

    pub(super) fn apply(self, style: Style, text: &str) -> String {
        match self {
            Self::Colour => format!("\x1b[{}m{text}\x1b[0m", style as u8),
            Self::Plain => text.to_owned(),
        }
    }
}

/// Wraps a text at blanks; the first line begins with `head`, the others are indented as much.
pub(super) fn wrap(head: &str, text: &str) -> String {
    wrap_words(head, text.split(' '))
}

/// Wraps a list between its items.
pub(super) fn wrap_list(head: &str, items: &[String]) -> String {
    let last = items.len().saturating_sub(1);
    let comma = |(at, item): (usize, &String)| item.clone() + if at < last { "," } else { "" };
    let items: Vec<_> = items.iter().enumerate().map(comma).collect();
    wrap_words(head, items.iter().map(String::as_str))
}

/// Words longer than a line are broken.
fn wrap_words<'a>(head: &str, words: impl Iterator<Item = &'a str>) -> String {
    let indent = head.chars().count();
    let room = WIDTH.saturating_sub(indent).max(10);
    let mut lines: Vec<String> = Vec::new();
    let mut line = Vec::new();
    for word in words {
        let mut word: Vec<char> = visible(word).collect();
        if !line.is_empty() && line.len() + 1 + word.len() > room {
            lines.push(line.drain(..).collect());
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.append(&mut word);
        while line.len() > room {
            lines.push(line.drain(..room).collect());
        }
    }
    lines.push(line.into_iter().collect());
    let rest = " ".repeat(indent);
    let heads = [head].into_iter().chain(std::iter::repeat(rest.as_str()));
    let whole =
        |(head, line): (&str, &String)| format!("{head}{line}").trim_end().to_owned() + "\n";
    heads.zip(&lines).map(whole).collect()
}

/// Escapes control characters, which file names may contain and a terminal must not receive.
fn visible(word: &str) -> impl Iterator<Item = char> + '_ {
    word.chars().flat_map(|char| {
        let escaped = char.is_control().then(|| char.escape_default());
        let plain = (!char.is_control()).then_some(char);
        escaped.into_iter().flatten().chain(plain)
    })
}

/// Groups pairs by key, in the order of first occurrence.
pub(super) fn grouped<K: PartialEq>(
    met: impl Iterator<Item = (K, String)>,
) -> Vec<(K, Vec<String>)> {
    let mut groups: Vec<(K, Vec<String>)> = Vec::new();
    for (key, pair) in met {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, pairs)) => pairs.push(pair),
            None => groups.push((key, vec![pair])),
        }
    }
    groups
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
    fn items_of_a_list_stay_whole() {
        let items = vec!["A → TCP".to_owned(); 12];
        let text = wrap_list("  ", &items);
        assert!(
            text.lines()
                .all(|line| line.ends_with("TCP,") || line.ends_with("TCP"))
        );
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(wrap("", "a\x1b[31mb"), "a\\u{1b}[31mb\n");
    }

    #[test]
    fn plain_text_stays_plain() {
        assert_eq!(Styling::Plain.apply(Style::Red, "no"), "no");
        assert_eq!(
            Styling::Colour.apply(Style::Green, "ok"),
            "\x1b[32mok\x1b[0m"
        );
    }

    #[test]
    fn equal_answers_are_listed_once() {
        let met = [("a", "1"), ("b", "2"), ("a", "3")].map(|(key, pair)| (key, pair.to_owned()));
        let groups = grouped(met.into_iter());
        assert_eq!(
            groups,
            [("a", vec!["1".into(), "3".into()]), ("b", vec!["2".into()])]
        );
    }
}
