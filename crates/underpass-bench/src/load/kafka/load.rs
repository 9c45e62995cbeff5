//! Connections that produce and fetch together: one thread, one poll, bounded in count and time.
//!
//! ```text
//!   produce   up to `window` requests are under way on each connection, or one is due every
//!             interval
//!   fetch     response ─► next request: from the start repeatedly, once to the end, or until the
//!             others end; then a record's latency counts from the time it was due
//! ```

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::batch::PreparedTopic;
use super::connection::{BrokerConnection, frame_bytes};
use super::message::{self, check_code, malformed};
use crate::error::{Error, ErrorContext, Result};
use crate::load::client::{StreamResult, check_time, nanoseconds};
use crate::load::go_on_unless;
use crate::load::transport::ServerAddress;

/// The longest sleep while requests become due.
const WAIT: Duration = Duration::from_millis(1);

/// Bytes that followers of a producer request of a partition.
const FOLLOW_BYTES: i32 = 1 << 20;

/// One receive that discards records.
const DISCARD_BYTES: usize = 4 << 20;

/// Bytes per receive of a response's head: most of the rest is left for `MSG_TRUNC`.
const HEAD_BYTES: usize = 1024;

/// One receive of a response whose heads are all over it, or of small responses.
const WHOLE_BYTES: usize = 256 << 10;

pub(crate) struct BrokerStream<'a> {
    pub(crate) connections: usize,
    pub(crate) topic: &'a PreparedTopic,
    pub(crate) role: BrokerRole,
    pub(crate) end: StreamEnd,
}

impl BrokerStream<'_> {
    /// One connection that produces with `acks=1` and five requests in flight.
    pub(crate) fn producer(
        topic: &PreparedTopic,
        interval: Option<Duration>,
        end: StreamEnd,
    ) -> BrokerStream<'_> {
        BrokerStream {
            connections: 1,
            topic,
            role: BrokerRole::Produce {
                acks: 1,
                window: 5,
                interval,
            },
            end,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum BrokerRole {
    /// A batch for each request. Its partition follows from the number of the request, so that
    /// each connection has its own where there are as many.
    Produce {
        acks: i16,
        /// Requests of a connection that wait for a response.
        window: usize,
        /// A request is due this often, whatever the responses do.
        interval: Option<Duration>,
    },
    /// This much of each partition of the topic in each request. Behind what the topic was filled
    /// with its beginning follows.
    Fetch { slice_bytes: i32 },
    /// The same for the records of the producer with this number, from this offset on.
    Follow { producer: usize, from: i64 },
}

#[derive(Clone, Copy)]
pub(crate) enum StreamEnd {
    Requests(u64),
    /// As many requests as begin, or are due, within this time.
    Span(Duration),
    /// All that the topic was filled with.
    Topic,
    /// That of the other streams.
    WithOthers,
}

pub(crate) struct BrokerLoad<'a> {
    connections: Vec<LoadConnection>,
    streams: Vec<RunningBrokerStream<'a>>,
    discard: Vec<u8>,
    start: Instant,
}

struct RunningBrokerStream<'a> {
    stream: BrokerStream<'a>,
    result: StreamResult,
    begun: u64,
    /// When each request was due.
    due: Vec<Instant>,
}

struct LoadConnection {
    stream: usize,
    connection: BrokerConnection,
    /// The bytes to send, and the number sent so far.
    output: Vec<u8>,
    sent: usize,
    /// When each request was due that waits for a response.
    in_flight: VecDeque<Instant>,
    input: Vec<u8>,
    filled: usize,
    /// Bytes of a response left to discard, and its records.
    left: u64,
    records_bytes: usize,
    offset: i64,
}

