//! Descriptions of groups for administrators.

use crate::group::classic::state::{Group, GroupState};
use crate::group::record::MemberMetadata;
use crate::group::request::Opaque;

/// The state and the members of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupDescription {
    /// Kafka's name of the state.
    pub state: &'static str,
    /// The protocol type; empty if the group never had members.
    pub protocol_type: String,
    /// The chosen protocol; empty unless the group is stable.
    pub protocol: String,
    /// The members; their subscriptions are empty unless the group is stable.
    pub members: Vec<MemberMetadata>,
}

/// The state of a group that does not exist.
pub const DEAD: &str = "Dead";

/// The states of groups that exist.
pub const GROUP_STATES: [&str; 4] = [
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
];

impl GroupState {
    /// Returns Kafka's name of the state.
    pub(crate) fn name(self) -> &'static str {
        GROUP_STATES[match self {
            GroupState::Empty => 0,
            GroupState::PreparingRebalance { .. } => 1,
            GroupState::CompletingRebalance { .. } => 2,
            GroupState::Stable => 3,
        }]
    }
}

impl Group {
    pub(crate) fn describe(&self) -> GroupDescription {
        let mut members = self.stored_members();
        let is_stable = self.state == GroupState::Stable;
        if !is_stable {
            members
                .iter_mut()
                .for_each(|member| member.subscription = Opaque::default());
        }
        let protocol = self.protocol.clone().filter(|_| is_stable);
        GroupDescription {
            state: self.state.name(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: protocol.unwrap_or_default(),
            members,
        }
    }
}
