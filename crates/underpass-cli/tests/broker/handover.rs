//! SIGUSR2: a new process takes over the listeners, and the data folder once it is synced.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::process::{Pid, Signal, kill_process};
use underpass_testkit::{assert_contains, disk_folder, wait_until};

use crate::server::{BINARY, Broker};
use crate::support::batch::batch;
use crate::support::client::{Client, encoded, fetch_request, framed, produce_request};

const TOPIC: &str = "handed-over";
const UPGRADES: usize = 3;

/// Responses that are more than the buffers of a connection.
const UNREAD: usize = 60;

/// Produces until it is told to end. Every connection is accepted and answered; a connection that
/// ends in between is made again, and the batch without an answer sent again. Returns the number
/// of answered batches and of repeated ones.
fn produce(broker: SocketAddr, ends: &AtomicBool) -> (i64, i64) {
    let mut client = Client::connect(broker);
    let request = produce_request(-1, &[(TOPIC, 0, Some(batch(1, 100)))]);
    let frame = framed(&encoded(9, &request));
    let (mut answered, mut repeated, mut is_new) = (0, 0, true);
    while !ends.load(Ordering::Relaxed) {
        if client.try_write(&frame).is_ok() && client.receive().is_some() {
            (answered, is_new) = (answered + 1, false);
        } else {
            assert!(!is_new, "a new connection is answered");
            client = Client::connect(broker);
            (repeated, is_new) = (repeated + 1, true);
        }
    }
    (answered, repeated)
}

#[test]
fn an_upgrade_under_load_loses_nothing_and_a_client_repeats_one_request() {
    let mut broker = Broker::start(&[]);
    let mut client = broker.connect();
    client.create_topic(TOPIC);
    let ends = Arc::new(AtomicBool::new(false));
    let (address, told) = (broker.address(), Arc::clone(&ends));
    let producer = thread::spawn(move || produce(address, &told));
    let mut count = 0;
    let mut grows = |client: &mut Client| {
        let before = count;
        wait_until("load", || {
            let fetched = client.fetch(TOPIC, 0, before);
            count = fetched.responses[0].partitions[0].high_watermark;
            count > before + 20
        });
    };
    let first = broker.pid();
    for _ in 0..UPGRADES {
        grows(&mut client);
        broker.upgrade();
        client = broker.connect();
    }
    grows(&mut client);
    assert_ne!(broker.pid(), first);
    ends.store(true, Ordering::Relaxed);
    let (answered, repeated) = producer.join().unwrap();
    assert_eq!(repeated, i64::try_from(UPGRADES).unwrap());
    let end = client.fetch(TOPIC, 0, 0).responses[0].partitions[0].high_watermark;
    // A batch whose answer was cut off may have been written.
    assert!(
        (answered..=answered + repeated).contains(&end),
        "{answered} {repeated} {end}"
    );
    let (report, folder) = broker.stop();
    report.assert_clean();
    assert_contains(&report.output, &["stopped: all is synced"]);
    assert!(folder.path().join("data/.kafka_cleanshutdown").exists());
}

#[test]
fn an_upgrade_with_wrong_options_changes_nothing() {
    let folder = disk_folder();
    let config = folder.path().join("broker.toml");
    fs::write(&config, "").unwrap();
    let path = config.to_str().unwrap().to_owned();
    let mut broker = Broker::start_in(folder, &["--config", &path]);
    let mut client = broker.connect();
    client.create_topic(TOPIC);
    let pid = broker.pid();
    for wrong in ["node-id = \"x\"\n", "topics = { \"num.partitions\" = 0 }\n"] {
        fs::write(&config, wrong).unwrap();
        broker.signal(Signal::USR2);
        let reported = broker.hear("upgrade failed");
        assert_contains(&reported, &["this process continues to serve"]);
    }
    assert_eq!(client.produce(TOPIC, 0, batch(1, 10)).0, 0);
    fs::write(&config, "").unwrap();
    assert_ne!(broker.upgrade(), pid);
    let fetched = broker.connect().fetch(TOPIC, 0, 0);
    assert_eq!(fetched.responses[0].partitions[0].high_watermark, 1);
    broker.stop();
}

#[test]
fn a_process_that_has_a_successor_says_so_to_signals_and_goes_on_to_end() {
    let mut broker = Broker::start(&[]);
    let mut client = broker.connect();
    client.create_topic(TOPIC);
    assert_eq!(client.produce(TOPIC, 0, batch(1, 1_000_000)).0, 0);
    // A consumer that does not read: the end waits for it.
    let request = framed(&encoded(11, &fetch_request(TOPIC, 0, 0)));
    client.write(&request.repeat(UNREAD));
    let predecessor = broker.hand_over();
    for signal in [Signal::USR2, Signal::HUP] {
        kill_process(predecessor, signal).unwrap();
        broker.hear("signals for a reload or an upgrade go to it");
    }
    drop(client);
    broker.hear("stopped: all is synced");
    broker.hear("serving ");
    let fetched = broker.connect().fetch(TOPIC, 0, 0);
    assert_eq!(fetched.responses[0].partitions[0].high_watermark, 1);
    broker.stop();
}

/// Waits until something reads this FIFO, and returns its other end.
fn opened(fifo: &Path) -> File {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    let mut file = None;
    wait_until("a reader", || {
        file = open(fifo, flags, Mode::empty()).ok();
        file.is_some()
    });
    file.unwrap().into()
}

fn wait_for_end(child: &mut Child) -> Option<i32> {
    let mut status = None;
    wait_until("the end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.signal().or(status.code()))
}

#[test]
fn signals_during_the_start_are_obeyed_after_it_and_those_to_stop_at_once() {
    let folder = disk_folder();
    let (fifo, output) = (
        folder.path().join("options.toml"),
        folder.path().join("output"),
    );
    mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
    for command in ["broker", "serve"] {
        for signal in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::TERM] {
            let mut process = Command::new(BINARY);
            process
                .arg(command)
                .arg(folder.path().join("."))
                .args(["--listen", "127.0.0.1:0", "--config"])
                .arg(&fifo)
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .stdout(File::create(&output).unwrap())
                .stderr(Stdio::null());
            let mut process = process.spawn().unwrap();
            let pid = Pid::from_child(&process);
            let options = opened(&fifo);
            kill_process(pid, signal).unwrap();
            if signal == Signal::TERM {
                assert_eq!(wait_for_end(&mut process), Some(Signal::TERM.as_raw()));
                continue;
            }
            drop(options);
            wait_until("the start", || {
                fs::read_to_string(&output).unwrap().contains("serving ")
            });
            // The configuration is read again, by this process or its successor, and is wrong.
            if signal != Signal::USR1 {
                let options = opened(&fifo);
                fs::write(&fifo, "wrong").unwrap();
                drop(options);
            }
            assert!(process.try_wait().unwrap().is_none());
            kill_process(pid, Signal::TERM).unwrap();
            assert_eq!(wait_for_end(&mut process), Some(0), "{command} {signal:?}");
        }
    }
}
