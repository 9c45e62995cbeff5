//! Requests of consumer groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::broker::Broker;
use crate::group::{
    GroupError, JoinRejected, JoinRequest, Joined, LeavingMember, MemberIdentity, MemberProtocol,
    OFFSETS_PARTITIONS, SyncRequest, Synced,
};
use crate::metadata::names::OFFSETS_TOPIC;
use crate::metadata::topics::{NewTopic, TopicError};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::find_coordinator::{
    FindCoordinatorRequest, FindCoordinatorResponse, FindCoordinatorResponseCoordinator,
};
use crate::protocol::tables::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use crate::protocol::tables::join_group::{
    JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember,
};
use crate::protocol::tables::leave_group::{
    LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMemberResponse,
};
use crate::protocol::tables::sync_group::{SyncGroupRequest, SyncGroupResponse};
use crate::security::access::ClientAccess;
use crate::security::acl::{AclOperation, ResourceType};

/// The kinds of keys.
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;

/// The reason why transactions have no coordinator.
pub(crate) const NO_TRANSACTIONS: &str =
    "transactions are not supported by this broker; remove transactional.id";

/// Whether a request is for the coordinator of a transaction.
pub(crate) fn asks_for_transaction(request: &FindCoordinatorRequest<'_>) -> bool {
    request.key_type == TRANSACTION_KEY
}

/// Answers that this broker coordinates every group. Creates the topic that stores groups.
///
/// For a transaction, librdkafka sends version 2 or lower, and of all errors fails only for
/// TRANSACTIONAL_ID_AUTHORIZATION_FAILED; it silently retries others until its timeout. Java sends
/// version 4 or higher, and shows the message of other errors only.
pub(crate) async fn find_coordinator<'a>(
    request: &FindCoordinatorRequest<'a>,
    version: i16,
    (broker, access): (&Arc<Broker>, &ClientAccess),
    (host, port): (&'a str, u16),
) -> FindCoordinatorResponse<'a> {
    let is_transaction = asks_for_transaction(request);
    let is_denied = |key: &str| match is_transaction {
        true => !access.allows(AclOperation::Describe, ResourceType::TransactionalId, key),
        false => !access.allows_group(AclOperation::Describe, key),
    };
    let denied = match is_transaction {
        true => ErrorCode::TransactionalIdAuthorizationFailed,
        false => ErrorCode::GroupAuthorizationFailed,
    };
    let is_denied_alone = version < 4 && is_denied(request.key);
    let code = match request.key_type {
        _ if is_denied_alone => Err(denied),
        GROUP_KEY => ready(broker).await,
        TRANSACTION_KEY if version < 4 => Err(ErrorCode::TransactionalIdAuthorizationFailed),
        _ => Err(ErrorCode::InvalidRequest),
    };
    let code = code.err().unwrap_or(ErrorCode::None);
    let error_message = is_transaction.then_some(NO_TRANSACTIONS);
    let place = |code| match code {
        ErrorCode::None => (broker.options.node_id, i32::from(port)),
        _ => (-1, -1),
    };
    let (node_id, port) = place(code);
    let mut response = FindCoordinatorResponse {
        error_code: code.number(),
        error_message,
        node_id,
        host,
        port,
        ..FindCoordinatorResponse::default()
    };
    if version >= 4 {
        let keys = request.coordinator_keys.iter();
        response.coordinators = keys
            .map(|key| {
                let code = if is_denied(key) { denied } else { code };
                let (node_id, port) = place(code);
                FindCoordinatorResponseCoordinator {
                    key,
                    node_id,
                    host,
                    port,
                    error_code: code.number(),
                    error_message,
                }
            })
            .collect();
    }
    response
}

