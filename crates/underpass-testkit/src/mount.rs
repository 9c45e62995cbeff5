//! Mounts in a mount namespace that ends with the test.

use std::fs::read_link;
use std::path::Path;
use std::process::Command;

use crate::run;

/// Checks that this process has a private mount namespace.
///
/// # Panics
///
/// Panics in the namespace of the machine, where mounts would outlive the test.
#[track_caller]
pub fn assert_private_mounts() {
    let namespace = |process: &str| read_link(format!("/proc/{process}/ns/mnt")).ok();
    assert!(
        namespace("self") != namespace("1"),
        "these tests mount: run them by `cargo xtask test`, in a namespace of their own"
    );
}

/// Runs `mount` with `arguments`, onto `at`.
#[track_caller]
pub fn mount(arguments: &[&str], at: &Path) {
    run(Command::new("mount").args(arguments).arg(at)).assert_success();
}

/// Mounts a file system of `mib` MiB that `make` creates, in a sparse file whose name is removed
/// once it is mounted.
#[track_caller]
pub fn mount_image(make: &[&str], mib: u64, at: &Path) {
    let image = tempfile::NamedTempFile::new().expect("an image");
    image.as_file().set_len(mib << 20).expect("a sparse file");
    run(Command::new(make[0]).args(&make[1..]).arg(image.path())).assert_success();
    let path = image.path().to_str().expect("a name of letters");
    mount(&["-o", "loop", path], at);
}
