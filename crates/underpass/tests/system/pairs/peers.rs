//! Peers that close early, reset, stall or never existed: a matching error, and an exact count. The
//! process survives, whatever SIGPIPE would do by default; the tests in `sys` cover the default
//! disposition.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socketpair};
use underpass::{
    Account, Errno, Error, Fault, Kernel, Mechanism, Policy, Progress, Sink, Source,
    drive::blocking::Driver, send_file,
};

use underpass_testkit::{self as testkit, assert_same, within};

use super::ends::{
    Made, Mode, Origin, content_of, file, file_of, memory, pipe, set_mode, tcp, unix,
};

const TO_STREAMS: [Mechanism; 3] = [Mechanism::Sendfile, Mechanism::Splice, Mechanism::ReadWrite];

fn send(mechanism: Mechanism, from: &File, to: impl AsFd) -> Result<Account, Error> {
    let source = Source::whole(from).expect("a source");
    Driver::new(&Kernel::unprobed())
        .policy(Policy::only(mechanism))
        .run(&source, &Sink::new(to).expect("a sink"))
}

/// Closes with a reset.
fn close_hard(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("lingers");
    drop(stream);
}

#[test]
fn a_peer_that_leaves_early_is_gone_not_deadly() {
    let content = testkit::content(20, 16 << 20);
    let from = file_of(&content);
    for mechanism in TO_STREAMS {
        for mode in [Mode::Blocking, Mode::Polling] {
            for leaves in [drop, close_hard] {
                let (ours, mut theirs) = tcp();
                set_mode(&ours, mode);
                let peer = std::thread::spawn(move || {
                    theirs
                        .read_exact(&mut vec![0; 100_000])
                        .expect("some of it");
                    leaves(theirs);
                });
                let error = send(mechanism, &from, &ours).expect_err("nobody reads the rest");
                peer.join().expect("reads");
                let what = format!("{mechanism} {mode:?}: {error}");
                assert_eq!(error.fault, Fault::PeerGone, "{what}");
                assert!(error.errno.is_some(), "{what}");
                assert!(
                    (100_000..content.len() as u64).contains(&error.moved()),
                    "{what}"
                );
                let again = send(mechanism, &from, &ours).expect_err("still gone");
                assert_eq!(
                    (again.fault, again.moved()),
                    (Fault::PeerGone, 0),
                    "{again}"
                );
            }
        }
    }
}

#[test]
fn local_streams_without_a_reader_are_gone_too() {
    let from = file_of(&testkit::content(21, 1 << 20));
    for mechanism in TO_STREAMS {
        let (ours, theirs) = unix();
        drop(theirs);
        let (read, write) = pipe();
        drop(read);
        let (shut, _peer) = tcp();
        rustix::net::shutdown(&shut, Shutdown::Write).expect("shuts down");
        let sinks: [OwnedFd; 3] = [ours.into(), write, shut.into()];
        for sink in sinks {
            let error = send(mechanism, &from, &sink).expect_err("nobody is there");
            assert_eq!(
                (error.fault, error.moved()),
                (Fault::PeerGone, 0),
                "{mechanism}: {error}"
            );
        }
    }
}

#[test]
fn a_socket_that_never_was_connected_has_no_peer() {
    let from = file_of(b"for nobody");
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .expect("a socket");
    for mechanism in TO_STREAMS {
        let error = send(mechanism, &from, &socket).expect_err("no peer");
        assert_eq!(error.fault, Fault::PeerGone, "{mechanism}: {error}");
    }
    let source = Source::range(&socket, 0, 10).expect("a source");
    for mechanism in [Mechanism::Splice, Mechanism::ReadWrite] {
        let error = Driver::new(&Kernel::unprobed())
            .policy(Policy::only(mechanism))
            .run(&source, &Sink::new(file()).expect("a sink"))
            .expect_err("no peer");
        assert_eq!(error.fault, Fault::PeerGone, "{mechanism}: {error}");
    }
}

