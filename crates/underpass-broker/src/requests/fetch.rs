//! Fetch requests, and how they wait for records.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};
use underpass::FileRange;
use underpass_log::{DiskWait, FirstBatch, LogRead, PartitionLog, RangeEnd, ReadError};

use underpass_net::LogThrottle;

use crate::broker::BrokerWorker;
use crate::fetch::asked::{self, AskedPartition, AskedTopic, FetchScope, TopicNaming};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::fetch::{
    FetchRequest, FetchResponse, FetchResponsePartitionData, FetchableTopicResponse,
};
use crate::protocol::wire::Records;

/// The largest response, in bytes, like `fetch.max.bytes` of Kafka's brokers.
const RESPONSE_BYTES_MAX: u64 = 55 << 20;

/// The number of partitions read before the worker yields.
const PARTITIONS_PER_TURN: usize = 500;

/// A fetch that reads its partitions for longer than this may do so for a fifth of the time.
const LONG_LOOK: Duration = Duration::from_millis(2);

/// The data found for the partitions of a fetch, with the file ranges that fill the gaps.
struct Fetched {
    /// In the order of the partitions.
    data: Vec<FetchResponsePartitionData<'static>>,
    ranges: Vec<FileRange>,
    bytes: u64,
    /// Whether to send the response immediately, however small it is.
    is_urgent: bool,
}

/// Answers a fetch when enough data is available, or after the requested time or `wait_max`, by a
/// call of `respond` with a response with gaps and the file ranges that fill them.
pub(crate) async fn fetch<R>(
    request: &FetchRequest<'_>,
    version: i16,
    (scope, worker): (FetchScope<'_>, &BrokerWorker),
    wait_max: Duration,
    respond: impl FnOnce(&FetchResponse<'_>, Vec<FileRange>) -> R,
) -> R {
    let naming = TopicNaming::of(version);
    let sessions = &worker.broker.fetch_sessions;
    let named = (request.session_id, request.session_epoch);
    let session = sessions.begin(scope.access.principal(), named, naming);
    let mut session = match session {
        Ok(session) => session,
        Err(code) => {
            let refused = FetchResponse {
                error_code: code.number(),
                ..FetchResponse::default()
            };
            return respond(&refused, Vec::new());
        }
    };
    match session.is_incremental() {
        true => asked::change(&mut session.partitions, request, naming, scope),
        false => session.partitions = asked::asked(request, naming, scope),
    }
    let found = wait_for(&session.partitions, request, worker, wait_max).await;
    let is_incremental = session.is_incremental();
    let session_id = session.keep();
    let mut partitions = session.partitions.iter_mut();
    let data = found.data.into_iter().filter_map(|data| {
        let asked = partitions.next()?;
        let is_news = asked.tell(&data);
        (is_news || !is_incremental).then_some((&asked.topic, data))
    });
    let response = FetchResponse {
        session_id,
        responses: by_topic(data),
        ..FetchResponse::default()
    };
    let responded = respond(&response, found.ranges);
    // So that the others have their turn if responses are full.
    session
        .partitions
        .sort_by_key(AskedPartition::has_sent_records);
    responded
}

/// Groups the partitions of a topic that follow each other.
fn by_topic<'a>(
    data: impl Iterator<Item = (&'a AskedTopic, FetchResponsePartitionData<'static>)>,
) -> Vec<FetchableTopicResponse<'a>> {
    let mut topics: Vec<FetchableTopicResponse<'a>> = Vec::new();
    for (AskedTopic { name, id }, data) in data {
        match topics.last_mut() {
            Some(last) if (last.topic, last.topic_id) == (&**name, *id) => {
                last.partitions.push(data);
            }
            _ => topics.push(FetchableTopicResponse {
                topic: name,
                topic_id: *id,
                partitions: vec![data],
            }),
        }
    }
    topics
}

