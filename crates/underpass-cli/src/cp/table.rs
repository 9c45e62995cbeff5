//! The table of all options of `cp`: their effects, `--help`, the man page and completions.

use std::ffi::OsString;

use underpass::Cloning;
use underpass_copy::{
    Dereference, FilterRule, Fsync, OverwritePolicy, PreserveLevel, RemoveExisting,
};

use super::request::{Clobber, CpRequest, Dialect, Draft, OutputDetail};
use super::words::{self, Explains, UsageError, When, names};

/// The argument of an option, with the option's effect.
#[derive(Clone, Copy)]
pub(super) enum OptionArgument {
    None(fn(&mut Draft)),
    Required(
        &'static str,
        fn(&mut Draft, OsString) -> Result<(), UsageError>,
    ),
    /// Follows `=`; a short option has none.
    Optional(
        &'static str,
        fn(&mut Draft, Option<OsString>) -> Result<(), UsageError>,
    ),
}

/// The origin of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionGroup {
    Gnu,
    /// An alias of the preceding option, which GNU does not document.
    GnuHidden,
    Underpass,
}

#[derive(Clone, Copy)]
pub(super) struct OptionDefinition {
    /// The short options; the first one is the usual one.
    pub(super) short: &'static str,
    pub(super) long: Option<&'static str>,
    pub(super) argument: OptionArgument,
    pub(super) group: OptionGroup,
    /// The possible arguments, if they are a fixed list.
    pub(super) words: fn() -> Vec<&'static str>,
    pub(super) help: &'static str,
}

const fn gnu(short: &'static str, long: &'static str) -> OptionDefinition {
    OptionDefinition {
        short,
        long: if long.is_empty() { None } else { Some(long) },
        argument: OptionArgument::None(|_| ()),
        group: OptionGroup::Gnu,
        words: Vec::new,
        help: "",
    }
}

const fn ours(short: &'static str, long: &'static str) -> OptionDefinition {
    OptionDefinition {
        group: OptionGroup::Underpass,
        ..gnu(short, long)
    }
}

impl OptionDefinition {
    const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    const fn words(mut self, words: fn() -> Vec<&'static str>) -> Self {
        self.words = words;
        self
    }

    const fn hidden(mut self) -> Self {
        self.group = OptionGroup::GnuHidden;
        self
    }

    const fn flag(mut self, apply: fn(&mut Draft)) -> Self {
        self.argument = OptionArgument::None(apply);
        self
    }

    const fn required(
        mut self,
        name: &'static str,
        apply: fn(&mut Draft, OsString) -> Result<(), UsageError>,
    ) -> Self {
        self.argument = OptionArgument::Required(name, apply);
        self
    }

    const fn optional(
        mut self,
        name: &'static str,
        apply: fn(&mut Draft, Option<OsString>) -> Result<(), UsageError>,
    ) -> Self {
        self.argument = OptionArgument::Optional(name, apply);
        self
    }

    pub(super) fn is_gnu(&self) -> bool {
        self.group != OptionGroup::Underpass
    }

    /// Returns the long name, or the letters if it has none.
    pub(super) fn name(&self) -> &'static str {
        self.long.unwrap_or(self.short)
    }

    /// Applies the option. A required argument must be present.
    pub(super) fn apply(
        &self,
        draft: &mut Draft,
        argument: Option<OsString>,
    ) -> Result<(), UsageError> {
        if !self.is_gnu() {
            draft.dialect = Dialect::Underpass;
        }
        match self.argument {
            OptionArgument::None(apply) => {
                apply(draft);
                Ok(())
            }
            OptionArgument::Required(_, apply) => apply(draft, argument.unwrap_or_default()),
            OptionArgument::Optional(_, apply) => apply(draft, argument),
        }
    }
}

