//! What an answer of the kernel means for moving bytes, in words that help.

use std::io;

use rustix::io::Errno;
use underpass::errno::{self, Named};
use underpass::{Cause, Mechanism, Scope};

/// `EXDEV`, or what stands for it where no call failed.
pub(super) fn name(cause: Cause) -> String {
    match cause {
        Cause::Errno(errno) => match errno::name(errno) {
            "errno" => format!("errno {}", errno.raw_os_error()),
            known => known.to_owned(),
        },
        Cause::SaidNothing => "0 bytes".to_owned(),
    }
}

/// How far a refusal holds.
pub(super) const fn reach(scope: Scope) -> &'static str {
    match scope {
        Scope::Kernel => "everywhere on this machine",
        Scope::Devices => "between these file systems",
        Scope::Once => "for these two descriptors",
    }
}

/// Why a mechanism was refused.
pub(super) fn of(mechanism: Mechanism, cause: Cause, scope: Scope) -> String {
    let Cause::Errno(errno) = cause else {
        return "the call moved nothing although there was more: only reading works".to_owned();
    };
    let known = match (scope, errno) {
        (Scope::Kernel, Errno::NOSYS) => "not built in this kernel, or hidden by a seccomp filter",
        (Scope::Kernel, _) => "forbidden to this process, most likely by a seccomp filter",
        _ => match mechanism {
            Mechanism::Clone => clone(errno),
            Mechanism::CopyRange => copy_range(errno),
            _ => by_pages(errno),
        },
    };
    if known.is_empty() {
        words(errno)
    } else {
        known.to_owned()
    }
}

/// What the kernel's error means in general.
pub(super) fn words(errno: Errno) -> String {
    let words = io::Error::from(errno).to_string();
    let end = words.find(" (os error").unwrap_or(words.len());
    words[..end].to_owned()
}

const fn clone(errno: Errno) -> &'static str {
    match errno {
        Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS => {
            "not a copy-on-write file system: files can't share blocks"
        }
        Errno::XDEV => "two file systems: blocks can be shared inside one only",
        Errno::INVAL => "the range or the files' flags (no copy-on-write, checksums) forbid it",
        Errno::PERM | Errno::ACCESS => "a file that must not change, or a security policy",
        _ => "",
    }
}

const fn copy_range(errno: Errno) -> &'static str {
    match errno {
        Errno::XDEV => "two file systems: since Linux 5.19 this call stays inside one",
        Errno::OPNOTSUPP | Errno::NOSYS => "the file system does not offer it",
        Errno::INVAL => "not between such files",
        Errno::PERM | Errno::ACCESS => "a file that must not change, or a security policy",
        _ => "",
    }
}

/// sendfile and splice.
const fn by_pages(errno: Errno) -> &'static str {
    match errno {
        Errno::INVAL => "the file system can't hand on its pages: only reading works",
        Errno::OPNOTSUPP | Errno::NOSYS => "the file system does not offer it",
        Errno::PERM | Errno::ACCESS => "a sealed file, or a security policy",
        _ => "",
    }
}

/// An error as people search for it.
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
    fn words_have_no_number() {
        assert_eq!(words(Errno::STALE), "Stale file handle");
    }

    #[test]
    fn a_rare_errno_keeps_its_number() {
        let rare = Cause::Errno(Errno::XFULL);
        assert_eq!(name(rare), format!("errno {}", Errno::XFULL.raw_os_error()));
    }
}
