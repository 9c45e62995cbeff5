//! How the bytes of all files travelled, in a few lines (`--explain=summary`).

use std::collections::BTreeMap;

use underpass::{Cause, Mechanism, Reason};
use underpass_copy::Finished;

use crate::layout::counted;

/// Files named for each reason.
const EXAMPLES_MAX: usize = 3;

/// Sums over all files.
#[derive(Debug, Default)]
pub(super) struct TravelTotals {
    /// By the place of a mechanism in [`Mechanism::ALL`].
    usage: [UsageTotal; Mechanism::ALL.len()],
    holes: UsageTotal,
    /// Why a mechanism was not used.
    reasons: BTreeMap<(usize, String), ReasonTotal>,
}

#[derive(Debug, Default)]
struct UsageTotal {
    files: u64,
    bytes: u64,
    calls: u64,
}

#[derive(Debug, Default)]
struct ReasonTotal {
    files: u64,
    /// As they are shown.
    examples: Vec<String>,
}

impl TravelTotals {
    /// Adds a file, which `shown` shows.
    pub(super) fn add(&mut self, finished: &Finished, shown: impl Fn() -> String) {
        let Some(travel) = &finished.travel else {
            return;
        };
        if travel.account.bytes() == 0 && travel.account.refusals.is_empty() {
            // Empty, or all of it was there: nothing was left for any mechanism.
            return self.holes.add(travel.account.holes, 0);
        }
        self.holes.add(travel.account.holes, 0);
        let refused = |cause: Cause| format!("refused: {cause}");
        for (place, mechanism) in Mechanism::ALL.into_iter().enumerate() {
            let usage = travel.account.of(mechanism);
            self.usage[place].add(usage.bytes, usage.calls);
            let mut refusals = travel.account.refusals.iter();
            let met = refusals.find(|refusal| refusal.mechanism == mechanism);
            let mut left_out = travel.plan.left_out();
            let reason = met.map(|met| refused(met.cause)).or_else(|| {
                let (_, reason) = left_out.find(|(out, _)| *out == mechanism)?;
                Some(match reason {
                    // By an earlier file.
                    Reason::Refused(_, errno) => refused(Cause::Errno(errno)),
                    reason => reason.to_string(),
                })
            });
            if let Some(reason) = reason {
                let total = self.reasons.entry((place, reason)).or_default();
                total.files += 1;
                if total.examples.len() < EXAMPLES_MAX {
                    total.examples.push(shown());
                }
            }
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let names = Mechanism::ALL.map(Mechanism::name);
        let usage = names.iter().zip(&self.usage).map(|(name, total)| {
            let calls = counted(total.calls, "call");
            total.line(name).map(|line| format!("{line} ({calls})"))
        });
        let holes = std::iter::once(self.holes.line("holes"));
        let reasons = self.reasons.iter().map(|((place, reason), total)| {
            let files = counted(total.files, "file");
            let more = match total.files > total.examples.len() as u64 {
                true => ", …",
                false => "",
            };
            let examples = total.examples.join(", ");
            Some(format!(
                "not {}: {reason}: {files}: {examples}{more}",
                names[*place]
            ))
        });
        usage.chain(holes).chain(reasons).flatten().collect()
    }
}

impl UsageTotal {
    fn add(&mut self, bytes: u64, calls: u64) {
        self.files += u64::from(bytes > 0);
        self.bytes += bytes;
        self.calls += calls;
    }

    fn line(&self, name: &str) -> Option<String> {
        let (files, bytes) = (counted(self.files, "file"), counted(self.bytes, "byte"));
        (self.files > 0).then(|| format!("{name}: {files}, {bytes}"))
    }
}
