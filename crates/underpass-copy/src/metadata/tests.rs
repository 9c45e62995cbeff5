use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, OFlags, Uid, XattrFlags};
use rustix::process::geteuid;
use tempfile::TempDir;

use super::*;

const NOBODY: u32 = 65534;

type Wishing = fn(&mut Preserve);

/// Creates a folder that every user may write.
fn scratch() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Runs `does` on a separate thread, as an ordinary user if we are root.
fn as_ordinary_user<T: Send>(does: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        if geteuid().is_root() {
            let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
        does()
    };
    std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
}

fn ordinary_process() -> ProcessFacts {
    ProcessFacts {
        umask: 0o022.into(),
        user: NOBODY,
        has_selinux: false,
    }
}

fn process() -> ProcessFacts {
    ProcessFacts {
        umask: 0o022.into(),
        ..ProcessFacts::read(&Preserve::default())
    }
}

fn file(folder: &Path, name: &str, mode: u32) -> PathBuf {
    let path = folder.join(name);
    let _ = fs::remove_file(&path);
    fs::write(&path, name).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn wishes(wished: impl FnOnce(&mut Preserve)) -> Preserve {
    let mut wishes = Preserve::default();
    wished(&mut wishes);
    wishes
}

fn all() -> Preserve {
    Preserve {
        mode: PreserveLevel::Required,
        ownership: PreserveLevel::Required,
        timestamps: PreserveLevel::Required,
        links: PreserveLevel::Unset,
        context: PreserveLevel::Unset,
        xattr: PreserveLevel::Required,
    }
}

fn named(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn stat(path: &Path) -> Stat {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).unwrap()
}

/// Preserves metadata with both files open.
fn put(
    source: &Path,
    dest: &Path,
    creation: Creation,
    wishes: &Preserve,
    who: &ProcessFacts,
) -> Vec<Problem> {
    let (from, to) = (File::open(source).unwrap(), File::open(dest).unwrap());
    let (from, to) = (
        MetadataTarget::Open(from.as_fd()),
        MetadataTarget::Open(to.as_fd()),
    );
    preserve(from, &stat(source), to, creation, wishes, who)
}

/// Preserves metadata with both files by name.
fn put_named(source: &Path, dest: &Path, creation: Creation, wishes: &Preserve) -> Vec<Problem> {
    let (from, to) = (named(source), named(dest));
    let (from, to) = (
        MetadataTarget::Named(CWD, &from),
        MetadataTarget::Named(CWD, &to),
    );
    preserve(from, &stat(source), to, creation, wishes, &process())
}

/// Creates a copy's empty file, as the kernel does under a umask of 022.
fn create(dest: &Path, source: &Path, wishes: &Preserve, who: &ProcessFacts) -> Creation {
    let created = mode_at_first(&stat(source), wishes, who, FolderRole::Copy);
    fs::write(dest, "").unwrap();
    fs::set_permissions(dest, Permissions::from_mode(created & !who.umask())).unwrap();
    Creation::new(created)
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// Returns `user::rw-`, `user:1234:rwx`, `group::r--`, a mask and `other::---`.
fn list(mask: u8) -> Vec<u8> {
    let entry = |tag: u8, bits: u8, id: u32| {
        let [a, b, c, d] = id.to_le_bytes();
        [tag, 0, bits, 0, a, b, c, d]
    };
    let none = u32::MAX;
    let entries = [
        entry(1, 6, none),
        entry(2, 7, 1234),
        entry(4, 4, none),
        entry(0x10, mask, none),
        entry(0x20, 0, none),
    ];
    [&[2, 0, 0, 0], entries.as_flattened()].concat()
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

#[test]
fn the_umask_is_read_and_not_touched() {
    assert_eq!(umask_of("Name:\tx\nUmask:\t0027\nState:\tR\n"), Some(0o027));
    assert_eq!(umask_of("Name:\tx\n"), None);
    let read = || ProcessFacts::read(&Preserve::default());
    assert_eq!(read().umask(), read().umask());
    assert_eq!(read().user, geteuid().as_raw());
}

#[test]
fn a_copy_is_private_until_it_is_done() {
    let folder = scratch();
    let at_first = |mode, wished: fn(&mut Preserve)| {
        let source = file(folder.path(), "f", mode);
        let mode = mode_at_first(
            &stat(&source),
            &wishes(wished),
            &ordinary_process(),
            FolderRole::Copy,
        );
        format!("{mode:o}")
    };
    assert_eq!(at_first(0o6755, |_| ()), "755");
    assert_eq!(
        at_first(0o6755, |to| to.mode = PreserveLevel::Required),
        "700"
    );
    assert_eq!(
        at_first(0o6755, |to| to.ownership = PreserveLevel::BestEffort),
        "700"
    );
    assert_eq!(
        at_first(0o6755, |to| to.timestamps = PreserveLevel::Required),
        "755"
    );
    assert_eq!(at_first(0o4755, |to| to.mode = PreserveLevel::Never), "666");
    assert_eq!(at_first(0o444, |_| ()), "444");
    assert_eq!(
        at_first(0o444, |to| to.xattr = PreserveLevel::BestEffort),
        "644"
    );
}

#[test]
fn a_folder_can_be_filled_while_it_is_private() {
    let folder = scratch();
    let source = folder.path().join("d");
    fs::create_dir(&source).unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o3555)).unwrap();
    let at_first = |wished: fn(&mut Preserve)| {
        let mode = mode_at_first(
            &stat(&source),
            &wishes(wished),
            &ordinary_process(),
            FolderRole::Copy,
        );
        format!("{mode:o}")
    };
    assert_eq!(at_first(|_| ()), "1755");
    assert_eq!(at_first(|to| to.mode = PreserveLevel::Required), "700");
    assert_eq!(at_first(|to| to.mode = PreserveLevel::Never), "1755");
}

#[test]
fn where_nothing_is_wished_nothing_is_called() {
    let folder = scratch();
    let source = file(folder.path(), "f", 0o6755);
    let nowhere = MetadataTarget::Named(CWD, c"no/such/name");
    let (stat, none, who) = (stat(&source), Preserve::default(), process());
    let created = mode_at_first(&stat, &none, &who, FolderRole::Copy);
    for creation in [Creation::Existing, Creation::new(created)] {
        assert_eq!(preserve(nowhere, &stat, nowhere, creation, &none, &who), []);
    }
    let links = wishes(|to| to.links = PreserveLevel::Required);
    let creation = Creation::Existing;
    assert_eq!(
        preserve(nowhere, &stat, nowhere, creation, &links, &who),
        []
    );
    let mode = wishes(|to| to.mode = PreserveLevel::Required);
    assert_eq!(
        preserve(nowhere, &stat, nowhere, creation, &mode, &who).len(),
        1
    );
}

#[test]
fn all_that_an_ordinary_user_can_give_is_given() {
    let folder = scratch();
    as_ordinary_user(|| {
        let source = file(folder.path(), "f", 0o444);
        fs::set_permissions(&source, Permissions::from_mode(0o644)).unwrap();
        set_attribute(&source, "user.short", b"1");
        set_attribute(&source, "user.empty", b"");
        set_attribute(&source, "user.long", &[b'x'; 3000]);
        fs::set_permissions(&source, Permissions::from_mode(0o6451)).unwrap();
        let dest = folder.path().join("g");
        let who = ordinary_process();
        let creation = create(&dest, &source, &all(), &who);
        assert_eq!(mode(&dest), 0o600);
        assert_eq!(put(&source, &dest, creation, &all(), &who), []);
        assert_eq!(mode(&dest), 0o6451);
        for name in ["user.short", "user.empty", "user.long"] {
            assert_eq!(attribute(&dest, name), attribute(&source, name), "{name}");
            assert!(attribute(&dest, name).is_some());
        }
        let (old, new) = (stat(&source), stat(&dest));
        assert_eq!(
            (old.st_mtime, old.st_mtime_nsec),
            (new.st_mtime, new.st_mtime_nsec)
        );
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn an_owner_and_the_set_id_bits_go_along_as_root_and_neither_does_otherwise() {
    let folder = scratch();
    let source = file(folder.path(), "f", 0o7755);
    let dest = folder.path().join("g");
    rustix::fs::chown(&source, Some(Uid::from_raw(12)), Some(Gid::from_raw(34))).unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o7755)).unwrap();
    let creation = create(&dest, &source, &all(), &process());
    assert_eq!(put(&source, &dest, creation, &all(), &process()), []);
    let now = stat(&dest);
    assert_eq!((now.st_uid, now.st_gid, mode(&dest)), (12, 34, 0o7755));
    fs::remove_file(&dest).unwrap();
    as_ordinary_user(|| {
        let who = ordinary_process();
        let creation = create(&dest, &source, &all(), &who);
        assert_eq!(put(&source, &dest, creation, &all(), &who), []);
        assert_eq!(mode(&dest), 0o755);
    });
}

#[test]
fn a_file_of_another_owner_is_copied_without_its_owner() {
    let folder = scratch();
    let dest = folder.path().join("g");
    let source = Path::new("/etc/passwd");
    as_ordinary_user(|| {
        let who = ordinary_process();
        let creation = create(&dest, source, &all(), &who);
        assert_eq!(put(source, &dest, creation, &all(), &who), []);
        assert_eq!(mode(&dest), mode(source) & 0o777);
    });
}

#[test]
fn an_owner_that_root_can_not_give_is_an_error() {
    let errno = Errno::PERM;
    let root = ProcessFacts {
        user: 0,
        ..ordinary_process()
    };
    assert!(!root.may_lack_right(errno));
    assert!(ordinary_process().may_lack_right(errno));
    assert!(!ordinary_process().may_lack_right(Errno::IO));
}

#[test]
fn a_new_mode_is_the_source_s_less_the_umask() {
    let folder = scratch();
    let source = file(folder.path(), "f", 0o6666);
    let who = process();
    let cases: [(Wishing, u32); 3] = [
        (|to| to.ownership = PreserveLevel::Required, 0o644),
        (|to| to.mode = PreserveLevel::Never, 0o644),
        (|to| to.xattr = PreserveLevel::Required, 0o644),
    ];
    for (wished, expected) in cases {
        let dest = folder.path().join("g");
        let creation = create(&dest, &source, &wishes(wished), &who);
        assert_eq!(put(&source, &dest, creation, &wishes(wished), &who), []);
        assert_eq!(mode(&dest), expected);
        fs::remove_file(dest).unwrap();
    }
}

#[test]
fn what_was_there_keeps_its_mode_unless_it_is_wished() {
    let folder = scratch();
    let source = file(folder.path(), "f", 0o750);
    let dest = file(folder.path(), "g", 0o604);
    let put = |wished: fn(&mut Preserve)| {
        let wishes = wishes(wished);
        assert_eq!(
            put(&source, &dest, Creation::Existing, &wishes, &process()),
            []
        );
        mode(&dest)
    };
    assert_eq!(put(|_| ()), 0o604);
    assert_eq!(put(|to| to.mode = PreserveLevel::Never), 0o604);
    assert_eq!(put(|to| to.ownership = PreserveLevel::Required), 0o604);
    assert_eq!(put(|to| to.mode = PreserveLevel::BestEffort), 0o750);
}

#[test]
fn a_folder_gets_its_mode_back_and_keeps_what_it_inherited_unless_the_mode_is_preserved() {
    let folder = scratch();
    let [source, dest] = ["d", "e"].map(|name| folder.path().join(name));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&dest).unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o555)).unwrap();
    let creation = Creation::new(mode_at_first(
        &stat(&source),
        &Preserve::default(),
        &process(),
        FolderRole::Copy,
    ));
    assert_eq!(creation, Creation::new(0o755));
    fs::set_permissions(&dest, Permissions::from_mode(0o2755)).unwrap();
    let none = Preserve::default();
    assert_eq!(put(&source, &dest, creation, &none, &process()), []);
    assert_eq!(mode(&dest), 0o2555);
    let mode_wished = wishes(|to| to.mode = PreserveLevel::Required);
    assert_eq!(put(&source, &dest, creation, &mode_wished, &process()), []);
    assert_eq!(mode(&dest), 0o555);
    fs::set_permissions(&source, Permissions::from_mode(0o1555)).unwrap();
    assert_eq!(put(&source, &dest, creation, &mode_wished, &process()), []);
    assert_eq!(mode(&dest), 0o1555);
}

