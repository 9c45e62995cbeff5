//! Full file systems, and sinks that refuse: the count matches the file's actual content.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use underpass::{
    Account, Error, Fault, Kernel, Mechanism, Policy, Sink, Source, drive::blocking::Driver,
    recv_file,
};

use underpass_testkit as testkit;

use super::copies::{copy, file_at};
use super::maps::Map;
use super::places::{Place, all, place, small};

fn check_full(outcome: Result<Account, Error>, sink: &File, content: &[u8], what: &str) {
    let error = outcome.expect_err(what);
    assert_eq!(error.fault, Fault::Full, "{what}: {error}");
    assert_eq!(error.errno, Some(Errno::NOSPC), "{what}: {error}");
    let len = sink.metadata().expect("metadata").len();
    assert_eq!(len, error.moved(), "{what}: {error}");
    assert!(len > 0, "{what}: there was room for some");
    let mut got = vec![0; len as usize];
    sink.read_exact_at(&mut got, 0).expect("reads");
    testkit::assert_same(&got, &content[..got.len()], what);
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_full_file_system_is_reported_with_what_the_sink_really_has() {
    const LEN: usize = 3 << 20;
    let content = testkit::content(30, LEN);
    for from in all() {
        let source = file_at(from, 30, LEN);
        for policy in [
            Policy::default(),
            Policy::only(Mechanism::Sendfile),
            Policy::only(Mechanism::Splice),
            Policy::only(Mechanism::ReadWrite),
        ] {
            let sink = small(1 << 20).file();
            let what = format!("{}, {:?}", from.name, policy.choice);
            check_full(copy(policy, &source, &sink), &sink, &content, &what);
        }
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn copy_range_into_its_own_full_file_system_is_reported_too() {
    for policy in [Policy::only(Mechanism::CopyRange), Policy::default()] {
        // Each in a separate file system: a program started by another test may keep a file, and
        // its space, after it is closed.
        let small = small(1 << 20);
        let source = file_at(&small, 31, 700_000);
        let sink = small.file();
        let outcome = copy(policy, &source, &sink);
        let what = format!("{:?}", policy.choice);
        check_full(outcome, &sink, &testkit::content(31, 700_000), &what);
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_full_file_system_while_receiving_reports_what_is_lost() {
    const LEN: usize = 3 << 20;
    for mechanism in [Mechanism::Splice, Mechanism::ReadWrite] {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let feeder = std::thread::spawn(move || theirs.write_all(&testkit::content(32, LEN)));
        let sink = small(1 << 20).file();
        let source = Source::range(&ours, 0, LEN as u64).expect("a source");
        let outcome = Driver::new(&Kernel::unprobed())
            .policy(Policy::only(mechanism))
            .run(&source, &Sink::new(&sink).expect("a sink"));
        let lost = outcome
            .as_ref()
            .map_err(|error| error.lost)
            .expect_err("full");
        check_full(outcome, &sink, &testkit::content(32, LEN), mechanism.name());
        let got = sink.metadata().expect("metadata").len();
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut { ours }, &mut rest).expect("reads");
        drop(feeder.join());
        let content = testkit::content(32, LEN);
        testkit::assert_same(
            &rest,
            &content[(got + lost) as usize..],
            "what is still there",
        );
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_sparse_copy_that_fills_the_sink_counts_its_holes() {
    const MIB: u64 = 1 << 20;
    for from in all() {
        let source = from.file();
        let map = Map {
            len: 8 * MIB,
            data: vec![(MIB, MIB / 2), (4 * MIB, 2 * MIB)],
        };
        map.write(&source, 33);
        let sink = small(MIB).file();
        let error = copy(Policy::default(), &source, &sink).expect_err("full");
        assert_eq!(error.fault, Fault::Full, "{}: {error}", from.name);
        let len = sink.metadata().expect("metadata").len();
        assert_eq!((len, len > 4 * MIB), (error.moved(), true), "{error}");
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn appending_and_one_way_descriptors_are_understood_everywhere() {
    for place in all() {
        let source = file_at(place, 34, 100_000);
        let path = place.path();
        std::fs::write(&path, "old").expect("writes");
        let appending = File::options().append(true).open(&path).expect("opens");
        let account = copy(Policy::default(), &source, &appending).expect("appends");
        assert_eq!(account.crossed(), 100_000, "{}: {account}", place.name);
        let got = std::fs::read(&path).expect("reads");
        assert_eq!(&got[..3], b"old");
        testkit::assert_same(&got[3..], &testkit::content(34, 100_000), place.name);

        let read_only = File::open(&path).expect("opens");
        let error = copy(Policy::default(), &source, &read_only).expect_err("read only");
        assert_eq!((error.fault, error.moved()), (Fault::Sink, 0), "{error}");
        let write_only = File::options().write(true).open(&path).expect("opens");
        let error = copy(Policy::default(), &write_only, &place.file()).expect_err("write only");
        assert_eq!((error.fault, error.moved()), (Fault::Source, 0), "{error}");
        assert_eq!(std::fs::read(&path).expect("reads").len(), 100_003);
    }
}

/// Direct I/O needs an alignment that no source promises; a failure must be reported.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn direct_io_descriptors_are_copied_right_or_refused() {
    let direct = |path: &std::path::Path| {
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)
    };
    for place in all() {
        for (from_direct, to_direct) in [(true, false), (false, true), (true, true)] {
            let (from, to) = (place.path(), place.path());
            std::fs::write(&from, testkit::content(35, 1_000_003)).expect("room");
            std::fs::write(&to, "").expect("room");
            let open = |path, wanted| {
                if wanted {
                    direct(path)
                } else {
                    File::options().read(true).write(true).open(path)
                }
            };
            let (Ok(source), Ok(sink)) = (open(&from, from_direct), open(&to, to_direct)) else {
                continue;
            };
            for mechanism in Mechanism::ALL {
                sink.set_len(0).expect("empties");
                let what = format!("{} {mechanism} {from_direct} {to_direct}", place.name);
                match copy(Policy::only(mechanism), &source, &sink) {
                    Ok(account) => assert_eq!(account.bytes(), 1_000_003, "{what}"),
                    Err(error) => {
                        assert!(error.errno.is_some(), "{what}: {error}");
                        continue;
                    }
                }
                let got = std::fs::read(&to).expect("reads");
                testkit::assert_same(&got, &testkit::content(35, 1_000_003), &what);
            }
        }
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_socket_is_received_into_every_file_system_by_splice() {
    for place in all() {
        let content = testkit::content(36, 2_000_003);
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let sent = content.clone();
        let feeder = std::thread::spawn(move || theirs.write_all(&sent));
        let sink = place.file();
        let account = recv_file(&Kernel::unprobed(), &ours, &sink, 5, 2_000_003);
        let account = account.expect("receives");
        feeder.join().expect("feeds").expect("writes");
        assert_eq!(account.of(Mechanism::Splice).bytes, 2_000_003, "{account}");
        let mut got = vec![0; 2_000_003];
        sink.read_exact_at(&mut got, 5).expect("reads");
        testkit::assert_same(&got, &content, place.name);
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn every_file_system_serves_every_mechanism_towards_sockets() {
    for place in all() {
        let source = file_at(place, 37, 1_000_003);
        for mechanism in [Mechanism::Sendfile, Mechanism::Splice, Mechanism::ReadWrite] {
            check_sent(place, &source, mechanism);
        }
    }
}

fn check_sent(place: &Place, source: &File, mechanism: Mechanism) {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        std::io::Read::read_to_end(&mut theirs, &mut got).map(|_| got)
    });
    let source = Source::range(source, 3, 1_000_000).expect("a range");
    let account = Driver::new(&Kernel::unprobed())
        .policy(Policy::only(mechanism))
        .run(&source, &Sink::new(&ours).expect("a sink"))
        .expect("sends");
    drop(ours);
    assert_eq!(account.of(mechanism).bytes, 1_000_000, "{}", place.name);
    let got = reader.join().expect("reads").expect("reads");
    testkit::assert_same(&got, &testkit::content(37, 1_000_003)[3..], place.name);
}

/// An overlay hands out descriptors of its lower layer until the first write.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_file_is_copied_between_an_overlay_and_what_lies_below_it() {
    let (overlay, below) = (place("overlay"), place("xfs"));
    for (from, to) in [(overlay, below), (below, overlay)] {
        let (source, sink) = (file_at(from, 38, 1_000_003), to.file());
        let account = copy(Policy::default(), &source, &sink).expect("copies");
        assert_eq!(account.of(Mechanism::Splice).bytes, 1_000_003, "{account}");
        assert_eq!(account.refusals.len(), 2, "{account}");
    }
}
