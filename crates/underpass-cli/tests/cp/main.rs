//! `underpass cp` as a process: what it adds to GNU's, and what it does while files change, end or
//! are in the way. Nothing here needs more than a folder to write to.

#[path = "../support/copying.rs"]
mod copying;

mod atomic;
mod changing;
mod choosing;
mod ends;
mod large;
mod reports;
mod resume;
mod special;
mod trees;
