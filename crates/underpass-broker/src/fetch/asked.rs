//! The partitions of a fetch, each with its log.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use underpass_log::PartitionLog;

use crate::metadata::topic_id::TopicId;
use crate::metadata::topics::TopicMap;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::fetch::{
    FetchPartition, FetchRequest, FetchResponsePartitionData, FetchTopic,
};
use crate::protocol::wire::{Records, Uuid};
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// The version since which topics have IDs instead of names.
const TOPIC_IDS_VERSION: i16 = 13;

/// The form in which the requests of a version name topics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TopicNaming {
    Names,
    Ids,
}

/// A topic as a request names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AskedTopic {
    /// Empty if the topic is named by its ID and unknown.
    pub(crate) name: Arc<str>,
    pub(crate) id: Uuid,
}

/// A partition that a fetch is about.
#[derive(Debug)]
pub(crate) struct AskedPartition {
    pub(crate) topic: AskedTopic,
    pub(crate) partition: i32,
    pub(crate) current_leader_epoch: i32,
    pub(crate) fetch_offset: i64,
    pub(crate) bytes_max: u64,
    /// The log, or an error.
    pub(crate) log: Result<Arc<PartitionLog>, ErrorCode>,
    /// The offsets in the last response of the session.
    told: ToldOffsets,
    has_sent_records: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct ToldOffsets {
    high_watermark: i64,
    log_start: i64,
}

/// The topics that exist, and the rights of the client.
#[derive(Clone, Copy)]
pub(crate) struct FetchScope<'a> {
    pub(crate) topics: &'a TopicMap,
    pub(crate) access: &'a ClientAccess,
}

/// A key of a partition within a request or a session.
type PartitionKey<'a> = (&'a str, Uuid, i32);

impl TopicNaming {
    pub(crate) fn of(version: i16) -> TopicNaming {
        match version >= TOPIC_IDS_VERSION {
            true => TopicNaming::Ids,
            false => TopicNaming::Names,
        }
    }

    /// Returns the parts of a topic's name that count, which identify it.
    fn key<'a>(self, name: &'a str, id: Uuid, partition: i32) -> PartitionKey<'a> {
        match self {
            TopicNaming::Names => (name, Uuid::default(), partition),
            TopicNaming::Ids => ("", id, partition),
        }
    }
}

impl FetchScope<'_> {
    /// Returns the topic, with its name if it is known, and whether the client may read it.
    fn topic(&self, name: &str, id: Uuid, naming: TopicNaming) -> (AskedTopic, TopicFinding<'_>) {
        let known = match naming {
            TopicNaming::Ids => self.topics.with_id(TopicId::from_bytes(id.0)),
            TopicNaming::Names => self.topics.named(name),
        };
        let name = known.map_or_else(|| Arc::from(name), |known| Arc::clone(&known.name));
        let asked = AskedTopic { name, id };
        let is_named = !asked.name.is_empty() || naming == TopicNaming::Names;
        let finding = match (known, naming) {
            _ if is_named && !self.access.allows_topic(AclOperation::Read, &asked.name) => {
                Err(ErrorCode::TopicAuthorizationFailed)
            }
            (Some(known), _) => Ok(&*known.partitions),
            (None, TopicNaming::Ids) => Err(ErrorCode::UnknownTopicId),
            (None, TopicNaming::Names) => Err(ErrorCode::UnknownTopicOrPartition),
        };
        (asked, finding)
    }
}

/// The partitions of a topic, or an error.
type TopicFinding<'a> = Result<&'a [Arc<PartitionLog>], ErrorCode>;

fn log_of(finding: TopicFinding<'_>, partition: i32) -> Result<Arc<PartitionLog>, ErrorCode> {
    let logs = finding?;
    let number = usize::try_from(partition).ok();
    let log = number.and_then(|number| logs.get(number));
    log.map(Arc::clone)
        .ok_or(ErrorCode::UnknownTopicOrPartition)
}

/// Returns the partitions of a request, in its order.
pub(crate) fn asked(
    request: &FetchRequest<'_>,
    naming: TopicNaming,
    scope: FetchScope<'_>,
) -> Vec<AskedPartition> {
    let mut all = Vec::with_capacity(request.topics.iter().map(|one| one.partitions.len()).sum());
    for FetchTopic {
        topic,
        topic_id,
        partitions,
    } in &request.topics
    {
        let (topic, finding) = scope.topic(topic, *topic_id, naming);
        all.extend(partitions.iter().map(|one| {
            let log = log_of(finding, one.partition);
            AskedPartition::new(topic.clone(), one, log)
        }));
    }
    all
}

