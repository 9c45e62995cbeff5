//! The memory of a server, each time in a process of its own.

mod compressed;
mod listing;
