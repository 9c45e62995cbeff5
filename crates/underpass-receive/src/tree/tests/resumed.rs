//! Trees that are continued.

use super::*;
use crate::forks::UnforkedFolder;

fn area() -> (UnforkedFolder, Area) {
    let folder = UnforkedFolder::new();
    let area = open(folder.path());
    (folder, area)
}

#[test]
fn a_tree_is_continued_from_wherever_it_was_cut() {
    let members = everything();
    let whole = stream(&members);
    let (folder, area) = area();
    let mut cuts = 0;
    for end in (0..whole.len()).step_by(2999) {
        let mut tree = area.create_tree(hour(), FEW, settings()).unwrap();
        let id = tree.id().clone();
        tree.push(&whole[..end]).unwrap();
        tree.keep(Duration::from_secs(60)).unwrap();
        drop(tree);
        let mut tree = area
            .resume_tree(&id, SystemTime::now(), settings())
            .unwrap();
        let checkpoint = tree.record().unwrap().tree().unwrap().clone();
        cuts += u32::from(checkpoint.cut.is_some_and(|cut| cut.offset > 0));
        let left = rest(&members, tree.record().unwrap().tree().unwrap());
        assert!(left.len() <= whole.len() - end + 3072, "no content twice");
        tree.push(&left).unwrap();
        assert_eq!(tree.progress().0, members.len() as u64);
        tree.commit(&path("t"), TreeMerge::Refused).unwrap();
        assert_is(&folder.path().join("t"), &members);
        assert_eq!(partial_files(folder.path()), 0);
        // Also what is in folders that their owner may not write to.
        area.remove(&path("t"), None).unwrap();
    }
    assert!(cuts > 10, "cut within members {cuts} times");
}

#[test]
fn what_arrived_after_the_last_checkpoint_is_made_again() {
    let members = everything();
    let whole = stream(&members);
    for end in [3000, 9000, 200_000, whole.len()] {
        let (folder, area) = area();
        let mut tree = area.create_tree(hour(), FEW, settings()).unwrap();
        let id = tree.id().clone();
        tree.push(&whole[..2000]).unwrap();
        tree.keep(Duration::from_secs(60)).unwrap();
        let record = area.record(&id).unwrap();
        tree.push(&whole[2000..end]).unwrap();
        // As after a kill: the record is the former one.
        drop(tree);
        area.folder.write_record(&id, &record).unwrap();
        let mut tree = area
            .resume_tree(&id, SystemTime::now(), settings())
            .unwrap();
        let left = rest(&members, tree.record().unwrap().tree().unwrap());
        tree.push(&left).unwrap();
        tree.commit(&path("t"), TreeMerge::Refused).unwrap();
        assert_is(&folder.path().join("t"), &members);
    }
}

#[test]
fn a_file_that_the_source_has_no_longer_is_not_mixed_with_the_others() {
    let members = [file("a", b"a"), file("gone", b"old"), file("z", b"z")];
    let (folder, area) = area();
    let mut tree = area.create_tree(hour(), FEW, settings()).unwrap();
    let id = tree.id().clone();
    tree.push(&part(&members[0])).unwrap();
    tree.keep(Duration::from_secs(60)).unwrap();
    // Made after the last checkpoint of a process that is killed.
    tree.push(&part(&members[1])).unwrap();
    drop(tree);
    let mut tree = area
        .resume_tree(&id, SystemTime::now(), settings())
        .unwrap();
    tree.push(&stream(&members[2..])).unwrap();
    let error = tree.commit(&path("t"), TreeMerge::Refused).unwrap_err();
    assert!(matches!(error.fault, TreeFault::Refused(_)), "{error}");
    assert!(!folder.path().join("t").exists());
}

#[test]
fn another_member_than_the_one_that_was_cut_is_refused() {
    let members = vec![file("a", b"a"), file("b", &content(5000))];
    let (_folder, area) = area();
    let mut tree = area.create_tree(hour(), FEW, settings()).unwrap();
    let id = tree.id().clone();
    tree.push(&stream(&members)[..4096]).unwrap();
    tree.keep(Duration::from_secs(60)).unwrap();
    drop(tree);
    let mut tree = area
        .resume_tree(&id, SystemTime::now(), settings())
        .unwrap();
    let changed = vec![file("a", b"a"), file("b", &content(5001))];
    let left = rest(&changed, tree.record().unwrap().tree().unwrap());
    let error = tree.push(&left).unwrap_err();
    let fault = underpass_tar::TarFault::Changed;
    assert_eq!(error.fault, TreeFault::Stream { offset: 0, fault });
    assert_eq!(error.path, b"b");
}

