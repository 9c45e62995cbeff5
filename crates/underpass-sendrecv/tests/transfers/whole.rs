//! Transfers that nothing disturbs.

use std::fs;
use std::path::PathBuf;

use underpass_sendrecv::{Encryption, Error, Existing};
use underpass_testkit::{content, within};

use super::kit::{Folders, items, make_tree, options, receive, send, tree_of};

/// Transfers paths; one side waits for the other.
fn transfer(folders: &Folders, paths: &[PathBuf], (encryption, waits): (Encryption, &str)) {
    let items = items(paths);
    if waits == "receiver" {
        let waiting = folders.receiver(encryption);
        send(&options(&waiting.ticket, None), &items).unwrap();
        waiting.complete();
    } else {
        let waiting = folders.sender(&items, encryption);
        receive(&options(&waiting.ticket, None), &folders.target()).unwrap();
        waiting.complete();
    }
}

#[test]
fn files_arrive_whole_in_both_directions() {
    within(|| {
        for encryption in [Encryption::Tls, Encryption::None] {
            for waits in ["receiver", "sender"] {
                let folders = Folders::new();
                let mut paths = Vec::new();
                for (name, size) in [("empty", 0), ("one", 1), ("big ü%#", 20_000_003)] {
                    let path = folders.from().join(name);
                    fs::write(&path, content(size as u64, size)).unwrap();
                    paths.push(path);
                }
                transfer(&folders, &paths, (encryption, waits));
                let names = |all: std::collections::BTreeMap<String, String>| {
                    let hash = |what: String| what.split(' ').nth(4).unwrap().to_owned();
                    all.into_iter()
                        .map(|(name, what)| (name, hash(what)))
                        .collect::<Vec<_>>()
                };
                let (sent, received) = (tree_of(&folders.from()), folders.received());
                assert_eq!(
                    names(received),
                    names(sent),
                    "{encryption:?}, {waits} waits"
                );
            }
        }
    });
}

#[test]
fn a_tree_arrives_with_modes_times_links_and_holes() {
    within(|| {
        for encryption in [Encryption::Tls, Encryption::None] {
            for waits in ["receiver", "sender"] {
                let folders = Folders::new();
                let tree = folders.from().join("tree");
                make_tree(&tree, 5, 60);
                transfer(&folders, std::slice::from_ref(&tree), (encryption, waits));
                let copy = folders.to().join("tree");
                assert_eq!(
                    tree_of(&copy),
                    tree_of(&tree),
                    "{encryption:?}, {waits} waits"
                );
                let blocks = std::os::unix::fs::MetadataExt::blocks;
                let sparse = fs::metadata(copy.join("sparse")).unwrap();
                assert!(blocks(&sparse) < 1000, "{} blocks", blocks(&sparse));
            }
        }
    });
}

#[test]
fn a_file_that_exists_stays_unless_it_may_be_replaced() {
    within(|| {
        let folders = Folders::new();
        let path = folders.from().join("report");
        fs::write(&path, "new").unwrap();
        fs::write(folders.to().join("report"), "old").unwrap();
        let items = items(&[path]);
        let waiting = folders.receiver(Encryption::Tls);
        let refused = send(&options(&waiting.ticket, None), &items).unwrap_err();
        assert!(refused.to_string().contains("--force"), "{refused}");
        waiting.stop();
        let waiting = folders.sender(&items, Encryption::Tls);
        let mut target = folders.target();
        let refused = receive(&options(&waiting.ticket, None), &target).unwrap_err();
        assert!(matches!(refused, Error::Target { .. }), "{refused}");
        assert_eq!(fs::read(folders.to().join("report")).unwrap(), b"old");
        target.existing = Existing::Replaced;
        receive(&options(&waiting.ticket, None), &target).unwrap();
        waiting.complete();
        assert_eq!(fs::read(folders.to().join("report")).unwrap(), b"new");
    });
}