/// Returns whether no partition is named twice.
pub(crate) fn are_distinct(all: &[AskedPartition], naming: TopicNaming) -> bool {
    let keys = all
        .iter()
        .map(|one| naming.key(&one.topic.name, one.topic.id, one.partition));
    keys.collect::<HashSet<_>>().len() == all.len()
}

/// Applies an incremental request to the partitions of its session: changes and adds the requested
/// ones, and removes the forgotten ones. Logs and rights are looked up again.
pub(crate) fn change(
    all: &mut Vec<AskedPartition>,
    request: &FetchRequest<'_>,
    naming: TopicNaming,
    scope: FetchScope<'_>,
) {
    let forgotten: HashSet<PartitionKey<'_>> = request
        .forgotten_topics_data
        .iter()
        .flat_map(|one| {
            let numbers = one.partitions.iter();
            numbers.map(|number| naming.key(one.topic, one.topic_id, *number))
        })
        .collect();
    // Each with whether the session has it.
    let mut changed: HashMap<PartitionKey<'_>, (&FetchPartition, Cell<bool>)> = HashMap::new();
    for topic in &request.topics {
        for one in &topic.partitions {
            let key = naming.key(topic.topic, topic.topic_id, one.partition);
            changed.insert(key, (one, Cell::new(false)));
        }
    }
    let is_same = forgotten.is_empty() && changed.is_empty();
    all.retain_mut(|one| {
        if is_same {
            return true;
        }
        let key = naming.key(&one.topic.name, one.topic.id, one.partition);
        let stays = !forgotten.contains(&key);
        if let (Some((asked, is_known)), true) = (changed.get(&key), stays) {
            is_known.set(true);
            one.ask(asked);
        }
        stays
    });
    let mut last: Option<(AskedTopic, TopicFinding<'_>)> = None;
    for one in all.iter_mut() {
        let topic = match &last {
            Some((topic, finding)) if *topic == one.topic => *finding,
            _ => {
                let (topic, finding) = scope.topic(&one.topic.name, one.topic.id, naming);
                last = Some((topic, finding));
                finding
            }
        };
        one.log = log_of(topic, one.partition);
    }
    if changed.values().any(|(_, is_known)| !is_known.get()) {
        all.extend(asked(request, naming, scope).into_iter().filter(|one| {
            let key = naming.key(&one.topic.name, one.topic.id, one.partition);
            changed
                .get(&key)
                .is_some_and(|(_, is_known)| !is_known.replace(true))
        }));
    }
}

impl ToldOffsets {
    /// No response has had the partition, or the last one had an error.
    const NONE: ToldOffsets = ToldOffsets {
        high_watermark: -1,
        log_start: -1,
    };
}

impl AskedPartition {
    fn new(
        topic: AskedTopic,
        asked: &FetchPartition,
        log: Result<Arc<PartitionLog>, ErrorCode>,
    ) -> AskedPartition {
        let mut new = AskedPartition {
            topic,
            partition: asked.partition,
            current_leader_epoch: 0,
            fetch_offset: 0,
            bytes_max: 0,
            log,
            told: ToldOffsets::NONE,
            has_sent_records: false,
        };
        new.ask(asked);
        new
    }

    fn ask(&mut self, asked: &FetchPartition) {
        self.current_leader_epoch = asked.current_leader_epoch;
        self.fetch_offset = asked.fetch_offset;
        self.bytes_max = u64::try_from(asked.partition_max_bytes).unwrap_or(0);
    }

    /// Remembers what a response tells about the partition. Returns whether that is news to a
    /// client that knows the earlier responses of the session: records, an error, or other offsets.
    pub(crate) fn tell(&mut self, data: &FetchResponsePartitionData<'_>) -> bool {
        self.has_sent_records = !matches!(data.records, Records::Bytes(&[]));
        let told = match data.error_code {
            0 => ToldOffsets {
                high_watermark: data.high_watermark,
                log_start: data.log_start_offset,
            },
            // When an error is over, the client gets the offsets again.
            _ => ToldOffsets::NONE,
        };
        let before = mem::replace(&mut self.told, told);
        self.has_sent_records || data.error_code != 0 || told != before
    }

    /// Returns whether the last response had records of it.
    pub(crate) fn has_sent_records(&self) -> bool {
        self.has_sent_records
    }
}

#[cfg(test)]
impl AskedPartition {
    /// A partition of an unknown topic.
    pub(crate) fn sample(partition: i32) -> AskedPartition {
        let topic = AskedTopic {
            name: "t".into(),
            id: Uuid::default(),
        };
        let asked = FetchPartition {
            partition,
            ..FetchPartition::default()
        };
        AskedPartition::new(topic, &asked, Err(ErrorCode::UnknownTopicOrPartition))
    }
}
