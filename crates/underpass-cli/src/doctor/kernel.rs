//! The kernel: its version, its restrictions on this process, the calls it lacks, and the settings
//! that bound throughput and the number of connections.

use std::fs;

use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use underpass::errno::Named;
use underpass::limits::PIPE_BYTES;
use underpass::{Cause, Endpoint, EndpointKind, Kernel, Mechanism, Scope};

use super::explanation;
use super::trial::TrialOutcome;

/// The kernel, as this process sees it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KernelReport {
    pub(super) release: String,
    pub(super) architecture: String,
    pub(super) seccomp: Seccomp,
    /// `None` if /proc does not report it.
    pub(super) no_new_privileges: Option<bool>,
    /// Calls that are missing or forbidden, detected by calling them without descriptors.
    pub(super) calls_missing: Vec<MissingCall>,
}

/// The seccomp mode of this process; containers and service managers install filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Seccomp {
    None,
    Strict,
    Filter,
    Unknown,
}

/// A call that is not available at all.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MissingCall {
    pub(super) mechanism: Mechanism,
    pub(super) errno: String,
    pub(super) meaning: String,
}

impl KernelReport {
    pub(super) fn ask() -> Self {
        let name = rustix::system::uname();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            release: name.release().to_string_lossy().into_owned(),
            architecture: name.machine().to_string_lossy().into_owned(),
            seccomp: Seccomp::of(field(&status, "Seccomp")),
            no_new_privileges: field(&status, "NoNewPrivs").map(|flag| flag == "1"),
            calls_missing: calls_missing(&Kernel::probe()),
        }
    }

    /// Says of a refusal that it applies everywhere if the call is not available at all.
    pub(super) fn explain(&self, of: Mechanism, outcome: &mut TrialOutcome) {
        let mut missing = self.calls_missing.iter();
        if let TrialOutcome::Refused {
            errno,
            meaning,
            scope,
        } = outcome
            && let Some(call) = missing.find(|call| call.mechanism == of && call.errno == *errno)
        {
            (*meaning, *scope) = (call.meaning.clone(), Scope::Kernel);
        }
    }
}

impl Seccomp {
    fn of(mode: Option<&str>) -> Self {
        match mode {
            Some("0") => Self::None,
            Some("1") => Self::Strict,
            Some("2") => Self::Filter,
            _ => Self::Unknown,
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::None => "no seccomp filter",
            Self::Strict => "seccomp strict",
            Self::Filter => "a seccomp filter is active",
            Self::Unknown => "seccomp unknown",
        }
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    status.lines().find_map(value).map(str::trim)
}

/// Returns the mechanisms that the kernel refuses between any ends.
fn calls_missing(kernel: &Kernel) -> Vec<MissingCall> {
    let file = Endpoint::sample(EndpointKind::File);
    let missing = |mechanism| {
        let (scope, errno) = kernel.refusal(mechanism, &file, &file)?;
        let cause = Cause::Errno(errno);
        Some(MissingCall {
            mechanism,
            errno: explanation::name(cause),
            meaning: explanation::of(mechanism, cause, scope),
        })
    };
    Mechanism::ALL.into_iter().filter_map(missing).collect()
}

/// The limits of pipes, which splice needs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PipeLimits {
    /// `fs.pipe-max-size`, bytes: the largest size an unprivileged process may request.
    pub(super) max_bytes: Option<u64>,
    /// `fs.pipe-user-pages-soft`: beyond it a user's pipes cannot grow; 0 means no limit.
    pub(super) user_pages_soft: Option<u64>,
    /// `fs.pipe-user-pages-hard`: beyond it a user cannot create pipes; 0 means no limit.
    pub(super) user_pages_hard: Option<u64>,
    /// The size of a new pipe.
    pub(super) new_bytes: Option<u64>,
    /// The size Underpass requests.
    pub(super) asked_bytes: u64,
    /// The size of the pipe after the request.
    pub(super) granted_bytes: Option<u64>,
    /// Why the request was refused.
    pub(super) refusal: Option<String>,
}

