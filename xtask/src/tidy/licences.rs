//! Every package, ours and theirs, is under a licence we can pass on.

use spdx::{Expression, Licensee, ParseMode};

use super::{Complaint, Tree};
use crate::workspace::Package;

/// deny.toml lists the same (a test holds it to that).
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "0BSD",
];

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let allowed: Vec<_> = ALLOWED
        .iter()
        .filter_map(|name| Licensee::parse(name).ok())
        .collect();
    let complain = |package: &Package| {
        let place = format!("{} {}", package.name, package.version);
        fault(package.license.as_deref(), &allowed).map(|fault| Complaint::new(place, fault))
    };
    tree.metadata.packages.iter().filter_map(complain).collect()
}

fn fault(license: Option<&str>, allowed: &[Licensee]) -> Option<String> {
    let Some(license) = license else {
        return Some("names no licence".into());
    };
    // Lax: packages from before 2020 say `MIT/Apache-2.0`.
    match Expression::parse_mode(license, ParseMode::LAX) {
        Err(error) => Some(format!(
            "`{license}` is no licence expression: {}",
            error.reason
        )),
        Ok(expression) => {
            let is_allowed = expression
                .evaluate(|asked| allowed.iter().any(|licensee| licensee.satisfies(asked)));
            (!is_allowed).then(|| format!("`{license}` is not among the licences allowed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake::theirs;

    fn complaints(license: &str) -> usize {
        check(&Tree::of(&[]).with(theirs("a", "1.0.0").licensed(license))).len()
    }

    #[test]
    fn every_allowed_licence_is_understood() {
        for license in ALLOWED {
            assert_eq!(complaints(license), 0, "{license}");
        }
    }

    #[test]
    fn expressions_are_evaluated() {
        assert_eq!(complaints("MIT OR GPL-3.0-only"), 0);
        assert_eq!(complaints("MIT AND GPL-3.0-only"), 1);
        assert_eq!(complaints("(MIT OR GPL-3.0-only) AND Unicode-3.0"), 0);
        assert_eq!(complaints("MIT/Apache-2.0"), 0);
        assert_eq!(complaints("GPL-2.0-only WITH Classpath-exception-2.0"), 1);
    }

    #[test]
    fn no_licence_is_no_permission() {
        assert_eq!(check(&Tree::of(&[]).with(theirs("a", "1.0.0"))).len(), 1);
        assert_eq!(complaints("All Mine"), 1);
    }

    #[test]
    fn deny_toml_allows_the_same() {
        let lines: String = ALLOWED
            .iter()
            .map(|name| format!("    \"{name}\",\n"))
            .collect();
        let allow = format!("allow = [\n{lines}]\n");
        assert!(
            include_str!("../../../deny.toml").contains(&allow),
            "deny.toml lacks\n{allow}"
        );
    }
}
