//! A test is left out of a plain `cargo test` only where `cargo xtask test` runs it: it says so,
//! and its target is in the table of tests with needs.

use super::rust::{Ignored, Test};
use super::{Complaint, Tree};
use crate::test::SystemTest;

const REASON_START: &str = "needs ";
const REASON_END: &str = "; run by cargo xtask test";

pub(super) fn check(tree: &Tree, table: &[SystemTest]) -> Vec<Complaint> {
    let listed: Vec<_> = table.iter().map(|row| (row, root(tree, row))).collect();
    let missing = listed
        .iter()
        .filter(|(_, root)| root.is_none())
        .map(|(row, _)| {
            Complaint::new(
                row.to_string(),
                "is in the table of tests with needs, but does not exist",
            )
        });
    let is_listed = |path: &str| {
        listed
            .iter()
            .any(|(_, root)| root.as_deref().is_some_and(|root| is_under(root, path)))
    };
    let tests = tree
        .rust()
        .flat_map(|(path, _, rust)| rust.tests.iter().map(move |test| (path, test)));
    let faults = tests.filter_map(|(path, test)| {
        fault(test, is_listed(path))
            .map(|fault| Complaint::at(path, test.line, format!("`{}` {fault}", test.name)))
    });
    missing
        .chain(faults)
        .chain(uncompiled_examples(tree))
        .collect()
}

fn fault(test: &Test, is_listed: bool) -> Option<&'static str> {
    match &test.ignored {
        Ignored::No if is_listed => Some(
            "is in a target with needs: mark it #[ignore = \"needs …; run by cargo xtask test\"]",
        ),
        Ignored::Because(reason) if !is_reason(reason) => {
            Some("is ignored for a reason other than \"needs …; run by cargo xtask test\"")
        }
        Ignored::Because(_) if !is_listed => {
            Some("needs something, but its target is not in the table in xtask/src/test/system.rs")
        }
        Ignored::No | Ignored::Because(_) => None,
    }
}

fn is_reason(reason: &str) -> bool {
    reason.starts_with(REASON_START) && reason.ends_with(REASON_END)
}

/// Where the target of a row begins.
fn root(tree: &Tree, row: &SystemTest) -> Option<String> {
    let package = tree
        .metadata
        .ours()
        .find(|package| package.name == row.package)?;
    let target = package.tests().find(|target| target.name == row.target)?;
    Some(tree.relative(&target.src_path))
}

/// Whether the file is the target's root or, for `tests/NAME/main.rs`, stands beside it.
fn is_under(root: &str, path: &str) -> bool {
    path == root
        || root
            .strip_suffix("main.rs")
            .is_some_and(|directory| path.starts_with(directory))
}

fn uncompiled_examples(tree: &Tree) -> impl Iterator<Item = Complaint> {
    tree.rust().flat_map(|(path, text, _)| {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| {
            let line = line.trim_start();
            let doc = line
                .strip_prefix("///")
                .or_else(|| line.strip_prefix("//!"));
            doc.is_some_and(|doc| doc.trim_start().starts_with("```ignore"))
        });
        lines.map(move |(number, _)| {
            Complaint::at(
                path,
                number,
                "an example nobody compiles; use `no_run` or `text`",
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::needs;
    use crate::workspace::fake::ours;

    const ROW: SystemTest = SystemTest {
        package: "a",
        target: "kernel",
        needs: &[needs::ROOT],
        why: "it mounts",
    };
    const MARKED: &str =
        "#[test]\n#[ignore = \"needs root; run by cargo xtask test\"]\nfn it() {}\n";

    fn complaints(text: &str, table: &[SystemTest]) -> Vec<String> {
        let package = ours("a").with_target("test", "kernel", "tests/kernel.rs");
        let tree = Tree::of(&[("a/tests/kernel.rs", text)]).with(package);
        check(&tree, table)
            .into_iter()
            .map(|complaint| complaint.to_string())
            .collect()
    }

    #[test]
    fn a_marked_test_in_the_table_passes() {
        assert_eq!(complaints(MARKED, &[ROW]), [""; 0]);
    }

    #[test]
    fn a_marked_test_missing_from_the_table_is_found() {
        assert_eq!(complaints(MARKED, &[]).len(), 1);
    }

    #[test]
    fn the_files_of_a_target_belong_to_it() {
        assert!(is_under("a/tests/kernel/main.rs", "a/tests/kernel/xfs.rs"));
        assert!(!is_under("a/tests/kernel.rs", "a/tests/xfs.rs"));
    }

    #[test]
    fn an_unmarked_test_in_the_table_is_found() {
        assert_eq!(complaints("#[test]\nfn it() {}\n", &[ROW]).len(), 1);
    }

    #[test]
    fn any_other_reason_is_found() {
        assert_eq!(
            complaints("#[test]\n#[ignore]\nfn it() {}\n", &[ROW]).len(),
            1
        );
        assert_eq!(
            complaints("#[test]\n#[ignore = \"slow\"]\nfn it() {}\n", &[ROW]).len(),
            1
        );
    }

    #[test]
    fn a_row_without_a_target_is_found() {
        let row = SystemTest {
            target: "gone",
            ..ROW
        };
        assert_eq!(
            complaints("", &[row]),
            ["a --test gone: is in the table of tests with needs, but does not exist"]
        );
    }

    #[test]
    fn an_example_nobody_compiles_is_found() {
        assert_eq!(
            complaints(
                concat!("/// ```", "ignore\n/// x\n/// ```\nfn a() {}\n"),
                &[]
            )
            .len(),
            1
        );
    }
}
