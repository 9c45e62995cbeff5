//! Members of consumer groups, and the offsets they have read together.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use underpass_testkit::wait_until;

use super::client::Program;
use super::records::PARTITIONS;
use super::running::Running;

/// A partition, and a range of its offsets.
pub(crate) type PartRange = (u64, Range<u64>);

/// A program in the scenario `group`.
#[derive(Debug)]
pub(crate) struct Member {
    program: Program,
    process: Running,
}

impl Member {
    pub(crate) fn join(program: Program, broker: &str, topic: &str, group: &str) -> Member {
        let group = format!("group={group}");
        let process = program.spawn(broker, "group", topic, 0, &[&group]);
        Member { program, process }
    }

    /// Returns the partitions of its last assignment.
    fn assigned(&self) -> Vec<u64> {
        let events = self.process.events();
        let assigned = events
            .iter()
            .rev()
            .find_map(|event| event["assigned"].as_array());
        let partitions = assigned.into_iter().flatten();
        partitions
            .map(|partition| partition.as_u64().unwrap())
            .collect()
    }

    /// Returns the ranges of offsets it has read and committed so far, with their partitions.
    pub(crate) fn ranges(&self) -> Vec<PartRange> {
        ranges(&self.process.events())
    }

    /// Leaves the group, and returns the ranges it has read.
    pub(crate) fn leave(self) -> Vec<PartRange> {
        self.process.stop();
        let events = self.process.end();
        assert_eq!(events.last().unwrap()["left"], true, "{:?}", self.program);
        ranges(&events)
    }

    /// Kills the member, and returns the ranges it has read.
    pub(crate) fn die(self) -> Vec<PartRange> {
        ranges(&self.process.kill())
    }
}

fn ranges(events: &[Value]) -> Vec<PartRange> {
    let ranges = events.iter().filter_map(|event| {
        let number = |name: &str| event[name].as_u64();
        let range = number("first")?..number("next")?;
        Some((number("partition")?, range))
    });
    ranges.collect()
}

/// Waits until the members share all partitions equally.
pub(crate) fn wait_for_shares(members: &[&Member]) {
    let share = usize::try_from(PARTITIONS).unwrap() / members.len();
    let all = Vec::from_iter(0..PARTITIONS);
    let what = format!("shares of {members:?}");
    wait_until(&what, || {
        let shares = Vec::from_iter(members.iter().map(|member| member.assigned()));
        let mut assigned = shares.concat();
        assigned.sort_unstable();
        assigned == all && shares.iter().all(|it| it.len() == share)
    });
}

/// Waits until the members, together with `others`, have read every partition up to an offset.
pub(crate) fn wait_for_reading(members: &[&Member], others: &[PartRange], end: u64) {
    let what = format!("reading of {members:?}");
    wait_until(&what, || {
        let ranges = members.iter().flat_map(|member| member.ranges());
        let mut ends = BTreeMap::new();
        for (partition, range) in ranges.chain(others.iter().cloned()) {
            let reached: &mut u64 = ends.entry(partition).or_default();
            *reached = range.end.max(*reached);
        }
        (0..PARTITIONS).all(|partition| ends.get(&partition).is_some_and(|it| *it >= end))
    });
}

/// Checks that ranges cover the offsets of each partition up to an end, each offset once.
#[track_caller]
pub(crate) fn assert_each_once(ranges: &[PartRange], end: u64) {
    for partition in 0..PARTITIONS {
        let own = ranges.iter().filter(|(of, _)| *of == partition);
        let mut own = Vec::from_iter(own.map(|(_, range)| range.clone()));
        own.sort_by_key(|range| range.start);
        let reached = own.iter().fold(0, |reached, range| {
            assert_eq!(range.start, reached, "partition {partition}: {own:?}");
            range.end
        });
        assert_eq!(reached, end, "partition {partition}: {own:?}");
    }
}
