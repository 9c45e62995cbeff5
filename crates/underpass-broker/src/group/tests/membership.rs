//! Joining, synchronizing, heartbeats, leaving.

use std::time::Duration;

use super::*;
use crate::group::CommittedOffset;
use crate::group::{GROUP_MEMBERS_MAX, GROUPS_MAX, MEMBERS_MAX, NEW_MEMBER_JOIN_TIMEOUT};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn one_member_waits_for_the_initial_delay_and_leads() {
    let mut scene = Scene::new();
    let join = scene.join(new_member());
    scene.wait(DELAY - MILLISECOND);
    assert!(scene.waits(join));
    scene.wait(MILLISECOND);
    let joined = scene.joined(join);
    assert_eq!(joined.generation, 1);
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.member_id, "client-1-0001");
    assert_eq!(joined.protocol, "range");
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.members[0].metadata, opaque(b"topics"));
    assert!(!joined.skip_assignment);
}

#[test]
fn two_members_get_the_assignments_of_the_leader() {
    let mut scene = Scene::new();
    let (first, second) = (scene.join(new_member()), scene.join(new_member()));
    scene.wait(DELAY + DELAY);
    let (leader, follower) = (scene.joined(first), scene.joined(second));
    assert_eq!(leader.members.len(), 2);
    assert_eq!(follower.members, []);
    assert_eq!(follower.leader, leader.member_id);

    let waiting = scene.sync(sync(&identity(&follower)));
    assert!(scene.waits(waiting));
    let mut request = sync(&identity(&leader));
    let unknown = ("nobody".to_owned(), opaque(b"x"));
    request.assignments = vec![(follower.member_id, opaque(b"all")), unknown];
    let leading = scene.sync(request);
    assert_eq!(scene.synced(waiting), Ok(b"all".to_vec()));
    assert_eq!(scene.synced(leading), Ok(Vec::new()));
}

#[test]
fn assignments_are_answered_only_when_written() {
    let mut scene = Scene::new();
    let join = scene.join(new_member());
    scene.wait(DELAY);
    let member = identity(&scene.joined(join));
    scene.disk = Disk::Held;
    let token = scene.sync(sync(&member));
    assert!(scene.waits(token));
    scene.write_next(Ok(()));
    assert_eq!(scene.synced(token), Ok(Vec::new()));
}

#[test]
fn a_failed_write_of_the_assignment_is_reported_and_the_group_rebalances() {
    let mut scene = Scene::new();
    let join = scene.join(new_member());
    scene.wait(DELAY);
    let member = identity(&scene.joined(join));
    scene.disk = Disk::Held;
    let token = scene.sync(sync(&member));
    scene.write_next(Err(WriteError::Unavailable));
    let error = GroupError::CoordinatorNotAvailable;
    assert_eq!(scene.synced(token), Err(error));
    let heartbeat = scene.heartbeat(&member);
    assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));

    scene.disk = Disk::Prompt;
    let again = scene.join(known_member(&member));
    assert_eq!(scene.settle(&[again])[0].generation, 2);
}

#[test]
fn a_write_that_ends_after_the_next_rebalance_has_no_effect() {
    let mut scene = Scene::new();
    let join = scene.join(new_member());
    scene.wait(DELAY);
    let member = identity(&scene.joined(join));
    scene.disk = Disk::Held;
    let token = scene.sync(sync(&member));
    let newcomer = scene.join(new_member());
    assert_eq!(scene.synced(token), Err(GroupError::RebalanceInProgress));
    let again = scene.join(known_member(&member));
    let (newcomer, again) = (scene.joined(newcomer), scene.joined(again));
    assert_eq!((newcomer.generation, again.generation), (2, 2));
    scene.write_next(Ok(()));
    let waiting = scene.sync(sync(&identity(&newcomer)));
    assert!(
        scene.waits(waiting),
        "the old assignment is not that of generation 2"
    );
}

#[test]
fn the_initial_delay_grows_with_arrivals_up_to_the_rebalance_timeout() {
    let mut scene = Scene::new();
    let short = Duration::from_secs(8);
    let mut request = new_member();
    request.rebalance_timeout = short;
    let mut joins = vec![scene.join(request.clone())];
    for _ in 0..7 {
        scene.wait(SECOND);
        joins.push(scene.join(request.clone()));
    }
    scene.wait(SECOND - MILLISECOND);
    assert!(joins.iter().all(|join| scene.waits(*join)));
    scene.wait(MILLISECOND);
    assert_eq!(scene.settle(&joins).len(), 8);
}