/// In GNU's order, as messages about abbreviations show it, followed by ours.
pub(super) const OPTIONS: &[OptionDefinition] = &[
    gnu("a", "archive")
        .help("copy trees as they are: -dR --preserve=all")
        .flag(Draft::archive),
    gnu("", "attributes-only")
        .help("copy metadata only, and leave the content of DEST as it is")
        .flag(|draft| draft.attributes_only = true),
    gnu("b", "backup")
        .help("rename an existing destination first, as CONTROL says (see below); -b takes none")
        .optional("CONTROL", Draft::set_backup)
        .words(|| names(words::BACKUPS)),
    gnu("", "copy-contents")
        .help("with -R, read FIFOs and devices instead of making new ones")
        .flag(|draft| draft.options.copy_contents = true),
    gnu("", "debug")
        .help("show how each file was copied, in GNU's terms; includes -v")
        .flag(|draft| draft.show(OutputDetail::Debug)),
    gnu("L", "dereference")
        .help("follow all symbolic links in SOURCE")
        .flag(|draft| draft.options.dereference = Dereference::Always),
    gnu("f", "force")
        .help("remove a destination that can't be opened for writing, and try again")
        .flag(|draft| match &mut draft.options.remove_existing {
            // `Always` also covers files that can't be written.
            RemoveExisting::Always => (),
            other => *other = RemoveExisting::IfUnwritable,
        }),
    gnu("i", "interactive")
        .help("ask before overwriting; the last one of -i and -n counts")
        .flag(|draft| draft.clobber = Clobber::Ask),
    gnu("", "keep-directory-symlink")
        .help("follow existing symbolic links to directories in DEST")
        .flag(|draft| draft.options.keep_directory_symlink = true),
    gnu("l", "link")
        .help("make hard links instead of copies")
        .flag(|draft| draft.hard_links = true),
    gnu("n", "no-clobber")
        .help("skip existing files silently; the last one of -i and -n counts")
        .flag(|draft| draft.clobber = Clobber::No),
    gnu("P", "no-dereference")
        .help("follow no symbolic link in SOURCE: copy the link")
        .flag(|draft| draft.options.dereference = Dereference::Never),
    gnu("", "no-preserve")
        .help("don't preserve these attributes (a list, as for --preserve)")
        .required("ATTRIBUTES", Draft::set_no_preserve),
    gnu("T", "no-target-directory")
        .help("treat DEST as the name of the copy, even if it is a directory")
        .flag(|draft| draft.target_is_name = true),
    gnu("x", "one-file-system")
        .help("stay on the file system of each SOURCE")
        .flag(|draft| draft.options.one_file_system = true),
    gnu("", "parents")
        .help("repeat all of SOURCE's path below DIRECTORY")
        .flag(|draft| draft.options.parents = true),
    gnu("", "path")
        .hidden()
        .flag(|draft| draft.options.parents = true),
    gnu("p", "preserve")
        .help(
            "preserve attributes, a list of: mode, ownership, timestamps (these three without a \
             list and with -p), links, context, xattr, all",
        )
        .optional("ATTRIBUTES", Draft::set_preserve),
    gnu("Rr", "recursive")
        .help("copy directories with all that is in them")
        .flag(|draft| draft.options.recursive = true),
    gnu("", "remove-destination")
        .help("remove existing files before copying, whether writable or not")
        .flag(|draft| draft.options.remove_existing = RemoveExisting::Always),
    gnu("", "sparse")
        .help("make holes. auto: where SOURCE has them; always: for zeros, too; never: none")
        .required("WHEN", |draft, word| {
            draft.options.holes = draft.choose(&word, "--sparse", words::SPARSE)?;
            Ok(())
        })
        .words(|| names(words::SPARSE)),
    gnu("", "reflink")
        .help(
            "share blocks with SOURCE. auto: where the file system can; always (also without \
             WHEN): or fail; never: copy every byte",
        )
        .optional("WHEN", |draft, word| {
            let (about, choices) = ("--reflink", words::REFLINK);
            draft.options.cloning = draft.choose_or(word, about, choices, Cloning::Always)?;
            Ok(())
        })
        .words(|| names(words::REFLINK)),
    gnu("", "strip-trailing-slashes")
        .help("remove slashes from the end of each SOURCE")
        .flag(|draft| draft.options.strip_trailing_slashes = true),
    gnu("S", "suffix")
        .help("end the names of backups with SUFFIX")
        .required("SUFFIX", Draft::set_suffix),
    gnu("s", "symbolic-link")
        .help("make symbolic links instead of copies")
        .flag(|draft| draft.symbolic_links = true),
    gnu("t", "target-directory")
        .help("copy every SOURCE into DIRECTORY")
        .required("DIRECTORY", Draft::set_target_directory),
    gnu("u", "update")
        .help(
            "select the existing files to overwrite. older (also without UPDATE): those older \
             than SOURCE; all; none; none-fail: none, and fail",
        )
        .optional("UPDATE", |draft, word| {
            let (about, choices) = ("--update", words::UPDATES);
            let older = OverwritePolicy::UpdateOlder;
            draft.options.overwrite = draft.choose_or(word, about, choices, older)?;
            Ok(())
        })
        .words(|| names(words::UPDATES)),
    gnu("v", "verbose")
        .help("name every file")
        .flag(|draft| draft.show(OutputDetail::Names)),
    gnu("Z", "context")
        .help("accepted and ignored without SELinux in the kernel; not supported with it")
        .optional("CONTEXT", Draft::set_context),
    gnu("", "help")
        .help("show this help and exit")
        .flag(|draft| draft.shows_only = Some(CpRequest::ShowHelp)),
    gnu("", "version")
        .help("show the version and exit")
        .flag(|draft| draft.shows_only = Some(CpRequest::ShowVersion)),
    gnu("d", "").help("-P --preserve=links").flag(|draft| {
        draft.options.dereference = Dereference::Never;
        draft.options.preserve.links = PreserveLevel::Required;
    }),
    gnu("H", "")
        .help("follow symbolic links on the command line")
        .flag(|draft| draft.options.dereference = Dereference::CommandLine),
    ours("j", "jobs")
        .help(
            "copy N files at once [default: the number of processors, at most 16; 1 when called \
             cp]",
        )
        .required("N", Draft::set_jobs),
    ours("g", "progress")
        .help(
            "show progress. auto: on a terminal, after a second; always (also without WHEN); \
             never [default: auto; never when called cp]",
        )
        .optional("WHEN", |draft, word| {
            let word = word.filter(|word| !word.is_empty());
            let when = draft.choose_or(word, "--progress", words::WHENS, When::Always)?;
            draft.progress = Some(when);
            Ok(())
        })
        .words(|| names(words::WHENS)),
    ours("", "atomic")
        .help("write beside the destination and rename: no other program sees half a file")
        .flag(|draft| draft.options.atomic = true),
    ours("", "fsync")
        .help(
            "write to disk. file (also without WHAT): each file when it is done; dir: its \
             directory, too; end: everything, at the end",
        )
        .optional("WHAT", |draft, word| {
            let word = word.filter(|word| !word.is_empty());
            draft.options.fsync = draft.choose_or(word, "--fsync", words::FSYNC, Fsync::File)?;
            Ok(())
        })
        .words(|| names(words::FSYNC)),
    ours("", "verify")
        .help("read copies back from disk and compare them with SOURCE")
        .flag(|draft| draft.options.verify = true),
    ours("", "resume")
        .help("keep what equals SOURCE of an incomplete copy, and copy the rest")
        .flag(|draft| draft.options.resume = true),
    ours("", "exclude")
        .help(
            "skip names that match, as in .gitignore, and {a,b}; the last matching pattern counts",
        )
        .required("PATTERN", |draft, pattern| {
            draft.add_filter(FilterRule::Exclude, pattern)
        }),
    ours("", "include")
        .help("copy names that match, although they are excluded")
        .required("PATTERN", |draft, pattern| {
            draft.add_filter(FilterRule::Include, pattern)
        }),
    ours("", "dry-run")
        .help("show what would be done, and do nothing")
        .flag(|draft| draft.options.dry_run = true),
    ours("", "only")
        .help("use this mechanism or fail: clone, copy_range, sendfile, splice, read_write")
        .required("MECHANISM", |draft, word| {
            draft.options.only = Some(draft.choose(&word, "--only", words::MECHANISMS)?);
            Ok(())
        })
        .words(|| names(words::MECHANISMS)),
    ours("", "explain")
        .help(
            "show what was planned, what was refused and how bytes moved. files (also without \
             WHAT): for each file; summary: for all together, with a few examples",
        )
        .optional("WHAT", |draft, word| {
            let word = word.filter(|word| !word.is_empty());
            let (about, choices) = ("--explain", words::EXPLAINS);
            draft.explains = draft.choose_or(word, about, choices, Explains::Files)?;
            Ok(())
        })
        .words(|| names(words::EXPLAINS)),
    ours("", "json")
        .help("report copies, errors and the sum on standard output as JSON, one object per line")
        .flag(|draft| draft.show(OutputDetail::Json)),
    ours("", "bwlimit")
        .help(
            "limit all files together to RATE per second: KiB, or with a suffix K, M, G, T \
             (powers of 1024) or KB, MB, GB, TB (of 1000)",
        )
        .required("RATE", Draft::set_rate),
];
