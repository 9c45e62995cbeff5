//! What the caller learns: events and problems, in words and in order, progress and the sum.

pub(crate) mod event;
pub(crate) mod problem;
pub(crate) mod quote;
pub(crate) mod reporter;
