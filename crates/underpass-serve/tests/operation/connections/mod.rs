//! Limits and ends of connections.

mod crowded;
mod endings;
mod limits;
mod proxied;
