//! Files: odd offsets, sizes that say nothing, sinks that append, sources that change, ranges in
//! parallel.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use underpass::{
    Account, Endpoint, Error, Fault, FileStat, Kernel, Mechanism, Owed, Policy, Progress, Sink,
    Source, copy_file, drive::blocking::Driver,
};

use underpass_testkit::{self as testkit, assert_same};

use super::ends::{content_of, file, file_of, memory, tcp, unix};

/// The mechanisms that need no support from the file system.
const COPYING: [Mechanism; 4] = [
    Mechanism::CopyRange,
    Mechanism::Sendfile,
    Mechanism::Splice,
    Mechanism::ReadWrite,
];

fn run(
    policy: Policy,
    source: &Source<impl AsFd>,
    sink: &Sink<impl AsFd>,
) -> Result<Account, Error> {
    Driver::new(&Kernel::unprobed())
        .policy(policy)
        .run(source, sink)
}

#[test]
fn odd_offsets_and_lengths_arrive_in_place() {
    let content = testkit::content(3, 3 << 20);
    let from = file_of(&content);
    for mechanism in COPYING {
        for (at, len, to) in [
            (0, 1, 0),
            (1, 4095, 4097),
            (100, 2_000_001, 7),
            (4096, 65_536, 4095),
            (1_048_575, 2, 1_048_577),
            ((3 << 20) - 1, 1, 0),
        ] {
            let what = format!("{mechanism}: {len} from {at} to {to}");
            let old = testkit::content(4, 4 << 20);
            let sink = file_of(&old);
            let source = Source::range(&from, at, len).expect("a range");
            let account = run(
                Policy::only(mechanism),
                &source,
                &Sink::at(&sink, to).expect("a sink"),
            )
            .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(account.of(mechanism).bytes, len, "{what}");
            let mut expected = old;
            let (at, len, to) = (at as usize, len as usize, to as usize);
            expected[to..to + len].copy_from_slice(&content[at..at + len]);
            assert_same(&content_of(&sink), &expected, &what);
        }
    }
}

#[test]
fn positions_of_the_descriptors_do_not_matter() {
    let content = testkit::content(5, 100_000);
    for policy in COPYING
        .map(Policy::only)
        .into_iter()
        .chain([Policy::default()])
    {
        let (mut from, mut to) = (file_of(&content), file());
        from.seek(SeekFrom::Start(77)).expect("seeks");
        to.seek(SeekFrom::Start(99_999)).expect("seeks");
        run(
            policy,
            &Source::whole(&from).expect("a source"),
            &Sink::new(&to).expect("a sink"),
        )
        .expect("copies");
        assert_same(&content_of(&to), &content, &format!("{policy:?}"));
    }
}

/// Returns files whose size differs from their content's length, with the result of a plain read.
fn with_content_of_their_own() -> Vec<(&'static str, Vec<u8>)> {
    let names = [
        "/proc/version",
        "/proc/filesystems",
        "/proc/self/cmdline",
        "/proc/kallsyms",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/notes",
        "/sys/devices/system/cpu/online",
    ];
    let read = |name: &'static str| Some((name, std::fs::read(name).ok()?));
    let found: Vec<_> = names.into_iter().filter_map(read).collect();
    assert!(found.len() > 3, "{} of them are here", found.len());
    found
}

/// QUIRK(size-without-blocks)
#[test]
fn size_without_blocks_is_read_to_its_end_like_all_files_of_the_kernel() {
    for (name, expected) in with_content_of_their_own() {
        let (from, to) = (File::open(name).expect("opens"), file());
        let account = copy_file(&Kernel::probe(), &from, &to)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(&content_of(&to), &expected, name);
        assert_eq!(account.bytes(), expected.len() as u64, "{name}: {account}");
        let stat = FileStat::of(&from.metadata().expect("metadata")).expect("a regular file");
        let end = Endpoint::of_file(stat);
        assert_eq!(Source::of(&from, end).owed, Owed::ToEnd, "{name}");
    }
}

#[test]
fn forced_on_files_of_the_kernel_it_is_all_or_an_error() {
    for (name, expected) in with_content_of_their_own() {
        for mechanism in Mechanism::ALL {
            let what = format!("{mechanism} of {name}");
            let (from, to) = (File::open(name).expect("opens"), file());
            let source = Source::whole(&from).expect("a source");
            match run(
                Policy::only(mechanism),
                &source,
                &Sink::new(&to).expect("a sink"),
            ) {
                Ok(account) => {
                    assert_same(&content_of(&to), &expected, &what);
                    assert_eq!(account.of(mechanism).bytes, expected.len() as u64, "{what}");
                }
                Err(error) => {
                    assert_ne!(mechanism, Mechanism::ReadWrite, "{what}: {error}");
                    assert_eq!(error.fault, Fault::Refused, "{what}: {error}");
                    assert_eq!(content_of(&to).len() as u64, error.moved(), "{what}");
                }
            }
        }
    }
}

