//! Produce: batches are checked here, appended by the log, and then answered.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex, oneshot};
use underpass_log::batch::{self, BadBatch, BatchBytes, BatchHeader, Codec, RecordKeys};
use underpass_log::{Acks, Append, AppendError, Appended, LogManager, PartitionLog, SequenceError};

use underpass_net::LogThrottle;

use crate::broker::Broker;
use crate::connection::frame::RequestFrame;
use crate::limits::{
    COMPRESSED_INLINE_MAX, DECOMPRESSED_INLINE_MAX, DECOMPRESSED_MAX, RECORD_ERRORS_MAX,
    TIMESTAMP_AHEAD_MAX,
};
use crate::metadata::names::is_internal;
use crate::metadata::topics::{Topic, TopicMap};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::produce::{
    ProducePartitionProduceData, ProduceRequest, ProduceResponse,
    ProduceResponseBatchIndexAndErrorMessage, ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
};
use crate::protocol::wire::Records;
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// The version of Produce from which clients may use zstd (KIP-110).
const ZSTD_VERSION: i16 = 7;

/// The outcome for a partition of the request.
enum PartitionOutcome {
    Waiting(
        Arc<PartitionLog>,
        oneshot::Receiver<Result<Appended, AppendError>>,
    ),
    Refused(RefusedBatch),
}

/// The message for each record without a key on a compacted topic.
const NO_KEY: &str = "the record has no key, and the topic is compacted";

/// Appends the batches of a request. Queues all of them before the first wait, so the batches of a
/// connection are appended in order. Returns `None` if the client wants no response and everything
/// was appended.
///
/// # Errors
/// The client wants no response, and a batch was not appended.
pub(crate) async fn produce<'a>(
    request: &ProduceRequest<'a>,
    frame: &Arc<RequestFrame>,
    version: i16,
    (topics, broker, access): (&TopicMap, &Broker, &ClientAccess),
    (turn, refusals): (&Mutex<()>, &LogThrottle),
) -> Result<Option<ProduceResponse<'a>>, ()> {
    let acks = match request.acks {
        0 => Ok(Acks::None),
        1 => Ok(Acks::Leader),
        -1 => Ok(Acks::All),
        _ => Err(ErrorCode::InvalidRequiredAcks),
    };
    let mut outcomes = Vec::new();
    let turn = turn.lock().await;
    for topic in &request.topic_data {
        let known = topics.named(topic.name);
        let is_denied = !access.allows_topic(AclOperation::Write, topic.name);
        for partition in &topic.partition_data {
            outcomes.push(match acks {
                Ok(_) if is_denied => {
                    let why = "the client may not write to the topic";
                    let code = ErrorCode::TopicAuthorizationFailed;
                    PartitionOutcome::Refused(RefusedBatch::of(code, why))
                }
                Ok(acks) => match checked(partition, version, known, (frame, broker)).await {
                    Ok((of, batch)) => queue(of, (batch, acks), &broker.log),
                    Err(refused) => PartitionOutcome::Refused(refused),
                },
                Err(code) => PartitionOutcome::Refused(RefusedBatch::of(code, "")),
            });
        }
    }
    drop(turn);
    let wants_none = acks == Ok(Acks::None);
    let mut outcomes = outcomes.into_iter();
    let mut failed = false;
    let mut responses = Vec::with_capacity(request.topic_data.len());
    for topic in &request.topic_data {
        let mut partition_responses = Vec::with_capacity(topic.partition_data.len());
        for partition in &topic.partition_data {
            let Some(outcome) = outcomes.next() else {
                break;
            };
            let (response, why) = answer(partition.index, outcome).await;
            if response.error_code != ErrorCode::None.number() {
                let (name, index) = (topic.name, partition.index);
                refusals.warn(format_args!(
                    "a batch for {name:?}, partition {index}, is refused: {why}"
                ));
            }
            failed |= response.error_code != ErrorCode::None.number();
            partition_responses.push(response);
        }
        responses.push(ProduceResponseTopicProduceResponse {
            name: topic.name,
            partition_responses,
            ..Default::default()
        });
    }
    match (wants_none, failed) {
        (true, true) => Err(()),
        (true, false) => Ok(None),
        (false, _) => Ok(Some(ProduceResponse {
            responses,
            ..ProduceResponse::default()
        })),
    }
}

