//! Records of `__consumer_offsets` in Kafka's format: a version of two bytes, and the fields.

use std::time::Duration;

use crate::group::{CommittedOffset, CoordinatorRecord, GroupMetadata, MemberMetadata};
use crate::offsets::batch::Record;
use crate::protocol::tables::group_metadata_record::{
    GroupMetadataKey, GroupMetadataMemberMetadata, GroupMetadataValue,
};
use crate::protocol::tables::offset_commit_record::{OffsetCommitKey, OffsetCommitValue};
use crate::protocol::wire::Message;
use crate::protocol::{Reader, Writer};

/// The versions that Kafka 4 writes.
const OFFSET_KEY: i16 = 1;
const OFFSET_VALUE: i16 = 3;
const GROUP_KEY: i16 = 2;
const GROUP_VALUE: i16 = 3;

/// An encoded record.
pub(crate) struct EncodedRecord {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl EncodedRecord {
    pub(crate) fn of(record: &CoordinatorRecord) -> EncodedRecord {
        match record {
            CoordinatorRecord::Group { group_id, value } => EncodedRecord {
                key: encoded(GROUP_KEY, 0, &GroupMetadataKey { group: group_id }),
                value: value.as_ref().map(group_value),
            },
            CoordinatorRecord::Offset {
                group_id,
                topic,
                partition,
                value,
            } => {
                let key = OffsetCommitKey {
                    group: group_id,
                    topic,
                    partition: *partition,
                };
                EncodedRecord {
                    key: encoded(OFFSET_KEY, 0, &key),
                    value: value.as_ref().map(offset_value),
                }
            }
        }
    }

    /// Returns the size of key and value, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn record(&self) -> Record<'_> {
        Record {
            key: &self.key,
            value: self.value.as_deref(),
        }
    }
}

/// Decodes a record; `None` if it is of another kind or invalid.
pub(crate) fn read_record(record: &Record<'_>) -> Option<CoordinatorRecord> {
    let (version, key) = record.key.split_first_chunk::<2>()?;
    match i16::from_be_bytes(*version) {
        // Version 0 was written by Kafka before 0.9.
        0 | OFFSET_KEY => {
            let key: OffsetCommitKey<'_> = read(key, 0)?;
            let value = match record.value {
                Some(value) => Some(read_offset(value)?),
                None => None,
            };
            Some(CoordinatorRecord::Offset {
                group_id: key.group.into(),
                topic: key.topic.to_owned(),
                partition: key.partition,
                value,
            })
        }
        GROUP_KEY => {
            let key: GroupMetadataKey<'_> = read(key, 0)?;
            let value = match record.value {
                Some(value) => Some(read_group(value)?),
                None => None,
            };
            Some(CoordinatorRecord::Group {
                group_id: key.group.into(),
                value,
            })
        }
        _ => None,
    }
}

fn offset_value(offset: &CommittedOffset) -> Vec<u8> {
    let value = OffsetCommitValue {
        offset: offset.offset,
        leader_epoch: offset.leader_epoch,
        metadata: &offset.metadata,
        commit_timestamp: offset.commit_timestamp_ms,
        ..OffsetCommitValue::default()
    };
    encoded(OFFSET_VALUE, OFFSET_VALUE, &value)
}

fn read_offset(bytes: &[u8]) -> Option<CommittedOffset> {
    let (version, rest) = bytes.split_first_chunk::<2>()?;
    let value: OffsetCommitValue<'_> = read(rest, i16::from_be_bytes(*version))?;
    Some(CommittedOffset {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.to_owned(),
        commit_timestamp_ms: value.commit_timestamp,
    })
}

