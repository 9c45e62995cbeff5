//! What options say one after the other: the last word counts, except where GNU's does not.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use underpass::{Cloning, Holes};
use underpass_copy::{
    Borders, Durability, Effect, FolderLinks, Leftovers, Links, MakingWay, Naming, Options,
    Placement, Preserve, Recursion, Rule, Slashes, Specials, Verification, Wish, Word,
};

use super::getopt::{Item, Words};
use super::mistake::Mistake;
use super::rate;
use super::request::{Detail, Dialect, Request};
use super::surroundings::{Selinux, Surroundings};
use super::table::{Id, OPTIONS};
use super::words::{self, Attribute, Updating, When, choose};

/// What was said so far. Single facts are put together when all was said.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) operands: Vec<OsString>,
    /// What no other option has a say in.
    pub(super) options: Options,
    pub(super) hard_links: bool,
    pub(super) symbolic_links: bool,
    pub(super) attributes_only: bool,
    clobbering: Clobbering,
    pub(super) updating: Updating,
    pub(super) makes_backups: bool,
    pub(super) backup_names: Option<OsString>,
    pub(super) suffix: Option<OsString>,
    pub(super) target_directory: Option<OsString>,
    /// `-T`
    pub(super) is_name: bool,
    pub(super) naming: Naming,
    pub(super) holes: Holes,
    pub(super) cloning: Cloning,
    pub(super) demands_context: bool,
    pub(super) jobs: Option<NonZeroUsize>,
    pub(super) progress: Option<When>,
    verbose: bool,
    debug: bool,
    explain: bool,
    json: bool,
    pub(super) dialect: Dialect,
}

/// The last one of `-i` and `-n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clobbering {
    Unsaid,
    Asked,
    Never,
}

/// Reads all words; those that ask for something else than a copy end the reading.
pub(super) fn read(
    words: impl IntoIterator<Item = OsString>,
    surroundings: &Surroundings,
    warn: &mut dyn FnMut(&str),
) -> Result<Result<Draft, Request>, Mistake> {
    let mut draft = Draft::default();
    for item in Words::new(words, surroundings.order) {
        match item? {
            Item::Operand(operand) => draft.operands.push(operand),
            Item::Option(Id::Help, _) => return Ok(Err(Request::Help)),
            Item::Option(Id::Version, _) => return Ok(Err(Request::Version)),
            Item::Option(id, argument) => draft.take(id, argument, surroundings, warn)?,
        }
    }
    Ok(Ok(draft))
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            operands: Vec::new(),
            options: Options::default(),
            hard_links: false,
            symbolic_links: false,
            attributes_only: false,
            clobbering: Clobbering::Unsaid,
            updating: Updating::All,
            makes_backups: false,
            backup_names: None,
            suffix: None,
            target_directory: None,
            is_name: false,
            naming: Naming::default(),
            holes: Holes::default(),
            cloning: Cloning::default(),
            demands_context: false,
            jobs: None,
            progress: None,
            verbose: false,
            debug: false,
            explain: false,
            json: false,
            dialect: Dialect::Gnu,
        }
    }
}

impl Draft {
    pub(super) fn keeps(&self) -> bool {
        self.clobbering == Clobbering::Never
    }

    pub(super) fn asks(&self) -> bool {
        self.clobbering == Clobbering::Asked
    }

    pub(super) fn detail(&self) -> Detail {
        match () {
            () if self.json => Detail::Json,
            () if self.explain => Detail::Ways,
            () if self.debug => Detail::Debug,
            () if self.verbose => Detail::Names,
            () => Detail::Nothing,
        }
    }

    fn take(
        &mut self,
        id: Id,
        argument: Option<OsString>,
        surroundings: &Surroundings,
        warn: &mut dyn FnMut(&str),
    ) -> Result<(), Mistake> {
        let is_ours = OPTIONS
            .iter()
            .any(|option| option.id == id && !option.is_gnu());
        if is_ours {
            self.dialect = Dialect::Underpass;
            return self.take_ours(id, argument.unwrap_or_default(), surroundings);
        }
        match (id, argument) {
            (Id::Context, Some(_)) if surroundings.selinux == Selinux::Absent => {
                warn("warning: ignoring --context; it requires an SELinux-enabled kernel");
                Ok(())
            }
            (Id::Context, _) if surroundings.selinux == Selinux::Absent => Ok(()),
            (Id::Context, _) => Err(Mistake::plain(
                "-Z and --context are not supported; --preserve=context is",
            )),
            (id, Some(argument)) => self.take_argument(id, argument, surroundings),
            (id, None) => {
                self.take_bare(id);
                Ok(())
            }
        }
    }