#[test]
fn sendfile_of_a_process_status_is_refused_rather_than_empty() {
    let (from, to) = (File::open("/proc/self/status").expect("opens"), file());
    let error = run(
        Policy::only(Mechanism::Sendfile),
        &Source::whole(&from).expect("a source"),
        &Sink::new(&to).expect("a sink"),
    )
    .expect_err("the kernel can't");
    assert_eq!(error.fault, Fault::Refused, "{error}");
    assert!(error.errno.is_some(), "{error}");
}

#[test]
fn empty_sources_are_empty_by_every_mechanism_that_takes_them() {
    for policy in COPYING
        .map(Policy::only)
        .into_iter()
        .chain([Policy::default()])
    {
        let (from, to) = (file(), file());
        let source = Source::whole(&from).expect("a source");
        let account = run(policy, &source, &Sink::new(&to).expect("a sink"))
            .unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        assert_eq!((account.bytes(), content_of(&to).len()), (0, 0));
    }
    let null = File::open("/dev/null").expect("opens");
    let to = file();
    assert_eq!(
        copy_file(&Kernel::probe(), &null, &to)
            .expect("empty")
            .bytes(),
        0
    );
}

/// QUIRK(append-ignores-offset)
#[test]
fn append_ignores_offset_so_all_is_written_behind_what_was_there() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = dir.path().join("log");
    let appending = || File::options().append(true).open(&path).expect("opens");
    std::fs::write(&path, "old").expect("writes");
    let raw = rustix::io::pwrite(appending(), b"new", 0).expect("writes");
    assert_eq!(raw, 3);
    let seen = std::fs::read(&path).expect("reads");
    assert_eq!(seen, b"oldnew", "the kernel ignores the offset");

    let content = testkit::content(6, 700_001);
    let from = file_of(&content);
    for (policy, works) in [
        (Policy::default(), true),
        (Policy::only(Mechanism::ReadWrite), true),
        (Policy::only(Mechanism::Clone), false),
        (Policy::only(Mechanism::CopyRange), false),
        (Policy::only(Mechanism::Sendfile), false),
        (Policy::only(Mechanism::Splice), false),
    ] {
        std::fs::write(&path, "old").expect("writes");
        let sink = appending();
        let source = Source::whole(&from).expect("a source");
        let moved = run(policy, &source, &Sink::new(&sink).expect("a sink"));
        assert_eq!(moved.is_ok(), works, "{policy:?}: {moved:?}");
        let expected = if works { content.as_slice() } else { &[] };
        let got = std::fs::read(&path).expect("reads");
        assert_eq!(&got[..3], b"old", "{policy:?}");
        assert_same(&got[3..], expected, &format!("{policy:?}"));
    }
}

/// Changes the source after its first piece, by the hook between two calls.
fn meddled(policy: Policy, from: &File, to: &File, meddle: impl Fn()) -> Result<Account, Error> {
    let once = Cell::new(false);
    let mut watch = |progress: Progress| {
        if progress.done > 0 && !once.replace(true) {
            meddle();
        }
        ControlFlow::Continue(())
    };
    Driver::new(&Kernel::unprobed())
        .policy(policy)
        .call_bytes_max(64 << 10)
        .watch(&mut watch)
        .run(
            &Source::whole(from).expect("a source"),
            &Sink::new(to).expect("a sink"),
        )
}

#[test]
fn a_source_that_shrinks_is_truncated_at_its_new_end() {
    let content = testkit::content(7, 1 << 20);
    for mechanism in COPYING {
        for len in [0, 1, 300_001] {
            let what = format!("{mechanism}, cut to {len}");
            let (from, to) = (file_of(&content), file());
            let cut = || from.set_len(len).expect("cuts");
            let error = meddled(Policy::only(mechanism), &from, &to, cut).expect_err(&what);
            assert_eq!(error.fault, Fault::Truncated, "{what}: {error}");
            let got = content_of(&to);
            assert_eq!(got.len() as u64, error.moved(), "{what}: {error}");
            assert!(
                got.len() as u64 >= len,
                "{what}: all that was there has moved"
            );
            assert_same(&got, &content[..got.len()], &what);
        }
    }
}

