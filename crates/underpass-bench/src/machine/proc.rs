//! Reads `/proc`: what processes have used, and what the machine has done.
//!
//! The kernel keeps a process's run time in two places. `/proc/PID/task/TID/schedstat` has
//! nanoseconds, but forgets a thread when it ends. `/proc/PID/stat` remembers ended threads, in
//! ticks of 10 ms. The first is used where no thread came and went, the second otherwise. Both
//! include the network work that the kernel does in a softirq on top of the process, unless
//! the kernel was built with `CONFIG_IRQ_TIME_ACCOUNTING`.

use std::collections::BTreeMap;
use std::time::Duration;
use std::{fs, io};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};
use procfs::process::{Process, Stat, all_processes};
use procfs::{CurrentSI as _, KernelStats};

use crate::error::{ErrorContext, Result};

/// `USER_HZ`: the kernel's unit towards user space on every architecture we build for.
const TICK: Duration = Duration::from_millis(10);

/// Ticks and nanoseconds may differ by this much before a thread must have come and gone.
const TICK_SLACK: Duration = Duration::from_millis(30);

/// The parent of all kernel threads; a container doesn't show them.
const KTHREADD: i32 = 2;

/// The usage of a process and its descendants so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuReading {
    by_thread: BTreeMap<i32, Duration>,
    user: Duration,
    system: Duration,
    page_faults: u64,
    context_switches: u64,
}

/// The usage of a process and its descendants between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ResourceUsage {
    /// User and system time together.
    pub(crate) cpu: Duration,
    /// Its part in user space. The kernel splits the time by looking at every tick, so this is only
    /// good for times much longer than that.
    pub(crate) user: Duration,
    /// Page faults with and without input, of all threads that still live and those that ended.
    pub(crate) page_faults: u64,
    /// Of threads that still live.
    pub(crate) context_switches: u64,
}

/// The source of a run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpuSource {
    /// `/proc/PID/task/TID/schedstat`, nanoseconds.
    Schedstat,
    /// `/proc/PID/stat`, ticks of 10 ms.
    Ticks,
}

/// The time of all processors together since the machine started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachineTime {
    pub(crate) busy: Duration,
    /// Given by the hypervisor to other machines.
    pub(crate) steal: Duration,
}

impl CpuReading {
    /// Reads `root` and its descendants now. A process that has just ended counts as 0.
    pub(crate) fn of_tree(root: u32) -> Result<CpuReading> {
        Ok(CpuReading::of_all(process_tree(root)?))
    }

    /// Reads one process without its children.
    pub(crate) fn of_process(pid: u32) -> CpuReading {
        CpuReading::of_all([pid])
    }

