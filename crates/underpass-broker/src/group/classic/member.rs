//! The members of a group, and the protocols that all of them support.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::group::record::MemberMetadata;
use crate::group::request::{JoinRequest, MemberProtocol, Opaque, ReplyToken};

/// A member of a group. The private fields are counted by [`Members`].
#[derive(Debug)]
pub(crate) struct GroupMember {
    id: String,
    instance_id: Option<String>,
    protocols: Vec<MemberProtocol>,
    /// The assignment by the leader.
    assignment: Opaque,
    /// The JoinGroup request that waits for the next generation.
    joining: Option<ReplyToken>,
    /// The SyncGroup request that waits for the leader's assignment.
    pub(crate) syncing: Option<ReplyToken>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    /// When the member is removed unless it sends a heartbeat. None while it waits for an answer.
    pub(crate) session_deadline: Option<Duration>,
}

/// The members of a group, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Members {
    by_id: BTreeMap<String, GroupMember>,
    /// Instance ids and the member ids they stand for.
    static_ids: BTreeMap<String, String>,
    /// The number of members that support each protocol.
    supporters: BTreeMap<String, usize>,
    joining: usize,
    bytes: usize,
}

impl GroupMember {
    /// Makes a member that waits for its first generation.
    pub(crate) fn joining(id: String, reply: ReplyToken, request: JoinRequest) -> GroupMember {
        GroupMember {
            id,
            instance_id: request.group_instance_id,
            protocols: request.protocols,
            joining: Some(reply),
            syncing: None,
            client_id: request.client_id,
            client_host: request.client_host,
            session_timeout: request.session_timeout,
            rebalance_timeout: request.rebalance_timeout,
            assignment: Opaque::default(),
            session_deadline: None,
        }
    }

