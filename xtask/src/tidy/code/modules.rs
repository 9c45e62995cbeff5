//! The declarations, imports and names of a Rust file outside of tests, by module.
//!
//! It reads tokens, like `rust.rs`: macros are not expanded and types are unknown. The arguments of
//! a macro are read like other code.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use proc_macro2::{Delimiter, TokenTree};

use super::tokens::{attributes_at, end_of_item, first_line, is_punct, is_test, is_test_only};

/// A module as written: a file, or `mod x { … }` in one.
#[derive(Debug, Default)]
pub(super) struct RustModule {
    /// Modules `mod x { … }`, by name.
    pub(super) inline: BTreeMap<String, RustModule>,
    /// Modules `mod x;`, by name. The attribute `path` is not followed.
    pub(super) files: BTreeSet<String>,
    /// The names that can be imported: types, functions, constants, macros.
    pub(super) items: BTreeSet<String>,
    /// Defined structs, enums, traits and aliases, also in functions, with their lines.
    pub(super) types: Vec<(String, usize)>,
    pub(super) imports: Vec<Import>,
    /// Paths of more than one segment, outside of `use`.
    pub(super) paths: Vec<ItemPath>,
    /// The first line of each name that stands alone or starts a path, outside of `use`.
    pub(super) words: BTreeMap<String, usize>,
}

/// A name imported by a `use`.
#[derive(Debug, PartialEq)]
pub(super) struct Import {
    pub(super) path: ItemPath,
    /// The local name: `_` for a trait without a name, `*` for everything in a module.
    pub(super) name: String,
    pub(super) reexported: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ItemPath {
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
}

/// The kind of place where an item is.
#[derive(Clone, Copy, PartialEq)]
enum ItemPlace {
    Module,
    /// An alias here is an associated type, and like a function it is not a name of the module.
    ImplOrTrait,
    /// In a function, for example: types count, but nothing can be imported.
    Other,
}

impl RustModule {
    pub(super) fn read(siblings: &[TokenTree]) -> Self {
        let mut module = Self::default();
        module.scan(siblings, ItemPlace::Module);
        module
    }

