//! Heads and ranges in one outbox, sent by either driver: the stream is their concatenation, the
//! account that of the ranges.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::ioctl_fionread;
use underpass::drive::tokio::{Sender, Turn, read_cached};
use underpass::limits::{CORKED_BYTES_MIN_UNDER_BBR, JOINED_BYTES_MAX};
use underpass::{Account, Error, Fault, Kernel, Mechanism, Outbox, Piece, Policy, SharedFile};

use underpass_testkit::{self as testkit, SeededRandom, assert_same, within};

use super::drivers::flush;
use super::ends::{Mode, file_of, memory, set_mode, tcp};
use super::event_loop::{cool, first_to_tcp, range, reader, runtime, short_turn, stream};

/// The driver that sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Driven {
    Blocking,
    ByTokio,
    /// The same, to the end of the stream.
    ToTheEnd,
}

const DRIVEN: [Driven; 3] = [Driven::Blocking, Driven::ByTokio, Driven::ToTheEnd];

/// Sends the contents of the outbox; returns the received bytes and the result.
fn sent(driven: Driven, outbox: &mut Outbox, policy: Policy) -> (Vec<u8>, Result<(), Error>) {
    let (ours, theirs) = tcp();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 20_000).expect("a small buffer");
    let reader = reader(theirs);
    let kernel = Kernel::unprobed();
    let outcome = match driven {
        Driven::Blocking => flush(outbox, &ours, &kernel, policy),
        Driven::ByTokio | Driven::ToTheEnd => runtime().block_on(async {
            let socket = stream(ours.try_clone().expect("a clone"));
            let mut sender = Sender::new();
            if driven == Driven::ToTheEnd {
                sender.end_follows();
            }
            loop {
                match short_turn(&mut sender, outbox, &socket, &kernel, policy).await {
                    Ok(Turn::More) => (),
                    Ok(Turn::Empty) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }),
    };
    drop(ours);
    (reader.join().expect("reads"), outcome)
}

fn heads_and_ranges(
    random: &mut SeededRandom,
    file: &File,
    content: &[u8],
) -> (Outbox, Vec<u8>, u64) {
    let (mut outbox, mut expected, mut payload) = (Outbox::new(), Vec::new(), 0);
    for _ in 0..random.below(12) {
        let len = match random.below(5) {
            0 => 0,
            1 => random.below(100),
            2 => random.below(16 << 10),
            3 => random.below(40_000),
            _ => random.below(2_500_000),
        };
        if random.below(2) == 0 {
            let head = testkit::content(random.next_u64(), len as usize % 30_000);
            expected.extend_from_slice(&head);
            outbox.push(Piece::Bytes(head));
        } else {
            let offset = random.below(content.len() as u64 - len);
            expected.extend_from_slice(&content[offset as usize..(offset + len) as usize]);
            outbox.push(range(file, offset, len));
            payload += len;
        }
    }
    (outbox, expected, payload)
}

#[test]
fn heads_and_ranges_arrive_in_order() {
    within(|| {
        let content = testkit::content(50, 3_000_000);
        let file = file_of(&content);
        for driven in DRIVEN {
            for seed in 0..25 {
                let what = format!("{driven:?}, seed {seed}");
                let mut random = SeededRandom::new(seed);
                let (mut outbox, expected, payload) =
                    heads_and_ranges(&mut random, &file, &content);
                let (got, outcome) = sent(driven, &mut outbox, Policy::default());
                outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_same(&got, &expected, &what);
                assert!(outbox.is_empty());
                assert_eq!(outbox.account().bytes(), payload, "{what}");
            }
        }
    });
}

fn account_of(driven: Driven, pieces: Vec<Piece>) -> (Vec<u8>, Account) {
    let mut outbox = Outbox::new();
    pieces.into_iter().for_each(|piece| outbox.push(piece));
    let (got, outcome) = sent(driven, &mut outbox, Policy::default());
    outcome.expect("sends");
    (got, outbox.take_account())
}

#[test]
fn a_small_body_joins_its_head_and_a_large_one_is_sent_by_sendfile() {
    within(|| {
        let content = testkit::content(51, 1 << 20);
        let file = file_of(&content);
        for driven in DRIVEN {
            let most = JOINED_BYTES_MAX - 4;
            for (len, joins) in [(1, true), (most, true), (most + 1, false), (1 << 20, false)] {
                let head = Piece::Bytes(b"head".to_vec());
                let (got, account) = account_of(driven, vec![head, range(&file, 0, len)]);
                assert_same(&got[4..], &content[..len as usize], "the body");
                let crossed = if joins { len } else { 0 };
                assert_eq!(account.crossed(), crossed, "{driven:?} {len}: {account}");
                assert_eq!(account.bytes(), len, "{driven:?} {len}: {account}");
            }
        }
    });
}

#[test]
fn the_line_between_small_and_large_can_be_moved_and_a_policy_has_none() {
    within(|| {
        let content = testkit::content(53, 1 << 20);
        let file = file_of(&content);
        let everywhere = Policy::default();
        let none = Policy::only(Mechanism::Sendfile);
        for (max, len, policy, joins) in [
            (0, 1, everywhere, false),
            (100, 96, everywhere, true),
            (100, 97, everywhere, false),
            (1 << 20, 300_000, everywhere, true),
            (1 << 20, 300_000, none, false),
        ] {
            let mut outbox = Outbox::new().joined_bytes_max(max);
            outbox.push(Piece::Bytes(b"head".to_vec()));
            outbox.push(range(&file, 0, len));
            let (got, ended) = sent(Driven::ByTokio, &mut outbox, policy);
            ended.expect("sends");
            assert_same(&got[4..], &content[..len as usize], "the body");
            let (account, crossed) = (outbox.take_account(), if joins { len } else { 0 });
            assert_eq!(account.crossed(), crossed, "{max} {len}: {account}");
        }
    });
}

/// A body that joined its head must not pull the next one into memory, whatever its size.
#[test]
fn a_range_behind_a_joined_body_is_not_read_into_memory() {
    within(|| {
        let content = testkit::content(52, 3_000_000);
        let file = file_of(&content);
        for driven in DRIVEN {
            let head = Piece::Bytes(b"head".to_vec());
            let pieces = vec![head, range(&file, 0, 1000), range(&file, 1000, 2_999_000)];
            let (got, account) = account_of(driven, pieces);
            assert_same(&got[4..], &content, "both ranges");
            assert_eq!(account.crossed(), 1000, "{driven:?}: {account}");
            let moved = account.of(first_to_tcp(2_999_000)).bytes;
            assert_eq!(moved, 2_999_000, "{driven:?}");
        }
    });
}

/// A head sent with MSG_MORE before an empty body stays for 200 ms, every time. Otherwise it has
/// arrived before the receiver waits, unless the machine is slow.
#[test]
fn an_empty_body_holds_no_head_back() {
    within(|| {
        for driven in [Driven::Blocking, Driven::ByTokio] {
            let at_once = (0..20).filter(|_| head_arrives_at_once(driven)).count();
            assert!(at_once >= 15, "{driven:?}: {at_once} of 20");
        }
    });
}

fn head_arrives_at_once(driven: Driven) -> bool {
    let (file, (ours, mut theirs)) = (file_of(b""), tcp());
    let mut outbox = Outbox::new();
    outbox.push(Piece::Bytes(b"head".to_vec()));
    outbox.push(range(&file, 0, 0));
    outbox.push(Piece::Bytes(Vec::new()));
    let patience = Some(Duration::from_millis(150));
    theirs.set_read_timeout(patience).expect("a timeout");
    match driven {
        Driven::Blocking => {
            flush(&mut outbox, &ours, &Kernel::unprobed(), Policy::default()).expect("sends");
        }
        Driven::ByTokio | Driven::ToTheEnd => runtime().block_on(async {
            let (socket, kernel) = (stream(ours.try_clone().expect("a clone")), Kernel::probe());
            let mut sender = Sender::new();
            if driven == Driven::ToTheEnd {
                sender.end_follows();
            }
            let left = short_turn(
                &mut sender,
                &mut outbox,
                &socket,
                &kernel,
                Policy::default(),
            )
            .await;
            assert_eq!(left.expect("sends"), Turn::Empty);
        }),
    }
    if driven == Driven::ToTheEnd {
        let arrived = ioctl_fionread(&theirs).expect("a number");
        drop(ours);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).expect("reads");
        assert_eq!(got, b"head");
        return arrived > 0;
    }
    let mut got = [0; 4];
    theirs.read_exact(&mut got).is_ok() && &got == b"head"
}

