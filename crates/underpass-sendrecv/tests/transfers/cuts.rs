//! Transfers that are cut again and again, and continue.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::spawn;

use underpass_sendrecv::{
    Attributes, Encryption, Item, Secret, Security, Ticket, TransferEvent, pull, push,
};
use underpass_testkit::{content, within};

use super::kit::{CuttingProxy, Folders, items, make_tree, options, receive, send, tree_of};
use crate::completed::CompletedItems;

/// Cuts of each transfer.
const CUTS: u64 = 12;

/// Transfers items through a proxy that cuts connections after at most `bytes_max` bytes, and
/// returns whether the transfer continued where it had been cut.
fn through_cuts(
    folders: &Folders,
    items: &[Item],
    (encryption, waits): (Encryption, &str),
    bytes_max: u64,
) -> bool {
    let waiting = match waits {
        "receiver" => folders.receiver(encryption),
        _ => folders.sender(items, encryption),
    };
    let proxy = CuttingProxy::start(waiting.address(), 3, CUTS, bytes_max);
    let options = options(&waiting.ticket, Some(proxy.address));
    let progress = Arc::default();
    match waits {
        "receiver" => push(&options, items, Attributes::Usual, &progress).unwrap(),
        _ => pull(&options, &folders.target(), &progress).unwrap(),
    }
    waiting.complete();
    assert!(
        CUTS - proxy.left.load(Relaxed) > 2,
        "{encryption:?}, {waits} waits"
    );
    let mut events = progress.take_events().into_iter();
    events.any(|event| matches!(event, TransferEvent::Continued { bytes: 1.., .. }))
}

#[test]
fn a_file_arrives_whole_however_often_the_connection_is_cut() {
    within(|| {
        for encryption in [Encryption::Tls, Encryption::None] {
            for waits in ["receiver", "sender"] {
                let folders = Folders::new();
                let path = folders.from().join("image");
                let body = content(9, 30_000_001);
                fs::write(&path, &body).unwrap();
                let case = (encryption, waits);
                assert!(
                    through_cuts(&folders, &items(&[path]), case, 4_000_000),
                    "{case:?}"
                );
                assert!(
                    fs::read(folders.to().join("image")).unwrap() == body,
                    "{case:?}"
                );
            }
        }
    });
}

#[test]
fn a_tree_arrives_whole_however_often_the_connection_is_cut() {
    within(|| {
        for encryption in [Encryption::Tls, Encryption::None] {
            for waits in ["receiver", "sender"] {
                let folders = Folders::new();
                let tree = folders.from().join("tree");
                make_tree(&tree, 11, 200);
                let items = items(std::slice::from_ref(&tree));
                let case = (encryption, waits);
                assert!(through_cuts(&folders, &items, case, 2_000_000), "{case:?}");
                assert_eq!(
                    tree_of(&folders.to().join("tree")),
                    tree_of(&tree),
                    "{case:?}"
                );
                assert_eq!(fs::read_dir(folders.to()).unwrap().count(), 2, "{case:?}");
            }
        }
    });
}

#[test]
fn a_receiver_that_starts_again_has_the_same_ticket_and_what_had_arrived() {
    within(|| {
        let folders = Folders::new();
        let path = folders.from().join("image");
        let body = content(2, 8_000_000);
        fs::write(&path, &body).unwrap();
        let items = items(&[path]);
        let waiting = folders.receiver(Encryption::Tls);
        let ticket = waiting.ticket.clone();
        // The connection is cut once, and nobody tries again.
        let proxy = CuttingProxy::start(waiting.address(), 1, 1000, 3_000_000);
        let mut once = options(&ticket, Some(proxy.address));
        once.retry_timeout = std::time::Duration::ZERO;
        while proxy.passed.load(Relaxed) < 1_000_000 {
            send(&once, &items).unwrap_err();
        }
        waiting.stop();
        let waiting = folders.receiver(Encryption::Tls);
        assert_eq!(waiting.ticket, ticket);
        let progress = std::sync::Arc::default();
        let attributes = underpass_sendrecv::Attributes::Usual;
        underpass_sendrecv::push(&options(&ticket, None), &items, attributes, &progress).unwrap();
        let continued = progress.take_events().into_iter().any(|event| {
            matches!(
                event,
                underpass_sendrecv::TransferEvent::Continued { bytes: 1.., .. }
            )
        });
        assert!(continued);
        waiting.complete();
        assert!(fs::read(folders.to().join("image")).unwrap() == body);
        // The ticket is used up.
        let waiting = folders.receiver(Encryption::Tls);
        assert_ne!(waiting.ticket, ticket);
        waiting.stop();
    });
}

