//! The modules of the crates: that each file is one, that they form layers, and their names.

pub(super) mod cycles;
pub(super) mod names;
pub(super) mod orphans;

pub(crate) use self::cycles::in_layers;
