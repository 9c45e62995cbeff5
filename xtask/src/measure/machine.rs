//! What this machine is: figures without it mean nothing.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::proc::parse_kib_field;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) processors: usize,
    pub(crate) processor_model: String,
    pub(crate) virtual_machine: bool,
    pub(crate) kernel: String,
    pub(crate) memory_bytes: u64,
    /// Of TCP; some pace what they send by timers, which shows in processor time.
    pub(crate) congestion_control: String,
    /// Of the directory the files were in.
    pub(crate) file_system: String,
}

impl Machine {
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

    /// A route may name another congestion control than the machine's.
    pub(crate) fn with_congestion_control(self, name: &str) -> Machine {
        Machine {
            congestion_control: name.to_owned(),
            ..self
        }
    }

    pub(crate) fn describe(&self) -> String {
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

    pub(crate) fn files_are_in_memory(&self) -> bool {
        self.file_system == "tmpfs"
    }
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
fn file_system(directory: &Path) -> String {
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
    fn cpuinfo_gives_model_and_count() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\n";
        assert_eq!(processors(text), 2);
        assert_eq!(
            cpuinfo_field(text, "model name").as_deref(),
            Some("AMD EPYC")
        );
    }
}