#[test]
fn a_list_goes_along_with_the_mode_alone() {
    let folder = scratch();
    let source = file(folder.path(), "f", 0o640);
    set_attribute(&source, ACCESS, &list(7));
    assert_eq!(mode(&source), 0o670);
    let copy = |name: &str, wished: fn(&mut Preserve)| {
        let (dest, wishes) = (folder.path().join(name), wishes(wished));
        let creation = create(&dest, &source, &wishes, &process());
        assert_eq!(put(&source, &dest, creation, &wishes, &process()), []);
        (attribute(&dest, ACCESS), mode(&dest))
    };
    let with_list = (Some(list(7)), 0o670);
    assert_eq!(copy("a", |to| to.mode = PreserveLevel::Required), with_list);
    assert_eq!(
        copy("b", |to| to.xattr = PreserveLevel::Required),
        (None, 0o650)
    );
    assert_eq!(copy("c", |_| ()), (None, 0o650));
}

#[test]
fn lists_that_the_source_lacks_are_removed() {
    let folder = scratch();
    let [source, dest] = ["d", "e"].map(|name| folder.path().join(name));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&dest).unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o705)).unwrap();
    set_attribute(&dest, ACCESS, &list(7));
    set_attribute(&dest, DEFAULT, &list(7));
    let mode_wished = wishes(|to| to.mode = PreserveLevel::Required);
    assert_eq!(
        put(&source, &dest, Creation::Existing, &mode_wished, &process()),
        []
    );
    assert_eq!(mode(&dest), 0o705);
    assert_eq!(attribute(&dest, ACCESS), None);
    assert_eq!(attribute(&dest, DEFAULT), None);
    set_attribute(&source, DEFAULT, &list(5));
    assert_eq!(
        put(&source, &dest, Creation::Existing, &mode_wished, &process()),
        []
    );
    assert_eq!(attribute(&dest, DEFAULT), Some(list(5)));
}

