//! Mounts that nobody else sees: made for the tests of a process, gone with its namespace. The
//! tests of the tool that mount take this file, too.

use std::fs::read_link;
use std::path::Path;
use std::process::Command;

/// Fails unless what is mounted here stays here.
#[track_caller]
pub(crate) fn assert_private() {
    let link = |process: &str| read_link(format!("/proc/{process}/ns/mnt")).ok();
    assert!(
        link("self") != link("1"),
        "these tests mount: run them by `cargo xtask test`, in a namespace of their own"
    );
}

#[track_caller]
pub(crate) fn mount(arguments: &[&str], at: &Path) {
    run("mount", &[arguments, &[text(at)]].concat());
}

/// A file system of so many MiB, made by `make`, in a sparse file that has no name any more once it
/// is mounted.
#[track_caller]
pub(crate) fn mount_image(make: &[&str], mib: u64, at: &Path) {
    let image = tempfile::NamedTempFile::new().expect("an image");
    image.as_file().set_len(mib << 20).expect("a sparse file");
    run(make[0], &[&make[1..], &[text(image.path())]].concat());
    mount(&["-o", "loop", text(image.path())], at);
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a name of letters")
}

/// What a program printed that succeeded.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
