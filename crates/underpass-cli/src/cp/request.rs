//! The request of a command line: options, parsed into a draft, are combined with the environment
//! into a copy. The last option counts, except where GNU's does not.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use underpass::{Cloning, Holes, Mechanism};
use underpass_copy::{
    AskWhen, Backup, Charset, CopyMode, CopyOptions, CopyTarget, Dereference, FilterRule,
    OverwritePolicy, Preserve, PreserveLevel, Quoted, QuotedWord,
};

use super::words::{
    self, BACKUPS, BackupNames, Choices, Explains, PreservedAttribute, UsageError, When, choose,
};

/// The request of a command line.
#[derive(Debug)]
pub(super) enum CpRequest {
    ShowHelp,
    ShowVersion,
    Copy(Box<CopyCommand>),
}

/// A copy, and the output to show.
#[derive(Debug)]
pub(super) struct CopyCommand {
    pub(super) operands: Vec<OsString>,
    pub(super) options: CopyOptions,
    pub(super) detail: OutputDetail,
    pub(super) explains: Explains,
    pub(super) progress: When,
    /// Whether an option was used that GNU's `cp` does not have.
    pub(super) dialect: Dialect,
}

/// Builds the request. The checks are in GNU's order, since only the first error is reported.
pub(super) fn command(
    draft: Draft,
    environment: &CpEnvironment,
) -> Result<CopyCommand, UsageError> {
    let copy_mode = copy_mode(&draft)?;
    let overwrite = overwrite_policy(&draft);
    if draft.makes_backups && matches!(overwrite, OverwritePolicy::Keep | OverwritePolicy::Fail) {
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
    let jobs = match (overwrite, options.jobs, environment.called_as) {
        (OverwritePolicy::Ask(_), ..) | (_, None, CalledAs::Cp) => Some(NonZeroUsize::MIN),
        (_, jobs, _) => jobs,
    };
    let progress = draft.progress.unwrap_or(match environment.called_as {
        CalledAs::Underpass => When::Auto,
        CalledAs::Cp => When::Never,
    });
    Ok(CopyCommand {
        operands: draft.operands,
        detail: match draft.explains {
            Explains::Files => draft.detail.max(OutputDetail::Explain),
            Explains::Nothing | Explains::Summary => draft.detail,
        },
        explains: draft.explains,
        progress,
        dialect: draft.dialect,
        options: CopyOptions {
            copy_mode,
            overwrite,
            backup,
            target,
            write_through_dangling: environment.order == ArgumentOrder::OptionsFirst,
            jobs,
            ..draft.options
        },
    })
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

/// Rejects options of ours that contradict each other.
fn contradictions(options: &CopyOptions) -> Result<(), UsageError> {
    let Some(only) = options.only else {
        return Ok(());
    };
    let clones = matches!(only, Mechanism::Clone | Mechanism::CopyRange);
    let option = match (options.cloning, options.holes) {
        (Cloning::Never, _) if clones => "--reflink=never",
        (Cloning::Always, _) if only != Mechanism::Clone => "--reflink=always",
        (_, Holes::Fill) if clones => "--sparse=never",
        (_, Holes::Find) if only != Mechanism::ReadWrite => "--sparse=always",
        _ => return Ok(()),
    };
    let message = format!("--only={only} contradicts {option}");
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

/// The options parsed so far. Dependent ones are combined at the end.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) charset: Charset,
    pub(super) has_selinux: bool,
    pub(super) operands: Vec<OsString>,
    /// Options that need no combination.
    pub(super) options: CopyOptions,
    pub(super) hard_links: bool,
    pub(super) symbolic_links: bool,
    pub(super) attributes_only: bool,
    pub(super) clobber: Clobber,
    pub(super) makes_backups: bool,
    pub(super) backup_names: Option<OsString>,
    pub(super) suffix: Option<OsString>,
    pub(super) target_directory: Option<OsString>,
    /// `-T`
    pub(super) target_is_name: bool,
    pub(super) demands_context: bool,
    pub(super) progress: Option<When>,
    pub(super) detail: OutputDetail,
    pub(super) explains: Explains,
    pub(super) dialect: Dialect,
    /// The request that replaces a copy.
    pub(super) shows_only: Option<CpRequest>,
    pub(super) warnings: Vec<&'static str>,
}

/// The last one of `-i` and `-n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Clobber {
    #[default]
    Yes,
    Ask,
    No,
}

/// The detail of standard output; the highest requested level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OutputDetail {
    #[default]
    Nothing,
    /// `-v`
    Names,
    /// `--debug`
    Debug,
    /// `--explain`
    Explain,
    /// `--json`
    Json,
}

