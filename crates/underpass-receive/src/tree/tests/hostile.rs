//! What a hostile sender could send.

use super::*;

/// The fault of a stream that is received with settings, and how much is left behind.
fn fault(members: &[(Member, Vec<u8>)], settings: TreeSettings) -> TreeFault {
    let (folder, area) = area();
    let mut tree = area.begin_tree(settings).unwrap();
    let error = tree.push(&stream(members)).unwrap_err();
    assert!(!error.to_string().contains('\u{1b}'), "{error}");
    // Nothing goes on without the member.
    assert_eq!(tree.push(&stream(&[])), Err(error.clone()));
    let committed = tree.commit(&path("t"), TreeMerge::Refused);
    assert!(committed.is_err(), "committed after an error");
    assert!(!folder.path().join("t").exists());
    assert_eq!(partial_files(folder.path()), 0);
    error.fault
}

fn special(kind: MemberKind) -> (Member, Vec<u8>) {
    (Member::new("x\u{1b}", kind, 0o644, TIME), Vec::new())
}

#[test]
fn members_that_are_not_received_end_the_transfer() {
    let d = folder("d", 0o755);
    let f = file("f", b"");
    let l = symlink("l", "d");
    let other = MemberKind::Other {
        flag: b'D',
        size: 0,
    };
    for members in [
        vec![file("/etc/passwd", b"")],
        vec![file("../a", b"")],
        vec![file("d/../../a", b"")],
        vec![folder("d/..", 0o755)],
        vec![file(".ssh", b"")],
        vec![file("./.bashrc", b"")],
        vec![file("d/.underpass-uploads", b"")],
        vec![file(".", b"")],
        vec![symlink(".", "a")],
        vec![symlink("l", "/etc")],
        vec![symlink("l", "..")],
        vec![symlink("l", "d/../..")],
        vec![symlink("d/l", "../../a")],
        vec![hard_link("h", "/etc/passwd")],
        vec![hard_link("h", "../a")],
        vec![hard_link("h", "missing")],
        vec![d.clone(), hard_link("h", "d")],
        vec![f.clone(), hard_link("h", "f/a")],
        // A link that is planted first is not followed (CVE-2026-33056 and many before it).
        vec![d.clone(), l.clone(), hard_link("h", "l")],
        vec![
            d.clone(),
            file("d/a", b""),
            l.clone(),
            hard_link("h", "l/a"),
        ],
        vec![special(MemberKind::CharacterDevice)],
        vec![special(MemberKind::BlockDevice)],
        vec![special(MemberKind::Fifo)],
        vec![special(other)],
    ] {
        let fault = fault(&members, settings());
        assert!(
            matches!(fault, TreeFault::Refused(_)),
            "{members:?}: {fault:?}"
        );
    }
    for (members, error) in [
        (vec![d.clone(), l.clone(), file("l/a", b"")], Error::Link),
        (vec![d.clone(), l.clone(), folder("l", 0o755)], Error::Link),
        (
            vec![d.clone(), l.clone(), folder("l/a", 0o755)],
            Error::Link,
        ),
        (vec![d.clone(), l.clone(), file("l", b"")], Error::Exists),
        (vec![f.clone(), f.clone()], Error::Exists),
        (vec![f.clone(), folder("f", 0o755)], Error::NotAFolder),
        (vec![f.clone(), file("f/a", b"")], Error::NotAFolder),
        (vec![f.clone(), symlink("f", "d")], Error::Exists),
        (vec![f.clone(), hard_link("f", "f")], Error::Exists),
        (vec![d.clone(), file("d", b"")], Error::Exists),
    ] {
        let fault = fault(&members, settings());
        assert_eq!(fault, TreeFault::Failed(error), "{members:?}");
    }
}

#[test]
fn limits_end_the_transfer() {
    let usual = TreeLimits::default();
    let file_of = |path: &str| file(path, &[1; 10]);
    for (limits, members) in [
        (
            TreeLimits {
                members_max: 1,
                ..usual
            },
            vec![file_of("a"), file_of("b")],
        ),
        (
            TreeLimits {
                bytes_max: 19,
                ..usual
            },
            vec![file_of("a"), file_of("b")],
        ),
        (
            TreeLimits {
                depth_max: 1,
                ..usual
            },
            vec![file_of("a/b/c")],
        ),
        (
            TreeLimits {
                name_bytes_max: 3,
                ..usual
            },
            vec![file_of("four")],
        ),
        (
            TreeLimits {
                path_bytes_max: 5,
                ..usual
            },
            vec![file_of("aa/aaa")],
        ),
    ] {
        let settings = TreeSettings {
            limits,
            ..settings()
        };
        let fault = fault(&members, settings);
        assert!(
            matches!(fault, TreeFault::Limit(_)),
            "{limits:?}: {fault:?}"
        );
    }
    let frugal = TreeSettings {
        keep_free: 1 << 60,
        ..settings()
    };
    let full = fault(&[file_of("a")], frugal);
    let is_refused =
        matches!(full, TreeFault::Failed(Error::TooFull { kept, .. }) if kept == 1 << 60);
    assert!(is_refused, "{full:?}");
    // Space is checked before the first byte, and not allocated on the sender's word.
    let large = Member::new("a", MemberKind::File { size: 1 << 60 }, 0o644, TIME);
    let mut headers = Vec::new();
    large.write(&mut headers);
    let (_folder, area) = area();
    let mut tree = area.begin_tree(settings()).unwrap();
    let error = tree.push(&headers).unwrap_err();
    let is_refused = matches!(error.fault, TreeFault::Failed(Error::TooFull { .. }));
    assert!(is_refused, "{error:?}");
}

#[test]
fn what_the_receiver_allows_is_received() {
    let (folder, area) = area();
    let settings = TreeSettings {
        hidden: HiddenNames::Allowed,
        links: LinkTargets::Any,
        ..settings()
    };
    let members = vec![file(".profile", b"p"), symlink("l", "/etc/passwd")];
    let mut tree = area.begin_tree(settings).unwrap();
    tree.push(&stream(&members)).unwrap();
    tree.commit(&path("t"), TreeMerge::Refused).unwrap();
    assert_is(&folder.path().join("t"), &members);
}

#[test]
fn a_stream_that_is_cut_or_followed_by_something_gets_no_name() {
    let whole = stream(&everything());
    for end in (0..whole.len()).step_by(5000).chain([whole.len() - 1]) {
        let (folder, area) = area();
        let mut tree = area.begin_tree(settings()).unwrap();
        tree.push(&whole[..end]).unwrap();
        let error = tree.commit(&path("t"), TreeMerge::Refused).unwrap_err();
        let is_cut = matches!(error.fault, TreeFault::Stream { .. });
        assert!(is_cut, "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    let (_folder, area) = area();
    let mut tree = area.begin_tree(settings()).unwrap();
    assert!(tree.push(&[&whole[..], b"more"].concat()).is_err());
}
