//! `--debug`: how a file was copied, in the terms of GNU's, from what was measured.

use underpass::{Account, Cause, Mechanism, Reason};
use underpass_copy::{EntryKind, EntryOutcome, Finished, HoleDetection, TransferReport};

/// The line of a regular file that was copied; other things have none.
pub(super) fn line(finished: &Finished) -> Option<String> {
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

/// Whether `copy_file_range` did it.
fn offload(travel: &TransferReport) -> &'static str {
    let account = &travel.account;
    if account.of(Mechanism::CopyRange).bytes > 0 {
        return "yes";
    }
    match left_out(travel, Mechanism::CopyRange) {
        _ if was_refused(account, Mechanism::CopyRange) => "unsupported",
        Some(Reason::Refused(..) | Reason::NotRegular(_)) => "unsupported",
        Some(reason) if is_unwanted(reason) || reason == Reason::CopiesBytes => "avoided",
        // Nothing was left for it to do: what was shared, holes, or nothing at all.
        _ if account.bytes() == account.of(Mechanism::Clone).bytes => "unknown",
        _ => "no",
    }
}

/// Whether blocks are shared.
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

/// Whether it was left out because somebody wants it otherwise.
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

/// Whether it was tried, and could not be done.
fn was_refused(account: &Account, mechanism: Mechanism) -> bool {
    account
        .refusals
        .iter()
        .any(|refusal| refusal.mechanism == mechanism && matches!(refusal.cause, Cause::Errno(_)))
}