    fn scan(&mut self, siblings: &[TokenTree], within: ItemPlace) {
        let (mut at, mut next_body, mut is_public) = (0, ItemPlace::Other, false);
        while at < siblings.len() {
            let (attributes, after) = attributes_at(siblings, at);
            if after > at {
                let mut outer = attributes.iter().filter(|attribute| !attribute.inner);
                at = match outer.any(|it| is_test(&it.text) || is_test_only(&it.text)) {
                    true => end_of_item(siblings, after) + 1,
                    false => after,
                };
                continue;
            }
            match &siblings[at] {
                TokenTree::Ident(word) if word == "pub" => {
                    is_public = true;
                    // The path in a visibility is not an import.
                    at += 1 + usize::from(is_parenthesis(siblings.get(at + 1)));
                    continue;
                }
                TokenTree::Ident(word) if word == "impl" || word == "trait" => {
                    next_body = ItemPlace::ImplOrTrait;
                    at = self.scan_word(siblings, at, within, is_public);
                }
                TokenTree::Ident(_) => at = self.scan_word(siblings, at, within, is_public),
                TokenTree::Group(group) => {
                    let is_body = group.delimiter() == Delimiter::Brace;
                    let siblings = Vec::from_iter(group.stream());
                    let inside = match is_body {
                        true => mem::replace(&mut next_body, ItemPlace::Other),
                        false => ItemPlace::Other,
                    };
                    self.scan(&siblings, inside);
                    at += 1;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
            }
            is_public = false;
        }
    }

    /// Reads the construct that starts with the word at `at`, and returns the index after it.
    fn scan_word(
        &mut self,
        siblings: &[TokenTree],
        at: usize,
        within: ItemPlace,
        is_public: bool,
    ) -> usize {
        let keyword = siblings[at].to_string();
        let name = match siblings.get(at + 1) {
            Some(TokenTree::Ident(name)) => Some(name.to_string()),
            _ => None,
        };
        match (keyword.as_str(), name) {
            ("use", _) if !is_generic_capture(siblings, at) => {
                return self.scan_use(siblings, at, is_public);
            }
            ("mod", Some(name)) => match siblings.get(at + 2) {
                Some(TokenTree::Group(body)) => {
                    let inner = Self::read(&Vec::from_iter(body.stream()));
                    self.inline.insert(name, inner);
                    return at + 3;
                }
                _ => drop(self.files.insert(name)),
            },
            ("type", Some(_)) if within == ItemPlace::ImplOrTrait => {}
            ("struct" | "enum" | "trait" | "type" | "fn" | "const" | "static", Some(name)) => {
                if matches!(keyword.as_str(), "struct" | "enum" | "trait" | "type") {
                    self.types.push((name.clone(), first_line(&siblings[at])));
                }
                if within == ItemPlace::Module {
                    self.items.insert(name);
                }
            }
            ("macro_rules", _) => {
                let name = siblings.get(at + 2).map(ToString::to_string);
                self.items.extend(name);
                // A template: its names are not defined here.
                return at + 4;
            }
            _ => return self.scan_path(siblings, at),
        }
        at + 2
    }

    /// Reads `use a::{b, c as d};`.
    fn scan_use(&mut self, siblings: &[TokenTree], at: usize, is_public: bool) -> usize {
        let end = siblings[at..]
            .iter()
            .position(|token| is_punct(Some(token), ';'));
        let end = end.map_or(siblings.len(), |distance| at + distance);
        self.scan_use_tree(&siblings[at + 1..end], &[], is_public);
        end + 1
    }

    fn scan_use_tree(&mut self, tree: &[TokenTree], prefix: &[String], reexported: bool) {
        for branch in tree.split(|token| is_punct(Some(token), ',')) {
            let mut segments = prefix.to_vec();
            let mut name = None;
            let mut tokens = branch.iter();
            while let Some(token) = tokens.next() {
                match token {
                    TokenTree::Ident(word) if word == "as" => {
                        name = tokens.next().map(ToString::to_string);
                    }
                    // `a::{self}` is `a`.
                    TokenTree::Ident(word) if word == "self" && !prefix.is_empty() => {}
                    TokenTree::Ident(word) => segments.push(word.to_string()),
                    TokenTree::Group(inner) => {
                        let inner = Vec::from_iter(inner.stream());
                        self.scan_use_tree(&inner, &segments, reexported);
                        segments.clear();
                    }
                    TokenTree::Punct(star) if star.as_char() == '*' => name = Some("*".to_owned()),
                    TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                }
            }
            let (Some(first), Some(last)) = (branch.first(), segments.last()) else {
                continue;
            };
            let name = name.unwrap_or_else(|| last.clone());
            let line = first_line(first);
            self.imports.push(Import {
                path: ItemPath { segments, line },
                name,
                reexported,
            });
        }
    }

    /// Reads the path, often of one segment, that starts at `at`.
    fn scan_path(&mut self, siblings: &[TokenTree], at: usize) -> usize {
        let before = at.checked_sub(1).and_then(|before| siblings.get(before));
        let continues = is_punct(before, ':') && is_path_separator(siblings, at.wrapping_sub(2));
        let is_member = is_punct(before, '.') && !is_range(siblings, at);
        let line = first_line(&siblings[at]);
        let mut segments = vec![siblings[at].to_string()];
        let mut after = at + 1;
        while is_path_separator(siblings, after) {
            let Some(TokenTree::Ident(segment)) = siblings.get(after + 2) else {
                break;
            };
            segments.push(segment.to_string());
            after += 3;
        }
        let is_label = is_punct(siblings.get(after), ':') && !is_path_separator(siblings, after);
        if continues || is_member {
            return after;
        }
        if !(is_label && segments.len() == 1) {
            self.words.entry(segments[0].clone()).or_insert(line);
        }
        if segments.len() > 1 {
            self.paths.push(ItemPath { segments, line });
        }
        after
    }
}

fn is_parenthesis(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

fn is_path_separator(siblings: &[TokenTree], at: usize) -> bool {
    is_punct(siblings.get(at), ':') && is_punct(siblings.get(at + 1), ':')
}

/// Returns whether two dots precede `at`: `..name`.
fn is_range(siblings: &[TokenTree], at: usize) -> bool {
    at >= 2 && is_punct(siblings.get(at - 2), '.')
}

/// Returns whether a `use` is part of a type: `impl Trait + use<'a>`.
fn is_generic_capture(siblings: &[TokenTree], at: usize) -> bool {
    is_punct(siblings.get(at + 1), '<')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RustModule {
        let tokens: proc_macro2::TokenStream = text.parse().expect("tokens");
        RustModule::read(&Vec::from_iter(tokens))
    }

    fn imports(text: &str) -> Vec<String> {
        let line = |import: &Import| {
            let mark = if import.reexported { "pub " } else { "" };
            format!(
                "{mark}{} = {}",
                import.name,
                import.path.segments.join("::")
            )
        };
        read(text).imports.iter().map(line).collect()
    }

    fn paths(text: &str) -> Vec<String> {
        let module = read(text);
        let paths = module.paths.iter().map(|path| path.segments.join("::"));
        paths.collect()
    }

    #[test]
    fn a_use_names_each_of_its_imports() {
        assert_eq!(
            imports("use a::{self, b::{C, D as E}, f::*};\npub(in crate::x) use super::g as _;"),
            [
                "a = a",
                "C = a::b::C",
                "E = a::b::D",
                "* = a::f",
                "pub _ = super::g"
            ]
        );
        assert_eq!(imports("fn f() { use crate::a::B; }"), ["B = crate::a::B"]);
    }

    #[test]
    fn paths_are_read_wherever_they_stand() {
        let text = "fn f(a: crate::a::B<super::c::D>) -> impl X + use<'_> { \
                    vec![self::e::f::<u8>()]; a.b(..g::h) }";
        assert_eq!(
            paths(text),
            ["crate::a::B", "super::c::D", "self::e::f", "g::h"]
        );
        assert_eq!(paths("pub(in crate::a) fn f() { <T as A>::b() }"), [""; 0]);
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        let module = read(
            "#[cfg(test)]\nmod tests { use crate::a::B; }\n#[cfg(test)]\nuse crate::c::D;\n\
             #[test]\nfn f() { crate::e::f() }\nmod kept { struct G; }\n",
        );
        assert!(module.imports.is_empty() && module.paths.is_empty());
        assert_eq!(Vec::from_iter(module.inline.keys()), ["kept"]);
    }

    #[test]
    fn definitions_have_names() {
        let module = read(
            "struct A; pub(crate) enum B {} trait C { type Not; } impl C for A { type Not = u8; }\n\
             type D = u8; fn e() { struct F; fn not() {} }\n\
             macro_rules! g { ($n:ident) => { struct Not; } }\n\
             mod h;\n",
        );
        let types: Vec<_> = module.types.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(types, ["A", "B", "C", "D", "F"]);
        assert_eq!(
            Vec::from_iter(&module.items),
            ["A", "B", "C", "D", "e", "g"]
        );
        assert!(module.files.contains("h"));
    }

    #[test]
    fn names_that_stand_alone_are_words() {
        let module = read("fn f(a: B) { c(d.e, g::h, i { j: k }) }");
        let words = Vec::from_iter(module.words.keys().map(String::as_str));
        assert_eq!(words, ["B", "c", "d", "g", "i", "k"]);
    }
}
