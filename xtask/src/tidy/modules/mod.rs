//! The modules of the crates: each file is one, they form layers, and type names are unique.

pub(super) mod cycles;
pub(super) mod names;
pub(super) mod orphans;

pub(crate) use self::cycles::in_layers;
