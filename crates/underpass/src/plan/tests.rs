use super::*;
use crate::vocabulary::account::Mechanism::{Clone, CopyRange, ReadWrite, Sendfile, Splice};
use crate::vocabulary::endpoint::Writes;

fn tiers(source: &Source<()>, sink: &Sink<()>, policy: &Policy) -> Vec<Mechanism> {
    plan(source, sink, &KernelFacts::default(), policy)
        .tiers()
        .collect()
}

#[test]
fn the_ladders_are_those_of_the_documents() {
    let auto = Policy::default();
    let ladder = |from, to| tiers(&Source::sample(from), &Sink::sample(to), &auto);
    assert_eq!(
        ladder(EndpointKind::File, EndpointKind::File),
        [Clone, CopyRange, Splice, Sendfile, ReadWrite]
    );
    assert_eq!(
        ladder(EndpointKind::File, EndpointKind::Tcp),
        [Splice, Sendfile, ReadWrite]
    );
    let mut small = Source::sample(EndpointKind::File);
    small.owed = Owed::Exactly(SPLICED_BYTES_MIN - 1);
    assert_eq!(
        tiers(&small, &Sink::sample(EndpointKind::Tcp), &auto),
        [Sendfile, Splice, ReadWrite]
    );
    small.end.size = SPLICED_BYTES_MIN - 1;
    assert_eq!(
        tiers(&small, &Sink::sample(EndpointKind::File), &auto),
        [Clone, CopyRange, Sendfile, Splice, ReadWrite]
    );
    assert_eq!(
        ladder(EndpointKind::File, EndpointKind::Pipe),
        [Splice, Sendfile, ReadWrite]
    );
    assert_eq!(
        ladder(EndpointKind::Tcp, EndpointKind::File),
        [Splice, ReadWrite]
    );
    assert_eq!(
        ladder(EndpointKind::Tcp, EndpointKind::Unix),
        [Splice, ReadWrite]
    );
    assert_eq!(ladder(EndpointKind::Char, EndpointKind::File), [ReadWrite]);
}

#[test]
fn copy_file_range_comes_before_splice_where_it_may_do_more() {
    let on = |device| {
        let mut ends = (
            Source::sample(EndpointKind::File),
            Sink::sample(EndpointKind::File),
        );
        (ends.0.end.device, ends.1.end.device) = device;
        ends
    };
    let (disk, other, memory) = (0x801, 0x802, 0x1f);
    let planned = |(source, sink)| tiers(&source, &sink, &Policy::default());
    for devices in [(disk, disk), (disk, other)] {
        assert_eq!(
            planned(on(devices)),
            [Clone, Splice, CopyRange, Sendfile, ReadWrite]
        );
    }
    for devices in [(disk, memory), (memory, disk), (memory, memory)] {
        assert_eq!(
            planned(on(devices)),
            [Clone, CopyRange, Splice, Sendfile, ReadWrite]
        );
    }
    let (mut part, sink) = on((disk, disk));
    part.owed = Owed::Exactly((1 << 20) - 1);
    assert_eq!(
        planned((part, sink)),
        [CopyRange, Splice, Sendfile, ReadWrite],
        "it clones the whole blocks of a part"
    );
}

#[test]
fn copy_file_range_leaks_clones_so_never_excludes_it() {
    let never = Policy {
        cloning: Cloning::Never,
        ..Policy::default()
    };
    let ladder = tiers(
        &Source::sample(EndpointKind::File),
        &Sink::sample(EndpointKind::File),
        &never,
    );
    assert_eq!(ladder, [Splice, Sendfile, ReadWrite]);
    let always = Policy {
        cloning: Cloning::Always,
        ..Policy::default()
    };
    assert_eq!(
        tiers(
            &Source::sample(EndpointKind::File),
            &Sink::sample(EndpointKind::File),
            &always
        ),
        [Clone]
    );
}

#[test]
fn who_fills_holes_may_not_keep_them_and_who_finds_them_has_to_look() {
    let file = || Sink::sample(EndpointKind::File);
    let (mut old, mut appending) = (file(), file());
    old.end.size = 1;
    appending.end.writes = Writes::Appends;
    let tcp = Sink::sample(EndpointKind::Tcp);
    let (never, always) = (Cloning::Never, Cloning::Always);
    let kept = [Clone, CopyRange, Splice, Sendfile, ReadWrite];
    let rows: [(Holes, Cloning, &Sink<()>, &[Mechanism]); 11] = [
        (Holes::Keep, Cloning::Auto, &file(), &kept),
        (Holes::Fill, Cloning::Auto, &file(), &kept[2..]),
        (Holes::Fill, never, &file(), &kept[2..]),
        (Holes::Fill, always, &file(), &[]),
        (Holes::Fill, Cloning::Auto, &tcp, &kept[2..]),
        (Holes::Find, Cloning::Auto, &file(), &[ReadWrite]),
        (Holes::Find, never, &file(), &[ReadWrite]),
        (Holes::Find, always, &file(), &[]),
        (Holes::Find, Cloning::Auto, &old, &kept),
        (Holes::Find, Cloning::Auto, &appending, &[ReadWrite]),
        (Holes::Find, Cloning::Auto, &tcp, &kept[2..]),
    ];
    for (holes, cloning, sink, expected) in rows {
        let policy = Policy {
            cloning,
            holes,
            ..Policy::default()
        };
        let ladder = tiers(&Source::sample(EndpointKind::File), sink, &policy);
        assert_eq!(ladder, expected, "{holes:?} {cloning:?} {:?}", sink.end);
    }
}

