//! Committed offsets.

use std::time::Duration;

use super::*;
use crate::group::{LoweredOffsets, OFFSETS_RETENTION_CHECK_INTERVAL};

const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

fn committed(scene: &Scene, partition: i32) -> Option<i64> {
    let committed = scene.coordinator.committed(GROUP, "t", partition);
    committed.map(|committed| committed.offset)
}

#[test]
fn a_member_commits_and_reads_back_what_it_sent() {
    let mut scene = Scene::new();
    let member = scene.stable(1).remove(0);
    let token = scene.commit(member, vec![offset(0, 42), offset(1, 7)]);
    assert_eq!(scene.committed(token), [None, None]);
    let stored = scene.coordinator.committed(GROUP, "t", 0).unwrap();
    assert_eq!((stored.offset, stored.metadata.as_str()), (42, "note"));
    assert_eq!(stored.commit_timestamp_ms, time(scene.now).unix_ms);
    let all = scene.coordinator.committed_offsets(GROUP);
    let all: Vec<_> = all
        .map(|(topic, partition, at)| (topic, partition, at.offset))
        .collect();
    assert_eq!(all, [("t", 0, 42), ("t", 1, 7)]);
    assert_eq!(committed(&scene, 2), None);
    assert_eq!(scene.coordinator.committed_offsets("unknown").count(), 0);
}

#[test]
fn offsets_are_invisible_until_written() {
    let mut scene = Scene::new();
    scene.disk = Disk::Held;
    let first = scene.commit(simple_consumer(), vec![offset(0, 1)]);
    let second = scene.commit(simple_consumer(), vec![offset(0, 2)]);
    assert!(scene.waits(first));
    assert_eq!(committed(&scene, 0), None);
    scene.write_next(Ok(()));
    assert_eq!(committed(&scene, 0), Some(1));
    assert!(scene.waits(second));
    scene.write_next(Err(WriteError::TooLarge));
    assert_eq!(
        scene.committed(second),
        [Some(GroupError::InvalidCommitOffsetSize)]
    );
    assert_eq!(committed(&scene, 0), Some(1));
}

#[test]
fn long_metadata_is_refused_for_its_partition() {
    let mut scene = Scene::new();
    let (mut fits, mut long) = (offset(0, 1), offset(1, 1));
    fits.metadata = "x".repeat(4096);
    long.metadata = "x".repeat(4097);
    let token = scene.commit(simple_consumer(), vec![fits, long.clone()]);
    assert_eq!(
        scene.committed(token),
        [None, Some(GroupError::OffsetMetadataTooLarge)]
    );
    assert_eq!(
        (committed(&scene, 0), committed(&scene, 1)),
        (Some(1), None)
    );
    let token = scene.commit(simple_consumer(), vec![long]);
    assert_eq!(scene.committed(token)[0].map(GroupError::code), Some(12));
}

#[test]
fn commits_of_strangers_and_past_generations_are_refused() {
    let mut scene = Scene::new();
    let member = scene.stable(1).remove(0);
    let mut commit = |member: MemberIdentity| {
        let token = scene.commit(member, vec![offset(0, 1)]);
        scene.committed(token)[0].map(GroupError::code)
    };
    let mut stranger = member.clone();
    stranger.member_id = "stranger".to_owned();
    let mut elsewhere = member.clone();
    elsewhere.group_id = "elsewhere".to_owned();
    assert_eq!(commit(of_generation(&member, 2)), Some(22));
    assert_eq!(commit(stranger), Some(25));
    assert_eq!(
        commit(simple_consumer()),
        Some(25),
        "the group is not empty"
    );
    assert_eq!(commit(elsewhere), Some(22), "no such group");
    assert_eq!(commit(member), None);
}

#[test]
fn members_commit_before_they_join_again_but_not_before_they_sync() {
    let mut scene = Scene::new();
    let member = scene.stable(1).remove(0);
    let newcomer = scene.join(new_member());
    let token = scene.commit(member.clone(), vec![offset(0, 5)]);
    assert_eq!(scene.committed(token), [None]);
    let join = scene.join(known_member(&member));
    let joined = [newcomer, join].map(|join| identity(&scene.joined(join)));
    let token = scene.commit(joined[0].clone(), vec![offset(0, 6)]);
    assert_eq!(
        scene.committed(token),
        [Some(GroupError::RebalanceInProgress)]
    );
}

