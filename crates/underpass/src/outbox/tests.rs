use super::*;
use crate::Unsent;

fn range(offset: u64, len: u64) -> Piece {
    let file = SharedFile::new(tempfile::tempfile().expect("a file").into());
    Piece::Range(FileRange { file, offset, len })
}

fn content(bytes: &[u8]) -> Piece {
    Piece::Content(Arc::new(bytes.to_vec()))
}

fn outbox(pieces: impl IntoIterator<Item = Piece>) -> Outbox {
    let mut outbox = Outbox::new();
    pieces.into_iter().for_each(|piece| outbox.push(piece));
    outbox
}

/// Returns the step that is due, as a word and a number.
fn due(outbox: &Outbox, policy: &Policy) -> Option<(&'static str, u64)> {
    Some(match outbox.due(policy)? {
        Due::Send(parts, more) => {
            let word = match more {
                MsgMore::Set => "more",
                MsgMore::Unset => "send",
            };
            (word, parts.concat().len() as u64)
        }
        Due::Load => ("load", 0),
        Due::Range(range) => ("range", range.len),
    })
}

fn send(outbox: &mut Outbox, bytes: u64) {
    let waits = outbox.sent(Ok(bytes), Waits::Polls);
    assert_eq!(waits.expect("sent"), None);
}

const AUTO: Policy = Policy {
    choice: crate::Choice::Auto,
    cloning: crate::Cloning::Auto,
    holes: crate::Holes::Keep,
    aliasing: crate::Aliasing::Accepted,
};

#[test]
fn pieces_are_due_in_order_and_the_last_one_lets_go() {
    let large = JOINED_BYTES_MAX;
    let mut outbox = outbox([
        Piece::Bytes(b"head".to_vec()),
        range(5, large),
        Piece::Bytes(Vec::new()),
        range(0, 0),
        Piece::Bytes(b"tail".to_vec()),
    ]);
    assert_eq!(due(&outbox, &AUTO), Some(("more", 4)));
    send(&mut outbox, 3);
    assert_eq!(due(&outbox, &AUTO), Some(("more", 1)));
    assert!(!outbox.is_empty());
    send(&mut outbox, 1);
    assert_eq!(due(&outbox, &AUTO), Some(("range", large)));
    let mut moved = Account::default();
    moved.record(Mechanism::Sendfile, large - 10, 1);
    moved.holes = 3;
    outbox.moved(&moved);
    assert!(
        matches!(outbox.due(&AUTO), Some(Due::Range(r)) if (r.offset, r.len) == (large - 2, 7))
    );
    moved.holes = 0;
    moved = Account::default();
    moved.record(Mechanism::Splice, 7, 1);
    outbox.ended(Ok(moved)).expect("ended");
    assert_eq!(due(&outbox, &AUTO), Some(("send", 4)));
    assert_eq!(
        (outbox.sent_bytes(), outbox.stats.bytes),
        (4 + large - 3, 4)
    );
    send(&mut outbox, 4);
    assert!(outbox.is_empty() && outbox.due(&AUTO).is_none());
    assert_eq!(outbox.account().bytes() + outbox.account().holes, large);
    assert_eq!(outbox.take_account().bytes(), large - 3);
    assert_eq!(outbox.take_send_stats().bytes, 8);
    assert_eq!(outbox.sent_bytes(), 0);
}

#[test]
fn a_body_joins_its_head_up_to_the_bound_and_never_a_head_that_has_begun() {
    let of = |head: usize, body: u64| outbox([Piece::Bytes(vec![7; head]), range(0, body)]);
    let most = JOINED_BYTES_MAX - 10;
    assert_eq!(due(&of(10, most), &AUTO), Some(("load", 0)));
    assert_eq!(due(&of(10, most + 1), &AUTO), Some(("more", 10)));
    assert_eq!(of(10, most - 5).joining(&AUTO, 5), Joining::Joined);
    assert_eq!(of(10, most - 5).joining(&AUTO, 6), Joining::Apart);
    assert_eq!(of(10, most).joining(&AUTO, u64::MAX), Joining::Apart);
    let sendfile = Policy::only(Mechanism::Sendfile);
    assert_eq!(due(&of(10, 10), &sendfile), Some(("more", 10)));
    assert_eq!(
        due(&of(10, 10).joined_bytes_max(19), &AUTO),
        Some(("more", 10))
    );
    assert_eq!(
        due(&of(10, 10).joined_bytes_max(20), &AUTO),
        Some(("load", 0))
    );
    let mut begun = of(10, 10);
    send(&mut begun, 1);
    assert_eq!(due(&begun, &AUTO), Some(("more", 9)));
    let before_ranges = outbox([range(0, 10), range(0, 10)]);
    assert_eq!(due(&before_ranges, &AUTO), Some(("range", 10)));
    let behind_bytes = outbox([Piece::Bytes(vec![7; 3]), Piece::Bytes(vec![7; 4])]);
    assert_eq!(due(&behind_bytes, &AUTO), Some(("more", 3)));
}

