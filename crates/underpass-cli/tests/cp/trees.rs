//! Trees with names, modes and links of every kind.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::XattrFlags;

use crate::copying::{CopyReport, cp, file, moved, names, set_mode, tree, underpass};
use underpass_testkit::{ChildProcess, assert_same_files, disk_folder, run};

#[test]
fn parents_that_were_there_keep_their_metadata_and_new_ones_get_it() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("from/etc/new")).expect("folders");
    for name in ["f", "new/g", "new/h"] {
        file(&path("from/etc").join(name), 1, 10);
    }
    set_mode(&path("from/etc"), 0o700);
    set_mode(&path("from/etc/new"), 0o710);
    fs::create_dir_all(path("to/etc")).expect("folders");
    set_mode(&path("to/etc"), 0o755);
    let mut cp = underpass();
    cp.args(["-a", "--parents", "etc/f", "etc/new/g", "etc/new/h"]);
    run(cp.arg(path("to")).current_dir(path("from"))).assert_success();
    let look = |name: &str| fs::metadata(path(name)).expect("a folder");
    let mode = |name: &str| look(name).permissions().mode() & 0o7777;
    assert_eq!(mode("to/etc"), 0o755);
    assert_ne!(look("to/etc").mtime_nsec(), look("from/etc").mtime_nsec());
    assert_eq!(mode("to/etc/new"), 0o710);
    let times = |name: &str| (look(name).mtime(), look(name).mtime_nsec());
    assert_eq!(times("to/etc/new"), times("from/etc/new"));
}

#[test]
fn a_preserved_mode_is_the_sources_in_a_set_group_folder_too() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    for (name, mode) in [("source", 0o755), ("into", 0o2775)] {
        fs::create_dir(path(name)).expect("a folder");
        set_mode(&path(name), mode);
    }
    cp(&["-a"], &[path("source"), path("into")]).succeeded();
    let copied = fs::metadata(path("into/source")).expect("a copy");
    assert_eq!(copied.permissions().mode() & 0o7777, 0o755);
    cp(&["-rT"], &[path("source"), path("into/plain")]).succeeded();
    let copied = fs::metadata(path("into/plain")).expect("a copy");
    assert_eq!(copied.permissions().mode() & 0o7777, 0o2755);
}

#[test]
fn a_file_that_a_hard_link_replaces_is_reported_as_removed() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("from")).expect("a folder");
    fs::create_dir_all(path("to")).expect("a folder");
    file(&path("from/x"), 1, 10);
    fs::hard_link(path("from/x"), path("from/b")).expect("a name");
    file(&path("to/b"), 2, 20);
    let both = [path("from/x"), path("from/b"), path("to")];
    let ran = cp(&["-dv", "--jobs=1", "--preserve=links"], &both).succeeded();
    let removed = format!("removed '{}'", path("to/b").display());
    assert_eq!(ran.output.lines().last(), Some(&*removed), "{}", ran.output);
}

#[test]
fn a_folder_that_would_be_its_own_copy_is_refused_the_second_time_too() {
    let folder = disk_folder();
    fs::create_dir(folder.path().join("src")).expect("a folder");
    let mut cp = underpass();
    cp.args(["-an", "src", "src", "."])
        .current_dir(folder.path());
    run(&mut cp).assert_failed(1, &["cannot copy a directory, 'src', into itself, './src'"]);
}

#[test]
fn names_of_any_bytes_are_copied_and_shown_harmless() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("source")).expect("a folder");
    let odd: [&[u8]; 8] = [
        b"new\nline",
        b"\xff\xfe",
        b"-rf",
        b" ",
        b"it's \"quoted\" \\n",
        b"\x1b[31mred",
        &[b'x'; 255],
        "ñ\u{301}".as_bytes(),
    ];
    for (seed, name) in (1..).zip(odd) {
        file(&path("source").join(OsStr::from_bytes(name)), seed, 100);
    }
    let ran = cp(&["-rTv", "-j2"], &[path("source"), path("dest")]).succeeded();
    assert!(tree(&path("source")) == tree(&path("dest")));
    assert_eq!(
        ran.output.lines().count(),
        odd.len() + 1,
        "a line each: {}",
        ran.output
    );
    assert!(!ran.output.contains('\x1b'), "{}", ran.output);
    let ran = cp(&["-rT", "--json"], &[path("source"), path("json")]).succeeded();
    let reported: HashSet<Vec<u8>> = ran
        .objects()
        .iter()
        .filter(|object| object["kind"] == "file")
        .map(|object| match object["source_hex"].as_str() {
            Some(hex) => (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits"))
                .collect(),
            None => object["source"]
                .as_str()
                .expect("a name")
                .as_bytes()
                .to_vec(),
        })
        .map(|path: Vec<u8>| {
            path[path.iter().rposition(|byte| *byte == b'/').unwrap() + 1..].to_vec()
        })
        .collect();
    assert_eq!(reported, odd.map(<[u8]>::to_vec).into_iter().collect());
}

