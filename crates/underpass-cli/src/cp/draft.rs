//! What the options on a command line ask for: the last one counts, except where GNU's does not.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use underpass_copy::{Charset, CopyOptions, Dereference, Preserve, PreserveLevel, QuotedWord};

use super::usage_error::UsageError;
use super::words::{self, Choices, PreservedAttribute, When, choose};

/// What was read so far. Facts that belong together are combined when all is read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) charset: Charset,
    pub(super) has_selinux: bool,
    pub(super) operands: Vec<OsString>,
    /// What a single option decides.
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
    pub(super) dialect: Dialect,
    pub(super) information: Option<Information>,
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

/// What standard output gets; the most that was asked for.
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

/// Whose options were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    #[default]
    Gnu,
    Underpass,
}

/// What is shown instead of copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Information {
    Help,
    Version,
}

impl Draft {
    pub(super) fn archive(&mut self) {
        self.options.recursive = true;
        self.options.dereference = Dereference::Never;
        let Preserve { context, xattr, .. } = self.options.preserve;
        self.preserve(PreservedAttribute::All, PreserveLevel::Required);
        // Where these can't be preserved, -a is silent.
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
        let invalid = || UsageError::with_hint(format!("invalid rate {shown}"));
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

    /// `all` only warns where the context or the extended attributes can't be preserved; naming
    /// one of them makes that an error.
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

    /// What a word means as an argument of the option `about`.
    pub(super) fn choose<T: Copy + PartialEq>(
        &self,
        word: &OsStr,
        about: &str,
        choices: Choices<T>,
    ) -> Result<T, UsageError> {
        choose(word, about, choices, self.charset)
    }

    /// What an optional argument means; `unless_given` where there is none.
    pub(super) fn choose_or<T: Copy + PartialEq>(
        &self,
        word: Option<OsString>,
        about: &str,
        choices: Choices<T>,
        unless_given: T,
    ) -> Result<T, UsageError> {
        word.map_or(Ok(unless_given), |word| self.choose(&word, about, choices))
    }

    pub(super) fn pattern(&self, pattern: OsString) -> Result<String, UsageError> {
        String::from_utf8(pattern.into_vec()).map_err(|error| {
            let shown = QuotedWord(error.as_bytes(), self.charset);
            UsageError::with_hint(format_args!("pattern {shown} is not UTF-8"))
        })
    }

    pub(super) fn show(&mut self, detail: OutputDetail) {
        self.detail = self.detail.max(detail);
    }
}