#[test]
fn what_is_last_leaves_with_the_end_of_the_stream() {
    within(|| {
        let at_once = (0..20)
            .filter(|_| head_arrives_at_once(Driven::ToTheEnd))
            .count();
        assert!(at_once <= 5, "{at_once} of 20");
    });
}

/// Returns whether the socket was corked after its first turn, and after its last one. The peer
/// reads when the first turn is over.
fn corked(congestion: &str, policy: Policy, len: u64) -> (bool, bool) {
    let (ours, theirs) = tcp();
    rustix::net::sockopt::set_tcp_congestion(&ours, congestion).expect("congestion control");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(len).expect("a length");
    let mut outbox = Outbox::new();
    outbox.push(range(&file, 0, len));
    let (seen, got) = runtime().block_on(async {
        let (socket, kernel) = (stream(ours.try_clone().expect("a clone")), Kernel::probe());
        let is_corked = || rustix::net::sockopt::tcp_cork(&ours).expect("an option");
        let mut sender = Sender::new();
        let mut turn =
            async || short_turn(&mut sender, &mut outbox, &socket, &kernel, policy).await;
        assert_eq!(turn().await.expect("sends"), Turn::More);
        let between = is_corked();
        let got = std::thread::spawn(move || {
            std::io::copy(&mut { theirs }, &mut std::io::sink()).expect("reads")
        });
        while turn().await.expect("sends") == Turn::More {}
        ((between, is_corked()), got)
    });
    drop(ours);
    assert_eq!(got.join().expect("reads"), len);
    seen
}

