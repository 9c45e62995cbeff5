//! The Tokio driver: whole files, ranges, receiving, relaying, cold files, fairness.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::Interest;
use tokio::runtime::{Builder, Runtime};
use underpass::drive::tokio::{FileReceiver, FileSender, Sender, Stream, Turn, is_cached, relay};
use underpass::limits::{SPLICED_BYTES_MIN, TURN_BYTES_MIN};
use underpass::{
    Account, Errno, Error, Fault, FileRange, Kernel, Mechanism, Outbox, Piece, Policy, Relayed,
    SharedFile,
};

use underpass_testkit::{self as testkit, assert_same, within};

use super::ends::{Mode, content_of, file, file_of, pipe, set_mode, tcp, terminal, unix};
use super::relays::{check_half_close, check_reset};

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Converts a stream; requires a running runtime.
pub(crate) fn stream(stream: TcpStream) -> tokio::net::TcpStream {
    set_mode(&stream, Mode::Polling);
    tokio::net::TcpStream::from_std(stream).expect("a stream")
}

/// Reads until the end, on a separate thread.
pub(crate) fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut got = Vec::new();
        from.read_to_end(&mut got).expect("reads");
        got
    })
}

pub(crate) async fn send_file(
    kernel: &Kernel,
    file: impl AsFd,
    offset: u64,
    len: u64,
    socket: &impl Stream,
) -> Result<Account, Error> {
    let mut sender = FileSender::new(file, offset, len)?;
    sender.run(socket, kernel).await?;
    Ok(sender.into_account())
}

pub(crate) async fn recv_file(
    kernel: &Kernel,
    socket: &impl Stream,
    file: impl AsFd,
    offset: u64,
    len: u64,
) -> Result<Account, Error> {
    let mut receiver = FileReceiver::new(file, offset, len)?;
    receiver.run(socket, kernel).await?;
    Ok(receiver.into_account())
}

#[test]
fn files_and_ranges_are_sent_whole() {
    within(|| {
        let content = testkit::content(40, 5_000_003);
        let from = file_of(&content);
        for (offset, len) in [
            (0, 0),
            (0, 1),
            (5, 16_383),
            (4097, 16_384),
            (1, 16_385),
            (0, 1 << 20),
            (99, 4_999_904),
        ] {
            let (ours, theirs) = tcp();
            rustix::net::sockopt::set_socket_send_buffer_size(&ours, 20_000)
                .expect("a small buffer");
            let reader = reader(theirs);
            let account = runtime().block_on(async {
                let socket = stream(ours);
                send_file(&Kernel::probe(), &from, offset, len, &socket).await
            });
            let account = account.expect("sends");
            let moved = account.of(first_to_tcp(len)).bytes;
            assert_eq!(moved, len, "{account}");
            let (at, len) = (offset as usize, len as usize);
            let got = reader.join().expect("reads");
            assert_same(&got, &content[at..at + len], "a range");
        }
    });
}

#[test]
fn unix_sockets_take_and_give_files_too() {
    within(|| {
        let content = testkit::content(41, 3_000_001);
        let (from, to) = (file_of(&content), file());
        let (one, other) = unix();
        runtime().block_on(async {
            let open = |socket| {
                set_mode(&socket, Mode::Polling);
                tokio::net::UnixStream::from_std(socket).expect("a stream")
            };
            let (one, other, kernel) = (open(one), open(other), Kernel::probe());
            let (sent, got) = tokio::join!(
                send_file(&kernel, &from, 0, 3_000_001, &one),
                recv_file(&kernel, &other, &to, 7, 3_000_001),
            );
            assert_eq!(sent.expect("sends").bytes(), 3_000_001);
            assert_eq!(got.expect("receives").crossed(), 0);
        });
        assert_same(&content_of(&to)[7..], &content, "through a Unix socket");
    });
}

#[test]
fn an_exact_receive_leaves_what_follows() {
    within(|| {
        let content = testkit::content(42, 2_000_001);
        let (ours, mut theirs) = tcp();
        let mut sent = content.clone();
        sent.extend_from_slice(b"the next message");
        let feeder = std::thread::spawn(move || theirs.write_all(&sent).map(|()| theirs));
        let (to, kept) = (file(), ours.try_clone().expect("a clone"));
        let account = runtime().block_on(async {
            let socket = stream(ours);
            recv_file(&Kernel::probe(), &socket, &to, 0, 2_000_001).await
        });
        assert_eq!(
            account.expect("receives").of(Mechanism::Splice).bytes,
            2_000_001
        );
        drop(feeder.join().expect("feeds").expect("writes"));
        assert_same(&content_of(&to), &content, "received");
        set_mode(&kept, Mode::Blocking);
        let mut rest = String::new();
        (&kept).read_to_string(&mut rest).expect("reads");
        assert_eq!(rest, "the next message");
    });
}

