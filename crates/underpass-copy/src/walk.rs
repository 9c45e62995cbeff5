//! The walk from the operands down to the last entry.

pub(crate) mod operands;
pub(crate) mod parents;
pub(crate) mod survey;
pub(crate) mod tree;