    /// The usage of children of this process that ended and were waited for.
    pub(crate) fn of_children() -> Result<CpuReading> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context(|| "reading usage".into())?;
        let of = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
        let (user, system) = (of(usage.user_time()), of(usage.system_time()));
        let count = |count: i64| count.unsigned_abs();
        Ok(CpuReading {
            by_thread: BTreeMap::from([(0, user + system)]),
            user,
            system,
            page_faults: count(usage.minor_page_faults()) + count(usage.major_page_faults()),
            context_switches: count(usage.voluntary_context_switches())
                + count(usage.involuntary_context_switches()),
        })
    }

    /// The run time between `earlier` and this reading, and its source.
    pub(crate) fn since(&self, earlier: &CpuReading) -> (Duration, CpuSource) {
        let ticks = self.by_ticks().saturating_sub(earlier.by_ticks());
        let before = |tid| earlier.by_thread.get(tid).copied().unwrap_or_default();
        let threads = self.by_thread.iter();
        let precise: Duration = threads
            .map(|(tid, now)| now.saturating_sub(before(tid)))
            .sum();
        let mut threads = earlier.by_thread.keys();
        let thread_ended = threads.any(|tid| !self.by_thread.contains_key(tid));
        if self.by_thread.is_empty() || thread_ended || precise + TICK_SLACK < ticks {
            (ticks, CpuSource::Ticks)
        } else {
            (precise, CpuSource::Schedstat)
        }
    }

    /// Everything that was used between `earlier` and this reading.
    pub(crate) fn used_since(&self, earlier: &CpuReading) -> ResourceUsage {
        let (cpu, _) = self.since(earlier);
        let ticks = self.by_ticks().saturating_sub(earlier.by_ticks());
        let user_ticks = self.user.saturating_sub(earlier.user);
        let user_share = match ticks.is_zero() {
            true => 0.0,
            false => user_ticks.as_secs_f64() / ticks.as_secs_f64(),
        };
        ResourceUsage {
            cpu,
            user: cpu.mul_f64(user_share),
            page_faults: self.page_faults.saturating_sub(earlier.page_faults),
            context_switches: self
                .context_switches
                .saturating_sub(earlier.context_switches),
        }
    }

    fn by_ticks(&self) -> Duration {
        self.user + self.system
    }

    /// A process that has ended counts as 0.
    fn of_all(processes: impl IntoIterator<Item = u32>) -> CpuReading {
        let mut reading = CpuReading::default();
        for process in processes.into_iter().filter_map(process) {
            if let Ok(stat) = process.stat() {
                reading.user += ticks(stat.utime);
                reading.system += ticks(stat.stime);
                reading.page_faults += stat.minflt + stat.majflt;
            }
            for task in process.tasks().into_iter().flatten().flatten() {
                if let Ok(times) = task.schedstat() {
                    let run_time = Duration::from_nanos(times.sum_exec_runtime);
                    reading.by_thread.insert(task.tid, run_time);
                }
                if let Ok(status) = task.status() {
                    let switches = [
                        status.voluntary_ctxt_switches,
                        status.nonvoluntary_ctxt_switches,
                    ];
                    reading.context_switches += switches.into_iter().flatten().sum::<u64>();
                }
            }
        }
        reading
    }
}

/// Run time of the kernel threads that do network work outside of processes.
pub(crate) fn network_threads_cpu() -> Result<CpuReading> {
    run_time_of(|stat| stat.comm.starts_with("ksoftirqd/"))
}

/// Run time of all kernel threads, which do work for any program.
pub(crate) fn kernel_threads_cpu() -> Result<CpuReading> {
    run_time_of(|stat| stat.ppid == KTHREADD)
}

fn run_time_of(is_counted: impl Fn(&Stat) -> bool) -> Result<CpuReading> {
    let counted = all_stats()?.filter(is_counted);
    let counted = counted.map(|stat| stat.pid.unsigned_abs());
    Ok(CpuReading::of_all(counted))
}

/// A process and its descendants, the root first.
pub(crate) fn process_tree(root: u32) -> Result<Vec<u32>> {
    let parents = all_stats()?.map(|stat| (stat.pid.unsigned_abs(), stat.ppid.unsigned_abs()));
    let parents: Vec<(u32, u32)> = parents.collect();
    let mut tree = vec![root];
    let mut next = 0;
    while next < tree.len() {
        let children = parents.iter().filter(|(_, parent)| *parent == tree[next]);
        let children: Vec<u32> = children.map(|&(pid, _)| pid).collect();
        tree.extend(children);
        next += 1;
    }
    Ok(tree)
}

/// Peak resident memory of one process so far, in bytes; `None` if it has ended.
pub(crate) fn peak_resident_of(pid: u32) -> Option<u64> {
    Some(process(pid)?.status().ok()?.vmhwm? * 1024)
}

/// Peak resident memory of a process tree, in bytes. Each process counts the pages that it shares
/// with others.
pub(crate) fn peak_resident_bytes(root: u32) -> Result<u64> {
    Ok(process_tree(root)?
        .into_iter()
        .filter_map(peak_resident_of)
        .sum())
}

/// Resident memory of a process tree now, in bytes. It is counted page by page, because `status`
/// may miss some pages of each thread. Each process counts the pages that it shares with others.
pub(crate) fn resident_bytes(root: u32) -> Result<u64> {
    let resident = |pid| {
        let by_page = process(pid).and_then(|process| process.smaps_rollup().ok());
        let mut parts = by_page.iter().flat_map(|all| &all.memory_map_rollup);
        match parts.find_map(|part| part.extension.map.get("Rss").copied()) {
            Some(bytes) => bytes,
            None => resident_in_status(pid),
        }
    };
    Ok(process_tree(root)?.into_iter().map(resident).sum())
}

