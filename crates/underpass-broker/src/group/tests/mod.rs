//! The coordinator with a log and a clock that tests control.

mod membership;
mod offsets;
mod random;
mod removal;
mod static_members;

use std::collections::HashMap;
use std::time::Duration;

use crate::group::{
    CommitRequest, CommitResult, Coordinator, CoordinatorRecord, Effect, GroupError, GroupSettings,
    JoinRejected, JoinRequest, Joined, MemberIdentity, MemberProtocol, Now, OffsetToCommit, Opaque,
    ReplyToken, SyncRequest, Synced, WriteError, WriteToken,
};

const GROUP: &str = "readers";
const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(30);
/// The initial delay of the default settings.
const DELAY: Duration = Duration::from_secs(3);
const EPOCH_MS: i64 = 1_700_000_000_000;

/// An answer to a request.
#[derive(Debug, PartialEq)]
enum Answer {
    Join(Result<Joined, JoinRejected>),
    Sync(Result<Synced, GroupError>),
    Commit(Vec<CommitResult>),
    Removal(Result<Vec<String>, GroupError>),
}

/// Whether writes are reported immediately.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Disk {
    Prompt,
    Held,
}

struct Scene {
    coordinator: Coordinator,
    now: Duration,
    disk: Disk,
    /// Written records.
    log: Vec<CoordinatorRecord>,
    /// The writes not reported yet.
    writes: Vec<(WriteToken, Vec<CoordinatorRecord>)>,
    answers: HashMap<u64, Answer>,
    tokens: u64,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            coordinator: coordinator("1"),
            now: Duration::ZERO,
            disk: Disk::Prompt,
            log: Vec::new(),
            writes: Vec::new(),
            answers: HashMap::new(),
            tokens: 0,
        }
    }

    /// Drops the coordinator and all pending requests, and restores a new one from the log.
    fn restart(&mut self) {
        self.coordinator = coordinator(&format!("{}r", self.tokens));
        self.writes.clear();
        self.coordinator.restore(time(self.now), self.log.clone());
        assert_eq!(self.coordinator.effects(), []);
    }

    fn token(&mut self) -> (u64, ReplyToken) {
        self.tokens += 1;
        (self.tokens, ReplyToken(self.tokens))
    }

    fn join(&mut self, request: JoinRequest) -> u64 {
        let (id, token) = self.token();
        self.coordinator.join(time(self.now), token, request);
        self.collect();
        id
    }

    fn sync(&mut self, request: SyncRequest) -> u64 {
        let (id, token) = self.token();
        self.coordinator.sync(time(self.now), token, request);
        self.collect();
        id
    }

    fn commit(&mut self, member: MemberIdentity, offsets: Vec<OffsetToCommit>) -> u64 {
        let (id, token) = self.token();
        let request = CommitRequest { member, offsets };
        self.coordinator.commit(time(self.now), token, request);
        self.collect();
        id
    }

    fn delete(&mut self) -> u64 {
        let (id, token) = self.token();
        self.coordinator.delete(time(self.now), token, GROUP);
        self.collect();
        id
    }

    fn delete_offsets(&mut self, topic: &str, partitions: &[i32]) -> u64 {
        let (id, token) = self.token();
        let partitions = partitions.iter().copied().collect();
        let offsets = [(topic.to_owned(), partitions)].into();
        self.coordinator
            .delete_offsets(time(self.now), token, GROUP, offsets);
        self.collect();
        id
    }

    fn heartbeat(&mut self, member: &MemberIdentity) -> Result<(), GroupError> {
        let result = self.coordinator.heartbeat(time(self.now), member);
        self.collect();
        result
    }

    fn leave(&mut self, member_id: &str, instance_id: Option<&str>) -> Result<(), GroupError> {
        let leaving = [crate::group::LeavingMember {
            member_id: member_id.to_owned(),
            group_instance_id: instance_id.map(str::to_owned),
        }];
        let results = self.coordinator.leave(time(self.now), GROUP, &leaving);
        self.collect();
        results[0]
    }

    /// Advances the time tick by tick.
    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut ticks = 0;
        while let Some(next) = self.coordinator.next_tick().filter(|next| *next <= end) {
            ticks += 1;
            assert!(ticks < 100_000, "ticks without an end");
            self.now = self.now.max(next);
            self.coordinator.tick(time(self.now));
            self.collect();
        }
        self.now = end;
    }

    /// Completes the earliest held write.
    fn write_next(&mut self, result: Result<(), WriteError>) {
        let (token, records) = self.writes.remove(0);
        if result.is_ok() {
            self.log.extend(records);
        }
        self.coordinator.written(time(self.now), token, result);
        self.collect();
    }

    fn collect(&mut self) {
        for effect in self.coordinator.effects() {
            match effect {
                Effect::Joined(token, result) => self.answered(token, Answer::Join(result)),
                Effect::Synced(token, result) => self.answered(token, Answer::Sync(result)),
                Effect::Committed(token, results) => {
                    self.answered(token, Answer::Commit(results));
                }
                Effect::Removed(token, removed) => self.answered(token, Answer::Removal(removed)),
                Effect::Write {
                    token,
                    group_id,
                    records,
                } => {
                    assert!(!group_id.is_empty() && !records.is_empty());
                    self.writes.push((token, records));
                }
            }
        }
        while self.disk == Disk::Prompt && !self.writes.is_empty() {
            self.write_next(Ok(()));
        }
    }

    fn answered(&mut self, token: ReplyToken, answer: Answer) {
        assert!((1..=self.tokens).contains(&token.0), "a token of nobody");
        let earlier = self.answers.insert(token.0, answer);
        assert_eq!(earlier, None, "two answers");
    }

    fn waits(&self, token: u64) -> bool {
        !self.answers.contains_key(&token)
    }

    fn joined(&mut self, token: u64) -> Joined {
        match self.answers.remove(&token) {
            Some(Answer::Join(Ok(joined))) => joined,
            other => panic!("not joined: {other:?}"),
        }
    }

    fn rejected(&mut self, token: u64) -> (GroupError, String) {
        match self.answers.remove(&token) {
            Some(Answer::Join(Err(rejected))) => (rejected.error, rejected.member_id),
            other => panic!("not rejected: {other:?}"),
        }
    }

    fn synced(&mut self, token: u64) -> Result<Vec<u8>, GroupError> {
        match self.answers.remove(&token) {
            Some(Answer::Sync(result)) => result.map(|synced| synced.assignment.to_vec()),
            other => panic!("not synced: {other:?}"),
        }
    }

    fn removed(&mut self, token: u64) -> Result<Vec<String>, GroupError> {
        match self.answers.remove(&token) {
            Some(Answer::Removal(result)) => result,
            other => panic!("not removed: {other:?}"),
        }
    }

    fn committed(&mut self, token: u64) -> Vec<Option<GroupError>> {
        match self.answers.remove(&token) {
            Some(Answer::Commit(results)) => results.iter().map(|result| result.error).collect(),
            other => panic!("not committed: {other:?}"),
        }
    }

    /// Brings `count` new members to a stable generation, of which the first is the leader. Assigns
    /// to each its position.
    fn stable(&mut self, count: usize) -> Vec<MemberIdentity> {
        let joins: Vec<u64> = (0..count).map(|_| self.join(new_member())).collect();
        self.wait(DELAY + DELAY);
        self.settle(&joins)
    }

    /// Completes a generation whose JoinGroup requests have been answered; returns the leader
    /// first.
    fn settle(&mut self, joins: &[u64]) -> Vec<MemberIdentity> {
        let mut joined: Vec<Joined> = joins.iter().map(|join| self.joined(*join)).collect();
        joined.sort_by_key(|joined| joined.members.is_empty());
        let members: Vec<_> = joined.iter().map(identity).collect();
        let ids = members.iter().map(|member| member.member_id.clone());
        let assignments = ids.zip(0_u8..).map(|(id, index)| (id, opaque(&[index])));
        let mut request = sync(&members[0]);
        request.assignments = assignments.collect();
        let mut syncs = vec![self.sync(request)];
        for member in &members[1..] {
            syncs.push(self.sync(sync(member)));
        }
        for (token, index) in syncs.into_iter().zip(0_u8..) {
            assert_eq!(self.synced(token), Ok(vec![index]));
        }
        members
    }
}

