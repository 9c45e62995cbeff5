//! A property that holds for any bytes that a connection receives: a function that panics if it is
//! violated, for the tests below and for the fuzzer (`fuzz/` in the repository).
//!
//! This is not a public interface: it is included in tests and with the feature `fuzz`.

use std::future::Future;
use std::io::{ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use std::{env, fs, process};

use tokio::runtime::Builder;
use tokio::task::yield_now;
use underpass::Policy;
use underpass_net::{
    Address, Connection, ConnectionError, ConnectionLimits, Connector, FrameBuffer, WhileDraining,
};

use crate::connection::frame::{FrameError, IdleWait, IncomingFrame, RequestMemory};
use crate::limits::{FRAME_BYTES_MAX, FrameLimits};

/// Longer than the kernel needs for a local connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The memory for a frame before any of it has arrived, in bytes: twice the size of one read.
const FRAME_BYTES_FREE: usize = 16 << 10;

/// The frames received from a stream.
#[derive(Debug, Default, PartialEq)]
struct Received {
    frames: Vec<Vec<u8>>,
    end: StreamEnd,
}

/// The end of a stream.
#[derive(Debug, Default, PartialEq)]
enum StreamEnd {
    /// Between two frames, or in the length of one.
    #[default]
    Between,
    /// Within a frame of this length.
    Within(usize),
    /// At an invalid length.
    Length(i32),
}

/// Checks that the frames and the end of a stream do not depend on how it is split over reads, and
/// that the memory for a frame is bounded by the bytes that have arrived. The first four bytes
/// define the split.
pub fn frames(data: &[u8]) {
    let (cuts, stream) = data.split_at(data.len().min(4));
    let cuts: Vec<_> = cuts.iter().map(|&cut| usize::from(cut) + 1).collect();
    let plain = plainly(stream);
    assert_eq!(received(stream, &[usize::MAX]), plain, "at once");
    assert_eq!(received(stream, &cuts), plain, "in pieces of {cuts:?}");
    if let StreamEnd::Within(length) = plain.end {
        let before: usize = plain.frames.iter().map(|frame| frame.len() + 4).sum();
        unfinished(&stream[before + 4..], &cuts, length);
    }
}

fn plainly(mut stream: &[u8]) -> Received {
    let mut received = Received::default();
    while let Some((length, rest)) = stream.split_first_chunk() {
        let length = i32::from_be_bytes(*length);
        if length <= 0 || length as usize > FRAME_BYTES_MAX {
            received.end = StreamEnd::Length(length);
            break;
        }
        let Some((frame, rest)) = rest.split_at_checked(length as usize) else {
            received.end = StreamEnd::Within(length as usize);
            break;
        };
        received.frames.push(frame.to_vec());
        stream = rest;
    }
    received
}

/// Returns the frames that a connection receives if the stream arrives in pieces of these sizes.
fn received(stream: &[u8], cuts: &[usize]) -> Received {
    connected(stream, cuts, async |connection| {
        let memory = RequestMemory::new(0);
        let (mut received, mut longest) = (Received::default(), 0);
        let mut incoming = IncomingFrame::default();
        received.end = loop {
            let next = incoming.receive(connection, (&memory, FrameLimits::USUAL), IdleWait::Busy);
            match next.await {
                Ok(frame) => {
                    assert!(!incoming.has_begun(), "the next one is not asked for");
                    // The buffer may be reused from an earlier frame.
                    let bytes = frame.as_ref().to_vec();
                    longest = longest.max(bytes.len());
                    let room = frame.capacity();
                    assert!(
                        room <= 2 * longest + FRAME_BYTES_FREE,
                        "{room} for {longest}"
                    );
                    received.frames.push(bytes);
                }
                Err(FrameError::End) => break StreamEnd::Between,
                Err(FrameError::Length(length)) => break StreamEnd::Length(length),
                Err(FrameError::Connection(ConnectionError::PeerGone)) => {
                    assert!(incoming.has_begun(), "it ends within a frame");
                    break plainly(stream).end;
                }
                Err(FrameError::Connection(error)) => panic!("{error}"),
                Err(FrameError::Login) => panic!("there is no login here"),
            }
        };
        received
    })
}

/// Checks that an incomplete frame takes little more memory than its bytes.
fn unfinished(part: &[u8], cuts: &[usize], length: usize) {
    connected(part, cuts, async |connection| {
        let mut frame = FrameBuffer::new(length);
        let end = connection.receive_frame(&mut frame, WhileDraining::Continues);
        assert!(matches!(end.await, Err(ConnectionError::PeerGone)));
        let arrived = frame.into_bytes();
        assert_eq!(arrived, part);
        let room = arrived.capacity();
        assert!(room <= 2 * part.len() + FRAME_BYTES_FREE, "{room} bytes");
    });
}

/// Runs `work` with a connection whose peer sends this stream and then closes it.
fn connected<T>(stream: &[u8], cuts: &[usize], work: impl AsyncFnOnce(&mut Connection) -> T) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (mut connection, peer) = pair().await;
        let mut sent = pin!(send(peer, stream, cuts));
        let mut worked = pin!(work(&mut connection));
        let mut is_sent = false;
        std::future::poll_fn(|task| {
            // The receiver runs first, so it waits for each piece.
            if let Poll::Ready(done) = worked.as_mut().poll(task) {
                return Poll::Ready(done);
            }
            is_sent = is_sent || sent.as_mut().poll(task).is_ready();
            Poll::Pending
        })
        .await
    })
}