/// The resident memory of one process, pages shared with others included.
fn resident_in_status(pid: u32) -> u64 {
    let status = process(pid).and_then(|process| process.status().ok());
    status.and_then(|status| status.vmrss).unwrap_or(0) * 1024
}

/// Bytes that a process tree has read from storage so far; `None` where the kernel doesn't count
/// them.
pub(crate) fn storage_read_bytes(root: u32) -> Result<Option<u64>> {
    let stored = |pid| Some(process(pid)?.io().ok()?.read_bytes);
    Ok(process_tree(root)?.into_iter().map(stored).sum())
}

/// Bytes of kernel memory in TCP buffers, machine-wide.
pub(crate) fn tcp_buffer_bytes() -> Option<u64> {
    let sockstat = fs::read_to_string("/proc/thread-self/net/sockstat").ok()?;
    let pages = parse_tcp_pages(&sockstat)?;
    Some(pages * rustix::param::page_size() as u64)
}

pub(crate) fn machine_time() -> Result<MachineTime> {
    let total = KernelStats::current()
        .map_err(io::Error::other)
        .context(|| "reading /proc/stat".into())?;
    let total = total.total;
    let interrupts = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    Ok(MachineTime {
        // Guests are within user time.
        busy: ticks(total.user + total.nice + total.system + interrupts),
        steal: ticks(total.steal.unwrap_or(0)),
    })
}

fn ticks(count: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

/// `None` if it has ended.
fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

/// Of all processes that run now.
fn all_stats() -> Result<impl Iterator<Item = Stat>> {
    let all = all_processes()
        .map_err(io::Error::other)
        .context(|| "reading /proc".into())?;
    Ok(all.filter_map(|process| process.ok()?.stat().ok()))
}

fn parse_tcp_pages(sockstat: &str) -> Option<u64> {
    let line = sockstat
        .lines()
        .find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_memory_is_counted_in_pages() {
        let text =
            "sockets: used 12\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 283\nUDP: inuse 0 mem 5\n";
        assert_eq!(parse_tcp_pages(text), Some(283));
    }

    #[test]
    fn the_time_is_split_as_the_ticks_are() {
        let mut after = reading(&[(1, 400)], 30);
        after.user = ticks(10);
        let used = after.used_since(&reading(&[(1, 0)], 0));
        assert_eq!(used.cpu, Duration::from_millis(400));
        assert_eq!(used.user, Duration::from_millis(100));
    }

    fn reading(threads: &[(i32, u64)], ticks: u64) -> CpuReading {
        let by_thread = threads
            .iter()
            .map(|&(tid, ms)| (tid, Duration::from_millis(ms)))
            .collect();
        CpuReading {
            by_thread,
            system: self::ticks(ticks),
            ..CpuReading::default()
        }
    }

    #[test]
    fn nanoseconds_are_preferred_and_new_threads_count_whole() {
        let before = reading(&[(1, 100)], 10);
        let after = reading(&[(1, 350), (2, 45)], 39);
        let expected = (Duration::from_millis(295), CpuSource::Schedstat);
        assert_eq!(after.since(&before), expected);
    }

    #[test]
    fn ticks_are_used_when_a_thread_ended_or_came_and_went() {
        let ended = reading(&[(1, 350)], 60).since(&reading(&[(1, 100), (2, 5)], 10));
        assert_eq!(ended, (Duration::from_millis(500), CpuSource::Ticks));
        let came_and_went = reading(&[(1, 350)], 60).since(&reading(&[(1, 100)], 10));
        assert_eq!(
            came_and_went,
            (Duration::from_millis(500), CpuSource::Ticks)
        );
    }

    #[test]
    fn this_process_is_in_its_own_tree_and_has_run() {
        let pid = std::process::id();
        assert_eq!(process_tree(pid).unwrap()[0], pid);
        assert!(peak_resident_bytes(pid).unwrap() > 0);
        assert!(!CpuReading::of_tree(pid).unwrap().by_thread.is_empty());
    }
}