#[test]
fn appending_sinks_and_unknown_sizes_are_read_and_written() {
    let auto = Policy::default();
    let mut appending = Sink::sample(EndpointKind::File);
    appending.end.writes = Writes::Appends;
    assert_eq!(
        tiers(&Source::sample(EndpointKind::File), &appending, &auto),
        [ReadWrite]
    );
    let mut unknown = Source::sample(EndpointKind::File);
    unknown.end.size = 0;
    unknown.owed = Owed::ToEnd;
    assert_eq!(
        tiers(&unknown, &Sink::sample(EndpointKind::File), &auto),
        [ReadWrite]
    );
    let forced = Policy::only(Sendfile);
    assert_eq!(
        tiers(&unknown, &Sink::sample(EndpointKind::File), &forced),
        [Sendfile],
        "advice only"
    );
    assert_eq!(
        tiers(&Source::sample(EndpointKind::File), &appending, &forced),
        [],
        "the kernel refuses"
    );
    let shared = Policy::default().cloning(Cloning::Always);
    assert_eq!(
        tiers(&unknown, &Sink::sample(EndpointKind::File), &shared),
        [Clone],
        "advice only"
    );
}

#[test]
fn aliasing_can_be_refused() {
    let policy = Policy {
        aliasing: Aliasing::Refused,
        ..Policy::default()
    };
    assert_eq!(
        tiers(
            &Source::sample(EndpointKind::File),
            &Sink::sample(EndpointKind::Tcp),
            &policy
        ),
        [ReadWrite]
    );
    assert_eq!(
        tiers(
            &Source::sample(EndpointKind::Tcp),
            &Sink::sample(EndpointKind::Tcp),
            &policy
        ),
        [Splice, ReadWrite]
    );
    let file = Source::sample(EndpointKind::File);
    let pipe = Sink::sample(EndpointKind::Pipe);
    assert_eq!(tiers(&file, &pipe, &policy), [ReadWrite]);
    let copy = Sink::sample(EndpointKind::File);
    let auto = Policy::default();
    assert_eq!(tiers(&file, &copy, &policy), tiers(&file, &copy, &auto));
}

#[test]
fn ranges_are_cloned_in_whole_blocks_and_the_last_one_to_the_end() {
    let mut source = Source::sample(EndpointKind::File);
    (source.end.size, source.end.block_bytes) = (10_000, 1024);
    let mut sink = Sink::sample(EndpointKind::File);
    (sink.end.size, sink.end.block_bytes) = (1 << 20, 4096);
    for (from, len, to, expected) in [
        (0, 4096, 8192, Ok(())),
        (4096, 4096, 0, Ok(())),
        (8192, 1808, 4096, Ok(())),
        (8192, 1807, 4096, Err(Reason::Unaligned)),
        (4096, 1024, 0, Err(Reason::Unaligned)),
        (1024, 4096, 0, Err(Reason::Unaligned)),
        (0, 4096, 1024, Err(Reason::Unaligned)),
        (1808, 8192, 0, Err(Reason::Unaligned)),
        (4096, 0, 0, Err(Reason::Unaligned)),
    ] {
        (source.from, source.owed, sink.to) = (from, Owed::Exactly(len), to);
        assert_eq!(clonable(&source, &sink), expected, "{from} {len} {to}");
    }
    (source.from, source.owed, sink.to) = (0, Owed::ToEnd, 0);
    assert_eq!(clonable(&source, &sink), Err(Reason::Unaligned));
}

/// QUIRK(clone-keeps-tail)
#[test]
fn clone_keeps_tail() {
    let mut longer = Sink::sample(EndpointKind::File);
    longer.end.size = 2 << 20;
    let mut odd = Source::sample(EndpointKind::File);
    odd.end.size = 1_000_001;
    odd.owed = Owed::Exactly(1_000_001);
    assert!(!is_whole(&odd, &longer));
    assert!(is_whole(&odd, &Sink::sample(EndpointKind::File)));
}

