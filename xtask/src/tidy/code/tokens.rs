//! Tokens of Rust: attributes, and the ends of items.

use proc_macro2::{Delimiter, Group, TokenTree};

pub(super) struct AttributeTokens {
    /// The text, without blanks and brackets.
    pub(super) text: String,
    pub(super) group: Group,
    pub(super) line: usize,
    /// Whether it is `#![…]`, an attribute of the enclosing file or block.
    pub(super) inner: bool,
}

/// Returns the attributes at `at`, doc comments included, and the index after them.
pub(super) fn attributes_at(
    siblings: &[TokenTree],
    mut at: usize,
) -> (Vec<AttributeTokens>, usize) {
    let mut attributes = Vec::new();
    while is_punct(siblings.get(at), '#') {
        let inner = is_punct(siblings.get(at + 1), '!');
        let bracket = at + 1 + usize::from(inner);
        let Some(TokenTree::Group(group)) = siblings.get(bracket) else {
            break;
        };
        let text = group.stream().to_string();
        let line = first_line(&siblings[at]);
        attributes.push(AttributeTokens {
            text: without_blanks(&text),
            group: group.clone(),
            line,
            inner,
        });
        at = bracket + 1;
    }
    (attributes, at)
}

/// Returns the index of the item's body or semicolon, or of the last sibling if it has neither.
pub(super) fn end_of_item(siblings: &[TokenTree], start: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    let found = siblings[start..]
        .iter()
        .position(ends)
        .map(|distance| start + distance);
    found.unwrap_or(siblings.len().saturating_sub(1))
}

/// Returns whether an attribute is `test` or `tokio::test`, with or without arguments.
pub(super) fn is_test(attribute: &str) -> bool {
    let path = attribute.split('(').next().unwrap_or_default();
    path == "test" || path.ends_with("::test")
}

pub(super) fn is_test_only(attribute: &str) -> bool {
    attribute == "cfg(test)" || attribute.starts_with("cfg(all(test,")
}

/// Removes the blanks between tokens, but not those inside a string.
fn without_blanks(text: &str) -> String {
    let mut inside = false;
    text.chars()
        .filter(|character| {
            inside ^= *character == '"';
            inside || !character.is_whitespace()
        })
        .collect()
}

pub(super) fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

pub(super) fn first_line(token: &TokenTree) -> usize {
    token.span().start().line
}

pub(super) fn last_line(token: &TokenTree) -> usize {
    token.span().end().line
}
