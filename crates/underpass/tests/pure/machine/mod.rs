//! The transfer machine under random results: bytes out are bytes in, or an error whose count is
//! exact.
//!
//! A [`World`] plays the kernel: two ends, a pipe, a buffer, and a script of faults. The machine
//! must end for every script, and must never count what did not arrive.

mod world;

use proptest::prelude::*;
use rustix::io::Errno;
use underpass::{
    Account, Aliasing, Choice, Cloning, Endpoint, EndpointKind, Fault, Holes, Kernel, KernelFacts,
    Mechanism, Op, Owed, Policy, Sink, Source, Step, Transfer, Waits, plan,
};
use world::{Fate, Run, World};

/// The smallest block of zeros that the machine searches for.
const BLOCK: u64 = 512;

/// The parameters of a case.
#[derive(Clone, Debug)]
struct Case {
    kinds: (EndpointKind, EndpointKind),
    runs: Vec<Run>,
    from: u64,
    /// `None`: to the end.
    len: Option<u64>,
    to: u64,
    /// Bytes the sink has already.
    old: usize,
    policy: Policy,
    call_bytes_max: u64,
    waits: (Waits, Waits),
    script: Vec<Fate>,
    /// The call before which the source is cut, and the length it is cut to.
    cut: Option<(u32, usize)>,
}

const ERRNOS: [Errno; 24] = [
    Errno::INTR,
    Errno::AGAIN,
    Errno::NOSYS,
    Errno::XDEV,
    Errno::INVAL,
    Errno::OPNOTSUPP,
    Errno::PERM,
    Errno::ACCESS,
    Errno::BADF,
    Errno::TXTBSY,
    Errno::NOENT,
    Errno::FBIG,
    Errno::OVERFLOW,
    Errno::IO,
    Errno::NOSPC,
    Errno::DQUOT,
    Errno::NOMEM,
    Errno::PIPE,
    Errno::CONNRESET,
    Errno::NOTTY,
    Errno::SPIPE,
    Errno::ROFS,
    Errno::MFILE,
    Errno::NXIO,
];

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Full),
        4 => (1_u64..9).prop_map(Fate::Short),
        1 => (1_u64..9).prop_map(|grains| Fate::Short(grains * 128)),
        4 => proptest::sample::select(&ERRNOS[..]).prop_map(Fate::Fails),
        1 => Just(Fate::SaysNothing),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let choice = prop_oneof![
        3 => Just(Choice::Auto),
        1 => proptest::sample::select(&Mechanism::ALL[..]).prop_map(Choice::Only),
    ];
    let cloning = prop_oneof![
        4 => Just(Cloning::Auto),
        1 => Just(Cloning::Never),
        1 => Just(Cloning::Always),
    ];
    let aliasing = prop_oneof![4 => Just(Aliasing::Accepted), 1 => Just(Aliasing::Refused)];
    let holes = prop_oneof![
        2 => Just(Holes::Keep),
        1 => Just(Holes::Fill),
        2 => Just(Holes::Find),
    ];
    (choice, cloning, aliasing, holes).prop_map(|(choice, cloning, aliasing, holes)| {
        let policy = Policy::default().choice(choice).cloning(cloning);
        policy.aliasing(aliasing).holes(holes)
    })
}

