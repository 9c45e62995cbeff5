//! `--explain`: for people, how each file was copied, and what it came to.

use underpass_copy::{CopyEnd, CopySummary, EntryOutcome, Finished};

/// Below the line with the names.
pub(super) fn lines(finished: &Finished) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(travel) = &finished.travel {
        lines.push(format!("plan: {}", travel.plan));
        if finished.outcome != EntryOutcome::Planned {
            lines.push(format!("account: {}", travel.account));
        }
    }
    if finished.resumed > 0 {
        let resumed = finished.resumed;
        lines.push(format!("resumed: {resumed} bytes were there already"));
    }
    if let Some(hash) = &finished.hash {
        lines.push(format!("verified: BLAKE3 {hash}"));
    }
    lines
}

/// All together.
pub(super) fn summary(summary: &CopySummary) -> String {
    format!("summary: {}; {}", counts(summary), summary.account)
}

/// What is said at the end of a copy with errors.
pub(super) fn ended(summary: &CopySummary) -> String {
    let how = match summary.ended {
        CopyEnd::Stopped => "stopped",
        CopyEnd::ByItself => "not all could be copied",
    };
    format!(
        "{how}: {}, {} bytes",
        counts(summary),
        summary.account.bytes()
    )
}

fn counts(summary: &CopySummary) -> String {
    let count = |number: u64, one: &str, many: &str| match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        number => Some(format!("{number} {many}")),
    };
    let copied = [
        count(summary.files, "file", "files"),
        count(summary.directories, "folder", "folders"),
        count(summary.symlinks, "symbolic link", "symbolic links"),
        count(summary.specials, "special file", "special files"),
        count(summary.hard_links, "hard link", "hard links"),
    ];
    let copied: Vec<_> = copied.into_iter().flatten().collect();
    let copied = match copied.is_empty() {
        true => "nothing copied".to_owned(),
        false => format!("{} copied", copied.join(", ")),
    };
    let rest = [
        count(summary.verified, "verified", "verified"),
        count(summary.skipped, "skipped", "skipped"),
        count(summary.errors, "error", "errors"),
        count(summary.warnings, "warning", "warnings"),
    ];
    let parts = std::iter::once(copied).chain(rest.into_iter().flatten());
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_counted() {
        let nothing = CopySummary::default();
        assert_eq!(
            summary(&nothing),
            "summary: nothing copied; nothing to move"
        );
        let some = CopySummary {
            files: 3,
            directories: 1,
            errors: 1,
            ..CopySummary::default()
        };
        assert_eq!(
            ended(&some),
            "not all could be copied: 3 files, 1 folder copied, 1 error, 0 bytes"
        );
    }
}