#[test]
fn a_group_that_was_emptied_is_delayed_again() {
    let mut scene = Scene::new();
    let members = scene.stable(1);
    assert_eq!(scene.leave(&members[0].member_id, None), Ok(()));
    let join = scene.join(new_member());
    scene.wait(DELAY - MILLISECOND);
    assert!(scene.waits(join));
    scene.wait(MILLISECOND);
    // Generation 2 was the empty one.
    assert_eq!(scene.joined(join).generation, 3);
}

#[test]
fn since_version_4_a_member_joins_with_the_id_it_was_assigned() {
    let mut scene = Scene::new();
    let mut request = new_member();
    request.version = 4;
    let token = scene.join(request.clone());
    let (error, member_id) = scene.rejected(token);
    assert_eq!(error.code(), 79);
    request.member_id = member_id.clone();
    let join = scene.join(request);
    scene.wait(DELAY);
    assert_eq!(scene.joined(join).member_id, member_id);
}

#[test]
fn an_assigned_id_that_is_not_used_expires_with_the_session() {
    let mut scene = Scene::new();
    let mut request = new_member();
    request.version = 9;
    let token = scene.join(request.clone());
    request.member_id = scene.rejected(token).1;
    scene.wait(SESSION);
    let token = scene.join(request);
    assert_eq!(scene.rejected(token).0, GroupError::UnknownMemberId);
    assert!(
        scene.coordinator.group_ids().is_empty(),
        "the group is left"
    );
    assert_eq!(scene.log, []);
}

#[test]
fn an_assigned_id_is_not_that_of_a_static_member() {
    let mut scene = Scene::new();
    let mut request = new_member();
    request.version = 5;
    let token = scene.join(request.clone());
    request.member_id = scene.rejected(token).1;
    request.group_instance_id = Some("alpha".to_owned());
    let token = scene.join(request);
    assert_eq!(scene.rejected(token).0, GroupError::UnknownMemberId);
}

#[test]
fn a_rebalance_waits_for_assigned_ids() {
    let mut scene = Scene::new();
    let members = scene.stable(1);
    let mut request = new_member();
    request.version = 4;
    let token = scene.join(request.clone());
    request.member_id = scene.rejected(token).1;
    assert_eq!(scene.heartbeat(&members[0]), Ok(()));
    let leader = scene.join(known_member(&members[0]));
    assert!(scene.waits(leader));
    let newcomer = scene.join(request);
    assert_eq!(scene.settle(&[leader, newcomer]).len(), 2);
}

#[test]
fn invalid_requests_are_rejected() {
    let mut scene = Scene::new();
    let mut reject = |change: fn(&mut JoinRequest)| {
        let mut request = new_member();
        change(&mut request);
        let token = scene.join(request);
        scene.rejected(token).0.code()
    };
    assert_eq!(reject(|request| request.group_id.clear()), 24);
    assert_eq!(
        reject(|request| request.session_timeout = SECOND * 6 - MILLISECOND),
        26
    );
    assert_eq!(
        reject(|request| request.session_timeout = SECOND * 1801),
        26
    );
    assert_eq!(
        reject(|request| request.member_id = "unknown".to_owned()),
        25
    );
    assert_eq!(reject(|request| request.protocol_type.clear()), 23);
    assert_eq!(reject(|request| request.protocols.clear()), 23);
    assert!(scene.coordinator.group_ids().is_empty());
}

#[test]
fn protocols_have_to_be_common_to_all_members() {
    let mut scene = Scene::new();
    scene.stable(1);
    let mut other = new_member();
    other.protocols = vec![protocol("sticky", b"")];
    let token = scene.join(other);
    assert_eq!(
        scene.rejected(token).0,
        GroupError::InconsistentGroupProtocol
    );
    let mut other = new_member();
    other.protocol_type = "connect".to_owned();
    let token = scene.join(other);
    assert_eq!(
        scene.rejected(token).0,
        GroupError::InconsistentGroupProtocol
    );
}

