//! Each failing system call, one at a time: the broker fails to start and says why, or it serves;
//! it neither panics nor hangs, and acknowledged records survive a restart.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::panic::catch_unwind;
use std::process::Stdio;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, ProduceRequest};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use underpass_testkit::{ChildProcess, WAIT_MAX, free_address, in_parallel, strace, wait_for};

use crate::server::{BINARY, Broker};
use crate::support::batch::batch;
use crate::support::client::{
    Client, encoded, fetch_request, framed, produce_request, response_of, topic_name,
};

const TOPICS: [&str; 2] = ["before", "made"];

/// System calls, the errnos injected into them, and the invocations that fail (`when` of strace).
const FAULTS: [(&str, &[&str], &[&str]); 14] = [
    (
        "openat",
        &["EMFILE", "EIO", "ENOSPC"],
        &[
            "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "20",
            "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31", "32", "33", "34",
            "35", "36", "37", "38", "39", "40", "41", "42", "43", "44",
        ],
    ),
    (
        "pwritev",
        &["EIO", "ENOSPC"],
        &["1", "2", "3", "5", "9", "3+"],
    ),
    ("pwritev", &["EINTR"], &["1", "2", "3..6"]),
    (
        "fdatasync",
        &["EIO"],
        &["1", "2", "3", "4", "5", "6", "8", "10", "12"],
    ),
    (
        "fsync",
        &["EIO"],
        &["1", "2", "3", "4", "5", "6", "8", "10", "12"],
    ),
    ("ftruncate", &["EIO"], &["1", "2", "3", "4", "6", "8"]),
    (
        "rename",
        &["EIO", "ENOSPC"],
        &["1", "2", "3", "4", "6", "2+"],
    ),
    ("unlink", &["EIO"], &["1", "2", "3"]),
    ("mkdir", &["ENOSPC"], &["1"]),
    ("fallocate", &["ENOSPC", "EOPNOTSUPP"], &["1+"]),
    // The first calls belong to the start of the program.
    ("pread64", &["EIO"], &["4", "5", "4+"]),
    ("sendfile", &["EIO", "EINVAL", "EAGAIN"], &["1", "2", "1+"]),
    ("splice", &["EIO", "EINVAL"], &["1", "2", "1+"]),
    ("clone3", &["EAGAIN"], &["1", "2", "3", "4", "5", "6"]),
];

/// Sends a request on a new connection; returns `None` if the broker closes it or has ended.
fn ask<R: kafka_protocol::protocol::Request>(
    at: SocketAddr,
    version: i16,
    request: &R,
) -> Option<R::Response> {
    // The start may fail even though it already listens.
    let stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let mut client = Client::over(stream);
    client.try_write(&framed(&encoded(version, request))).ok()?;
    client
        .receive()
        .map(|frame| response_of::<R>(version, frame))
}

fn append(at: SocketAddr, topic: &str) -> bool {
    let request = produce_request(-1, &[(topic, 0, Some(batch(1, 100)))]);
    let response = ask::<ProduceRequest>(at, 9, &request);
    response.is_some_and(|it| it.responses[0].partition_responses[0].error_code == 0)
}

fn make(at: SocketAddr, topic: &str) {
    let asked = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![asked]))
        .with_allow_auto_topic_creation(true);
    ask(at, 9, &request);
}