#[test]
fn a_reset_while_receiving_leaves_what_is_reported() {
    let content = testkit::content(22, 2 << 20);
    for mechanism in [Mechanism::Splice, Mechanism::ReadWrite] {
        let (ours, mut theirs) = tcp();
        let sent = content.clone();
        let peer = std::thread::spawn(move || {
            theirs.write_all(&sent).expect("writes");
            close_hard(theirs);
        });
        let to = memory();
        let source = Source::range(&ours, 0, content.len() as u64 + 1).expect("a source");
        let error = Driver::new(&Kernel::unprobed())
            .policy(Policy::only(mechanism))
            .run(&source, &Sink::new(&to).expect("a sink"))
            .expect_err("reset");
        peer.join().expect("writes");
        assert_eq!(error.fault, Fault::PeerGone, "{mechanism}: {error}");
        let got = content_of(&to);
        assert_eq!(got.len() as u64, error.moved(), "{mechanism}: {error}");
        assert_same(&got, &content[..got.len()], mechanism.name());
    }
}

#[test]
fn a_socket_timeout_is_reported_as_such() {
    let content = testkit::content(23, 16 << 20);
    let from = file_of(&content);
    let patience = Some(Duration::from_millis(50));
    for mechanism in TO_STREAMS {
        let (ours, mut theirs) = unix();
        sockopt::set_socket_timeout(&ours, Timeout::Send, patience).expect("a timeout");
        let error = send(mechanism, &from, &ours).expect_err("nobody reads");
        assert_eq!(error.fault, Fault::TimedOut, "{mechanism}: {error}");
        drop(ours);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).expect("reads");
        assert_eq!(got.len() as u64, error.moved(), "{mechanism}: {error}");
        assert_same(&got, &content[..got.len()], mechanism.name());
    }
    for mechanism in [Mechanism::Splice, Mechanism::ReadWrite] {
        let (ours, mut theirs) = tcp();
        sockopt::set_socket_timeout(&ours, Timeout::Recv, patience).expect("a timeout");
        theirs.write_all(b"that is all").expect("writes");
        let to = file();
        let source = Source::range(&ours, 0, 100).expect("a source");
        let error = Driver::new(&Kernel::unprobed())
            .policy(Policy::only(mechanism))
            .run(&source, &Sink::new(&to).expect("a sink"))
            .expect_err("nothing more comes");
        assert_eq!(
            (error.fault, error.moved()),
            (Fault::TimedOut, 11),
            "{error}"
        );
        assert_eq!(content_of(&to), b"that is all");
    }
}

/// A sink that accepts nothing more: the hook still runs, and stops the transfer.
#[test]
fn a_stalled_peer_can_be_cancelled() {
    within(|| {
        let content = testkit::content(24, 16 << 20);
        let from = file_of(&content);
        for mechanism in TO_STREAMS {
            let (ours, mut theirs) = tcp();
            set_mode(&ours, Mode::Polling);
            let (mut last, mut stalls) = (None, 0);
            let mut watch = |progress: Progress| {
                stalls = if last == Some(progress.done) {
                    stalls + 1
                } else {
                    0
                };
                last = Some(progress.done);
                if stalls < 4 {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            };
            let error = Driver::new(&Kernel::unprobed())
                .policy(Policy::only(mechanism))
                .watch(&mut watch)
                .run(
                    &Source::whole(&from).expect("a source"),
                    &Sink::new(&ours).expect("a sink"),
                )
                .expect_err("cancelled");
            assert_eq!(error.fault, Fault::Cancelled, "{mechanism}: {error}");
            drop(ours);
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).expect("reads");
            assert_eq!(got.len() as u64, error.moved(), "{mechanism}: {error}");
            assert_same(&got, &content[..got.len()], mechanism.name());
        }
    });
}

#[test]
fn a_file_that_ends_early_is_not_sent_to_its_end() {
    let content = testkit::content(25, 1 << 20);
    let from = file_of(&content);
    for (offset, len, there) in [
        (0, (1 << 20) + 1, 1 << 20),
        (1 << 19, 1 << 20, 1 << 19),
        (1 << 20, 1, 0),
        (1 << 30, 5, 0),
    ] {
        let (ours, mut theirs) = unix();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).map(|_| got)
        });
        let error =
            send_file(&Kernel::unprobed(), &from, offset, len, &ours).expect_err("too long");
        drop(ours);
        assert_eq!(
            (error.fault, error.moved()),
            (Fault::Truncated, there),
            "{error}"
        );
        let got = reader.join().expect("reads").expect("reads");
        let from = (offset as usize).min(content.len());
        assert_same(
            &got,
            &content[from..from + there as usize],
            "what was there",
        );
    }
}

/// Bytes in transit when a transfer failed must not arrive with the next one.
#[test]
fn a_pipe_that_still_holds_bytes_is_not_used_again() {
    within(check_pipes);
}