#[test]
fn a_source_that_grows_is_moved_as_long_as_it_was() {
    let content = testkit::content(8, 1 << 20);
    for mechanism in COPYING {
        let (from, to) = (file_of(&content), file());
        let grow = || from.write_all_at(b"more", 1 << 20).expect("grows");
        meddled(Policy::only(mechanism), &from, &to, grow).expect("copies");
        assert_same(&content_of(&to), &content, mechanism.name());
    }
}

#[test]
fn cancelling_takes_hold_within_one_call_and_reports_what_moved() {
    let content = testkit::content(9, 4 << 20);
    for mechanism in COPYING {
        let (from, to) = (file_of(&content), file());
        let mut watch = |progress: Progress| match progress.done {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        let error = Driver::new(&Kernel::unprobed())
            .policy(Policy::only(mechanism))
            .call_bytes_max(128 << 10)
            .watch(&mut watch)
            .run(
                &Source::whole(&from).expect("a source"),
                &Sink::new(&to).expect("a sink"),
            )
            .expect_err("cancelled");
        assert_eq!(error.fault, Fault::Cancelled, "{mechanism}: {error}");
        assert!(error.moved() <= 128 << 10, "{mechanism}: {error}");
        let got = content_of(&to);
        assert_eq!(got.len() as u64, error.moved(), "{mechanism}");
        assert_same(&got, &content[..got.len()], mechanism.name());
    }
}

#[test]
fn what_cannot_be_read_or_written_is_reported_by_side() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = dir.path().join("file");
    std::fs::write(&path, testkit::content(10, 100_000)).expect("writes");
    let read_only = File::open(&path).expect("opens");
    let write_only = File::options().write(true).open(&path).expect("opens");
    let good = file_of(&testkit::content(11, 100_000));
    let policies = Mechanism::ALL
        .map(Policy::only)
        .into_iter()
        .chain([Policy::default()]);
    for policy in policies {
        let to = file();
        let source = Source::whole(&write_only).expect("a source");
        let unreadable = run(policy, &source, &Sink::new(&to).expect("a sink"));
        check_fault(policy, unreadable, Fault::Source);
        assert_eq!(content_of(&to), [], "{policy:?}");
        let source = Source::whole(&good).expect("a source");
        let unwritable = run(policy, &source, &Sink::new(&read_only).expect("a sink"));
        check_fault(policy, unwritable, Fault::Sink);
    }
    assert_same(
        &std::fs::read(&path).expect("reads"),
        &testkit::content(10, 100_000),
        "nothing was written",
    );
}

fn check_fault(policy: Policy, moved: Result<Account, Error>, side: Fault) {
    let error = moved.expect_err("can't be moved");
    // Ranges into a sink that isn't empty are not cloned at all; then no call was made.
    let reported = error.fault == side || error.fault == Fault::Refused;
    assert!(reported, "{policy:?}: {error}");
    if policy == Policy::default() {
        assert_eq!(error.fault, side, "{error}");
    }
    assert_eq!(error.moved(), 0, "{policy:?}: {error}");
}

#[test]
fn a_sealed_memory_file_stays_as_it_is() {
    let from = file_of(&testkit::content(12, 100_000));
    for policy in Mechanism::ALL
        .map(Policy::only)
        .into_iter()
        .chain([Policy::default()])
    {
        let sealed = rustix::fs::memfd_create("sealed", rustix::fs::MemfdFlags::ALLOW_SEALING);
        let mut sealed = File::from(sealed.expect("memory"));
        sealed.write_all(b"as it is").expect("writes");
        rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::WRITE).expect("seals");
        let source = Source::whole(&from).expect("a source");
        let error =
            run(policy, &source, &Sink::new(&sealed).expect("a sink")).expect_err("it is sealed");
        assert_eq!(error.moved(), 0, "{policy:?}: {error}");
        assert_eq!(content_of(&sealed), b"as it is", "{policy:?}");
    }
}