/// Makes both ends of a connection.
async fn pair() -> (Connection, UnixStream) {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("underpass-frames-{}-{number}", process::id()));
    let listener = UnixListener::bind(&path).expect("a socket");
    let connector = Connector::new(Policy::default(), &ConnectionLimits::default());
    let address = Address::Unix(path.clone());
    let connection = connector.connect(&address, CONNECT_TIMEOUT).await;
    let connection = connection.expect("a connection");
    let (peer, _) = listener.accept().expect("its peer");
    peer.set_nonblocking(true).expect("a socket");
    fs::remove_file(&path).expect("the name of the socket");
    (connection, peer)
}

/// Sends a stream in pieces, and lets the other end read each before the next.
async fn send(mut peer: UnixStream, mut stream: &[u8], cuts: &[usize]) {
    for cut in cuts.iter().cycle() {
        let mut piece = &stream[..stream.len().min(*cut)];
        stream = &stream[piece.len()..];
        while !piece.is_empty() {
            match peer.write(piece) {
                Ok(count) => piece = &piece[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The other end closed the connection.
                Err(_) => return,
            }
            yield_now().await;
        }
        if stream.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_may_be_larger_than_what_is_read_at_once() {
        for length in [1, 4095, 4096, 4097, 16_384, 16_385, 300_000] {
            let frame = [&(length as i32).to_be_bytes()[..], &vec![7; length]].concat();
            let two = frame.repeat(2);
            assert_eq!(received(&two, &[usize::MAX]).frames.len(), 2);
            for end in [0, 2, length / 2 + 5, length + 4, length + 6, 2 * length] {
                frames(&[b"\xff\xff\0\xff", &two[..end]].concat());
            }
        }
    }

    proptest! {
        #[test]
        fn streams_of_frames(
            cuts in any::<[u8; 4]>(),
            lengths in vec(prop_oneof![4 => 1..40_i32, 1 => 1..9000_i32, 1 => any::<i32>()], 0..6),
            missing in 0..40_usize,
        ) {
            let frame = |length: i32| {
                let bytes = usize::try_from(length).unwrap_or(0).min(9000);
                [&length.to_be_bytes()[..], &vec![length as u8; bytes]].concat()
            };
            let stream: Vec<_> = lengths.into_iter().flat_map(frame).collect();
            let end = stream.len().saturating_sub(missing);
            frames(&[&cuts, &stream[..end]].concat());
        }
    }
}