#[test]
fn a_body_is_read_behind_its_head_as_far_as_it_comes() {
    let mut outbox = outbox([Piece::Bytes(b"head".to_vec()), range(100, 6)]);
    let cold = outbox.load(|_, buffer, from| {
        assert_eq!((buffer.len(), from), (6, 100));
        None
    });
    assert!(matches!(cold, Ok(Loaded::Cold(range)) if (range.offset, range.len) == (100, 6)));
    let read = |outbox: &mut Outbox, bytes: &'static [u8]| {
        let loaded = outbox.load(|_, buffer, _| {
            buffer[..bytes.len()].copy_from_slice(bytes);
            Some(Ok(bytes.len()))
        });
        assert!(matches!(loaded, Ok(Loaded::Some)));
    };
    read(&mut outbox, b"bo");
    assert!(matches!(
        outbox.load(|_, _, _| Some(Err(Errno::INTR))),
        Ok(Loaded::Some)
    ));
    let body = outbox.pieces().nth(2).expect("a body");
    assert!(matches!(body, Piece::Range(r) if (r.offset, r.len) == (102, 4)));
    read(&mut outbox, b"dies");
    assert!(matches!(
        outbox.due(&AUTO),
        Some(Due::Send([b"head", b"bodies"], MsgMore::Unset))
    ));
    send(&mut outbox, 10);
    let account = outbox.take_account();
    let usage = account.of(Mechanism::ReadWrite);
    assert_eq!((usage.bytes, usage.calls, outbox.stats.bytes), (6, 4, 4));
}

#[test]
fn reading_a_body_fails_by_the_table() {
    for (read, fault) in [
        (Ok(0), Fault::Truncated),
        (Err(Errno::IO), Fault::Source),
        (Err(Errno::NOMEM), Fault::Kernel),
        (Err(Errno::AGAIN), Fault::Source),
    ] {
        let mut outbox = outbox([Piece::Bytes(vec![7]), range(0, 6)]);
        let error = outbox.load(|_, _, _| Some(read)).expect_err("fails");
        assert_eq!((error.fault, error.errno), (fault, read.err()), "{read:?}");
    }
}

/// A driver that takes the wrong step, or reports more bytes than there are.
#[test]
fn what_is_not_due_changes_nothing() {
    let mut begun = outbox([Piece::Bytes(b"head".to_vec()), range(0, 6)]);
    send(&mut begun, 1);
    let mut large = outbox([Piece::Bytes(b"head".to_vec()), range(0, u64::MAX)]);
    let mut alone = outbox([Piece::Bytes(b"head".to_vec())]);
    for outbox in [
        &mut begun,
        &mut large,
        &mut alone,
        &mut outbox([range(0, 6)]),
    ] {
        let before = format!("{:?}", outbox.pieces);
        let loaded = outbox.load(|_, _, _| panic!("nothing is read"));
        assert!(matches!(loaded, Ok(Loaded::Some)));
        assert_eq!(format!("{:?}", outbox.pieces), before);
    }
    let mut short = outbox([Piece::Bytes(b"head".to_vec()), range(0, 6)]);
    short
        .load(|_, _, _| Some(Ok(usize::MAX)))
        .expect("all of it");
    assert_eq!(due(&short, &AUTO), Some(("send", 10)));
    send(&mut short, u64::MAX);
    assert!(short.is_empty());
    assert_eq!(short.sent_bytes(), 10);
    send(&mut short, 5);
    short.advance(5, 0);
    assert_eq!(short.sent_bytes(), 10);
}

