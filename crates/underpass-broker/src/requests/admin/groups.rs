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
use crate::security::access::ClientAccess;
use crate::security::acl::AclOperation;

/// The type of groups of the classic protocol (KIP-848).
const CLASSIC: &str = "classic";

/// The answer when the broker stops.
const NOT_AVAILABLE: GroupError = GroupError::CoordinatorNotAvailable;

/// A group with its protocol type and its state.
pub(crate) type ListedGroup = (Arc<str>, String, &'static str);

/// Returns the groups that pass the filters of a request.
pub(crate) fn listed(
    request: &ListGroupsRequest<'_>,
    broker: &Broker,
    access: &ClientAccess,
) -> Vec<ListedGroup> {
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
    let sees_all = access.allows_cluster(AclOperation::Describe);
    let may_see = |id: &str| sees_all || access.allows_group(AclOperation::Describe, id);
    broker.groups.event(|coordinator, _| {
        let groups = coordinator.list();
        let listed = groups.filter(|(id, _, state)| states.contains(state) && may_see(id));
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
/// response of any size. Those that the client may not see are left out.
pub(crate) fn described<'a>(
    request: &DescribeGroupsRequest<'a>,
    broker: &Broker,
    access: &ClientAccess,
) -> Vec<(&'a str, Option<GroupDescription>)> {
    let groups = request.groups.iter().copied();
    let groups = groups.filter(|id| access.allows_group(AclOperation::Describe, id));
    let groups: BTreeSet<_> = groups.collect();
    broker.groups.event(|coordinator, _| {
        let described = groups.into_iter();
        described
            .map(|group| (group, coordinator.describe(group)))
            .collect()
    })
}

pub(crate) fn describe_response<'a>(
    request: &DescribeGroupsRequest<'a>,
    version: i16,
    described: &'a [(&'a str, Option<GroupDescription>)],
    access: &ClientAccess,
) -> DescribeGroupsResponse<'a> {
    let is_asked = request.include_authorized_operations;
    let groups = described.iter().map(|(group_id, description)| {
        let group = DescribeGroupsResponseDescribedGroup {
            group_id,
            authorized_operations: operations::of_group(is_asked, access, group_id),
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
    let denied = request.groups.iter().copied();
    let denied = denied.filter(|id| !access.allows_group(AclOperation::Describe, id));
    let denied: BTreeSet<_> = denied.collect();
    let denied = denied
        .into_iter()
        .map(|group_id| DescribeGroupsResponseDescribedGroup {
            group_id,
            error_code: ErrorCode::GroupAuthorizationFailed.number(),
            ..DescribeGroupsResponseDescribedGroup::default()
        });
    DescribeGroupsResponse {
        groups: groups.chain(denied).collect(),
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
    access: &ClientAccess,
) -> DeleteGroupsResponse<'a> {
    let groups: BTreeSet<_> = request.groups_names.iter().copied().collect();
    let may_delete = |group: &&str| access.allows_group(AclOperation::Delete, group);
    let (groups, denied): (Vec<_>, Vec<_>) = groups.into_iter().partition(may_delete);
    let deleted = groups.into_iter().map(|group| {
        let deleted = broker
            .groups
            .remove(|coordinator, now, token| coordinator.delete(now, token, group));
        (group, deleted)
    });
    let mut response = DeleteGroupsResponse::default();
    let denied = denied.into_iter();
    let denied = denied.map(|group_id| DeleteGroupsResponseDeletableGroupResult {
        group_id,
        error_code: ErrorCode::GroupAuthorizationFailed.number(),
    });
    response.results.extend(denied);
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
    (topics, access): (&TopicMap, &ClientAccess),
) -> OffsetDeleteResponse<'a> {
    if !access.allows_group(AclOperation::Delete, request.group_id) {
        return OffsetDeleteResponse {
            error_code: ErrorCode::GroupAuthorizationFailed.number(),
            ..OffsetDeleteResponse::default()
        };
    }
    let may_read = |topic: &str| access.allows_topic(AclOperation::Read, topic);
    let mut offsets = BTreeMap::<String, BTreeSet<i32>>::new();
    let known = request.topics.iter();
    let known = known.filter(|topic| topics.named(topic.name).is_some() && may_read(topic.name));
    for topic in known {
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
            _ if !may_read(topic.name) => ErrorCode::TopicAuthorizationFailed,
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
