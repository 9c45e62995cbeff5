//! Groups and offsets that an administrator lists, describes and removes.

use super::*;
use crate::group::GROUP_STATES;

/// The subscription of a consumer to the topics `t` and `u`.
const SUBSCRIPTION: &[u8] = b"\0\0\0\0\0\x02\0\x01t\0\x01u\xff\xff\xff\xff";

fn state(scene: &Scene) -> Option<&'static str> {
    let group = scene.coordinator.describe(GROUP);
    let listed = scene.coordinator.list().next().map(|(_, _, state)| state);
    assert_eq!(group.as_ref().map(|group| group.state), listed);
    assert!(listed.is_none_or(|state| GROUP_STATES.contains(&state)));
    listed
}

/// Brings a member with this subscription to a generation.
fn subscribed(scene: &mut Scene, kind: &str, subscription: &[u8]) -> MemberIdentity {
    let request = JoinRequest {
        protocol_type: kind.to_owned(),
        protocols: vec![protocol("range", subscription)],
        ..new_member()
    };
    let join = scene.join(request);
    scene.wait(DELAY);
    let member = identity(&scene.joined(join));
    let mut request = sync(&member);
    request.protocol_type = Some(kind.to_owned());
    request.assignments = vec![(member.member_id.clone(), opaque(b"work"))];
    let synced = scene.sync(request);
    assert_eq!(scene.synced(synced), Ok(b"work".to_vec()));
    member
}

#[test]
fn a_description_has_the_state_and_the_members() {
    let mut scene = Scene::new();
    assert_eq!(state(&scene), None);
    let join = scene.join(new_member());
    assert_eq!(state(&scene), Some("PreparingRebalance"));
    let described = scene.coordinator.describe(GROUP).unwrap();
    assert_eq!((&*described.protocol, described.members.len()), ("", 1));
    assert!(described.members[0].subscription.is_empty());
    scene.wait(DELAY);
    assert_eq!(state(&scene), Some("CompletingRebalance"));
    let members = scene.settle(&[join]);
    let described = scene.coordinator.describe(GROUP).unwrap();
    assert_eq!(state(&scene), Some("Stable"));
    assert_eq!(
        (&*described.protocol_type, &*described.protocol),
        ("consumer", "range")
    );
    let [member] = &described.members[..] else {
        panic!("{described:?}");
    };
    assert_eq!(
        (&*member.client_id, &*member.client_host),
        ("client", "/127.0.0.1")
    );
    assert_eq!(
        (&*member.subscription, &*member.assignment),
        (&b"topics"[..], &[0][..])
    );
    assert_eq!(scene.leave(&members[0].member_id, None), Ok(()));
    assert_eq!(state(&scene), Some("Empty"));
}

#[test]
fn a_group_is_deleted_for_good_unless_it_has_members() {
    let mut scene = Scene::new();
    let delete = scene.delete();
    assert_eq!(scene.removed(delete), Err(GroupError::GroupIdNotFound));
    let member = scene.stable(1).remove(0);
    let commit = scene.commit(member.clone(), vec![offset(0, 1), offset(1, 2)]);
    assert_eq!(scene.committed(commit), [None, None]);
    let delete = scene.delete();
    assert_eq!(scene.removed(delete), Err(GroupError::NonEmptyGroup));
    assert_eq!(scene.leave(&member.member_id, None), Ok(()));
    scene.disk = Disk::Held;
    let delete = scene.delete();
    assert!(scene.waits(delete), "until it is written");
    assert_eq!(state(&scene), None);
    scene.write_next(Ok(()));
    assert_eq!(scene.removed(delete), Ok(Vec::new()));
    scene.restart();
    assert_eq!(state(&scene), None);
    assert_eq!(scene.coordinator.all_offsets().count(), 0);
}