#[test]
fn a_source_that_changes_between_two_attempts_is_sent_from_its_start() {
    within(|| {
        for encryption in [Encryption::Tls, Encryption::None] {
            let folders = Folders::new();
            let path = folders.from().join("image");
            fs::write(&path, content(2, 8_000_000)).unwrap();
            let all = items(std::slice::from_ref(&path));
            let waiting = folders.receiver(encryption);
            let proxy = CuttingProxy::start(waiting.address(), 1, 1000, 3_000_000);
            let mut once = options(&waiting.ticket, Some(proxy.address));
            once.retry_timeout = std::time::Duration::ZERO;
            while proxy.passed.load(Relaxed) < 1_000_000 {
                send(&once, &all).unwrap_err();
            }
            let body = content(3, 7_000_000);
            fs::write(&path, &body).unwrap();
            send(&options(&waiting.ticket, None), &all).unwrap();
            waiting.complete();
            assert!(fs::read(folders.to().join("image")).unwrap() == body);
        }
    });
}

#[test]
fn items_that_are_complete_are_neither_sent_again_nor_in_the_way() {
    within(|| {
        for waits in ["receiver", "sender"] {
            let folders = Folders::new();
            let tree = folders.from().join("tree");
            fs::create_dir_all(tree.join(".git")).unwrap();
            fs::write(tree.join(".git/config"), "hidden").unwrap();
            let (one, big) = (folders.from().join("one"), folders.from().join("big"));
            fs::write(&one, "first").unwrap();
            let body = content(8, 20_000_000);
            fs::write(&big, &body).unwrap();
            let items = items(&[one, tree.clone(), big]);
            let start = || match waits {
                "receiver" => folders.receiver(Encryption::None),
                _ => folders.sender(&items, Encryption::None),
            };
            let waiting = start();
            let ticket = waiting.ticket.clone();
            let run = |to| {
                let mut once = options(&ticket, to);
                once.retry_timeout = std::time::Duration::ZERO;
                match waits {
                    "receiver" => send(&once, &items),
                    _ => receive(&once, &folders.target()),
                }
            };
            let proxy = CuttingProxy::start(waiting.address(), 6, 1000, 9_000_000);
            // Both sides end after some items are complete.
            while !folders.to().join("tree").exists() {
                run(Some(proxy.address)).unwrap_err();
            }
            waiting.stop();
            let waiting = start();
            assert_eq!(waiting.ticket, ticket);
            run(None).unwrap();
            waiting.complete();
            assert_eq!(
                tree_of(&folders.to().join("tree")),
                tree_of(&tree),
                "{waits} waits"
            );
            assert!(fs::read(folders.to().join("big")).unwrap() == body);
        }
    });
}

/// A proxy that cuts the first connection on which the receiver reports that it has stored
/// something, instead of passing that on.
fn losing_proxy(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_lost = Arc::new(AtomicBool::new(false));
    spawn(move || {
        // The test ends with the second connection.
        for client in listener.incoming().take(2) {
            let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
            let (mut asking, mut asked) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            spawn(move || {
                let _ = std::io::copy(&mut asking, &mut asked);
                let _ = asked.shutdown(Shutdown::Write);
            });
            let is_lost = Arc::clone(&is_lost);
            spawn(move || lose_stored((server, client), &is_lost));
        }
    });
    address
}

fn lose_stored((mut server, mut client): (TcpStream, TcpStream), is_lost: &AtomicBool) {
    let mut said = vec![0; 32 << 10];
    while let Ok(count @ 1..) = server.read(&mut said) {
        let said = &said[..count];
        let is_stored = said.windows(12).any(|words| words == b"HTTP/1.1 201");
        if is_stored && !is_lost.swap(true, Relaxed) {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
            return;
        }
        if client.write_all(said).is_err() {
            return;
        }
    }
    let _ = client.shutdown(Shutdown::Write);
}

#[test]
fn a_sender_that_has_lost_the_last_response_asks_again() {
    within(|| {
        let folders = Folders::new();
        let path = folders.from().join("image");
        fs::write(&path, content(9, 300_000)).unwrap();
        let waiting = folders.receiver(Encryption::None);
        let proxy = losing_proxy(waiting.address());
        send(&options(&waiting.ticket, Some(proxy)), &items(&[path])).unwrap();
        waiting.complete();
        assert!(fs::read(folders.to().join("image")).unwrap() == content(9, 300_000));
    });
}

#[test]
fn a_receiver_that_has_everything_needs_no_sender() {
    within(|| {
        let folders = Folders::new();
        let nobody = Ticket {
            security: Security::Plain,
            secret: Secret::of([1; 16]),
            port: 1,
            addresses: vec!["127.0.0.1".parse().unwrap()],
        };
        let failed = receive(&options(&nobody, None), &folders.target()).unwrap_err();
        assert_eq!(failed.exit_code(), 7);
        let complete = CompletedItems::open(&folders.target().state);
        complete.add("image".to_owned(), "300000".to_owned());
        complete.mark_all();
        receive(&options(&nobody, None), &folders.target()).unwrap();
    });
}
