//! Areas on the real file system.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{RenameFlags, renameat_with};

use super::*;
use crate::forks::UnforkedFolder;

fn area() -> (UnforkedFolder, Arc<Area>) {
    let folder = UnforkedFolder::new();
    let area = open(folder.path());
    (folder, area)
}

fn open(folder: &Path) -> Arc<Area> {
    let root = fs::File::open(folder).unwrap();
    Arc::new(Area::open(root.as_fd(), None).unwrap())
}

fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).unwrap()
}

fn write(partial: &PartialFile, bytes: &[u8]) {
    let size = partial.size().unwrap();
    assert_eq!(
        rustix::io::pwrite(partial.file(), bytes, size).unwrap(),
        bytes.len()
    );
}

fn most(uploads: usize) -> UploadsMax {
    UploadsMax {
        all: uploads,
        per_client: uploads,
    }
}

fn hour() -> UploadRecord {
    UploadRecord::new(Some("a"), None, Duration::from_secs(3600))
}

fn partial_files(folder: &Path) -> usize {
    fs::read_dir(folder.join(UPLOADS_FOLDER)).map_or(0, Iterator::count)
}

#[test]
fn a_file_appears_whole_and_leaves_nothing_behind() {
    let (folder, area) = area();
    let partial = area.begin().unwrap();
    write(&partial, b"content");
    let name = path("new/folder/a.txt");
    assert_eq!(area.kind(&name), Err(Error::NotFound));
    let committed = partial.commit(&name, Overwrite::Refused, SyncPolicy::End, Some(0o640));
    assert!(!committed.unwrap().has_replaced);
    let made = folder.path().join("new/folder/a.txt");
    assert_eq!(fs::read(&made).unwrap(), b"content");
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(partial_files(folder.path()), 0);

    let partial = area.begin().unwrap();
    write(&partial, b"other");
    let refused = partial.commit(&name, Overwrite::Refused, SyncPolicy::None, None);
    assert_eq!(refused.map(drop), Err(Error::Exists));
    assert_eq!(fs::read(&made).unwrap(), b"content");
    assert_eq!(partial_files(folder.path()), 0);

    let partial = area.begin().unwrap();
    write(&partial, b"third");
    let replaced = partial.commit(&name, Overwrite::Allowed, SyncPolicy::Chunk, None);
    assert!(replaced.unwrap().has_replaced);
    assert_eq!(fs::read(&made).unwrap(), b"third");
    drop(area.begin().unwrap());
    assert_eq!(partial_files(folder.path()), 0);
}

