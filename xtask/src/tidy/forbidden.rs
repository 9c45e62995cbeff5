//! Content that must not be in the repository.

use super::code::{FileContent, Rust, Tree};
use super::complaint::Complaint;

const FILE_BYTES_MAX: u64 = 512 << 10;

/// Data that tests compare byte by byte; its blanks and tabs are intended.
const TEST_DATA: &str = "/tests/data/";

/// Directories of one person's machine. Split in two, since this file is checked as well.
const PRIVATE_PATHS: &[&str] = &[
    concat!("/", "home/"),
    concat!("/", "root/"),
    concat!("/", "work/"),
    concat!("/", "Users/"),
    concat!("shared", "/"),
];

/// Macros for unfinished code.
const UNFINISHED: &[&str] = &["todo", "dbg", "unimplemented"];

/// The only shell script, with which continuous integration starts.
const SHELL_SCRIPT: &str = ".ci/run";

/// Markers of merge conflicts.
const CONFLICTS: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];

const REGISTRY: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let mut complaints: Vec<_> = tree
        .files
        .iter()
        .filter_map(|f| big(&f.path, f.bytes))
        .collect();
    for file in &tree.files {
        complaints.extend(toolchain(&file.path));
        match &file.content {
            FileContent::Binary => {}
            FileContent::Text(text) => complaints.extend(in_text(&file.path, text)),
            FileContent::Rust(text, rust) => {
                complaints.extend(in_text(&file.path, text));
                complaints.extend(in_rust(&file.path, text, rust));
            }
        }
    }
    complaints
}

fn big(path: &str, bytes: u64) -> Option<Complaint> {
    let text = format!("{bytes} bytes, of at most {FILE_BYTES_MAX}");
    (bytes > FILE_BYTES_MAX).then(|| Complaint::new(path, text))
}

fn toolchain(path: &str) -> Option<Complaint> {
    let is_one = path
        .rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with("rust-toolchain"));
    is_one.then(|| Complaint::new(path, "pins a toolchain; `rust-version` is the promise"))
}

fn in_text(path: &str, text: &str) -> Vec<Complaint> {
    let mut complaints = Vec::from_iter(shell_script(path, text));
    for (number, line) in (1..).zip(text.lines()) {
        complaints.extend(private_path(line).map(|found| {
            Complaint::at(path, number, format!("`{found}` is a place on one machine"))
        }));
        if line.ends_with([' ', '\t', '\r']) && !path.contains(TEST_DATA) {
            complaints.push(Complaint::at(path, number, "trailing white space"));
        }
        if CONFLICTS.iter().any(|mark| line.starts_with(mark)) {
            complaints.push(Complaint::at(path, number, "an unresolved merge"));
        }
        if path == "Cargo.lock" && line.starts_with("source = ") && line != REGISTRY {
            complaints.push(Complaint::at(
                path,
                number,
                "comes from elsewhere than crates.io",
            ));
        }
    }
    complaints
}

fn in_rust(path: &str, text: &str, rust: &Rust) -> Vec<Complaint> {
    let tabs = (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.contains('\t'));
    let tabs = tabs.map(|(number, _)| Complaint::at(path, number, "a tab"));
    let unfinished = rust
        .words
        .windows(2)
        .filter(|pair| UNFINISHED.contains(&pair[0].text.as_str()) && pair[1].text == "!");
    let unfinished =
        unfinished.map(|pair| Complaint::at(path, pair[0].line, format!("{}!", pair[0].text)));
    tabs.chain(unfinished).collect()
}

fn shell_script(path: &str, text: &str) -> Option<Complaint> {
    let first = text.lines().next().unwrap_or_default();
    let is_one = path.ends_with(".sh") || (first.starts_with("#!") && first.ends_with("sh"));
    (is_one && path != SHELL_SCRIPT)
        .then(|| Complaint::new(path, "a shell script; make it a part of xtask"))
}

/// Returns the private path in the line, if it is at the start of a word.
fn private_path(line: &str) -> Option<&'static str> {
    let starts_a_word = |at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|character| character.is_alphanumeric() || "._-~*}".contains(character))
    };
    let is_in = |path: &&&str| line.match_indices(**path).any(|(at, _)| starts_a_word(at));
    PRIVATE_PATHS.iter().find(is_in).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)]))
            .into_iter()
            .map(|found| found.to_string())
            .collect()
    }

    #[test]
    fn private_paths_are_found_at_the_beginning_of_a_word() {
        for path in PRIVATE_PATHS {
            assert_eq!(
                complaints("README.md", &format!("see `{path}x`\n")).len(),
                1,
                "{path}"
            );
            assert!(
                complaints("README.md", &format!("see net{path}x\n")).is_empty(),
                "{path}"
            );
        }
    }

    #[test]
    fn unfinished_code_is_found() {
        assert_eq!(
            complaints("a.rs", concat!("fn a() { todo", "!() }\n")),
            ["a.rs:1: todo!"]
        );
        assert!(complaints("a.rs", "fn todo() { \"dbg!\" }\n").is_empty());
    }

    #[test]
    fn big_files_are_found() {
        assert_eq!(complaints("a.txt", &"a".repeat((512 << 10) + 1)).len(), 1);
    }

    #[test]
    fn white_space_is_found() {
        assert_eq!(
            complaints("a.rs", "fn a() {}\n\tfn b() {}\n"),
            ["a.rs:2: a tab"]
        );
        assert_eq!(complaints("a.md", "a \n"), ["a.md:1: trailing white space"]);
        assert_eq!(
            complaints("a.md", "<<<<<<< HEAD\n"),
            ["a.md:1: an unresolved merge"]
        );
        assert!(complaints("crates/a/tests/data/head.txt", "a \r\n").is_empty());
    }

    #[test]
    fn other_registries_are_found() {
        assert!(complaints("Cargo.lock", &format!("{REGISTRY}\n")).is_empty());
        let other = "source = \"git+https://example.org/a\"\n";
        assert_eq!(complaints("Cargo.lock", other).len(), 1);
    }

    #[test]
    fn pinned_toolchains_are_found() {
        assert_eq!(complaints("rust-toolchain.toml", "").len(), 1);
    }

    #[test]
    fn shell_scripts_are_found() {
        assert_eq!(complaints("a.sh", "").len(), 1);
        assert_eq!(complaints("tool", "#!/usr/bin/env bash\n").len(), 1);
        assert!(complaints(".ci/run", "#!/usr/bin/env bash\n").is_empty());
    }
}