#[test]
fn a_mode_that_does_not_go_along_leaves_no_list() {
    let folder = scratch();
    set_attribute(folder.path(), DEFAULT, &list(7));
    let source = Path::new("/proc/version");
    let refused = wishes(|to| to.mode = PreserveLevel::Never);
    let dest = folder.path().join("g");
    File::create(&dest).unwrap();
    assert!(attribute(&dest, ACCESS).is_some());
    assert_eq!(
        put(source, &dest, Creation::new(0o666), &refused, &process()),
        []
    );
    assert_eq!((attribute(&dest, ACCESS), mode(&dest)), (None, 0o644));
}

#[test]
fn refused_attributes_are_reported_if_they_were_demanded() {
    let folder = scratch();
    let source = file(folder.path(), "f", 0o644);
    set_attribute(&source, "user.one", b"1");
    set_attribute(&source, "user.two", b"2");
    let put = |dest: &Path, wish| {
        let wishes = wishes(|to| to.xattr = wish);
        let found = put(
            &source,
            dest,
            Creation::Existing,
            &wishes,
            &ordinary_process(),
        );
        found
            .into_iter()
            .map(|error| (error.errno, error.other))
            .collect::<Vec<_>>()
    };
    // procfs supports none at all.
    let unsupporting = Path::new("/proc/self/comm");
    assert_eq!(put(unsupporting, PreserveLevel::BestEffort), []);
    assert_eq!(
        put(unsupporting, PreserveLevel::Required),
        [(Some(Errno::OPNOTSUPP), None)]
    );
    as_ordinary_user(|| {
        let unwritable = Path::new("/etc/passwd");
        let refused = |name: &str| (Some(Errno::ACCESS), Some(name.into()));
        let mut found = put(unwritable, PreserveLevel::Required);
        found.sort_by(|one, other| one.1.cmp(&other.1));
        assert_eq!(found, ["user.one", "user.two"].map(refused));
        assert_eq!(put(unwritable, PreserveLevel::BestEffort), []);
    });
}

