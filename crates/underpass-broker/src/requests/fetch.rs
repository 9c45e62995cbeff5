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
use crate::metadata::topic_id::TopicId;
use crate::metadata::topics::{Topic, TopicMap};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchResponsePartitionData, FetchTopic,
    FetchableTopicResponse,
};
use crate::protocol::wire::{Records, Uuid};
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// The version since which topics have IDs instead of names.
const TOPIC_IDS_VERSION: i16 = 13;

/// The largest response, in bytes, like `fetch.max.bytes` of Kafka's brokers.
const RESPONSE_BYTES_MAX: u64 = 55 << 20;

/// The number of partitions read before the worker yields.
const PARTITIONS_PER_TURN: usize = 500;

/// A fetch that reads its partitions for longer than this may do so for a fifth of the time.
const LONG_LOOK: Duration = Duration::from_millis(2);

/// A fetch response with placeholders, and the file ranges that fill them.
pub(crate) struct Fetched<'a> {
    pub(crate) response: FetchResponse<'a>,
    pub(crate) ranges: Vec<FileRange>,
    bytes: u64,
    /// Whether to send the response immediately, however small it is.
    is_urgent: bool,
}

/// Answers a fetch when enough data is available, or after the requested time or `wait_max`.
/// Sessions are not supported: every response says so, and clients send full requests.
pub(crate) async fn fetch<'a>(
    request: &FetchRequest<'a>,
    version: i16,
    (topics, worker, access): (&TopicMap, &BrokerWorker, &ClientAccess),
    wait_max: Duration,
) -> Fetched<'a> {
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let until = Instant::now() + wait.min(wait_max);
    let bytes = |number: i32| u64::try_from(number).unwrap_or(0);
    let wanted = bytes(request.min_bytes)
        .min(bytes(request.max_bytes))
        .min(RESPONSE_BYTES_MAX);
    let logs = logs(request, version, topics, access);
    let numbers = logs.iter().flatten().flatten().map(|log| log.number());
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    // Most fetches find records immediately and need no waiter.
    let mut waiter = None;
    loop {
        let begun = Instant::now();
        let found = read(request, &logs, &worker.refusals).await;
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

/// The log of a partition, or an error.
type FetchedLog = Result<Arc<PartitionLog>, ErrorCode>;

/// Returns the logs of the partitions of a request, in its order.
fn logs(
    request: &FetchRequest<'_>,
    version: i16,
    topics: &TopicMap,
    access: &ClientAccess,
) -> Vec<Vec<FetchedLog>> {
    let of_topic = |topic: &FetchTopic<'_>| {
        let known = topic_of(topic, version, topics, access);
        let partitions = topic.partitions.iter();
        let log = |one: &FetchPartition| match known?.partition(one.partition) {
            Some(log) => Ok(Arc::clone(log)),
            None => Err(ErrorCode::UnknownTopicOrPartition),
        };
        partitions.map(log).collect()
    };
    request.topics.iter().map(of_topic).collect()
}

fn topic_of<'t>(
    topic: &FetchTopic<'_>,
    version: i16,
    topics: &'t TopicMap,
    access: &ClientAccess,
) -> Result<&'t Arc<Topic>, ErrorCode> {
    let (known, name) = match version >= TOPIC_IDS_VERSION {
        true => {
            let known = topics.with_id(TopicId::from_bytes(topic.topic_id.0));
            let known = known.ok_or(ErrorCode::UnknownTopicId)?;
            (Some(known), &*known.name)
        }
        false => (topics.named(topic.topic), topic.topic),
    };
    match access.allows_topic(AclOperation::Read, name) {
        true => known.ok_or(ErrorCode::UnknownTopicOrPartition),
        false => Err(ErrorCode::TopicAuthorizationFailed),
    }
}

/// Reads the records available now.
async fn read<'a>(
    request: &FetchRequest<'a>,
    logs: &[Vec<FetchedLog>],
    refusals: &LogThrottle,
) -> Fetched<'a> {
    let mut left = u64::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(RESPONSE_BYTES_MAX);
    let mut fetched = Fetched {
        response: FetchResponse::default(),
        ranges: Vec::new(),
        bytes: 0,
        is_urgent: false,
    };
    let mut looked_at = 0;
    for (topic, logs) in request.topics.iter().zip(logs) {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (partition, log) in topic.partitions.iter().zip(logs) {
            looked_at += 1;
            if looked_at % PARTITIONS_PER_TURN == 0 {
                yield_now().await;
            }
            let data = fetched.partition(partition, log, (&mut left, refusals));
            partitions.push(data.await);
        }
        fetched.response.responses.push(FetchableTopicResponse {
            topic: topic.topic,
            topic_id: Uuid(topic.topic_id.0),
            partitions,
        });
    }
    fetched
}

impl Fetched<'_> {
    /// Reads from a partition. The first partition with records returns at least one batch.
    async fn partition<'a>(
        &mut self,
        asked: &FetchPartition,
        log: &FetchedLog,
        (left, refusals): (&mut u64, &LogThrottle),
    ) -> FetchResponsePartitionData<'a> {
        let mut data = FetchResponsePartitionData {
            partition_index: asked.partition,
            high_watermark: -1,
            records: Records::Bytes(&[]),
            ..Default::default()
        };
        let log = match log {
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
        let max = u64::try_from(asked.partition_max_bytes)
            .unwrap_or(0)
            .min(*left);
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