/// The reason why a batch is rejected.
struct RefusedBatch {
    code: ErrorCode,
    why: String,
    /// The numbers of the records without a key, if that is the reason.
    without_key: Vec<i32>,
}

impl RefusedBatch {
    fn of(code: ErrorCode, why: &str) -> RefusedBatch {
        RefusedBatch {
            code,
            why: why.to_owned(),
            without_key: Vec::new(),
        }
    }
}

impl From<BadBatch> for RefusedBatch {
    fn from(bad: BadBatch) -> RefusedBatch {
        RefusedBatch::of(code_of_batch(bad), &bad.to_string())
    }
}

/// Returns the log of a partition and its batch, if the batch can be appended.
async fn checked<'t>(
    partition: &ProducePartitionProduceData<'_>,
    version: i16,
    topic: Option<&'t Arc<Topic>>,
    (frame, broker): (&Arc<RequestFrame>, &Broker),
) -> Result<(&'t Arc<PartitionLog>, BatchBytes), RefusedBatch> {
    let refused = |code, why: &str| Err(RefusedBatch::of(code, why));
    let Some(topic) = topic else {
        return refused(ErrorCode::UnknownTopicOrPartition, "there is no such topic");
    };
    if is_internal(&topic.name) {
        return refused(ErrorCode::InvalidTopic, "this topic is the broker's own");
    }
    let Some(of) = topic.partition(partition.index) else {
        let why = "there is no such partition";
        return refused(ErrorCode::UnknownTopicOrPartition, why);
    };
    let Records::Bytes(bytes) = partition.records else {
        return refused(ErrorCode::InvalidRecord, "there is no batch");
    };
    if bytes.len() > of.config().max_message_bytes {
        let why = "the batch is larger than max.message.bytes";
        return refused(ErrorCode::MessageTooLarge, why);
    }
    let keys = match of.config().cleanup_policy.compacts() {
        true => RecordKeys::Required,
        false => RecordKeys::Optional,
    };
    let header = batch::check(bytes, keys).map_err(|bad| with_records(bad, bytes))?;
    let header = match header.codec() {
        Codec::None => header,
        Codec::Zstd if version < ZSTD_VERSION => {
            let why = "zstd needs version 7 of Produce";
            return refused(ErrorCode::UnsupportedCompressionType, why);
        }
        _ => decompressed(bytes, (header, keys), frame, broker).await?,
    };
    if is_of_the_future(header.max_timestamp) {
        let why = "a timestamp is more than an hour ahead of the broker's clock: timestamps are in \
                   milliseconds since 1970";
        return refused(ErrorCode::InvalidTimestamp, why);
    }
    let owner: Arc<RequestFrame> = Arc::clone(frame);
    let batch = BatchBytes::new(owner, frame.range_of(bytes)).with_header(header);
    Ok((of, batch))
}

/// Checks compressed records: small ones on this thread, others on a blocking thread.
async fn decompressed(
    bytes: &[u8],
    (header, keys): (BatchHeader, RecordKeys),
    frame: &Arc<RequestFrame>,
    broker: &Broker,
) -> Result<BatchHeader, RefusedBatch> {
    let check = move |bytes: &[u8], bytes_max| {
        let checked = batch::check_compressed(bytes, header, bytes_max, keys);
        checked.map_err(|bad| (bad, with_records(bad, bytes)))
    };
    if bytes.len() <= COMPRESSED_INLINE_MAX {
        match check(bytes, DECOMPRESSED_INLINE_MAX) {
            Err((BadBatch::Bomb(_), _)) => {}
            checked => return checked.map_err(|(_, refused)| refused),
        }
    }
    // The semaphore is never closed.
    let _permit = broker.decompression.acquire().await;
    let (frame, range) = (Arc::clone(frame), frame.range_of(bytes));
    let check = move || check(&(*frame).as_ref()[range], DECOMPRESSED_MAX);
    match tokio::task::spawn_blocking(check).await {
        Ok(checked) => checked.map_err(|(_, refused)| refused),
        Err(_) => Err(BadBatch::Records.into()),
    }
}

