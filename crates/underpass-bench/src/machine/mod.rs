//! What this machine is, and what of it speaks against believing figures.

pub(crate) mod network;
pub(crate) mod noise;
pub(crate) mod proc;
pub(crate) mod throttle;
pub(crate) mod trace;
pub(crate) mod window;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::machine::proc::parse_kib_field;

/// The machine a run was made on: figures without it mean nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// How many processors it has.
    pub processors: usize,
    /// The model of the first one, as the kernel names it.
    pub processor_model: String,
    /// Whether a hypervisor shares it out.
    pub virtual_machine: bool,
    /// The kernel's release.
    pub kernel: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Of TCP; some pace what they send by timers, which shows in processor time.
    pub congestion_control: String,
    /// Of the directory the files were in, unless an experiment says otherwise.
    pub file_system: String,
}

impl Machine {
    /// Looks around.
    pub(crate) fn look(directory: &Path) -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let flags = cpuinfo_field(&cpuinfo, "flags").unwrap_or_default();
        Machine {
            processors: processors(&cpuinfo),
            processor_model: cpuinfo_field(&cpuinfo, "model name").unwrap_or_default(),
            virtual_machine: flags.split(' ').any(|flag| flag == "hypervisor"),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            memory_bytes: parse_kib_field(&meminfo, "MemTotal:").unwrap_or(0) * 1024,
            congestion_control: fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
                .map_or_else(|_| "unknown".into(), |name| name.trim().to_owned()),
            file_system: file_system(directory),
        }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
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
            self.kernel,
            self.congestion_control,
            self.file_system
        )
    }
}

/// What of this machine makes figures doubtful, before anything was measured.
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
        "a control group lets this process use {limit:.1} processors at the most: what runs longer \
         than its quota is stopped for a while, and that shows as slowness"
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
            "the processors change their frequency (governor {governor}): what runs later may run \
             faster or slower; `cpupower frequency-set -g performance` stops that"
        )
    })
}

fn few_processors() -> Option<String> {
    let mask = rustix::thread::sched_getaffinity(None).ok()?;
    (mask.count() < 2).then(|| {
        "there is only one processor: sender and receiver take it from each other, so only \
         processor time tells, not throughput"
            .to_owned()
    })
}

/// Today in UTC, as RFC 3339 writes a date.
pub(crate) fn today() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let (year, month, day) = civil_date(since.as_secs() / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Days since 1970 to year, month, day; eras of 400 years that begin in March, so that the leap
/// day comes last. <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn processors(cpuinfo: &str) -> usize {
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count()
}

fn cpuinfo_field(cpuinfo: &str, name: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
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
    fn days_become_dates_across_leap_years() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(11_017), (2000, 3, 1));
        assert_eq!(civil_date(20_819), (2027, 1, 1));
    }

    #[test]
    fn a_quota_is_processors_and_max_is_none() {
        assert_eq!(parse_quota("150000 100000\n"), Some(1.5));
        assert_eq!(parse_quota("max 100000\n"), None);
    }

    #[test]
    fn cpuinfo_gives_model_and_count() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\n";
        assert_eq!(processors(text), 2);
        assert_eq!(
            cpuinfo_field(text, "model name").as_deref(),
            Some("AMD EPYC")
        );
    }
}