#[test]
fn turns_end_in_full_packets_and_the_last_one_leaves_at_once() {
    for policy in policies() {
        assert_eq!(corked("reno", policy, 1 << 20), (true, false), "{policy:?}");
    }
}

/// Returns every mechanism that may send a range of a file, together and alone.
fn policies() -> [Policy; 4] {
    let [sendfile, splice, read_write] =
        [Mechanism::Sendfile, Mechanism::Splice, Mechanism::ReadWrite].map(Policy::only);
    [Policy::default(), sendfile, splice, read_write]
}

#[test]
#[ignore = "needs bbr; run by cargo xtask test"]
fn large_ranges_under_bbr() {
    for policy in policies() {
        for (len, is_large) in [
            (CORKED_BYTES_MIN_UNDER_BBR - 1, false),
            (CORKED_BYTES_MIN_UNDER_BBR, true),
        ] {
            assert_eq!(corked("bbr", policy, len), (is_large, false), "{policy:?}");
        }
    }
}

#[test]
fn a_file_that_ends_early_is_truncated_with_an_exact_account() {
    within(|| {
        let content = testkit::content(53, 100_000);
        let file = file_of(&content);
        for driven in DRIVEN {
            for (offset, len) in [(0, 100_001), (0, 4 << 20), (99_000, 2000), (200_000, 10)] {
                let there = 100_000_u64.saturating_sub(offset).min(len);
                let what = format!("{driven:?}, {len} from {offset}");
                let mut outbox = Outbox::new();
                outbox.push(range(&file, 0, 50_000));
                outbox.push(Piece::Bytes(b"head".to_vec()));
                outbox.push(range(&file, offset, len));
                let (got, outcome) = sent(driven, &mut outbox, Policy::default());
                let error = outcome.expect_err(&what);
                assert_eq!(error.fault, Fault::Truncated, "{what}: {error}");
                // A small body waits in memory with its head, which then is not sent either.
                let payload = got.len() as u64 - if got.len() > 50_000 { 4 } else { 0 };
                assert_eq!(payload, error.moved(), "{what}: {error}");
                assert!(payload <= 50_000 + there, "{what}: {error}");
            }
        }
    });
}

#[test]
fn an_impossible_range_does_not_forget_what_was_sent() {
    within(|| {
        let file = file_of(&testkit::content(54, 100_000));
        for driven in DRIVEN {
            let mut outbox = Outbox::new();
            outbox.push(range(&file, 0, 100_000));
            outbox.push(range(&file, u64::MAX / 2, 100_000));
            let (got, outcome) = sent(driven, &mut outbox, Policy::default());
            let error = outcome.expect_err("no file is that long");
            assert_eq!(got.len(), 100_000, "{driven:?}");
            assert_eq!(error.moved(), 100_000, "{driven:?}: {error}");
        }
    });
}

#[test]
fn a_policy_that_allows_nothing_is_an_error() {
    within(|| {
        let file = file_of(&testkit::content(55, 100_000));
        for mechanism in [Mechanism::Clone, Mechanism::CopyRange] {
            let mut outbox = Outbox::new();
            outbox.push(range(&file, 0, 100_000));
            let policy = Policy::only(mechanism);
            let (got, outcome) = sent(Driven::ByTokio, &mut outbox, policy);
            let error = outcome.expect_err("files only");
            assert_eq!((error.fault, got.len()), (Fault::Refused, 0), "{error}");
        }
    });
}

#[test]
fn every_mechanism_serves_an_outbox() {
    within(|| {
        let content = testkit::content(56, 4_000_001);
        let file = file_of(&content);
        for mechanism in [Mechanism::Sendfile, Mechanism::Splice, Mechanism::ReadWrite] {
            let mut outbox = Outbox::new();
            outbox.push(Piece::Bytes(b"head".to_vec()));
            outbox.push(range(&file, 1, 4_000_000));
            let policy = Policy::only(mechanism);
            let (got, outcome) = sent(Driven::ByTokio, &mut outbox, policy);
            outcome.expect("sends");
            assert_same(&got[4..], &content[1..], mechanism.name());
            assert_eq!(outbox.account().of(mechanism).bytes, 4_000_000);
        }
    });
}