#[test]
fn a_commit_keeps_the_session() {
    let mut scene = Scene::new();
    let member = scene.stable(1).remove(0);
    scene.wait(SESSION - Duration::from_secs(1));
    scene.commit(member.clone(), vec![offset(0, 5)]);
    scene.wait(SESSION - Duration::from_secs(1));
    assert_eq!(scene.heartbeat(&member), Ok(()));
}

#[test]
fn offsets_expire_after_the_group_has_been_empty_for_the_retention() {
    let mut scene = Scene::new();
    let member = scene.stable(1).remove(0);
    scene.commit(member.clone(), vec![offset(0, 5)]);
    for _ in 0..RETENTION.as_secs() / 5 {
        scene.wait(Duration::from_secs(6));
        assert_eq!(
            scene.heartbeat(&member),
            Ok(()),
            "a living group keeps its offsets"
        );
    }
    assert_eq!(scene.leave(&member.member_id, None), Ok(()));
    scene.wait(RETENTION - OFFSETS_RETENTION_CHECK_INTERVAL);
    assert_eq!(committed(&scene, 0), Some(5));
    scene.wait(OFFSETS_RETENTION_CHECK_INTERVAL * 2);
    assert_eq!(committed(&scene, 0), None);
    assert!(scene.coordinator.group_ids().is_empty());
    assert!(matches!(
        &scene.log[scene.log.len() - 2..],
        [
            CoordinatorRecord::Offset { value: None, .. },
            CoordinatorRecord::Group { value: None, .. }
        ]
    ));
    scene.restart();
    assert!(scene.coordinator.group_ids().is_empty());
}

#[test]
fn offsets_without_group_management_expire_one_by_one() {
    let mut scene = Scene::new();
    scene.commit(simple_consumer(), vec![offset(0, 5)]);
    scene.wait(RETENTION / 2);
    scene.commit(simple_consumer(), vec![offset(1, 6)]);
    scene.wait(RETENTION / 2 + OFFSETS_RETENTION_CHECK_INTERVAL);
    assert_eq!(
        (committed(&scene, 0), committed(&scene, 1)),
        (None, Some(6))
    );
    scene.restart();
    assert_eq!(
        (committed(&scene, 0), committed(&scene, 1)),
        (None, Some(6))
    );
}

#[test]
fn offsets_of_a_deleted_topic_are_removed_even_while_they_are_written() {
    let mut scene = Scene::new();
    scene.commit(simple_consumer(), vec![offset(0, 5)]);
    let mut other = offset(0, 9);
    other.topic = "other".to_owned();
    scene.disk = Disk::Held;
    let token = scene.commit(simple_consumer(), vec![offset(1, 6), other]);
    scene.coordinator.topic_deleted(time(scene.now), "t");
    scene.collect();
    assert_eq!(committed(&scene, 0), None);
    scene.write_next(Ok(()));
    scene.write_next(Ok(()));
    assert_eq!(scene.committed(token), [None, None]);
    for _ in 0..2 {
        assert_eq!((committed(&scene, 0), committed(&scene, 1)), (None, None));
        let other = scene.coordinator.committed(GROUP, "other", 0);
        assert_eq!(other.map(|other| other.offset), Some(9));
        scene.restart();
    }
}

#[test]
fn a_failed_first_commit_leaves_no_group() {
    let mut scene = Scene::new();
    scene.disk = Disk::Held;
    scene.commit(simple_consumer(), vec![offset(0, 5)]);
    assert_eq!(scene.coordinator.group_ids().len(), 1);
    scene.write_next(Err(WriteError::Unavailable));
    assert!(scene.coordinator.group_ids().is_empty());
}

