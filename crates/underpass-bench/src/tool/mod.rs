//! The command line of `underpass-bench`.

pub(crate) mod pages;
pub(crate) mod report;
pub(crate) mod stop;
pub(crate) mod terminal;
