//! Transfers in turns survive the loss of their futures: each is dropped wherever it has to wait,
//! and the next one continues.

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::pin::pin;
use std::task::Poll;

use underpass::drive::tokio::{FileReceiver, FileSender, Sender, Turn};
use underpass::limits::TURN_BYTES_MIN;
use underpass::{Fault, Kernel, Mechanism, Outbox, Piece, Policy};

use underpass_testkit::{self as testkit, SeededRandom, assert_same, within};

use super::ends::{Mode, content_of, file, file_of, set_mode, tcp, unix};
use super::event_loop::{cool, range, reader, recv_file, runtime, send_file, stream};

/// Polls a future once and drops it; returns its output if it was ready.
async fn polled_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Repeats turns until `$turn` returns `Empty`, dropping each where it waits; returns the number
/// dropped.
macro_rules! interrupted {
    ($turn:expr) => {{
        let mut dropped = 0;
        loop {
            match polled_once($turn).await {
                Some(Ok(Turn::More)) => (),
                Some(Ok(Turn::Empty)) => break Ok(dropped),
                Some(Err(error)) => break Err(error),
                None => {
                    dropped += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
    }};
}

/// Writes in pieces of many sizes.
fn fed(mut to: impl Write + Send + 'static, content: Vec<u8>, seed: u64) {
    std::thread::spawn(move || {
        let (mut random, mut rest) = (SeededRandom::new(seed), &content[..]);
        while !rest.is_empty() {
            let piece = 1 + random.below(200_000).min(rest.len() as u64 - 1) as usize;
            to.write_all(&rest[..piece]).expect("writes");
            rest = &rest[piece..];
        }
    });
}

#[test]
fn a_body_is_received_whole_however_often_a_turn_is_dropped() {
    within(|| {
        const LEN: usize = 3_000_001;
        let body = testkit::content(70, LEN);
        for seed in 0..16 {
            let (ours, theirs) = tcp();
            let first = [0, 1, 5000, 200_000][seed as usize % 4];
            let mut sent = body[first..].to_vec();
            sent.extend_from_slice(b"the next message");
            fed(theirs, sent, seed);
            let (to, mut kept) = (file(), ours.try_clone().expect("a clone"));
            let bytes_max = [1, 70_000, TURN_BYTES_MIN, u64::MAX][seed as usize / 4 % 4];
            let (account, dropped) = runtime().block_on(async {
                let (socket, kernel) = (stream(ours), Kernel::probe());
                let receiver = FileReceiver::new(&to, 7, LEN as u64);
                let mut receiver = receiver.expect("a receiver");
                assert_eq!(receiver.push(&body[..first]), first);
                let dropped = interrupted!(receiver.turn(&socket, &kernel, bytes_max));
                assert_eq!(receiver.left(), 0);
                (receiver.into_account(), dropped.expect("receives"))
            });
            assert!(dropped > 0, "seed {seed}");
            assert_eq!(account.bytes(), LEN as u64, "seed {seed}: {account}");
            assert_eq!(
                account.of(Mechanism::ReadWrite).bytes,
                first as u64,
                "{account}"
            );
            assert_same(&content_of(&to)[7..], &body, "the body");
            set_mode(&kept, Mode::Blocking);
            let mut rest = String::new();
            kept.read_to_string(&mut rest).expect("reads");
            assert_eq!(rest, "the next message", "seed {seed}");
        }
    });
}

#[test]
fn more_was_received_with_the_head_than_the_body_has() {
    let to = file();
    let mut receiver = FileReceiver::new(&to, 0, 4).expect("a receiver");
    assert_eq!(receiver.push(b"body and the next head"), 4);
    assert_eq!((receiver.left(), receiver.account().bytes()), (4, 0));
    let (ours, _theirs) = unix();
    runtime().block_on(async {
        set_mode(&ours, Mode::Polling);
        let socket = tokio::net::UnixStream::from_std(ours).expect("a stream");
        let kernel = Kernel::unprobed();
        let turn = receiver.turn(&socket, &kernel, 1).await;
        assert_eq!(turn.expect("writes"), Turn::Empty);
        assert_eq!((receiver.left(), receiver.account().bytes()), (0, 4));
    });
    assert_eq!(content_of(&to), b"body");
}

#[test]
fn a_body_that_ends_early_stays_an_error() {
    within(|| {
        let (ours, theirs) = tcp();
        fed(theirs, testkit::content(71, 400_000), 1);
        let to = file();
        runtime().block_on(async {
            let (socket, kernel) = (stream(ours), Kernel::probe());
            let mut receiver = FileReceiver::new(&to, 0, 400_001).expect("a receiver");
            let turns = interrupted!(receiver.turn(&socket, &kernel, TURN_BYTES_MIN));
            let error = turns.expect_err("one byte is missing");
            assert_eq!(error.fault, Fault::Truncated, "{error}");
            assert_eq!((error.moved(), receiver.left()), (400_000, 1), "{error}");
            let again = receiver.run(&socket, &kernel).await.expect_err("still is");
            assert_eq!((again.fault, again.moved()), (Fault::Truncated, 400_000));
        });
        assert_same(
            &content_of(&to),
            &testkit::content(71, 400_000),
            "what came",
        );
    });
}

#[test]
fn a_cold_file_is_sent_whole_however_often_a_turn_is_dropped() {
    within(|| {
        let content = testkit::content(72, 3_000_001);
        let from = file_of(&content);
        for mechanism in [Mechanism::Sendfile, Mechanism::Splice, Mechanism::ReadWrite] {
            cool(&from);
            let (ours, theirs) = tcp();
            rustix::net::sockopt::set_socket_send_buffer_size(&ours, 1).expect("a small buffer");
            let reader = reader(theirs);
            let account = runtime().block_on(async {
                let (socket, kernel) = (stream(ours), Kernel::probe());
                let sender = FileSender::new(&from, 1, 3_000_000).expect("a sender");
                let mut sender = sender.policy(Policy::only(mechanism));
                let dropped = interrupted!(sender.turn(&socket, &kernel, TURN_BYTES_MIN));
                assert!(dropped.expect("sends") > 0, "{mechanism}");
                sender.into_account()
            });
            assert_same(
                &reader.join().expect("reads"),
                &content[1..],
                mechanism.name(),
            );
            assert_eq!(account.of(mechanism).bytes, 3_000_000, "{account}");
        }
    });
}

#[test]
fn an_outbox_is_sent_whole_however_often_a_turn_is_dropped() {
    within(|| {
        let content = testkit::content(73, 1_000_000);
        let file = file_of(&content);
        let (ours, theirs) = tcp();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 1).expect("a small buffer");
        let reader = reader(theirs);
        let (mut outbox, mut expected, mut random) =
            (Outbox::new(), Vec::new(), SeededRandom::new(73));
        for _ in 0..20 {
            let (head, len) = (random.below(20_000), random.below(300_000));
            let offset = random.below(700_000);
            expected.extend_from_slice(&content[..head as usize]);
            expected.extend_from_slice(&content[offset as usize..(offset + len) as usize]);
            outbox.push(Piece::Bytes(content[..head as usize].to_vec()));
            outbox.push(range(&file, offset, len));
        }
        runtime().block_on(async {
            let (socket, kernel, policy) = (stream(ours), Kernel::probe(), Policy::default());
            let mut sender = Sender::new();
            let turns =
                interrupted!(sender.turn(&mut outbox, &socket, &kernel, &policy, TURN_BYTES_MIN));
            assert!(turns.expect("sends") > 0);
        });
        assert_same(
            &reader.join().expect("reads"),
            &expected,
            "heads and ranges",
        );
        assert_eq!(outbox.sent_bytes(), expected.len() as u64);
    });
}

#[test]
fn references_and_halves_are_streams() {
    within(|| {
        let content = testkit::content(74, 500_000);
        let (from, to) = (file_of(&content), [file(), file()]);
        let (one, other) = tcp();
        runtime().block_on(async {
            let (mut one, other, kernel) = (stream(one), stream(other), Kernel::probe());
            let ((reads, writes), referred) = (other.into_split(), &one);
            let (sent, got) = tokio::join!(
                send_file(&kernel, &from, 0, 500_000, &writes),
                recv_file(&kernel, &referred, &to[0], 0, 500_000),
            );
            assert_eq!(sent.expect("sends").bytes(), got.expect("receives").bytes());
            let (_, writes) = one.split();
            let (sent, got) = tokio::join!(
                send_file(&kernel, &from, 0, 500_000, &writes),
                recv_file(&kernel, &reads, &to[1], 0, 500_000),
            );
            assert_eq!(sent.expect("sends").bytes(), got.expect("receives").bytes());
        });
        to.iter()
            .for_each(|to| assert_same(&content_of(to), &content, "received"));
    });
}
