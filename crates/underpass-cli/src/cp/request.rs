//! What a command line asks for.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use underpass::{Cloning, Holes, Mechanism};
use underpass_copy::{Backup, Dangling, Existing, Manner, Naming, Options, Quoted, Target, Update};

use super::Name;
use super::draft::{Draft, read};
use super::getopt::Order;
use super::mistake::Mistake;
use super::surroundings::{Selinux, Surroundings};
use super::words::{BACKUPS, BackupNames, Updating, When, choose};

/// As many files at once as pay off on file systems of one machine.
const JOBS_MAX: usize = 16;

/// What is to be done.
#[derive(Debug)]
pub(super) enum Request {
    Help,
    Version,
    Copy(Box<Copying>),
}

/// A copy, and what is shown of it.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) operands: Vec<OsString>,
    pub(super) options: Options,
    pub(super) show: Show,
    /// Whether anything was asked for that `cp` does not have.
    pub(super) dialect: Dialect,
}

/// Whose options were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Gnu,
    Underpass,
}

/// What is shown while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Show {
    pub(super) detail: Detail,
    pub(super) progress: When,
}

/// What standard output gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    Nothing,
    /// `-v`
    Names,
    /// `--debug`
    Debug,
    /// `--explain`
    Ways,
    /// `--json`
    Json,
}

/// Reads a command line. `warn` is told what is done all the same.
pub(super) fn parse(
    words: impl IntoIterator<Item = OsString>,
    name: Name,
    surroundings: &Surroundings,
    warn: &mut dyn FnMut(&str),
) -> Result<Request, Mistake> {
    match read(words, surroundings, warn)? {
        Ok(draft) => copying(draft, name, surroundings).map(|copy| Request::Copy(Box::new(copy))),
        Err(request) => Ok(request),
    }
}

/// The checks come in GNU's order, since the first fault is the one that is told.
fn copying(draft: Draft, name: Name, surroundings: &Surroundings) -> Result<Copying, Mistake> {
    let manner = manner(&draft)?;
    let existing = existing(&draft);
    if draft.makes_backups && (draft.keeps() || draft.updating == Updating::NoneFail) {
        return Err(Mistake::usage(
            "--backup is mutually exclusive with -n or --update=none-fail",
        ));
    }
    if draft.cloning == Cloning::Always && draft.holes != Holes::Keep {
        let message = "--reflink can be used only with --sparse=auto";
        return Err(Mistake::usage(message));
    }
    let backup = backup(&draft, surroundings)?;
    if draft.demands_context && surroundings.selinux == Selinux::Absent {
        return Err(Mistake::plain(
            "cannot preserve security context without an SELinux-enabled kernel",
        ));
    }
    contradictions(&draft)?;
    let target = target(&draft, surroundings)?;
    let asks = matches!(existing, Existing::Asked(_));
    let jobs = match (asks, draft.jobs) {
        (true, _) => NonZeroUsize::MIN,
        (false, Some(jobs)) => jobs,
        (false, None) => jobs_unsaid(name, surroundings),
    };
    let detail = draft.detail();
    let progress = match (draft.progress, name) {
        (Some(when), _) => when,
        (None, Name::Underpass) => When::Auto,
        (None, Name::Cp) => When::Never,
    };
    let dialect = draft.dialect;
    let options = Options {
        manner,
        existing,
        backup,
        target,
        naming: draft.naming,
        dangling: match surroundings.order {
            Order::OptionsFirst => Dangling::WrittenThrough,
            Order::Free => Dangling::Refused,
        },
        holes: draft.holes,
        cloning: draft.cloning,
        jobs: Some(jobs),
        ..draft.options
    };
    Ok(Copying {
        operands: draft.operands,
        options,
        show: Show { detail, progress },
        dialect,
    })
}

fn jobs_unsaid(name: Name, surroundings: &Surroundings) -> NonZeroUsize {
    match name {
        Name::Cp => NonZeroUsize::MIN,
        Name::Underpass => {
            let jobs = surroundings.processors.get().min(JOBS_MAX);
            NonZeroUsize::new(jobs).unwrap_or(NonZeroUsize::MIN)
        }
    }
}

