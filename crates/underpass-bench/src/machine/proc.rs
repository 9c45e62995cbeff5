//! Reads `/proc`: what processes have used, and what the machine has done.
//!
//! The kernel keeps a process's run time in two places. `/proc/PID/task/TID/schedstat` has
//! nanoseconds, but forgets a thread when it ends. `/proc/PID/stat` remembers ended threads, in
//! ticks of 10 ms. The first is used where no thread came and went, the second otherwise. Both
//! include the network work that the kernel does in a softirq on top of the process, unless
//! the kernel was built with `CONFIG_IRQ_TIME_ACCOUNTING`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};

use crate::error::{ErrorContext, Result};

/// `USER_HZ`: the kernel's unit towards user space on every architecture we build for.
const TICK: Duration = Duration::from_millis(10);

/// Ticks and nanoseconds may differ by this much before a thread must have come and gone.
const TICK_SLACK: Duration = Duration::from_millis(30);

/// The parent of all kernel threads; in a container there are none.
const KTHREADD: u32 = 2;

/// What a process and its descendants have used so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuReading {
    by_thread: BTreeMap<u32, Duration>,
    user: Duration,
    system: Duration,
    page_faults: u64,
    context_switches: u64,
}

/// What a process and its descendants used between two readings.
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

/// The part of `/proc/PID/stat` that is used.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: u32,
    page_faults: u64,
    user: Duration,
    system: Duration,
}

/// The part of `/proc/stat` that is used, in ticks summed over all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MachineTicks {
    pub(crate) busy: u64,
    pub(crate) steal: u64,
}

impl CpuReading {
    /// Reads `root` and its descendants now. A process that has just ended counts as 0.
    pub(crate) fn of_tree(root: u32) -> Result<CpuReading> {
        let mut reading = CpuReading::default();
        for pid in process_tree(root)? {
            reading.add_process(pid);
        }
        Ok(reading)
    }

    /// Reads one process without its children.
    pub(crate) fn of_process(pid: u32) -> CpuReading {
        let mut reading = CpuReading::default();
        reading.add_process(pid);
        reading
    }

    /// What the children of this process used that ended and were waited for.
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

    fn add_process(&mut self, pid: u32) {
        if let Some(stat) = process_stat(pid) {
            self.user += stat.user;
            self.system += stat.system;
            self.page_faults += stat.page_faults;
        }
        for tid in numbered_entries(&format!("/proc/{pid}/task")).unwrap_or_default() {
            let of_thread = |file: &str| read(pid, &format!("task/{tid}/{file}"));
            if let Some(run_time) = parse_schedstat(&of_thread("schedstat")) {
                self.by_thread.insert(tid, run_time);
            }
            self.context_switches += parse_context_switches(&of_thread("status"));
        }
    }

    /// Run time of all processes for which `is_counted`.
    fn of_all(is_counted: impl Fn(u32) -> bool) -> Result<CpuReading> {
        let all = numbered_entries("/proc").context(|| "reading /proc".into())?;
        let mut reading = CpuReading::default();
        let counted = all.into_iter().filter(|&pid| is_counted(pid));
        counted.for_each(|pid| reading.add_process(pid));
        Ok(reading)
    }
}

/// Run time of the kernel threads that do network work outside of processes.
pub(crate) fn network_threads_cpu() -> Result<CpuReading> {
    CpuReading::of_all(|pid| read(pid, "comm").starts_with("ksoftirqd/"))
}

/// Run time of all kernel threads, which do work for any program.
pub(crate) fn kernel_threads_cpu() -> Result<CpuReading> {
    CpuReading::of_all(|pid| process_stat(pid).is_some_and(|stat| stat.parent == KTHREADD))
}

/// A process and its descendants, the root first.
pub(crate) fn process_tree(root: u32) -> Result<Vec<u32>> {
    let all = numbered_entries("/proc").context(|| "reading /proc".into())?;
    let parents = all.into_iter();
    let parents: Vec<(u32, u32)> = parents
        .filter_map(|pid| Some((pid, process_stat(pid)?.parent)))
        .collect();
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
    Some(parse_kib_field(&read(pid, "status"), "VmHWM:")? * 1024)
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
    let resident = |pid| match parse_kib_field(&read(pid, "smaps_rollup"), "Rss:") {
        Some(kib) => kib * 1024,
        None => memory_of(&[pid]).resident_bytes,
    };
    Ok(process_tree(root)?.into_iter().map(resident).sum())
}

/// The memory of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// Each process counts the pages that it shares with others.
    pub(crate) resident_bytes: u64,
    /// So far, with and without input.
    pub(crate) page_faults: u64,
}

/// Of these processes now, from two small files for each.
pub(crate) fn memory_of(processes: &[u32]) -> ProcessMemory {
    let mut memory = ProcessMemory::default();
    for &pid in processes {
        memory.resident_bytes +=
            parse_kib_field(&read(pid, "status"), "VmRSS:").unwrap_or(0) * 1024;
        memory.page_faults += process_stat(pid).map_or(0, |stat| stat.page_faults);
    }
    memory
}

