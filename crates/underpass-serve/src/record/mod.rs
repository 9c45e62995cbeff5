//! The record of an exchange: what log, metrics and debugging fields show of it.

pub(crate) mod end;
pub(crate) mod exchange;
pub(crate) mod explain;
