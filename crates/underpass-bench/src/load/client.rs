//! The load: many connections, one thread, one epoll, bounded in count and in time.
//!
//! A load is a stream of requests at its own pace:
//!
//! ```text
//!   closed stream   response ─► next request at once, until the quota is used up; responses that
//!                   have begun by then are still received whole
//!   open stream     a request is due every interval, whatever the responses do, for a span or
//!                   until something else is over; its latency counts from when it was due
//! ```
//!
//! The kernel charges waking the sleeping client to the process that wakes it, which is the server.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::exchange::{BodySink, ClientExchange, ReceiveProgress};
use super::go_on_unless;
use super::request::{ConnectionReuse, RequestTarget};
use super::transport::ServerAddress;
use crate::error::{Error, ErrorContext, Result};

/// A load in which nothing arrives for this long is stuck.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// No load may last longer, whatever it was asked to fetch.
const LOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest sleep while requests of an open stream become due.
const OPEN_WAIT: Duration = Duration::from_millis(1);

const EVENTS_MAX: usize = 256;

/// Room for the latencies of a second of small requests, so that growing doesn't disturb the first
/// ones.
const LATENCIES_RESERVED: usize = 1 << 17;

pub(crate) struct LoadStream<'a> {
    pub(crate) targets: &'a [RequestTarget],
    pub(crate) connections: usize,
    pub(crate) pace: LoadPace<'a>,
    /// The most that one receive may discard before other connections have their turn.
    pub(crate) receive_bytes_max: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum LoadPace<'a> {
    Closed(Quota),
    Open {
        interval: Duration,
        end: OpenEnd<'a>,
    },
}

/// When an open stream ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OpenEnd<'a> {
    After(Duration),
    /// When this is set.
    With(&'a AtomicBool),
}

/// The amount of requests of a closed stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Quota {
    Requests(u64),
    /// As many as begin within this time.
    Span(Duration),
}

impl Quota {
    /// This number of requests if there is one, else those that begin within `span`.
    pub(crate) fn of(requests: Option<u64>, span: Duration) -> Quota {
        match requests {
            Some(requests) => Quota::Requests(requests.max(1)),
            None => Quota::Span(span),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct StreamResult {
    pub(crate) requests: u64,
    pub(crate) body_bytes: u64,
    pub(crate) latencies_ns: Vec<u64>,
    /// Until the head of each response.
    pub(crate) heads_ns: Vec<u64>,
}

/// A load whose connections are open, ready to run.
pub(crate) struct LoadClient<'a> {
    address: ServerAddress,
    epoll: OwnedFd,
    exchanges: Vec<ClientExchange>,
    stream: RunningStream<'a>,
}

struct RunningStream<'a> {
    stream: LoadStream<'a>,
    result: StreamResult,
    discard: BodySink,
    begun: u64,
    start: Instant,
    idle: Vec<usize>,
    /// Requests that became due while every connection was busy.
    due: VecDeque<Instant>,
    next_due: Instant,
}

impl<'a> LoadClient<'a> {
    pub(crate) fn connect(
        address: &ServerAddress,
        stream: LoadStream<'a>,
    ) -> Result<LoadClient<'a>> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).context(|| "creating epoll".into())?;
        let connect = |number| connect(address, stream.reuse(), (&epoll, number));
        let exchanges: Result<_> = (0..stream.connections).map(connect).collect();
        Ok(LoadClient {
            address: address.clone(),
            exchanges: exchanges?,
            epoll,
            stream: RunningStream::new(stream),
        })
    }

    /// Runs until the quota is used up, or the stream ends, and every response is complete. Fails
    /// once `stop` is set.
    pub(crate) fn run(&mut self, stop: &AtomicBool) -> Result<StreamResult> {
        let start = Instant::now();
        self.stream.begin(start);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut last_progress = start;
        loop {
            let now = Instant::now();
            let stream = &mut self.stream;
            stream.add_due(now);
            while let Some((index, due)) = stream.next_to_begin() {
                self.exchanges[index].begin(stream.next_target(), due)?;
            }
            if stream.is_over(now) && stream.due.is_empty() && stream.all_idle() {
                return Ok(std::mem::take(&mut stream.result));
            }
            check_time(now, start, last_progress)?;
            go_on_unless(stop)?;
            self.wait(&mut events)?;
            if !events.is_empty() {
                last_progress = now;
            }
            for event in &events {
                self.advance(usize::try_from(event.data.u64()).unwrap_or(usize::MAX))?;
            }
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) -> Result<()> {
        let timeout = match self.stream.stream.pace {
            LoadPace::Open { .. } => OPEN_WAIT,
            LoadPace::Closed(_) => STALL_TIMEOUT,
        };
        let timeout = Timespec::try_from(timeout).ok();
        events.clear();
        let space = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, space, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno).context(|| "waiting for responses".into()),
        }
    }

    /// Receives once, and on a closed stream sends the next request after a complete response.
    fn advance(&mut self, index: usize) -> Result<()> {
        let (stream, exchange) = (&mut self.stream, &mut self.exchanges[index]);
        if exchange.advance(&mut stream.discard)? == ReceiveProgress::Partial {
            return Ok(());
        }
        let now = Instant::now();
        let result = &mut stream.result;
        result.latencies_ns.push(nanoseconds(now - exchange.since));
        result.heads_ns.push(nanoseconds(exchange.head_after));
        result.requests += 1;
        result.body_bytes += exchange.body_bytes();
        if exchange.is_over() {
            *exchange = connect(
                &self.address,
                ConnectionReuse::PerRequest,
                (&self.epoll, index),
            )?;
        }
        if matches!(stream.stream.pace, LoadPace::Closed(_)) && !stream.is_over(now) {
            return exchange.begin(stream.next_target(), now);
        }
        stream.idle.push(index);
        Ok(())
    }
}

