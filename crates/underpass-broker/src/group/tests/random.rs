//! Random events, with clients that follow the protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// Enough for a session, a rebalance and a late SyncGroup to end, one after another.
const SETTLED_AFTER: u32 = 150;

#[derive(Clone, Debug)]
enum Event {
    /// A client starts, if it is away.
    Start(usize),
    /// A client vanishes.
    Crash(usize),
    Leave(usize),
    Commit(usize),
    /// A client loses its connection and repeats its JoinGroup or SyncGroup request.
    Repeat(usize),
    /// A client joins again with other metadata.
    Subscribe(usize),
    /// Seconds pass; clients send heartbeats.
    Pass(u32),
    Write,
    FailWrite,
    DeleteTopic,
    /// An administrator deletes the group, if it is empty.
    DeleteGroup,
    DeleteOffset(i32),
    /// The broker is killed after this many held writes have reached the log.
    Kill(usize),
}

#[derive(Clone, Debug)]
enum Phase {
    Away,
    Joining(u64),
    Syncing(u64, MemberIdentity, Vec<String>),
    Active(MemberIdentity),
}

struct Client {
    request: JoinRequest,
    phase: Phase,
    assignment: Vec<u8>,
}

struct World {
    scene: Scene,
    clients: Vec<Client>,
    /// Requests since the last start of the broker whose answers were not received.
    asked: BTreeSet<u64>,
    /// The latest generation since the last start of the broker, and the number of members that its
    /// leader received.
    generation: (i32, usize),
    /// The SyncGroup request that assigned the work of each generation.
    assigned_by: BTreeMap<i32, u64>,
    counter: u64,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn groups_converge_and_keep_what_was_committed(
        events in proptest::collection::vec(event(), 1..80),
    ) {
        let mut world = World::new();
        for event in events {
            world.handle(&event);
            world.drive();
        }
        world.settle();
        world.check_members();
        world.check_quiet();
        world.check_offsets();
        world.check_restored();
    }
}

fn event() -> impl Strategy<Value = Event> {
    let client = 0..4_usize;
    prop_oneof![
        4 => client.clone().prop_map(Event::Start),
        1 => client.clone().prop_map(Event::Crash),
        1 => client.clone().prop_map(Event::Leave),
        3 => client.clone().prop_map(Event::Commit),
        1 => client.clone().prop_map(Event::Repeat),
        1 => client.prop_map(Event::Subscribe),
        4 => (0..9_u32).prop_map(Event::Pass),
        8 => Just(Event::Write),
        1 => Just(Event::FailWrite),
        1 => Just(Event::DeleteTopic),
        1 => Just(Event::DeleteGroup),
        1 => (0..4_i32).prop_map(Event::DeleteOffset),
        1 => (0..3_usize).prop_map(Event::Kill),
    ]
}

impl World {
    /// Two dynamic and two static clients, of old and new versions.
    fn new() -> World {
        let mut scene = Scene::new();
        scene.disk = Disk::Held;
        let versions = [(3, None), (9, None), (5, Some("alpha")), (9, Some("beta"))];
        let clients = versions.map(|(version, instance_id)| Client {
            request: JoinRequest {
                version,
                group_instance_id: instance_id.map(str::to_owned),
                ..new_member()
            },
            phase: Phase::Away,
            assignment: Vec::new(),
        });
        World {
            scene,
            clients: clients.into(),
            asked: BTreeSet::new(),
            generation: (0, 0),
            assigned_by: BTreeMap::new(),
            counter: 0,
        }
    }

    fn handle(&mut self, event: &Event) {
        match *event {
            Event::Start(index) => {
                if let Phase::Away = self.clients[index].phase {
                    self.clients[index].request.member_id.clear();
                    self.join(index);
                }
            }
            Event::Crash(index) => self.clients[index].phase = Phase::Away,
            Event::Leave(index) => self.leave(index),
            Event::Commit(index) => self.commit(index),
            Event::Repeat(index) => match self.clients[index].phase.clone() {
                Phase::Joining(_) => self.join(index),
                Phase::Syncing(_, member, members) => self.sync(index, member, members),
                Phase::Away | Phase::Active(_) => {}
            },
            Event::Subscribe(index) => {
                self.counter += 1;
                let metadata = self.counter.to_be_bytes();
                if let Phase::Active(_) = self.clients[index].phase {
                    self.clients[index].request.protocols = vec![protocol("range", &metadata)];
                    self.join(index);
                }
            }
            Event::Pass(seconds) => (0..seconds).for_each(|_| self.pass_second()),
            Event::Write => self.write(Ok(())),
            Event::FailWrite => self.fail_write(),
            Event::DeleteTopic => {
                let now = time(self.scene.now);
                self.scene.coordinator.topic_deleted(now, "t");
                self.scene.collect();
            }
            Event::DeleteGroup => {
                let members = self.scene.coordinator.describe(GROUP);
                if members.is_some_and(|group| group.state == "Empty") {
                    // Generations start again.
                    self.generation = (0, 0);
                    self.assigned_by.clear();
                }
                let token = self.scene.delete();
                self.asked.insert(token);
            }
            Event::DeleteOffset(partition) => {
                let token = self.scene.delete_offsets("t", &[partition]);
                self.asked.insert(token);
            }
            Event::Kill(written) => self.kill(written),
        }
    }

