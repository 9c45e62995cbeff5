//! The removal of a group, and of offsets, by an administrator.

use std::collections::BTreeSet;

use crate::group::classic::state::{Context, Group, GroupState};
use crate::group::request::ReplyToken;

/// The protocol type of consumers, whose subscriptions have a known format.
const CONSUMER: &str = "consumer";

impl Group {
    /// Removes an empty group, here and in the log. `being_written` are partitions whose offsets
    /// are in the log or will be. Pending commits are still answered.
    pub(crate) fn delete(
        &mut self,
        cx: &mut Context<'_>,
        reply: ReplyToken,
        being_written: Vec<(String, i32)>,
    ) {
        let committed = self.offsets.iter();
        let committed = committed.map(|(topic, partition, _)| (topic.to_owned(), partition));
        let partitions: BTreeSet<_> = committed.chain(being_written).collect();
        let mut records = self.remove_offsets(partitions.into_iter().collect());
        records.extend(self.tombstone());
        cx.effects
            .write_removal(&self.id, records, (reply, Vec::new()));
        // Without offsets now, but perhaps with pending commits.
        let offsets = std::mem::take(&mut self.offsets);
        *self = Group::new(self.id.clone());
        self.offsets = offsets;
    }

    /// Removes some offsets, here and in the log.
    pub(crate) fn delete_offsets(
        &mut self,
        cx: &mut Context<'_>,
        reply: (ReplyToken, Vec<String>),
        is_removed: impl Fn(&str, i32) -> bool,
        being_written: Vec<(String, i32)>,
    ) {
        let committed = self.offsets.iter();
        let removed = committed.filter(|(topic, partition, _)| is_removed(topic, *partition));
        let removed = removed.map(|(topic, partition, _)| (topic.to_owned(), partition));
        let partitions: BTreeSet<_> = removed.chain(being_written).collect();
        let records = self.remove_offsets(partitions.into_iter().collect());
        cx.effects.write_removal(&self.id, records, reply);
    }

    /// Whether the group has members whose subscriptions only they understand.
    pub(crate) fn has_unknown_subscriptions(&self) -> bool {
        self.state != GroupState::Empty && self.protocol_type.as_deref() != Some(CONSUMER)
    }

    /// Returns the topics that members subscribe to; `None` while these are unknown, which counts
    /// as all topics, as in Kafka.
    pub(crate) fn subscribed_topics(&self) -> Option<BTreeSet<Vec<u8>>> {
        let mut subscribed = BTreeSet::new();
        for member in self.members.iter() {
            let protocol = self.protocol.as_deref()?;
            subscribed.extend(subscribed_topics(&member.metadata(protocol))?);
        }
        Some(subscribed)
    }
}

/// Decodes the topics of a consumer's subscription: a version of two bytes, a count, and names.
fn subscribed_topics(subscription: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (_version, rest) = subscription.split_first_chunk::<2>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut topics = Vec::new();
    for _ in 0..i32::from_be_bytes(*count) {
        let (length, names) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (name, behind) = names.split_at_checked(length)?;
        topics.push(name.to_owned());
        rest = behind;
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_of_consumers_are_understood() {
        let topics = |bytes: &[u8]| subscribed_topics(bytes);
        let two = b"\0\x03\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff";
        assert_eq!(topics(two), Some(vec![b"a".to_vec(), b"bc".to_vec()]));
        assert_eq!(topics(b"\0\0\0\0\0\0"), Some(Vec::new()));
        for wrong in [
            &b""[..],
            b"\0\0\0",
            b"\0\0\x7f\xff\xff\xff",
            b"\0\0\0\0\0\x01\xff\xff",
        ] {
            assert_eq!(topics(wrong), None, "{wrong:?}");
        }
    }
}
