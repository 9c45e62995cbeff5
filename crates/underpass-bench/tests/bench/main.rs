//! The binary `underpass-bench`: runs, reports and comparisons.

mod reports;
mod runs;
mod support;
mod traced;
