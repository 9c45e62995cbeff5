//! Many simultaneous connections that request little: they read slowly or are idle.

use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::exchange::{BodySink, ClientExchange, ReceiveProgress};
use super::go_on_unless;
use super::request::RequestTarget;
use super::transport::ServerAddress;
use crate::error::{Error, Result};

/// Bytes that a slow reader reads at a time, and the pause of all of them afterwards.
const RECEIVE_BYTES: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(50);

/// A server that takes longer to send one head, among all the others, has failed.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientBehavior {
    /// They are in the middle of a long response and read a little of it now and then.
    SlowReader,
    /// They have had a short response and send no further request.
    Idle,
}

pub(crate) struct ConnectionLoad {
    exchanges: Vec<ClientExchange>,
    behavior: ClientBehavior,
    discard: BodySink,
    passes: u64,
}

impl ConnectionLoad {
    /// Opens all connections and sends a request on each.
    pub(crate) fn open(
        address: &ServerAddress,
        target: &RequestTarget,
        connections: usize,
        behavior: ClientBehavior,
    ) -> Result<ConnectionLoad> {
        let mut exchanges = Vec::with_capacity(connections);
        for _ in 0..connections {
            let mut exchange = ClientExchange::connect_ready(address)?;
            exchange.begin(target, Instant::now())?;
            exchanges.push(exchange);
        }
        Ok(ConnectionLoad {
            exchanges,
            behavior,
            discard: BodySink::discard(RECEIVE_BYTES),
            passes: 0,
        })
    }

    /// Runs until every connection is in its held state, and calls `look` after each pass. Fails
    /// once `stop` is set.
    pub(crate) fn settle(
        &mut self,
        stop: &AtomicBool,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            self.pass()?;
            look()?;
            go_on_unless(stop)?;
            let waiting = self.exchanges.iter().filter(|one| !self.is_settled(one));
            match waiting.count() {
                0 => return Ok(()),
                waiting if start.elapsed() > RESPONSE_TIMEOUT => {
                    let all = self.exchanges.len();
                    return Err(Error::Answer(format!("{waiting} of {all} got no response")));
                }
                _ => sleep(PAUSE),
            }
        }
    }

    /// Holds all of them until `is_over`, and checks that the server closed none.
    pub(crate) fn hold(
        &mut self,
        stop: &AtomicBool,
        mut look: impl FnMut() -> Result<()>,
        is_over: impl Fn() -> bool,
    ) -> Result<()> {
        while !is_over() {
            self.pass()?;
            look()?;
            go_on_unless(stop)?;
            sleep(PAUSE);
        }
        let closed = self.exchanges.iter().filter(|one| one.has_ended());
        match (self.behavior, closed.count()) {
            (ClientBehavior::SlowReader, _) | (_, 0) => Ok(()),
            (ClientBehavior::Idle, closed) => Err(Error::Answer(format!(
                "the server closed {closed} idle connections"
            ))),
        }
    }

    fn is_settled(&self, exchange: &ClientExchange) -> bool {
        match self.behavior {
            ClientBehavior::SlowReader => exchange.is_in_body(),
            ClientBehavior::Idle => exchange.is_idle(),
        }
    }

    /// Has a quarter of them read a little.
    fn pass(&mut self) -> Result<()> {
        self.passes += 1;
        let reading = (1..).zip(&mut self.exchanges);
        let reading = reading.filter(|(number, one)| !one.is_idle() && reads(*number, self.passes));
        for (_, exchange) in reading {
            let progress = exchange.advance(&mut self.discard)?;
            if (progress, self.behavior) == (ReceiveProgress::Complete, ClientBehavior::SlowReader)
            {
                return Err(Error::Setting(
                    "the file is too small for slow readers".into(),
                ));
            }
        }
        Ok(())
    }
}

/// Whether a reader reads in this pass: one in four does, and others each time. In step, all of
/// them would have room for more at the same moment, unlike the readers of a real server.
fn reads(number: u64, pass: u64) -> bool {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (number << 32 | pass).wrapping_mul(GOLDEN);
    (mixed ^ mixed >> 32).wrapping_mul(GOLDEN) >> 62 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use crate::load::ConnectionReuse;

    /// Answers one request on each of so many connections, and hands them over.
    fn answered(connections: usize, behavior: ClientBehavior) -> (ConnectionLoad, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let mut streams = Vec::new();
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
                stream.write_all(answer).unwrap();
                streams.push(stream);
            }
            streams
        });
        let target = RequestTarget::get(address, "/x", 3, ConnectionReuse::KeepAlive);
        let crowd = ConnectionLoad::open(&address.into(), &target, connections, behavior).unwrap();
        (crowd, server.join().unwrap())
    }

    #[test]
    fn idle_connections_are_held_as_long_as_the_server_keeps_them() {
        let stop = AtomicBool::new(false);
        let (mut crowd, mut streams) = answered(3, ClientBehavior::Idle);
        crowd.settle(&stop, || Ok(())).unwrap();
        crowd.hold(&stop, || Ok(()), || true).unwrap();
        streams.pop();
        let held = crowd.hold(&stop, || Ok(()), || true);
        let error = held.unwrap_err().to_string();
        assert!(error.contains("closed 1 idle"), "{error}");
    }

    #[test]
    fn a_quarter_of_the_readers_read_and_everyone_does_sometime() {
        for pass in 1..100 {
            let reading = (1..=1000).filter(|&number| reads(number, pass)).count();
            assert!((150..=350).contains(&reading), "{reading} in pass {pass}");
        }
        for number in 1..=10_000 {
            let first = (1..).find(|&pass| reads(number, pass));
            assert!(first < Some(200), "{number}: {first:?}");
        }
    }

    #[test]
    fn an_answer_that_is_over_at_once_holds_no_slow_reader() {
        let stop = AtomicBool::new(false);
        let (mut crowd, _streams) = answered(1, ClientBehavior::SlowReader);
        let settled = crowd.settle(&stop, || Ok(()));
        assert!(matches!(settled, Err(Error::Setting(_))), "{settled:?}");
    }
}
