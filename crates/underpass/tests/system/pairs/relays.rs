//! Relays between two sockets: both directions, half-closes, and ends that fail.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use underpass::{Fault, Kernel, Mechanism, Relayed, relay_streams};

use underpass_testkit::{self as testkit, assert_same, within};

use super::ends::tcp;

/// Two clients with a relay between them, which `relay` runs on a separate thread.
pub(crate) fn between(
    relay: impl FnOnce(TcpStream, TcpStream) -> Relayed + Send + 'static,
) -> (TcpStream, TcpStream, std::thread::JoinHandle<Relayed>) {
    let (client, near) = tcp();
    let (far, server) = tcp();
    (client, server, std::thread::spawn(move || relay(near, far)))
}

fn blocking(near: TcpStream, far: TcpStream) -> Relayed {
    relay_streams(&Kernel::probe(), &near, &far)
}

/// The server answers only after the client has shut down its sending side.
pub(crate) fn check_half_close(
    relay: impl FnOnce(TcpStream, TcpStream) -> Relayed + Send + 'static,
) {
    let (mut client, mut server, relay) = between(relay);
    let (asked, answered) = (
        testkit::content(30, 3_000_001),
        testkit::content(31, 2_000_003),
    );
    let (expected, answer) = (asked.clone(), answered.clone());
    let serving = std::thread::spawn(move || {
        let mut got = Vec::new();
        server.read_to_end(&mut got).expect("until the half-close");
        server.write_all(&answer).expect("may still talk");
        got
    });
    client.write_all(&asked).expect("asks");
    client.shutdown(Shutdown::Write).expect("shuts down");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("the answer");
    assert_same(&got, &answered, "the answer");
    assert_same(&serving.join().expect("serves"), &expected, "the question");
    let (there, back) = relay.join().expect("relays");
    let (there, back) = (there.expect("there"), back.expect("back"));
    assert_eq!((there.bytes(), back.bytes()), (3_000_001, 2_000_003));
    assert_eq!(there.of(Mechanism::Splice).bytes, 3_000_001, "{there}");
    assert_eq!((there.crossed(), back.crossed()), (0, 0));
}

/// One end is reset while the other one waits for an answer that never comes.
pub(crate) fn check_reset(relay: impl FnOnce(TcpStream, TcpStream) -> Relayed + Send + 'static) {
    let (mut client, mut server, relay) = between(relay);
    client.write_all(b"hello").expect("asks");
    server.read_exact(&mut [0; 5]).expect("is asked");
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO))
        .expect("lingers");
    drop(client);
    let mut rest = Vec::new();
    let _ended_or_reset = server.read_to_end(&mut rest);
    assert_eq!(rest, []);
    let (there, back) = relay.join().expect("relays");
    let error = there.expect_err("the client was reset");
    assert_eq!(error.fault, Fault::PeerGone, "{error}");
    assert_eq!(error.moved(), 5, "{error}");
    drop(back);
}

#[test]
fn a_half_close_is_kept() {
    within(|| check_half_close(blocking));
}

#[test]
fn a_reset_ends_both_directions() {
    within(|| check_reset(blocking));
}

#[test]
fn both_directions_flow_at_once() {
    within(|| {
        let (client, server, relay) = between(blocking);
        let content = testkit::content(32, 8 << 20);
        let exchanged = [client, server].map(|mut end| {
            let (mut writer, sent) = (end.try_clone().expect("a clone"), content.clone());
            let writing = std::thread::spawn(move || {
                writer.write_all(&sent).expect("writes");
                writer.shutdown(Shutdown::Write).expect("shuts down");
            });
            let reading = std::thread::spawn(move || {
                let mut got = Vec::new();
                end.read_to_end(&mut got).expect("reads");
                got
            });
            (writing, reading)
        });
        for (writing, reading) in exchanged {
            writing.join().expect("writes");
            assert_same(&reading.join().expect("reads"), &content, "one direction");
        }
        let (there, back) = relay.join().expect("relays");
        let both = [there.expect("there"), back.expect("back")];
        assert_eq!(both.map(|account| account.bytes()), [8 << 20, 8 << 20]);
    });
}