/// The set of options that was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    #[default]
    Gnu,
    Underpass,
}

impl Draft {
    pub(super) fn archive(&mut self) {
        self.options.recursive = true;
        self.options.dereference = Dereference::Never;
        let Preserve { context, xattr, .. } = self.options.preserve;
        self.preserve(PreservedAttribute::All, PreserveLevel::Required);
        // If these can't be preserved, -a does not report it.
        self.options.preserve.context = context.max(PreserveLevel::BestEffort);
        self.options.preserve.xattr = xattr.max(PreserveLevel::BestEffort);
    }

    pub(super) fn set_suffix(&mut self, suffix: OsString) -> Result<(), UsageError> {
        self.makes_backups = true;
        self.suffix = Some(suffix);
        Ok(())
    }

    pub(super) fn set_backup(&mut self, names: Option<OsString>) -> Result<(), UsageError> {
        self.makes_backups = true;
        self.backup_names = names.or(self.backup_names.take());
        Ok(())
    }

    pub(super) fn set_context(&mut self, context: Option<OsString>) -> Result<(), UsageError> {
        if self.has_selinux {
            let message = "-Z and --context are not supported; --preserve=context is";
            return Err(UsageError::without_hint(message));
        }
        if context.is_some() {
            let warning = "warning: ignoring --context; it requires an SELinux-enabled kernel";
            self.warnings.push(warning);
        }
        Ok(())
    }

    pub(super) fn set_target_directory(&mut self, directory: OsString) -> Result<(), UsageError> {
        match self.target_directory.replace(directory) {
            None => Ok(()),
            Some(_) => Err(UsageError::without_hint(
                "multiple target directories specified",
            )),
        }
    }

    pub(super) fn set_jobs(&mut self, jobs: OsString) -> Result<(), UsageError> {
        let number = jobs.to_str().and_then(|jobs| jobs.parse().ok());
        let most = CopyOptions::JOBS_MAX;
        let number = number.filter(|number: &NonZeroUsize| number.get() <= most);
        let shown = QuotedWord(jobs.as_bytes(), self.charset);
        let invalid =
            || UsageError::with_hint(format!("invalid number of jobs {shown}: use 1 to {most}"));
        self.options.jobs = Some(number.ok_or_else(invalid)?);
        Ok(())
    }

    pub(super) fn set_rate(&mut self, rate: OsString) -> Result<(), UsageError> {
        let shown = QuotedWord(rate.as_bytes(), self.charset);
        let invalid = || {
            UsageError::with_hint(format!(
                "invalid rate {shown}: bytes a second, as in 50M or 1.5GiB"
            ))
        };
        self.options.bytes_per_second_max = words::read_rate(&rate).ok_or_else(invalid)?;
        Ok(())
    }

    pub(super) fn set_preserve(&mut self, list: Option<OsString>) -> Result<(), UsageError> {
        let list = list
            .as_deref()
            .unwrap_or("mode,ownership,timestamps".as_ref());
        self.preserve_list(list, "--preserve", PreserveLevel::Required)
    }

    pub(super) fn set_no_preserve(&mut self, list: OsString) -> Result<(), UsageError> {
        self.preserve_list(&list, "--no-preserve", PreserveLevel::Never)
    }

    fn preserve_list(
        &mut self,
        list: &OsStr,
        about: &str,
        level: PreserveLevel,
    ) -> Result<(), UsageError> {
        for word in list.as_bytes().split(|byte| *byte == b',') {
            let attribute = self.choose(OsStr::from_bytes(word), about, words::ATTRIBUTES)?;
            self.preserve(attribute, level);
            self.demands_context |=
                (attribute, level) == (PreservedAttribute::Context, PreserveLevel::Required);
        }
        Ok(())
    }