/// One thread's range ends in a hole while another has already written after it.
#[test]
fn ranges_side_by_side_do_not_cut_each_other() {
    const HALF: u64 = 1 << 20;
    let from = file();
    let content = testkit::content(13, HALF as usize);
    from.write_all_at(&content[..4096], 0).expect("writes");
    from.write_all_at(&content[..9000], HALF / 2)
        .expect("writes");
    from.write_all_at(&content, HALF).expect("writes");
    for mechanism in COPYING {
        let to = file();
        let first = Source::range(&from, 0, HALF).expect("a range");
        let first_sink = Sink::new(&to).expect("a sink");
        let own = format!("/proc/self/fd/{}", to.as_raw_fd());
        let own = File::options().write(true).open(own).expect("opens");
        let second = Source::range(&from, HALF, HALF).expect("a range");
        let second_sink = Sink::at(&own, HALF).expect("a sink");
        let once = Cell::new(false);
        let mut watch = |progress: Progress| {
            if progress.done > 0 && !once.replace(true) {
                run(Policy::only(mechanism), &second, &second_sink).expect("the second half");
            }
            ControlFlow::Continue(())
        };
        Driver::new(&Kernel::unprobed())
            .policy(Policy::only(mechanism))
            .watch(&mut watch)
            .run(&first, &first_sink)
            .expect("the first half");
        let what = format!("{mechanism}, side by side");
        assert_same(&content_of(&to), &content_of(&from), &what);
    }
}

#[test]
fn an_exact_receive_leaves_what_follows() {
    let content = testkit::content(14, 500_000);
    for mechanism in [Mechanism::Splice, Mechanism::ReadWrite] {
        let (ours, mut theirs) = tcp();
        let mut sent = content.clone();
        sent.extend_from_slice(b"the next message");
        let feeder = std::thread::spawn(move || theirs.write_all(&sent).map(|()| theirs));
        let to = file();
        let source = Source::range(&ours, 0, 500_000).expect("a source");
        let account = run(
            Policy::only(mechanism),
            &source,
            &Sink::at(&to, 11).expect("a sink"),
        )
        .expect("receives");
        drop(feeder.join().expect("feeds").expect("writes"));
        assert_eq!(account.of(mechanism).bytes, 500_000);
        assert_same(&content_of(&to)[11..], &content, mechanism.name());
        let mut rest = String::new();
        (&ours).read_to_string(&mut rest).expect("reads");
        assert_eq!(rest, "the next message", "{mechanism}");
    }
}

#[test]
fn an_early_end_of_a_stream_is_truncated_with_all_that_came() {
    let content = testkit::content(15, 300_000);
    for mechanism in [Mechanism::Splice, Mechanism::ReadWrite] {
        let (ours, mut theirs) = unix();
        let sent = content.clone();
        let feeder = std::thread::spawn(move || theirs.write_all(&sent));
        let to = memory();
        let source = Source::range(&ours, 0, 300_001).expect("a source");
        let error = run(
            Policy::only(mechanism),
            &source,
            &Sink::new(&to).expect("a sink"),
        )
        .expect_err("one byte is missing");
        feeder.join().expect("feeds").expect("writes");
        assert_eq!((error.fault, error.moved()), (Fault::Truncated, 300_000));
        assert_same(&content_of(&to), &content, mechanism.name());
    }
}

#[test]
fn ranges_of_one_file_that_overlap_are_refused_and_left_alone() {
    const LEN: u64 = 1_000_000;
    let content = testkit::content(36, LEN as usize);
    let file = file_of(&content);
    let mut policies = Mechanism::ALL.map(Policy::only).to_vec();
    policies.push(Policy::default());
    for policy in policies {
        for (from, to) in [(0, 0), (0, 1), (1, 0), (0, 4096), (65_536, 0), (0, 699_999)] {
            let source = Source::range(&file, from, 700_000).expect("a range");
            let sink = Sink::at(file.try_clone().expect("a clone"), to).expect("a sink");
            let what = format!("{from} to {to}, {:?}", policy.choice);
            let error = run(policy, &source, &sink).expect_err(&what);
            assert_eq!((error.fault, error.moved()), (Fault::Overlap, 0), "{what}");
            assert!(error.to_string().contains("overlap"), "{error}");
            assert_same(&content_of(&file), &content, &what);
        }
    }
    let error = copy_file(&Kernel::unprobed(), &file, &file).expect_err("itself");
    assert_eq!(error.fault, Fault::Overlap);
}

#[test]
fn ranges_of_one_file_side_by_side_are_copied() {
    let content = testkit::content(37, 300_000);
    for (from, to) in [(0, 100_000), (100_000, 0), (200_000, 300_000)] {
        let file = file_of(&content);
        let source = Source::range(&file, from, 100_000).expect("a range");
        let sink = Sink::at(&file, to).expect("a sink");
        run(Policy::default(), &source, &sink).expect("copies");
        let mut expected = content.clone();
        expected.resize(expected.len().max(to as usize + 100_000), 0);
        expected.copy_within(from as usize..from as usize + 100_000, to as usize);
        assert_same(&content_of(&file), &expected, "one range copied");
    }
}