    /// GNU's options that have no argument, or need none.
    fn take_bare(&mut self, id: Id) {
        let options = &mut self.options;
        match id {
            Id::Archive => {
                options.recursion = Recursion::On;
                options.links = Links::Kept;
                let Preserve { context, xattr, .. } = options.preserve;
                self.preserve(Attribute::All, Wanted::Yes);
                // What can't be had goes without a word.
                self.options.preserve.context = context.max(Wish::Tried);
                self.options.preserve.xattr = xattr.max(Wish::Tried);
            }
            Id::AttributesOnly => self.attributes_only = true,
            Id::Backup => self.makes_backups = true,
            Id::CopyContents => options.specials = Specials::Read,
            Id::Debug => self.debug = true,
            Id::Dereference => options.links = Links::Followed,
            Id::DereferenceOperands => options.links = Links::FollowedOnCommandLine,
            // What is removed in any case is removed where it can't be written, too.
            Id::Force if options.making_way == MakingWay::Everything => {}
            Id::Force => options.making_way = MakingWay::Unwritable,
            Id::Interactive => self.clobbering = Clobbering::Asked,
            Id::KeepDirectorySymlink => options.folder_links = FolderLinks::Followed,
            Id::Link => self.hard_links = true,
            Id::NoClobber => self.clobbering = Clobbering::Never,
            Id::NoDereference => options.links = Links::Kept,
            Id::NoDereferenceLinks => {
                options.links = Links::Kept;
                options.preserve.links = Wish::Required;
            }
            Id::NoTargetDirectory => self.is_name = true,
            Id::OneFileSystem => options.borders = Borders::Kept,
            Id::Parents => self.naming = Naming::Parents,
            Id::Preserve => {
                for attribute in [Attribute::Mode, Attribute::Ownership, Attribute::Timestamps] {
                    self.preserve(attribute, Wanted::Yes);
                }
            }
            Id::Recursive => options.recursion = Recursion::On,
            Id::Reflink => self.cloning = Cloning::Always,
            Id::RemoveDestination => options.making_way = MakingWay::Everything,
            Id::StripTrailingSlashes => options.slashes = Slashes::Stripped,
            Id::SymbolicLink => self.symbolic_links = true,
            Id::Update => self.updating = Updating::Older,
            Id::Verbose => self.verbose = true,
            // Those with arguments, and ours, come by elsewhere.
            _ => {}
        }
    }

    /// GNU's options with their argument.
    fn take_argument(
        &mut self,
        id: Id,
        argument: OsString,
        surroundings: &Surroundings,
    ) -> Result<(), Mistake> {
        let charset = surroundings.charset;
        match id {
            Id::Backup => {
                self.makes_backups = true;
                self.backup_names = Some(argument);
            }
            Id::NoPreserve => self.preserve_list(&argument, Wanted::No, surroundings)?,
            Id::Preserve => self.preserve_list(&argument, Wanted::Yes, surroundings)?,
            Id::Reflink => self.cloning = choose(&argument, "--reflink", words::REFLINK, charset)?,
            Id::Sparse => self.holes = choose(&argument, "--sparse", words::SPARSE, charset)?,
            Id::Suffix => {
                self.makes_backups = true;
                self.suffix = Some(argument);
            }
            Id::TargetDirectory if self.target_directory.is_some() => {
                return Err(Mistake::plain("multiple target directories specified"));
            }
            Id::TargetDirectory => self.target_directory = Some(argument),
            Id::Update => self.updating = choose(&argument, "--update", words::UPDATES, charset)?,
            _ => {}
        }
        Ok(())
    }

