//! The tests that CONTRIBUTING.md names for combinations of features exist.

use std::fs;
use std::path::Path;

use crate::cargo::root;

fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *text += &fs::read_to_string(&path).expect("a source");
        }
    }
}

#[test]
fn the_tests_that_are_named_for_combinations_exist() {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("a page");
    let (_, section) = page.split_once("\n## Combinations\n").expect("a section");
    let section = section.split("\n## ").next().expect("a section");
    let mut text = String::new();
    for folder in ["crates", "xtask"] {
        sources(&root().join(folder), &mut text);
    }
    let is_name = |name: &&str| name.contains('_') && !name.contains(' ');
    let names: Vec<_> = section
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(is_name)
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("fn {name}()")), "{name}");
    }
}