#[test]
fn folders_that_are_read_only_are_filled() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("source/a/b")).expect("folders");
    file(&path("source/a/b/file"), 1, 1000);
    set_mode(&path("source/a/b/file"), 0o400);
    for name in ["source/a/b", "source/a", "source"] {
        set_mode(&path(name), 0o555);
    }
    for options in [&["-r"][..], &["-a"], &["-a", "-j8", "--atomic"]] {
        cp(options, &[path("source"), path("dest")]).succeeded();
        assert!(tree(&path("source")) == tree(&path("dest")), "{options:?}");
        for name in ["dest", "dest/a", "dest/a/b"] {
            set_mode(&path(name), 0o755);
        }
        fs::remove_dir_all(path("dest")).expect("ours");
    }
    for name in ["source", "source/a", "source/a/b"] {
        set_mode(&path(name), 0o755);
    }
}

#[test]
fn the_umask_takes_what_it_takes_from_new_files_alone() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("source")).expect("a folder");
    for mode in [0o777, 0o666, 0o640, 0o444] {
        let name = path(&format!("source/{mode:o}"));
        file(&name, 1, 10);
        set_mode(&name, mode);
    }
    set_mode(&path("source"), 0o777);
    for (umask, options, kept) in [
        (0o022, "-rT", 0o755),
        (0o077, "-rT", 0o700),
        (0o027, "-rT --atomic", 0o750),
        (0o000, "-rT --atomic", 0o777),
        (0o077, "-aT", 0o777),
    ] {
        let script = format!("umask {umask:o}; exec \"$0\" cp {options} \"$1\" \"$2\"");
        let dest = path(&format!("{umask:o}{options}").replace(' ', ""));
        let tool = env!("CARGO_BIN_EXE_underpass");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script, tool])
            .arg(path("source"))
            .arg(&dest);
        assert!(shell.status().expect("starts").success());
        let mode = |name: &str| {
            let metadata = fs::metadata(dest.join(name)).expect("there");
            metadata.permissions().mode() & 0o7777
        };
        assert_eq!(mode("."), kept, "{umask:o} {options}");
        for name in [0o777, 0o666, 0o640, 0o444] {
            let expected = name & kept;
            assert_eq!(mode(&format!("{name:o}")), expected, "{umask:o} {options}");
        }
    }
}

/// A default access control list whose owner, group and others may read and enter, not write.
const READ_ONLY_LIST: &[u8] = &[
    2, 0, 0, 0, 1, 0, 5, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255,
    255, 255, 255,
];

