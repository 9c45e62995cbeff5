//! The transfer machine under random results: bytes out are bytes in, or an error whose count is
//! exact.
//!
//! A [`World`] plays the kernel: two ends, a pipe, a buffer, and a script of faults. The machine
//! must come to its end whatever the script says, and must never believe what is not so.

mod world;

use proptest::prelude::*;
use rustix::io::Errno;
use underpass::{
    Aliasing, Choice, Cloning, Endpoint, Fault, Host, Kind, Mechanism, Owed, Policy, Sink, Source,
    Step, Transfer, Waits, plan,
};
use world::{Fate, World};

/// What a case is made of.
#[derive(Clone, Debug)]
struct Case {
    kinds: (Kind, Kind),
    /// Length of each run of the source, alternately data and hole.
    runs: Vec<u8>,
    from: u8,
    /// `None`: to the end.
    len: Option<u8>,
    to: u8,
    /// Bytes the sink has already.
    old: u8,
    policy: Policy,
    call_bytes_max: u64,
    waits: (Waits, Waits),
    script: Vec<Fate>,
    /// Before which call the source is cut, and to which length.
    cut: Option<(u8, u8)>,
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
    (choice, cloning, aliasing).prop_map(|(choice, cloning, aliasing)| Policy {
        choice,
        cloning,
        aliasing,
    })
}

fn case() -> impl Strategy<Value = Case> {
    let kind = || {
        prop_oneof![
            3 => Just(Kind::File),
            2 => proptest::sample::select(&Kind::ALL[..]),
        ]
    };
    let waits = || prop_oneof![Just(Waits::Polls), Just(Waits::Blocks)];
    let place = || prop_oneof![2 => Just(0), 1 => 0_u8..20];
    (
        (kind(), kind()),
        proptest::collection::vec(0_u8..12, 0..6),
        (place(), proptest::option::of(0_u8..40), place(), place()),
        policy(),
        1_u64..30,
        (waits(), waits()),
        proptest::collection::vec(fate(), 0..14),
        proptest::option::weighted(0.2, (0_u8..8, 0_u8..40)),
    )
        .prop_map(
            |(kinds, runs, (from, len, to, old), policy, call_bytes_max, waits, script, cut)| {
                Case {
                    kinds,
                    runs,
                    from,
                    len,
                    to,
                    old,
                    policy,
                    call_bytes_max,
                    waits,
                    script,
                    cut,
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

fn check(case: &Case) -> Result<(), TestCaseError> {
    let mut world = World::new(case.kinds, &case.runs, case.old, case.script.clone());
    let source = source(case, &world);
    let sink = sink(case, &world);
    let host = Host::unprobed();
    let mut transfer = Transfer::new(&source, &sink, plan(&source, &sink, &host, &case.policy));
    transfer.limit_calls(case.call_bytes_max);
    let before = world.clone();
    let mut steps = 0_u32;
    while let Some(op) = transfer.next_op() {
        if case.cut.is_some_and(|(when, _)| u32::from(when) == steps) {
            world.cut(case.cut.map_or(0, |(_, len)| usize::from(len)));
        }
        prop_assert_eq!(transfer.next_op(), Some(op), "asking twice changes nothing");
        let result = world.play(op);
        if let Step::Refused(refusal) = transfer.record(result) {
            host.learn(&refusal, &source.end, &sink.end);
        }
        steps += 1;
        prop_assert!(steps < 500, "comes to an end");
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
        }
        Err(error) => {
            let moved = error.moved();
            prop_assert_eq!(moved, error.account.bytes() + error.account.holes);
            prop_assert_eq!(
                error.lost,
                held,
                "what was taken and did not arrive is told"
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

fn source(case: &Case, world: &World) -> Source<()> {
    let mut end = Endpoint::sample(case.kinds.0);
    end.waits = case.waits.0;
    end.block_bytes = 4;
    if case.kinds.0 == Kind::File {
        end.size = world.source_len() as u64;
        end.allocated = world.source_allocated() as u64;
    }
    let from = if matches!(case.kinds.0, Kind::File | Kind::Block) {
        u64::from(case.from)
    } else {
        0
    };
    let owed = match case.len {
        Some(len) => Owed::Exactly(u64::from(len)),
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
    let to = if world.sink_has_offsets() {
        u64::from(case.to)
    } else {
        0
    };
    Sink { fd: (), end, to }
}

/// The middle pipe is read out only while it holds what the sink refused.
#[test]
fn splice_goes_on_splicing_after_others_were_refused() {
    let script = vec![Fate::Fails(Errno::INVAL)];
    let mut world = World::new((Kind::File, Kind::Tcp), &[40], 0, script);
    let source = Source {
        fd: (),
        end: Endpoint::sample(Kind::File),
        from: 0,
        owed: Owed::Exactly(40),
    };
    let sink = Sink {
        fd: (),
        end: Endpoint::sample(Kind::Tcp),
        to: 0,
    };
    let plan = plan(&source, &sink, &Host::unprobed(), &Policy::default());
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

/// Faults at the second call of every mechanism, one by one, from a script that people can read.
#[test]
fn a_fallback_goes_on_where_the_refused_mechanism_stopped() {
    for (forced, errno) in [
        (Mechanism::CopyRange, Errno::XDEV),
        (Mechanism::Sendfile, Errno::INVAL),
        (Mechanism::Splice, Errno::INVAL),
    ] {
        let runs = [40];
        let script = vec![
            Fate::Fails(Errno::XDEV), // clone
            Fate::Short(7),
            Fate::Fails(errno),
        ];
        let mut world = World::new((Kind::File, Kind::File), &runs, 0, script);
        let case = Case {
            kinds: (Kind::File, Kind::File),
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
        let host = Host::unprobed();
        let plan = plan(&source, &sink, &host, &Policy::default());
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