/// Creates the topic of offsets if it does not exist.
async fn ready(broker: &Arc<Broker>) -> Result<(), ErrorCode> {
    if broker.groups.is_ready() {
        return Ok(());
    }
    let worker = Arc::clone(broker);
    let make = move || {
        let new = NewTopic {
            name: OFFSETS_TOPIC.to_owned(),
            partitions: OFFSETS_PARTITIONS as i32,
            config: BTreeMap::new(),
        };
        match worker.topics.create(&new) {
            Ok(topic) => Ok(topic),
            Err(TopicError::Exists) => {
                let present = worker.topics.present();
                let made = present.named(OFFSETS_TOPIC).cloned();
                made.ok_or(TopicError::Exists)
            }
            Err(error) => Err(error),
        }
    };
    match tokio::task::spawn_blocking(make).await {
        Ok(Ok(topic)) => {
            broker.groups.set_topic(topic);
            Ok(())
        }
        // Another request is creating it: clients retry.
        Ok(Err(TopicError::Exists)) => Err(ErrorCode::CoordinatorNotAvailable),
        Ok(Err(error)) => {
            tracing::warn!("{OFFSETS_TOPIC} cannot be made: {error}");
            Err(ErrorCode::KafkaStorageError)
        }
        Err(_) => Err(ErrorCode::UnknownServerError),
    }
}

fn milliseconds(time: i32) -> Duration {
    Duration::from_millis(u64::try_from(time).unwrap_or(0))
}

/// Converts a JoinGroup request for the coordinator. It may wait for long, and keeps only this.
pub(crate) fn join_request(
    request: &JoinGroupRequest<'_>,
    version: i16,
    (client_id, client_host): (&str, &str),
) -> JoinRequest {
    let rebalance = match version {
        0 => request.session_timeout_ms,
        _ => request.rebalance_timeout_ms,
    };
    let protocols = request.protocols.iter().map(|protocol| MemberProtocol {
        name: protocol.name.to_owned(),
        metadata: protocol.metadata.into(),
    });
    JoinRequest {
        version,
        group_id: request.group_id.to_owned(),
        member_id: request.member_id.to_owned(),
        group_instance_id: request.group_instance_id.map(str::to_owned),
        client_id: client_id.to_owned(),
        client_host: client_host.to_owned(),
        session_timeout: milliseconds(request.session_timeout_ms),
        rebalance_timeout: milliseconds(rebalance),
        protocol_type: request.protocol_type.to_owned(),
        protocols: protocols.collect(),
    }
}

/// Returns the answer of the coordinator to a JoinGroup request.
pub(crate) async fn join(
    request: JoinRequest,
    broker: &Broker,
    access: &ClientAccess,
) -> Result<Joined, JoinRejected> {
    let member_id = request.member_id.clone();
    if !access.allows_group(AclOperation::Read, &request.group_id) {
        return Err(JoinRejected {
            error: GroupError::AuthorizationFailed,
            member_id,
        });
    }
    let joined = broker.groups.join(request).await;
    joined.unwrap_or(Err(JoinRejected {
        error: GroupError::CoordinatorNotAvailable,
        member_id,
    }))
}

pub(crate) fn join_response(
    joined: &Result<Joined, JoinRejected>,
    version: i16,
) -> JoinGroupResponse<'_> {
    match joined {
        Ok(joined) => JoinGroupResponse {
            generation_id: joined.generation,
            protocol_type: Some(&joined.protocol_type),
            protocol_name: Some(&joined.protocol),
            leader: &joined.leader,
            skip_assignment: joined.skip_assignment,
            member_id: &joined.member_id,
            members: joined
                .members
                .iter()
                .map(|member| JoinGroupResponseMember {
                    member_id: &member.member_id,
                    group_instance_id: member.group_instance_id.as_deref(),
                    metadata: &member.metadata,
                })
                .collect(),
            ..JoinGroupResponse::default()
        },
        Err(rejected) => JoinGroupResponse {
            error_code: rejected.error.code(),
            // Before version 7 the name must not be null.
            protocol_name: (version < 7).then_some(""),
            member_id: &rejected.member_id,
            ..JoinGroupResponse::default()
        },
    }
}

