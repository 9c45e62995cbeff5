//! This machine, and reasons to doubt its figures.

pub(crate) mod network;
pub(crate) mod noise;
pub(crate) mod proc;
pub(crate) mod throttle;
pub(crate) mod trace;
pub(crate) mod window;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use procfs::{CpuInfo, Current as _, Meminfo};
use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Number of processors.
    pub processors: usize,
    /// The model of the first one, as the kernel names it.
    pub processor_model: String,
    /// Whether it runs under a hypervisor.
    pub virtual_machine: bool,
    /// The kernel's release.
    pub kernel: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Of TCP; some pace packets with timers, which costs processor time.
    pub congestion_control: String,
    /// Of the directory of the test files, unless an experiment names another.
    pub file_system: String,
}

impl Machine {
    pub(crate) fn look(directory: &Path) -> Machine {
        let cpus = CpuInfo::current().ok();
        let model = cpus.as_ref().and_then(|cpus| cpus.model_name(0));
        let flags = cpus.as_ref().and_then(|cpus| cpus.flags(0));
        Machine {
            processors: cpus.as_ref().map_or(0, CpuInfo::num_cores),
            processor_model: model.unwrap_or_default().to_owned(),
            virtual_machine: flags.is_some_and(|flags| flags.contains(&"hypervisor")),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
            congestion_control: network::machines_control(),
            file_system: file_system(directory),
        }
    }

    /// One line for people, with the version of the kernel but not its builder.
    pub fn describe(&self) -> String {
        let version = self.kernel.split('-').next().unwrap_or_default();
        let kind = if self.virtual_machine {
            "virtual machine"
        } else {
            "machine"
        };
        format!(
            "{kind} with {} processors ({}), {} GiB of memory, Linux {}, TCP congestion control \
             {}, files on {}",
            self.processors,
            self.processor_model,
            self.memory_bytes.div_ceil(1 << 30),
            version,
            self.congestion_control,
            self.file_system
        )
    }
}

/// Reasons to doubt figures of this machine, before anything is measured.
pub(crate) fn warnings() -> Vec<String> {
    [processor_quota(), frequency_scaling(), few_processors()]
        .into_iter()
        .flatten()
        .collect()
}

/// By control groups of version 2 or 1: `cpu.max` holds quota and period, in microseconds.
fn processor_quota() -> Option<String> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::"));
    let in_group = group.map(|group| format!("/sys/fs/cgroup{group}/cpu.max"));
    let limit = in_group
        .iter()
        .map(String::as_str)
        .chain(["/sys/fs/cgroup/cpu.max"])
        .find_map(|path| parse_quota(&fs::read_to_string(path).ok()?))?;
    Some(format!(
        "a control group limits this process to {limit:.1} processors: the kernel pauses it beyond \
         its quota, which looks like slowness"
    ))
}

fn parse_quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn frequency_scaling() -> Option<String> {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    let governor = fs::read_to_string(path).ok()?;
    let governor = governor.trim();
    (governor != "performance").then(|| {
        format!(
            "the processors change their frequency (governor {governor}), so later rounds may be \
             faster or slower; \"cpupower frequency-set -g performance\" prevents that"
        )
    })
}

fn few_processors() -> Option<String> {
    let mask = rustix::thread::sched_getaffinity(None).ok()?;
    (mask.count() < 2).then(|| {
        "there is only one processor, which sender and receiver share: compare processor time, not \
         throughput"
            .to_owned()
    })
}

/// Uses free memory for a moment, so many bytes of it if there is as much.
///
/// A virtual machine may have given it to its host (docs/kernel-notes.md, "Free memory of a virtual
/// machine"); the first contender of a round would wait for the host.
pub(crate) fn touch_free_memory(bytes: u64) {
    let system = rustix::system::sysinfo();
    let free = system.freeram as u64 * u64::from(system.mem_unit);
    let touched = bytes.min(free / 4 * 3) as usize;
    drop(std::hint::black_box(vec![1_u8; touched]));
}

/// Today in UTC, as RFC 3339 writes a date.
pub(crate) fn today() -> String {
    let mut time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    time.truncate("2026-01-31".len());
    time
}

/// By the magic numbers of statfs(2).
pub(crate) fn file_system(directory: &Path) -> String {
    let magic = rustix::fs::statfs(directory).map_or(0, |found| found.f_type as u64 & 0xffff_ffff);
    match magic {
        0xef53 => "ext4".into(),
        0x5846_5342 => "xfs".into(),
        0x9123_683e => "btrfs".into(),
        0x0102_1994 => "tmpfs".into(),
        0x794c_7630 => "overlay".into(),
        other => format!("file system {other:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_processors_and_max_is_none() {
        assert_eq!(parse_quota("150000 100000\n"), Some(1.5));
        assert_eq!(parse_quota("max 100000\n"), None);
    }
}
