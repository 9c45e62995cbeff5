//! The binary `underpass-bench`: runs, reports and comparisons.

mod contenders;
mod reports;
mod runs;
mod support;
mod traced;