impl PipeLimits {
    pub(super) fn ask() -> Self {
        let (new_bytes, granted_bytes, refusal) = match std::io::pipe() {
            Err(error) => (None, None, Some(explanation::of_error(&error))),
            Ok((_read, write)) => {
                let size = || fcntl_getpipe_size(&write).ok().map(|size| size as u64);
                let new_bytes = size();
                let asked = fcntl_setpipe_size(&write, PIPE_BYTES);
                let refusal = asked.err().map(|errno| Named(errno).to_string());
                (new_bytes, size(), refusal)
            }
        };
        Self {
            max_bytes: number("fs/pipe-max-size"),
            user_pages_soft: number("fs/pipe-user-pages-soft"),
            user_pages_hard: number("fs/pipe-user-pages-hard"),
            new_bytes,
            asked_bytes: PIPE_BYTES as u64,
            granted_bytes,
            refusal,
        }
    }
}

/// The limits on open descriptors. `None` means unlimited, or unknown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DescriptorLimits {
    /// The current limit of this process.
    pub(super) soft: Option<u64>,
    /// The limit up to which the process may raise `soft`.
    pub(super) hard: Option<u64>,
    /// `fs.nr_open`: the maximum of the hard limit.
    pub(super) nr_open: Option<u64>,
    /// `fs.file-max`: the limit for all processes together.
    pub(super) file_max: Option<u64>,
}

impl DescriptorLimits {
    pub(super) fn ask() -> Self {
        let limit = getrlimit(Resource::Nofile);
        Self {
            soft: limit.current,
            hard: limit.maximum,
            nr_open: number("fs/nr_open"),
            file_max: number("fs/file-max"),
        }
    }
}

/// A kernel setting, its value, and why it matters.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KernelSetting {
    pub(super) name: String,
    /// `None` if unreadable.
    pub(super) value: Option<String>,
    pub(super) why: &'static str,
}

const TCP: [(&str, &str); 6] = [
    (
        "net.ipv4.tcp_wmem",
        "send buffer in bytes (minimum, default, maximum): maximum ÷ round-trip time bounds the \
         throughput of a connection",
    ),
    (
        "net.ipv4.tcp_rmem",
        "receive buffer in bytes, likewise: bounds what is received per round trip",
    ),
    (
        "net.ipv4.tcp_congestion_control",
        "congestion control; bbr uses long, lossy paths better than cubic",
    ),
    (
        "net.core.somaxconn",
        "maximum queue of connections that `serve` has not accepted yet; more are dropped",
    ),
    (
        "net.ipv4.tcp_notsent_lowat",
        "unsent bytes buffered per connection; 4294967295 is no limit: a slow reader can occupy \
         the maximum of tcp_wmem",
    ),
    (
        "net.ipv4.ip_local_port_range",
        "ports for outgoing connections: limits connections to one address and port",
    ),
];

/// Returns the TCP settings that affect throughput.
pub(super) fn tcp() -> Vec<KernelSetting> {
    let setting = |(name, why): (&str, &'static str)| KernelSetting {
        name: name.to_owned(),
        value: sysctl(&name.replace('.', "/")),
        why,
    };
    TCP.into_iter().map(setting).collect()
}

/// Returns the numbers in the value of a setting.
pub(super) fn numbers(settings: &[KernelSetting], name: &str) -> Vec<u64> {
    let value = settings
        .iter()
        .find(|setting| setting.name == name)
        .and_then(|setting| setting.value.as_deref());
    let words = value.unwrap_or_default().split(' ');
    words.filter_map(|word| word.parse().ok()).collect()
}

fn number(path: &str) -> Option<u64> {
    sysctl(path)?.parse().ok()
}

/// Reads a setting as one line, with blanks for tabs.
fn sysctl(path: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_found_by_its_whole_name() {
        let status = "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        assert_eq!(field(status, "Seccomp"), Some("2"));
        assert_eq!(Seccomp::of(field(status, "Seccomp")), Seccomp::Filter);
        assert_eq!(field(status, "Seccom"), None);
    }

    #[test]
    fn settings_are_read_and_their_numbers_found() {
        let settings = tcp();
        assert_eq!(numbers(&settings, "net.ipv4.ip_local_port_range").len(), 2);
        assert!(numbers(&settings, "net.ipv4.none").is_empty());
    }

    #[test]
    fn a_pipe_is_granted_something() {
        let pipes = PipeLimits::ask();
        assert!(pipes.granted_bytes >= pipes.new_bytes, "{pipes:?}");
        assert_eq!(
            pipes.refusal.is_none(),
            pipes.granted_bytes == Some(pipes.asked_bytes)
        );
    }
}