/// Reads the partitions until there is enough to send.
async fn wait_for(
    partitions: &[AskedPartition],
    request: &FetchRequest<'_>,
    worker: &BrokerWorker,
    wait_max: Duration,
) -> Fetched {
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let until = Instant::now() + wait.min(wait_max);
    let bytes = |number: i32| u64::try_from(number).unwrap_or(0);
    let bytes_max = bytes(request.max_bytes).min(RESPONSE_BYTES_MAX);
    let wanted = bytes(request.min_bytes).min(bytes_max);
    let numbers = partitions.iter().flat_map(|one| &one.log);
    let mut numbers: Vec<_> = numbers.map(|log| log.number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    // Most fetches find records immediately and need no waiter.
    let mut waiter = None;
    loop {
        let begun = Instant::now();
        let found = read(partitions, bytes_max, &worker.refusals).await;
        let took = begun.elapsed();
        let is_over = numbers.is_empty() || Instant::now() >= until;
        if found.is_urgent || found.bytes >= wanted || is_over {
            return found;
        }
        match &waiter {
            None => waiter = Some(worker.waiters.wait_for(numbers.clone())),
            Some(waiter) => {
                drop(timeout_at(until, waiter.moved()).await);
                // Reading very many partitions must not occupy the worker.
                if took > LONG_LOOK {
                    sleep_until(until.min(Instant::now() + 4 * took)).await;
                }
            }
        }
    }
}

/// Reads the records available now.
async fn read(partitions: &[AskedPartition], bytes_max: u64, refusals: &LogThrottle) -> Fetched {
    let mut left = bytes_max;
    let mut fetched = Fetched {
        data: Vec::with_capacity(partitions.len()),
        ranges: Vec::new(),
        bytes: 0,
        is_urgent: false,
    };
    for (number, partition) in (1..).zip(partitions) {
        if number % PARTITIONS_PER_TURN == 0 {
            yield_now().await;
        }
        let data = fetched.partition(partition, (&mut left, refusals)).await;
        fetched.data.push(data);
    }
    fetched
}

impl Fetched {
    /// Reads from a partition. The first partition with records returns at least one batch.
    async fn partition(
        &mut self,
        asked: &AskedPartition,
        (left, refusals): (&mut u64, &LogThrottle),
    ) -> FetchResponsePartitionData<'static> {
        let mut data = FetchResponsePartitionData {
            partition_index: asked.partition,
            high_watermark: -1,
            records: Records::Bytes(&[]),
            ..Default::default()
        };
        let log = match &asked.log {
            Ok(log) if !log.is_deleted() => log,
            missing => {
                let code = missing.as_ref().err();
                let code = code.unwrap_or(&ErrorCode::UnknownTopicOrPartition);
                self.is_urgent = true;
                data.error_code = code.number();
                return data;
            }
        };
        let first = match self.bytes {
            0 => FirstBatch::Whole,
            _ => FirstBatch::Fitting,
        };
        let max = asked.bytes_max.min(*left);
        let read = match check_epoch(log, asked.current_leader_epoch) {
            Ok(()) => match read_log(log, asked.fetch_offset, max, first).await {
                Ok(LogRead::Records(range, end)) => {
                    // Waiting does not help: the next file already has more records.
                    self.is_urgent |= end == RangeEnd::File;
                    Ok(Some(range))
                }
                Ok(LogRead::Empty | LogRead::NeedsDisk) => Ok(None),
                Err(ReadError::OutOfRange { .. }) => Err(ErrorCode::OffsetOutOfRange),
                Err(error) => {
                    let (name, offset) = (log.name(), asked.fetch_offset);
                    refusals.warn(format_args!(
                        "{name}: a fetch from offset {offset}: {error}"
                    ));
                    Err(ErrorCode::KafkaStorageError)
                }
            },
            Err(code) => Err(code),
        };
        let offsets = log.offsets();
        data.high_watermark = offsets.high_watermark;
        data.last_stable_offset = offsets.high_watermark;
        data.log_start_offset = offsets.start;
        match read {
            Ok(Some(range)) => {
                let length = u32::try_from(range.len).unwrap_or(u32::MAX);
                data.records = Records::Elsewhere(length);
                *left = left.saturating_sub(range.len);
                self.bytes += range.len;
                self.ranges.push(range);
            }
            Ok(None) => {}
            Err(code) => {
                // Delay storage errors: clients retry immediately and do not log them.
                self.is_urgent |= code != ErrorCode::KafkaStorageError;
                data.error_code = code.number();
            }
        }
        data
    }
}

/// Checks the epoch that a consumer knows, if it sends one (KIP-320).
pub(crate) fn check_epoch(log: &PartitionLog, known: i32) -> Result<(), ErrorCode> {
    let present = log.offsets().leader_epoch;
    match known {
        known if known < 0 || known == present => Ok(()),
        known if known < present => Err(ErrorCode::FencedLeaderEpoch),
        _ => Err(ErrorCode::UnknownLeaderEpoch),
    }
}

/// Reads immediately, or on a thread that may wait for the disk.
async fn read_log(
    log: &Arc<PartitionLog>,
    offset: i64,
    bytes_max: u64,
    first: FirstBatch,
) -> Result<LogRead, ReadError> {
    match log.read(offset, bytes_max, first, DiskWait::Forbidden) {
        Ok(LogRead::NeedsDisk) => {
            let log = Arc::clone(log);
            let read = move || log.read(offset, bytes_max, first, DiskWait::Allowed);
            let read = tokio::task::spawn_blocking(read).await;
            read.map_err(io::Error::other)?
        }
        read => read,
    }
}
