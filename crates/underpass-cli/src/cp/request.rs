//! What a command line asks for.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use underpass::{Cloning, Holes, Mechanism};
use underpass_copy::{AskWhen, Backup, CopyMode, CopyOptions, CopyTarget, OverwritePolicy, Quoted};

use super::draft::{Clobber, Dialect, Draft, Information, OutputDetail};
use super::environment::{ArgumentOrder, CalledAs, CpEnvironment};
use super::getopt::{Getopt, ParsedWord};
use super::mistake::UsageError;
use super::words::{BACKUPS, BackupNames, When, choose};

/// As many files at once as pay off on file systems of one machine.
const DEFAULT_JOBS_MAX: usize = 16;

/// What a command line asks for.
#[derive(Debug)]
pub(super) enum CpRequest {
    Show(Information),
    Copy(Box<CopyCommand>),
}

/// A copy, and what is shown of it.
#[derive(Debug)]
pub(super) struct CopyCommand {
    pub(super) operands: Vec<OsString>,
    pub(super) options: CopyOptions,
    pub(super) detail: OutputDetail,
    pub(super) progress: When,
    /// Whether an option was used that `cp` does not have.
    pub(super) dialect: Dialect,
}

/// Reads a command line. `warn` receives what is ignored.
pub(super) fn parse(
    words: impl IntoIterator<Item = OsString>,
    environment: &CpEnvironment,
    warn: &mut dyn FnMut(&str),
) -> Result<CpRequest, UsageError> {
    let mut draft = Draft {
        charset: environment.charset,
        has_selinux: environment.has_selinux,
        ..Draft::default()
    };
    let read = read(&mut draft, words, environment.order);
    for warning in &draft.warnings {
        warn(warning);
    }
    read?;
    match draft.information {
        Some(information) => Ok(CpRequest::Show(information)),
        None => command(draft, environment).map(|copy| CpRequest::Copy(Box::new(copy))),
    }
}

/// Reads all words; an option that asks for information ends the reading.
fn read(
    draft: &mut Draft,
    words: impl IntoIterator<Item = OsString>,
    order: ArgumentOrder,
) -> Result<(), UsageError> {
    for item in Getopt::new(words, order) {
        match item? {
            ParsedWord::Operand(operand) => draft.operands.push(operand),
            ParsedWord::Option(option, argument) => option.apply(draft, argument)?,
        }
        if draft.information.is_some() {
            break;
        }
    }
    Ok(())
}

/// The checks come in GNU's order, since the first fault is the one that is reported.
fn command(draft: Draft, environment: &CpEnvironment) -> Result<CopyCommand, UsageError> {
    let copy_mode = copy_mode(&draft)?;
    let overwrite = overwrite_policy(&draft);
    if draft.makes_backups
        && (draft.clobber == Clobber::No || draft.options.overwrite == OverwritePolicy::Fail)
    {
        return Err(UsageError::with_hint(
            "--backup is mutually exclusive with -n or --update=none-fail",
        ));
    }
    let options = &draft.options;
    if options.cloning == Cloning::Always && options.holes != Holes::Keep {
        let message = "--reflink can be used only with --sparse=auto";
        return Err(UsageError::with_hint(message));
    }
    let backup = backup(&draft, environment)?;
    if draft.demands_context && !environment.has_selinux {
        return Err(UsageError::without_hint(
            "cannot preserve security context without an SELinux-enabled kernel",
        ));
    }
    contradictions(options)?;
    let target = target(&draft)?;
    let jobs = match (overwrite, options.jobs) {
        (OverwritePolicy::Ask(_), _) => NonZeroUsize::MIN,
        (_, Some(jobs)) => jobs,
        (_, None) => default_jobs(environment),
    };
    let progress = draft.progress.unwrap_or(match environment.called_as {
        CalledAs::Underpass => When::Auto,
        CalledAs::Cp => When::Never,
    });
    Ok(CopyCommand {
        operands: draft.operands,
        detail: draft.detail,
        progress,
        dialect: draft.dialect,
        options: CopyOptions {
            copy_mode,
            overwrite,
            backup,
            target,
            write_through_dangling: environment.order == ArgumentOrder::OptionsFirst,
            jobs: Some(jobs),
            ..draft.options
        },
    })
}