pub(crate) fn sync_request(request: &SyncGroupRequest<'_>) -> SyncRequest {
    let assignments = request.assignments.iter();
    let assignments = assignments.map(|one| (one.member_id.to_owned(), one.assignment.into()));
    SyncRequest {
        member: MemberIdentity {
            group_id: request.group_id.to_owned(),
            generation: request.generation_id,
            member_id: request.member_id.to_owned(),
            group_instance_id: request.group_instance_id.map(str::to_owned),
        },
        protocol_type: request.protocol_type.map(str::to_owned),
        protocol: request.protocol_name.map(str::to_owned),
        assignments: assignments.collect(),
    }
}

pub(crate) async fn sync(
    request: SyncRequest,
    broker: &Broker,
    access: &ClientAccess,
) -> Result<Synced, GroupError> {
    if !access.allows_group(AclOperation::Read, &request.member.group_id) {
        return Err(GroupError::AuthorizationFailed);
    }
    let synced = broker.groups.sync(request).await;
    synced.unwrap_or(Err(GroupError::CoordinatorNotAvailable))
}

pub(crate) fn sync_response(synced: &Result<Synced, GroupError>) -> SyncGroupResponse<'_> {
    match synced {
        Ok(synced) => SyncGroupResponse {
            protocol_type: Some(&synced.protocol_type),
            protocol_name: Some(&synced.protocol),
            assignment: &synced.assignment,
            ..SyncGroupResponse::default()
        },
        Err(error) => SyncGroupResponse {
            error_code: error.code(),
            ..SyncGroupResponse::default()
        },
    }
}

pub(crate) fn heartbeat(
    request: &HeartbeatRequest<'_>,
    broker: &Broker,
    access: &ClientAccess,
) -> HeartbeatResponse {
    if !access.allows_group(AclOperation::Read, request.group_id) {
        return HeartbeatResponse {
            error_code: GroupError::AuthorizationFailed.code(),
            ..HeartbeatResponse::default()
        };
    }
    let member = MemberIdentity {
        group_id: request.group_id.to_owned(),
        generation: request.generation_id,
        member_id: request.member_id.to_owned(),
        group_instance_id: request.group_instance_id.map(str::to_owned),
    };
    let event = broker
        .groups
        .event(|coordinator, now| coordinator.heartbeat(now, &member));
    HeartbeatResponse {
        error_code: event.err().map_or(0, GroupError::code),
        ..HeartbeatResponse::default()
    }
}

pub(crate) fn leave<'a>(
    request: &LeaveGroupRequest<'a>,
    version: i16,
    (broker, access): (&Broker, &ClientAccess),
) -> LeaveGroupResponse<'a> {
    if !access.allows_group(AclOperation::Read, request.group_id) {
        return LeaveGroupResponse {
            error_code: GroupError::AuthorizationFailed.code(),
            ..LeaveGroupResponse::default()
        };
    }
    let member = |member_id: &str, instance: Option<&str>| LeavingMember {
        member_id: member_id.to_owned(),
        group_instance_id: instance.map(str::to_owned),
    };
    let leaving: Vec<_> = match version {
        0..=2 => vec![member(request.member_id, None)],
        _ => {
            let members = request.members.iter();
            members
                .map(|one| member(one.member_id, one.group_instance_id))
                .collect()
        }
    };
    let left = broker
        .groups
        .event(|coordinator, now| coordinator.leave(now, request.group_id, &leaving));
    let code = |result: Option<&Result<(), GroupError>>| match result {
        Some(Ok(())) => 0,
        Some(Err(error)) => error.code(),
        None => GroupError::UnknownMemberId.code(),
    };
    let members = request.members.iter().enumerate();
    LeaveGroupResponse {
        error_code: match version {
            0..=2 => code(left.first()),
            _ => 0,
        },
        members: members
            .map(|(number, member)| LeaveGroupResponseMemberResponse {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                error_code: code(left.get(number)),
            })
            .collect(),
        ..LeaveGroupResponse::default()
    }
}