#[test]
fn a_replaced_file_leaves_its_attributes_and_folders_follow_the_mode() {
    let (folder, area) = area();
    let mode = |name: &str| {
        let metadata = fs::metadata(folder.path().join(name)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    let store = |name: &str, mode: Option<u32>| {
        let partial = area.begin().unwrap();
        write(&partial, b"new");
        let stored = partial.commit(&path(name), Overwrite::Allowed, SyncPolicy::None, mode);
        stored.unwrap();
    };
    fs::write(folder.path().join("secret"), "old").unwrap();
    for (before, configured, after) in [
        (0o600, None, 0o600),
        (0o755, None, 0o755),
        (0o6755, None, 0o755),
        (0o600, Some(0o640), 0o640),
    ] {
        let permissions = fs::Permissions::from_mode(before);
        fs::set_permissions(folder.path().join("secret"), permissions).unwrap();
        store("secret", configured);
        assert_eq!(mode("secret"), after);
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(folder.path().join("secret"), Some(12), Some(34)).unwrap();
        store("secret", None);
        let stat = area.stat(&path("secret")).unwrap();
        assert_eq!((stat.st_uid, stat.st_gid), (12, 34));
    }
    let group = fs::Permissions::from_mode(0o2755);
    fs::create_dir(folder.path().join("group")).unwrap();
    fs::set_permissions(folder.path().join("group"), group).unwrap();
    for (name, configured, after) in [
        ("a/b/f", Some(0o640), 0o750),
        ("c/f", Some(0o444), 0o755),
        ("d/f", Some(0o400), 0o700),
        ("group/e/f", Some(0o640), 0o2750),
        // An existing folder stays as it is.
        ("a/b/g", Some(0o600), 0o750),
    ] {
        store(name, configured);
        let (made, _) = name.rsplit_once('/').unwrap();
        assert_eq!(mode(made), after, "{name}");
    }
    area.make_folder(&path("made"), Some(0o640)).unwrap();
    assert_eq!(mode("made"), 0o750);
}

#[test]
fn nothing_is_written_through_links_or_over_what_is_no_file() {
    let (folder, area) = area();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), folder.path().join("out")).unwrap();
    symlink("b", folder.path().join("link")).unwrap();
    fs::create_dir(folder.path().join("dir")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (name, error) in [
        ("out/a", Error::Link),
        ("link", Error::Link),
        ("dir", Error::IsFolder),
        ("file/a", Error::NotAFolder),
    ] {
        let partial = area.begin().unwrap();
        let committed = partial.commit(&path(name), Overwrite::Allowed, SyncPolicy::None, None);
        assert_eq!(committed.map(drop), Err(error), "{name}");
    }
    assert_eq!(area.make_folder(&path("out/a"), None), Err(Error::Link));
    assert_eq!(area.remove(&path("out/a"), None), Err(Error::Link));
    let moved = area.rename(&path("file"), &path("out/file"), Overwrite::Allowed);
    assert_eq!(moved, Err(Error::Link));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn an_upload_is_resumed_by_another_process_and_not_by_two() {
    let (folder, first) = area();
    let mut partial = first.create(hour(), most(2)).unwrap();
    let id = partial.id().clone();
    write(&partial, b"one");
    partial
        .keep(Duration::from_secs(60), SyncPolicy::None)
        .unwrap();
    let second = open(folder.path());
    let now = SystemTime::now();
    assert_eq!(second.resume(&id, now).map(drop), Err(Error::Busy));
    assert_eq!(second.sweep(now).unwrap(), SweepSummary::default());
    drop(partial);
    let partial = second.resume(&id, now).unwrap();
    assert_eq!(partial.size().unwrap(), 3);
    write(&partial, b" two");
    partial
        .commit(&path("a"), Overwrite::Refused, SyncPolicy::End, None)
        .unwrap();
    assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one two");
    assert_eq!(second.resume(&id, now).map(drop), Err(Error::Gone));
}

#[test]
fn one_client_has_its_share_of_uploads_whoever_counts() {
    let (folder, first) = area();
    let of = |client: Option<&str>| UploadRecord {
        client: client.map(str::to_owned),
        ..hour()
    };
    let limits = UploadsMax {
        all: 5,
        per_client: 2,
    };
    let one = first.create(of(Some("one")), limits).unwrap();
    first.create(of(Some("one")), limits).unwrap();
    let refused = |area: &Area, client| area.create(of(client), limits).map(drop).unwrap_err();
    assert_eq!(refused(&first, Some("one")), Error::TooManyOfClient);
    // Another process, or this one after a restart, reads the records.
    let second = open(folder.path());
    assert_eq!(refused(&second, Some("one")), Error::TooManyOfClient);
    second.create(of(Some("other")), limits).unwrap();
    one.discard().unwrap();
    second.create(of(Some("one")), limits).unwrap();
    assert_eq!(refused(&first, Some("one")), Error::TooManyOfClient);
    // Those without a known client have no share.
    first.create(of(None), limits).unwrap();
    first.create(of(None), limits).unwrap();
    assert_eq!(refused(&second, None), Error::TooMany);
}

#[test]
fn records_of_an_earlier_release_are_read() {
    let text = br#"{"version":1,"target":"a","length":3,"replaces":false,"owner":null,
        "details":{},"expires":9,"lifetime":1,"boot":"b","durable":0}"#;
    let record = UploadRecord::parse(text).unwrap();
    assert_eq!((record.client, record.length), (None, Some(3)));
}

#[test]
fn after_a_crash_of_the_machine_only_durable_bytes_count() {
    let (folder, area) = area();
    let mut lost = area.create(hour(), most(9)).unwrap();
    write(&lost, b"abc");
    lost.keep(Duration::from_secs(60), SyncPolicy::End).unwrap();
    let mut durable = area.create(hour(), most(9)).unwrap();
    write(&durable, b"abc");
    durable
        .keep(Duration::from_secs(60), SyncPolicy::Chunk)
        .unwrap();
    write(&durable, b"def");
    let ids = [lost.id().clone(), durable.id().clone()];
    drop((lost, durable));
    let rebooted = Area {
        boot: "another".to_owned(),
        ..Arc::into_inner(open(folder.path())).unwrap()
    };
    let rebooted = Arc::new(rebooted);
    let now = SystemTime::now();
    let gone = rebooted.resume(&ids[0], now);
    assert_eq!(gone.map(drop), Err(Error::Gone));
    let kept = rebooted.resume(&ids[1], now).unwrap();
    assert_eq!(kept.size().unwrap(), 3);
}

#[test]
fn a_sweep_keeps_what_can_be_resumed_and_removes_the_rest() {
    let (folder, area) = area();
    let kept = area.create(hour(), most(9)).unwrap().id().clone();
    let expired = UploadRecord::new(Some("b"), None, Duration::ZERO);
    area.create(expired, most(9)).unwrap();
    let uploads = folder.path().join(UPLOADS_FOLDER);
    fs::write(uploads.join("0".repeat(32)), "no record").unwrap();
    fs::write(uploads.join(format!("{}.json", "1".repeat(32))), "{}").unwrap();
    fs::create_dir_all(uploads.join("2".repeat(32)).join("a/b")).unwrap();
    fs::write(uploads.join("2".repeat(32)).join("a/b/c"), "").unwrap();
    fs::write(uploads.join("notes"), "not ours").unwrap();
    let later = SystemTime::now() + Duration::from_secs(120);
    let summary = area.sweep(later).unwrap();
    assert_eq!((summary.kept, summary.removed), (1, 3));
    let mut names: Vec<_> = fs::read_dir(&uploads)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut expected = vec![kept.to_string(), format!("{kept}.json"), "notes".to_owned()];
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn trees_are_removed_without_following_links() {
    let (folder, area) = area();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("keep"), "").unwrap();
    let deep = folder.path().join("t").join("d/".repeat(300));
    fs::create_dir_all(&deep).unwrap();
    symlink(outside.path(), folder.path().join("t/link")).unwrap();
    fs::write(folder.path().join("t/f"), "").unwrap();
    area.remove(&path("t"), None).unwrap();
    assert!(!folder.path().join("t").exists());
    assert!(outside.path().join("keep").exists());
    assert_eq!(partial_files(folder.path()), 0);
    assert_eq!(area.remove(&path("t"), None), Err(Error::NotFound));
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let (folder, area) = area();
    for level in 0..6 {
        let top = folder.path().join(format!("{level}"));
        let bottom = top.join(format!("{}/", "a".repeat(250)).repeat(4));
        fs::create_dir_all(&bottom).unwrap();
        fs::write(bottom.join("f"), "").unwrap();
        if level > 0 {
            fs::rename(
                folder.path().join(format!("{}", level - 1)),
                bottom.join("d"),
            )
            .unwrap();
        }
    }
    area.remove(&path("5"), None).unwrap();
    assert!(!folder.path().join("5").exists());
    assert_eq!(partial_files(folder.path()), 0);
}

#[test]
fn whoever_may_write_to_a_tree_cannot_lead_its_removal_out_of_it() {
    const FOLDERS: usize = 30;
    let (folder, area) = area();
    let outside = tempfile::tempdir().unwrap();
    let fill = |at: &Path| {
        for number in 0..FOLDERS {
            fs::create_dir_all(at.join(number.to_string())).unwrap();
            fs::write(at.join(format!("{number}/f")), "").unwrap();
        }
    };
    fill(outside.path());
    for _ in 0..50 {
        let top = folder.path().join("t");
        fill(&top.join("d"));
        let spare = tempfile::tempdir_in(folder.path()).unwrap();
        symlink(outside.path(), spare.path().join("link")).unwrap();
        // Both stay open wherever the folder is moved to.
        let held = fs::File::open(&top).unwrap();
        let spare = fs::File::open(spare.path()).unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let _ = renameat_with(&held, "d", &spare, "link", RenameFlags::EXCHANGE);
                }
            });
            let _ = area.remove(&path("t"), None);
            is_done.store(true, Ordering::Relaxed);
        });
        let left =
            (0..FOLDERS).filter(|number| outside.path().join(format!("{number}/f")).exists());
        assert_eq!(left.count(), FOLDERS);
        area.sweep(SystemTime::now()).unwrap();
        assert_eq!(partial_files(folder.path()), 0);
        for entry in fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != UPLOADS_FOLDER {
                fs::remove_dir_all(entry.path()).unwrap();
            }
        }
    }
}

