//! Maximum sizes of files, functions and lines.

use super::code::{Rust, RustFunction, Tree};
use super::complaint::{Complaint, Exceptions, excused};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Exceptions: a place and a reason. A place is `FILE` for its number of lines, `FILE:function` for
/// a function, `FILE:columns` for the file's wide lines.
pub(super) const EXCEPTIONS: Exceptions = &[];

pub(super) fn check(tree: &Tree, exceptions: Exceptions) -> Vec<Complaint> {
    let files = tree.rust();
    let excesses = files.flat_map(|(path, text, rust)| excesses(path, text, rust));
    excused(excesses.collect(), exceptions)
}

fn excesses(path: &str, text: &str, rust: &Rust) -> Vec<Complaint> {
    let unreadable = rust.error.iter().map(|error| Complaint::new(path, error));
    let functions = rust
        .functions
        .iter()
        .filter_map(|function| long_function(path, rust, function));
    let file = long_file(path, text, rust);
    unreadable
        .chain(file)
        .chain(functions)
        .chain(wide_lines(path, text))
        .collect()
}

fn long_file(path: &str, text: &str, rust: &Rust) -> Option<Complaint> {
    let lines = rust.shipped_lines(text);
    let text = format!("{lines} lines outside of tests, of at most {FILE_LINES_MAX}");
    (lines > FILE_LINES_MAX).then(|| Complaint::new(path, text))
}

fn long_function(path: &str, rust: &Rust, function: &RustFunction) -> Option<Complaint> {
    let lines = function.lines.clone().count();
    let is_long = lines > FUNCTION_LINES_MAX && !rust.is_for_tests(*function.lines.start());
    let text = format!(
        "{lines} lines from line {}, of at most {FUNCTION_LINES_MAX}",
        function.lines.start()
    );
    is_long.then(|| Complaint::new(format!("{path}:{}", function.name), text))
}

fn wide_lines(path: &str, text: &str) -> Option<Complaint> {
    // A URL can't be broken.
    let is_wide = |line: &str| line.chars().count() > COLUMNS_MAX && !line.contains("https://");
    let wide: Vec<_> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| is_wide(line))
        .map(|(number, _): (usize, _)| number.to_string())
        .collect();
    let text = format!(
        "more than {COLUMNS_MAX} columns in line {}",
        wide.join(", ")
    );
    (!wide.is_empty()).then(|| Complaint::new(format!("{path}:columns"), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/a/src/b.rs";

    fn places(text: &str, exceptions: &[(&str, &str)]) -> Vec<String> {
        let complaints = check(&Tree::of(&[(PATH, text)]), exceptions);
        complaints
            .into_iter()
            .map(|complaint| complaint.place)
            .collect()
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "\n".repeat(lines - 2))
    }

    #[test]
    fn functions_end_with_the_screen() {
        assert!(places(&function_of(70), &[]).is_empty());
        assert_eq!(places(&function_of(71), &[]), ["crates/a/src/b.rs:long"]);
    }

    #[test]
    fn long_tests_are_nobodys_business() {
        assert!(places(&format!("#[test]\n{}", function_of(99)), &[]).is_empty());
    }

    #[test]
    fn files_have_six_hundred_lines_outside_of_tests() {
        assert!(places(&"\n".repeat(600), &[]).is_empty());
        assert_eq!(places(&"\n".repeat(601), &[]), [PATH]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}", "\n".repeat(601));
        assert!(places(&tests, &[]).is_empty());
    }

    #[test]
    fn lines_have_a_hundred_columns() {
        assert!(places(&format!("//{}", "ü".repeat(98)), &[]).is_empty());
        assert_eq!(
            places(&format!("//{}", "ü".repeat(99)), &[]),
            ["crates/a/src/b.rs:columns"]
        );
        assert!(places(&format!("// https://{}", "a".repeat(99)), &[]).is_empty());
    }

    #[test]
    fn an_exception_silences_and_grows_stale() {
        let exceptions = [("crates/a/src/b.rs:long", "one table")];
        assert!(places(&function_of(71), &exceptions).is_empty());
        assert_eq!(
            places(&function_of(70), &exceptions),
            ["crates/a/src/b.rs:long"]
        );
    }

    #[test]
    fn what_can_not_be_read_is_complained_of() {
        assert_eq!(places("fn a() {", &[]), [PATH]);
    }
}