    fn write(&mut self, result: Result<(), WriteError>) {
        if !self.scene.writes.is_empty() {
            self.scene.write_next(result);
        }
    }

    /// Fails the next write, unless it removes offsets, which a restart would restore.
    fn fail_write(&mut self) {
        let removes = |record: &CoordinatorRecord| {
            matches!(
                record,
                CoordinatorRecord::Offset { value: None, .. }
                    | CoordinatorRecord::Group { value: None, .. }
            )
        };
        let next = self.scene.writes.first();
        if !next.is_some_and(|(_, records)| records.iter().any(removes)) {
            self.write(Err(WriteError::Unavailable));
        }
    }

    /// Restarts the broker. Clients with pending requests repeat them.
    fn kill(&mut self, written: usize) {
        let written = written.min(self.scene.writes.len());
        let records = self
            .scene
            .writes
            .drain(..written)
            .flat_map(|(_, records)| records);
        self.scene.log.extend(records);
        self.scene.restart();
        self.asked.clear();
        self.generation = (0, 0);
        for index in 0..self.clients.len() {
            if let Phase::Joining(_) | Phase::Syncing(..) = self.clients[index].phase {
                self.join(index);
            }
        }
    }

    fn pass_second(&mut self) {
        self.scene.wait(SECOND);
        for index in 0..self.clients.len() {
            let Phase::Active(member) = self.clients[index].phase.clone() else {
                continue;
            };
            if let Err(error) = self.scene.heartbeat(&member) {
                self.join_after(index, error);
            }
        }
        self.drive();
    }

    /// Lets clients act on their answers until all of them wait.
    fn drive(&mut self) {
        for _ in 0..1000 {
            let answered = self.clients.iter().position(|client| match client.phase {
                Phase::Joining(token) | Phase::Syncing(token, ..) => !self.scene.waits(token),
                Phase::Away | Phase::Active(_) => false,
            });
            let Some(index) = answered else {
                return;
            };
            match self.clients[index].phase.clone() {
                Phase::Joining(token) => self.after_join(index, token),
                Phase::Syncing(token, member, _) => self.after_sync(index, token, member),
                Phase::Away | Phase::Active(_) => unreachable!("nothing is asked"),
            }
        }
        panic!("requests without an end");
    }

    fn join(&mut self, index: usize) {
        let token = self.scene.join(self.clients[index].request.clone());
        self.asked.insert(token);
        self.clients[index].phase = Phase::Joining(token);
    }

    /// Joins again after an error, as clients do. A fenced client starts over.
    fn join_after(&mut self, index: usize, error: GroupError) {
        match error {
            GroupError::UnknownMemberId | GroupError::FencedInstanceId => {
                self.clients[index].request.member_id.clear();
            }
            GroupError::RebalanceInProgress
            | GroupError::IllegalGeneration
            | GroupError::CoordinatorNotAvailable => {}
            other => panic!("no cause for {other:?}"),
        }
        self.join(index);
    }

    fn after_join(&mut self, index: usize, token: u64) {
        self.asked.remove(&token);
        match self.scene.answers.remove(&token) {
            Some(Answer::Join(Ok(joined))) => {
                self.check_generation(&joined);
                self.clients[index]
                    .request
                    .member_id
                    .clone_from(&joined.member_id);
                let mut member = identity(&joined);
                let instance_id = &self.clients[index].request.group_instance_id;
                member.group_instance_id.clone_from(instance_id);
                let leads = joined.leader == joined.member_id && !joined.skip_assignment;
                let members = joined.members.into_iter().filter(|_| leads);
                let members = members.map(|member| member.member_id).collect();
                self.sync(index, member, members);
            }
            Some(Answer::Join(Err(rejected))) => match rejected.error {
                GroupError::MemberIdRequired => {
                    self.clients[index].request.member_id = rejected.member_id;
                    self.join(index);
                }
                error => self.join_after(index, error),
            },
            other => panic!("not an answer to JoinGroup: {other:?}"),
        }
    }

    /// Sends SyncGroup. The leader assigns to each member the number of its own request and the
    /// position of the member.
    fn sync(&mut self, index: usize, member: MemberIdentity, members: Vec<String>) {
        self.counter += 1;
        let mut request = super::sync(&member);
        for (position, id) in members.iter().enumerate() {
            let assignment = [self.counter.to_be_bytes(), position.to_be_bytes()].concat();
            request.assignments.push((id.clone(), opaque(&assignment)));
        }
        let token = self.scene.sync(request);
        self.asked.insert(token);
        self.clients[index].phase = Phase::Syncing(token, member, members);
    }

