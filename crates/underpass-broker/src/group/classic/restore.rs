//! Rebuilds a group from its records.

use crate::group::classic::member::{GroupMember, Members};
use crate::group::classic::state::{Context, Group, GroupState};
use crate::group::record::GroupMetadata;

impl Group {
    /// Restores the members from a record. A session of each starts at `cx.now`.
    pub(crate) fn restore(&mut self, cx: &Context<'_>, stored: Option<GroupMetadata>) {
        let Some(stored) = stored else {
            let offsets = std::mem::take(&mut self.offsets);
            *self = Group::new(self.id.clone());
            self.offsets = offsets;
            return;
        };
        let protocol = stored.protocol.as_deref().unwrap_or_default();
        let mut members = Members::default();
        for member in stored.members {
            members.insert(GroupMember::restored(member, protocol, cx.now.monotonic));
        }
        self.state = if members.is_empty() {
            GroupState::Empty
        } else {
            GroupState::Stable
        };
        self.state_timestamp_ms = stored.current_state_timestamp_ms;
        self.generation = stored.generation;
        self.protocol_type = (!stored.protocol_type.is_empty()).then_some(stored.protocol_type);
        self.protocol = stored.protocol;
        self.leader = stored.leader;
        self.members = members;
    }
}
