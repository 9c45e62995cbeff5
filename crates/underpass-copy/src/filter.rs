//! Which names take part (`--exclude`, `--include`).

use crate::event::EntryKind;
use crate::options::Rule;

/// Patterns, read.
#[derive(Debug)]
pub(crate) struct Filter {}

impl Filter {
    /// Reads patterns; none of them where there are no rules.
    ///
    /// # Errors
    /// The pattern that makes no sense, and why.
    pub(crate) fn of(rules: &[Rule]) -> Result<Option<Self>, String> {
        let _ = rules;
        Ok(None)
    }

    /// Whether a name takes part: `path` is what stands below the operand, without a slash in
    /// front.
    pub(crate) fn admits(&self, path: &[u8], kind: EntryKind) -> bool {
        todo!("{path:?} {kind:?}")
    }
}