/// As GNU's since 9.10, also where the copy is made by an ordinary user.
#[test]
fn folders_are_filled_and_have_their_modes_where_the_umask_takes_bits_of_the_owner() {
    let root = rustix::process::geteuid().is_root();
    let users = [Some(65_534)].into_iter().filter(|_| root).chain([None]);
    for user in users {
        for (umask, options, list, kept) in [
            (0o222, "-r", false, 0o1555),
            (0o333, "-r", false, 0o1444),
            (0o700, "-r", false, 0o1077),
            (0o777, "-r", false, 0o1000),
            (0o222, "-r --preserve=ownership", false, 0o1555),
            (0o700, "-r --preserve=ownership", false, 0o1077),
            (0o333, "-r --preserve=timestamps", false, 0o1444),
            (0o700, "-r --no-preserve=mode", false, 0o1077),
            (0o777, "-a", false, 0o1777),
            (0o222, "-r --parents", false, 0o1555),
            (0o700, "-r --parents --preserve=ownership", false, 0o1077),
            (0o777, "-a --parents", false, 0o1777),
            (0o777, "-r", true, 0o1555),
            (0o777, "-r --parents", true, 0o1555),
        ] {
            let folder = disk_folder();
            let path = |name: &str| folder.path().join(name);
            fs::create_dir_all(path("source/a/b")).expect("folders");
            file(&path("source/a/b/file"), 1, 10);
            fs::create_dir(path("dest")).expect("a folder");
            for name in ["source/a/b", "source/a"] {
                // What others write to is not theirs to remove.
                set_mode(&path(name), 0o1777);
            }
            set_mode(&path("dest"), 0o777);
            if list {
                let (name, flags) = ("system.posix_acl_default", XattrFlags::empty());
                rustix::fs::setxattr(path("dest"), name, READ_ONLY_LIST, flags).expect("a list");
            }
            let script = format!("umask {umask:o}; exec \"$0\" cp {options} source/a dest");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_underpass")]);
            set_mode(folder.path(), 0o755);
            user.map(|user| shell.uid(user).gid(user));
            let case = format!("{umask:o} {options} {list} {user:?}");
            let ran = run(shell.current_dir(folder.path()));
            assert_eq!((ran.code, &*ran.errors), (Some(0), ""), "{case}");
            let top = match path("dest/source").exists() {
                true => ["dest/source", "dest/source/a", "dest/source/a/b"].as_slice(),
                false => &["dest/a", "dest/a/b"],
            };
            for name in top {
                let mode = fs::metadata(path(name)).expect(name).permissions().mode() & 0o7777;
                if name.ends_with(['a', 'b']) {
                    assert_eq!(mode, kept, "{case} {name}");
                }
                set_mode(&path(name), 0o755);
            }
            let copied = path(top[top.len() - 1]).join("file");
            set_mode(&copied, 0o644);
            assert_same_files(&path("source/a/b/file"), &copied);
        }
    }
}

#[test]
fn names_of_one_file_in_a_thousand_folders_stay_names_of_one_file() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    for number in 0..1000 {
        let below = path(&format!("source/{number}"));
        fs::create_dir_all(&below).expect("folders");
        if number == 0 {
            file(&path("source/0/name"), 1, 100_000);
        } else {
            fs::hard_link(path("source/0/name"), below.join("name")).expect("a name");
        }
    }
    for (jobs, options) in [("-j8", "-a"), ("-j8", "-r")] {
        let dest = path("dest");
        let links = "--preserve=links";
        let ran = cp(
            &[options, jobs, links, "--json"],
            &[path("source"), dest.clone()],
        );
        let summary = ran.succeeded().objects().pop().expect("a summary");
        assert_eq!(summary["hard_links"], 999);
        assert_eq!(summary["files"], 1);
        assert_eq!(moved(&summary), 100_000, "copied once");
        let metadata = fs::metadata(dest.join("0/name")).expect("there");
        assert_eq!(metadata.nlink(), 1000);
        let inode = |number| {
            fs::metadata(dest.join(format!("{number}/name")))
                .expect("there")
                .ino()
        };
        assert!(
            (0..1000).all(|number| inode(number) == metadata.ino()),
            "{options} {jobs}"
        );
        fs::remove_dir_all(&dest).expect("ours");
    }
    cp(&["-r"], &[path("source"), path("apart")]).succeeded();
    let apart = fs::metadata(path("apart/7/name")).expect("there");
    assert_eq!(apart.nlink(), 1, "where nobody asked for links");
}

