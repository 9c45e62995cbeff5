use super::*;
use crate::plan::{Choice, KernelFacts, Policy, plan};
use crate::vocabulary::endpoint::Side;
use crate::vocabulary::limits::PIPE_BYTES;

fn transfer(owed: Owed) -> Transfer {
    let mut source = Source::sample(EndpointKind::File);
    (source.from, source.owed) = (100, owed);
    let sink = Sink::sample(EndpointKind::Unix);
    let plan = plan(&source, &sink, &KernelFacts::default(), &Policy::default());
    Transfer::new(&source, &sink, plan)
}

#[cfg(feature = "tokio")]
#[test]
fn a_transfer_is_at_what_it_has_not_moved() {
    let mut transfer = transfer(Owed::Exactly(50));
    assert!(transfer.is_at(100, 50));
    assert_eq!(transfer.record(Ok(20)), Step::Again);
    assert!(transfer.is_at(120, 30));
    for (offset, len) in [(100, 50), (120, 50), (100, 30), (121, 30), (120, 31)] {
        assert!(!transfer.is_at(offset, len), "{len} from {offset}");
    }
}

#[test]
fn what_is_known_of_a_transfer_follows_its_cursor() {
    let mut exact = transfer(Owed::Exactly(50));
    assert_eq!(
        (exact.done(), exact.total(), exact.held()),
        (0, Some(50), 0)
    );
    exact.record(Ok(20));
    assert_eq!((exact.done(), exact.account().bytes()), (20, 20));
    assert_eq!(exact.take_account().bytes(), 20);
    assert_eq!((exact.done(), exact.account().bytes()), (20, 0));
    assert_eq!(exact.plan().first(), Some(Mechanism::Sendfile));
    let (source, sink) = exact.ends();
    assert_eq!(
        (source.kind, sink.kind),
        (EndpointKind::File, EndpointKind::Unix)
    );
    assert_eq!(transfer(Owed::ToEnd).total(), None);
}

#[test]
fn a_wait_that_fails_ends_a_transfer_and_a_finished_one_stays() {
    let mut waiting = transfer(Owed::Exactly(50));
    assert_eq!(waiting.record(Err(Errno::AGAIN)), Step::Wait(Wait::Sink));
    waiting.abandon(Errno::NOMEM);
    let error = waiting.clone().finish().expect_err("abandoned");
    assert_eq!(
        (error.fault, error.errno),
        (Fault::Kernel, Some(Errno::NOMEM))
    );
    assert_eq!(waiting.record(Ok(1)), Step::Failed);
    let mut done = transfer(Owed::Exactly(50));
    assert_eq!(done.record(Ok(50)), Step::Done);
    done.abandon(Errno::NOMEM);
    assert_eq!(done.record(Ok(1)), Step::Done);
    assert_eq!(done.finish().expect("done").bytes(), 50);
    let cancelled = transfer(Owed::Exactly(50)).finish().expect_err("not done");
    assert_eq!(cancelled.fault, Fault::Cancelled);
}

#[test]
fn a_pipe_is_spliced_at_once_and_others_through_one_that_holds_bytes() {
    let of = |from, to| {
        let (source, sink) = (Source::sample(from), Sink::sample(to));
        let only = Policy::only(Mechanism::Splice);
        let plan = plan(&source, &sink, &KernelFacts::default(), &only);
        Transfer::new(&source, &sink, plan)
    };
    let (file, pipe) = (EndpointKind::File, EndpointKind::Pipe);
    for (from, to) in [(pipe, file), (file, pipe)] {
        assert!(matches!(of(from, to).next_op(), Some(Op::Splice { .. })));
    }
    let mut relayed = of(EndpointKind::Tcp, file);
    assert!(matches!(relayed.next_op(), Some(Op::Fill { .. })));
    relayed.record(Ok(20));
    assert_eq!((relayed.held(), relayed.done()), (20, 0));
    relayed.record(Ok(15));
    assert_eq!((relayed.held(), relayed.done()), (5, 15));
    assert_eq!(relayed.finish().expect_err("cancelled").lost, 5);
}

