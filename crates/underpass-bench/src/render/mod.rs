//! Reports, made from a document only.
//!
//! ```text
//!  document ─► table, facts ─┬─► text        a terminal
//!                            ├─► markdown    docs/measurements.md
//!              chart ────────┴─► html        one page without external parts
//!  document ◄─► json                         programs, and a later comparison
//! ```

mod answer;
mod chart;
mod facts;
mod figure;
mod html;
mod json;
mod markdown;
mod plots;
mod summary;
mod table;
mod text;

pub(crate) use figure::{figure, range, ratio};
pub(crate) use text::paragraph;

#[cfg(test)]
pub(crate) mod tests;