    /// Ours. One that can do without an argument has an empty one then.
    fn take_ours(
        &mut self,
        id: Id,
        argument: OsString,
        surroundings: &Surroundings,
    ) -> Result<(), Mistake> {
        let charset = surroundings.charset;
        let options = &mut self.options;
        let shown = || Word(argument.as_bytes(), charset);
        match id {
            Id::Atomic => options.placement = Placement::Atomic,
            Id::BandwidthLimit => {
                options.bytes_per_second_max = rate::read(&argument)
                    .ok_or_else(|| Mistake::usage(format_args!("invalid rate {}", shown())))?;
            }
            Id::DryRun => options.effect = Effect::ToldOnly,
            Id::Exclude => options
                .rules
                .push(Rule::Exclude(pattern(argument, surroundings)?)),
            Id::Include => options
                .rules
                .push(Rule::Include(pattern(argument, surroundings)?)),
            Id::Explain => self.explain = true,
            Id::Fsync if argument.is_empty() => options.durability = Durability::File,
            Id::Fsync => {
                options.durability = choose(&argument, "--fsync", words::FSYNC, charset)?;
            }
            Id::Jobs => {
                let jobs = argument.to_str().and_then(|jobs| jobs.parse().ok());
                let jobs = jobs.filter(|jobs: &NonZeroUsize| jobs.get() <= Options::JOBS_MAX);
                let (most, shown) = (Options::JOBS_MAX, shown());
                let wrong = || {
                    Mistake::usage(format_args!(
                        "invalid number of jobs {shown}: use 1 to {most}"
                    ))
                };
                self.jobs = Some(jobs.ok_or_else(wrong)?);
            }
            Id::Json => self.json = true,
            Id::Only => {
                options.only = Some(choose(&argument, "--only", words::MECHANISMS, charset)?);
            }
            Id::Progress if argument.is_empty() => self.progress = Some(When::Always),
            Id::Progress => {
                self.progress = Some(choose(&argument, "--progress", words::WHENS, charset)?);
            }
            Id::Resume => options.leftovers = Leftovers::Resumed,
            Id::Verify => options.verification = Verification::On,
            _ => {}
        }
        Ok(())
    }

    fn preserve_list(
        &mut self,
        list: &OsStr,
        wanted: Wanted,
        surroundings: &Surroundings,
    ) -> Result<(), Mistake> {
        let about = match wanted {
            Wanted::Yes => "--preserve",
            Wanted::No => "--no-preserve",
        };
        for word in list.as_bytes().split(|byte| *byte == b',') {
            let word = OsStr::from_bytes(word);
            let attribute = choose(word, about, words::ATTRIBUTES, surroundings.charset)?;
            self.preserve(attribute, wanted);
            if (attribute, wanted) == (Attribute::Context, Wanted::Yes) {
                self.demands_context = true;
            }
        }
        Ok(())
    }

    /// `all` only tells where what not every file system has can't be had; naming it makes that an
    /// error.
    fn preserve(&mut self, attribute: Attribute, wanted: Wanted) {
        let Preserve {
            mode,
            ownership,
            timestamps,
            links,
            context,
            xattr,
        } = &mut self.options.preserve;
        let places: &mut [&mut Wish] = match attribute {
            Attribute::Mode => &mut [mode],
            Attribute::Timestamps => &mut [timestamps],
            Attribute::Ownership => &mut [ownership],
            Attribute::Links => &mut [links],
            Attribute::Context => &mut [context],
            Attribute::Xattr => &mut [xattr],
            Attribute::All => {
                for tried in [context, xattr] {
                    *tried = match wanted {
                        Wanted::Yes => Wish::Told.max(*tried),
                        Wanted::No => Wish::Refused,
                    };
                }
                &mut [mode, timestamps, ownership, links]
            }
        };
        for place in places {
            **place = match wanted {
                Wanted::Yes => Wish::Required,
                Wanted::No => Wish::Refused,
            };
        }
    }
}

/// Whether an attribute is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Yes,
    No,
}

fn pattern(argument: OsString, surroundings: &Surroundings) -> Result<String, Mistake> {
    String::from_utf8(argument.into_vec()).map_err(|error| {
        let shown = Word(error.as_bytes(), surroundings.charset);
        Mistake::usage(format_args!("pattern {shown} is not UTF-8"))
    })
}
