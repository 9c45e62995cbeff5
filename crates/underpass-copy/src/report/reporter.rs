//! What is told, in the order of the walk, however many files are copied at once; and what it all
//! comes to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::metadata::Trouble;
use crate::report::event::{Curiosity, Event, Observer};
use crate::report::problem::{Problem, Severity};
use crate::report::summary::Summary;

/// Names that may be done before an earlier one is: what they have to say is kept that long.
const AHEAD_MAX: u64 = 1 << 16;

/// Gives out turns to speak, and keeps to them.
pub(crate) struct Ledger<'a> {
    observer: &'a dyn Observer,
    order: Order,
    state: Mutex<State>,
    told: Condvar,
}

/// When events are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// At once: there is one who speaks.
    AtOnce,
    /// Each in its turn.
    InTurn,
}

#[derive(Default)]
struct State {
    next_ticket: u64,
    /// The first turn that is not over.
    speaks: u64,
    /// Turns that are over before theirs came.
    early: BTreeMap<u64, Vec<Event>>,
    /// Those who wait for the next turn to be given out.
    waiting: usize,
    summary: Summary,
}

impl<'a> Ledger<'a> {
    pub(crate) fn new(observer: &'a dyn Observer, order: Order) -> Self {
        Self {
            observer,
            order,
            state: Mutex::default(),
            told: Condvar::new(),
        }
    }

    /// The next turn. Blocks while too many are waiting for an earlier one.
    pub(crate) fn ticket(&self) -> u64 {
        let mut state = self.state();
        while state.next_ticket - state.speaks > AHEAD_MAX {
            state.waiting += 1;
            state = self
                .told
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.next_ticket += 1;
        state.next_ticket - 1
    }

    /// The voice of a turn. Every turn needs one, and every voice must be settled.
    pub(crate) fn voice(&self, ticket: u64) -> Voice<'_> {
        Voice {
            ledger: self,
            ticket,
            held: Vec::new(),
            counts: Summary::default(),
        }
    }

    pub(crate) fn curiosity(&self) -> Curiosity {
        self.observer.curiosity()
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        self.observer
    }

    /// What it all came to.
    pub(crate) fn finish(self) -> Summary {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).summary
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, ticket: u64, events: Vec<Event>, counts: &Summary) {
        let mut state = self.state();
        state.summary.add(counts);
        state.early.insert(ticket, events);
        loop {
            let turn = state.speaks;
            let Some(events) = state.early.remove(&turn) else {
                break;
            };
            for event in events {
                self.observer.told(event);
            }
            state.speaks += 1;
        }
        if state.waiting > 0 {
            self.told.notify_all();
        }
    }
}

/// One name's turn to speak.
pub(crate) struct Voice<'l> {
    ledger: &'l Ledger<'l>,
    ticket: u64,
    held: Vec<Event>,
    /// What this name adds to the summary.
    pub(crate) counts: Summary,
}

impl Voice<'_> {
    pub(crate) fn say(&mut self, event: Event) {
        match self.ledger.order {
            Order::AtOnce => self.ledger.observer.told(event),
            Order::InTurn => self.held.push(event),
        }
    }

    pub(crate) fn problem(&mut self, problem: Problem) {
        match problem.severity {
            Severity::Error => self.counts.errors += 1,
            Severity::Warning => self.counts.warnings += 1,
        }
        self.say(Event::Problem(Box::new(problem)));
    }

    /// What could not be put on a copy.
    pub(crate) fn troubles(&mut self, troubles: Vec<Trouble>, shown: impl Fn() -> OsString) {
        for trouble in troubles {
            let mut problem = Problem::of(trouble.what, shown(), trouble.errno).by(trouble.call);
            problem.other = trouble.attribute;
            problem.severity = trouble.severity;
            self.problem(problem);
        }
    }

    pub(crate) fn wants(&self, curiosity: Curiosity) -> bool {
        self.ledger.curiosity() >= curiosity
    }

    /// The turn is over.
    pub(crate) fn settle(self) {
        self.ledger.settle(self.ticket, self.held, &self.counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::event::Overwriting;

    /// Remembers what it is told to have been removed.
    #[derive(Default)]
    struct Heard(Mutex<Vec<OsString>>);

    impl Observer for Heard {
        fn told(&self, event: Event) {
            if let Event::Removed(name) = event {
                self.0.lock().expect("nobody panicked").push(name);
            }
        }

        fn may_overwrite(&self, _: &Overwriting) -> bool {
            false
        }

        fn curiosity(&self) -> Curiosity {
            Curiosity::Changes
        }
    }

    fn said(order: Order, settled: [usize; 3]) -> Vec<OsString> {
        let heard = Heard::default();
        let ledger = Ledger::new(&heard, order);
        let tickets = [ledger.ticket(), ledger.ticket(), ledger.ticket()];
        for turn in settled {
            let mut voice = ledger.voice(tickets[turn]);
            voice.say(Event::Removed(turn.to_string().into()));
            voice.counts.files += 1;
            voice.settle();
        }
        assert_eq!(ledger.finish().files, 3);
        heard.0.into_inner().expect("nobody panicked")
    }

    #[test]
    fn what_is_told_keeps_the_order_of_turns() {
        for settled in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            assert_eq!(said(Order::InTurn, settled), ["0", "1", "2"], "{settled:?}");
        }
        assert_eq!(said(Order::AtOnce, [1, 0, 2]), ["1", "0", "2"]);
    }
}