impl<'a> BrokerLoad<'a> {
    /// Opens every connection of every stream.
    pub(crate) fn connect(
        address: &ServerAddress,
        streams: Vec<BrokerStream<'a>>,
    ) -> Result<BrokerLoad<'a>> {
        let mut connections = Vec::new();
        for (stream, one) in streams.iter().enumerate() {
            for _ in 0..one.connections {
                let connection = BrokerConnection::connect(address)?;
                connections.push(LoadConnection::new(stream, one, connection));
            }
        }
        let streams = streams.into_iter().map(|stream| RunningBrokerStream {
            stream,
            result: StreamResult::default(),
            begun: 0,
            due: Vec::new(),
        });
        Ok(BrokerLoad {
            connections,
            streams: streams.collect(),
            discard: vec![0; DISCARD_BYTES],
            start: Instant::now(),
        })
    }

    /// Runs until every stream that ends by itself has, and returns the results in the order of the
    /// streams. Fails once `stop` is set.
    pub(crate) fn run(&mut self, stop: &AtomicBool) -> Result<Vec<StreamResult>> {
        self.start = Instant::now();
        let mut last_progress = self.start;
        loop {
            let now = Instant::now();
            for connection in &mut self.connections {
                let stream = &mut self.streams[connection.stream];
                connection.send(stream, (now, self.start))?;
            }
            if self.is_finished(now) {
                let streams = self.streams.iter_mut();
                return Ok(streams.map(|one| std::mem::take(&mut one.result)).collect());
            }
            check_time(now, self.start, last_progress)?;
            go_on_unless(stop)?;
            if self.wait_and_receive()? {
                last_progress = now;
            }
        }
    }

    /// Returns whether anything has come.
    fn wait_and_receive(&mut self) -> Result<bool> {
        let events = |one: &LoadConnection| match one.sent < one.output.len() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let connections = self.connections.iter();
        let mut ready: Vec<_> = connections
            .map(|one| PollFd::new(&one.connection, events(one)))
            .collect();
        poll(&mut ready, Timespec::try_from(WAIT).ok().as_ref())
            .context(|| "waiting for responses".into())?;
        let is_readable = |one: &PollFd| !(one.revents() - PollFlags::OUT).is_empty();
        let readable = (0..).zip(&ready).filter(|(_, one)| is_readable(one));
        let readable: Vec<usize> = readable.map(|(index, _)| index).collect();
        for &index in &readable {
            let connection = &mut self.connections[index];
            loop {
                match connection.receive(&mut self.streams, &mut self.discard) {
                    Err(error) if error.would_block() => break,
                    received => received?,
                }
                // Nothing else reports what the transport has already received.
                if connection.connection.transport.is_drained() {
                    break;
                }
            }
        }
        Ok(!readable.is_empty())
    }

    fn is_finished(&self, now: Instant) -> bool {
        self.connections.iter().all(|one| {
            let stream = &self.streams[one.stream];
            let is_idle = one.in_flight.is_empty() && one.sent == one.output.len();
            let ends_by_itself = !matches!(stream.stream.end, StreamEnd::WithOthers);
            !ends_by_itself || (is_idle && !stream.goes_on(one.offset, (now, self.start)))
        })
    }
}

impl RunningBrokerStream<'_> {
    /// The most requests of a connection that wait for a response, and how often one is due.
    fn pace(&self) -> (usize, Option<Duration>) {
        match self.stream.role {
            BrokerRole::Produce {
                window, interval, ..
            } => (window, interval),
            _ => (1, None),
        }
    }

    /// Whether a connection at this offset has another request to send, now or later.
    fn goes_on(&self, offset: i64, (now, start): (Instant, Instant)) -> bool {
        match self.stream.end {
            StreamEnd::Requests(requests) => self.begun < requests,
            StreamEnd::Span(span) => self.next_due((now, start)) < start + span,
            StreamEnd::Topic => offset < self.stream.topic.end(),
            StreamEnd::WithOthers => true,
        }
    }

    /// When the next request is due.
    fn next_due(&self, (now, start): (Instant, Instant)) -> Instant {
        let begun = u32::try_from(self.begun).unwrap_or(u32::MAX);
        let (_, interval) = self.pace();
        interval.map_or(now, |interval| start + interval * begun)
    }

    fn next_request(&mut self, offset: i64) -> Vec<u8> {
        let (topic, number) = (self.stream.topic, self.begun);
        self.begun += 1;
        let fetch =
            |slice_bytes| message::fetch(&topic.name, 0..topic.partitions, offset, slice_bytes);
        match self.stream.role {
            BrokerRole::Produce { acks, .. } => {
                let partitions = topic.partition_count();
                let batch = topic.batch(number / partitions);
                message::produce(&topic.name, (number % partitions) as i32, acks, batch)
            }
            BrokerRole::Fetch { slice_bytes } => fetch(slice_bytes),
            BrokerRole::Follow { .. } => fetch(FOLLOW_BYTES),
        }
    }
}

impl LoadConnection {
    fn new(stream: usize, of: &BrokerStream<'_>, connection: BrokerConnection) -> Self {
        let (room, offset) = match of.role {
            BrokerRole::Follow { from, .. } => (HEAD_BYTES, from),
            BrokerRole::Fetch { .. } if of.topic.partitions == 1 => (HEAD_BYTES, 0),
            _ => (WHOLE_BYTES, 0),
        };
        LoadConnection {
            stream,
            connection,
            output: Vec::new(),
            sent: 0,
            in_flight: VecDeque::new(),
            input: vec![0; room],
            filled: 0,
            left: 0,
            records_bytes: 0,
            offset,
        }
    }

