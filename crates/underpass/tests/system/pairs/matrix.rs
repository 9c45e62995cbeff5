//! Every kind into every kind: the free choice always arrives, a forced mechanism moves everything
//! or refuses, and its report agrees with the content of the sink.

use underpass::{Fault, Mechanism, Policy};

use underpass_testkit::{assert_same, within};

use super::ends::{Made, Mode, Origin, Target, move_all};

/// More than a pipe, a terminal and a small socket buffer hold, and not a round number.
const LEN: usize = 300_007;

const SOURCES: [Made; 7] = [
    Made::File,
    Made::Memory,
    Made::Zero,
    Made::Terminal,
    Made::Pipe,
    Made::Tcp,
    Made::Unix,
];

const SINKS: [Made; 7] = [
    Made::File,
    Made::Memory,
    Made::Null,
    Made::Terminal,
    Made::Pipe,
    Made::Tcp,
    Made::Unix,
];

const MODES: [(Mode, Mode); 4] = [
    (Mode::Blocking, Mode::Blocking),
    (Mode::Blocking, Mode::Polling),
    (Mode::Polling, Mode::Blocking),
    (Mode::Polling, Mode::Polling),
];

/// The known behaviour of Linux, independent of the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Moves,
    Refuses,
    /// Depends on the file system or the driver.
    Depends,
}

fn known(mechanism: Mechanism, from: Made, to: Made) -> Known {
    let is_file = |made| matches!(made, Made::File | Made::Memory);
    let has_pages = is_file(from) || from == Made::Zero;
    match mechanism {
        Mechanism::Clone if is_file(from) && is_file(to) => Known::Depends,
        Mechanism::CopyRange if is_file(from) && is_file(to) => Known::Depends,
        Mechanism::Clone | Mechanism::CopyRange => Known::Refuses,
        Mechanism::Sendfile if has_pages => Known::Moves,
        // Into a pipe it is a splice.
        Mechanism::Sendfile if from == Made::Terminal && to == Made::Pipe => Known::Depends,
        Mechanism::Sendfile => Known::Refuses,
        Mechanism::Splice | Mechanism::ReadWrite => Known::Moves,
    }
}

fn for_each_pair(check: impl Fn(Made, Made, Mode, Mode)) {
    for from in SOURCES {
        for to in SINKS {
            for (source_mode, sink_mode) in MODES {
                check(from, to, source_mode, sink_mode);
            }
        }
    }
}

#[test]
fn whatever_works_is_found_for_every_pair() {
    within(|| {
        for_each_pair(|from, to, source_mode, sink_mode| {
            let what = format!("{from:?} ({source_mode:?}) → {to:?} ({sink_mode:?})");
            let origin = Origin::make(from, source_mode, 1, LEN);
            let target = Target::make(to, sink_mode);
            let account = move_all(&origin, &target, Policy::default())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(account.bytes(), LEN as u64, "{what}: {account}");
            if let Some(arrived) = target.arrived(LEN) {
                assert_same(&arrived, &origin.content, &what);
            }
        });
    });
}

#[test]
fn a_forced_mechanism_moves_everything_or_refuses() {
    within(|| {
        for mechanism in Mechanism::ALL {
            for_each_pair(|from, to, source_mode, sink_mode| {
                if source_mode == sink_mode {
                    forced(mechanism, from, to, (source_mode, sink_mode));
                }
            });
        }
    });
}

fn forced(mechanism: Mechanism, from: Made, to: Made, modes: (Mode, Mode)) {
    let what = format!("{mechanism}, {from:?} → {to:?}, {modes:?}");
    let origin = Origin::make(from, modes.0, 2, LEN);
    let target = Target::make(to, modes.1);
    let known = known(mechanism, from, to);
    match move_all(&origin, &target, Policy::only(mechanism)) {
        Ok(account) => {
            assert_ne!(known, Known::Refuses, "{what}: {account}");
            assert_eq!(account.bytes(), LEN as u64, "{what}: {account}");
            assert_eq!(account.of(mechanism).bytes, LEN as u64, "{what}: {account}");
            assert_eq!(account.refusals, [], "{what}");
            if let Some(arrived) = target.arrived(LEN) {
                assert_same(&arrived, &origin.content, &what);
            }
        }
        Err(error) => {
            assert_ne!(known, Known::Moves, "{what}: {error}");
            assert_eq!(error.fault, Fault::Refused, "{what}: {error}");
            assert_eq!((error.moved(), error.lost), (0, 0), "{what}: {error}");
            if known == Known::Depends {
                assert!(error.errno.is_some(), "{what}: {error} names no errno");
            }
            assert_eq!(target.arrived(0).unwrap_or_default(), [], "{what}");
        }
    }
}
