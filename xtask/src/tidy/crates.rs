//! The allowed imports between crates, and the workspace's lints, which apply to every crate.

use std::collections::HashSet;

use super::code::Tree;
use super::complaint::Complaint;
use crate::workspace::{Dependency, Package};

/// The allowed imports; all others are forbidden. A new crate gets a line here and in
/// ARCHITECTURE.md.
const IMPORTS: &[(&str, &[&str])] = &[
    ("underpass", &[]),
    ("underpass-net", &["underpass"]),
    ("underpass-http", &[]),
    ("underpass-bench", &["underpass"]),
    ("underpass-copy", &["underpass"]),
    ("underpass-monitor", &["underpass-net", "underpass"]),
    (
        "underpass-serve",
        &[
            "underpass-http",
            "underpass-monitor",
            "underpass-net",
            "underpass-receive",
            "underpass-tar",
            "underpass",
        ],
    ),
    ("underpass-log", &["underpass"]),
    ("underpass-receive", &["underpass-tar", "underpass"]),
    ("underpass-tar", &[]),
    (
        "underpass-sendrecv",
        &[
            "underpass-http",
            "underpass-net",
            "underpass-receive",
            "underpass-tar",
            "underpass",
        ],
    ),
    (
        "underpass-broker",
        &[
            "underpass-log",
            "underpass-monitor",
            "underpass-net",
            "underpass",
        ],
    ),
    (
        "underpass-cli",
        &[
            "underpass-broker",
            "underpass-copy",
            "underpass-log",
            "underpass-net",
            "underpass-sendrecv",
            "underpass-serve",
            "underpass",
        ],
    ),
    ("underpass-testkit", &[]),
    ("xtask", ANY),
];

/// The crate that the tests of every crate may use.
const TEST_KIT: &str = "underpass-testkit";

const ANY: &[&str] = &["*"];

pub(super) fn check_imports(tree: &Tree) -> Vec<Complaint> {
    tree.metadata
        .ours()
        .flat_map(|package| imports(tree, package))
        .collect()
}

fn imports(tree: &Tree, package: &Package) -> Vec<Complaint> {
    let manifest = tree.manifest(package);
    let Some((_, allowed)) = IMPORTS.iter().find(|(name, _)| *name == package.name) else {
        return vec![Complaint::new(
            manifest,
            "a crate without a line in the table of walls",
        )];
    };
    let names: HashSet<_> = package
        .dependencies
        .iter()
        .filter(|dependency| is_forbidden(package, dependency, allowed))
        .map(|dependency| &dependency.name)
        .collect();
    let complain = |name| {
        Complaint::new(
            &manifest,
            format!("{} must not import {name}", package.name),
        )
    };
    names.into_iter().map(complain).collect()
}

/// Development and build dependencies count, too. A crate may depend on itself, to enable features
/// for its tests.
fn is_forbidden(package: &Package, dependency: &Dependency, allowed: &[&str]) -> bool {
    let is_ours = dependency.path.is_some() && dependency.name != package.name;
    let is_test_kit = dependency.name == TEST_KIT && dependency.kind.as_deref() == Some("dev");
    is_ours && !is_test_kit && allowed != ANY && !allowed.contains(&dependency.name.as_str())
}

pub(super) fn check_lints(tree: &Tree) -> Vec<Complaint> {
    let inherits = |path: &str| {
        let manifest = tree.text(path).unwrap_or_default();
        manifest.contains("[lints]\nworkspace = true\n")
    };
    tree.metadata
        .ours()
        .map(|package| tree.manifest(package))
        .filter(|path| !inherits(path))
        .map(|path| Complaint::new(path, "lacks the lines `[lints]`, `workspace = true`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::ours;

    fn texts(package: Package) -> Vec<String> {
        let complaints = check_imports(&Tree::of(&[]).with(package));
        complaints
            .into_iter()
            .map(|complaint| complaint.to_string())
            .collect()
    }

    #[test]
    fn an_import_over_a_wall_is_found_whatever_it_is_for() {
        for kind in [None, Some("dev"), Some("build")] {
            let mut dependency = Dependency::on_ours("underpass-net");
            dependency.kind = kind.map(str::to_owned);
            assert_eq!(
                texts(ours("underpass-copy").needing(dependency)),
                ["underpass-copy/Cargo.toml: underpass-copy must not import underpass-net"]
            );
        }
    }

    #[test]
    fn an_import_that_is_listed_passes() {
        let serve = ours("underpass-serve").needing(Dependency::on_ours("underpass-net"));
        assert!(texts(serve).is_empty());
        let cli = ours("underpass-cli").needing(Dependency::on_ours("underpass-serve"));
        assert!(texts(cli).is_empty());
        let itself = Dependency::on_ours("underpass").kind("dev");
        assert!(texts(ours("underpass").needing(itself)).is_empty());
        assert!(texts(ours("underpass").needing(Dependency::on_theirs("rustix"))).is_empty());
    }

    #[test]
    fn the_test_kit_is_for_tests_only() {
        let net = |kind| {
            let dependency = Dependency::on_ours(TEST_KIT);
            texts(ours("underpass-net").needing(Dependency { kind, ..dependency })).len()
        };
        assert_eq!((net(Some("dev".into())), net(None)), (0, 1));
    }

    #[test]
    fn a_crate_nobody_listed_is_found() {
        assert_eq!(texts(ours("underpass-extra")).len(), 1);
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let tree = |text| Tree::of(&[("xtask/Cargo.toml", text)]).with(ours("xtask"));
        assert_eq!(check_lints(&tree("[package]\n")).len(), 1);
        assert!(check_lints(&tree("[package]\n\n[lints]\nworkspace = true\n")).is_empty());
    }
}
