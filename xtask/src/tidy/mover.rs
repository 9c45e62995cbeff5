//! The restrictions inside the mover: `unsafe` in one place, system calls in a few.
//!
//! Clippy checks that each `unsafe` block says why it is sound (`undocumented_unsafe_blocks`,
//! denied by the workspace's lints).

use super::code::Tree;
use super::complaint::Complaint;

/// The only file that may contain `unsafe`.
const UNSAFE_PLACE: &str = "crates/underpass/src/sys.rs";

/// The crates with such a file: `deny` at their root, `allow` in the file. Others `forbid`.
const UNSAFE_CRATES: &[&str] = &["underpass"];

const MOVER: &str = "crates/underpass/src/";

/// The files of the mover that may call the kernel: `probe.rs` examines descriptors, `kernel.rs`
/// the kernel's features; planning, the state machines and the accounts only compute.
const CALLING_PLACES: &[&str] = &[
    UNSAFE_PLACE,
    "crates/underpass/src/drive/",
    "crates/underpass/src/kernel.rs",
    "crates/underpass/src/probe.rs",
];

/// The path allowed everywhere: an error number is plain data. It must be written out in full, so
/// that this rule need not understand `use`.
const ERRNO: [&str; 6] = [":", ":", "io", ":", ":", "Errno"];

pub(super) fn check_unsafe(tree: &Tree) -> Vec<Complaint> {
    let strays = tree
        .rust()
        .filter(|(path, ..)| !path.starts_with(UNSAFE_PLACE))
        .flat_map(|(path, _, rust)| {
            let words = rust.words.iter().filter(|word| word.text == "unsafe");
            let text = format!("`unsafe` outside of {UNSAFE_PLACE}");
            words.map(move |word| Complaint::at(path, word.line, &text))
        });
    strays.chain(roots(tree)).collect()
}

fn roots(tree: &Tree) -> impl Iterator<Item = Complaint> {
    let targets = tree.metadata.ours().flat_map(|package| {
        let level = if UNSAFE_CRATES.contains(&package.name.as_str()) {
            "deny"
        } else {
            "forbid"
        };
        package
            .targets
            .iter()
            .filter(|target| target.is_shipped())
            .map(move |it| (it, level))
    });
    targets.filter_map(|(target, level)| {
        let path = tree.relative(&target.src_path);
        let attribute = format!("{level}(unsafe_code)");
        let (_, _, rust) = tree.rust().find(|(found, ..)| *found == path)?;
        let is_there = rust.attributes.contains(&attribute);
        (!is_there).then(|| Complaint::new(path, format!("lacks `#![{attribute}]`")))
    })
}

pub(super) fn check_system_calls(tree: &Tree) -> Vec<Complaint> {
    let places = tree.rust().filter(|(path, ..)| path.starts_with(MOVER));
    places
        .filter(|(path, ..)| !CALLING_PLACES.iter().any(|place| path.starts_with(place)))
        .flat_map(|(path, _, rust)| {
            let words: Vec<_> = rust.shipped_words().collect();
            let calls = (0..words.len()).filter_map(|at| {
                let following = words[at + 1..].iter().take(ERRNO.len());
                let is_errno = following.map(|word| word.text.as_str()).eq(ERRNO);
                let is_call = match words[at].text.as_str() {
                    "libc" => true,
                    "rustix" => !is_errno,
                    _ => false,
                };
                is_call.then_some(words[at].line)
            });
            calls
                .map(|line| Complaint::at(path, line, CALL))
                .collect::<Vec<_>>()
        })
        .collect()
}

const CALL: &str = "the kernel is called from sys, drive, kernel and probe only; \
                    elsewhere only `rustix::io::Errno`, written like this, is allowed";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::ours;

    #[test]
    fn unsafe_has_one_place() {
        let block = "fn a() { unsafe { b() } }";
        assert_eq!(
            check_unsafe(&Tree::of(&[("crates/underpass/src/plan.rs", block)])).len(),
            1
        );
        assert_eq!(
            check_unsafe(&Tree::of(&[("crates/underpass/tests/a.rs", block)])).len(),
            1
        );
        assert!(check_unsafe(&Tree::of(&[("crates/underpass/src/sys.rs", block)])).is_empty());
    }

    #[test]
    fn crate_roots_refuse_unsafe() {
        let tree = |package: &str, root| {
            let package = ours(package).with_target("lib", "a", "src/lib.rs");
            Tree::of(&[("a/src/lib.rs", root), ("underpass/src/lib.rs", root)]).with(package)
        };
        assert_eq!(check_unsafe(&tree("a", "#![deny(unsafe_code)]")).len(), 1);
        assert!(check_unsafe(&tree("a", "#![forbid(unsafe_code)]")).is_empty());
        assert_eq!(check_unsafe(&tree("underpass", "")).len(), 1);
        assert!(check_unsafe(&tree("underpass", "#![deny(unsafe_code)]")).is_empty());
    }

    #[test]
    fn the_pure_parts_do_not_call_the_kernel() {
        let complaints =
            |path: &str, text: &str| check_system_calls(&Tree::of(&[(path, text)])).len();
        for path in ["plan.rs", "transfer.rs", "outbox.rs", "lib.rs"] {
            let path = format!("crates/underpass/src/{path}");
            assert_eq!(complaints(&path, "use rustix::fs::copy_file_range;"), 1);
            assert_eq!(complaints(&path, "fn a() { assert!(libc::EIO == 5) }"), 1);
            assert_eq!(complaints(&path, "use rustix::{io::Errno, pipe};"), 1);
            assert_eq!(complaints(&path, "use rustix::io::Errno;"), 0);
            assert_eq!(
                complaints(&path, "#[cfg(test)]\nmod tests { use rustix::fs; }"),
                0
            );
        }
    }

    #[test]
    fn the_parts_that_call_the_kernel_do() {
        for path in ["sys.rs", "drive/tokio/mod.rs", "kernel.rs", "probe.rs"] {
            let path = format!("crates/underpass/src/{path}");
            assert!(check_system_calls(&Tree::of(&[(&path, "use rustix::net;")])).is_empty());
        }
        let net = "crates/underpass-net/src/lib.rs";
        assert!(check_system_calls(&Tree::of(&[(net, "use rustix::net;")])).is_empty());
    }
}
