//! nginx and this server get the same random requests. Each difference must be explained by a rule;
//! a rule that explains nothing is a failure as well.
//!
//! Every case is a connection with a few requests and is repeated by its number:
//! `UNDERPASS_SERVE_SEED` (default 1) and `UNDERPASS_SERVE_CASE`;
//! `UNDERPASS_SERVE_CASES` sets the number of cases to run.

mod exchange;
mod requests;
mod rules;

use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use exchange::{Party, Seen};
use requests::{Asked, request};
use rules::{RULES, differing, explaining};
use underpass_testkit::{Cases, SeededRandom, in_parallel};

use crate::nginx::Nginx;
use crate::support::{Server, make_old, pattern, rows};

/// Number of connections, each with 4.5 requests on average.
const CASES: u64 = 4_600;
const REQUESTS_MAX: usize = 8;
const REQUESTS: u64 = 20_000;
const THREADS: usize = 4;
const FAILURES_SHOWN: usize = 20;
pub(crate) const LARGE: usize = 300_000;
pub(crate) const PAGE: [u8; 8400] = [b'p'; 8400];

const FILES: [&str; 9] = [
    "/f.txt",
    "/large.txt",
    "/page.html",
    "/empty.txt",
    "/dir/",
    "/dir/f.txt",
    "/a\\b;x=1+",
    "/.well-known/x",
    "/probe",
];

/// The results of all cases.
#[derive(Debug, Default)]
struct Played {
    requests: AtomicU64,
    /// The number of differences explained by each rule.
    seen: Vec<AtomicU64>,
    failures: Mutex<Vec<String>>,
}

#[test]
#[ignore = "needs nginx-light; run by cargo xtask test"]
fn every_difference_from_nginx_has_its_rule() {
    let server = site();
    let home = tempfile::tempdir().unwrap();
    let nginx = Nginx::start(&server.site(), home.path(), SAME);
    let cases = Cases::from_env("UNDERPASS_SERVE", CASES);
    let is_whole = cases.numbers == (0..CASES);
    let parties = [
        Party::new(nginx.address, &FILES),
        Party::new(server.address(), &FILES),
    ];
    let played = play(cases, &parties);
    println!("{}", played.report());
    assert!(played.failures.lock().unwrap().is_empty(), "see above");
    if is_whole {
        assert!(played.requests.load(Ordering::Relaxed) >= REQUESTS);
        for (rule, seen) in RULES.iter().zip(&played.seen) {
            assert!(
                seen.load(Ordering::Relaxed) > 0,
                "never seen: {}",
                rule.what
            );
        }
    }
}

/// A harness that reports differences between equal servers is useless.
#[test]
#[ignore = "needs nginx-light; run by cargo xtask test"]
fn nginx_does_what_it_does_and_another_one_is_found_out() {
    let server = site();
    let differences = |more: &str| {
        let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let one = Nginx::start(&server.site(), homes[0].path(), SAME);
        let other = Nginx::start(&server.site(), homes[1].path(), &format!("{SAME} {more}"));
        let parties = [one.address, other.address].map(|address| Party::new(address, &FILES));
        let cases = Cases {
            numbers: 0..300,
            ..Cases::from_env("UNDERPASS_SERVE", CASES)
        };
        let played = play(cases, &parties);
        let explained: u64 = played
            .seen
            .iter()
            .map(|seen| seen.load(Ordering::Relaxed))
            .sum();
        played.failures.lock().unwrap().len() as u64 + explained
    };
    assert_eq!(differences(""), 0);
    for other in [
        "etag off;",
        "max_ranges 1;",
        "merge_slashes off;",
        "if_modified_since before;",
        "keepalive_requests 1;",
        "disable_symlinks on;",
        "error_page 404 =200 /f.txt;",
    ] {
        assert!(differences(other) > 0, "{other} was not seen to differ");
    }
}

