//! A Rust file parsed as far as the rules need it: its words, its functions, its tests, and the
//! lines that are for tests only.
//!
//! It works on tokens, not on a syntax tree: tokens reach inside macros such as `proptest!`, where
//! half of the tests are.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::modules::RustModule;
use super::tokens::{
    AttributeTokens, attributes_at, end_of_item, first_line, is_test, is_test_only, last_line,
};

#[derive(Default)]
pub(crate) struct Rust {
    /// Identifiers, punctuation, literals and opening brackets outside of documentation, in order.
    pub(crate) words: Vec<RustWord>,
    pub(crate) functions: Vec<RustFunction>,
    pub(crate) tests: Vec<RustTest>,
    /// The file's own attributes, without blanks: `forbid(unsafe_code)`.
    pub(crate) attributes: Vec<String>,
    /// The reason why the file could not be parsed.
    pub(crate) error: Option<String>,
    pub(super) module: RustModule,
    test_lines: Vec<RangeInclusive<usize>>,
}

pub(crate) struct RustWord {
    pub(crate) text: String,
    pub(crate) line: usize,
}

pub(crate) struct RustFunction {
    pub(crate) name: String,
    pub(crate) lines: RangeInclusive<usize>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct RustTest {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) ignored: Ignored,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Ignored {
    No,
    /// The given reason, or an empty string.
    Because(String),
}

impl Rust {
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let mut rust = Self::default();
        match text.parse::<TokenStream>() {
            Ok(tokens) => {
                let tokens = Vec::from_iter(tokens);
                rust.scan(&tokens);
                rust.module = RustModule::read(&tokens);
            }
            Err(error) => rust.error = Some(error.to_string()),
        }
        let all_tests = rust
            .attributes
            .iter()
            .any(|attribute| is_test_only(attribute));
        if all_tests || is_test_file(path) {
            rust.test_lines = vec![1..=usize::MAX];
        }
        rust
    }

    pub(crate) fn is_for_tests(&self, line: usize) -> bool {
        self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Returns the words outside of tests.
    pub(crate) fn shipped_words(&self) -> impl Iterator<Item = &RustWord> {
        self.words
            .iter()
            .filter(|word| !self.is_for_tests(word.line))
    }

    /// Returns the number of lines outside of tests.
    pub(crate) fn shipped_lines(&self, text: &str) -> usize {
        (1..=text.lines().count())
            .filter(|line| !self.is_for_tests(*line))
            .count()
    }

    fn scan(&mut self, siblings: &[TokenTree]) {
        let mut at = 0;
        while at < siblings.len() {
            let (attributes, after) = attributes_at(siblings, at);
            if after > at {
                self.note_item(&attributes, siblings, after);
                attributes
                    .iter()
                    .for_each(|attribute| self.scan_attribute(attribute));
                at = after;
                continue;
            }
            match &siblings[at] {
                TokenTree::Group(group) => {
                    let line = group.span_open().start().line;
                    self.words.push(RustWord {
                        text: opening(group).into(),
                        line,
                    });
                    self.scan_group(group);
                }
                leaf => {
                    self.note_function(siblings, at);
                    self.words.push(RustWord {
                        text: leaf.to_string(),
                        line: first_line(leaf),
                    });
                }
            }
            at += 1;
        }
    }

    fn scan_group(&mut self, group: &Group) {
        self.scan(&group.stream().into_iter().collect::<Vec<_>>());
    }

    fn scan_attribute(&mut self, attribute: &AttributeTokens) {
        let is_doc = attribute.text.starts_with("doc=");
        if !is_doc {
            self.scan_group(&attribute.group);
        }
        if attribute.inner && !is_doc {
            self.attributes.push(attribute.text.clone());
        }
    }

    /// Checks the attributes of the item at `start`: it may be a test, or an item for tests only.
    fn note_item(&mut self, attributes: &[AttributeTokens], siblings: &[TokenTree], start: usize) {
        let mut outer = attributes.iter().filter(|attribute| !attribute.inner);
        let end = end_of_item(siblings, start);
        let is_test = outer.clone().any(|attribute| is_test(&attribute.text));
        if is_test || outer.clone().any(|attribute| is_test_only(&attribute.text)) {
            let first = outer.clone().next().map_or(1, |attribute| attribute.line);
            let last = siblings.get(end).map_or(first, last_line);
            self.test_lines.push(first..=last);
        }
        if let (true, Some(function)) = (is_test, function_in(siblings, start, end)) {
            let ignored = outer.find_map(|attribute| ignored(&attribute.text));
            self.tests.push(RustTest {
                name: function.name,
                line: *function.lines.start(),
                ignored: ignored.unwrap_or(Ignored::No),
            });
        }
    }

    fn note_function(&mut self, siblings: &[TokenTree], at: usize) {
        if is_fn(&siblings[at]) {
            let end = end_of_item(siblings, at);
            self.functions.extend(function_at(siblings, at, end));
        }
    }
}

fn function_in(siblings: &[TokenTree], start: usize, end: usize) -> Option<RustFunction> {
    (start..end).find_map(|at| function_at(siblings, at, end))
}

/// Returns the function whose `fn` is at `at`, if there is one and it has a body.
fn function_at(siblings: &[TokenTree], at: usize, end: usize) -> Option<RustFunction> {
    let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
        (siblings.get(at + 1), siblings.get(end))
    else {
        return None;
    };
    let lines = first_line(&siblings[at])..=body.span_close().end().line;
    let is_function = is_fn(&siblings[at]) && body.delimiter() == Delimiter::Brace;
    is_function.then(|| RustFunction {
        name: name.to_string(),
        lines,
    })
}

fn is_fn(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Ident(word) if word == "fn")
}

