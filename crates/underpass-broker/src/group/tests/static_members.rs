//! Static members (KIP-345, KIP-814).

use super::*;

fn static_member(version: i16) -> JoinRequest {
    JoinRequest {
        version,
        group_instance_id: Some("alpha".to_owned()),
        ..new_member()
    }
}

/// A stable group of a static leader and a dynamic follower.
fn stable_group(scene: &mut Scene) -> Vec<MemberIdentity> {
    let joins = [scene.join(static_member(5)), scene.join(new_member())];
    scene.wait(DELAY * 2);
    let mut members = scene.settle(&joins);
    assert!(members[0].member_id.starts_with("alpha-"));
    members[0].group_instance_id = Some("alpha".to_owned());
    members
}

#[test]
fn a_restarted_static_member_keeps_its_assignment_without_a_rebalance() {
    let mut scene = Scene::new();
    let members = stable_group(&mut scene);
    let token = scene.join(static_member(5));
    let joined = scene.joined(token);
    assert_eq!(joined.generation, 1);
    assert_ne!(joined.member_id, members[0].member_id);
    // It must not compute an assignment.
    assert_eq!(joined.leader, members[0].member_id);
    assert_eq!(joined.members, []);

    let mut replaced = identity(&joined);
    replaced.group_instance_id = Some("alpha".to_owned());
    let token = scene.sync(sync(&replaced));
    assert_eq!(scene.synced(token), Ok(vec![0]));
    assert_eq!(scene.heartbeat(&members[1]), Ok(()));
    assert_eq!(
        scene.heartbeat(&members[0]),
        Err(GroupError::FencedInstanceId)
    );
}

#[test]
fn since_version_9_a_restarted_leader_is_asked_to_skip_the_assignment() {
    let mut scene = Scene::new();
    stable_group(&mut scene);
    let token = scene.join(static_member(9));
    let joined = scene.joined(token);
    assert!(joined.skip_assignment);
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.members.len(), 2);
}

#[test]
fn a_replacement_is_answered_when_written_and_survives_a_restart() {
    let mut scene = Scene::new();
    let members = stable_group(&mut scene);
    scene.disk = Disk::Held;
    let token = scene.join(static_member(5));
    assert!(scene.waits(token));
    scene.write_next(Ok(()));
    let mut replaced = identity(&scene.joined(token));
    replaced.group_instance_id = Some("alpha".to_owned());
    scene.restart();
    assert_eq!(scene.heartbeat(&replaced), Ok(()));
    assert_eq!(
        scene.heartbeat(&members[0]),
        Err(GroupError::FencedInstanceId)
    );
}

#[test]
fn a_replacement_that_cannot_be_written_is_rejected() {
    let mut scene = Scene::new();
    stable_group(&mut scene);
    scene.disk = Disk::Held;
    let token = scene.join(static_member(5));
    scene.write_next(Err(WriteError::Storage));
    assert_eq!(scene.rejected(token).0, GroupError::NotCoordinator);
}

#[test]
fn a_replacement_that_is_written_too_late_joins_again() {
    let mut scene = Scene::new();
    let members = stable_group(&mut scene);
    scene.disk = Disk::Held;
    let token = scene.join(static_member(5));
    scene.join(new_member());
    scene.write_next(Ok(()));
    assert_eq!(scene.rejected(token).0, GroupError::RebalanceInProgress);
    assert_eq!(scene.leave("", Some("alpha")), Ok(()));
    scene.join(known_member(&members[1]));
    let token = scene.join(static_member(5));
    assert!(scene.waits(token), "the instance id is free again");
}

#[test]
fn a_replacement_with_another_protocol_causes_a_rebalance() {
    let mut scene = Scene::new();
    let both = |mut request: JoinRequest, names: [&str; 2]| {
        request.protocols = names.map(|name| protocol(name, b"")).to_vec();
        request
    };
    let first = scene.join(both(static_member(5), ["range", "sticky"]));
    scene.wait(DELAY);
    scene.settle(&[first]);
    let token = scene.join(both(static_member(5), ["sticky", "range"]));
    let joined = scene.joined(token);
    assert_eq!((joined.generation, joined.protocol.as_str()), (2, "sticky"));
}

#[test]
fn a_second_instance_fences_the_first_while_it_waits() {
    let mut scene = Scene::new();
    let first = scene.join(static_member(5));
    let second = scene.join(static_member(5));
    assert_eq!(scene.rejected(first).0, GroupError::FencedInstanceId);
    scene.wait(DELAY * 2);
    assert_eq!(scene.settle(&[second]).len(), 1);

    let mut scene = Scene::new();
    let (first, other) = (scene.join(static_member(5)), scene.join(new_member()));
    scene.wait(DELAY * 2);
    let mut members = [first, other].map(|join| identity(&scene.joined(join)));
    members.sort_by_key(|member| !member.member_id.starts_with("alpha-"));
    // The leader of this group is the first that joined; only a follower's request waits.
    let mut scene_sync = sync(&members[0]);
    scene_sync.member.group_instance_id = Some("alpha".to_owned());
    scene.disk = Disk::Held;
    let waiting = scene.sync(scene_sync);
    let second = scene.join(static_member(5));
    assert_eq!(scene.synced(waiting), Err(GroupError::FencedInstanceId));
    assert!(scene.waits(second));
}

