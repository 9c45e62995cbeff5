//! A test is ignored by a plain `cargo test` only if `cargo xtask test` runs it: it is in a target
//! with tests, and it names its needs.

use super::code::{Ignored, Tree};
use super::complaint::Complaint;
use crate::needs;
use crate::workspace::{BuildTarget, Package};

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let targets = tree.metadata.ours().flat_map(Package::tests);
    let roots: Vec<_> = targets
        .map(|target| tree.relative(&target.src_path))
        .collect();
    let tests = tree
        .rust()
        .flat_map(|(path, _, rust)| rust.tests.iter().map(move |test| (path, test)));
    let faults = tests.filter_map(|(path, test)| {
        let Ignored::Because(reason) = &test.ignored else {
            return None;
        };
        let fault = match roots.iter().any(|root| BuildTarget::has(root, path)) {
            false => "but in no target with tests".to_owned(),
            true => format!("for a reason that {}", needs::of_reason(reason).err()?),
        };
        let text = format!("`{}` is ignored {fault}", test.name);
        Some(Complaint::at(path, test.line, text))
    });
    faults.chain(uncompiled_examples(tree)).collect()
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
    use crate::workspace::fake::ours;

    const MARKED: &str =
        "#[test]\n#[ignore = \"needs root; run by cargo xtask test\"]\nfn it() {}\n";

    fn complaints_at(path: &str, text: &str) -> Vec<String> {
        let package = ours("a").with_target("test", "kernel", "tests/kernel.rs");
        let complaints = check(&Tree::of(&[(path, text)]).with(package));
        complaints.iter().map(ToString::to_string).collect()
    }

    fn complaints(text: &str) -> Vec<String> {
        complaints_at("a/tests/kernel.rs", text)
    }

    #[test]
    fn a_marked_integration_test_passes() {
        assert_eq!(complaints(MARKED), [""; 0]);
    }

    #[test]
    fn a_marked_test_in_no_target_is_found() {
        assert_eq!(complaints_at("a/examples/e.rs", MARKED).len(), 1);
    }

    #[test]
    fn any_other_reason_is_found() {
        for reason in [
            "",
            " = \"slow\"",
            " = \"needs luck; run by cargo xtask test\"",
        ] {
            let text = format!("#[test]\n#[ignore{reason}]\nfn it() {{}}\n");
            assert_eq!(complaints(&text).len(), 1, "{reason}");
        }
    }

    #[test]
    fn an_example_nobody_compiles_is_found() {
        let text = "/// ```ignore\n/// a()\n/// ```\nfn a() {}\n";
        assert_eq!(complaints(text).len(), 1);
        assert!(complaints(&text.replace("ignore", "no_run")).is_empty());
    }
}