#[test]
fn the_protocol_most_members_prefer_is_chosen_among_the_common_ones() {
    let mut scene = Scene::new();
    let mut join = |names: &[&str]| {
        let mut request = new_member();
        let protocols = names.iter().map(|name| protocol(name, name.as_bytes()));
        request.protocols = protocols.collect();
        scene.join(request)
    };
    let leader = join(&["modern", "range", "sticky"]);
    join(&["sticky", "range"]);
    join(&["sticky", "range", "modern"]);
    scene.wait(DELAY * 2);
    let joined = scene.joined(leader);
    assert_eq!(joined.protocol, "sticky");
    assert!(
        joined
            .members
            .iter()
            .all(|member| *member.metadata == *b"sticky")
    );
}

#[test]
fn a_member_that_leaves_causes_a_rebalance() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    assert_eq!(scene.leave(&members[1].member_id, None), Ok(()));
    let error = GroupError::UnknownMemberId;
    assert_eq!(scene.leave(&members[1].member_id, None), Err(error));
    assert_eq!(scene.heartbeat(&members[1]), Err(error));
    let heartbeat = scene.heartbeat(&members[0]);
    assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));
    let join = scene.join(known_member(&members[0]));
    let settled = scene.settle(&[join]);
    assert_eq!(settled[0].generation, 2);
}

#[test]
fn a_leader_that_leaves_is_replaced() {
    let mut scene = Scene::new();
    let members = scene.stable(3);
    assert_eq!(scene.leave(&members[0].member_id, None), Ok(()));
    let joins = [&members[1], &members[2]].map(|member| scene.join(known_member(member)));
    assert_eq!(scene.settle(&joins).len(), 2);
}

#[test]
fn the_last_member_leaves_an_empty_group() {
    let mut scene = Scene::new();
    let members = scene.stable(1);
    assert_eq!(scene.leave(&members[0].member_id, None), Ok(()));
    let Some(CoordinatorRecord::Group {
        value: Some(stored),
        ..
    }) = scene.log.last()
    else {
        panic!("no group: {:?}", scene.log);
    };
    assert_eq!((stored.generation, stored.members.len()), (2, 0));
    assert_eq!((&stored.protocol, &stored.leader), (&None, &None));
}

#[test]
fn a_crashed_member_is_removed_after_the_session_timeout() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    for _ in 0..9 {
        scene.wait(SECOND);
        assert_eq!(scene.heartbeat(&members[0]), Ok(()));
    }
    scene.wait(SECOND);
    let heartbeat = scene.heartbeat(&members[0]);
    assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));
    assert_eq!(
        scene.heartbeat(&members[1]),
        Err(GroupError::UnknownMemberId)
    );
}

#[test]
fn heartbeats_keep_members_for_hours() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    for _ in 0..2000 {
        scene.wait(SESSION - SECOND);
        for member in &members {
            assert_eq!(scene.heartbeat(member), Ok(()));
        }
    }
}

#[test]
fn a_slow_member_is_removed_at_the_rebalance_timeout() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    let newcomer = scene.join(new_member());
    let leader = scene.join(known_member(&members[0]));
    for _ in 0..29 {
        scene.wait(SECOND);
        let heartbeat = scene.heartbeat(&members[1]);
        assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));
    }
    assert!(scene.waits(newcomer));
    scene.wait(SECOND);
    assert_eq!(scene.settle(&[newcomer, leader]).len(), 2);
    assert_eq!(
        scene.heartbeat(&members[1]),
        Err(GroupError::UnknownMemberId)
    );
}

#[test]
fn members_that_wait_for_the_others_are_not_removed() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    let waiting = scene.join(known_member(&members[0]));
    for _ in 0..4 {
        scene.wait(SESSION / 2);
        let _ = scene.heartbeat(&members[1]);
    }
    assert!(scene.waits(waiting), "two session timeouts, but no answer");
    let last = scene.join(known_member(&members[1]));
    assert_eq!(scene.settle(&[waiting, last]).len(), 2);
}

#[test]
fn a_heartbeat_while_waiting_for_the_assignment_begins_no_session() {
    let mut scene = Scene::new();
    let joins = [scene.join(new_member()), scene.join(new_member())];
    scene.wait(DELAY * 2);
    let [leader, follower] = joins.map(|join| identity(&scene.joined(join)));
    let waiting = scene.sync(sync(&follower));
    assert_eq!(scene.heartbeat(&follower), Ok(()));
    for _ in 0..15 {
        scene.wait(SECOND);
        assert_eq!(scene.heartbeat(&leader), Ok(()));
    }
    assert!(scene.waits(waiting));
}