/// Returns the reason why a batch is rejected, with the records that are to blame.
fn with_records(bad: BadBatch, bytes: &[u8]) -> RefusedBatch {
    let mut refused = RefusedBatch::from(bad);
    if bad == BadBatch::NoKey {
        refused.without_key =
            batch::records_without_key(bytes, DECOMPRESSED_MAX, RECORD_ERRORS_MAX);
    }
    refused
}

/// Whether a timestamp is so far in the future that retention would never delete its record. The
/// limit is Kafka's `message.timestamp.after.max.ms`.
fn is_of_the_future(timestamp: i64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let latest = now.unwrap_or_default() + TIMESTAMP_AHEAD_MAX;
    u128::try_from(timestamp).is_ok_and(|timestamp| timestamp > latest.as_millis())
}

/// Queues a batch.
fn queue(
    of: &Arc<PartitionLog>,
    (batch, acks): (BatchBytes, Acks),
    log: &LogManager,
) -> PartitionOutcome {
    let (sender, answer) = oneshot::channel();
    log.append(Append {
        log: Arc::clone(of),
        batch,
        acks,
        // The client may be gone.
        done: Box::new(move |outcome| drop(sender.send(outcome))),
    });
    PartitionOutcome::Waiting(Arc::clone(of), answer)
}

/// Returns the response for a partition, and the reason if its batch is rejected.
async fn answer<'a>(
    index: i32,
    outcome: PartitionOutcome,
) -> (ProduceResponsePartitionProduceResponse<'a>, String) {
    let (log, answer) = match outcome {
        PartitionOutcome::Refused(refused) => return refusal(index, refused),
        PartitionOutcome::Waiting(log, answer) => (log, answer),
    };
    let start = log.offsets().start;
    let (code, why, base_offset) = match answer.await {
        Ok(Ok(appended)) => (ErrorCode::None, String::new(), appended.base_offset),
        Ok(Err(error)) => (code_of_append(&error), error.to_string(), -1),
        Err(_) => (ErrorCode::KafkaStorageError, String::new(), -1),
    };
    let response = ProduceResponsePartitionProduceResponse {
        index,
        error_code: code.number(),
        base_offset,
        log_start_offset: start,
        ..Default::default()
    };
    (response, why)
}

/// Returns the response for a partition whose batch is rejected, and the reason.
fn refusal<'a>(
    index: i32,
    refused: RefusedBatch,
) -> (ProduceResponsePartitionProduceResponse<'a>, String) {
    let records = refused.without_key.iter();
    let record_errors = records.map(|number| ProduceResponseBatchIndexAndErrorMessage {
        batch_index: *number,
        batch_index_error_message: Some(NO_KEY),
    });
    let is_keyless = !refused.without_key.is_empty();
    let response = ProduceResponsePartitionProduceResponse {
        index,
        error_code: refused.code.number(),
        base_offset: -1,
        log_start_offset: -1,
        record_errors: record_errors.collect(),
        error_message: is_keyless.then_some(NO_KEY),
        ..Default::default()
    };
    (response, refused.why)
}

/// Returns the error code, as in Kafka: corrupt batches are CORRUPT_MESSAGE; truncated, older,
/// multiple and otherwise invalid ones are INVALID_RECORD.
fn code_of_batch(bad: BadBatch) -> ErrorCode {
    match bad {
        BadBatch::Crc | BadBatch::Length | BadBatch::Magic(3..) => ErrorCode::CorruptMessage,
        BadBatch::CutOff
        | BadBatch::Magic(_)
        | BadBatch::Trailing
        | BadBatch::Inconsistent
        | BadBatch::Control
        | BadBatch::Transactional
        | BadBatch::Records
        | BadBatch::NoKey
        | BadBatch::Bomb(_) => ErrorCode::InvalidRecord,
    }
}

fn code_of_append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        AppendError::Sequence(SequenceError::Fenced { .. }) => ErrorCode::InvalidProducerEpoch,
        AppendError::Sequence(SequenceError::OutOfOrder { .. }) => {
            ErrorCode::OutOfOrderSequenceNumber
        }
        AppendError::Closed => ErrorCode::UnknownTopicOrPartition,
        AppendError::Disk(_) | AppendError::Offline => ErrorCode::KafkaStorageError,
    }
}