#[test]
fn a_file_appended_to_itself_grows_by_what_it_was_and_not_without_end() {
    let (file, path) = named(&testkit::content(38, 100_000));
    let appending = File::options().append(true).open(path).expect("opens");
    let sink = Sink::new(&appending).expect("a sink");
    let source = Source::range(&file, 0, 100_000).expect("a range");
    run(Policy::default(), &source, &sink).expect("what was there");
    assert_eq!(file.metadata().expect("metadata").len(), 200_000);
    let mut endless = source;
    endless.owed = Owed::ToEnd;
    let sink = Sink::new(&appending).expect("a sink");
    let error = run(Policy::default(), &endless, &sink).expect_err("never ends");
    assert_eq!(error.fault, Fault::Overlap);
    assert_eq!(file.metadata().expect("metadata").len(), 200_000);
}

/// Returns the result and every progress that the hook receives.
fn watched(
    policy: Policy,
    source: &Source<impl AsFd>,
    sink: &Sink<impl AsFd>,
    meddle: impl Fn(),
) -> (Result<Account, Error>, Vec<Progress>) {
    let mut shown = Vec::new();
    let mut watch = |progress| {
        if shown.len() == 2 {
            meddle();
        }
        shown.push(progress);
        ControlFlow::Continue(())
    };
    let moved = Driver::new(&Kernel::unprobed())
        .policy(policy)
        .call_bytes_max(100_000)
        .watch(&mut watch)
        .run(source, sink);
    (moved, shown)
}

#[test]
fn progress_ends_at_100_percent_exactly_when_all_has_moved() {
    let mut policies = COPYING.map(Policy::only).to_vec();
    policies.push(Policy::default());
    for policy in policies {
        for (len, grows) in [(0, 0), (1, 0), (1_000_000, 0), (1_000_000, 300_000)] {
            let from = file_of(&testkit::content(50, len));
            let source = Source::whole(&from).expect("a source");
            let to = file();
            let sink = Sink::new(&to).expect("a sink");
            let meddle = || from.set_len((len + grows) as u64).expect("a length");
            let (moved, shown) = watched(policy, &source, &sink, meddle);
            let what = format!("{len} + {grows}, {:?}", policy.choice);
            if len == 0 && moved.is_err() {
                continue; // Forced, in-kernel copies may refuse a file of size 0.
            }
            moved.expect(&what);
            let (last, before) = shown.split_last().expect("shown");
            assert_eq!(last.percent(), Some(100), "{what} {last:?}");
            assert_eq!(Some(last.done), last.total, "{what}");
            for progress in before.iter().filter(|before| before.done < last.done) {
                assert!(progress.percent() < Some(100), "{what} {progress:?}");
            }
        }
    }
}

#[test]
fn progress_of_what_shrinks_stays_below_100_percent() {
    let from = file_of(&testkit::content(51, 1_000_000));
    let source = Source::whole(&from).expect("a source");
    let to = file();
    let sink = Sink::new(&to).expect("a sink");
    let meddle = || from.set_len(400_000).expect("shorter");
    let (moved, shown) = watched(Policy::only(Mechanism::ReadWrite), &source, &sink, meddle);
    assert_eq!(moved.expect_err("too short").fault, Fault::Truncated);
    let last = shown.last().expect("shown");
    assert_eq!((last.done, last.percent()), (400_000, Some(40)));
}

#[test]
fn progress_of_a_stream_has_no_total_until_it_ends() {
    let (ours, mut theirs) = unix();
    theirs.write_all(&[7; 5000]).expect("room in the socket");
    drop(theirs);
    let source = Source::whole(&ours).expect("a source");
    let to = file();
    let sink = Sink::new(&to).expect("a sink");
    let (moved, shown) = watched(Policy::default(), &source, &sink, || ());
    assert_eq!(moved.expect("moves").bytes(), 5000);
    let (last, before) = shown.split_last().expect("shown");
    assert!(before.iter().all(|progress| progress.percent().is_none()));
    assert_eq!((last.percent(), last.total), (Some(100), Some(5000)));
}

/// Creates a file with this content that can be opened again.
fn named(content: &[u8]) -> (File, tempfile::TempPath) {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    file.write_all(content).expect("room on the disk");
    file.into_parts()
}