#[test]
fn a_rebalance_does_not_wait_for_an_assigned_id_that_leaves() {
    let mut scene = Scene::new();
    let members = scene.stable(1);
    let mut request = new_member();
    request.version = 4;
    let token = scene.join(request);
    let assigned = scene.rejected(token).1;
    let leader = scene.join(known_member(&members[0]));
    assert!(scene.waits(leader));
    assert_eq!(scene.leave(&assigned, None), Ok(()));
    assert_eq!(scene.settle(&[leader]).len(), 1);
}

#[test]
fn a_new_member_waits_for_five_minutes_at_most() {
    let mut scene = Scene::new();
    let mut request = new_member();
    request.rebalance_timeout = NEW_MEMBER_JOIN_TIMEOUT * 2;
    let join = scene.join(request);
    scene.wait(DELAY);
    let members = scene.settle(&[join]);
    let newcomer = scene.join(new_member());
    for _ in 0..60 {
        assert!(scene.waits(newcomer));
        let _ = scene.heartbeat(&members[0]);
        scene.wait(SECOND * 5);
    }
    assert_eq!(scene.rejected(newcomer).0, GroupError::UnknownMemberId);
}

#[test]
fn a_member_that_does_not_sync_is_removed() {
    let mut scene = Scene::new();
    let (first, second) = (scene.join(new_member()), scene.join(new_member()));
    scene.wait(DELAY * 2);
    let (leader, silent) = (
        identity(&scene.joined(first)),
        identity(&scene.joined(second)),
    );
    let token = scene.sync(sync(&leader));
    assert_eq!(scene.synced(token), Ok(Vec::new()));
    for _ in 0..29 {
        scene.wait(SECOND);
        assert_eq!(scene.heartbeat(&silent), Ok(()));
        assert_eq!(scene.heartbeat(&leader), Ok(()));
    }
    scene.wait(SECOND);
    assert_eq!(scene.heartbeat(&silent), Err(GroupError::UnknownMemberId));
    let heartbeat = scene.heartbeat(&leader);
    assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_rebalance_ends_the_time_to_sync() {
    let mut scene = Scene::new();
    let joins = [scene.join(new_member()), scene.join(new_member())];
    scene.wait(DELAY * 2);
    let [leader, late] = joins.map(|join| identity(&scene.joined(join)));
    scene.sync(sync(&leader));
    for second in 0..34 {
        scene.wait(SECOND);
        match second {
            5 => drop(scene.join(new_member())),
            0..5 => assert_eq!(scene.heartbeat(&late), Ok(())),
            _ => {
                let heartbeat = scene.heartbeat(&late);
                assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));
            }
        }
        let _ = scene.heartbeat(&leader);
    }
}

#[test]
fn a_member_that_joins_again_instead_of_waiting_for_the_assignment_is_not_removed() {
    let mut scene = Scene::new();
    let joins = [scene.join(new_member()), scene.join(new_member())];
    scene.wait(DELAY * 2);
    let [leader, follower] = joins.map(|join| identity(&scene.joined(join)));
    let waiting = scene.sync(sync(&follower));
    let mut request = known_member(&follower);
    request.protocols = vec![protocol("range", b"changed")];
    let join = scene.join(request);
    assert_eq!(scene.synced(waiting), Err(GroupError::RebalanceInProgress));
    for _ in 0..15 {
        scene.wait(SECOND);
        let _ = scene.heartbeat(&leader);
    }
    assert!(scene.waits(join));
    let leader = scene.join(known_member(&leader));
    assert_eq!(scene.settle(&[leader, join]).len(), 2);
}

#[test]
fn an_assignment_is_written_once_even_if_the_leader_repeats_it() {
    let mut scene = Scene::new();
    let join = scene.join(new_member());
    scene.wait(DELAY);
    let member = identity(&scene.joined(join));
    scene.disk = Disk::Held;
    let first = scene.sync(sync(&member));
    let second = scene.sync(sync(&member));
    assert_eq!(scene.synced(first), Err(GroupError::RebalanceInProgress));
    assert_eq!(scene.writes.len(), 1);
    scene.write_next(Ok(()));
    assert_eq!(scene.synced(second), Ok(Vec::new()));
}

#[test]
fn a_member_that_the_leader_leaves_out_loses_its_assignment() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    let joins = [&members[0], &members[1]].map(|member| scene.join(known_member(member)));
    scene.wait(SECOND);
    let members = [joins[0], joins[1]].map(|join| identity(&scene.joined(join)));
    scene.sync(sync(&members[0]));
    let token = scene.sync(sync(&members[1]));
    assert_eq!(scene.synced(token), Ok(Vec::new()));
}

