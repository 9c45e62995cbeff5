//! ListGroups, DescribeGroups, DeleteGroups and OffsetDelete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::broker::Broker;
use crate::group::{DEAD, GROUP_STATES, GroupDescription, GroupError};
use crate::metadata::topics::TopicMap;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::delete_groups::{
    DeleteGroupsRequest, DeleteGroupsResponse, DeleteGroupsResponseDeletableGroupResult,
};
use crate::protocol::tables::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribeGroupsResponseDescribedGroup,
    DescribeGroupsResponseDescribedGroupMember,
};
use crate::protocol::tables::list_groups::{
    ListGroupsRequest, ListGroupsResponse, ListGroupsResponseListedGroup,
};
use crate::protocol::tables::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
};
use crate::requests::operations;

/// The type of groups of the classic protocol (KIP-848).
const CLASSIC: &str = "classic";

/// The answer when the broker stops.
const NOT_AVAILABLE: GroupError = GroupError::CoordinatorNotAvailable;

/// A group with its protocol type and its state.
pub(crate) type ListedGroup = (Arc<str>, String, &'static str);

/// Returns the groups that pass the filters of a request.
pub(crate) fn listed(request: &ListGroupsRequest<'_>, broker: &Broker) -> Vec<ListedGroup> {
    let passes = |filter: &[&str], name: &str| {
        filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(name))
    };
    let states = GROUP_STATES.into_iter();
    let states: Vec<_> = match passes(&request.types_filter, CLASSIC) {
        true => states
            .filter(|name| passes(&request.states_filter, name))
            .collect(),
        false => Vec::new(),
    };
    broker.groups.event(|coordinator, _| {
        let groups = coordinator.list();
        let listed = groups.filter(|(_, _, state)| states.contains(state));
        listed
            .map(|(id, kind, state)| (Arc::clone(id), kind.to_owned(), state))
            .collect()
    })
}

pub(crate) fn list_response(listed: &[ListedGroup]) -> ListGroupsResponse<'_> {
    let groups = listed
        .iter()
        .map(|(group_id, kind, state)| ListGroupsResponseListedGroup {
            group_id,
            protocol_type: kind,
            group_state: state,
            group_type: CLASSIC,
        });
    ListGroupsResponse {
        groups: groups.collect(),
        ..ListGroupsResponse::default()
    }
}

/// Returns the descriptions of groups by their ids, each once: otherwise a request could make a
/// response of any size.
pub(crate) fn described<'a>(
    request: &DescribeGroupsRequest<'a>,
    broker: &Broker,
) -> Vec<(&'a str, Option<GroupDescription>)> {
    let groups: BTreeSet<_> = request.groups.iter().copied().collect();
    broker.groups.event(|coordinator, _| {
        let described = groups.into_iter();
        described
            .map(|group| (group, coordinator.describe(group)))
            .collect()
    })
}

pub(crate) fn describe_response<'a>(
    request: &DescribeGroupsRequest<'_>,
    version: i16,
    described: &'a [(&'a str, Option<GroupDescription>)],
) -> DescribeGroupsResponse<'a> {
    let is_asked = request.include_authorized_operations;
    let groups = described.iter().map(|(group_id, description)| {
        let group = DescribeGroupsResponseDescribedGroup {
            group_id,
            authorized_operations: operations::of_group(is_asked),
            ..DescribeGroupsResponseDescribedGroup::default()
        };
        match description {
            Some(group_is) => DescribeGroupsResponseDescribedGroup {
                group_state: group_is.state,
                protocol_type: &group_is.protocol_type,
                protocol_data: &group_is.protocol,
                members: described_members(group_is),
                ..group
            },
            // Before version 6 a dead group is no error.
            None => DescribeGroupsResponseDescribedGroup {
                error_code: match version {
                    ..6 => 0,
                    _ => GroupError::GroupIdNotFound.code(),
                },
                error_message: Some("there is no such group"),
                group_state: DEAD,
                ..group
            },
        }
    });
    DescribeGroupsResponse {
        groups: groups.collect(),
        ..DescribeGroupsResponse::default()
    }
}

fn described_members(
    group: &GroupDescription,
) -> Vec<DescribeGroupsResponseDescribedGroupMember<'_>> {
    let members = group
        .members
        .iter()
        .map(|member| DescribeGroupsResponseDescribedGroupMember {
            member_id: &member.member_id,
            group_instance_id: member.group_instance_id.as_deref(),
            client_id: &member.client_id,
            client_host: &member.client_host,
            member_metadata: &member.subscription,
            member_assignment: &member.assignment,
        });
    members.collect()
}

/// Deletes groups without members, and answers when that is written.
pub(crate) async fn delete<'a>(
    request: &DeleteGroupsRequest<'a>,
    broker: &Broker,
) -> DeleteGroupsResponse<'a> {
    let groups: BTreeSet<_> = request.groups_names.iter().copied().collect();
    let deleted = groups.into_iter().map(|group| {
        let deleted = broker
            .groups
            .remove(|coordinator, now, token| coordinator.delete(now, token, group));
        (group, deleted)
    });
    let mut response = DeleteGroupsResponse::default();
    for (group_id, deleted) in Vec::from_iter(deleted) {
        let deleted = deleted.await.unwrap_or(Err(NOT_AVAILABLE));
        let error_code = deleted.err().map_or(0, GroupError::code);
        let result = DeleteGroupsResponseDeletableGroupResult {
            group_id,
            error_code,
        };
        response.results.push(result);
    }
    response
}

/// Removes offsets of a group, and answers when that is written.
pub(crate) async fn delete_offsets<'a>(
    request: &OffsetDeleteRequest<'a>,
    broker: &Broker,
    topics: &TopicMap,
) -> OffsetDeleteResponse<'a> {
    let mut offsets = BTreeMap::<String, BTreeSet<i32>>::new();
    let known = request.topics.iter();
    for topic in known.filter(|topic| topics.named(topic.name).is_some()) {
        let partitions = topic.partitions.iter();
        let partitions = partitions.map(|partition| partition.partition_index);
        let of_topic = offsets.entry(topic.name.to_owned()).or_default();
        of_topic.extend(partitions);
    }
    let removed = broker.groups.remove(|coordinator, now, token| {
        coordinator.delete_offsets(now, token, request.group_id, offsets);
    });
    let subscribed = match removed.await.unwrap_or(Err(NOT_AVAILABLE)) {
        Ok(subscribed) => BTreeSet::from_iter(subscribed),
        Err(error) => {
            return OffsetDeleteResponse {
                error_code: error.code(),
                ..OffsetDeleteResponse::default()
            };
        }
    };
    let results = request.topics.iter().map(|topic| {
        let code = match topics.named(topic.name) {
            None => ErrorCode::UnknownTopicOrPartition,
            Some(_) if subscribed.contains(topic.name) => ErrorCode::GroupSubscribedToTopic,
            Some(_) => ErrorCode::None,
        };
        let partitions = topic.partitions.iter();
        let partitions = partitions.map(|partition| OffsetDeleteResponsePartition {
            partition_index: partition.partition_index,
            error_code: code.number(),
        });
        OffsetDeleteResponseTopic {
            name: topic.name,
            partitions: partitions.collect(),
        }
    });
    OffsetDeleteResponse {
        topics: results.collect(),
        ..OffsetDeleteResponse::default()
    }
}