    /// `all` only warns if the context or the extended attributes can't be preserved; naming one of
    /// them makes that an error.
    fn preserve(&mut self, attribute: PreservedAttribute, level: PreserveLevel) {
        let preserve = &mut self.options.preserve;
        match attribute {
            PreservedAttribute::Mode => preserve.mode = level,
            PreservedAttribute::Timestamps => preserve.timestamps = level,
            PreservedAttribute::Ownership => preserve.ownership = level,
            PreservedAttribute::Links => preserve.links = level,
            PreservedAttribute::Context => preserve.context = level,
            PreservedAttribute::Xattr => preserve.xattr = level,
            PreservedAttribute::All => {
                let at_most_warned = |before: PreserveLevel| match level {
                    PreserveLevel::Required => before.max(PreserveLevel::Warn),
                    level => level,
                };
                *preserve = Preserve {
                    mode: level,
                    ownership: level,
                    timestamps: level,
                    links: level,
                    context: at_most_warned(preserve.context),
                    xattr: at_most_warned(preserve.xattr),
                };
            }
        }
    }

    /// Returns the meaning of a word as an argument of the option `about`.
    pub(super) fn choose<T: Copy + PartialEq>(
        &self,
        word: &OsStr,
        about: &str,
        choices: Choices<T>,
    ) -> Result<T, UsageError> {
        choose(word, about, choices, self.charset)
    }

    /// Returns the meaning of an optional argument, or `unless_given` without one.
    pub(super) fn choose_or<T: Copy + PartialEq>(
        &self,
        word: Option<OsString>,
        about: &str,
        choices: Choices<T>,
        unless_given: T,
    ) -> Result<T, UsageError> {
        word.map_or(Ok(unless_given), |word| self.choose(&word, about, choices))
    }

    pub(super) fn add_filter(
        &mut self,
        rule: fn(String) -> FilterRule,
        pattern: OsString,
    ) -> Result<(), UsageError> {
        let pattern = String::from_utf8(pattern.into_vec()).map_err(|error| {
            let shown = QuotedWord(error.as_bytes(), self.charset);
            UsageError::with_hint(format_args!("pattern {shown} is not UTF-8"))
        })?;
        let rule = rule(pattern);
        rule.check().map_err(UsageError::with_hint)?;
        self.options.filters.push(rule);
        Ok(())
    }

    pub(super) fn show(&mut self, detail: OutputDetail) {
        self.detail = self.detail.max(detail);
    }
}

/// The name by which the program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CalledAs {
    /// `cp`: the caller expects GNU's.
    Cp,
    /// `underpass cp`.
    Underpass,
}

/// Whether options may follow operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentOrder {
    /// Options may follow operands.
    Permuted,
    /// The first operand ends the options (`POSIXLY_CORRECT`).
    OptionsFirst,
}

/// The environment of a command line, read once.
#[derive(Clone, Debug)]
pub(super) struct CpEnvironment {
    pub(super) called_as: CalledAs,
    pub(super) charset: Charset,
    /// `POSIXLY_CORRECT`.
    pub(super) order: ArgumentOrder,
    /// `VERSION_CONTROL`.
    pub(super) backup_names: Option<OsString>,
    /// `SIMPLE_BACKUP_SUFFIX`.
    pub(super) suffix: Option<OsString>,
    pub(super) has_selinux: bool,
}

impl CpEnvironment {
    pub(super) fn read(called_as: CalledAs) -> Self {
        Self {
            called_as,
            charset: charset(|name| std::env::var_os(name)),
            order: match std::env::var_os("POSIXLY_CORRECT") {
                Some(_) => ArgumentOrder::OptionsFirst,
                None => ArgumentOrder::Permuted,
            },
            backup_names: std::env::var_os("VERSION_CONTROL"),
            suffix: std::env::var_os("SIMPLE_BACKUP_SUFFIX"),
            has_selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        }
    }
}

/// Returns the charset of the locale, from the first of three variables that is set.
///
/// A charset other than UTF-8 counts as ASCII. Whether the locale is installed is not checked.
fn charset(variable: impl Fn(&str) -> Option<OsString>) -> Charset {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable)
        .find(|value| !value.is_empty())
        .unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    let charset = locale.split_once('.').map(|(_, charset)| charset);
    let charset = charset.and_then(|charset| charset.split('@').next());
    match charset {
        Some("utf-8" | "utf8") => Charset::Utf8,
        _ => Charset::Ascii,
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