#[test]
fn the_page_lists_every_difference_and_no_other() {
    let page = include_str!("../../../../../docs/serve.md");
    let (_, section) = page.split_once("\n## Beside nginx\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let reported = section.lines().filter(|line| line.starts_with("| "));
    let reported: Vec<_> = reported.skip(1).collect();
    let rows: Vec<_> = RULES
        .iter()
        .map(|rule| format!("| {} | {} |", rule.what, rule.why))
        .collect();
    assert_eq!(reported, rows, "{}", rows.join("\n"));
}

/// Makes nginx send the same fields of files as this server.
const SAME: &str = "charset utf-8; default_type application/octet-stream;";

fn site() -> Server {
    let (server, _) = rows::site();
    server.write("large.txt", pattern(LARGE));
    server.write("page.html", PAGE);
    server.write("dir/.x/f", "hidden");
    std::fs::write(server.outside().join("secret.txt"), "secret").unwrap();
    make_old(&server.outside().join("secret.txt"));
    symlink("../secret.txt", server.site().join("out.txt")).unwrap();
    symlink("..", server.site().join("out")).unwrap();
    server
}

fn play(Cases { seed, numbers }: Cases, parties: &[Party; 2]) -> Played {
    let played = Played {
        seen: RULES.iter().map(|_| AtomicU64::new(0)).collect(),
        ..Played::default()
    };
    in_parallel(THREADS, numbers, |_, number| {
        connection(
            SeededRandom::of_case(seed, number),
            number,
            parties,
            &played,
        );
    });
    played
}

/// Runs one case: requests in sequence, on the same connection as long as both servers keep it.
fn connection(mut dice: SeededRandom, number: u64, parties: &[Party; 2], played: &Played) {
    let mut clients = parties.each_ref().map(Party::connect);
    for _ in 0..=dice.below(REQUESTS_MAX) {
        let asked = request(&mut dice);
        let [theirs, ours] = [0, 1].map(|at| parties[at].ask(&mut clients[at], &asked));
        played.judge(number, &asked, &theirs, &ours);
        let is_open = |seen: &Seen| seen.verdict.ends_with(" open");
        if !is_open(&theirs) || !is_open(&ours) {
            clients = parties.each_ref().map(Party::connect);
        }
    }
}

impl Played {
    fn judge(&self, number: u64, asked: &Asked, theirs: &Seen, ours: &Seen) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if theirs == ours {
            return;
        }
        match &explaining(asked, theirs, ours)[..] {
            rules @ [_, ..] => rules.iter().for_each(|rule| {
                self.seen[*rule].fetch_add(1, Ordering::Relaxed);
            }),
            [] => self.failures.lock().unwrap().push(format!(
                "case {number}, {:?} {:?}\n    {}\n    nginx: {}\n    ours:  {}\n    {}",
                asked.delivery,
                asked.oddities,
                asked.text.escape_ascii(),
                theirs.verdict,
                ours.verdict,
                reported(theirs, ours),
            )),
        }
    }

    fn report(&self) -> String {
        let mut report = String::new();
        let failures = self.failures.lock().unwrap();
        for failure in failures.iter().take(FAILURES_SHOWN) {
            writeln!(report, "{failure}").unwrap();
        }
        for (rule, seen) in RULES.iter().zip(&self.seen) {
            writeln!(report, "{:6} {}", seen.load(Ordering::Relaxed), rule.what).unwrap();
        }
        let requests = self.requests.load(Ordering::Relaxed);
        writeln!(
            report,
            "{requests} requests, {} unexplained",
            failures.len()
        )
        .unwrap();
        report
    }
}

fn reported(theirs: &Seen, ours: &Seen) -> String {
    let of = |seen: &Seen, name| seen.details.get(name).cloned().unwrap_or_default();
    differing(theirs, ours)
        .into_iter()
        .map(|name| format!("{name}: {} | {}", of(theirs, name), of(ours, name)))
        .collect::<Vec<_>>()
        .join("; ")
}