#[test]
fn a_policy_is_changed_in_one_respect_at_a_time() {
    let strict = Policy {
        choice: Choice::Only(Splice),
        cloning: Cloning::Never,
        holes: Holes::Find,
        aliasing: Aliasing::Refused,
    };
    let changes: [fn(Policy) -> Policy; 4] = [
        |policy| policy.choice(Choice::Only(Splice)),
        |policy| policy.cloning(Cloning::Never),
        |policy| policy.holes(Holes::Find),
        |policy| policy.aliasing(Aliasing::Refused),
    ];
    let changed = changes
        .iter()
        .fold(Policy::default(), |policy, change| change(policy));
    assert_eq!(changed, strict);
    for change in changes {
        assert_eq!(change(strict), strict);
        assert_ne!(change(Policy::default()), Policy::default());
    }
    assert!(strict.allows(Splice) && !strict.allows(ReadWrite));
    assert!(Policy::default().allows(ReadWrite));
}

#[test]
fn a_plan_reads_as_one_line() {
    let source = Source::sample(EndpointKind::Tcp);
    let sink = Sink::sample(EndpointKind::File);
    let of = |policy| plan(&source, &sink, &KernelFacts::default(), &policy);
    let auto = of(Policy::default());
    assert!(auto.includes(Splice) && !auto.includes(Clone));
    assert_eq!(
        auto.to_string(),
        "splice, then read_write; not clone: the source is not a regular file; \
         not copy_range: the source is not a regular file; \
         not sendfile: the source is not seekable"
    );
    let none = of(Policy::only(Clone)).to_string();
    assert!(none.starts_with("nothing; not clone: "), "{none}");
}

#[test]
fn a_plan_without_mechanisms_has_a_fault() {
    let mut source = Source::sample(EndpointKind::File);
    let mut sink = Sink::sample(EndpointKind::File);
    let mut facts = KernelFacts::default();
    facts.refused[CopyRange.index()] = Some((Scope::Devices, Errno::XDEV));
    let only = Policy::only(CopyRange);
    let fault = plan(&source, &sink, &facts, &only).fault();
    assert_eq!(fault, (Some(CopyRange), Fault::Refused, Some(Errno::XDEV)));
    let fault = plan(&source, &Sink::sample(EndpointKind::Tcp), &facts, &only).fault();
    assert_eq!(fault, (None, Fault::Refused, None));
    (source.end.inode, sink.end.inode) = (7, 7);
    let fault = plan(&source, &sink, &facts, &only).fault();
    assert_eq!(fault, (None, Fault::Overlap, None));
}

#[test]
fn ranges_overlap_where_device_inode_and_bytes_are_the_same() {
    let mut source = Source::sample(EndpointKind::File);
    (source.end.device, source.end.inode) = (3, 7);
    (source.from, source.owed) = (100, Owed::Exactly(50));
    let mut same = Sink::sample(EndpointKind::File);
    (same.end.device, same.end.inode, same.to) = (3, 7, 149);
    assert!(overlaps(&source, &same));
    for (to, expected) in [
        (50, false),
        (51, true),
        (100, true),
        (149, true),
        (150, false),
    ] {
        same.to = to;
        assert_eq!(overlaps(&source, &same), expected, "{to}");
    }
    same.to = 100;
    let others: [fn(&mut Sink<()>); 3] = [
        |sink| sink.end.device = 4,
        |sink| sink.end.inode = 8,
        |sink| sink.end.kind = EndpointKind::Block,
    ];
    for other in others {
        let mut sink = same;
        other(&mut sink);
        assert!(!overlaps(&source, &sink), "{:?}", sink.end);
    }
    let (mut unknown, mut from) = (same, source);
    (unknown.end.inode, from.end.inode) = (0, 0);
    assert!(!overlaps(&from, &unknown), "nothing is known");
    (same.end.writes, same.end.size) = (Writes::Appends, 150);
    assert!(!overlaps(&source, &same), "behind what is read");
    same.end.size = 149;
    assert!(overlaps(&source, &same));
    (source.owed, same.end.size) = (Owed::ToEnd, 1000);
    assert!(overlaps(&source, &same), "never comes to the end");
}

#[test]
fn every_mechanism_is_planned_or_has_a_reason() {
    for from in EndpointKind::ALL {
        for to in EndpointKind::ALL {
            let (source, sink) = (Source::sample(from), Sink::sample(to));
            let plan = plan(&source, &sink, &KernelFacts::default(), &Policy::default());
            assert_eq!(
                plan.tiers().count() + plan.left_out().count(),
                5,
                "{from} → {to}"
            );
            assert!(
                plan.includes(ReadWrite),
                "{from} → {to} always has a last tier"
            );
        }
    }
}