fn group_value(group: &GroupMetadata) -> Vec<u8> {
    let milliseconds = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    let members = group
        .members
        .iter()
        .map(|member| GroupMetadataMemberMetadata {
            member_id: &member.member_id,
            group_instance_id: member.group_instance_id.as_deref(),
            client_id: &member.client_id,
            client_host: &member.client_host,
            rebalance_timeout: milliseconds(member.rebalance_timeout),
            session_timeout: milliseconds(member.session_timeout),
            subscription: &member.subscription,
            assignment: &member.assignment,
        });
    let value = GroupMetadataValue {
        protocol_type: &group.protocol_type,
        generation: group.generation,
        protocol: group.protocol.as_deref(),
        leader: group.leader.as_deref(),
        current_state_timestamp: group.current_state_timestamp_ms.unwrap_or(-1),
        members: members.collect(),
    };
    encoded(GROUP_VALUE, GROUP_VALUE, &value)
}

fn read_group(bytes: &[u8]) -> Option<GroupMetadata> {
    let (version, rest) = bytes.split_first_chunk::<2>()?;
    let value: GroupMetadataValue<'_> = read(rest, i16::from_be_bytes(*version))?;
    let time = |milliseconds: i32| Duration::from_millis(milliseconds.max(0).unsigned_abs().into());
    let members = value.members.iter().map(|member| MemberMetadata {
        member_id: member.member_id.to_owned(),
        group_instance_id: member.group_instance_id.map(str::to_owned),
        client_id: member.client_id.to_owned(),
        client_host: member.client_host.to_owned(),
        rebalance_timeout: time(match member.rebalance_timeout {
            -1 => member.session_timeout,
            timeout => timeout,
        }),
        session_timeout: time(member.session_timeout),
        subscription: member.subscription.into(),
        assignment: member.assignment.into(),
    });
    Some(GroupMetadata {
        protocol_type: value.protocol_type.to_owned(),
        generation: value.generation,
        protocol: value.protocol.map(str::to_owned),
        leader: value.leader.map(str::to_owned),
        current_state_timestamp_ms: Some(value.current_state_timestamp).filter(|time| *time >= 0),
        members: members.collect(),
    })
}

/// Encodes a message after `kind`: its version or, for keys, the kind of key.
fn encoded<'a, M: Message<'a>>(kind: i16, version: i16, message: &M) -> Vec<u8> {
    let mut to = Writer::default();
    to.put(&kind.to_be_bytes());
    if let Some(version) = M::version(version) {
        message.write(&mut to, version);
    }
    to.into_parts().0
}

fn read<'a, M: Message<'a>>(bytes: &'a [u8], version: i16) -> Option<M> {
    let mut from = Reader::new(bytes);
    let message = M::read(&mut from, M::version(version)?).ok()?;
    from.end().ok()?;
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let offset = CommittedOffset {
            offset: 42,
            leader_epoch: 3,
            metadata: "here".to_owned(),
            commit_timestamp_ms: 1_700_000_000_000,
        };
        let member = MemberMetadata {
            member_id: "m-1".to_owned(),
            group_instance_id: Some("one".to_owned()),
            client_id: "c".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            rebalance_timeout: Duration::from_secs(60),
            session_timeout: Duration::from_secs(10),
            subscription: b"topics"[..].into(),
            assignment: b"partitions"[..].into(),
        };
        let group = GroupMetadata {
            protocol_type: "consumer".to_owned(),
            generation: 7,
            protocol: Some("range".to_owned()),
            leader: Some("m-1".to_owned()),
            current_state_timestamp_ms: Some(5),
            members: vec![member],
        };
        for record in [
            CoordinatorRecord::Offset {
                group_id: "g".into(),
                topic: "t".to_owned(),
                partition: 3,
                value: Some(offset),
            },
            CoordinatorRecord::Offset {
                group_id: "g".into(),
                topic: "t".to_owned(),
                partition: 3,
                value: None,
            },
            CoordinatorRecord::Group {
                group_id: "g".into(),
                value: Some(group),
            },
            CoordinatorRecord::Group {
                group_id: "g".into(),
                value: None,
            },
        ] {
            let encoded = EncodedRecord::of(&record);
            assert_eq!(read_record(&encoded.record()), Some(record));
        }
        let other = Record {
            key: &[0, 9, 1],
            value: None,
        };
        assert_eq!(read_record(&other), None);
    }
}