/// As in GNU cp: other names of the source become links to the kept file, which may be a symlink.
#[test]
fn names_of_a_file_that_is_kept_because_it_is_newer_become_names_of_that() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("source/d")).expect("folders");
    file(&path("source/d/name"), 1, 100);
    fs::hard_link(path("source/d/name"), path("source/other")).expect("a name");
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    let source = File::options().write(true).open(path("source/other"));
    source
        .and_then(|source| source.set_modified(long_ago))
        .expect("an old file");
    for (round, options) in [&["-au"][..], &["-au", "--atomic"], &["-au", "-j8"]]
        .into_iter()
        .enumerate()
    {
        for (number, leads_to) in [None, Some("kept"), Some("../kept")]
            .into_iter()
            .enumerate()
        {
            let dest = path(&format!("dest-{round}-{number}"));
            fs::create_dir_all(dest.join("d")).expect("folders");
            file(&dest.join("kept"), 2, 100);
            file(&dest.join("d/kept"), 2, 100);
            let kept = dest.join("d/name");
            match leads_to {
                None => drop(file(&kept, 2, 100)),
                Some(leads_to) => symlink(leads_to, kept).expect("a link"),
            }
            let contents = path("source/.");
            cp(options, &[contents, dest.clone()]).succeeded();
            let inode = |name: &str| fs::symlink_metadata(dest.join(name)).expect("there").ino();
            assert_eq!(inode("d/name"), inode("other"), "{options:?} {leads_to:?}");
            assert_ne!(inode("d/name"), inode("kept"), "{options:?} {leads_to:?}");
        }
    }
}

#[test]
fn a_tree_can_be_copied_from_within_and_onto_itself_it_can_not() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("source/below")).expect("folders");
    file(&path("source/file"), 1, 100);
    cp(&["-r"], &[path("source"), path("source/below")])
        .failed_with(&["cannot copy a directory", "into itself"]);
    assert!(
        !path("source/below/source/below/source").exists(),
        "and no further"
    );
    let mut command = underpass();
    command
        .args(["-r", ".", "../dest"])
        .current_dir(path("source"));
    assert_eq!(ChildProcess::spawn(&mut command).end().code, Some(0));
    assert_eq!(names(&path("dest")), ["below", "file"]);
    let before = tree(&path("source"));
    cp(&[], &[path("source/file"), path("source/file")]).failed_with(&["are the same file"]);
    assert!(tree(&path("source")) == before);
}

/// As in GNU cp, which opens one folder after the other.
#[test]
fn a_folder_of_two_operands_is_refused_by_the_name_of_its_copy() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    for name in ["one", "dest"] {
        fs::create_dir(path(name)).expect("a folder");
    }
    let [one, again, dest] = ["one", "one/.", "dest"].map(path);
    let message = format!(
        "will not create hard link '{}' to directory '{}'",
        dest.join(".").display(),
        dest.join("one").display()
    );
    cp(&["-r"], &[one, again, dest]).failed_with(&[&message]);
}

#[test]
fn few_descriptors_are_enough_for_a_deep_tree() {
    let folder = disk_folder();
    let path = |name: &str| folder.path().join(name);
    let mut deepest = path("deep");
    for level in 0..500 {
        fs::create_dir(&deepest).expect("room");
        fs::write(deepest.join("file"), format!("level {level}")).expect("room");
        fs::create_dir(deepest.join("beside")).expect("room");
        fs::write(deepest.join("beside/file"), "beside").expect("room");
        deepest.push("d");
    }
    for options in ["-r -j1", "-a -j1", "-r -j8", "-a -j8"] {
        let mut limited = Command::new("sh");
        let script = format!("ulimit -n 64; exec \"$0\" cp {options} deep copy");
        let program = env!("CARGO_BIN_EXE_underpass");
        let limited = limited
            .args(["-c", &script, program])
            .current_dir(folder.path());
        run(limited).assert_success();
        run(Command::new("diff")
            .args(["-r", "deep", "copy"])
            .current_dir(folder.path()))
        .assert_success();
        fs::remove_dir_all(path("copy")).expect("ours");
    }
}

/// GNU's test abuse.sh: a copy would write to the target of a link made for an earlier operand.
#[test]
fn nothing_is_copied_through_a_link_that_was_just_made() {
    for leads_to in ["nowhere", "there"] {
        let folder = disk_folder();
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b", "c"] {
            fs::create_dir(path(name)).expect("room");
        }
        std::os::unix::fs::symlink(format!("../{leads_to}"), path("a/1")).expect("a link");
        fs::write(path("b/1"), "payload").expect("room");
        fs::write(path("there"), "kept").expect("room");
        for options in [&["-dR", "-j1"][..], &["-dR", "-j4"], &["-dR", "--atomic"]] {
            let ran = cp(options, &[path("a/1"), path("b/1"), path("c")]);
            let (from, through) = (path("b/1"), path("c/1"));
            let (from, through) = (from.display(), through.display());
            let said = format!("will not copy '{from}' through just-created symlink '{through}'");
            ran.failed_with(&[&said]);
            assert!(!path("nowhere").exists());
            assert_eq!(fs::read_to_string(path("there")).expect("there"), "kept");
            fs::remove_file(path("c/1")).expect("ours");
        }
    }
}

