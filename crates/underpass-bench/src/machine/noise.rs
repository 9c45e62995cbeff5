//! Waits for a quiet machine, up to a deadline.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::machine::proc;

/// The time for which the machine is watched before a round.
const LOOK: Duration = Duration::from_millis(200);

/// Share of one processor that may be busy while nothing is measured.
const BUSY_SHARE_MAX: f64 = 0.10;

/// Returns once no other program runs, or at `deadline`.
pub(crate) fn wait_until_quiet(deadline: Instant) -> Result<()> {
    while Instant::now() < deadline {
        let before = proc::machine_time()?.busy;
        sleep(LOOK);
        let busy = proc::machine_time()?.busy.saturating_sub(before);
        if busy.as_secs_f64() / LOOK.as_secs_f64() <= BUSY_SHARE_MAX {
            break;
        }
    }
    Ok(())
}