#[test]
fn absurd_numbers_are_no_panic() {
    const MAX: u64 = u64::MAX;
    let mut outbox = outbox([Piece::Bytes(vec![7]), range(MAX, MAX), range(1, MAX)]);
    assert_eq!(outbox.joining(&AUTO, MAX), Joining::Apart);
    let unsent: Vec<_> = outbox.unsent(11).collect();
    assert!(matches!(unsent[..], [
        Unsent::Range { offset: MAX, len, .. },
        Unsent::Range { offset: 1, len: MAX, .. },
    ] if len == MAX - 10));
    assert_eq!(outbox.unsent(MAX).count(), 2);
    outbox.advance(MAX, MAX);
    outbox.advance(MAX, MAX);
    outbox.advance(MAX, MAX);
    assert!(outbox.is_empty());
    assert_eq!(outbox.sent_bytes(), MAX);
    outbox.waited_for_disk(Duration::MAX);
    outbox.waited_for_disk(Duration::MAX);
    assert_eq!(outbox.take_send_stats().cold_time, Duration::MAX);
    let mut greedy = Outbox::new().joined_bytes_max(MAX);
    greedy.push(Piece::Bytes(vec![7]));
    greedy.push(range(0, 1 << 60));
    let loaded = greedy.load(|_, buffer, _| Some(Ok(buffer.len())));
    assert!(matches!(loaded, Ok(Loaded::Some)));
    let body = greedy.pieces().nth(2).expect("the rest");
    assert_eq!(body.len(), (1 << 60) - BUFFER_BYTES as u64);
}

#[test]
fn a_head_can_gain_bytes_and_lose_none() {
    let amended = |amend: fn(&mut Vec<u8>)| {
        let mut outbox = outbox([Piece::Bytes(b"head".to_vec()), content(b":body")]);
        outbox.amend_head(amend);
        send(&mut outbox, 1);
        outbox.amend_head(|head| head.push(b'!'));
        let Some(Due::Send([head, content], _)) = outbox.due(&AUTO) else {
            panic!("bytes are due");
        };
        let bytes = [b"h", head, content].concat();
        send(&mut outbox, 100);
        (bytes, outbox.stats.bytes)
    };
    let insert = |bytes: &mut Vec<u8>| drop(bytes.splice(2..2, *b"--"));
    assert_eq!(amended(insert), (b"he--ad:body".to_vec(), 6));
    let change = |bytes: &mut Vec<u8>| bytes[1] = b'E';
    assert_eq!(amended(change), (b"hEad:body".to_vec(), 4));
    let loses: [fn(&mut Vec<u8>); 2] = [Vec::clear, |bytes| bytes.truncate(3)];
    for lose in loses {
        assert_eq!(amended(lose), (b"head:body".to_vec(), 4));
    }
    let mut ranges = outbox([range(0, 1), Piece::Bytes(b"head".to_vec())]);
    ranges.amend_head(|_| panic!("a range has no head"));
}

#[test]
fn what_was_sent_counts_as_head_or_payload() {
    let mut outbox = outbox([
        Piece::Bytes(b"head:".to_vec()),
        content(b"body"),
        range(0, 3),
        Piece::Bytes(vec![7; 2]),
    ])
    .joined_bytes_max(0);
    assert_eq!(due(&outbox, &AUTO), Some(("more", 9)));
    send(&mut outbox, 3);
    assert_eq!((outbox.stats.bytes, outbox.account.bytes()), (3, 0));
    send(&mut outbox, 3);
    assert_eq!((outbox.stats.bytes, outbox.account.bytes()), (5, 1));
    assert!(matches!(
        outbox.due(&AUTO),
        Some(Due::Send([b"ody", b""], MsgMore::Set))
    ));
    send(&mut outbox, 1);
    outbox.advance(3, 2);
    assert_eq!((outbox.stats.bytes, outbox.account.bytes()), (5, 5));
    assert_eq!(due(&outbox, &AUTO), Some(("range", 2)));
    outbox.advance(3, 1);
    assert_eq!((outbox.stats.bytes, outbox.account.bytes()), (6, 7));
    assert_eq!(outbox.account.of(Mechanism::ReadWrite).calls, 3 + 3);
    assert_eq!(outbox.pieces().count(), 1);
}

/// Only content that immediately follows a head leaves with it, and a body is never read into
/// content that is shared with others.
#[test]
fn content_leaves_with_its_head_and_is_not_changed() {
    let shared = Arc::new(b"kept".to_vec());
    let mut outbox = outbox([
        content(b"first"),
        Piece::Bytes(b"head".to_vec()),
        Piece::Content(Arc::clone(&shared)),
        range(0, 2),
    ]);
    assert_eq!(due(&outbox, &AUTO), Some(("more", 5)));
    send(&mut outbox, 5);
    let read = |_: &SharedFile, buffer: &mut [u8], _| {
        buffer.copy_from_slice(b"!!");
        Some(Ok(2))
    };
    assert!(matches!(outbox.load(read), Ok(Loaded::Some)));
    assert!(matches!(
        outbox.due(&AUTO),
        Some(Due::Send([b"head", b"kept!!"], MsgMore::Unset))
    ));
    assert_eq!(*shared, b"kept");
    send(&mut outbox, u64::MAX);
    assert!(outbox.is_empty());
}

