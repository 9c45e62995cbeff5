//! Explanations of the kernel's errors for the user.

use std::io;

use rustix::io::Errno;
use underpass::errno::{self, Named};
use underpass::{Cause, Mechanism, Scope};

/// Returns the name of an errno (`EXDEV`), or `0 bytes` if the call moved nothing.
pub(super) fn name(cause: Cause) -> String {
    match cause {
        Cause::Errno(errno) => errno::name(errno).into_owned(),
        Cause::SaidNothing => "0 bytes".to_owned(),
    }
}

/// Describes the scope of a refusal.
pub(super) const fn reach(scope: Scope) -> &'static str {
    match scope {
        Scope::Kernel => "for all files on this machine",
        Scope::Devices => "between these file systems",
        Scope::Once => "for these two descriptors",
    }
}

/// Explains why the kernel refused a mechanism.
pub(super) fn of(mechanism: Mechanism, cause: Cause, scope: Scope) -> String {
    let Cause::Errno(errno) = cause else {
        return "the call moved nothing before the end of the file: only read/write works"
            .to_owned();
    };
    let known = match (scope, mechanism, errno) {
        (Scope::Kernel, _, Errno::NOSYS) => {
            "not built into this kernel, or blocked by a seccomp filter"
        }
        (Scope::Kernel, _, Errno::PERM | Errno::ACCESS) => {
            "not permitted for this process, most likely by a seccomp filter"
        }
        (Scope::Kernel, ..) => "the call fails whatever the files are; a filter may forbid it",
        (_, Mechanism::Clone, Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => {
            "the file system has no reflinks: files cannot share blocks"
        }
        (_, Mechanism::Clone, Errno::XDEV) => {
            "two file systems: blocks can only be shared within one"
        }
        (_, Mechanism::Clone, Errno::INVAL) => {
            "excluded by the range or by the files' flags (no copy-on-write, checksums)"
        }
        (_, Mechanism::CopyRange, Errno::XDEV) => {
            "two file systems: since Linux 5.19 this call works within one only"
        }
        (_, Mechanism::Clone | Mechanism::CopyRange, Errno::PERM | Errno::ACCESS) => {
            "the file is immutable, or a security policy forbids it"
        }
        (.., Errno::INVAL) => "the call does not work between these ends",
        (.., Errno::OPNOTSUPP | Errno::NOSYS) => "the file system does not support it",
        (.., Errno::PERM | Errno::ACCESS) => "the file is sealed, or a security policy forbids it",
        _ => return errno::meaning(errno),
    };
    known.to_owned()
}

/// Formats an error with the name of its errno, which users search for.
pub(super) fn of_error(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => Named(Errno::from_raw_os_error(code)).to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_meaning() {
        for mechanism in Mechanism::ALL {
            for scope in [Scope::Kernel, Scope::Devices, Scope::Once] {
                for errno in [Errno::XDEV, Errno::STALE, Errno::PERM, Errno::NOSYS] {
                    assert!(of(mechanism, Cause::Errno(errno), scope).len() > 10);
                }
            }
        }
    }

    #[test]
    fn a_rare_errno_keeps_its_number() {
        let rare = Cause::Errno(Errno::XFULL);
        assert_eq!(name(rare), format!("errno {}", Errno::XFULL.raw_os_error()));
    }
}