/// Returns whether the fault was injected, and a description of the failure, if any.
fn play(call: &str, errno: &str, when: &str) -> (bool, Option<String>) {
    let (folder, mut counts) = prepared();
    let at = free_address();
    let inject = format!("inject={call}:error={errno}:when={when}");
    let log = folder.path().join("calls");
    let mut tool = strace(&log, &[&format!("trace={call}"), &inject]);
    // With this variable the loader would search many folders for libraries.
    tool.env_remove("LD_LIBRARY_PATH");
    tool.args([BINARY, "broker", "-l", &at.to_string(), "--workers", "1"]);
    let mut process =
        ChildProcess::spawn(tool.arg(folder.path().join("data")).stdin(Stdio::null()));
    let is_up = wait_for("start or end", || {
        let is_up = TcpStream::connect(at).is_ok();
        (is_up || process.is_over()).then_some(is_up)
    });
    if is_up {
        make(at, TOPICS[1]);
        for _ in 0..4 {
            for (topic, count) in TOPICS.iter().zip(&mut counts) {
                *count += usize::from(append(at, topic));
            }
        }
        for topic in TOPICS {
            let request = fetch_request(topic, 0, 0);
            let _may_fail = ask(at, 11, &request);
        }
        let children = format!("/proc/{0}/task/{0}/children", process.id());
        let child = fs::read_to_string(children).unwrap_or_default();
        let child = child.trim().parse().ok().and_then(Pid::from_raw);
        let _gone = child.map(|child| kill_process(child, Signal::TERM));
    }
    let Some(report) = process.try_end() else {
        return (true, Some("it does not end".to_owned()));
    };
    let has_come = fs::read_to_string(&log).unwrap().contains("INJECTED");
    let is_wrong = report.errors.contains("panicked")
        || report.code.is_some_and(|code| code > 1)
        // A start that does not handle signals yet is ended by one.
        || report.signal.is_some_and(|signal| signal != Signal::TERM.as_raw())
        || !is_up && report.errors.is_empty();
    match is_wrong {
        true => (has_come, Some(format!("{report:?}"))),
        false => (has_come, loss(folder, counts)),
    }
}

/// Returns a description of acknowledged records that are missing, or of what no longer works.
fn loss(folder: TempDir, counts: [usize; 2]) -> Option<String> {
    let broker = Broker::start_in(folder, &[]);
    for (topic, count) in TOPICS.iter().zip(counts) {
        let mut client = broker.connect();
        client.create_topic(topic);
        let fetched = client.fetch(topic, 0, 0);
        let partition = &fetched.responses[0].partitions[0];
        let there = partition.records.as_ref().unwrap().len() / batch(1, 100).len();
        // Unacknowledged records may be present, too.
        if there < count {
            return Some(format!("{topic}: {count} acknowledged, {there} there"));
        }
        if client.produce(topic, 0, batch(1, 100)).0 != 0 {
            return Some(format!("{topic} takes nothing any more"));
        }
    }
    let (end, _) = broker.stop();
    (end.code != Some(0)).then(|| format!("{end:?}"))
}

/// Returns a folder whose first topic has one record, left by a broker that was killed.
fn prepared() -> (TempDir, [usize; 2]) {
    let broker = Broker::start(&[]);
    let mut client = broker.connect();
    client.create_topic(TOPICS[0]);
    assert_eq!(client.produce(TOPICS[0], 0, batch(1, 100)).0, 0);
    (broker.kill(), [1, 0])
}

#[test]
#[ignore = "needs strace and a minute; run by cargo xtask test"]
fn a_call_that_fails_loses_nothing_that_was_acknowledged() {
    let cases = FAULTS.iter().flat_map(|(call, errnos, whens)| {
        let errnos = errnos.iter();
        errnos.flat_map(move |errno| whens.iter().map(move |when| (*call, *errno, *when)))
    });
    let cases = Vec::from_iter(cases);
    let outcomes = in_parallel(2, cases.clone(), |_, (call, errno, when)| {
        let outcome = catch_unwind(|| play(call, errno, when));
        outcome.unwrap_or_else(|_| (true, Some("it hangs, or the test fails".to_owned())))
    });
    let came = outcomes.iter().filter(|(has_come, _)| *has_come).count();
    println!("{} cases, the fault came to pass in {came}", cases.len());
    let wrong = cases.iter().zip(&outcomes);
    let wrong =
        wrong.filter_map(|(case, (_, fault))| Some(format!("{case:?}: {}", fault.as_ref()?)));
    let wrong = Vec::from_iter(wrong);
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(came * 10 > cases.len() * 8, "{came} of {}", cases.len());
}
