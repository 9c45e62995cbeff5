//! The usage of a process while something ran, and other load on the machine.
//!
//! The figure is the process's own processor time. The other readings show whether it can be
//! believed: the time of this program, which makes the load or receives the bytes (was it the
//! bottleneck?), the time of the kernel's threads that work for the process, and the remaining time
//! that the machine was busy, which is other load.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::machine::proc::{self, CpuReading, CpuSource, MachineTime, ResourceUsage};
use crate::stats::Spread;

/// Other load or stolen time, as a share of one processor, from which a figure is not worth
/// keeping.
const FOREIGN_SHARE_MAX: f64 = 0.10;

/// Less than this is ignored: the clocks tick every 10 ms.
const FOREIGN_MIN: Duration = Duration::from_millis(60);

/// Shares above and below which this program and not the process was the limit.
const BENCH_BUSY_MIN: f64 = 0.95;
const PROCESS_BUSY_MAX: f64 = 0.80;

/// A process is settled once it used less than this between two looks.
const SETTLED: Duration = Duration::from_micros(50);
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub(crate) struct UsageWindow {
    pub(crate) wall: Duration,
    pub(crate) used: ResourceUsage,
    pub(crate) cpu_source: CpuSource,
    pub(crate) bench_cpu: Duration,
    /// Processor time of everything else on this machine.
    pub(crate) foreign_cpu: Duration,
    /// Time that the hypervisor gave to other machines.
    pub(crate) steal: Duration,
    /// The time over which the last two were taken: `wall` and settling.
    pub(crate) elapsed: Duration,
}

/// Readings of all clocks at one moment.
struct ClockReadings {
    at: Instant,
    process: CpuReading,
    bench: CpuReading,
    kernel: CpuReading,
    machine: MachineTime,
}

/// Runs `work`, which starts processes and waits for them, and reads what those used. Time of the
/// kernel threads that write to disk doesn't count as other load.
pub(crate) fn observe_children<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, UsageWindow)> {
    let read = || ClockReadings::of(CpuReading::of_children()?, proc::kernel_threads_cpu()?);
    between(read, work)
}

/// Runs `work` between two readings of a process, each taken when it has settled.
pub(crate) fn observe<T>(root: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, UsageWindow)> {
    let read = || ClockReadings::of(settled(root)?, proc::network_threads_cpu()?);
    between(read, work)
}

fn between<T>(
    read: impl Fn() -> Result<ClockReadings>,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, UsageWindow)> {
    let before = read()?;
    let start = Instant::now();
    let done = work()?;
    let wall = start.elapsed();
    Ok((done, read()?.since(&before, wall)))
}

impl ClockReadings {
    fn of(process: CpuReading, kernel: CpuReading) -> Result<ClockReadings> {
        Ok(ClockReadings {
            at: Instant::now(),
            process,
            bench: CpuReading::of_process(std::process::id()),
            kernel,
            machine: proc::machine_time()?,
        })
    }

    fn since(&self, before: &ClockReadings, wall: Duration) -> UsageWindow {
        let used = self.process.used_since(&before.process);
        let (_, cpu_source) = self.process.since(&before.process);
        let (bench_cpu, _) = self.bench.since(&before.bench);
        let (kernel_cpu, _) = self.kernel.since(&before.kernel);
        let busy = self.machine.busy.saturating_sub(before.machine.busy);
        UsageWindow {
            wall,
            used,
            cpu_source,
            bench_cpu,
            foreign_cpu: busy.saturating_sub(used.cpu + bench_cpu + kernel_cpu),
            steal: self.machine.steal.saturating_sub(before.machine.steal),
            elapsed: self.at - before.at,
        }
    }
}

impl UsageWindow {
    /// Whether other programs or the hypervisor took enough to spoil the figures.
    pub(crate) fn is_disturbed(&self) -> bool {
        let disturbs = |taken: Duration| {
            let share = taken.as_secs_f64() / self.elapsed.as_secs_f64();
            taken >= FOREIGN_MIN && share > FOREIGN_SHARE_MAX
        };
        disturbs(self.foreign_cpu) || disturbs(self.steal)
    }

    /// Whether this program was the bottleneck and not the process.
    pub(crate) fn is_bench_bound(&self) -> bool {
        self.bench_share() >= BENCH_BUSY_MIN && self.share() < PROCESS_BUSY_MAX
    }

    /// The process's time as a share of one processor.
    pub(crate) fn share(&self) -> f64 {
        self.cpu() / self.seconds()
    }

    /// This program's time as a share of one processor.
    pub(crate) fn bench_share(&self) -> f64 {
        self.bench_cpu.as_secs_f64() / self.seconds()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.wall.as_secs_f64()
    }

    pub(crate) fn cpu(&self) -> f64 {
        self.used.cpu.as_secs_f64()
    }

    /// The part of it in user space.
    pub(crate) fn user(&self) -> f64 {
        self.used.user.as_secs_f64()
    }
}

/// A note where this program was the bottleneck in some rounds of a contender.
pub(crate) fn note_of_bottleneck(
    name: &str,
    other_side: &str,
    windows: &[&UsageWindow],
) -> Option<String> {
    let bound = windows
        .iter()
        .filter(|window| window.is_bench_bound())
        .count();
    let median = |share: fn(&UsageWindow) -> f64| {
        let shares: Vec<f64> = windows.iter().map(|window| share(window) * 100.0).collect();
        Spread::of(&shares).map_or(0.0, |spread| spread.median)
    };
    (bound > 0).then(|| {
        format!(
            "{other_side} was the bottleneck with {name} in {bound} of {} rounds ({other_side} \
             {:.0} %, {name} {:.0} % of a processor): compare processor time, not throughput",
            windows.len(),
            median(UsageWindow::bench_share),
            median(UsageWindow::share)
        )
    })
}

/// The usage of a process so far, once it is idle after the last load.
pub(crate) fn settled(root: u32) -> Result<CpuReading> {
    let start = Instant::now();
    let mut earlier = CpuReading::of_tree(root)?;
    loop {
        sleep(POLL);
        let now = CpuReading::of_tree(root)?;
        if now.since(&earlier).0 < SETTLED || start.elapsed() > SETTLE_TIMEOUT {
            return Ok(now);
        }
        earlier = now;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A second of wall time with the given shares of a processor.
    pub(crate) fn window(process: f64, bench: f64, foreign: f64, steal: f64) -> UsageWindow {
        UsageWindow {
            wall: Duration::from_secs(1),
            used: ResourceUsage {
                cpu: Duration::from_secs_f64(process),
                ..ResourceUsage::default()
            },
            cpu_source: CpuSource::Schedstat,
            bench_cpu: Duration::from_secs_f64(bench),
            foreign_cpu: Duration::from_secs_f64(foreign),
            steal: Duration::from_secs_f64(steal),
            elapsed: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_busy_bench_before_an_idle_process_is_called_the_limit() {
        assert!(window(0.6, 0.99, 0.0, 0.0).is_bench_bound());
        assert!(!window(0.9, 0.99, 0.0, 0.0).is_bench_bound());
        assert!(!window(0.6, 0.8, 0.0, 0.0).is_bench_bound());
    }

    #[test]
    fn other_load_and_stolen_time_disturb() {
        assert!(window(1.0, 1.0, 0.2, 0.0).is_disturbed());
        assert!(window(1.0, 1.0, 0.0, 0.2).is_disturbed());
        assert!(!window(1.0, 1.0, 0.05, 0.05).is_disturbed());
    }
}