fn check_pipes() {
    let kernel = Kernel::unprobed();
    let (lost, kept) = (testkit::content(26, 1 << 20), testkit::content(27, 1 << 20));
    let from = file_of(&lost);
    let run = |from: &File, to: OwnedFd, held: &mut u64| {
        let mut watch = |progress: Progress| {
            *held = progress.held;
            ControlFlow::Continue(())
        };
        Driver::new(&kernel)
            .policy(Policy::only(Mechanism::Splice))
            .watch(&mut watch)
            .run(
                &Source::whole(from).expect("a source"),
                &Sink::new(to).expect("a sink"),
            )
    };
    for _ in 0..20 {
        let (ours, theirs) = unix();
        drop(theirs);
        let mut held = 0;
        let error = run(&from, ours.into(), &mut held).expect_err("gone");
        assert!(held > 0, "{error}");
        assert_eq!(error.lost, 0, "the file has all of it: {error}");
        assert!(!error.to_string().contains("lost"), "{error}");
        let to = file();
        let sink = to.try_clone().expect("a clone").into();
        run(&file_of(&kept), sink, &mut held).expect("copies");
        assert_same(&content_of(&to), &kept, "the next transfer");
    }
}

/// The sink switches to appending while the pipe is full: splice is refused midway, and the bytes
/// in the pipe exist nowhere else.
#[test]
fn what_a_pipe_holds_is_written_when_the_sink_refuses_it() {
    let content = testkit::content(28, 700_001);
    for calls_before in [1, 3, 5] {
        let (ours, mut theirs) = unix();
        let sent = content.clone();
        let feeder = std::thread::spawn(move || theirs.write_all(&sent));
        let to = file();
        let mut calls = 0;
        let mut watch = |_: Progress| {
            if calls == calls_before {
                rustix::fs::fcntl_setfl(&to, rustix::fs::OFlags::APPEND).expect("flags");
            }
            calls += 1;
            ControlFlow::Continue(())
        };
        let account = Driver::new(&Kernel::unprobed())
            .call_bytes_max(50_000)
            .watch(&mut watch)
            .run(
                &Source::whole(&ours).expect("a source"),
                &Sink::new(&to).expect("a sink"),
            )
            .expect("falls back");
        feeder.join().expect("feeds").expect("writes");
        assert_eq!(account.refusals.len(), 1, "{account}");
        assert!(account.crossed() > 0, "{account}");
        assert_eq!(account.bytes(), 700_001, "{account}");
        assert_same(&content_of(&to), &content, "the whole stream");
    }
}

/// Bytes read from a file are still in the file.
#[test]
fn only_what_a_stream_gave_can_be_lost() {
    let content = testkit::content(39, 50_000);
    for made in [Made::File, Made::Memory, Made::Pipe, Made::Tcp, Made::Unix] {
        for mechanism in [Mechanism::Splice, Mechanism::ReadWrite] {
            let origin = Origin::make(made, Mode::Blocking, 39, content.len());
            let (gone, theirs) = unix();
            drop(theirs);
            let source = Source::whole(&origin.fd).expect("a source");
            let error = Driver::new(&Kernel::unprobed())
                .policy(Policy::only(mechanism))
                .run(&source, &Sink::new(&gone).expect("a sink"))
                .expect_err("nobody is there");
            let what = format!("{made:?} by {mechanism}: {error}");
            let is_stream = !matches!(made, Made::File | Made::Memory);
            // From a pipe, splice moves pages directly, or none.
            let holds = is_stream && !(made == Made::Pipe && mechanism == Mechanism::Splice);
            assert_eq!(error.lost > 0, holds, "{what}");
            assert_eq!(error.to_string().contains("are lost"), holds, "{what}");
        }
    }
}

/// A call without room for a message takes a part of it, and the kernel discards the rest.
#[test]
fn a_socket_of_messages_is_no_source() {
    for of in [SocketType::DGRAM, SocketType::SEQPACKET] {
        let (one, other) =
            socketpair(AddressFamily::UNIX, of, SocketFlags::empty(), None).expect("a pair");
        rustix::io::write(&other, &[7; 1000]).expect("a message");
        for source in [Source::whole(&one), Source::range(&one, 0, 500)] {
            assert_eq!(source.map(|_| ()), Err(Errno::PROTOTYPE));
        }
        let mut message = [0; 2000];
        assert_eq!(
            rustix::io::read(&one, &mut message),
            Ok(1000),
            "still there"
        );
    }
}
