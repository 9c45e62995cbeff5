//! Trees whose name is taken.

use super::*;
use crate::overwrite::Overwrite;

fn received(area: &Area, members: &[(Member, Vec<u8>)]) -> PartialTree {
    let mut tree = area.begin_tree(settings()).unwrap();
    tree.push(&stream(members)).unwrap();
    tree
}

#[test]
fn a_name_that_is_taken_stays_what_it_is() {
    let members = vec![folder("d", 0o755), file("d/new", b"new"), file("f", b"new")];
    for merging in [
        TreeMerge::Refused,
        TreeMerge::Folders(Overwrite::Refused),
        TreeMerge::Folders(Overwrite::Allowed),
    ] {
        let (folder, area) = area();
        let at = |name: &str| folder.path().join("t").join(name);
        fs::create_dir_all(at("d")).unwrap();
        fs::write(at("f"), "old").unwrap();
        fs::write(at("d/old"), "old").unwrap();
        let committed = received(&area, &members).commit(&path("t"), merging);
        let is_merged = merging == TreeMerge::Folders(Overwrite::Allowed);
        assert_eq!(committed.is_ok(), is_merged, "{merging:?}");
        // A conflict is found before anything has moved.
        assert_eq!(at("d/new").exists(), is_merged);
        assert_eq!(fs::read(at("d/old")).unwrap(), b"old");
        let expected: &[u8] = if is_merged { b"new" } else { b"old" };
        assert_eq!(fs::read(at("f")).unwrap(), expected);
        if let Err(error) = committed {
            assert_eq!(error.fault, TreeFault::Failed(Error::Exists));
        }
        assert_eq!(partial_files(folder.path()), 0);
    }
}

#[test]
fn links_files_and_folders_do_not_replace_each_other() {
    let outside = tempfile::tempdir().unwrap();
    let all = TreeMerge::Folders(Overwrite::Allowed);
    for (taken, members, error) in [
        ("link", vec![file("n", b"new")], Error::Link),
        (
            "link",
            vec![folder("n", 0o755), file("n/a", b"")],
            Error::NotAFolder,
        ),
        ("file", vec![folder("n", 0o755)], Error::NotAFolder),
        ("folder", vec![file("n", b"new")], Error::IsFolder),
    ] {
        let (folder, area) = area();
        let name = folder.path().join("n");
        match taken {
            "link" => std::os::unix::fs::symlink(outside.path(), &name).unwrap(),
            "file" => fs::write(&name, "old").unwrap(),
            _ => fs::create_dir(&name).unwrap(),
        }
        let before = listing(folder.path());
        let error_found = received(&area, &members)
            .commit_into(None, all)
            .unwrap_err();
        assert_eq!(error_found.fault, TreeFault::Failed(error), "{taken}");
        let mut after = listing(folder.path());
        after.retain(|path, _| !path.starts_with(UPLOADS_FOLDER));
        assert_eq!(after, before);
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn names_at_the_top_go_into_a_folder_that_exists() {
    let members = everything();
    let (folder, area) = area();
    fs::create_dir(folder.path().join("d")).unwrap();
    let refused = received(&area, &members).commit_into(None, TreeMerge::Refused);
    assert_eq!(refused.unwrap_err().fault, TreeFault::Failed(Error::Exists));
    let merging = TreeMerge::Folders(Overwrite::Refused);
    received(&area, &members)
        .commit_into(None, merging)
        .unwrap();
    fs::remove_dir(folder.path().join(UPLOADS_FOLDER)).unwrap();
    // The metadata of a folder that was there stay as they are.
    let members: Members = members
        .into_iter()
        .filter(|(member, _)| member.path != b"./d")
        .collect();
    assert_is(folder.path(), &members);
    fs::create_dir(folder.path().join("sub")).unwrap();
    let tree = received(&area, &members);
    tree.commit_into(Some(&path("sub")), TreeMerge::Refused)
        .unwrap();
    assert_is(&folder.path().join("sub"), &members);
}
