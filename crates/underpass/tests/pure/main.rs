//! The mover without a kernel: its decisions, its machine, its types.

mod decisions;
mod machine;
mod public_face;
