//! Text for terminals: line wrapping, lists of equal findings, standard output.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use underpass::{is_stderr_closed, is_stdout_closed};
use underpass_net::Address;

/// The width of reports and of help in columns.
pub(crate) const WIDTH: usize = 80;

/// Writes to standard output, with colours if a terminal shows them (`NO_COLOR`, `TERM=dumb`). A
/// reader that closes the pipe (`| head`) is not an error.
///
/// # Errors
/// A message for the user.
pub(crate) fn print(text: &str) -> Result<(), String> {
    if is_stdout_closed() {
        return Err("cannot write to standard output: it is closed".to_owned());
    }
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Writes to standard error, and ignores a failure, which could not be reported.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes a part of the result of a command to standard error.
///
/// # Errors
/// A message for the user. If it is lost, so is the part.
pub(crate) fn print_aside(text: &str) -> Result<(), String> {
    if is_stderr_closed() {
        return Err("cannot write to standard error: it is closed".to_owned());
    }
    let written = io::stderr().write_all(format!("{text}\n").as_bytes());
    written.map_err(|error| format!("cannot write to standard error: {error}"))
}

/// Prints the result of a command.
///
/// # Errors
/// A message for the user: the command has failed if the result cannot be written.
pub(crate) fn print_result(text: &str) -> Result<(), String> {
    print(&format!("{text}\n"))
}

/// Returns the columns of a terminal, or `otherwise` without one.
pub(crate) fn columns(of: impl AsFd, otherwise: usize) -> usize {
    let size = rustix::termios::tcgetwinsize(of);
    match size.map_or(0, |size| size.ws_col) {
        0 => otherwise,
        columns => columns.into(),
    }
}

/// Returns the address of metrics and health.
pub(crate) fn monitoring(addresses: &[Address]) -> Option<String> {
    let address = match addresses.first()? {
        Address::Tcp(address) => format!("http://{address}"),
        address => address.to_string(),
    };
    Some(format!("metrics and health on {address}"))
}

/// Formats a count: `1 file`, `2 files`.
pub(crate) fn counted(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {one}{plural}")
}

/// Wraps text at spaces; the first line starts with `head`, the others are indented to match.
pub(crate) fn wrap(head: &str, text: &str) -> String {
    wrap_words(head, text.split(' '))
}

/// Wraps a list between its items.
pub(crate) fn wrap_list(head: &str, items: &[String]) -> String {
    let last = items.len().saturating_sub(1);
    let comma = |(at, item): (usize, &String)| item.clone() + if at < last { "," } else { "" };
    let items: Vec<_> = items.iter().enumerate().map(comma).collect();
    wrap_words(head, items.iter().map(String::as_str))
}

/// Wraps words, breaking those longer than a line.
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

/// Escapes control characters: file names may contain them, but a terminal must not receive them.
fn visible(word: &str) -> impl Iterator<Item = char> + '_ {
    word.chars().flat_map(|char| {
        let escaped = char.is_control().then(|| char.escape_default());
        let plain = (!char.is_control()).then_some(char);
        escaped.into_iter().flatten().chain(plain)
    })
}

/// Groups pairs by key, in the order of first occurrence.
pub(crate) fn grouped<K: PartialEq>(
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
    fn equal_answers_are_listed_once() {
        let met = [("a", "1"), ("b", "2"), ("a", "3")].map(|(key, pair)| (key, pair.to_owned()));
        let groups = grouped(met.into_iter());
        assert_eq!(
            groups,
            [("a", vec!["1".into(), "3".into()]), ("b", vec!["2".into()])]
        );
    }
}
