//! A group of the classic protocol.

pub(crate) mod commit;
mod delete;
pub(crate) mod describe;
mod join;
pub(crate) mod member;
mod offsets;
mod rebalance;
mod restore;
mod session;
pub(crate) mod state;