fn run() -> impl Strategy<Value = Run> {
    prop_oneof![
        3 => (0_usize..12).prop_map(Run::Data),
        2 => (0_usize..12).prop_map(Run::Zeros),
        2 => (0_usize..12).prop_map(Run::Hole),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let kind = || {
        prop_oneof![
            3 => Just(EndpointKind::File),
            2 => proptest::sample::select(&EndpointKind::ALL[..]),
        ]
    };
    let waits = || prop_oneof![Just(Waits::Polls), Just(Waits::Blocks)];
    let place = || prop_oneof![2 => Just(0), 1 => 0_u64..20];
    (
        (kind(), kind()),
        // In units of bytes every way to miss an end is likely; blocks of zeros are larger.
        (
            proptest::sample::select(&[1_u64, 1, 1, 1, 1, 1, 128, 171, 512][..]),
            proptest::collection::vec(run(), 0..6),
        ),
        (place(), proptest::option::of(0_u64..40), place(), place()),
        policy(),
        1_u64..30,
        (waits(), waits()),
        proptest::collection::vec(fate(), 0..14),
        proptest::option::weighted(0.2, (0_u32..8, 0_usize..40)),
    )
        .prop_map(
            |(kinds, (grain, runs), places, policy, call_bytes_max, waits, script, cut)| {
                let (from, len, to, old) = places;
                let bytes = grain as usize;
                Case {
                    kinds,
                    runs: runs.iter().map(|run| run.times(bytes)).collect(),
                    from: from * grain,
                    len: len.map(|len| len * grain),
                    to: to * grain,
                    old: old as usize * bytes,
                    policy,
                    call_bytes_max: call_bytes_max * grain,
                    waits,
                    script,
                    cut: cut.map(|(when, len)| (when, len * bytes)),
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bytes_out_are_bytes_in_or_the_error_is_exact(case in case()) {
        check(&case)?;
    }
}

/// Ends whose fields a program has filled in without a query.
#[test]
fn offsets_that_no_file_has_are_an_error_before_the_first_call() {
    const MAX: u64 = u64::MAX;
    let kinds = [EndpointKind::File, EndpointKind::Block, EndpointKind::Tcp];
    let numbers = [0, 1, 1 << 62, 1 << 63, MAX - 1, MAX];
    for (from_kind, to_kind) in kinds
        .into_iter()
        .flat_map(|from| kinds.map(|to| (from, to)))
    {
        for (from, len, to) in numbers
            .into_iter()
            .flat_map(|from| numbers.map(|len| (from, len)))
            .flat_map(|(from, len)| numbers.map(|to| (from, len, to)))
        {
            let (mut source, mut sink) = (Source::sample(from_kind), Sink::sample(to_kind));
            (source.from, source.owed, sink.to) = (from, Owed::Exactly(len), to);
            let plan = plan(&source, &sink, &KernelFacts::default(), &Policy::default());
            let mut transfer = Transfer::new(&source, &sink, plan);
            let beyond = |kind, end: Option<u64>| {
                kind != EndpointKind::Tcp && end.is_none_or(|end| end >= 1 << 63)
            };
            let absurd = beyond(from_kind, from.checked_add(len)) || beyond(to_kind, Some(to));
            let what = format!("{from_kind} {from}, {len}, {to_kind} {to}");
            assert_eq!(transfer.next_op().is_none(), absurd || len == 0, "{what}");
            if absurd && len > 0 {
                let error = transfer.finish().expect_err(&what);
                assert_eq!(error.errno, Some(Errno::OVERFLOW), "{what}");
            } else if len > 0 {
                for _ in 0..4 {
                    assert_ne!(transfer.record(Ok(1)), Step::Failed, "{what}");
                }
            }
        }
    }
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let mut world = World::new(case.kinds, &case.runs, case.old, case.script.clone());
    let source = source(case, &world);
    let sink = sink(case, &world);
    let kernel = Kernel::unprobed();
    let mut transfer = Transfer::new(
        &source,
        &sink,
        plan(&source, &sink, &KernelFacts::default(), &case.policy),
    );
    transfer.limit_calls(case.call_bytes_max);
    let before = world.clone();
    let mut steps = 0_u32;
    while let Some(op) = transfer.next_op() {
        if let Some((_, len)) = case.cut.filter(|(when, _)| *when == steps) {
            world.cut(len);
        }
        prop_assert_eq!(transfer.next_op(), Some(op), "asking twice changes nothing");
        let result = world.play(op);
        if let Step::Refused(refusal) = transfer.record(result) {
            kernel.learn(&refusal, &source.end, &sink.end);
        }
        steps += 1;
        prop_assert!(steps < 500, "comes to an end");
        if let (Some(read), Err(error)) = (world.read(), transfer.clone().finish()) {
            let known = error.moved() + error.lost;
            prop_assert_eq!(known, read, "what a stream gave arrived or is reported");
        }
    }
    judge(case, &source, &sink, &before, &world, transfer)
}

fn judge(
    case: &Case,
    source: &Source<()>,
    sink: &Sink<()>,
    before: &World,
    world: &World,
    transfer: Transfer,
) -> Result<(), TestCaseError> {
    let held = world.held();
    match transfer.finish() {
        Ok(account) => {
            let moved = account.bytes() + account.holes;
            if let Owed::Exactly(owed) = source.owed {
                prop_assert_eq!(moved, owed);
            } else if case.cut.is_none() {
                let rest = before.source_len().saturating_sub(source.from as usize);
                prop_assert_eq!(moved, rest as u64, "all until the end");
            }
            prop_assert_eq!(held, 0, "nothing is left between source and sink");
            world.compare(before, source.from, sink.to, moved, sink.to + moved)?;
            if sink.end.kind == EndpointKind::File {
                judge_holes(case, source, sink, world, &account)?;
            }
        }
        Err(error) => {
            let moved = error.moved();
            prop_assert_eq!(moved, error.account.bytes() + error.account.holes);
            let lost = world.read().map_or(0, |_| held);
            prop_assert_eq!(
                error.lost,
                lost,
                "what a stream gave and did not arrive is reported"
            );
            prop_assert!(error.fault != Fault::Cancelled);
            world.compare(before, source.from, sink.to, moved, 0)?;
            if error.fault == Fault::Truncated && case.cut.is_none() {
                let rest = before.source_len().saturating_sub(source.from as usize) as u64;
                prop_assert!(matches!(source.owed, Owed::Exactly(owed) if owed > rest));
            }
        }
    }
    Ok(())
}

/// Checks that holes agree with the account and the policy.
fn judge_holes(
    case: &Case,
    source: &Source<()>,
    sink: &Sink<()>,
    world: &World,
    account: &Account,
) -> Result<(), TestCaseError> {
    let end = sink.to + account.bytes() + account.holes;
    let holes = world.sink_holes(sink.to, end);
    let bytes: u64 = holes.iter().map(|(from, until)| until - from).sum();
    prop_assert_eq!(bytes, account.holes, "counted");
    let fresh = sink.end.size <= sink.to;
    prop_assert!(fresh || bytes == 0, "old bytes must not shine through");
    let sparse = case.runs.iter().any(|run| matches!(run, Run::Hole(1..)));
    match case.policy.holes {
        Holes::Keep => prop_assert!(sparse || bytes == 0, "none are looked for"),
        Holes::Fill => prop_assert_eq!(bytes, 0),
        Holes::Find if sparse || !fresh => (),
        Holes::Find => {
            for (from, until) in holes.iter().copied() {
                prop_assert_eq!(from % BLOCK, 0, "whole blocks");
                prop_assert!(until % BLOCK == 0 || until == end, "whole blocks");
            }
            let undisturbed = case.script.is_empty() && case.cut.is_none();
            let (mut block, reads) = (sink.to.next_multiple_of(BLOCK), case.call_bytes_max);
            while undisturbed && reads >= 2 * BLOCK && block < end {
                let until = (block + BLOCK).min(end);
                let known = until == block + BLOCK || matches!(source.owed, Owed::Exactly(_));
                let hole = holes.iter().any(|hole| hole.0 <= block && until <= hole.1);
                prop_assert_eq!(hole, known && world.is_zero(block, until), "{}", block);
                block += BLOCK;
            }
        }
    }
    Ok(())
}

fn source(case: &Case, world: &World) -> Source<()> {
    let mut end = Endpoint::sample(case.kinds.0);
    end.waits = case.waits.0;
    end.block_bytes = 4;
    if case.kinds.0 == EndpointKind::File {
        end.size = world.source_len() as u64;
        end.allocated = world.source_allocated() as u64;
    }
    let from = if matches!(case.kinds.0, EndpointKind::File | EndpointKind::Block) {
        case.from
    } else {
        0
    };
    let owed = match case.len {
        Some(len) => Owed::Exactly(len),
        None if end.size > 0 => Owed::Exactly(end.size.saturating_sub(from)),
        None => Owed::ToEnd,
    };
    Source {
        fd: (),
        end,
        from,
        owed,
    }
}

fn sink(case: &Case, world: &World) -> Sink<()> {
    let mut end = Endpoint::sample(case.kinds.1);
    end.waits = case.waits.1;
    end.block_bytes = 4;
    end.size = world.sink_len() as u64;
    let to = if world.sink_has_offsets() { case.to } else { 0 };
    Sink { fd: (), end, to }
}

/// The pipe is read out only while it holds bytes that the sink refused.
#[test]
fn splice_goes_on_splicing_after_others_were_refused() {
    let script = vec![Fate::Fails(Errno::INVAL)];
    let mut world = World::new(
        (EndpointKind::File, EndpointKind::Tcp),
        &[Run::Data(40)],
        0,
        script,
    );
    let source = Source {
        fd: (),
        end: Endpoint::sample(EndpointKind::File),
        from: 0,
        owed: Owed::Exactly(40),
    };
    let sink = Sink {
        fd: (),
        end: Endpoint::sample(EndpointKind::Tcp),
        to: 0,
    };
    let plan = plan(&source, &sink, &KernelFacts::default(), &Policy::default());
    let mut transfer = Transfer::new(&source, &sink, plan);
    while let Some(op) = transfer.next_op() {
        let result = world.play(op);
        transfer.record(result);
    }
    let account = transfer.finish().expect("falls back");
    assert_eq!(account.refusals.len(), 1, "{account}");
    assert_eq!(account.of(Mechanism::Splice).bytes, 40, "{account}");
    assert_eq!(account.crossed(), 0, "{account}");
}

/// Faults at the second call of every mechanism, one by one, from a readable script.
#[test]
fn a_fallback_goes_on_where_the_refused_mechanism_stopped() {
    for (forced, errno) in [
        (Mechanism::CopyRange, Errno::XDEV),
        (Mechanism::Sendfile, Errno::INVAL),
        (Mechanism::Splice, Errno::INVAL),
    ] {
        let runs = [Run::Data(40)];
        let script = vec![
            Fate::Fails(Errno::XDEV), // clone
            Fate::Short(7),
            Fate::Fails(errno),
        ];
        let mut world = World::new((EndpointKind::File, EndpointKind::File), &runs, 0, script);
        let case = Case {
            kinds: (EndpointKind::File, EndpointKind::File),
            runs: runs.to_vec(),
            from: 0,
            len: None,
            to: 0,
            old: 0,
            policy: Policy::default(),
            call_bytes_max: 64,
            waits: (Waits::Blocks, Waits::Blocks),
            script: Vec::new(),
            cut: None,
        };
        let (source, sink) = (source(&case, &world), sink(&case, &world));
        let plan = plan(&source, &sink, &KernelFacts::default(), &Policy::default());
        let mut transfer = Transfer::new(&source, &sink, plan);
        while let Some(op) = transfer.next_op() {
            let result = world.play(op);
            transfer.record(result);
        }
        let account = transfer.finish().expect("falls back");
        assert_eq!(account.bytes(), 40, "{forced}");
        assert!(account.refusals.len() >= 2, "{account}");
    }
}

/// Every question and every call when zeros are searched for, with a hole after data and one at the
/// end of a stream of unknown length.
#[test]
fn zeros_of_a_stream_become_holes_and_the_length_comes_last() {
    let runs = [
        Run::Data(600),
        Run::Zeros(2000),
        Run::Data(1),
        Run::Zeros(983),
    ];
    let mut world = World::new(
        (EndpointKind::Pipe, EndpointKind::File),
        &runs,
        0,
        Vec::new(),
    );
    let (source, mut sink) = (
        Source::sample(EndpointKind::Pipe),
        Sink::sample(EndpointKind::File),
    );
    sink.end.block_bytes = 0;
    let policy = Policy::default().holes(Holes::Find);
    let plan = plan(&source, &sink, &KernelFacts::default(), &policy);
    let mut transfer = Transfer::new(&source, &sink, plan);
    let mut played = Vec::new();
    while let Some(op) = transfer.next_op() {
        let result = world.play(op);
        played.push(match op {
            Op::Fill { .. } => ("fill", result),
            Op::DropZeros(_) => ("zeros", result),
            Op::DataAhead(_) => ("data", result),
            Op::Drain { to, .. } => {
                assert_eq!(to, Some(transfer.done()));
                ("drain", result)
            }
            Op::Punch { len, .. } => ("punch", result.map(|_| len)),
            Op::SetLength { len } => ("length", result.map(|_| len)),
            other => panic!("{other:?}"),
        });
        transfer.record(result);
    }
    let expected = [
        ("fill", 3584),
        ("zeros", 0),
        ("data", 1024),
        ("drain", 1024),
        ("zeros", 1536),
        ("punch", 1536),
        ("zeros", 0),
        ("data", 512),
        ("drain", 512),
        ("zeros", 512),
        ("punch", 512),
        ("fill", 0),
        ("length", 3584),
    ];
    assert_eq!(played, expected.map(|(call, count)| (call, Ok(count))));
    let account = transfer.finish().expect("moves");
    assert_eq!((account.bytes(), account.holes), (1536, 2048), "{account}");
    assert_eq!(account.asides, 3, "looking is no system call: {account}");
}
