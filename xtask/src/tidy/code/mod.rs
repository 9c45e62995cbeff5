//! The tracked files as the rules see them: text, tokens, modules and their imports.

mod imports;
mod modules;
mod rust;
mod tokens;
mod tree;

pub(super) use self::imports::{CrateModules, Imports};
pub(crate) use self::rust::Ignored;
pub(super) use self::rust::{Rust, RustFunction};
pub(super) use self::tree::FileContent;
pub(crate) use self::tree::Tree;
