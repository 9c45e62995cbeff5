//! The whole tool: its doctor, its documentation, every way that payload takes, counted and with
//! failing system calls.

mod doctor;
mod documented;
mod faults;
mod folder;
#[path = "../support/mod.rs"]
mod support;
mod syscalls;
mod transfers;
