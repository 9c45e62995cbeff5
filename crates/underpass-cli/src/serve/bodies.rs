//! The mechanisms that send bodies: by the plan, and by a trial with a served file.
//!
//! A plan cannot know what a file's file system refuses.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use underpass::limits::SPLICED_BYTES_MIN;
use underpass::tcp::loopback_pair;
use underpass::{
    Account, EndpointKind, Kernel, Mechanism, Owed, Plan, Policy, Reason, Sink, Source,
};

/// Fits into a socket's send buffer, so that no reader is needed.
const TRIED_BYTES: u64 = 4096;

/// Directory entries examined to find a file.
const ENTRIES_MAX: usize = 64;

/// The plans for sending a small and a large range of a file to a TCP socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyPlans {
    small: Plan,
    large: Plan,
}

impl BodyPlans {
    pub(super) fn new(policy: &Policy) -> Self {
        let (large, socket) = (
            Source::sample(EndpointKind::File),
            Sink::sample(EndpointKind::Tcp),
        );
        let mut small = Source::sample(EndpointKind::File);
        small.owed = Owed::Exactly(TRIED_BYTES);
        let kernel = Kernel::probe();
        let plan = |source| kernel.plan(source, &socket, policy);
        Self {
            small: plan(&small),
            large: plan(&large),
        }
    }

    /// Rejects a mechanism that cannot send bodies, before the first request does.
    pub(super) fn check(&self, only: Mechanism) -> Result<(), String> {
        if self.small.first().is_some() {
            return Ok(());
        }
        let mut left_out = self.small.left_out();
        let reason = left_out.find(|(mechanism, _)| *mechanism == only);
        let reason = reason.map(|(_, reason)| format!(": {reason}"));
        Err(format!(
            "{only} cannot send bodies{}; choose another mechanism with --only, or omit the option",
            reason.unwrap_or_default()
        ))
    }

    /// Describes how bodies are sent: by the result of a trial, or by the plan without one.
    pub(super) fn describe(&self, tried: Option<&BodyTrial>) -> String {
        let moved = |mechanism: &Mechanism| {
            tried.is_some_and(|trial| trial.account.of(*mechanism).bytes > 0)
        };
        let first = Mechanism::ALL.into_iter().find(moved);
        let Some(first) = first.or(self.small.first()) else {
            return "no mechanism can send bodies".to_owned();
        };
        let path = match first {
            Mechanism::Sendfile => "from the page cache straight to the socket",
            Mechanism::Splice => "from the page cache to the socket through a pipe",
            _ => "through a buffer in user space",
        };
        let behind = self.small.tiers().skip_while(|tier| *tier != first).skip(1);
        let others: Vec<_> = behind.map(Mechanism::name).collect();
        let fallback = match others.is_empty() {
            true => String::new(),
            false => format!("; falls back to {}", others.join(", then ")),
        };
        let refused = self
            .small
            .left_out()
            .filter(|(_, reason)| matches!(reason, Reason::Refused(..)))
            .map(|(mechanism, reason)| format!("; not {mechanism}: {reason}"));
        let known = match tried {
            Some(trial) => trial.to_string(),
            None => "planned, not tried".to_owned(),
        };
        let large = match self.large.first() {
            Some(other) if Some(other) != self.small.first() => format!(
                "; {other} first for {} KiB or more at once",
                SPLICED_BYTES_MIN >> 10
            ),
            _ => String::new(),
        };
        format!(
            "bodies are sent by {first}: {path}{fallback}{} ({known}){large}",
            refused.collect::<String>()
        )
    }
}

/// A file whose start was sent over loopback, with the result.
#[derive(Debug)]
pub(super) struct BodyTrial {
    name: String,
    account: Account,
}

impl BodyTrial {
    /// Tries the first file in the folder. `None` if it has no files or loopback fails.
    pub(super) fn run(folder: &Path) -> Option<Self> {
        let entries = fs::read_dir(folder).ok()?.take(ENTRIES_MAX).flatten();
        let mut files = entries.filter(|entry| {
            let visible = !entry.file_name().as_encoded_bytes().starts_with(b".");
            visible && entry.file_type().is_ok_and(|kind| kind.is_file())
        });
        files.find_map(|entry| {
            let account = send(&entry.path()).ok()??;
            let name = entry.file_name().display().to_string();
            Some(Self { name, account })
        })
    }
}

/// Formats as `tried with NAME`, and the refusals of the trial.
impl std::fmt::Display for BodyTrial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A file name may contain control characters, and this is a terminal.
        write!(f, "tried with {}", self.name.escape_debug())?;
        let mut refusals = self.account.refusals.iter();
        refusals.try_for_each(|refusal| write!(f, "; {refusal}"))
    }
}

/// Sends the start of a file. Returns `None` for an empty file.
fn send(path: &Path) -> io::Result<Option<Account>> {
    // The file may have been replaced by a FIFO.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() == 0 {
        return Ok(None);
    }
    let (socket, _peer) = loopback_pair()?;
    let length = found.len().min(TRIED_BYTES);
    Ok(underpass::send_file(&Kernel::probe(), &file, 0, length, &socket).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_with_content_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        assert!(BodyTrial::run(folder.path()).is_none());
        fs::create_dir(folder.path().join("folder")).unwrap();
        fs::write(folder.path().join("empty"), "").unwrap();
        fs::write(folder.path().join(".hidden"), "hidden").unwrap();
        assert!(BodyTrial::run(folder.path()).is_none());
        fs::write(folder.path().join("full"), vec![7; 10_000]).unwrap();
        let trial = BodyTrial::run(folder.path()).unwrap();
        assert_eq!(
            (trial.name.as_str(), trial.account.bytes()),
            ("full", TRIED_BYTES)
        );
    }
}