fn between_files(policy: &Policy, to: u64) -> Transfer {
    let source = Source::sample(EndpointKind::File);
    let mut sink = Sink::sample(EndpointKind::File);
    sink.to = to;
    let plan = plan(&source, &sink, &KernelFacts::default(), policy);
    Transfer::new(&source, &sink, plan)
}

#[test]
fn between_files_a_pipe_takes_a_write_and_towards_a_socket_all_it_holds() {
    let only = Policy::only(Mechanism::Splice);
    let source = Source::sample(EndpointKind::File);
    let socket = Sink::sample(EndpointKind::Tcp);
    let planned = plan(&source, &socket, &KernelFacts::default(), &only);
    let into_socket = Transfer::new(&source, &socket, planned);
    let pieces = [
        (between_files(&only, 0), SPLICED_WRITE_BYTES_MAX),
        (into_socket, PIPE_BYTES as u64),
    ];
    for (transfer, piece) in pieces {
        let op = transfer.next_op();
        assert!(
            matches!(op, Some(Op::Fill { len, .. }) if len == piece),
            "{op:?}"
        );
    }
}

#[test]
fn a_sink_is_positioned_once_for_all_calls_of_sendfile() {
    let mut transfer = between_files(&Policy::only(Mechanism::Sendfile), 100);
    assert_eq!(transfer.next_op(), Some(Op::SeekSink { to: 100 }));
    assert_eq!(transfer.record(Ok(100)), Step::Again);
    for at in [0, 20, 40] {
        let op = transfer.next_op();
        assert!(matches!(op, Some(Op::Sendfile { from, .. }) if from == Some(at)));
        assert_eq!(transfer.record(Ok(20)), Step::Again);
    }
}

/// QUIRK(cifs-eio)
#[test]
fn what_failed_to_be_copied_by_the_kernel_is_read_if_that_is_allowed() {
    let mut transfer = between_files(&Policy::default(), 0);
    assert!(matches!(
        transfer.record(Err(Errno::XDEV)),
        Step::Refused(_)
    ));
    assert!(matches!(transfer.next_op(), Some(Op::CopyRange { .. })));
    assert!(matches!(transfer.record(Err(Errno::IO)), Step::Refused(_)));
    let through = RelayBuffer::Buffer;
    assert!(matches!(transfer.next_op(), Some(Op::Fill { through: it, .. }) if it == through));
    let mut only = between_files(&Policy::only(Mechanism::CopyRange), 0);
    assert!(matches!(only.record(Err(Errno::IO)), Step::Refused(_)));
    assert_eq!(only.next_op(), None);
    let error = only.finish().expect_err("refused");
    assert_eq!(
        (error.fault, error.errno),
        (Fault::Refused, Some(Errno::IO))
    );
}

#[test]
fn the_end_of_a_file_is_peeked_at_and_that_of_a_stream_believed() {
    let to_end = |mechanism, kind| {
        let mut source = Source::sample(kind);
        source.owed = Owed::ToEnd;
        let sink = Sink::sample(EndpointKind::File);
        let policy = Policy::default().choice(Choice::Only(mechanism));
        let plan = plan(&source, &sink, &KernelFacts::default(), &policy);
        Transfer::new(&source, &sink, plan)
    };
    for (mechanism, kind) in [
        (Mechanism::ReadWrite, EndpointKind::File),
        (Mechanism::ReadWrite, EndpointKind::Tcp),
        (Mechanism::Splice, EndpointKind::Tcp),
    ] {
        assert_eq!(to_end(mechanism, kind).record(Ok(0)), Step::Done, "{kind}");
    }
    for (peeked, step) in [(0, Step::Done), (1, Step::Failed)] {
        let mut copied = to_end(Mechanism::CopyRange, EndpointKind::File);
        assert_eq!(copied.record(Ok(0)), Step::Again);
        assert_eq!(copied.next_op(), Some(Op::Peek { from: 0 }));
        let got = copied.record(Ok(peeked));
        assert!(got == step || matches!(got, Step::Refused(_)), "{got:?}");
        assert_eq!(copied.account().refusals.len() as u64, peeked);
        assert_eq!(copied.finish().is_ok(), peeked == 0);
    }
}

