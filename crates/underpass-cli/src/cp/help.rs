//! The option table as `--help`, a man page and completions, by clap.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ValueHint};

use super::request::CalledAs;
use super::table::{OPTIONS, OptionArgument, OptionDefinition, OptionGroup};

/// The width on a wide terminal, and without a terminal.
const WIDTH: usize = 100;

const BACKUPS: &str = "\
CONTROL, or the variable VERSION_CONTROL, selects how backups are named:
  none, off        no backups
  simple, never    with SUFFIX at the end
  numbered, t      .~1~, .~2~ and so on
  existing, nil    numbered if a numbered one exists, otherwise simple
SUFFIX is ~ unless --suffix or the variable SIMPLE_BACKUP_SUFFIX sets it.
";

const EXIT: &str = "\
The exit code is 0 if everything was copied, 130 or 143 if Ctrl-C or SIGTERM stopped the copy, and 1
otherwise.
";

const ABOUT: &str =
    "Copy files and folders as GNU cp does, in parallel, and report how the bytes travelled";

/// Returns the text of `--help`, for a program of this name.
pub(super) fn text(called: &str) -> String {
    let mut command = command()
        .max_term_width(WIDTH)
        .override_usage(usage(called));
    command.render_help().to_string()
}

fn usage(called: &str) -> String {
    format!(
        "{called} [OPTIONS] [-T] SOURCE DEST\n       \
         {called} [OPTIONS] SOURCE... DIRECTORY\n       \
         {called} [OPTIONS] -t DIRECTORY SOURCE..."
    )
}

pub(super) fn version(called_as: CalledAs) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match called_as {
        CalledAs::Cp => format!("cp (Underpass) {version}\n"),
        CalledAs::Underpass => format!("underpass cp {version}\n"),
    }
}

/// Returns the command for help, man page and completions. clap cannot parse as getopt does.
pub(crate) fn command() -> clap::Command {
    let operands = Arg::new("SOURCE")
        .num_args(1..)
        .value_hint(ValueHint::AnyPath)
        .help("Sources; the last one is the destination, unless -t is given");
    clap::Command::new("cp")
        .about(ABOUT)
        .after_help(format!("{BACKUPS}\n{EXIT}"))
        .override_usage(usage("underpass cp"))
        .version(env!("CARGO_PKG_VERSION"))
        .display_order(0)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(OPTIONS.iter().filter(is_documented).map(argument))
        .arg(operands)
}

fn is_documented(option: &&OptionDefinition) -> bool {
    option.group != OptionGroup::GnuHidden
}

fn argument(option: &OptionDefinition) -> Arg {
    let mut argument = Arg::new(option.name()).help(option.help);
    if let Some(long) = option.long {
        argument = argument.long(long);
    }
    let mut letters = option.short.chars();
    if let Some(letter) = letters.next() {
        argument = argument.short(letter).visible_short_aliases(letters);
    }
    argument = match option.argument {
        OptionArgument::None(_) => argument.action(ArgAction::SetTrue),
        OptionArgument::Required(value, _) => argument.value_name(value).action(ArgAction::Append),
        OptionArgument::Optional(value, _) => argument
            .value_name(value)
            .num_args(0..=1)
            .require_equals(true)
            .action(ArgAction::Append),
    };
    if option.name() == "target-directory" {
        argument = argument.value_hint(ValueHint::DirPath);
    }
    let words = (option.words)();
    if !words.is_empty() {
        argument = argument
            .value_parser(PossibleValuesParser::new(words))
            .hide_possible_values(true);
    }
    argument.help_heading(match option.group {
        OptionGroup::Underpass => "Options of Underpass",
        OptionGroup::Gnu | OptionGroup::GnuHidden => "Options of GNU cp",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_terminal_and_names_every_option() {
        let text = text("underpass cp");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for option in OPTIONS.iter().filter(is_documented) {
            if let Some(long) = option.long {
                assert!(text.contains(&format!("--{long}")), "{long}");
            }
        }
        assert!(!text.contains("--path"));
    }

    #[test]
    fn the_command_for_shells_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn no_letter_or_name_is_taken_twice() {
        for (at, option) in OPTIONS.iter().enumerate() {
            for other in &OPTIONS[at + 1..] {
                let same = |short| other.short.contains(short);
                assert!(!option.short.chars().any(same), "{}", option.name());
                assert!(
                    option.long.is_none() || option.long != other.long,
                    "{}",
                    option.name()
                );
            }
        }
    }
}
