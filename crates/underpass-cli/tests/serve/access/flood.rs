//! A flood of wrong passwords, and a user whose login is remembered: every request of that user is
//! served, and the latency is printed.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;
use underpass_testkit::{
    HttpClient, ServerProcess, WAIT_MAX, assert_same, content, run_with_input, wait_until,
};

use crate::support::underpass;

/// Wrong passwords per second.
const WRONG_RATE: u32 = 500;
/// Wrong passwords per address, where there are many: as many as one address may try.
const WRONG_PER_ADDRESS: u32 = 10;
/// Connections that one flood has open: more than the number of logins that may wait.
const OPEN_MAX: usize = 256;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);
/// Requests in a round, at least, however busy the machine is.
const REQUESTS_MIN: usize = 500;

/// Memory of one thread for verifying a password at the default cost.
const HASH_BYTES: usize = 19 << 20;
/// Memory for the connections of a flood and the allocator.
const OTHER_BYTES: usize = 32 << 20;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sources {
    Many,
    One,
}

/// The responses to a flood, by status.
#[derive(Debug, Default)]
struct Refusals {
    counts: BTreeMap<u16, u64>,
    bodies: BTreeMap<u16, Vec<u8>>,
}

impl Refusals {
    fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Counts a response; all rejections with one status have the same body.
    fn count(&mut self, client: &mut HttpClient) {
        let response = client.response();
        assert!(matches!(response.status, 401 | 429), "{}", response.head);
        *self.counts.entry(response.status).or_default() += 1;
        let body = self.bodies.entry(response.status);
        assert_same(
            &response.body,
            body.or_insert(response.body.clone()),
            "refusal",
        );
    }
}

fn basic(user: &str, password: &str) -> String {
    let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("GET /f HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {login}\r\n\r\n")
}

/// Sends wrong passwords until it is stopped, alternately for a known and an unknown user, and
/// reads all responses. `first` is the number of the first.
fn flood(server: SocketAddr, sources: Sources, first: u32, stop: &AtomicBool) -> Refusals {
    let (mut refusals, mut open, mut sent) = (Refusals::default(), Vec::new(), 0);
    let begin = Instant::now();
    let mut end = None;
    while end.is_none() || !open.is_empty() {
        if stop.load(Ordering::Relaxed) {
            let end = end.get_or_insert(Instant::now());
            assert!(end.elapsed() < WAIT_MAX, "{} wait still", open.len());
        } else if open.len() < OPEN_MAX
            && begin.elapsed() >= sent * Duration::from_secs(1) / WRONG_RATE
        {
            let number = first + sent;
            let [.., high, low] = (number / WRONG_PER_ADDRESS).to_be_bytes();
            let source = match sources {
                Sources::Many => [127, 2, high, low],
                Sources::One => [127, 3, 0, 1],
            };
            let mut client = HttpClient::connect_from(source, server);
            let user = ["anna", "nobody"][number as usize % 2];
            client.send(basic(user, &number.to_string()));
            open.push(client);
            sent += 1;
        }
        let next = begin + sent * Duration::from_secs(1) / WRONG_RATE;
        let wait = next.saturating_duration_since(Instant::now());
        let wait = wait.max(Duration::from_millis(u64::from(end.is_some())));
        let wait = Timespec::try_from(wait).unwrap();
        let mut wanted: Vec<_> = open
            .iter()
            .map(|client: &HttpClient| PollFd::new(&client.socket, PollFlags::IN))
            .collect();
        poll(&mut wanted, Some(&wait)).unwrap();
        let ready: Vec<_> = wanted.iter().map(|one| !one.revents().is_empty()).collect();
        for at in (0..ready.len()).rev().filter(|&at| ready[at]) {
            refusals.count(&mut open.swap_remove(at));
        }
    }
    refusals
}

