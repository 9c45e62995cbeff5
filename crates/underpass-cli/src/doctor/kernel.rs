//! The kernel: its version, its restrictions on this process, and the calls it lacks.

use std::fs;

use serde::Serialize;
use underpass::{Cause, Endpoint, EndpointKind, Kernel, Mechanism};

use super::explanation;

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

/// The mechanisms that the kernel refuses between any ends.
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
}