fn coordinator(incarnation: &str) -> Coordinator {
    let (incarnation, mut ids) = (incarnation.to_owned(), 0);
    Coordinator::new(GroupSettings::default(), move || {
        ids += 1;
        format!("{incarnation}-{ids:04}")
    })
}

fn time(now: Duration) -> Now {
    Now {
        monotonic: now,
        unix_ms: EPOCH_MS + i64::try_from(now.as_millis()).unwrap(),
    }
}

fn opaque(bytes: &[u8]) -> Opaque {
    Opaque::from(bytes)
}

fn protocol(name: &str, metadata: &[u8]) -> MemberProtocol {
    MemberProtocol {
        name: name.to_owned(),
        metadata: opaque(metadata),
    }
}

/// A dynamic member without id, of a version that joins in one step.
fn new_member() -> JoinRequest {
    JoinRequest {
        version: 3,
        group_id: GROUP.to_owned(),
        member_id: String::new(),
        group_instance_id: None,
        client_id: "client".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        protocol_type: "consumer".to_owned(),
        protocols: vec![protocol("range", b"topics")],
    }
}

/// A member that joins again.
fn known_member(member: &MemberIdentity) -> JoinRequest {
    JoinRequest {
        member_id: member.member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        ..new_member()
    }
}

fn identity(joined: &Joined) -> MemberIdentity {
    MemberIdentity {
        group_id: GROUP.to_owned(),
        generation: joined.generation,
        member_id: joined.member_id.clone(),
        group_instance_id: None,
    }
}

fn sync(member: &MemberIdentity) -> SyncRequest {
    SyncRequest {
        member: member.clone(),
        protocol_type: Some("consumer".to_owned()),
        protocol: Some("range".to_owned()),
        assignments: Vec::new(),
    }
}

/// A consumer without group management.
fn simple_consumer() -> MemberIdentity {
    MemberIdentity {
        group_id: GROUP.to_owned(),
        generation: -1,
        member_id: String::new(),
        group_instance_id: None,
    }
}

fn offset(partition: i32, offset: i64) -> OffsetToCommit {
    OffsetToCommit {
        topic: "t".to_owned(),
        partition,
        offset,
        leader_epoch: 0,
        metadata: "note".to_owned(),
    }
}

fn of_generation(member: &MemberIdentity, generation: i32) -> MemberIdentity {
    MemberIdentity {
        generation,
        ..member.clone()
    }
}