impl<'a> RunningStream<'a> {
    fn new(stream: LoadStream<'a>) -> RunningStream<'a> {
        RunningStream {
            idle: (0..stream.connections).collect(),
            discard: BodySink::discard(stream.receive_bytes_max),
            stream,
            result: StreamResult::default(),
            begun: 0,
            start: Instant::now(),
            due: VecDeque::new(),
            next_due: Instant::now(),
        }
    }

    fn begin(&mut self, start: Instant) {
        (self.start, self.next_due) = (start, start);
        if let LoadPace::Closed(quota) = self.stream.pace {
            let connections = self.stream.connections as u64;
            let first = match quota {
                Quota::Requests(requests) => requests.min(connections),
                Quota::Span(_) => connections,
            };
            self.result.latencies_ns.reserve(LATENCIES_RESERVED);
            self.due.extend((0..first).map(|_| start));
        }
    }

    /// If the client itself wakes late, the request is due now and not in the past: the server is
    /// not charged for the client's delays.
    fn add_due(&mut self, now: Instant) {
        let LoadPace::Open { interval, .. } = self.stream.pace else {
            return;
        };
        while !self.is_over(now) && self.next_due <= now {
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

    /// Whether nothing more becomes due, or is requested after a response.
    fn is_over(&self, now: Instant) -> bool {
        match self.stream.pace {
            LoadPace::Closed(Quota::Requests(requests)) => self.begun >= requests,
            LoadPace::Closed(Quota::Span(span))
            | LoadPace::Open {
                end: OpenEnd::After(span),
                ..
            } => now - self.start >= span,
            LoadPace::Open {
                end: OpenEnd::With(other),
                ..
            } => other.load(Ordering::Relaxed),
        }
    }

    fn all_idle(&self) -> bool {
        self.idle.len() == self.stream.connections
    }

    fn next_target(&mut self) -> &'a RequestTarget {
        let targets = self.stream.targets;
        let index = self.begun % targets.len() as u64;
        self.begun += 1;
        &targets[usize::try_from(index).unwrap_or(0)]
    }
}

impl LoadStream<'_> {
    fn reuse(&self) -> ConnectionReuse {
        let first = self.targets.first();
        first.map_or(ConnectionReuse::KeepAlive, |target| target.reuse)
    }
}

/// Opens a connection that epoll reports by this number. Handshakes are measured with the requests
/// where each request has one, and are over before anything is measured otherwise.
fn connect(
    address: &ServerAddress,
    reuse: ConnectionReuse,
    (epoll, number): (&OwnedFd, usize),
) -> Result<ClientExchange> {
    let exchange = match reuse {
        ConnectionReuse::KeepAlive => ClientExchange::connect_ready(address)?,
        ConnectionReuse::PerRequest => ClientExchange::connect(address)?,
    };
    let data = epoll::EventData::new_u64(number as u64);
    epoll::add(epoll, &exchange, data, epoll::EventFlags::IN)
        .context(|| "adding a connection to epoll".into())?;
    Ok(exchange)
}

pub(super) fn check_time(now: Instant, start: Instant, last_progress: Instant) -> Result<()> {
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

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};
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
        let stream = LoadStream {
            targets: &targets,
            connections: 3,
            pace: LoadPace::Closed(quota),
            receive_bytes_max: 1000,
        };
        let mut client = LoadClient::connect(&address.into(), stream).unwrap();
        client.run(&AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn a_quota_of_requests_is_used_up_exactly() {
        for requests in [1, 3, 10] {
            let result = run(Quota::Requests(requests));
            assert_eq!(
                (result.requests, result.body_bytes),
                (requests, 3 * requests)
            );
            assert_eq!(result.latencies_ns.len() as u64, requests);
        }
    }

    #[test]
    fn an_open_stream_may_have_a_span_of_its_own() {
        let address = server(1);
        let targets = [RequestTarget::get(
            address,
            "/x",
            3,
            ConnectionReuse::KeepAlive,
        )];
        let interval = Duration::from_millis(5);
        let stream = LoadStream {
            targets: &targets,
            connections: 1,
            pace: LoadPace::Open {
                interval,
                end: OpenEnd::After(10 * interval),
            },
            receive_bytes_max: 1000,
        };
        let mut client = LoadClient::connect(&address.into(), stream).unwrap();
        let result = client.run(&AtomicBool::new(false)).unwrap();
        assert!((1..=10).contains(&result.requests), "{result:?}");
        assert_eq!(result.body_bytes, 3 * result.requests);
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
        let result = run_on(ConnectionReuse::PerRequest, address, Quota::Requests(7));
        assert_eq!((result.requests, result.body_bytes), (7, 21));
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
        let stream = LoadStream {
            targets: &targets,
            connections: 1,
            pace: LoadPace::Closed(Quota::Span(LOAD_TIMEOUT)),
            receive_bytes_max: 1000,
        };
        let mut client = LoadClient::connect(&address.into(), stream).unwrap();
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