    fn after_sync(&mut self, index: usize, token: u64, member: MemberIdentity) {
        self.asked.remove(&token);
        match self.scene.synced(token) {
            Ok(assignment) => {
                self.check_assignment(member.generation, &assignment);
                self.clients[index].assignment = assignment;
                self.clients[index].phase = Phase::Active(member);
            }
            Err(error) => self.join_after(index, error),
        }
    }

    fn leave(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Phase::Active(member) = client.phase.clone() {
            client.phase = Phase::Away;
            let instance_id = member.group_instance_id.as_deref();
            let _ = self.scene.leave(&member.member_id, instance_id);
        }
    }

    fn commit(&mut self, index: usize) {
        if let Phase::Active(member) = self.clients[index].phase.clone() {
            self.counter += 1;
            let partition = i32::try_from(index).unwrap();
            let position = i64::try_from(self.counter).unwrap();
            let token = self.scene.commit(member, vec![offset(partition, position)]);
            self.asked.insert(token);
        }
    }

    /// Ends the events: the disk writes, time passes, and live clients follow the protocol.
    fn settle(&mut self) {
        self.scene.disk = Disk::Prompt;
        self.scene.collect();
        self.drive();
        (0..SETTLED_AFTER).for_each(|_| self.pass_second());
    }

    /// Checks that generations rise, and that a repeated answer lists the same number of members.
    fn check_generation(&mut self, joined: &Joined) {
        let (generation, members) = self.generation;
        assert!(
            joined.generation >= generation,
            "generation {generation} is over"
        );
        let seen = joined.members.len();
        if joined.generation > generation {
            self.generation = (joined.generation, seen);
        } else if members == 0 {
            self.generation = (generation, seen);
        } else {
            assert!(
                seen == 0 || seen == members,
                "two memberships of {generation}"
            );
        }
    }

    /// Checks that one request assigned all work of a generation.
    fn check_assignment(&mut self, generation: i32, assignment: &[u8]) {
        let Some((request, _)) = assignment.split_first_chunk() else {
            panic!("the leader leaves nobody out");
        };
        let request = u64::from_be_bytes(*request);
        let by = *self.assigned_by.entry(generation).or_insert(request);
        assert_eq!(by, request, "two assignments of generation {generation}");
    }

    /// Checks that the group consists of the live clients, in one generation, with distinct work.
    fn check_members(&self) {
        let alive = self
            .clients
            .iter()
            .filter(|client| !matches!(client.phase, Phase::Away));
        let active: Vec<&MemberIdentity> = alive
            .clone()
            .map(|client| match &client.phase {
                Phase::Active(member) => member,
                other => panic!("not settled: {other:?}"),
            })
            .collect();
        let generations = active.iter().map(|member| member.generation);
        assert!(generations.collect::<BTreeSet<_>>().len() <= 1);
        let assignments: BTreeSet<_> = alive.map(|client| &client.assignment).collect();
        assert_eq!(assignments.len(), active.len(), "work is shared");
        if !active.is_empty() {
            let stored = self.scene.log.iter().rev().find_map(|record| match record {
                CoordinatorRecord::Group { value, .. } => value.as_ref(),
                CoordinatorRecord::Offset { .. } => None,
            });
            let stored = stored.map(|stored| stored.members.iter());
            let stored = stored.into_iter().flatten().map(|member| &member.member_id);
            let active = active.into_iter().map(|member| &member.member_id);
            assert_eq!(stored.collect::<BTreeSet<_>>(), active.collect());
        }
    }

    /// Checks that every request has been answered, and that no effects are left.
    fn check_quiet(&mut self) {
        let waiting: Vec<u64> = self.asked.iter().copied().collect();
        let waiting = waiting.into_iter().filter(|token| self.scene.waits(*token));
        let waiting: Vec<u64> = waiting.collect();
        assert!(waiting.is_empty(), "{waiting:?}");
        self.scene.coordinator.tick(time(self.scene.now));
        assert_eq!(self.scene.coordinator.effects(), []);
    }

    /// Checks that the visible offsets are those of the log.
    fn check_offsets(&self) {
        let mut expected = BTreeMap::new();
        for record in &self.scene.log {
            let CoordinatorRecord::Offset {
                topic,
                partition,
                value,
                ..
            } = record
            else {
                continue;
            };
            match value {
                Some(value) => expected.insert((topic.as_str(), *partition), value),
                None => expected.remove(&(topic.as_str(), *partition)),
            };
        }
        let visible = self.scene.coordinator.committed_offsets(GROUP);
        let visible = visible.map(|(topic, partition, value)| ((topic, partition), value));
        assert_eq!(visible.collect::<BTreeMap<_, _>>(), expected);
    }

    /// Checks that a restart changes neither members nor offsets.
    fn check_restored(&mut self) {
        self.scene.restart();
        self.check_offsets();
        for index in 0..self.clients.len() {
            if let Phase::Active(member) = self.clients[index].phase.clone() {
                assert_eq!(self.scene.heartbeat(&member), Ok(()));
                let token = self.scene.sync(super::sync(&member));
                let assignment = self.clients[index].assignment.clone();
                assert_eq!(self.scene.synced(token), Ok(assignment));
            }
        }
    }
}