    /// Makes a member from its stored state, with the protocol of its generation.
    pub(crate) fn restored(stored: MemberMetadata, protocol: &str, now: Duration) -> GroupMember {
        GroupMember {
            id: stored.member_id,
            instance_id: stored.group_instance_id,
            protocols: vec![MemberProtocol {
                name: protocol.to_owned(),
                metadata: stored.subscription,
            }],
            joining: None,
            syncing: None,
            client_id: stored.client_id,
            client_host: stored.client_host,
            session_timeout: stored.session_timeout,
            rebalance_timeout: stored.rebalance_timeout,
            assignment: stored.assignment,
            session_deadline: Some(now + stored.session_timeout),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn instance_id(&self) -> Option<&str> {
        self.instance_id.as_deref()
    }

    pub(crate) fn assignment(&self) -> Opaque {
        self.assignment.clone()
    }

    pub(crate) fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// Updates the member with the data that the client sends when it joins again.
    pub(crate) fn update(&mut self, request: JoinRequest) {
        self.protocols = request.protocols;
        self.client_id = request.client_id;
        self.client_host = request.client_host;
        self.session_timeout = request.session_timeout;
        self.rebalance_timeout = request.rebalance_timeout;
    }

    pub(crate) fn assign(&mut self, assignment: Opaque) {
        self.assignment = assignment;
    }

    /// Gives a static member the id of its new instance.
    pub(crate) fn replace_id(&mut self, id: String) {
        self.id = id;
    }

    pub(crate) fn offers(&self, protocols: &[MemberProtocol]) -> bool {
        self.protocols == protocols
    }

    /// Returns the metadata for the chosen protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Opaque {
        let offered = self.protocols.iter().find(|own| own.name == protocol);
        offered.map_or_else(Opaque::default, |own| own.metadata.clone())
    }

    /// Expects the next heartbeat within the session timeout.
    pub(crate) fn restart_session(&mut self, now: Duration) {
        self.session_deadline = Some(now + self.session_timeout);
    }

    /// Notes a heartbeat. A member that waits for an answer has no session that could expire.
    pub(crate) fn heartbeat(&mut self, now: Duration) {
        if self.session_deadline.is_some() {
            self.restart_session(now);
        }
    }

    fn bytes(&self) -> usize {
        let instance_id = self.instance_id().map_or(0, str::len);
        let names = self.id.len() + instance_id + self.client_id.len();
        size_of::<GroupMember>() + names + protocol_bytes(&self.protocols) + self.assignment.len()
    }
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    pub(crate) fn member_mut(&mut self, id: &str) -> Option<&mut GroupMember> {
        self.by_id.get_mut(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &GroupMember> {
        self.by_id.values()
    }

    /// Returns the ids of the members that `select` chooses.
    pub(crate) fn ids(&self, select: impl Fn(&GroupMember) -> bool) -> Vec<String> {
        let selected = self.iter().filter(|member| select(member));
        selected.map(|member| member.id.clone()).collect()
    }

    /// Returns the member id that an instance id stands for.
    pub(crate) fn static_id(&self, instance_id: &str) -> Option<&String> {
        self.static_ids.get(instance_id)
    }

    pub(crate) fn insert(&mut self, member: GroupMember) {
        for name in distinct_names(&member.protocols) {
            *self.supporters.entry(name.to_owned()).or_default() += 1;
        }
        if let Some(instance_id) = &member.instance_id {
            self.static_ids
                .insert(instance_id.clone(), member.id.clone());
        }
        self.joining += usize::from(member.is_joining());
        self.bytes += member.bytes();
        self.by_id.insert(member.id.clone(), member);
    }

    /// Removes a member. The caller answers its pending requests.
    pub(crate) fn remove(&mut self, id: &str) -> Option<GroupMember> {
        let member = self.by_id.remove(id)?;
        for name in distinct_names(&member.protocols) {
            if let Some(count) = self.supporters.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.supporters.remove(name);
                }
            }
        }
        if let Some(instance_id) = &member.instance_id {
            self.static_ids.remove(instance_id);
        }
        self.joining -= usize::from(member.is_joining());
        self.bytes -= member.bytes();
        Some(member)
    }

    /// Changes a member and updates the counters.
    pub(crate) fn change(&mut self, id: &str, change: impl FnOnce(&mut GroupMember)) {
        if let Some(mut member) = self.remove(id) {
            change(&mut member);
            self.insert(member);
        }
    }

    /// Lets a JoinGroup request wait; returns an earlier one of the member.
    pub(crate) fn begin_join(&mut self, id: &str, reply: ReplyToken) -> Option<ReplyToken> {
        let member = self.by_id.get_mut(id)?;
        let earlier = member.joining.replace(reply);
        self.joining += usize::from(earlier.is_none());
        earlier
    }

    /// Takes the JoinGroup request of a member that waits.
    pub(crate) fn end_join(&mut self, id: &str) -> Option<ReplyToken> {
        let reply = self.by_id.get_mut(id)?.joining.take()?;
        self.joining -= 1;
        Some(reply)
    }

    pub(crate) fn all_joining(&self) -> bool {
        self.joining == self.len()
    }

    /// Returns the longest rebalance timeout of the members.
    pub(crate) fn rebalance_timeout(&self) -> Duration {
        let timeouts = self.iter().map(|member| member.rebalance_timeout);
        timeouts.max().unwrap_or_default()
    }

    /// Whether one of `protocols` is supported by every member.
    pub(crate) fn support_any(&self, protocols: &[MemberProtocol]) -> bool {
        let mut names = protocols.iter().map(|protocol| &protocol.name);
        names.any(|name| self.all_support(name))
    }

    /// Lets each member vote for the first protocol it offers that all support, and returns the one
    /// with the most votes. None only without members.
    pub(crate) fn elect_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.iter() {
            let mut names = member.protocols.iter().map(|protocol| &protocol.name);
            if let Some(name) = names.find(|name| self.all_support(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let elected = votes.into_iter().max_by_key(|&(_, count)| count);
        elected.map(|(name, _)| name.to_owned())
    }

    /// Returns the approximate memory of the members, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn all_support(&self, protocol: &str) -> bool {
        self.supporters.get(protocol) == Some(&self.len())
    }
}

/// Returns the approximate memory that a member will need, in bytes.
pub(crate) fn join_bytes(request: &JoinRequest) -> usize {
    let instance_id = request.group_instance_id.as_ref().map_or(0, String::len);
    let names = request.client_id.len() + instance_id;
    size_of::<GroupMember>() + names + protocol_bytes(&request.protocols)
}

fn protocol_bytes(protocols: &[MemberProtocol]) -> usize {
    let bytes = |protocol: &MemberProtocol| {
        size_of::<MemberProtocol>() + protocol.name.len() + protocol.metadata.len()
    };
    protocols.iter().map(bytes).sum()
}

/// Returns the names of protocols without duplicates, which a client may send.
fn distinct_names(protocols: &[MemberProtocol]) -> impl Iterator<Item = &str> {
    let names = protocols.iter().map(|protocol| protocol.name.as_str());
    names.collect::<BTreeSet<_>>().into_iter()
}
