//! The load: many connections, one thread, one epoll, bounded in count and in time.
//!
//! A load is a set of lanes, each with its own connections and its own pace:
//!
//! ```text
//!   closed lane   answer ─► next request at once, until the quota is used up; answers that are
//!                 under way then are still taken whole
//!   open lane     a request falls due every interval, whatever the answers do, for a span or
//!                 until the other lanes are finished; its latency counts from when it was due
//! ```
//!
//! Waking a sleeping client on another processor is charged to the one who wakes it, which is the
//! server. [`WaitMode::Spin`] takes that out of the figures, at the price of a busy processor.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::exchange::{ClientExchange, DiscardBuffer, ReceiveProgress};
use super::go_on_unless;
use super::request::RequestTarget;
use crate::error::{Error, ErrorContext, Result};

/// A load in which nothing arrives for this long is stuck.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// No load may last longer, whatever it was asked to fetch.
const LOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a sleep may last while an open lane has requests falling due.
const OPEN_WAIT: Duration = Duration::from_millis(1);

const EVENTS_MAX: usize = 256;

/// Room for those of a second of small requests, so that growing does not disturb the first ones.
const LATENCIES_RESERVED: usize = 1 << 17;

pub(crate) struct LoadStream<'a> {
    pub(crate) targets: &'a [RequestTarget],
    pub(crate) connections: usize,
    pub(crate) pace: LoadPace,
    /// The most that one receive may throw away before other connections have their turn.
    pub(crate) receive_bytes_max: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum LoadPace {
    ClosedLoad(Quota),
    Open {
        interval: Duration,
        /// How long; as long as others go on if none.
        span: Option<Duration>,
    },
}

/// What a closed lane asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Quota {
    Requests(u64),
    /// As many as begin within it.
    Span(Duration),
}

impl Quota {
    /// So many requests if a number was asked for, and those of a while otherwise.
    pub(crate) fn of(requests: Option<u64>, span: Duration) -> Quota {
        match requests {
            Some(requests) => Quota::Requests(requests.max(1)),
            None => Quota::Span(span),
        }
    }
}

/// What the client does while no answer is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// Sleeps until it is woken, at the server's cost: what a server has to do for its clients.
    #[default]
    Sleep,
    /// Asks again at once.
    Spin,
}

/// What all lanes achieved.
pub(crate) struct LoadResult {
    /// In the order of the lanes.
    pub(crate) tallies: Vec<StreamResult>,
    /// How long the client found nothing to do.
    pub(crate) idle: Duration,
}

/// What one lane achieved.
#[derive(Debug, Default)]
pub(crate) struct StreamResult {
    pub(crate) requests: u64,
    pub(crate) body_bytes: u64,
    pub(crate) latencies_ns: Vec<u64>,
}

/// A load whose connections stand, ready to run.
pub(crate) struct LoadClient<'a> {
    address: SocketAddr,
    epoll: OwnedFd,
    exchanges: Vec<ClientExchange>,
    lanes: Vec<RunningStream<'a>>,
    lane_of: Vec<usize>,
    waiting: WaitMode,
}

struct RunningStream<'a> {
    lane: LoadStream<'a>,
    tally: StreamResult,
    discard: DiscardBuffer,
    begun: u64,
    /// When this run began.
    start: Instant,
    idle: Vec<usize>,
    /// Requests that fell due while every connection was busy.
    due: VecDeque<Instant>,
    next_due: Instant,
}

