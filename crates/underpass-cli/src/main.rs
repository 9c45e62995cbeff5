//! The `underpass` tool.

fn main() {}