fn manner(draft: &Draft) -> Result<Manner, Mistake> {
    match (
        draft.hard_links,
        draft.symbolic_links,
        draft.attributes_only,
    ) {
        (true, true, _) => Err(Mistake::usage("cannot make both hard and symbolic links")),
        (true, false, _) => Ok(Manner::HardLink),
        (false, true, _) => Ok(Manner::SymbolicLink),
        (false, false, true) => Ok(Manner::AttributesOnly),
        (false, false, false) => Ok(Manner::Copy),
    }
}

fn existing(draft: &Draft) -> Existing {
    match draft.updating {
        _ if draft.keeps() => Existing::Kept,
        Updating::None => Existing::Kept,
        Updating::NoneFail => Existing::KeptAsError,
        Updating::All if draft.asks() => Existing::Asked(Update::All),
        Updating::Older if draft.asks() => Existing::Asked(Update::Older),
        Updating::All => Existing::Overwritten,
        Updating::Older => Existing::KeptUnlessOlder,
    }
}

fn backup(draft: &Draft, surroundings: &Surroundings) -> Result<Backup, Mistake> {
    if !draft.makes_backups {
        return Ok(Backup::None);
    }
    let said = |value: &Option<OsString>| value.clone().filter(|value| !value.is_empty());
    let charset = surroundings.charset;
    let names = match (said(&draft.backup_names), said(&surroundings.backup_names)) {
        (Some(word), _) => choose(&word, "backup type", BACKUPS, charset)?,
        (None, Some(word)) => choose(&word, "$VERSION_CONTROL", BACKUPS, charset)?,
        (None, None) => BackupNames::Existing,
    };
    let suffix = draft.suffix.clone().or(surroundings.suffix.clone());
    // A suffix with a slash would put the backup into another folder.
    let suffix = suffix
        .filter(|suffix| !suffix.is_empty() && !suffix.as_bytes().contains(&b'/'))
        .unwrap_or_else(|| "~".into());
    Ok(match names {
        BackupNames::None => Backup::None,
        BackupNames::Simple => Backup::Simple(suffix),
        BackupNames::Existing => Backup::Existing(suffix),
        BackupNames::Numbered => Backup::Numbered,
    })
}

/// Those of ours. GNU's way is to say so rather than to guess what was meant.
fn contradictions(draft: &Draft) -> Result<(), Mistake> {
    let options = &draft.options;
    let clones = matches!(options.only, Some(Mechanism::Clone | Mechanism::CopyRange));
    let Some(only) = options.only else {
        return Ok(());
    };
    let shares = match draft.cloning {
        Cloning::Never if clones => "never",
        Cloning::Always if only != Mechanism::Clone => "always",
        _ => return Ok(()),
    };
    let message = format!("--only={only} contradicts --reflink={shares}");
    Err(Mistake::usage(message))
}

fn target(draft: &Draft, surroundings: &Surroundings) -> Result<Target, Mistake> {
    let quoted = |word: &OsString| Quoted(word.as_bytes(), surroundings.charset).to_string();
    match (draft.operands.as_slice(), &draft.target_directory) {
        ([], _) => return Err(Mistake::usage("missing file operand")),
        ([only], None) => {
            return Err(Mistake::usage(format_args!(
                "missing destination file operand after {}",
                quoted(only)
            )));
        }
        (_, Some(_)) if draft.is_name => {
            return Err(Mistake::plain(
                "cannot combine --target-directory (-t) and --no-target-directory (-T)",
            ));
        }
        ([_, _, extra, ..], None) if draft.is_name => {
            let message = format!("extra operand {}", quoted(extra));
            return Err(Mistake::usage(message));
        }
        (_, Some(directory)) => return Ok(Target::Folder(PathBuf::from(directory))),
        _ => {}
    }
    let is_directory = |dest| !draft.is_name && Path::new(dest).is_dir();
    if let ([_, dest], Naming::Parents) = (draft.operands.as_slice(), draft.naming)
        && !is_directory(dest)
    {
        let message = "with --parents, the destination must be a directory";
        return Err(Mistake::usage(message));
    }
    Ok(match draft.is_name {
        true => Target::LastOperandAsName,
        false => Target::LastOperand,
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
