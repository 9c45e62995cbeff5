//! Readers that hardly read: many connections in the middle of an answer at once.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::exchange::{Discard, Exchange, Progress, Target};
use super::go_on_unless;
use crate::error::{Error, Result};

/// What a slow reader takes at a time, and how long all of them then pause.
const RECEIVE_BYTES: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(50);

/// A server that lets a reader wait longer for its head, among all the others, has failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// All connections ask, then each takes a little per pass: until every one is in its body, and
/// then for as long as they are to be held. After each pass it is time to `look`. Broken off with
/// an error once `stop` is set.
pub(crate) fn read_slowly(
    address: SocketAddr,
    target: &Target,
    connections: usize,
    hold: Duration,
    stop: &AtomicBool,
    mut look: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut readers = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut reader = Exchange::connect(address)?;
        reader.begin(target, Instant::now())?;
        readers.push(reader);
    }
    let start = Instant::now();
    let mut all_answered = None;
    while all_answered.is_none_or(|since: Instant| since.elapsed() < hold) {
        read_a_little(&mut readers)?;
        look()?;
        go_on_unless(stop)?;
        let waiting = readers.iter().filter(|reader| !reader.is_in_body()).count();
        if waiting == 0 {
            all_answered.get_or_insert_with(Instant::now);
        } else if start.elapsed() > ANSWER_TIMEOUT {
            return Err(Error::Answer(format!(
                "{waiting} of {connections} got no answer"
            )));
        }
        sleep(PAUSE);
    }
    Ok(())
}

fn read_a_little(readers: &mut [Exchange]) -> Result<()> {
    let mut discard = Discard::new(RECEIVE_BYTES);
    for reader in readers {
        if reader.advance(&mut discard)? == Progress::Complete {
            return Err(Error::Setting(
                "the file is too small for slow readers".into(),
            ));
        }
    }
    Ok(())
}