#[test]
fn receiving_reports_an_early_end_and_a_reset() {
    within(|| {
        for (resets, fault) in [(false, Fault::Truncated), (true, Fault::PeerGone)] {
            let (ours, mut theirs) = tcp();
            let feeder = std::thread::spawn(move || {
                theirs
                    .write_all(&testkit::content(43, 100_000))
                    .expect("writes");
                if resets {
                    let linger = Some(std::time::Duration::ZERO);
                    rustix::net::sockopt::set_socket_linger(&theirs, linger).expect("lingers");
                }
            });
            let to = file();
            let error = runtime()
                .block_on(async {
                    let socket = stream(ours);
                    recv_file(&Kernel::probe(), &socket, &to, 0, 100_001).await
                })
                .expect_err("one byte is missing");
            feeder.join().expect("feeds");
            assert_eq!(error.fault, fault, "{error}");
            let got = content_of(&to);
            assert_eq!(got.len() as u64, error.moved(), "{error}");
            assert_same(
                &got,
                &testkit::content(43, 100_000)[..got.len()],
                "what came",
            );
        }
    });
}

fn relayed(near: TcpStream, far: TcpStream) -> Relayed {
    runtime().block_on(async {
        let (near, far) = (stream(near), stream(far));
        relay(&Kernel::probe(), &near, &far).await
    })
}

#[test]
fn a_half_close_is_kept() {
    within(|| check_half_close(relayed));
}

#[test]
fn a_reset_ends_both_directions() {
    within(|| check_reset(relayed));
}

#[test]
fn a_peer_that_leaves_early_is_gone() {
    within(|| {
        let from = file_of(&testkit::content(44, 16 << 20));
        let (ours, mut theirs) = tcp();
        let peer = std::thread::spawn(move || theirs.read_exact(&mut [0; 50_000]));
        let error = runtime()
            .block_on(async {
                let socket = stream(ours);
                send_file(&Kernel::probe(), &from, 0, 16 << 20, &socket).await
            })
            .expect_err("nobody reads the rest");
        peer.join().expect("reads").expect("reads");
        assert_eq!(error.fault, Fault::PeerGone, "{error}");
        assert!(error.moved() >= 50_000, "{error}");
    });
}

/// Two connections, one of which could take forever: after each of its turns the other one runs.
#[test]
fn a_busy_connection_leaves_turns_to_others() {
    within(|| {
        const LEN: u64 = 64 << 20;
        let from = file();
        from.set_len(LEN).expect("a sparse file");
        let (ours, theirs) = tcp();
        let reader = reader(theirs);
        let (turns, others) = (Rc::new(AtomicU64::new(0)), Rc::new(AtomicU64::new(0)));
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime(), async {
            let (counted, stop) = (Rc::clone(&others), Rc::clone(&turns));
            let other = tokio::task::spawn_local(async move {
                while stop.load(Ordering::Relaxed) < u64::MAX / 2 {
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            });
            let (socket, kernel, mut outbox) = (stream(ours), Kernel::probe(), Outbox::new());
            let mut sender = Sender::new();
            outbox.push(range(&from, 0, LEN));
            loop {
                let before = others.load(Ordering::Relaxed);
                let policy = Policy::default();
                let more = short_turn(&mut sender, &mut outbox, &socket, &kernel, policy).await;
                if more.expect("sends") == Turn::Empty {
                    break;
                }
                let count = turns.fetch_add(1, Ordering::Relaxed);
                assert!(
                    others.load(Ordering::Relaxed) > before,
                    "turn {count} gave nobody a chance"
                );
            }
            assert!(turns.load(Ordering::Relaxed) >= LEN / (1 << 20) - 1);
            turns.store(u64::MAX / 2, Ordering::Relaxed);
            other.await.expect("runs");
        });
        assert_eq!(reader.join().expect("reads").len() as u64, LEN);
    });
}

/// One turn of an outbox, however many parts it sends: others run between them.
#[test]
fn many_small_parts_leave_turns_to_others() {
    within(|| {
        const PARTS: u64 = 5_000;
        let from = file_of(&testkit::content(46, PARTS));
        let (ours, theirs) = tcp();
        let reader = reader(theirs);
        let others = Rc::new(AtomicU64::new(0));
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime(), async {
            let counted = Rc::clone(&others);
            let other = tokio::task::spawn_local(async move {
                loop {
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            });
            let (socket, kernel, mut outbox) = (stream(ours), Kernel::probe(), Outbox::new());
            for part in 0..PARTS {
                outbox.push(Piece::Bytes(b"part".to_vec()));
                outbox.push(range(&from, part, 1));
            }
            let (mut sender, policy) = (Sender::new(), Policy::default());
            while short_turn(&mut sender, &mut outbox, &socket, &kernel, policy)
                .await
                .expect("sends")
                == Turn::More
            {}
            other.abort();
        });
        let ran = others.load(Ordering::Relaxed);
        assert!(ran >= PARTS / 500, "others ran {ran} times");
        assert_eq!(reader.join().expect("reads").len() as u64, 5 * PARTS);
    });
}

