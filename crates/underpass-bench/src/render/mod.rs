//! What people are shown of a [`Document`], made from it and from nothing else.
//!
//! ```text
//!  Document ─► table, facts ─┬─► text        a terminal
//!                            ├─► markdown    docs/measurements.md
//!              chart ────────┴─► html        one page that needs nothing else
//!  Document ◄─► json                         programs, and a later comparison
//! ```

mod chart;
mod facts;
mod figure;
mod html;
mod json;
mod markdown;
mod page;
mod plots;
mod table;
mod text;

pub(crate) use figure::{figure, range, ratio};
pub(crate) use markdown::escaped;
pub(crate) use text::paragraph;

#[cfg(test)]
pub(crate) mod tests;