#[test]
fn an_offset_that_is_being_written_does_not_expire() {
    let mut scene = Scene::new();
    scene.commit(simple_consumer(), vec![offset(0, 5)]);
    scene.wait(RETENTION - Duration::from_secs(1));
    scene.disk = Disk::Held;
    scene.commit(simple_consumer(), vec![offset(0, 6)]);
    scene.wait(OFFSETS_RETENTION_CHECK_INTERVAL * 2);
    while !scene.writes.is_empty() {
        scene.write_next(Ok(()));
    }
    assert_eq!(committed(&scene, 0), Some(6));
    scene.restart();
    assert_eq!(committed(&scene, 0), Some(6));
}

#[test]
fn offsets_committed_to_a_group_that_was_emptied_long_ago_are_kept() {
    let mut scene = Scene::new();
    let member = scene.stable(1).remove(0);
    scene.commit(member.clone(), vec![offset(0, 5)]);
    assert_eq!(scene.leave(&member.member_id, None), Ok(()));
    scene.wait(RETENTION - OFFSETS_RETENTION_CHECK_INTERVAL);
    scene.commit(simple_consumer(), vec![offset(1, 6)]);
    scene.wait(OFFSETS_RETENTION_CHECK_INTERVAL * 2);
    assert_eq!(
        (committed(&scene, 0), committed(&scene, 1)),
        (None, Some(6))
    );
}

#[test]
fn a_group_without_offsets_is_kept_for_assigned_ids() {
    let mut scene = Scene::new();
    let member = scene.stable(1).remove(0);
    assert_eq!(scene.leave(&member.member_id, None), Ok(()));
    let mut request = new_member();
    request.version = 4;
    request.session_timeout = OFFSETS_RETENTION_CHECK_INTERVAL * 2;
    let token = scene.join(request.clone());
    request.member_id = scene.rejected(token).1;
    scene.wait(OFFSETS_RETENTION_CHECK_INTERVAL);
    let join = scene.join(request);
    scene.wait(DELAY);
    assert_eq!(scene.joined(join).generation, 3);
}

#[test]
fn the_tombstone_of_a_group_keeps_offsets() {
    let mut scene = Scene::new();
    scene.commit(simple_consumer(), vec![offset(0, 5)]);
    scene.log.push(CoordinatorRecord::Group {
        group_id: GROUP.into(),
        value: None,
    });
    scene.restart();
    assert_eq!(committed(&scene, 0), Some(5));
}

#[test]
fn offsets_beyond_the_end_of_their_log_are_lowered_for_good() {
    let mut scene = Scene::new();
    let mut elsewhere = offset(0, 30);
    elsewhere.topic = "gone".to_owned();
    let offsets = vec![offset(0, 20), offset(1, 7), offset(2, 9), elsewhere];
    scene.commit(simple_consumer(), offsets);
    let committed_at = time(scene.now).unix_ms;
    scene.wait(Duration::from_secs(1));
    scene.restart();
    scene.disk = Disk::Held;
    let end_of = |topic: &str, partition: i32| match (topic, partition) {
        ("t", 0) => Some(15),
        ("t", 1) => Some(7),
        ("t", 2) => Some(0),
        _ => None,
    };
    let now = time(scene.now);
    let lowered = scene.coordinator.lower_offsets(now, end_of);
    scene.collect();
    let expected = LoweredOffsets {
        group_id: GROUP.into(),
        topic: "t".to_owned(),
        partitions: 2,
        records: 14,
    };
    assert_eq!(lowered, [expected]);
    // One record in each.
    assert_eq!(scene.writes.len(), 2);
    while !scene.writes.is_empty() {
        assert_eq!(scene.writes[0].1.len(), 1);
        scene.write_next(Ok(()));
    }
    for _ in 0..2 {
        let there = [0, 1, 2].map(|partition| committed(&scene, partition));
        assert_eq!(there, [Some(15), Some(7), Some(0)]);
        let elsewhere = scene.coordinator.committed(GROUP, "gone", 0).unwrap();
        assert_eq!(elsewhere.offset, 30);
        let first = scene.coordinator.committed(GROUP, "t", 0).unwrap();
        assert_eq!((first.metadata.as_str(), first.leader_epoch), ("note", 0));
        assert_eq!(first.commit_timestamp_ms, committed_at);
        scene.restart();
    }
    assert_eq!(scene.coordinator.lower_offsets(now, end_of), []);
    assert_eq!(scene.coordinator.effects(), []);
}
