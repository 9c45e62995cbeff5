//! Reports to the caller: events and problems, in words and in order, progress and totals.

pub(crate) mod event;
pub(crate) mod problem;
pub(crate) mod quote;
pub(crate) mod reporter;