#[test]
fn a_follower_that_joins_again_unchanged_stays_in_its_generation() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    let token = scene.join(known_member(&members[1]));
    let joined = scene.joined(token);
    assert_eq!((joined.generation, joined.members.len()), (1, 0));
    let token = scene.sync(sync(&members[1]));
    assert_eq!(scene.synced(token), Ok(vec![1]));
    assert_eq!(scene.heartbeat(&members[0]), Ok(()));
}

#[test]
fn a_follower_with_other_metadata_causes_a_rebalance() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    let mut request = known_member(&members[1]);
    request.protocols = vec![protocol("range", b"more topics")];
    let token = scene.join(request);
    assert!(scene.waits(token));
    let leader = scene.join(known_member(&members[0]));
    let joined = scene.joined(leader);
    let metadata = joined.members.iter().map(|member| member.metadata.to_vec());
    let metadata: Vec<_> = metadata.collect();
    assert_eq!(metadata, [b"topics".to_vec(), b"more topics".to_vec()]);
}

#[test]
fn a_leader_that_joins_again_causes_a_rebalance() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    let token = scene.join(known_member(&members[0]));
    assert!(scene.waits(token));
    let heartbeat = scene.heartbeat(&members[1]);
    assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_lost_answer_to_join_is_repeated_before_the_assignment() {
    let mut scene = Scene::new();
    let first = scene.join(new_member());
    scene.wait(DELAY);
    let joined = scene.joined(first);
    let again = scene.join(known_member(&identity(&joined)));
    assert_eq!(scene.joined(again), joined);
}

#[test]
fn a_repeated_request_replaces_the_one_that_waits() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    let first = scene.join(known_member(&members[0]));
    let second = scene.join(known_member(&members[0]));
    assert_eq!(scene.rejected(first).0, GroupError::RebalanceInProgress);
    let other = scene.join(known_member(&members[1]));
    let follower = identity(&scene.joined(other));
    scene.joined(second);
    let (first, second) = (scene.sync(sync(&follower)), scene.sync(sync(&follower)));
    assert_eq!(scene.synced(first), Err(GroupError::RebalanceInProgress));
    assert!(scene.waits(second));
}

#[test]
fn a_wrong_generation_or_protocol_is_refused() {
    let mut scene = Scene::new();
    let member = scene.stable(1).remove(0);
    let past = of_generation(&member, 0);
    assert_eq!(scene.heartbeat(&past), Err(GroupError::IllegalGeneration));
    let token = scene.sync(sync(&past));
    assert_eq!(scene.synced(token), Err(GroupError::IllegalGeneration));
    let mut request = sync(&member);
    request.protocol = Some("sticky".to_owned());
    let token = scene.sync(request);
    assert_eq!(
        scene.synced(token),
        Err(GroupError::InconsistentGroupProtocol)
    );
    let mut unknown = member;
    unknown.group_id = "unknown".to_owned();
    assert_eq!(scene.heartbeat(&unknown), Err(GroupError::UnknownMemberId));
    unknown.group_id.clear();
    assert_eq!(scene.heartbeat(&unknown), Err(GroupError::InvalidGroupId));
}

#[test]
fn a_leaving_member_gets_an_answer_to_what_it_waits_for() {
    let mut scene = Scene::new();
    let (first, second) = (scene.join(new_member()), scene.join(new_member()));
    scene.wait(DELAY * 2);
    let (leader, follower) = (
        identity(&scene.joined(first)),
        identity(&scene.joined(second)),
    );
    let waiting = scene.sync(sync(&follower));
    assert_eq!(scene.leave(&follower.member_id, None), Ok(()));
    assert_eq!(scene.synced(waiting), Err(GroupError::UnknownMemberId));
    let newcomer = scene.join(new_member());
    let waiting = scene.join(known_member(&leader));
    assert_eq!(scene.settle(&[newcomer, waiting]).len(), 2);
}