/// QUIRK(nowait-false-end): whatever RWF_NOWAIT reports for files in memory, for cold ones and at
/// the end of a file, a small body arrives complete, and only a real end counts as one.
#[test]
fn nowait_false_end_is_no_end_for_small_bodies() {
    within(|| {
        let content = testkit::content(57, 6_000);
        let on_disk = file_of(&content);
        let in_memory = memory();
        std::os::unix::fs::FileExt::write_all_at(&in_memory, &content, 0).expect("memory");
        for (file, cool) in [(&on_disk, cool as fn(&File)), (&in_memory, |_| ())] {
            cool(file);
            let head = Piece::Bytes(b"head".to_vec());
            let (got, account) = account_of(Driven::ByTokio, vec![head, range(file, 0, 6_000)]);
            assert_same(&got[4..], &content, "a small body");
            assert_eq!(account.crossed(), 6_000, "{account}");
            cool(file);
            let mut outbox = Outbox::new();
            outbox.push(Piece::Bytes(b"head".to_vec()));
            outbox.push(range(file, 5_990, 20));
            let (_, outcome) = sent(Driven::ByTokio, &mut outbox, Policy::default());
            let error = outcome.expect_err("it really ends there");
            assert_eq!(error.fault, Fault::Truncated, "{error}");
        }
    });
}

#[test]
fn a_peer_that_is_gone_ends_the_outbox() {
    within(|| {
        let file = file_of(&testkit::content(58, 1 << 20));
        for pieces in [
            vec![Piece::Bytes(b"head".to_vec())],
            vec![Piece::Bytes(b"head".to_vec()), range(&file, 0, 100)],
            vec![range(&file, 0, 1 << 20)],
        ] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            drop(theirs);
            let mut outbox = Outbox::new();
            pieces.iter().cloned().for_each(|piece| outbox.push(piece));
            let error = flush(&mut outbox, &ours, &Kernel::unprobed(), Policy::default())
                .expect_err("gone");
            assert_eq!(
                (error.fault, error.moved()),
                (Fault::PeerGone, 0),
                "{error}"
            );
            let mut outbox = Outbox::new();
            pieces.into_iter().for_each(|piece| outbox.push(piece));
            set_mode(&ours, Mode::Polling);
            let error = runtime()
                .block_on(async {
                    let socket = tokio::net::UnixStream::from_std(ours).expect("a stream");
                    let kernel = Kernel::unprobed();
                    let mut sender = Sender::new();
                    let policy = Policy::default();
                    short_turn(&mut sender, &mut outbox, &socket, &kernel, policy).await
                })
                .expect_err("gone");
            assert_eq!(
                (error.fault, error.moved()),
                (Fault::PeerGone, 0),
                "{error}"
            );
        }
    });
}

#[test]
fn an_account_includes_the_range_under_way() {
    let content = testkit::content(77, 3 << 20);
    let file = file_of(&content);
    let (ours, theirs) = tcp();
    let mut outbox = Outbox::new();
    outbox.push(range(&file, 0, content.len() as u64));
    let kernel = Kernel::unprobed();
    let socket_of = |ours: &std::net::TcpStream| stream(ours.try_clone().expect("a clone"));
    let first = runtime().block_on(async {
        let socket = socket_of(&ours);
        let (mut sender, policy) = (Sender::new(), Policy::default());
        let more = short_turn(&mut sender, &mut outbox, &socket, &kernel, policy).await;
        assert_eq!(more.expect("sends"), Turn::More);
        outbox.account().bytes()
    });
    assert!(first > 0 && first < content.len() as u64, "{first}");
    assert_eq!(outbox.take_account().bytes(), first);
    assert_eq!(outbox.account().bytes(), 0, "taken is taken");
    let reader = reader(theirs);
    flush(&mut outbox, &ours, &kernel, Policy::default()).expect("the rest");
    drop(ours);
    assert_eq!(first + outbox.take_account().bytes(), content.len() as u64);
    assert_same(&reader.join().expect("reads"), &content, "all of it");
}

#[test]
fn of_content_no_more_is_read_than_there_is() {
    let content = testkit::content(64, 600_000);
    let file = SharedFile::new(file_of(&content).into());
    for len in [0, 1, 16_384, 600_000] {
        let got = read_cached(&file, len).expect("just written");
        assert_same(&got, &content[..len], "content");
    }
    for len in [600_001, usize::MAX] {
        assert!(read_cached(&file, len).is_none(), "{len}");
    }
}
