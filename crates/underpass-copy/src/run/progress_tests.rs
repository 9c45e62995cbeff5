//! What a survey finds is what a copy does: the progress ends at its total.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use underpass::Kernel;

use crate::{
    CopyContext, CopyOptions, CopyProgress, CopySummary, CopyTarget, Dereference, Event,
    EventDetail, Observer, OverwritePolicy, OverwriteQuestion, Preserve, PreserveLevel,
};

const MIB: u64 = 1 << 20;

struct Nobody;

impl Observer for Nobody {
    fn on_event(&self, event: Event) {
        assert!(!matches!(event, Event::Problem(_)), "{event:?}");
    }

    fn confirm_overwrite(&self, _: &OverwriteQuestion) -> bool {
        false
    }

    fn event_detail(&self) -> EventDetail {
        EventDetail::Problems
    }
}

/// Files with holes, with several names and without content: 3 MiB of data.
fn sample(folder: &Path) {
    fs::create_dir_all(folder.join("below")).expect("folders");
    let holes = File::create(folder.join("holes")).expect("room");
    holes.set_len(64 * MIB).expect("room");
    let data = vec![1; MIB as usize];
    holes.write_all_at(&data, 32 * MIB).expect("room");
    holes.sync_all().expect("room");
    fs::write(folder.join("dense"), [data.clone(), data].concat()).expect("room");
    for name in ["other", "below/third"] {
        fs::hard_link(folder.join("dense"), folder.join(name)).expect("a name");
    }
    fs::write(folder.join("empty"), "").expect("room");
    fs::hard_link(folder.join("holes"), folder.join("below/holes")).expect("a name");
}

/// Copies, and returns what the progress found and did, files and bytes, and the summary.
fn copied(operands: &[OsString], options: &CopyOptions) -> ([u64; 2], [u64; 2], CopySummary) {
    let (progress, stop) = (CopyProgress::default(), AtomicBool::new(false));
    crate::survey(operands, options, &progress, &stop);
    let context = CopyContext {
        kernel: &Kernel::probe(),
        observer: &Nobody,
        progress: &progress,
        stop: &stop,
        start: crate::begin(operands, options),
    };
    let summary = crate::copy(operands, options, context);
    let found = [&progress.files_found, &progress.bytes_found].map(|it| it.load(Relaxed));
    let done = [&progress.files_done, &progress.bytes_done].map(|it| it.load(Relaxed));
    (found, done, summary)
}

#[test]
fn holes_and_second_names_count_in_no_number_and_the_progress_ends_at_its_total() {
    let folder = tempfile::tempdir().expect("a folder");
    sample(&folder.path().join("source"));
    let operands = ["source", "dest"].map(|name| folder.path().join(name).into_os_string());
    let plain = CopyOptions {
        recursive: true,
        target: CopyTarget::LastAsName,
        ..CopyOptions::default()
    };
    let archive = CopyOptions {
        dereference: Dereference::Never,
        preserve: Preserve {
            links: PreserveLevel::Required,
            timestamps: PreserveLevel::Required,
            ..Preserve::default()
        },
        ..plain.clone()
    };
    let resume = CopyOptions {
        resume: true,
        ..archive.clone()
    };
    let [keep, update] =
        [OverwritePolicy::Keep, OverwritePolicy::UpdateOlder].map(|overwrite| CopyOptions {
            overwrite,
            ..archive.clone()
        });
    // MiB in all, and of them those that are copied.
    for (options, all, copies) in [
        (&archive, 3, 3),
        (&resume, 3, 0),
        (&keep, 3, 0),
        (&update, 3, 0),
        (&plain, 8, 8),
    ] {
        let (found, done, summary) = copied(&operands, options);
        assert_eq!(found, [6, all * MIB], "{options:?}");
        assert_eq!(done, found, "{options:?}");
        assert_eq!(summary.account.bytes(), copies * MIB, "{options:?}");
        if copies == 0 && !options.resume {
            assert_eq!(summary.skipped_bytes, all * MIB, "{options:?}");
        }
    }
}