/// Returns an access control list of three entries.
fn list_of(mode: u32) -> Vec<u8> {
    let entry = |tag: u8, bits: u32| [tag, 0, (bits & 7) as u8, 0, 255, 255, 255, 255];
    let entries = [entry(1, mode >> 6), entry(4, mode >> 3), entry(32, mode)];
    [&[2, 0, 0, 0], entries.as_flattened()].concat()
}

/// As GNU's since 9.10: without the mode of its original, a folder above a copy has the permissions
/// that `mkdir(2)` gives in its place, and the sticky bit does not go into a set-group folder.
#[test]
fn new_folders_have_the_modes_that_their_place_gives() {
    const PARENTS: &str = "-r --parents source/a";
    const NO_MODE: &str = "-r --no-preserve=mode --parents source/a";
    const OWNER: &str = "-r --preserve=ownership --no-preserve=mode --parents source/a";
    const TREE: &str = "-r --no-preserve=mode source";
    for (umask, list, arguments, source, dest, expected) in [
        (0o022, None, NO_MODE, 0o1777, 0o755, 0o755),
        (0o022, None, NO_MODE, 0o1777, 0o2755, 0o2755),
        (0o333, None, NO_MODE, 0o1700, 0o755, 0o444),
        (0o000, Some(0o755), NO_MODE, 0o755, 0o755, 0o755),
        (0o022, Some(0o777), NO_MODE, 0o500, 0o755, 0o777),
        (0o000, Some(0o654), NO_MODE, 0o755, 0o2755, 0o2654),
        (0o000, Some(0o755), PARENTS, 0o777, 0o755, 0o755),
        (0o022, Some(0o777), PARENTS, 0o777, 0o755, 0o777),
        (0o333, Some(0o777), PARENTS, 0o1777, 0o755, 0o1777),
        (0o700, Some(0o654), PARENTS, 0o777, 0o755, 0o654),
        (0o022, None, PARENTS, 0o777, 0o755, 0o755),
        (0o000, Some(0o755), OWNER, 0o570, 0o755, 0o775),
        (0o022, Some(0o777), OWNER, 0o570, 0o755, 0o757),
        (0o333, Some(0o777), OWNER, 0o755, 0o755, 0o766),
        (0o333, None, OWNER, 0o1777, 0o755, 0o444),
        (0o022, None, TREE, 0o1777, 0o755, 0o1755),
        (0o022, None, TREE, 0o1777, 0o2755, 0o2755),
    ] {
        let folder = disk_folder();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("source")).expect("a folder");
        fs::create_dir(path("dest")).expect("a folder");
        file(&path("source/a"), 1, 10);
        set_mode(&path("source"), source);
        set_mode(&path("dest"), dest);
        if let Some(mode) = list {
            let (name, flags) = ("system.posix_acl_default", XattrFlags::empty());
            rustix::fs::setxattr(path("dest"), name, &list_of(mode), flags).expect("a list");
        }
        let script = format!("umask {umask:o}; exec \"$0\" cp {arguments} dest");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_underpass")]);
        let case = format!("{umask:o} {list:?} {arguments} {source:o} {dest:o}");
        let ran = run(shell.current_dir(folder.path()));
        assert_eq!((ran.code, &*ran.errors), (Some(0), ""), "{case}");
        let made = fs::metadata(path("dest/source")).expect("made");
        let mode = made.permissions().mode() & 0o7777;
        assert_eq!(mode, expected, "{case}: {mode:o}, not {expected:o}");
        set_mode(&path("source"), 0o755);
        set_mode(&path("dest/source"), 0o755);
    }
}
