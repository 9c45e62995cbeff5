//! Finds all mistakes in a configuration, not just the first.
//!
//! A TOML parser stops at the first invalid value. Its lines are then blanked out, which keeps the
//! positions of all others, and the rest is parsed again.

use std::ops::Range;

use toml::de::Error;

use crate::options::{ServerOptions, SiteOptions};

/// Nobody corrects more at a time.
const MISTAKES_MAX: usize = 20;

/// Returns all mistakes with their positions, in the order of the text.
pub(crate) fn mistakes(text: &str, first: Error) -> String {
    let mut told: Vec<(usize, String)> = Vec::new();
    let (mut text, mut next) = (text.to_owned(), Some(first));
    while let Some(error) = next.take().filter(|_| told.len() < MISTAKES_MAX) {
        let span = error.span();
        if !span
            .as_ref()
            .is_some_and(|span| is_ours(&text, span, &error))
        {
            let place = span.as_ref().map_or(0, |span| span.start);
            let hint = site_hint(&text, place, &error).unwrap_or_default();
            let error = error.to_string();
            told.push((place, format!("{}{hint}", error.trim_end())));
        }
        let Some(rest) = span.map(|span| without(&text, &span)) else {
            break;
        };
        // Stops if the rest without these lines is not valid TOML.
        if rest == text || toml::from_str::<toml::Table>(&rest).is_err() {
            break;
        }
        text = rest;
        next = toml::from_str::<ServerOptions>(&text).err();
    }
    told.sort();
    let told: Vec<_> = told.into_iter().map(|(_, told)| told).collect();
    told.join("\n\n")
}

/// Returns advice if an option of a site is set for the whole server.
fn site_hint(text: &str, place: usize, error: &Error) -> Option<String> {
    let before = &text[..place];
    let is_top_level = !before
        .lines()
        .any(|line| line.trim_start().starts_with('['));
    let name = error.message().strip_prefix("unknown field `")?;
    let (name, _) = name.split_once('`')?;
    let of_site = toml::from_str::<SiteOptions>(&format!("{name} = []")).err();
    let is_known = of_site.is_none_or(|error| !error.message().starts_with("unknown field"));
    (is_top_level && is_known)
        .then(|| "\nthis is an option of a site: write it below a line `[[site]]`".to_owned())
}

/// Replaces blanked-out bytes: whitespace that is not used for whole lines otherwise.
const BLANK: u8 = b'\t';

/// Whether a table lacks a key because the key was blanked out.
fn is_ours(text: &str, span: &Range<usize>, error: &Error) -> bool {
    let table = &text[span.start..];
    let end = table.find("\n[").unwrap_or(table.len());
    let blanked = |line: &str| !line.is_empty() && line.bytes().all(|byte| byte == BLANK);
    error.message().starts_with("missing field") && table[..end].lines().any(blanked)
}

/// Returns the text with the lines of `span`, or the whole table with a wrong name, blanked out.
fn without(text: &str, span: &Range<usize>) -> String {
    let mut rest = Vec::with_capacity(text.len());
    let mut in_table = false;
    for line in text.split_inclusive('\n') {
        let (start, end) = (rest.len(), rest.len() + line.len());
        let header = line.trim_start().starts_with('[');
        let hit = span.start < end && span.end.max(span.start + 1) > start;
        in_table = (in_table && !header) || (hit && header);
        match hit || in_table {
            true => rest.extend(line.bytes().map(blank)),
            false => rest.extend(line.bytes()),
        }
    }
    String::from_utf8_lossy(&rest).into_owned()
}

fn blank(byte: u8) -> u8 {
    match byte {
        b'\n' => byte,
        _ => BLANK,
    }
}

#[cfg(test)]
mod tests {
    use crate::options::ServerOptions;

    #[test]
    fn all_mistakes_are_reported_with_their_places() {
        let text = "lisen = '0.0.0.0:80'\nworkers = 0\n\n[[site]]\nroot = '/srv'\n\
                    names = ['a:80']\nsymlinks = 'some'\n\n[site.nonsense]\nx = 1\n\n\
                    [[site.cache]]\npaths = ['[']\ncontrol = 'a'\n";
        let said = ServerOptions::parse(text).unwrap_err().to_string();
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
        assert_eq!(said.matches("at line ").count(), 6, "{said}");
        let places: Vec<_> = said
            .match_indices("at line ")
            .map(|(at, _)| &said[at..at + 10])
            .collect();
        assert!(
            places.is_sorted_by_key(|place| place[8..].trim_end_matches(',').parse::<u32>().ok())
        );
    }

    #[test]
    fn options_of_a_site_at_the_top_are_known_as_such() {
        let said = ServerOptions::parse("root = '/srv'\nworkerz = 1\n").unwrap_err();
        let said = said.to_string();
        assert_eq!(said.matches("below a line `[[site]]`").count(), 1, "{said}");
        let said = ServerOptions::parse("[tls]\nroot = '/srv'\n").unwrap_err();
        assert!(!said.to_string().contains("[[site]]"), "{said}");
    }

    #[test]
    fn what_is_no_toml_is_reported_and_the_rest_as_far_as_it_is_some() {
        for (text, mistakes) in [
            ("listen = \nlisen = 1\n", 2),
            ("root = '''\nlisen = 1\n", 1),
            ("listen = [\n", 1),
        ] {
            let said = ServerOptions::parse(text).unwrap_err().to_string();
            assert_eq!(said.matches("at line ").count(), mistakes, "{said}");
        }
    }
}
