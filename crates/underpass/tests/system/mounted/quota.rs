//! A user without pipe pages left.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size, pipe};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use underpass::{Kernel, Mechanism, Policy, Sink, Source, drive::blocking::Driver};

use underpass_testkit as testkit;

use super::copies::copy;
use super::maps::hash_of;
use super::places::place;

const PART: &str = "UNDERPASS_TEST_QUOTA_FOLDER";
const NOBODY: &str = "65534";
const MIB: usize = 1 << 20;

/// QUIRK(pipe-quota)
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn pipe_quota_makes_pipes_small_and_transfers_no_less_right() {
    if let Some(folder) = std::env::var_os(PART) {
        return as_nobody(folder.as_ref());
    }
    let folder = place("ext4").path();
    std::fs::create_dir(&folder).expect("a folder");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&folder, all.clone()).expect("for all");
    let program = folder.join("test");
    testkit::copy_program(&std::env::current_exe().expect("this test"), &program);
    std::fs::set_permissions(&program, all).expect("for all");
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg(&program)
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("mounted::quota::pipe_quota_makes_pipes_small_and_transfers_no_less_right")
        .env(PART, &folder)
        .current_dir(&folder)
        .output()
        .expect("setpriv starts");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn as_nobody(folder: &std::path::Path) {
    let limit = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::Nofile, limit).expect("many descriptors");
    let mut pipes = Vec::new();
    let mut size_of_next = || {
        let (read, write) = pipe().expect("a pipe");
        let _granted = fcntl_setpipe_size(&write, MIB);
        let size = fcntl_getpipe_size(&write).expect("a size");
        pipes.push((read, write));
        size
    };
    assert_eq!(size_of_next(), MIB, "the first one");
    let sizes: Vec<_> = (0..1100).map(|_| size_of_next()).collect();
    assert_eq!(sizes.last(), Some(&8192), "new pipes have two pages");

    let file = |name: &str| {
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        options.open(folder.join(name)).expect("a new file")
    };
    let mut from = file("from");
    from.write_all(&testkit::content(40, 3 * MIB + 7))
        .expect("room");
    let to = file("to");
    let account = copy(Policy::only(Mechanism::Splice), &from, &to).expect("copies");
    assert_eq!(
        account.of(Mechanism::Splice).bytes,
        3 * MIB as u64 + 7,
        "{account}"
    );
    assert_eq!(hash_of(&to), hash_of(&from));

    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let feeder = std::thread::spawn(move || theirs.write_all(&testkit::content(40, 3 * MIB + 7)));
    let received = file("received");
    Driver::new(&Kernel::unprobed())
        .policy(Policy::only(Mechanism::Splice))
        .run(
            &Source::whole(&ours).expect("a source"),
            &Sink::new(&received).expect("a sink"),
        )
        .expect("receives");
    feeder.join().expect("feeds").expect("writes");
    assert_eq!(hash_of(&received), hash_of(&from));
}