/// Returns the p99 of anna's response times in a round; every response is the file.
fn p99(anna: &mut HttpClient, file: &[u8]) -> Duration {
    let (request, begin) = (basic("anna", "right"), Instant::now());
    let mut times = Vec::new();
    while times.len() < REQUESTS_MIN || begin.elapsed() < ROUND {
        assert!(begin.elapsed() < WAIT_MAX, "{} responses", times.len());
        let start = Instant::now();
        anna.send(&request);
        let response = anna.response();
        times.push(start.elapsed());
        assert_eq!(response.status, 200, "{}", response.head);
        assert_same(&response.body, file, "what anna gets");
    }
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Stops a flood when it is dropped, even if the measurement has failed.
struct Stopped<'s>(&'s AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns anna's p99 during a flood, with the responses to the flood.
fn p99_beside(
    server: &ServerProcess,
    sources: Sources,
    first: u32,
    anna: &mut HttpClient,
    file: &[u8],
) -> (Duration, Refusals) {
    let (stop, address) = (AtomicBool::new(false), server.address());
    thread::scope(|scope| {
        let flood = scope.spawn(|| flood(address, sources, first, &stop));
        let stopped = Stopped(&stop);
        let measured = p99(anna, file);
        drop(stopped);
        (measured, flood.join().unwrap())
    })
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Starts a site for anna, whose password has a default hash, with metrics.
fn site(file: &[u8]) -> (TempDir, ServerProcess) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir(root.join("www")).unwrap();
    fs::write(root.join("www/f"), file).unwrap();
    let mut hash = underpass();
    let line = run_with_input(hash.args(["serve", "hash", "anna"]), b"right\n");
    line.assert_success();
    assert!(line.output.contains("$m=19456,t=2,p=1$"), "{}", line.output);
    fs::write(root.join("users"), line.output).unwrap();
    let status = root.join("status");
    let text = format!(
        "listen = ['127.0.0.1:0']\n[status]\nlisten = 'unix:{}'\n[[site]]\nroot = 'www'\n\
         [site.access]\nusers = 'users'\n",
        status.display()
    );
    fs::write(root.join("c.toml"), text).unwrap();
    let mut serve = underpass();
    serve
        .current_dir(root)
        .args(["serve", "--config", "c.toml"]);
    let server = ServerProcess::spawn(&mut serve);
    (folder, server)
}

/// Returns the number of logins with an outcome.
fn logins(folder: &Path, outcome: &str) -> u64 {
    let mut client = HttpClient::connect_unix(&folder.join("status"));
    let metrics = client.get("/metrics");
    let name = format!("underpass_logins_total{{outcome=\"{outcome}\"}} ");
    let mut lines = metrics.text().lines();
    let count = lines.find_map(|line| line.strip_prefix(&name));
    count.unwrap().parse().unwrap()
}

/// Returns the peak resident memory of the server.
fn peak_bytes(server: &ServerProcess) -> usize {
    let status = format!("/proc/{}/status", server.pid().as_raw_nonzero());
    let status = fs::read_to_string(status).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kibibytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kibibytes.parse::<usize>().unwrap() << 10
}

#[test]
#[ignore = "needs a minute; run by cargo xtask test"]
fn a_flood_of_wrong_passwords_refuses_nobody_who_is_in_and_takes_bounded_memory() {
    let file = content(14, 1024);
    let (folder, server) = site(&file);
    let before = server.resident_bytes();
    let mut anna = server.connect();
    anna.send(basic("anna", "right"));
    assert_eq!(anna.response().status, 200, "the login that is remembered");

    let begin = Instant::now();
    let [mut alone, mut many, mut one] = [const { Vec::new() }; 3];
    let (mut refused_many, mut refused_one, mut first) = (0, 0, 0);
    for _ in 0..ROUNDS {
        alone.push(p99(&mut anna, &file));
        let (p99, refusals) = p99_beside(&server, Sources::Many, first, &mut anna, &file);
        many.push(p99);
        refused_many += refusals.total();
        // The next round starts with an unused address.
        first += u32::try_from(refusals.total())
            .unwrap()
            .next_multiple_of(WRONG_PER_ADDRESS);
        let (p99, refusals) = p99_beside(&server, Sources::One, first, &mut anna, &file);
        one.push(p99);
        refused_one += refusals.total();
        first += u32::try_from(refusals.total())
            .unwrap()
            .next_multiple_of(WRONG_PER_ADDRESS);
    }
    let [alone, many, one] = [&mut alone, &mut many, &mut one].map(|times| median(times));
    println!(
        "p99 alone {alone:?}, beside {refused_many} from many addresses {many:?}, beside \
         {refused_one} from one {one:?}"
    );

    // Requests are counted after their responses.
    let all = refused_many + refused_one;
    let counted = || ["wrong", "limited", "busy"].map(|outcome| logins(folder.path(), outcome));
    wait_until("all are counted", || counted().iter().sum::<u64>() >= all);
    let [wrong, limited, busy] = counted();
    assert_eq!(wrong + limited + busy, all);
    assert_eq!(logins(folder.path(), "verified"), 1, "the one of anna");
    // Each of the many addresses stays within its limit; of the single address only that many
    // passwords are verified, and then one every five seconds.
    let allowed = u64::from(WRONG_PER_ADDRESS) + begin.elapsed().as_secs() / 5 + 1;
    assert!(limited <= refused_one, "{limited} of {refused_one}");
    assert!(
        limited + allowed + busy >= refused_one,
        "{limited} {busy} {allowed}"
    );
    assert!(wrong <= refused_many + allowed, "{wrong}");

    let threads = (thread::available_parallelism().unwrap().get() / 2).clamp(1, 4);
    let growth = peak_bytes(&server).saturating_sub(before);
    let bound = threads * HASH_BYTES + OTHER_BYTES;
    assert!(growth <= bound, "{growth} of {bound}");

    server.stop().assert_success();
}