fn is_test_file(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
}

fn ignored(attribute: &str) -> Option<Ignored> {
    let rest = attribute.strip_prefix("ignore")?;
    let reason = rest.strip_prefix('=').unwrap_or_default().trim_matches('"');
    (rest.is_empty() || rest.starts_with('=')).then(|| Ignored::Because(reason.to_owned()))
}

fn opening(group: &Group) -> &'static str {
    match group.delimiter() {
        Delimiter::Brace => "{",
        Delimiter::Bracket => "[",
        Delimiter::Parenthesis => "(",
        Delimiter::None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Rust {
        Rust::parse("src/lib.rs", text)
    }

    fn test(name: &str, line: usize, ignored: Ignored) -> RustTest {
        RustTest {
            name: name.into(),
            line,
            ignored,
        }
    }

    #[test]
    fn functions_have_names_and_lines() {
        let rust = parse("impl A {\n  pub fn a(f: fn(u8)) -> u8 {\n    1\n  }\n  fn b();\n}\n");
        let found: Vec<_> = rust
            .functions
            .iter()
            .map(|f| (f.name.as_str(), f.lines.clone()))
            .collect();
        assert_eq!(found, [("a", 2..=4)]);
    }

    #[test]
    fn tests_are_found_with_their_reasons_to_be_ignored() {
        let rust = parse(
            "#[test]\nfn a() {}\n#[tokio::test(flavor = \"x\")]\n#[ignore = \"needs curl; so\"]\n\
             async fn b() {}\n#[ignore]\n#[test]\nfn c() {}\nfn d() {}\n",
        );
        let because = |reason: &str| Ignored::Because(reason.into());
        assert_eq!(
            rust.tests,
            [
                test("a", 2, Ignored::No),
                test("b", 5, because("needs curl; so")),
                test("c", 8, because(""))
            ]
        );
    }

    #[test]
    fn tests_are_found_inside_of_macros() {
        let rust = parse("proptest! {\n  /// Words.\n  #[test]\n  fn a(x in 0..9) { }\n}\n");
        assert_eq!(rust.tests, [test("a", 4, Ignored::No)]);
    }

    #[test]
    fn lines_for_tests_are_those_of_test_items() {
        let rust = parse("use a::b;\n#[cfg(test)]\nmod tests {\n  fn x() {}\n}\nfn y() {}\n");
        let for_tests: Vec<_> = (1..=6).filter(|line| rust.is_for_tests(*line)).collect();
        assert_eq!(for_tests, [2, 3, 4, 5]);
        assert!(!rust.shipped_words().any(|word| word.text == "x"));
        assert!(rust.shipped_words().any(|word| word.text == "y"));
    }

    #[test]
    fn files_of_tests_are_tests_throughout() {
        assert!(Rust::parse("crates/a/tests/b.rs", "fn a() {}").is_for_tests(1));
        assert!(Rust::parse("crates/a/src/b/tests.rs", "fn a() {}").is_for_tests(1));
        assert!(parse("#![cfg(test)]\nfn a() {}").is_for_tests(2));
        assert!(!parse("#![cfg(not(test))]\nfn a() {}").is_for_tests(2));
    }

    #[test]
    fn documentation_has_no_words() {
        let rust = parse("//! unsafe\n/// unsafe\nfn a() { \"unsafe\"; /* unsafe */ }\n");
        assert!(!rust.words.iter().any(|word| word.text == "unsafe"));
    }

    #[test]
    fn attributes_of_the_file_are_kept() {
        assert_eq!(
            parse("//! A.\n#![forbid( unsafe_code )]\n").attributes,
            ["forbid(unsafe_code)"]
        );
    }

    #[test]
    fn what_is_not_rust_is_an_error() {
        assert!(parse("fn a() {").error.is_some());
    }
}