fn default_jobs(environment: &CpEnvironment) -> NonZeroUsize {
    let jobs = match environment.called_as {
        CalledAs::Cp => 1,
        CalledAs::Underpass => environment.processors.get().min(DEFAULT_JOBS_MAX),
    };
    NonZeroUsize::new(jobs).unwrap_or(NonZeroUsize::MIN)
}

fn copy_mode(draft: &Draft) -> Result<CopyMode, UsageError> {
    match (
        draft.hard_links,
        draft.symbolic_links,
        draft.attributes_only,
    ) {
        (true, true, _) => Err(UsageError::with_hint(
            "cannot make both hard and symbolic links",
        )),
        (true, false, _) => Ok(CopyMode::HardLink),
        (false, true, _) => Ok(CopyMode::SymbolicLink),
        (false, false, true) => Ok(CopyMode::AttributesOnly),
        (false, false, false) => Ok(CopyMode::Copy),
    }
}

fn overwrite_policy(draft: &Draft) -> OverwritePolicy {
    match (draft.options.overwrite, draft.clobber) {
        (_, Clobber::No) => OverwritePolicy::Keep,
        (OverwritePolicy::Overwrite, Clobber::Ask) => OverwritePolicy::Ask(AskWhen::Always),
        (OverwritePolicy::UpdateOlder, Clobber::Ask) => OverwritePolicy::Ask(AskWhen::Older),
        (policy, _) => policy,
    }
}

fn backup(draft: &Draft, environment: &CpEnvironment) -> Result<Backup, UsageError> {
    if !draft.makes_backups {
        return Ok(Backup::None);
    }
    let said = |value: &Option<OsString>| value.clone().filter(|value| !value.is_empty());
    let charset = environment.charset;
    let names = match (said(&draft.backup_names), said(&environment.backup_names)) {
        (Some(word), _) => choose(&word, "backup type", BACKUPS, charset)?,
        (None, Some(word)) => choose(&word, "$VERSION_CONTROL", BACKUPS, charset)?,
        (None, None) => BackupNames::Existing,
    };
    let suffix = draft.suffix.clone().or(environment.suffix.clone());
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

/// Our options that contradict each other.
fn contradictions(options: &CopyOptions) -> Result<(), UsageError> {
    let Some(only) = options.only else {
        return Ok(());
    };
    let clones = matches!(only, Mechanism::Clone | Mechanism::CopyRange);
    let reflink = match options.cloning {
        Cloning::Never if clones => "never",
        Cloning::Always if only != Mechanism::Clone => "always",
        _ => return Ok(()),
    };
    let message = format!("--only={only} contradicts --reflink={reflink}");
    Err(UsageError::with_hint(message))
}

fn target(draft: &Draft) -> Result<CopyTarget, UsageError> {
    let quoted = |word: &OsString| Quoted(word.as_bytes(), draft.charset).to_string();
    match (draft.operands.as_slice(), &draft.target_directory) {
        ([], _) => return Err(UsageError::with_hint("missing file operand")),
        ([only], None) => {
            return Err(UsageError::with_hint(format_args!(
                "missing destination file operand after {}",
                quoted(only)
            )));
        }
        (_, Some(_)) if draft.target_is_name => {
            return Err(UsageError::without_hint(
                "cannot combine --target-directory (-t) and --no-target-directory (-T)",
            ));
        }
        ([_, _, extra, ..], None) if draft.target_is_name => {
            let message = format!("extra operand {}", quoted(extra));
            return Err(UsageError::with_hint(message));
        }
        (_, Some(directory)) => return Ok(CopyTarget::Folder(PathBuf::from(directory))),
        _ => {}
    }
    let is_directory = |dest| !draft.target_is_name && Path::new(dest).is_dir();
    if let ([_, dest], true) = (draft.operands.as_slice(), draft.options.parents)
        && !is_directory(dest)
    {
        let message = "with --parents, the destination must be a directory";
        return Err(UsageError::with_hint(message));
    }
    Ok(match draft.target_is_name {
        true => CopyTarget::LastAsName,
        false => CopyTarget::Last,
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