#[test]
fn a_static_member_that_is_silent_stays_until_its_session_ends() {
    let mut scene = Scene::new();
    let mut long = static_member(5);
    long.session_timeout = REBALANCE * 4;
    let joins = [scene.join(long), scene.join(new_member())];
    scene.wait(DELAY * 2);
    let members = scene.settle(&joins);
    let again = scene.join(JoinRequest {
        protocols: vec![protocol("range", b"changed")],
        ..known_member(&members[1])
    });
    scene.wait(REBALANCE);
    let joined = scene.joined(again);
    assert_eq!(
        joined.leader, joined.member_id,
        "the silent leader is replaced"
    );
    assert_eq!(joined.members.len(), 2, "and stays a member");
}

#[test]
fn a_group_of_silent_static_members_waits_for_their_sessions() {
    let mut scene = Scene::new();
    let mut long = static_member(5);
    long.session_timeout = REBALANCE * 4;
    let joins = [scene.join(long), scene.join(new_member())];
    scene.wait(DELAY * 2);
    let members = scene.settle(&joins);
    assert_eq!(scene.leave(&members[1].member_id, None), Ok(()));
    scene.wait(REBALANCE * 2);
    let mut member = members[0].clone();
    member.group_instance_id = Some("alpha".to_owned());
    let heartbeat = scene.heartbeat(&member);
    assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));
    scene.wait(REBALANCE * 4);
    assert_eq!(scene.heartbeat(&member), Err(GroupError::UnknownMemberId));
}

#[test]
fn an_administrator_removes_a_static_member_by_its_name() {
    let mut scene = Scene::new();
    let members = stable_group(&mut scene);
    let fenced = scene.leave(&members[1].member_id, Some("alpha"));
    assert_eq!(fenced, Err(GroupError::FencedInstanceId));
    assert_eq!(
        scene.leave("", Some("beta")),
        Err(GroupError::UnknownMemberId)
    );
    assert_eq!(scene.leave("", Some("alpha")), Ok(()));
    assert_eq!(
        scene.heartbeat(&members[0]),
        Err(GroupError::UnknownMemberId)
    );
}

#[test]
fn an_instance_id_of_another_member_is_fenced() {
    let mut scene = Scene::new();
    let mut members = stable_group(&mut scene);
    members[1].group_instance_id = Some("alpha".to_owned());
    let fenced = Err(GroupError::FencedInstanceId);
    assert_eq!(scene.heartbeat(&members[1]), fenced);
    let token = scene.sync(sync(&members[1]));
    assert_eq!(scene.synced(token), Err(GroupError::FencedInstanceId));
    let token = scene.commit(members[1].clone(), vec![offset(0, 1)]);
    assert_eq!(scene.committed(token), [fenced.err()]);
    let token = scene.join(known_member(&members[1]));
    assert_eq!(scene.rejected(token).0, GroupError::FencedInstanceId);
}

#[test]
fn a_replaced_member_leaves_no_time_to_sync_behind() {
    let mut scene = Scene::new();
    let joins = [scene.join(new_member()), scene.join(static_member(5))];
    scene.wait(DELAY * 2);
    let mut joined = joins.map(|join| scene.joined(join));
    joined.sort_by_key(|joined| joined.members.is_empty());
    assert!(
        joined[1].member_id.starts_with("alpha-"),
        "the first that joins leads"
    );
    let leader = identity(&joined[0]);
    scene.sync(sync(&leader));
    let token = scene.join(static_member(5));
    let mut replaced = identity(&scene.joined(token));
    replaced.group_instance_id = Some("alpha".to_owned());
    scene.sync(sync(&replaced));
    for _ in 0..8 {
        scene.wait(SESSION / 2);
        assert_eq!(scene.heartbeat(&leader), Ok(()));
        assert_eq!(scene.heartbeat(&replaced), Ok(()));
    }
}

#[test]
fn a_rebalance_timeout_of_zero_is_raised() {
    let mut scene = Scene::new();
    let mut request = static_member(5);
    request.rebalance_timeout = Duration::ZERO;
    let mut other = new_member();
    other.rebalance_timeout = Duration::ZERO;
    let joins = [scene.join(request), scene.join(other)];
    scene.wait(DELAY);
    let members = scene.settle(&joins);
    assert_eq!(scene.leave(&members[1].member_id, None), Ok(()));
    scene.wait(SESSION / 2);
    let mut member = members[0].clone();
    member.group_instance_id = Some("alpha".to_owned());
    let heartbeat = scene.heartbeat(&member);
    assert_eq!(heartbeat, Err(GroupError::RebalanceInProgress));
}