impl<'a> LoadClient<'a> {
    /// Opens every connection of every lane.
    pub(crate) fn connect(
        address: SocketAddr,
        lanes: Vec<LoadStream<'a>>,
        waiting: WaitMode,
    ) -> Result<LoadClient<'a>> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).context(|| "creating epoll".into())?;
        let lanes: Vec<_> = lanes.into_iter().map(RunningStream::new).collect();
        let mut client = LoadClient {
            address,
            epoll,
            exchanges: Vec::new(),
            lanes,
            lane_of: Vec::new(),
            waiting,
        };
        for lane in 0..client.lanes.len() {
            for _ in 0..client.lanes[lane].lane.connections {
                client.add_connection(lane)?;
            }
        }
        Ok(client)
    }

    fn add_connection(&mut self, lane: usize) -> Result<()> {
        let index = self.exchanges.len();
        let exchange = connect(self.address, &self.epoll, index)?;
        self.lanes[lane].idle.push(index);
        self.lane_of.push(lane);
        self.exchanges.push(exchange);
        Ok(())
    }

    /// Runs until every closed lane has used up its quota and every answer is complete. The
    /// connections stay open for another run. Broken off with an error once `stop` is set.
    pub(crate) fn run(&mut self, stop: &AtomicBool) -> Result<LoadResult> {
        let start = Instant::now();
        self.lanes.iter_mut().for_each(|lane| lane.restart(start));
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut idle = Duration::ZERO;
        let mut waiting_since = None;
        let mut last_progress = start;
        loop {
            let now = Instant::now();
            idle += waiting_since.map_or(Duration::ZERO, |since| now - since);
            self.begin_due(now)?;
            if self.is_finished(now) {
                let tallies = self.lanes.iter_mut().map(|l| std::mem::take(&mut l.tally));
                let tallies = tallies.collect();
                return Ok(LoadResult { tallies, idle });
            }
            check_time(now, start, last_progress)?;
            go_on_unless(stop)?;
            self.wait(&mut events)?;
            waiting_since = events.is_empty().then_some(now);
            if !events.is_empty() {
                last_progress = now;
            }
            for event in &events {
                let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                self.advance(index)?;
            }
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) -> Result<()> {
        let is_open = |lane: &RunningStream<'_>| matches!(lane.lane.pace, LoadPace::Open { .. });
        let timeout = match self.waiting {
            WaitMode::Spin => Duration::ZERO,
            WaitMode::Sleep if self.lanes.iter().any(is_open) => OPEN_WAIT,
            WaitMode::Sleep => STALL_TIMEOUT,
        };
        let timeout = Timespec::try_from(timeout).ok();
        events.clear();
        let space = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, space, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno).context(|| "waiting for answers".into()),
        }
    }

    fn begin_due(&mut self, now: Instant) -> Result<()> {
        let others_over = self.bounded_lanes_over(now);
        for lane in &mut self.lanes {
            lane.fall_due(now, others_over);
            while let Some((index, due)) = lane.next_to_begin() {
                self.exchanges[index].begin(lane.next_target(), due)?;
            }
        }
        Ok(())
    }

    /// One receive, and at a closed lane the next request right behind a complete answer.
    fn advance(&mut self, index: usize) -> Result<()> {
        let lane = &mut self.lanes[self.lane_of[index]];
        let exchange = &mut self.exchanges[index];
        match exchange.advance(&mut lane.discard)? {
            ReceiveProgress::Partial => Ok(()),
            ReceiveProgress::Complete => {
                let now = Instant::now();
                lane.tally
                    .latencies_ns
                    .push(nanoseconds(now - exchange.since));
                lane.tally.requests += 1;
                lane.tally.body_bytes += exchange.body_bytes();
                if exchange.is_over() {
                    *exchange = connect(self.address, &self.epoll, index)?;
                }
                if lane.quota_left(now) {
                    return exchange.begin(lane.next_target(), now);
                }
                lane.idle.push(index);
                Ok(())
            }
        }
    }

    /// Whether all lanes are over that end by themselves.
    fn bounded_lanes_over(&self, now: Instant) -> bool {
        let mut bounded = self.lanes.iter().filter(|lane| lane.is_bounded());
        bounded.all(|lane| !lane.goes_on(now) && lane.all_idle())
    }

    fn is_finished(&self, now: Instant) -> bool {
        self.bounded_lanes_over(now) && self.lanes.iter().all(|l| l.due.is_empty() && l.all_idle())
    }
}

impl<'a> RunningStream<'a> {
    fn new(lane: LoadStream<'a>) -> RunningStream<'a> {
        let discard = DiscardBuffer::new(lane.receive_bytes_max);
        RunningStream {
            lane,
            tally: StreamResult::default(),
            discard,
            begun: 0,
            start: Instant::now(),
            idle: Vec::new(),
            due: VecDeque::new(),
            next_due: Instant::now(),
        }
    }

    fn restart(&mut self, start: Instant) {
        self.begun = 0;
        self.start = start;
        self.next_due = start;
        if let LoadPace::ClosedLoad(quota) = self.lane.pace {
            let connections = self.lane.connections as u64;
            let first = match quota {
                Quota::Requests(requests) => requests.min(connections),
                Quota::Span(_) => connections,
            };
            self.tally.latencies_ns.reserve(LATENCIES_RESERVED);
            self.due.extend((0..first).map(|_| start));
        }
    }

    /// Where the client itself woke late the request is due now, not in the past: the server
    /// does not answer for the client's delays.
    fn fall_due(&mut self, now: Instant, others_over: bool) {
        let LoadPace::Open { interval, span } = self.lane.pace else {
            return;
        };
        let is_over = span.map_or(others_over, |span| now - self.start >= span);
        while !is_over && self.next_due <= now {
            self.due.push_back(now);
            self.next_due += interval;
        }
    }

    /// An idle connection for a request that is due.
    fn next_to_begin(&mut self) -> Option<(usize, Instant)> {
        let due = *self.due.front()?;
        let index = self.idle.pop()?;
        self.due.pop_front();
        Some((index, due))
    }

    fn is_bounded(&self) -> bool {
        !matches!(self.lane.pace, LoadPace::Open { span: None, .. })
    }

    /// Whether a lane that ends by itself has something to ask for.
    fn goes_on(&self, now: Instant) -> bool {
        match self.lane.pace {
            LoadPace::ClosedLoad(_) => self.quota_left(now),
            LoadPace::Open { span, .. } => {
                let is_over = span.is_none_or(|span| now - self.start >= span);
                !is_over || !self.due.is_empty()
            }
        }
    }

    fn quota_left(&self, now: Instant) -> bool {
        match self.lane.pace {
            LoadPace::ClosedLoad(Quota::Requests(requests)) => self.begun < requests,
            LoadPace::ClosedLoad(Quota::Span(span)) => now - self.start < span,
            LoadPace::Open { .. } => false,
        }
    }

    fn all_idle(&self) -> bool {
        self.idle.len() == self.lane.connections
    }

    fn next_target(&mut self) -> &'a RequestTarget {
        let targets = self.lane.targets;
        let index = self.begun % targets.len() as u64;
        self.begun += 1;
        &targets[usize::try_from(index).unwrap_or(0)]
    }
}