    /// Sends as many requests as there may be, and as the socket takes.
    fn send(
        &mut self,
        stream: &mut RunningBrokerStream<'_>,
        (now, start): (Instant, Instant),
    ) -> Result<()> {
        loop {
            if self.sent == self.output.len() {
                let due = stream.next_due((now, start));
                let is_full = self.in_flight.len() >= stream.pace().0;
                if is_full || due > now || !stream.goes_on(self.offset, (now, start)) {
                    return Ok(());
                }
                stream.due.push(due);
                self.output = stream.next_request(self.offset);
                self.sent = 0;
                self.in_flight.push_back(due);
            }
            let rest = &self.output[self.sent..];
            match self.connection.transport.send_part(rest)? {
                0 => return Ok(()),
                sent => self.sent += sent,
            }
        }
    }

    /// Receives once.
    fn receive(
        &mut self,
        streams: &mut [RunningBrokerStream<'_>],
        discard: &mut [u8],
    ) -> Result<()> {
        if self.left > 0 {
            self.left -= self.connection.transport.discard(self.left, discard)?;
            return match self.left {
                0 => self.fetched(streams),
                _ => Ok(()),
            };
        }
        if self.filled == self.input.len() {
            self.input.resize(2 * self.filled, 0);
        }
        let space = &mut self.input[self.filled..];
        self.filled += self.connection.transport.receive(space)?;
        match streams[self.stream].stream.role {
            BrokerRole::Produce { .. } => self.take_produced(&mut streams[self.stream]),
            _ => self.take_fetched(streams),
        }
    }

    /// Takes all responses to Produce that have come.
    fn take_produced(&mut self, stream: &mut RunningBrokerStream<'_>) -> Result<()> {
        let mut taken = 0;
        while let Some(whole) = frame_bytes(&self.input[taken..self.filled])?
            && let Some(frame) = self.input[taken..self.filled].get(..whole)
        {
            message::produced(frame)?;
            taken += whole;
            let since = self.in_flight.pop_front().ok_or_else(malformed)?;
            let result = &mut stream.result;
            result.latencies_ns.push(nanoseconds(since.elapsed()));
            result.requests += 1;
            result.body_bytes += stream.stream.topic.batch_bytes() as u64;
        }
        self.input.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        Ok(())
    }

    /// Takes the head of a response to Fetch and leaves the rest to be discarded, or all of it
    /// where there are many heads.
    fn take_fetched(&mut self, streams: &mut [RunningBrokerStream<'_>]) -> Result<()> {
        let received = &self.input[..self.filled];
        let Some(whole) = frame_bytes(received)? else {
            return Ok(());
        };
        let Some((code, records_bytes)) = fetched_records(received) else {
            return match self.filled < whole {
                true => Ok(()),
                false => Err(malformed()),
            };
        };
        check_code(code, "Fetch")?;
        let left = whole.checked_sub(self.filled);
        self.left = left.ok_or_else(|| Error::Answer("more bytes than announced".into()))? as u64;
        (self.records_bytes, self.filled) = (records_bytes, 0);
        match self.left {
            0 => self.fetched(streams),
            _ => Ok(()),
        }
    }

    /// Counts a complete response to Fetch, and continues after it.
    fn fetched(&mut self, streams: &mut [RunningBrokerStream<'_>]) -> Result<()> {
        let now = Instant::now();
        let since = self.in_flight.pop_front().ok_or_else(malformed)?;
        let BrokerStream {
            topic, role, end, ..
        } = streams[self.stream].stream;
        let slice_bytes = self.records_bytes / topic.partitions as usize;
        let batches = slice_bytes / topic.batch_bytes();
        let latencies: Vec<u64> = match role {
            BrokerRole::Follow { producer, from } => {
                let first = usize::try_from(self.offset - from).unwrap_or(0);
                let due = streams[producer].due.get(first..first + batches);
                let due = due.ok_or_else(|| Error::Answer("records from nowhere".into()))?;
                due.iter().map(|due| nanoseconds(now - *due)).collect()
            }
            _ if batches == 0 => return Err(Error::Answer("a fetch without records".into())),
            _ => vec![nanoseconds(now - since)],
        };
        self.offset += batches as i64 * topic.batch_records;
        if matches!(end, StreamEnd::Span(_)) && self.offset >= topic.end() {
            self.offset = 0;
        }
        let result = &mut streams[self.stream].result;
        result.latencies_ns.extend(latencies);
        result.requests += 1;
        result.body_bytes += self.records_bytes as u64;
        Ok(())
    }
}

/// The first error, and the bytes of the records of all partitions. Of a single partition the
/// records need not have come.
fn fetched_records(frame: &[u8]) -> Option<(i16, usize)> {
    let (mut code, partitions, mut reader) = message::fetched(frame)?;
    let mut bytes = 0;
    for _ in 0..partitions {
        let (partition_code, length) = reader.fetched_partition()?;
        code = if code == 0 { partition_code } else { code };
        bytes += length;
        if partitions > 1 {
            reader.take(length)?;
            reader.tags()?;
        }
    }
    Some((code, bytes))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread;

    use super::*;

    fn read_request(peer: &mut TcpStream) -> Option<Vec<u8>> {
        let mut size = [0; 4];
        peer.read_exact(&mut size).ok()?;
        let mut request = vec![0; i32::from_be_bytes(size) as usize];
        peer.read_exact(&mut request).ok()?;
        Some(request)
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        [&(body.len() as i32).to_be_bytes(), body].concat()
    }

    fn fetch_response(records: &[u8]) -> Vec<u8> {
        let mut body = vec![0; 5 + 4 + 2 + 4];
        body.extend([2, 2, b't', 2]);
        body.extend([0; 4 + 2 + 3 * 8 + 1 + 4]);
        message::push_unsigned(&mut body, records.len() as u64 + 1);
        body.extend(records);
        body.extend([0; 3]);
        framed(&body)
    }

    /// A topic of two batches, and what a broker stores of it.
    fn topic() -> (PreparedTopic, Vec<u8>) {
        let topic = PreparedTopic::new("t", 1, 2 << 10, 1 << 10);
        let mut stored = [topic.batch(0), topic.batch(1)].concat();
        stored[topic.batch_bytes()..][..8].copy_from_slice(&1_i64.to_be_bytes());
        (topic, stored)
    }

    /// A broker that answers each request with this, in two pieces.
    fn scripted(response: Vec<u8>, cut: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut peer = listener.accept().unwrap().0;
            while read_request(&mut peer).is_some() {
                let (first, second) = response.split_at(cut);
                if peer
                    .write_all(first)
                    .and_then(|()| peer.write_all(second))
                    .is_err()
                {
                    return;
                }
            }
        });
        address
    }

    fn run(
        address: SocketAddr,
        topic: &PreparedTopic,
        (role, end): (BrokerRole, StreamEnd),
    ) -> Result<StreamResult> {
        let stream = BrokerStream {
            connections: 1,
            topic,
            role,
            end,
        };
        let mut load = BrokerLoad::connect(&address.into(), vec![stream])?;
        Ok(load.run(&AtomicBool::new(false))?.swap_remove(0))
    }

    #[test]
    fn records_are_counted_to_their_last_byte_however_they_arrive() {
        let (topic, stored) = topic();
        let response = fetch_response(&stored);
        for cut in [0, 3, 20, 60, 100, response.len() - 1] {
            let fetch = BrokerRole::Fetch {
                slice_bytes: 1 << 20,
            };
            let broker = scripted(response.clone(), cut);
            let result = run(broker, &topic, (fetch, StreamEnd::Topic)).unwrap();
            let counted = (result.requests, result.body_bytes as usize);
            assert_eq!(counted, (1, stored.len()), "cut at {cut}");
        }
    }

    #[test]
    fn records_other_than_produced_are_an_error() {
        let (topic, mut stored) = topic();
        let check = |stored: &[u8]| {
            let address = scripted(fetch_response(stored), 1);
            BrokerConnection::connect(&address.into())?.check(&topic)
        };
        check(&stored).unwrap();
        *stored.last_mut().unwrap() ^= 1;
        let differs = check(&stored).unwrap_err().to_string();
        assert!(differs.contains("t-0 has other records"), "{differs}");
    }

    #[test]
    fn acknowledgements_are_counted_and_errors_reported() {
        let (topic, _) = topic();
        let produce = |code: u8| {
            let mut body = vec![0; 5];
            body.extend([2, 2, b't', 2, 0, 0, 0, 0, 0, code]);
            body.extend([0; 3 * 8 + 4 + 4 + 1]);
            let role = BrokerRole::Produce {
                acks: 1,
                window: 5,
                interval: None,
            };
            run(
                scripted(framed(&body), 5),
                &topic,
                (role, StreamEnd::Requests(7)),
            )
        };
        assert_eq!(produce(0).unwrap().requests, 7);
        let refused = produce(87).unwrap_err().to_string();
        assert!(refused.contains("Produce: error 87"), "{refused}");
    }

    #[test]
    fn a_stream_with_a_pace_goes_on_for_its_span() {
        let (topic, _) = topic();
        let mut body = vec![0; 5];
        body.extend([2, 2, b't', 2]);
        body.extend([0; 40]);
        let role = BrokerRole::Produce {
            acks: 1,
            window: 5,
            interval: Some(Duration::from_millis(4)),
        };
        let end = StreamEnd::Span(Duration::from_millis(20));
        let result = run(scripted(framed(&body), 5), &topic, (role, end)).unwrap();
        assert_eq!((result.requests, result.latencies_ns.len()), (5, 5));
    }
}
