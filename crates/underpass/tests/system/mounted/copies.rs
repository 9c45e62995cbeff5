//! Every mechanism between every two places: the kernel's known behaviour, and the free choice.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use underpass::{
    Account, Cloning, Error, Fault, Kernel, Mechanism, Policy, Sink, Source,
    drive::blocking::Driver,
};

use underpass_testkit as testkit;

use super::maps::hash_of;
use super::places::{Family, Place, all, place};

const LEN: usize = 1_000_003;

pub(crate) fn copy(policy: Policy, from: &File, to: &File) -> Result<Account, Error> {
    let source = Source::whole(from).expect("a source");
    Driver::new(&Kernel::unprobed())
        .policy(policy)
        .run(&source, &Sink::new(to).expect("a sink"))
}

pub(crate) fn file_at(place: &Place, seed: u64, len: usize) -> File {
    let file = place.file();
    file.write_all_at(&testkit::content(seed, len), 0)
        .expect("room");
    file
}

fn pairs() -> impl Iterator<Item = (&'static Place, &'static Place)> {
    all()
        .iter()
        .flat_map(|from| all().iter().map(move |to| (from, to)))
}

/// Returns the errno a mechanism is refused with; `None` if it works.
fn known(mechanism: Mechanism, from: Family, to: Family) -> Option<Errno> {
    match mechanism {
        Mechanism::Clone if from != to => Some(Errno::XDEV),
        Mechanism::Clone if !from.clones() => Some(Errno::OPNOTSUPP),
        Mechanism::CopyRange if from != to => Some(Errno::XDEV),
        _ => None,
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn a_forced_mechanism_moves_all_by_itself_or_names_the_errno() {
    for (from, to) in pairs() {
        let source = file_at(from, 1, LEN);
        for mechanism in Mechanism::ALL {
            let what = format!("{mechanism}, {} → {}", from.name, to.name);
            let sink = to.file();
            match (
                copy(Policy::only(mechanism), &source, &sink),
                known(mechanism, from.family, to.family),
            ) {
                (Ok(account), None) => {
                    assert_eq!(account.of(mechanism).bytes, LEN as u64, "{what}: {account}");
                    assert_eq!(account.bytes(), LEN as u64, "{what}: {account}");
                    assert_eq!(hash_of(&sink), hash_of(&source), "{what}");
                }
                (Err(error), Some(errno)) => {
                    assert_eq!(error.fault, Fault::Refused, "{what}: {error}");
                    assert_eq!(error.errno, Some(errno), "{what}: {error}");
                    let len = sink.metadata().expect("metadata").len();
                    assert_eq!((error.moved(), len), (0, 0), "{what}: {error}");
                }
                (Ok(account), Some(errno)) => panic!("{what}: {account}, not {errno}"),
                (Err(error), None) => panic!("{what}: {error}"),
            }
        }
    }
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn the_free_choice_is_the_first_that_works() {
    for (from, to) in pairs() {
        let source = file_at(from, 2, LEN);
        let sink = to.file();
        let works = |mechanism: &Mechanism| known(*mechanism, from.family, to.family).is_none();
        let ends = (Source::whole(&source), Sink::new(&sink));
        let (whole, empty) = (ends.0.expect("a source"), ends.1.expect("a sink"));
        let plan = Kernel::unprobed().plan(&whole, &empty, &Policy::default());
        let first = plan.tiers().find(works).expect("read/write");
        let account = copy(Policy::default(), &source, &sink).expect("copies");
        let what = format!("{} → {}: {account}", from.name, to.name);
        assert_eq!(account.of(first).bytes, LEN as u64, "{what}");
        assert_eq!(account.crossed(), 0, "{what}");
        assert_eq!(hash_of(&sink), hash_of(&source), "{what}");
    }
}

/// `--reflink=never` and `=always`.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn blocks_are_shared_only_by_leave_and_by_order_or_not_at_all() {
    let cloning = |cloning| Policy::default().cloning(cloning);
    for place in all() {
        let source = file_at(place, 3, LEN);
        let account = copy(cloning(Cloning::Never), &source, &place.file()).expect("copies");
        assert_eq!(account.of(Mechanism::Clone).calls, 0, "{account}");
        assert_eq!(account.of(Mechanism::CopyRange).calls, 0, "{account}");
        let sink = place.file();
        let always = copy(cloning(Cloning::Always), &source, &sink);
        assert_eq!(
            always.is_ok(),
            place.family.clones(),
            "{}: {always:?}",
            place.name
        );
        let len = sink.metadata().expect("metadata").len();
        assert_eq!(len > 0, always.is_ok(), "{}: all or nothing", place.name);
    }
}

/// A remembered refusal applies only to its pair of devices.
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn what_one_pair_refused_is_asked_of_another() {
    let kernel = Kernel::unprobed();
    let copied = |from: &str, to: &str| {
        let (source, sink) = (file_at(place(from), 4, LEN), place(to).file());
        underpass::copy_file(&kernel, &source, &sink).expect("copies")
    };
    assert_eq!(copied("ext4", "ext4").of(Mechanism::Clone).calls, 1);
    assert_eq!(copied("ext4", "ext4").of(Mechanism::Clone).calls, 0);
    assert_eq!(copied("ext4", "xfs").of(Mechanism::Clone).calls, 1);
    assert_eq!(copied("ext4", "xfs").of(Mechanism::Clone).calls, 0);
    assert_eq!(copied("ext4", "tmpfs").of(Mechanism::CopyRange).calls, 1);
    assert_eq!(copied("ext4", "tmpfs").of(Mechanism::CopyRange).calls, 0);
    for name in ["xfs", "bind", "btrfs", "btrfs/subvolume", "overlay"] {
        assert_eq!(
            copied(name, name).of(Mechanism::Clone).bytes,
            LEN as u64,
            "{name}"
        );
    }
    let account = copied("btrfs", "btrfs/subvolume");
    assert_eq!(account.of(Mechanism::Clone).bytes, LEN as u64, "{account}");
}

#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn whole_blocks_are_cloned_from_and_to_any_place() {
    const BLOCK: u64 = 4096;
    for place in all().iter().filter(|place| place.family.clones()) {
        let content = testkit::content(5, LEN);
        let source = file_at(place, 5, LEN);
        for (from, len, to, clones) in [
            (2 * BLOCK, 10 * BLOCK, 5 * BLOCK, true),
            (100 * BLOCK, LEN as u64 - 100 * BLOCK, BLOCK, true),
            (1, 10 * BLOCK, 0, false),
            (0, 10 * BLOCK + 1, 0, false),
            (0, 10 * BLOCK, 1, false),
        ] {
            let what = format!("{}: {len} from {from} to {to}", place.name);
            let sink = place.file();
            let source = Source::range(&source, from, len).expect("a range");
            let outcome = Driver::new(&Kernel::unprobed())
                .policy(Policy::only(Mechanism::Clone))
                .run(&source, &Sink::at(&sink, to).expect("a sink"));
            assert_eq!(outcome.is_ok(), clones, "{what}: {outcome:?}");
            if let Ok(account) = outcome {
                assert_eq!(account.of(Mechanism::Clone).bytes, len, "{what}");
                let mut got = vec![0; len as usize];
                sink.read_exact_at(&mut got, to).expect("reads");
                let expected = &content[from as usize..(from + len) as usize];
                testkit::assert_same(&got, expected, &what);
            }
        }
    }
}

/// QUIRK(clone-keeps-tail)
#[test]
#[ignore = "needs root, mounts, loop devices, ext4, XFS and Btrfs; run by cargo xtask test"]
fn clone_keeps_tail_and_so_is_not_used_on_a_longer_sink() {
    for place in all().iter().filter(|place| place.family.clones()) {
        let source = file_at(place, 6, 8192);
        let longer = file_at(place, 7, 100_000);
        rustix::fs::ioctl_ficlone(&longer, &source).expect("whole blocks");
        assert_eq!(
            longer.metadata().expect("metadata").len(),
            100_000,
            "the tail"
        );
        let odd = file_at(place, 8, 10_001);
        let refused = rustix::fs::ioctl_ficlone(&longer, &odd);
        assert_eq!(refused, Err(Errno::INVAL), "{}", place.name);

        let account = copy(Policy::default(), &source, &longer).expect("copies");
        assert_eq!(account.bytes(), 8192, "{account}");
        let account = copy(Policy::default(), &odd, &longer).expect("copies");
        assert_eq!(account.bytes(), 10_001, "{account}");
        let mut expected = testkit::content(7, 100_000);
        expected[..8192].copy_from_slice(&testkit::content(6, 8192));
        expected[..10_001].copy_from_slice(&testkit::content(8, 10_001));
        assert_eq!(
            hash_of(&longer),
            testkit::sha256(&expected),
            "{}",
            place.name
        );
    }
}
