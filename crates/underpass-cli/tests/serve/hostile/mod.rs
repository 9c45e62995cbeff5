//! Malicious clients, too many of them, and a machine without descriptors or with a failing disk.

mod attack;
mod crowd;
mod descriptors;
mod siege;
