//! Helpers shared by the tests of Underpass. A development dependency of the other crates, never
//! published; it imports none of them.
//!
//! Functions panic if a test cannot continue, and every wait ends after [`WAIT_MAX`].

#![forbid(unsafe_code)]

mod bytes;
mod http;
mod mount;
mod parallel;
mod process;
mod random;
mod rerun;
mod server;
mod strace;
mod wait;

pub use bytes::{
    assert_same, assert_same_files, content, cool, disk_folder, sha256, sha256_file, sha256_reader,
};
pub use http::{HttpClient, HttpResponse};
pub use mount::{assert_private_mounts, mount, mount_image};
pub use parallel::in_parallel;
pub use process::{ChildProcess, ExitReport, assert_contains, copy_program, run, run_with_input};
pub use random::{Cases, Sample, SeededRandom, sampled};
pub use rerun::{is_alone, rerun};
pub use server::{ServerProcess, free_address};
pub use strace::{TracedCall, bytes_by, strace, traced_calls};
pub use wait::{WAIT_MAX, wait_for, wait_until, within};