/// Bytes that a process tree has read from storage so far; `None` where the kernel doesn't count
/// them.
pub(crate) fn storage_read_bytes(root: u32) -> Result<Option<u64>> {
    let stored = |pid| {
        let io = read(pid, "io");
        let bytes = io
            .lines()
            .find_map(|line| line.strip_prefix("read_bytes: "))?;
        bytes.trim().parse::<u64>().ok()
    };
    Ok(process_tree(root)?.into_iter().map(stored).sum())
}

/// Bytes of kernel memory in TCP buffers, machine-wide.
pub(crate) fn tcp_buffer_bytes() -> Option<u64> {
    let sockstat = fs::read_to_string("/proc/net/sockstat").ok()?;
    let pages = parse_tcp_pages(&sockstat)?;
    Some(pages * rustix::param::page_size() as u64)
}

/// What all processors did since the machine started.
pub(crate) fn machine_ticks() -> Result<MachineTicks> {
    let text = fs::read_to_string("/proc/stat").context(|| "reading /proc/stat".into())?;
    Ok(parse_machine_ticks(&text).unwrap_or(MachineTicks { busy: 0, steal: 0 }))
}

pub(crate) fn ticks(count: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

/// A file of a process; empty if the process has ended.
fn read(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

fn process_stat(pid: u32) -> Option<ProcessStat> {
    parse_process_stat(&read(pid, "stat"))
}

/// A field such as `VmHWM:   1234 kB` of `/proc/PID/status` or `/proc/meminfo`, in KiB.
pub(crate) fn parse_kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The command's name may hold blanks and parentheses: fields count from the last `)`.
fn parse_process_stat(text: &str) -> Option<ProcessStat> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let parent = u32::try_from(number(1)?).ok()?;
    Some(ProcessStat {
        parent,
        page_faults: number(7)? + number(9)?,
        user: ticks(number(11)?),
        system: ticks(number(12)?),
    })
}

/// Voluntary and involuntary ones.
fn parse_context_switches(status: &str) -> u64 {
    let counts = status.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        name.ends_with("ctxt_switches")
            .then(|| count.trim().parse::<u64>().ok())?
    });
    counts.sum()
}

fn parse_schedstat(text: &str) -> Option<Duration> {
    let nanoseconds = text.split_whitespace().next()?;
    nanoseconds.parse().ok().map(Duration::from_nanos)
}

/// user nice system idle iowait irq softirq steal guest guest_nice; guest is within user.
fn parse_machine_ticks(text: &str) -> Option<MachineTicks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields = line.split_whitespace();
    let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let field = |index: usize| fields.get(index).copied();
    let busy = field(0)? + field(1)? + field(2)? + field(5)? + field(6)?;
    Some(MachineTicks {
        busy,
        steal: field(7)?,
    })
}

fn parse_tcp_pages(sockstat: &str) -> Option<u64> {
    let line = sockstat
        .lines()
        .find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

fn numbered_entries(directory: &str) -> std::io::Result<Vec<u32>> {
    let names =
        fs::read_dir(directory)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4711 (a (very) odd) name) S 42 4711 4711 0 -1 4194304 95 0 0 0 \
                        120 340 7 9 20 0 1 0 1234 5 6";

    #[test]
    fn a_stat_line_is_counted_from_the_last_parenthesis() {
        let expected = ProcessStat {
            parent: 42,
            page_faults: 95,
            user: ticks(120),
            system: ticks(340),
        };
        assert_eq!(parse_process_stat(STAT), Some(expected));
        assert_eq!(parse_process_stat("4711 (cut"), None);
        assert_eq!(parse_process_stat("1 (x) S 1 1"), None);
    }

    #[test]
    fn a_schedstat_starts_with_nanoseconds_on_a_processor() {
        assert_eq!(
            parse_schedstat("28947614 6595506 62\n"),
            Some(Duration::from_nanos(28_947_614))
        );
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn a_kib_field_is_found_by_name() {
        let status = "Name:\tnginx\nVmPeak:\t   9000 kB\nVmHWM:\t    1234 kB\n";
        assert_eq!(parse_kib_field(status, "VmHWM:"), Some(1234));
        assert_eq!(parse_kib_field(status, "VmRSS:"), None);
    }

    #[test]
    fn busy_ticks_leave_out_idle_iowait_and_steal() {
        let text = "cpu  10 1 100 5000 300 2 20 7 0 0\ncpu0 5 0 50 2500 150 1 10 3 0 0\n";
        assert_eq!(
            parse_machine_ticks(text),
            Some(MachineTicks {
                busy: 133,
                steal: 7
            })
        );
    }

    #[test]
    fn tcp_memory_is_counted_in_pages() {
        let text =
            "sockets: used 12\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 283\nUDP: inuse 0 mem 5\n";
        assert_eq!(parse_tcp_pages(text), Some(283));
    }

    #[test]
    fn context_switches_of_both_kinds_count() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t11\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(parse_context_switches(status), 13);
    }

    #[test]
    fn the_time_is_split_as_the_ticks_are() {
        let mut after = reading(&[(1, 400)], 30);
        after.user = ticks(10);
        let used = after.used_since(&reading(&[(1, 0)], 0));
        assert_eq!(used.cpu, Duration::from_millis(400));
        assert_eq!(used.user, Duration::from_millis(100));
    }

    fn reading(threads: &[(u32, u64)], ticks: u64) -> CpuReading {
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