#[test]
fn a_tree_is_looked_through() {
    let (folder, area) = area();
    fs::create_dir_all(folder.path().join("t/d/e")).unwrap();
    fs::write(folder.path().join("t/d/f"), "").unwrap();
    symlink("..", folder.path().join("t/link")).unwrap();
    let seen = std::cell::RefCell::new(Vec::new());
    let all = area.all_beneath(&path("t"), |path| {
        seen.borrow_mut()
            .push(String::from_utf8(path.to_vec()).unwrap());
        true
    });
    assert_eq!(all, Ok(true));
    let mut seen = seen.into_inner();
    seen.sort();
    assert_eq!(seen, ["d", "d/e", "d/f", "link"]);
    assert_eq!(
        area.all_beneath(&path("t"), |path| path != b"d/f"),
        Ok(false)
    );
    assert_eq!(area.all_beneath(&path("t/d/f"), |_| false), Ok(true));
}

#[test]
fn files_are_renamed_and_copied() {
    let (folder, area) = area();
    fs::write(folder.path().join("a"), "a").unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    let (a, b, d) = (path("a"), path("d/b"), path("d"));
    assert_eq!(area.rename(&a, &b, Overwrite::Refused), Ok(false));
    fs::write(folder.path().join("a"), "new").unwrap();
    assert_eq!(area.rename(&a, &b, Overwrite::Refused), Err(Error::Exists));
    assert_eq!(
        area.rename(&a, &d, Overwrite::Allowed),
        Err(Error::IsFolder)
    );
    let copied = area.copy(&a, &b, Overwrite::Allowed, (SyncPolicy::None, None));
    let copied = copied.unwrap();
    assert!(copied.has_replaced && copied.copied.is_some());
    assert_eq!(fs::read(folder.path().join("d/b")).unwrap(), b"new");
    let into_itself = area.rename(&d, &path("d/e"), Overwrite::Refused);
    assert!(matches!(
        into_itself,
        Err(Error::Io {
            errno: Errno::INVAL,
            ..
        })
    ));
}