#[test]
fn a_tree_is_resumed_by_one_process_and_swept_only_when_it_is_of_no_use() {
    let (folder, area) = area();
    let now = SystemTime::now();
    let mut tree = area.create_tree(hour(), ONE, settings()).unwrap();
    let second = area.create_tree(hour(), ONE, settings());
    assert_eq!(second.map(drop), Err(Error::TooMany));
    let id = tree.id().clone();
    let other = open(folder.path());
    let resume = || other.resume_tree(&id, now, settings()).map(drop);
    assert_eq!(resume(), Err(Error::Busy));
    let summary = other.sweep(now).unwrap();
    assert_eq!(
        (summary.kept, summary.removed),
        (0, 0),
        "it is being received"
    );
    tree.push(&stream(&everything())[..90_000]).unwrap();
    tree.keep(Duration::from_secs(60)).unwrap();
    drop(tree);
    let summary = other.sweep(now).unwrap();
    assert_eq!((summary.kept, summary.removed), (1, 0));
    assert_eq!(resume(), Ok(()));
    let later = now + Duration::from_secs(7200);
    let summary = other.sweep(later).unwrap();
    assert_eq!((summary.kept, summary.removed), (0, 1));
    assert_eq!(resume(), Err(Error::Gone));
    assert_eq!(partial_files(folder.path()), 0);

    let tree = area.begin_tree(settings()).unwrap();
    assert_eq!(
        other.sweep(later).unwrap().removed,
        0,
        "it is being received"
    );
    drop(tree);
    let tree = area.create_tree(hour(), ONE, settings()).unwrap();
    tree.discard().unwrap();
    assert_eq!(partial_files(folder.path()), 0);
}

#[test]
fn after_a_crash_of_the_machine_only_durable_trees_are_continued() {
    for (sync, is_kept) in [(SyncPolicy::End, false), (SyncPolicy::Chunk, true)] {
        let (folder, mut area) = area();
        let settings = TreeSettings { sync, ..settings() };
        let mut tree = area.create_tree(hour(), ONE, settings).unwrap();
        let id = tree.id().clone();
        tree.push(&stream(&everything())[..90_000]).unwrap();
        tree.keep(Duration::from_secs(60)).unwrap();
        drop(tree);
        area.boot = "another".to_owned();
        let resumed = area.resume_tree(&id, SystemTime::now(), settings);
        assert_eq!(resumed.is_ok(), is_kept, "{sync:?}");
        drop(resumed);
        assert_eq!(partial_files(folder.path()), if is_kept { 2 } else { 0 });
    }
}

#[test]
fn a_damaged_record_or_tree_is_not_continued() {
    let (folder, area) = area();
    let mut tree = area.create_tree(hour(), ONE, settings()).unwrap();
    let id = tree.id().clone();
    tree.push(&stream(&everything())[..90_000]).unwrap();
    tree.keep(Duration::from_secs(60)).unwrap();
    drop(tree);
    let large = format!("{UPLOADS_FOLDER}/{id}/d/locked/deeper/large");
    let large = folder.path().join(large);
    let size = fs::metadata(&large).unwrap().len();
    assert!(size > 0);
    File::options()
        .write(true)
        .open(&large)
        .unwrap()
        .set_len(size - 1)
        .unwrap();
    let mut tree = area
        .resume_tree(&id, SystemTime::now(), settings())
        .unwrap();
    let left = rest(&everything(), tree.record().unwrap().tree().unwrap());
    let error = tree.push(&left).unwrap_err();
    assert_eq!(error.fault, TreeFault::Failed(Error::Gone));
    drop(tree);
    let record = folder.path().join(format!("{UPLOADS_FOLDER}/{id}.json"));
    fs::write(record, "{").unwrap();
    let resumed = area.resume_tree(&id, SystemTime::now(), settings());
    assert_eq!(resumed.map(drop), Err(Error::Gone));
}
