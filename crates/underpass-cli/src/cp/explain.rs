//! Descriptions of measured results: how each file was copied (`--explain`, and `--debug` in GNU's
//! terms), and the totals.

use underpass::{Account, Cause, Mechanism, Reason};
use underpass_copy::{
    CopyEnd, CopyMode, CopyOptions, CopySummary, EntryKind, EntryOutcome, Finished, HoleDetection,
    TransferReport,
};

use crate::layout::counted;

/// Returns the lines below the one with the names.
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

/// Returns the line with the totals.
pub(super) fn summary(summary: &CopySummary) -> String {
    format!("summary: {}; {}", counts(summary), summary.account)
}

/// The last line of a copy with errors, or one that was stopped and left so many files incomplete.
pub(super) fn ended(summary: &CopySummary, stopped: u64, options: &CopyOptions) -> String {
    let how = match summary.ended {
        CopyEnd::Stopped => "stopped",
        CopyEnd::ByItself => "not all could be copied",
    };
    let others = CopySummary {
        errors: summary.errors.saturating_sub(stopped),
        ..summary.clone()
    };
    let bytes = summary.account.bytes() + summary.incomplete_bytes;
    let is_left = bytes > 0 && options.copy_mode == CopyMode::Copy;
    let advice = match summary.ended {
        CopyEnd::Stopped if is_left && !options.resume && !options.atomic => {
            "; --resume continues it"
        }
        _ => "",
    };
    let stopped = match stopped {
        0 => String::new(),
        _ => format!(", {} incomplete", counted(stopped, "file")),
    };
    format!(
        "{how}: {}{stopped}, {}{advice}",
        counts(&others),
        counted(bytes, "byte")
    )
}

fn counts(summary: &CopySummary) -> String {
    let count = |number, one| (number > 0).then(|| counted(number, one));
    let copied = [
        count(summary.files, "file"),
        count(summary.directories, "folder"),
        count(summary.symlinks, "symbolic link"),
        count(summary.specials, "special file"),
        count(summary.hard_links, "hard link"),
    ];
    let copied: Vec<_> = copied.into_iter().flatten().collect();
    let copied = match copied.is_empty() {
        true => "nothing copied".to_owned(),
        false => format!("{} copied", copied.join(", ")),
    };
    let state = |number, state| (number > 0).then(|| format!("{number} {state}"));
    let there = summary.resumed_bytes + summary.skipped_bytes;
    let there = (there > 0).then(|| counted(there, "byte") + " already there");
    let rest = [
        there,
        state(summary.verified, "verified"),
        state(summary.skipped, "skipped"),
        count(summary.errors, "error"),
        count(summary.warnings, "warning"),
    ];
    let parts = std::iter::once(copied).chain(rest.into_iter().flatten());
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns the line of a regular file that was copied; other entries have none.
pub(super) fn debug_line(finished: &Finished) -> Option<String> {
    if finished.kind != EntryKind::File || finished.outcome != EntryOutcome::Copied {
        return None;
    }
    let travel = finished.travel.as_deref();
    let holes = match travel.map(|travel| travel.holes_sought) {
        Some(HoleDetection::Asked) => "SEEK_HOLE",
        Some(HoleDetection::Zeros) => "zeros",
        Some(HoleDetection::AskedAndZeros) => "SEEK_HOLE + zeros",
        Some(HoleDetection::No) | None => "no",
    };
    Some(format!(
        "copy offload: {}, reflink: {}, sparse detection: {holes}",
        travel.map_or("unknown", offload),
        travel.map_or("unknown", reflink),
    ))
}

/// Returns whether `copy_file_range` moved bytes, in GNU's words.
fn offload(travel: &TransferReport) -> &'static str {
    let account = &travel.account;
    if account.of(Mechanism::CopyRange).bytes > 0 {
        return "yes";
    }
    match left_out(travel, Mechanism::CopyRange) {
        _ if was_refused(account, Mechanism::CopyRange) => "unsupported",
        Some(Reason::Refused(..) | Reason::NotRegular(_)) => "unsupported",
        Some(reason) if is_unwanted(reason) || reason == Reason::CopiesBytes => "avoided",
        // It had nothing to do: all blocks are shared, or holes, or the file is empty.
        _ if account.bytes() == account.of(Mechanism::Clone).bytes => "unknown",
        _ => "no",
    }
}

/// Returns whether blocks are shared, in GNU's words.
fn reflink(travel: &TransferReport) -> &'static str {
    let account = &travel.account;
    if account.of(Mechanism::Clone).bytes > 0 {
        return "yes";
    }
    match left_out(travel, Mechanism::Clone) {
        _ if was_refused(account, Mechanism::Clone) => "unsupported",
        Some(Reason::Refused(..) | Reason::NotRegular(_)) => "unsupported",
        Some(reason) if is_unwanted(reason) || reason == Reason::Unaligned => "no",
        _ => "unknown",
    }
}

/// Returns whether a mechanism was left out because of an option.
fn is_unwanted(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::MayShareBlocks | Reason::MayKeepHoles | Reason::SeesNoZeros | Reason::NotAsked
    )
}

fn left_out(travel: &TransferReport, mechanism: Mechanism) -> Option<Reason> {
    let mut left_out = travel.plan.left_out();
    left_out.find_map(|(out, reason)| (out == mechanism).then_some(reason))
}

/// Returns whether a mechanism was tried and refused.
fn was_refused(account: &Account, mechanism: Mechanism) -> bool {
    account
        .refusals
        .iter()
        .any(|refusal| refusal.mechanism == mechanism && matches!(refusal.cause, Cause::Errno(_)))
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
            ended(&some, 0, &CopyOptions::default()),
            "not all could be copied: 3 files, 1 folder copied, 1 error, 0 bytes"
        );
        let stopped = CopySummary {
            errors: 1,
            ended: CopyEnd::Stopped,
            incomplete_bytes: 67_108_864,
            skipped_bytes: 5,
            ..CopySummary::default()
        };
        let line =
            "stopped: nothing copied, 5 bytes already there, 1 file incomplete, 67108864 bytes";
        let resuming = CopyOptions {
            resume: true,
            ..CopyOptions::default()
        };
        assert_eq!(ended(&stopped, 1, &resuming), line);
        let advised = format!("{line}; --resume continues it");
        assert_eq!(ended(&stopped, 1, &CopyOptions::default()), advised);
    }
}
