//! The two tiers of tests.

use std::time::SystemTime;

use underpass_testkit::Sample;

use crate::workspace::Fallible;

/// The tests that a run takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TestTier {
    /// Without tests that take minutes, and with one part of each fault matrix.
    First(Sample),
    All,
}

/// The number of parts that each fault matrix is divided into.
const SAMPLES: u64 = 8;

impl TestTier {
    /// Returns the first tier, with another part of each fault matrix every day, unless the
    /// environment names one; prints it.
    pub(super) fn first() -> Fallible<Self> {
        let sample = match Sample::from_env() {
            Some(sample) => sample,
            None => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
                Sample {
                    part: now.as_secs() / 86_400 % SAMPLES,
                    parts: SAMPLES,
                }
            }
        };
        println!("sample of each fault matrix: {}={sample}", Sample::VARIABLE);
        Ok(Self::First(sample))
    }
}