#[test]
fn what_is_unsent_begins_behind_what_is_sent_and_skipped() {
    let mut outbox = outbox([
        Piece::Bytes(b"head".to_vec()),
        range(100, 20),
        content(b"second"),
    ]);
    send(&mut outbox, 1);
    let unsent = |skipped| -> Vec<String> {
        let parts = outbox.unsent(skipped).map(|part| match part {
            Unsent::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Unsent::Range { offset, len, .. } => format!("{len} at {offset}"),
        });
        parts.collect()
    };
    assert_eq!(unsent(0), ["ead", "20 at 100", "second"]);
    assert_eq!(unsent(2), ["d", "20 at 100", "second"]);
    assert_eq!(unsent(3), ["20 at 100", "second"]);
    assert_eq!(unsent(10), ["13 at 107", "second"]);
    assert_eq!(unsent(25), ["cond"]);
    assert!(unsent(29).is_empty());
}

#[test]
fn sending_waits_or_fails_by_the_table() {
    let mut outbox = outbox([Piece::Bytes(b"head".to_vec())]);
    let mut sent = |result, waits| outbox.sent(result, waits);
    let again = Err(Errno::AGAIN);
    assert_eq!(sent(again, Waits::Polls).expect("waits"), Some(Wait::Sink));
    assert_eq!(sent(Err(Errno::INTR), Waits::Polls).expect("again"), None);
    for (result, waits, fault) in [
        (again, Waits::Blocks, Fault::TimedOut),
        (Err(Errno::PIPE), Waits::Polls, Fault::PeerGone),
        (Err(Errno::IO), Waits::Polls, Fault::Sink),
        (Ok(0), Waits::Polls, Fault::Sink),
    ] {
        let error = sent(result, waits).expect_err("fails");
        assert_eq!((error.fault, error.errno), (fault, result.err()));
        assert_eq!(error.mechanism, Some(Mechanism::ReadWrite));
    }
}

#[test]
fn an_error_of_a_range_has_the_account_of_the_outbox() {
    let mut outbox = outbox([Piece::Bytes(b"head".to_vec()), range(0, 100)]);
    outbox.advance(14, 1);
    let mut moved = Account::default();
    moved.record(Mechanism::Sendfile, 50, 1);
    let mut error = outbox.error(Fault::Truncated, None);
    *error.account = moved;
    let error = outbox.ended(Err(error)).expect_err("the same");
    assert_eq!((error.moved(), error.fault), (60, Fault::Truncated));
    assert_eq!(due(&outbox, &AUTO), Some(("range", 40)));
}

#[cfg(feature = "tokio")]
#[test]
fn the_first_range_may_stand_behind_heads() {
    let heads = [Piece::Bytes(vec![7; 3]), content(b"body")];
    assert!(outbox(heads.clone()).first_range().is_none());
    let outbox = outbox(heads.into_iter().chain([range(1, 2), range(3, 4)]));
    let first = outbox.first_range().expect("a range");
    assert_eq!((first.offset, first.len), (1, 2));
}

#[test]
fn waits_for_the_disk_add_up() {
    let mut outbox = Outbox::new();
    outbox.waited_for_disk(Duration::from_secs(1));
    outbox.waited_for_disk(Duration::from_secs(2));
    let stats = outbox.take_send_stats();
    assert_eq!(
        (stats.cold_reads, stats.cold_time),
        (2, Duration::from_secs(3))
    );
}

#[test]
fn a_head_that_was_sent_leaves_its_buffer_unless_it_is_large_or_more_follows() {
    let mut followed = outbox([
        Piece::Bytes(b"head".to_vec()),
        Piece::Bytes(b"more".to_vec()),
    ]);
    send(&mut followed, 4);
    assert_eq!(followed.spare().capacity(), 0);
    let before_a_range = [
        Piece::Bytes(b"head".to_vec()),
        content(b"body"),
        range(0, 9),
    ];
    let mut followed = outbox(before_a_range);
    send(&mut followed, 8);
    assert_eq!(followed.spare().capacity(), 0);
    let mut both = outbox([Piece::Bytes(Vec::from(b"head")), content(b"body")]);
    send(&mut both, 8);
    assert_ne!(both.spare().capacity(), 0);
    for (capacity, kept) in [(SPARE_BYTES_MAX, SPARE_BYTES_MAX), (SPARE_BYTES_MAX + 1, 0)] {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(7);
        let capacity = bytes.capacity();
        let mut outbox = outbox([Piece::Bytes(bytes)]);
        send(&mut outbox, 1);
        let spare = outbox.spare();
        assert!(spare.is_empty());
        assert_eq!(spare.capacity(), capacity.min(kept));
        assert_eq!(outbox.spare().capacity(), 0, "there is one only");
    }
}