#[test]
fn an_upload_expires_after_its_last_byte_and_not_before() {
    let (folder, area) = area();
    let minute = UploadRecord::new(Some("a"), None, Duration::from_secs(60));
    let partial = area.create(minute.clone(), most(9)).unwrap();
    let (id, empty) = (
        partial.id().clone(),
        area.create(minute, most(9)).unwrap().id().clone(),
    );
    write(&partial, b"abc");
    drop(partial);
    // The record is from before the bytes, as after the end of the process.
    let modified = SystemTime::now() + Duration::from_secs(120);
    let file = fs::File::options()
        .write(true)
        .open(folder.path().join(UPLOADS_FOLDER).join(id.as_str()));
    file.unwrap().set_modified(modified).unwrap();
    let later = SystemTime::now() + Duration::from_secs(150);
    assert_eq!(area.resume(&id, later).unwrap().size(), Ok(3));
    assert_eq!(area.resume(&empty, later).map(drop), Err(Error::Gone));
    let too_late = modified + Duration::from_secs(61);
    assert_eq!(area.resume(&id, too_late).map(drop), Err(Error::Gone));
}

#[test]
fn details_are_kept_and_parts_are_joined() {
    let (folder, area) = area();
    let mut part = area.create(hour(), most(9)).unwrap();
    write(&part, b"part");
    part.set_detail("a", Some("b".to_owned())).unwrap();
    assert_eq!(area.record(part.id()).unwrap().details["a"], "b");
    part.set_detail("a", None).unwrap();
    assert!(area.record(part.id()).unwrap().details.is_empty());
    let long = part.set_detail("a", Some("x".repeat(5000)));
    assert!(matches!(long, Err(Error::Name(_))));
    let whole = area.begin().unwrap();
    for _ in 0..2 {
        whole.append(&part).unwrap();
    }
    whole
        .commit(&path("a"), Overwrite::Refused, SyncPolicy::None, None)
        .unwrap();
    assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"partpart");
}

#[test]
fn the_folder_of_partial_files_may_be_removed() {
    let (folder, area) = area();
    for round in 0..2 {
        let partial = area.begin().unwrap();
        let name = path(&format!("{round}"));
        partial
            .commit(&name, Overwrite::Refused, SyncPolicy::None, None)
            .unwrap();
        fs::remove_dir_all(folder.path().join(UPLOADS_FOLDER)).unwrap();
    }
}