#[test]
fn a_restart_keeps_members_and_gives_them_a_fresh_session() {
    let mut scene = Scene::new();
    let members = scene.stable(2);
    scene.wait(SESSION - SECOND);
    scene.restart();
    scene.wait(SESSION - SECOND);
    assert_eq!(scene.heartbeat(&members[0]), Ok(()));
    let token = scene.sync(sync(&members[1]));
    assert_eq!(scene.synced(token), Ok(vec![1]));
    scene.wait(SECOND);
    let heartbeat = scene.heartbeat(&members[0]);
    assert_eq!(
        heartbeat,
        Err(GroupError::RebalanceInProgress),
        "one member is silent"
    );
    let join = scene.join(known_member(&members[0]));
    assert_eq!(scene.settle(&[join])[0].generation, 2);
}

#[test]
fn a_flood_of_new_members_is_bounded_and_expires() {
    let mut scene = Scene::new();
    let mut request = new_member();
    request.version = 4;
    for _ in 0..MEMBERS_MAX {
        scene.tokens += 1;
        let token = ReplyToken(scene.tokens);
        scene
            .coordinator
            .join(time(scene.now), token, request.clone());
        request.group_id = format!("flood-{}", scene.tokens % 10_000);
    }
    scene.coordinator.effects();
    let token = scene.join(request.clone());
    assert_eq!(scene.rejected(token).0, GroupError::GroupMaxSizeReached);
    scene.wait(SESSION);
    assert!(scene.coordinator.group_ids().is_empty());
    let token = scene.join(request);
    assert_eq!(scene.rejected(token).0, GroupError::MemberIdRequired);
}

#[test]
fn groups_are_bounded() {
    let mut scene = Scene::new();
    let records = (0..GROUPS_MAX).map(|number| CoordinatorRecord::Offset {
        group_id: format!("{number}").into(),
        topic: "t".to_owned(),
        partition: 0,
        value: Some(CommittedOffset {
            offset: 1,
            leader_epoch: 0,
            metadata: String::new(),
            commit_timestamp_ms: EPOCH_MS,
        }),
    });
    scene.coordinator.restore(time(scene.now), records);
    let mut request = new_member();
    let token = scene.join(request.clone());
    assert_eq!(scene.rejected(token).0, GroupError::CoordinatorNotAvailable);
    let token = scene.commit(simple_consumer(), vec![offset(0, 1)]);
    let error = GroupError::CoordinatorNotAvailable;
    assert_eq!(scene.committed(token), [Some(error)]);
    request.group_id = "7".to_owned();
    let join = scene.join(request);
    scene.wait(DELAY);
    assert_eq!(scene.joined(join).generation, 1);
}

#[test]
fn the_members_of_a_group_are_bounded() {
    let mut scene = Scene::new();
    let mut request = new_member();
    request.version = 4;
    for _ in 0..GROUP_MEMBERS_MAX {
        scene.join(request.clone());
    }
    let token = scene.join(request.clone());
    assert_eq!(scene.rejected(token).0, GroupError::GroupMaxSizeReached);
    request.group_id = "another".to_owned();
    let token = scene.join(request);
    assert_eq!(scene.rejected(token).0, GroupError::MemberIdRequired);
}

#[test]
fn the_metadata_of_all_members_is_bounded() {
    let mut scene = Scene::new();
    // The coordinator counts every reference; the test allocates it once.
    let metadata = opaque(&vec![0; 64 << 20]);
    let mut request = new_member();
    request.protocols[0].metadata = metadata;
    for _ in 0..3 {
        scene.join(request.clone());
    }
    let token = scene.join(request);
    assert_eq!(scene.rejected(token).0, GroupError::GroupMaxSizeReached);
    scene.join(new_member());
    scene.wait(DELAY * 3);
    assert_eq!(scene.answers.len(), 4);
}

#[test]
fn assignments_are_bounded() {
    let mut scene = Scene::new();
    let join = scene.join(new_member());
    scene.wait(DELAY);
    let member = identity(&scene.joined(join));
    let mut request = sync(&member);
    let half = opaque(&vec![0; 128 << 20]);
    let own = (member.member_id.clone(), half);
    request.assignments = vec![own.clone(), own.clone()];
    let token = scene.sync(request.clone());
    assert_eq!(scene.synced(token), Err(GroupError::GroupMaxSizeReached));

    // An assignment that cannot be written is forgotten.
    request.assignments = vec![own];
    scene.disk = Disk::Held;
    for generation in 1..=2 {
        request.member.generation = generation;
        let token = scene.sync(request.clone());
        scene.write_next(Err(WriteError::TooLarge));
        assert_eq!(scene.synced(token), Err(GroupError::UnknownServerError));
        scene.join(known_member(&member));
    }
}