/// A connection that tells by its number that something has arrived.
fn connect(address: SocketAddr, epoll: &OwnedFd, number: usize) -> Result<ClientExchange> {
    let exchange = ClientExchange::connect(address)?;
    let data = epoll::EventData::new_u64(number as u64);
    epoll::add(epoll, &exchange, data, epoll::EventFlags::IN)
        .context(|| "adding a connection to epoll".into())?;
    Ok(exchange)
}

fn check_time(now: Instant, start: Instant, last_progress: Instant) -> Result<()> {
    if now - last_progress > STALL_TIMEOUT {
        return Err(Error::Answer(format!(
            "nothing arrived for {STALL_TIMEOUT:?}"
        )));
    }
    if now - start > LOAD_TIMEOUT {
        return Err(Error::Answer(format!(
            "the load is not done after {LOAD_TIMEOUT:?}"
        )));
    }
    Ok(())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use crate::load::ConnectionReuse;

    /// Answers every request on as many connections, until they are closed.
    fn server(connections: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut request = [0; 1024];
                    while stream.read(&mut request).is_ok_and(|read| read > 0) {
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
                        stream.write_all(answer).unwrap();
                    }
                });
            }
        });
        address
    }

    fn run(quota: Quota) -> StreamResult {
        run_on(ConnectionReuse::KeepAlive, server(3), quota)
    }

    fn run_on(connection: ConnectionReuse, address: SocketAddr, quota: Quota) -> StreamResult {
        let targets = [RequestTarget::get(address, "/x", 3, connection)];
        let lane = LoadStream {
            targets: &targets,
            connections: 3,
            pace: LoadPace::ClosedLoad(quota),
            receive_bytes_max: 1000,
        };
        let mut client = LoadClient::connect(address, vec![lane], WaitMode::Sleep).unwrap();
        client
            .run(&AtomicBool::new(false))
            .unwrap()
            .tallies
            .remove(0)
    }

    #[test]
    fn a_quota_of_requests_is_used_up_exactly() {
        for requests in [1, 3, 10] {
            let tally = run(Quota::Requests(requests));
            assert_eq!((tally.requests, tally.body_bytes), (requests, 3 * requests));
            assert_eq!(tally.latencies_ns.len() as u64, requests);
        }
    }

    #[test]
    fn an_open_lane_may_have_a_span_of_its_own() {
        let address = server(1);
        let targets = [RequestTarget::get(
            address,
            "/x",
            3,
            ConnectionReuse::KeepAlive,
        )];
        let interval = Duration::from_millis(5);
        let lane = LoadStream {
            targets: &targets,
            connections: 1,
            pace: LoadPace::Open {
                interval,
                span: Some(10 * interval),
            },
            receive_bytes_max: 1000,
        };
        let mut client = LoadClient::connect(address, vec![lane], WaitMode::Sleep).unwrap();
        let outcome = client.run(&AtomicBool::new(false)).unwrap();
        let tally = &outcome.tallies[0];
        assert!((1..=10).contains(&tally.requests), "{tally:?}");
        assert_eq!(tally.body_bytes, 3 * tally.requests);
    }

    #[test]
    fn where_connections_are_not_kept_every_request_has_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = thread::spawn(move || {
            // Three connections stand from the beginning, and one more behind each answer.
            for stream in listener.incoming().take(10) {
                let mut stream = stream.unwrap();
                let mut request = [0; 1024];
                if stream.read(&mut request).is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
                    stream.write_all(answer).unwrap();
                }
            }
        });
        let tally = run_on(ConnectionReuse::PerRequest, address, Quota::Requests(7));
        assert_eq!((tally.requests, tally.body_bytes), (7, 21));
        served.join().unwrap();
    }

    #[test]
    fn it_is_broken_off_once_somebody_wants_it_to_end() {
        let address = server(1);
        let targets = [RequestTarget::get(
            address,
            "/x",
            3,
            ConnectionReuse::KeepAlive,
        )];
        let lane = LoadStream {
            targets: &targets,
            connections: 1,
            pace: LoadPace::ClosedLoad(Quota::Span(LOAD_TIMEOUT)),
            receive_bytes_max: 1000,
        };
        let mut client = LoadClient::connect(address, vec![lane], WaitMode::Sleep).unwrap();
        assert!(client.run(&AtomicBool::new(true)).is_err());
    }

    #[test]
    fn within_a_span_connections_ask_again_and_every_answer_is_taken() {
        assert_eq!(run(Quota::Span(Duration::ZERO)).requests, 3);
        let many = run(Quota::Span(Duration::from_millis(50)));
        assert!(many.requests > 3, "{many:?}");
        assert_eq!(many.body_bytes, 3 * many.requests);
    }
}
