//! All that is wrong with a configuration, not just the first of it.
//!
//! A reader of TOML stops at the first value that makes no sense. So that one is blanked out, line
//! by line, which keeps the places of the others, and the rest is read again.

use std::ops::Range;

use toml::de::Error;

use crate::options::Options;

/// Nobody repairs more at a time.
const MISTAKES_MAX: usize = 20;

/// What is wrong, each with its place.
pub(crate) fn mistakes(text: &str, first: Error) -> String {
    let mut told = vec![first.to_string().trim_end().to_owned()];
    let (mut text, mut error) = (text.to_owned(), first);
    while told.len() < MISTAKES_MAX {
        let Some(span) = error.span() else { break };
        let rest = without(&text, &span);
        // What is no TOML without these lines is not looked into further.
        if rest == text || toml::from_str::<toml::Table>(&rest).is_err() {
            break;
        }
        text = rest;
        match toml::from_str::<Options>(&text) {
            Ok(_) => break,
            Err(next) => {
                told.push(next.to_string().trim_end().to_owned());
                error = next;
            }
        }
    }
    told.join("\n\n")
}

/// The text with the lines of `span` emptied; of a table whose name is wrong, all of its lines.
fn without(text: &str, span: &Range<usize>) -> String {
    let mut rest = String::with_capacity(text.len());
    let (mut at, mut in_table) = (0, false);
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        let header = line.trim_start().starts_with('[');
        let hit = span.start < end && span.end.max(span.start + 1) > at;
        in_table = match (hit, header) {
            (true, true) => true,
            (false, true) => false,
            (_, false) => in_table,
        };
        match hit || in_table {
            true => rest.push('\n'),
            false => rest.push_str(line),
        }
        at = end;
    }
    rest
}

#[cfg(test)]
mod tests {
    use crate::options::Options;

    #[test]
    fn all_mistakes_are_told_with_their_places() {
        let text = "lisen = '0.0.0.0:80'\nworkers = 0\n\n[[site]]\nroot = '/srv'\n\
                    names = ['a:80']\nsymlinks = 'some'\n\n[site.nonsense]\nx = 1\n\n\
                    [[site.cache]]\npaths = ['[']\ncontrol = 'a'\n";
        let said = Options::parse(text).unwrap_err().to_string();
        for (line, what) in [
            (1, "lisen"),
            (2, "nonzero"),
            (6, "has a port"),
            (7, "some"),
            (9, "nonsense"),
            (13, "pattern"),
        ] {
            assert!(
                said.contains(&format!("line {line}, column")),
                "{line}: {said}"
            );
            assert!(said.contains(what), "{what}: {said}");
        }
    }

    #[test]
    fn what_is_no_toml_is_told_and_the_rest_as_far_as_it_is_some() {
        for (text, mistakes) in [
            ("listen = \nlisen = 1\n", 2),
            ("root = '''\nlisen = 1\n", 1),
            ("listen = [\n", 1),
        ] {
            let said = Options::parse(text).unwrap_err().to_string();
            assert_eq!(said.matches("at line ").count(), mistakes, "{said}");
        }
    }
}
