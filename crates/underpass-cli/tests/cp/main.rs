//! `underpass cp` as a process: its additions to GNU cp, and its behaviour when files change, end
//! early or are in the way. Nothing here needs more than a folder to write to.

#[path = "../support/copying.rs"]
mod copying;

mod atomic;
mod changing;
mod choosing;
mod ends;
mod large;
mod newer;
mod output;
mod reports;
mod resume;
mod special;
mod trees;
mod usage;
