//! Crash images from recorded operations on a data folder: the possible effects of a crash at any
//! moment are opened and compared with the guarantees at that moment.
//!
//! A failure prints its seed; `UNDERPASS_CRASH_SEEDS=7` runs the images of that seed, and
//! `UNDERPASS_CRASH_SEEDS=100-500` those of a range.

use std::thread;

use crate::FlushPolicy;
use crate::files::trace::Operation;
use crate::position::TopicPartition;
use crate::tests::image::{Disk, Random, Tree, temporary_folder};
use crate::tests::session::{BatchShape, History, Recorded, Session};
use crate::threads::Acks;

/// The number of recordings of each test.
const SEEDS: u64 = 14;

/// The number of images per recording. Opening an image is recorded, too, for more images.
const IMAGES: usize = 50;

/// The largest number of successive crashes.
const CRASHES_MAX: usize = 3;

const STEPS: usize = 80;

const PRODUCERS: [i64; 3] = [1, 2, 3];

#[test]
fn what_is_acknowledged_survives_a_crash_with_the_policy_acks() {
    crash_all(FlushPolicy::Acks, 0);
}

#[test]
fn only_the_unsynced_end_is_lost_in_a_crash_with_the_policy_interval() {
    crash_all(FlushPolicy::Interval, 1000);
}

fn crash_all(flush: FlushPolicy, first_seed: u64) {
    let chosen = std::env::var("UNDERPASS_CRASH_SEEDS").ok();
    let seeds = match &chosen {
        Some(chosen) => {
            let (first, last) = chosen.split_once('-').unwrap_or((chosen, chosen));
            first.parse().unwrap()..last.parse::<u64>().unwrap() + 1
        }
        None => first_seed..first_seed + SEEDS,
    };
    let images: usize = seeds
        .map(|seed| crash_recorded(flush, seed, Stepping::Steps))
        .sum();
    assert!(images > 600 || chosen.is_some(), "{images}");
}

#[test]
fn threads_that_write_and_sync_at_once_keep_what_is_acknowledged() {
    for (flush, seed) in [(FlushPolicy::Acks, 500), (FlushPolicy::Interval, 1500)] {
        for seed in seed..seed + SEEDS / 4 {
            crash_recorded(flush, seed, Stepping::Threads);
        }
    }
}

#[test]
fn every_call_of_a_short_use_may_be_the_last() {
    let folder = temporary_folder();
    let mut random = Random(1);
    let root = folder.path().to_owned();
    let mut session = Session::open(root, FlushPolicy::Acks, Vec::new(), random.next());
    session.create(TopicPartition::new("t", 0));
    let append = |session: &mut Session, number, count| {
        for _ in 0..count {
            session.send(number, Some(1), Acks::All);
            session.write();
        }
        session.sync();
    };
    append(&mut session, 0, 3);
    // This deletes the only segment.
    session.retain(0, 0);
    append(&mut session, 0, 1);
    session.delete(0);
    session.create(TopicPartition::new("t", 0));
    append(&mut session, 1, 30);
    session.checkpoint();
    session.restart();
    append(&mut session, 1, 10);
    session.retain(1, 12_000);
    append(&mut session, 1, 1);
    let recorded = session.end();
    let moments: Vec<_> = (0..=recorded.operations.len())
        .flat_map(|moment| [moment; 2])
        .collect();
    crash_at(
        &recorded,
        &moments,
        Crash::first(FlushPolicy::Acks, BatchShape::Any),
        &mut random,
    );
}

/// Records one use of a data folder and opens images of it. Returns the number of images.
fn crash_recorded(flush: FlushPolicy, seed: u64, stepping: Stepping) -> usize {
    let _context = OnFailure(format!("recording of seed {seed}"));
    let mut random = Random(seed);
    let folder = temporary_folder();
    let mut session = Session::open(folder.path().to_owned(), flush, Vec::new(), random.next());
    session.shape = match random.once_in(3) {
        true => BatchShape::Aligned,
        false => BatchShape::Any,
    };
    let first = Crash::first(flush, session.shape);
    if stepping == Stepping::Threads {
        session.start_threads();
    }
    for number in 0..3 {
        session.create(TopicPartition::new("t", number));
    }
    work(&mut session, STEPS);
    let recorded = session.end();
    let calls = recorded.operations.len();
    let mut moments: Vec<usize> = (0..IMAGES).map(|_| random.below(calls + 1)).collect();
    moments.sort_unstable();
    crash_at(&recorded, &moments, first, &mut random)
}