#[test]
fn a_list_that_grew_and_a_long_value_are_read() {
    let mut buffer = vec![0; 4];
    let mut calls = 0;
    let value = file_handle::read(&mut buffer, |buffer| {
        calls += 1;
        match buffer.get_mut(..60_000) {
            Some(place) => place.fill(7),
            None => return Err(Errno::RANGE),
        }
        Ok(60_000)
    });
    assert_eq!(value.map(<[u8]>::len), Ok(60_000));
    assert_eq!(calls, 2);
    let gone = file_handle::read(&mut buffer, |_| Err(Errno::NODATA));
    assert_eq!(gone, Err(Errno::NODATA));
}

#[test]
fn a_link_is_changed_itself() {
    check_link(|_| {});
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn owner_and_attributes_of_a_link_are_its_own() {
    check_link(|source| {
        set_attribute(source, "trusted.x", b"1");
        let (user, group) = (Uid::from_raw(12), Gid::from_raw(34));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(CWD, source, Some(user), Some(group), flags).unwrap();
    });
}

/// Preserves the metadata of a link after `make_special` has changed it.
fn check_link(make_special: impl FnOnce(&Path)) {
    let folder = scratch();
    let target = file(folder.path(), "target", 0o640);
    let [source, dest] = ["l", "m"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("nowhere", &source).unwrap();
    std::os::unix::fs::symlink("target", &dest).unwrap();
    make_special(&source);
    let before = stat(&target);
    assert_eq!(put_named(&source, &dest, Creation::new(0o777), &all()), []);
    let (old, new) = (stat(&source), stat(&dest));
    assert_eq!((old.st_uid, old.st_gid), (new.st_uid, new.st_gid));
    assert_eq!(old.st_mtime_nsec, new.st_mtime_nsec);
    assert_eq!(
        attribute(&source, "trusted.x"),
        attribute(&dest, "trusted.x")
    );
    let after = stat(&target);
    assert_eq!(
        (before.st_mtime_nsec, before.st_mode, before.st_uid),
        (after.st_mtime_nsec, after.st_mode, after.st_uid)
    );
}

#[test]
fn a_folder_that_may_not_be_entered_gives_its_mode() {
    let folder = scratch();
    as_ordinary_user(|| {
        let [source, dest] = ["d", "e"].map(|name| folder.path().join(name));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&dest).unwrap();
        fs::set_permissions(&source, Permissions::from_mode(0o070)).unwrap();
        let pointed = OFlags::PATH | OFlags::DIRECTORY;
        let source_fd = rustix::fs::open(&source, pointed, Mode::empty()).unwrap();
        let dest_fd = File::open(&dest).unwrap();
        let from = MetadataTarget::Named(source_fd.as_fd(), c".");
        let to = MetadataTarget::Open(dest_fd.as_fd());
        let (stat, wishes) = (
            stat(&source),
            wishes(|to| to.mode = PreserveLevel::Required),
        );
        let creation = Creation::new(0o700);
        let found = preserve(from, &stat, to, creation, &wishes, &ordinary_process());
        assert_eq!(found, []);
        assert_eq!(mode(&dest), 0o070);
    });
    let here = MetadataTarget::Named(CWD, c".");
    assert!(FileHandle::on_source(here, &stat(Path::new("."))).is_ok());
}

#[test]
fn a_fifo_gets_all_without_being_opened() {
    let folder = scratch();
    let [source, dest] = ["p", "q"].map(|name| folder.path().join(name));
    for (path, mode) in [(&source, 0o642), (&dest, 0o600)] {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    set_attribute(&source, ACCESS, &list(6));
    assert_eq!(put_named(&source, &dest, Creation::new(0o600), &all()), []);
    assert_eq!(
        (mode(&dest), attribute(&dest, ACCESS)),
        (0o660, Some(list(6)))
    );
    assert_eq!(stat(&dest).st_mtime_nsec, stat(&source).st_mtime_nsec);
}

#[test]
fn another_file_in_the_place_of_the_copy_is_left_alone() {
    let folder = scratch();
    let [source, dest] = ["p", "q"].map(|name| folder.path().join(name));
    rustix::fs::mknodat(CWD, &source, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let victim = file(folder.path(), "victim", 0o600);
    fs::hard_link(&victim, &dest).unwrap();
    let stale = |found: Vec<Problem>| {
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&found[0].kind, found[0].errno),
            (&ProblemKind::Replaced, Some(Errno::STALE))
        );
    };
    stale(put_named(&source, &dest, Creation::new(0o600), &all()));
    assert_eq!(mode(&victim), 0o600);

    // Of the same kind, but with a second name elsewhere.
    let [source, dest] = ["l", "m"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("nowhere", &source).unwrap();
    fs::hard_link(&source, &dest).unwrap();
    stale(put_named(&source, &dest, Creation::new(0o777), &all()));
}
