//! Waits for a quiet machine, for a while.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::error::Result;
use super::proc;

/// How long the machine is watched before a round.
const LOOK: Duration = Duration::from_millis(200);

/// Share of one processor that may be busy: nobody measures at that time.
const BUSY_SHARE_MAX: f64 = 0.10;

/// Returns once nothing else runs, or after `patience`; says how long that took.
pub(crate) fn wait_until_quiet(patience: Duration) -> Result<Duration> {
    let start = Instant::now();
    loop {
        let before = proc::machine_ticks()?.busy;
        sleep(LOOK);
        let busy = proc::ticks(proc::machine_ticks()?.busy.saturating_sub(before));
        let is_quiet = busy.as_secs_f64() / LOOK.as_secs_f64() <= BUSY_SHARE_MAX;
        if is_quiet || start.elapsed() >= patience {
            return Ok(start.elapsed().saturating_sub(LOOK));
        }
    }
}
