//! Copies while an attacker swaps folders and files of both trees for symbolic links to a folder
//! that is not an operand. Both run as root, so that permissions stop neither: nothing in that
//! folder may change, and nothing of it may be copied.

mod arena;
mod attacker;
mod planter;

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use arena::{Arena, Destination};
use attacker::Attack;
use planter::{Ground, Trap};
use underpass_testkit::{ExitReport, WAIT_MAX, run};

/// Ways to copy, each of which gets its share of the time.
const WAYS: [&[&str]; 8] = [
    &["-r", "-j", "1"],
    &["-r", "-j", "4"],
    &["-a", "-j", "1"],
    &["-a", "-j", "4"],
    &["-a", "--atomic", "-j", "1"],
    &["-a", "--atomic", "-j", "4"],
    &["-a", "--remove-destination"],
    &["-r", "-b", "--fsync"],
];

/// Minimum number of copies for each way, with a new destination and with an existing one, and of
/// swaps during them.
const RUNS: usize = 7;
const SWAPS: u64 = 1_000;

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn nothing_is_written_or_read_outside_of_the_operands() {
    let arena = Arena::new();
    let (mut runs, mut begun, mut breaches) = (0, 0, Vec::new());
    let swaps = attacked(&arena, |peace, swaps| {
        for way in WAYS {
            for destination in [Destination::New, Destination::Existing] {
                let swapped = || swaps.load(Ordering::Relaxed);
                let (enough, until) = (runs + RUNS, swapped() + SWAPS);
                let bound = Instant::now() + WAIT_MAX;
                while (swapped() < until || runs < enough) && breaches.len() < 5 {
                    assert!(Instant::now() < bound, "the attacker does too little");
                    let (output, breach) = one(&arena, peace, destination, || copy(&arena, way));
                    runs += 1;
                    begun += usize::from(arena.has_begun());
                    let wrong = breach.or_else(|| unseemly(&output));
                    breaches.extend(wrong.map(|wrong| format!("{way:?} {destination:?}: {wrong}")));
                }
            }
        }
    });
    println!("{runs} runs, {swaps} swaps");
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
    assert!(
        begun == runs && runs >= 100,
        "only {begun} of {runs} runs copied anything"
    );
    assert!(swaps > runs as u64, "only {swaps} swaps in {runs} runs");
}

/// A program that opens a path after checking it loses to this attacker.
#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_copier_that_goes_by_paths_is_led_astray() {
    let arena = Arena::new();
    let mut breach = None;
    let swaps = attacked(&arena, |peace, _| {
        let until = Instant::now() + WAIT_MAX;
        while breach.is_none() && Instant::now() < until {
            ((), breach) = one(&arena, peace, Destination::New, || {
                // The attacker hinders this copy, too.
                let _ = fs::copy(arena.path("canary"), arena.path("dst/canary"));
                let _ = copy_by_paths(&arena.path("src"), &arena.path("dst/src"));
            });
        }
    });
    assert!(breach.is_some(), "nothing happened in {swaps} swaps");
}

/// Number of copies over an existing folder that are attacked at the start; `UNDERPASS_CP_PLANTED`
/// overrides it.
const PLANTED_RUNS: usize = 40;

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn links_planted_as_a_copy_begins_are_not_followed() {
    planted_links_are_not_followed(Ground::Disk);
}

#[test]
#[ignore = "needs root, mounts, sshfs and sftp-server; run by cargo xtask test"]
fn links_planted_behind_fuse_are_not_followed_either() {
    planted_links_are_not_followed(Ground::Fuse);
}

fn planted_links_are_not_followed(ground: Ground) {
    let runs = std::env::var("UNDERPASS_CP_PLANTED");
    let runs = runs.map_or(PLANTED_RUNS, |runs| runs.parse().expect("a number"));
    let (mut planted, mut sprung) = (0, 0);
    for number in 0..runs {
        let (trap, over) = (Trap::new(ground), AtomicBool::new(false));
        let watch = trap.watch();
        let way = ["-j1", "-j4", "--verify"][number % 3];
        std::thread::scope(|scope| {
            let attacker = scope.spawn(|| trap.plant(&watch, &over));
            let mut cp = Command::new(env!("CARGO_BIN_EXE_underpass"));
            cp.args(["cp", "-r", way, "-T", "src", "dst"]);
            let report = run(cp.current_dir(trap.folder()));
            over.store(true, Ordering::Relaxed);
            assert_eq!(unseemly(&report), None);
            planted += attacker.join().expect("nobody failed");
        });
        sprung += usize::from(trap.is_sprung());
    }
    println!("{runs} runs, {planted} links planted, {sprung} runs wrote through one");
    assert!(
        planted >= runs,
        "only {planted} links were planted in {runs} runs"
    );
    assert_eq!(sprung, 0, "of {runs} runs");
}

/// A link that existed before is followed, as GNU cp does, however recently it was made.
#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn links_made_just_before_a_copy_are_followed() {
    for _ in 0..PLANTED_RUNS {
        let trap = Trap::new(Ground::Disk);
        fs::rename(trap.path("spare/0"), trap.path("dst/0")).expect("ours");
        let mut cp = Command::new(env!("CARGO_BIN_EXE_underpass"));
        let report = run(cp
            .args(["cp", "-r", "-T", "src", "dst"])
            .current_dir(trap.folder()));
        assert_eq!((report.code, &*report.errors), (Some(0), ""));
        assert!(trap.is_sprung());
    }
}

fn copy_by_paths(source: &Path, dest: &Path) -> io::Result<()> {
    fs::create_dir(dest)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), dest.join(entry.file_name()));
        // A swapped entry does not stop the others.
        let _ = match entry.file_type()?.is_dir() {
            true => copy_by_paths(&from, &to),
            false => fs::copy(&from, &to).map(drop),
        };
    }
    Ok(())
}

/// Makes one copy in a recreated arena and returns any violation; the attacker waits meanwhile.
fn one<T>(
    arena: &Arena,
    peace: &RwLock<()>,
    destination: Destination,
    copy: impl FnOnce() -> T,
) -> (T, Option<String>) {
    {
        let _peace = peace.write().expect("nobody failed");
        arena.reset(destination);
    }
    let copied = copy();
    let _peace = peace.write().expect("nobody failed");
    (copied, arena.breach())
}

/// Runs `work` while two attackers run; returns the number of swaps.
fn attacked(arena: &Arena, work: impl FnOnce(&RwLock<()>, &AtomicU64)) -> u64 {
    let (peace, over, swaps) = (RwLock::new(()), AtomicBool::new(false), AtomicU64::new(0));
    arena.reset(Destination::New);
    std::thread::scope(|scope| {
        for seed in [1, 2] {
            let attack = Attack {
                arena,
                peace: &peace,
                over: &over,
                swaps: &swaps,
            };
            scope.spawn(move || attack.run(seed));
        }
        work(&peace, &swaps);
        over.store(true, Ordering::Relaxed);
    });
    swaps.into_inner()
}

fn copy(arena: &Arena, way: &[&str]) -> ExitReport {
    let mut cp = Command::new(env!("CARGO_BIN_EXE_underpass"));
    cp.arg("cp").args(way).args(["canary", "src", "dst"]);
    run(cp.current_dir(arena.folder()))
}

/// Returns a failure other than exit code 1, such as a panic; an attack may make a copy fail.
fn unseemly(report: &ExitReport) -> Option<String> {
    let is_seemly = matches!(report.code, Some(0 | 1)) && !report.errors.contains("panicked");
    (!is_seemly).then(|| format!("{report:?}"))
}