#[test]
fn commits_that_are_being_written_go_with_their_group_and_are_answered() {
    let mut scene = Scene::new();
    scene.disk = Disk::Held;
    let commit = scene.commit(simple_consumer(), vec![offset(0, 1)]);
    let delete = scene.delete();
    while !scene.writes.is_empty() {
        scene.write_next(Ok(()));
    }
    assert_eq!(scene.committed(commit), [None]);
    assert_eq!(scene.removed(delete), Ok(Vec::new()));
    assert_eq!(state(&scene), None);
    scene.restart();
    assert_eq!(scene.coordinator.all_offsets().count(), 0);
}

#[test]
fn a_removal_that_is_not_written_fails_and_comes_back_with_a_restart() {
    let mut scene = Scene::new();
    scene.commit(simple_consumer(), vec![offset(0, 1)]);
    scene.disk = Disk::Held;
    let delete = scene.delete();
    scene.write_next(Err(WriteError::Unavailable));
    let failed = Err(GroupError::CoordinatorNotAvailable);
    assert_eq!(scene.removed(delete), failed);
    scene.restart();
    assert_eq!(scene.coordinator.all_offsets().count(), 1);
}

#[test]
fn a_removal_of_many_offsets_takes_several_writes_and_the_first_failure_counts() {
    const OFFSETS: i32 = 4000;
    let mut scene = Scene::new();
    let offsets = (0..OFFSETS).map(|partition| offset(partition, 1));
    scene.commit(simple_consumer(), offsets.collect());
    scene.disk = Disk::Held;
    let delete = scene.delete();
    let writes = scene.writes.len();
    assert!(writes > 1, "{writes}");
    scene.write_next(Err(WriteError::Storage));
    while !scene.writes.is_empty() {
        assert!(scene.waits(delete));
        scene.write_next(Ok(()));
    }
    assert_eq!(scene.removed(delete), Err(GroupError::NotCoordinator));
}

#[test]
fn offsets_of_topics_without_subscribers_are_removed() {
    let mut scene = Scene::new();
    let delete = scene.delete_offsets("t", &[0]);
    assert_eq!(scene.removed(delete), Err(GroupError::GroupIdNotFound));
    scene.commit(simple_consumer(), vec![offset(0, 1), offset(1, 2)]);
    let delete = scene.delete_offsets("t", &[0, 7]);
    assert_eq!(scene.removed(delete), Ok(Vec::new()));
    assert_eq!(scene.coordinator.all_offsets().count(), 1);

    let member = subscribed(&mut scene, "consumer", SUBSCRIPTION);
    let delete = scene.delete_offsets("t", &[1]);
    assert_eq!(scene.removed(delete), Ok(vec!["t".to_owned()]));
    let mut other = offset(0, 9);
    other.topic = "v".to_owned();
    scene.commit(member.clone(), vec![other]);
    let delete = scene.delete_offsets("v", &[0]);
    assert_eq!(scene.removed(delete), Ok(Vec::new()));
    assert_eq!(scene.coordinator.all_offsets().count(), 1);

    assert_eq!(scene.leave(&member.member_id, None), Ok(()));
    let delete = scene.delete_offsets("t", &[1]);
    assert_eq!(scene.removed(delete), Ok(Vec::new()));
    scene.restart();
    assert_eq!(scene.coordinator.all_offsets().count(), 0);
}

#[test]
fn offsets_stay_while_the_subscriptions_are_unknown() {
    let mut scene = Scene::new();
    scene.commit(simple_consumer(), vec![offset(0, 1)]);
    let member = subscribed(&mut scene, "consumer", b"?");
    let delete = scene.delete_offsets("t", &[0]);
    assert_eq!(scene.removed(delete), Ok(vec!["t".to_owned()]));
    assert_eq!(scene.leave(&member.member_id, None), Ok(()));
    subscribed(&mut scene, "connect", SUBSCRIPTION);
    let delete = scene.delete_offsets("t", &[0]);
    assert_eq!(scene.removed(delete), Err(GroupError::NonEmptyGroup));
}