/// One turn of an outbox, as short as turns get.
pub(crate) async fn short_turn<S: Stream>(
    sender: &mut Sender,
    outbox: &mut Outbox,
    sink: &S,
    kernel: &Kernel,
    policy: Policy,
) -> Result<Turn, Error> {
    sender
        .turn(outbox, sink, kernel, &policy, TURN_BYTES_MIN)
        .await
}

pub(crate) fn range(file: &std::fs::File, offset: u64, len: u64) -> Piece {
    let file = SharedFile::new(file.try_clone().expect("a descriptor").into());
    Piece::Range(FileRange { file, offset, len })
}

/// Drops a file from the page cache.
pub(crate) fn cool(file: &std::fs::File) {
    testkit::cool(file, |file, offset, len| is_cached(file, offset, len));
}

#[test]
fn a_cold_file_is_sent_whole_and_never_read() {
    within(|| {
        let content = testkit::content(45, 9_000_001);
        let from = file_of(&content);
        cool(&from);
        let (ours, theirs) = tcp();
        let reader = reader(theirs);
        let account = runtime().block_on(async {
            let socket = stream(ours);
            send_file(&Kernel::probe(), &from, 0, 9_000_001, &socket).await
        });
        let account = account.expect("sends");
        let moved = account.of(first_to_tcp(9_000_001)).bytes;
        assert_eq!(moved, 9_000_001, "{account}");
        assert_same(&reader.join().expect("reads"), &content, "a cold file");
    });
}

/// Returns the first mechanism from a file to a TCP socket, while the kernel has pipes.
pub(crate) fn first_to_tcp(len: u64) -> Mechanism {
    match len >= SPLICED_BYTES_MIN {
        true => Mechanism::Splice,
        false => Mechanism::Sendfile,
    }
}

/// A descriptor that falsely claims to be a stream.
struct Pretended(OwnedFd);

impl Stream for Pretended {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    async fn ready(&self, _: Interest) -> std::io::Result<()> {
        Ok(())
    }

    fn try_io<R>(
        &self,
        _: Interest,
        call: impl FnOnce() -> std::io::Result<R>,
    ) -> std::io::Result<R> {
        call()
    }
}

/// A pipe without a writer, a terminal without input and a socket without a reader would each stop
/// the event loop.
#[test]
fn what_would_block_the_event_loop_is_refused() {
    within(|| {
        let (kernel, policy) = (Kernel::probe(), Policy::default());
        let (reads, writes) = pipe();
        let (_computer, screen) = terminal();
        let (unix, _other) = unix();
        for fd in [
            reads.as_fd(),
            writes.as_fd(),
            screen.as_fd(),
            unix.as_fd(),
            std::fs::File::open("/dev/zero").expect("zeros").as_fd(),
        ] {
            let receiver = FileReceiver::new(fd, 0, 1).map(|_| ());
            assert_eq!(receiver, Err(Errno::SPIPE), "received into");
            let sender = FileSender::new(fd, 0, 1).map(|_| ());
            assert_eq!(sender, Err(Errno::SPIPE), "sent from");
        }
        runtime().block_on(async {
            let socket = stream(tcp().0);
            let shared = SharedFile::new(reads.try_clone().expect("a clone"));
            for len in [1, 1 << 20] {
                let file = shared.clone();
                let mut outbox = Outbox::new();
                outbox.push(Piece::Bytes(b"head".to_vec()));
                outbox.push(Piece::Range(FileRange {
                    file,
                    offset: 0,
                    len,
                }));
                let mut sender = Sender::new();
                while let Ok(turn) = sender
                    .turn(&mut outbox, &socket, &kernel, &policy, 1 << 20)
                    .await
                {
                    assert_eq!(turn, Turn::More, "{len}");
                }
            }
            let not = Pretended(reads);
            let (there, back) = relay(&kernel, &socket, &not).await;
            for way in [there, back] {
                let error = way.expect_err("a pipe");
                assert!(
                    [Some(Errno::NOTSOCK), None].contains(&error.errno),
                    "{error}"
                );
            }
            let mut receiver = FileReceiver::new(file(), 0, 1).expect("a receiver");
            let error = receiver.run(&not, &kernel).await.expect_err("a pipe");
            assert_eq!(error.errno, Some(Errno::NOTSOCK));
        });
    });
}