/// Plays a transfer of `len` bytes of a sparse file of 15,000 bytes.
fn play_sparse(len: u64, to: u64, script: &[(Op, Result<u64, Errno>)]) -> Account {
    let mut source = Source::sample(EndpointKind::File);
    (source.end.size, source.end.allocated) = (15000, 0);
    source.owed = Owed::Exactly(len);
    let mut sink = Sink::sample(EndpointKind::File);
    sink.to = to;
    let only = Policy::only(Mechanism::CopyRange);
    let plan = plan(&source, &sink, &KernelFacts::default(), &only);
    let mut transfer = Transfer::new(&source, &sink, plan);
    for (op, result) in script {
        assert_eq!(transfer.next_op(), Some(*op));
        transfer.record(*result);
    }
    assert_eq!(transfer.next_op(), None);
    transfer.finish().expect("done")
}

fn copied(from: u64, to: u64, len: u64) -> (Op, Result<u64, Errno>) {
    (Op::CopyRange { from, to, len }, Ok(len))
}

fn punched(to: u64, len: u64) -> (Op, Result<u64, Errno>) {
    (Op::Punch { to, len }, Ok(0))
}

#[test]
fn holes_behind_data_are_punched_and_the_last_one_to_the_end_of_its_block() {
    let no_more = (Op::Length(Side::Source), Ok(15000));
    let account = play_sparse(
        15000,
        0,
        &[
            (Op::SeekData { from: 0 }, Ok(100)),
            (Op::SeekHole { from: 100 }, Ok(1000)),
            copied(100, 100, 900),
            (Op::SeekData { from: 1000 }, Ok(5000)),
            punched(1000, 4000),
            (Op::SeekHole { from: 5000 }, Ok(9000)),
            copied(5000, 5000, 4000),
            (Op::SeekData { from: 9000 }, Err(Errno::NXIO)),
            no_more,
            punched(9000, 16384 - 9000),
            (Op::SetLength { len: 15000 }, Ok(0)),
        ],
    );
    assert_eq!((account.bytes(), account.holes), (4900, 10100));
}

#[test]
fn a_range_that_ends_in_a_hole_is_lengthened_by_its_last_byte() {
    let no_more = (Op::Length(Side::Source), Ok(15000));
    let last = (Op::LastByte { at: 12095 }, Ok(1));
    let nothing = (Op::SeekData { from: 0 }, Err(Errno::NXIO));
    let account = play_sparse(8000, 4096, &[nothing, no_more, last]);
    assert_eq!(account.holes, 8000);
    let account = play_sparse(
        8000,
        4096,
        &[
            (Op::SeekData { from: 0 }, Ok(0)),
            (Op::SeekHole { from: 0 }, Ok(1000)),
            copied(0, 4096, 1000),
            (Op::SeekData { from: 1000 }, Err(Errno::NXIO)),
            no_more,
            punched(5096, 7000),
            last,
        ],
    );
    assert_eq!((account.bytes(), account.holes), (1000, 7000));
}

#[test]
fn a_call_moves_no_more_than_its_limit() {
    for (limit, len) in [(0, 1), (20, 20), (u64::MAX, 50)] {
        let mut transfer = transfer(Owed::Exactly(50));
        transfer.limit_calls(limit);
        let op = transfer.next_op();
        assert_eq!(
            op,
            Some(Op::Sendfile {
                from: Some(100),
                len
            }),
            "{limit}"
        );
    }
    let mut endless = transfer(Owed::ToEnd);
    let (from, len) = (Some(100), 4 << 20);
    assert_eq!(endless.next_op(), Some(Op::Sendfile { from, len }));
    endless.limit_calls(u64::MAX);
    let len = KERNEL_CALL_BYTES_MAX;
    assert_eq!(
        endless.next_op(),
        Some(Op::Sendfile {
            from: Some(100),
            len
        })
    );
}