/// Opens images of these moments, which are sorted. Returns the number of images.
fn crash_at(recorded: &Recorded, moments: &[usize], crash: Crash, random: &mut Random) -> usize {
    let mut disk = Disk::of(&Tree::empty());
    let (mut made, mut images) = (0, 0);
    for moment in moments {
        disk.apply_all(&recorded.operations[made..*moment]);
        made = *moment;
        let _context = OnFailure(call_before(&recorded.operations, *moment));
        images += crash.images(&disk, &recorded.at(*moment), random);
    }
    images
}

/// The threads that do queued work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stepping {
    /// This thread, so that a seed determines the order of calls.
    Steps,
    /// The threads of the log, as in production.
    Threads,
}

/// One of several successive crashes.
#[derive(Clone, Copy)]
struct Crash {
    flush: FlushPolicy,
    shape: BatchShape,
    number: usize,
}

impl Crash {
    fn first(flush: FlushPolicy, shape: BatchShape) -> Crash {
        Crash {
            flush,
            shape,
            number: 1,
        }
    }

    /// Opens the image of a crash or of a killed process, and crashes again. Returns the number of
    /// images opened.
    fn images(self, disk: &Disk, known: &[History], random: &mut Random) -> usize {
        let (tree, mut disk) = match random.once_in(4) {
            true => (disk.after_kill(), disk.clone()),
            false => {
                let tree = disk.after_crash(random);
                (tree.clone(), Disk::of(&tree))
            }
        };
        let folder = temporary_folder();
        let _context = OnFailure(format!("image {}", folder.path().display()));
        tree.write_to(folder.path());
        let root = folder.path().to_owned();
        let mut session = Session::open(root, self.flush, known.to_vec(), random.next());
        session.shape = self.shape;
        let recovered = session.now();
        session.check_synced(&disk, random);
        session.send_again(PRODUCERS);
        work(&mut session, 4);
        session.restart();
        session.send_again(PRODUCERS);
        let recorded = session.end();
        if self.number == CRASHES_MAX || random.once_in(2) {
            return 1;
        }
        // Half of the next crashes hit before recovery has ended.
        let last = match random.once_in(2) {
            true => recovered,
            false => recorded.operations.len(),
        };
        let moment = random.below(last + 1);
        disk.apply_all(&recorded.operations[..moment]);
        let _context = OnFailure(call_before(&recorded.operations, moment));
        let next = Crash {
            number: self.number + 1,
            ..self
        };
        1 + next.images(&disk, &recorded.at(moment), random)
    }
}

fn call_before(calls: &[Operation], moment: usize) -> String {
    let call = moment.checked_sub(1).map(|number| match &calls[number] {
        Operation::Write(path, offset, bytes) => {
            format!("{} bytes at {offset} of {}", bytes.len(), path.display())
        }
        call => format!("{call:?}"),
    });
    format!(
        "crash {moment} of {} behind {}",
        calls.len(),
        call.unwrap_or_default()
    )
}

/// Uses a data folder.
fn work(session: &mut Session, steps: usize) {
    for _ in 0..steps {
        let present = session.present();
        let chosen = session.random.below(present.len());
        let number = present.get(chosen).copied();
        match (session.random.below(40), number) {
            (0, _) => session.restart(),
            (1, _) => session.send_again(PRODUCERS),
            (2..5, _) => session.checkpoint(),
            (5..7, Some(number)) => {
                let bytes = match session.random.once_in(3) {
                    true => 0,
                    false => session.random.below(40_000) as i64,
                };
                session.retain(number, bytes);
            }
            (7, Some(number)) => session.delete_records(number),
            (8, Some(number)) => session.delete(number),
            (9..11, _) => create_missing(session),
            (11..16, _) => session.sync(),
            (_, Some(_)) => append(session, &present),
            (_, None) => {}
        }
    }
}

fn create_missing(session: &mut Session) {
    let names = (0..4).map(|number| TopicPartition::new("t", number));
    let is_present = |name: &TopicPartition| {
        let mut histories = session.histories.iter();
        histories.any(|history| history.log.is_some() && history.name == *name)
    };
    if let Some(name) = names.into_iter().find(|name| !is_present(name)) {
        session.create(name);
    }
}

fn append(session: &mut Session, present: &[usize]) {
    for _ in 0..1 + session.random.below(5) {
        let number = present[session.random.below(present.len())];
        let producer = PRODUCERS.get(session.random.below(5)).copied();
        let acks = match session.random.below(3) {
            0 => Acks::All,
            1 => Acks::Leader,
            _ => Acks::None,
        };
        session.send(number, producer, acks);
    }
    if !session.random.once_in(5) {
        session.write();
    }
    if session.random.once_in(4) {
        session.sync();
    }
}

/// Prints the context when a test fails.
struct OnFailure(String);

impl Drop for OnFailure {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("in the {}", self.0);
        }
    }
}
