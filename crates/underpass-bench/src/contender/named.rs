//! `NAME=COMMAND LINE`: one of those measured, as a user names it.

use std::ffi::OsString;
use std::str::FromStr;

use crate::contender::process::CommandSpec;

/// A command under a name. Words are split as a shell does, quotes respected; nothing is expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCommand {
    /// What it is called in tables.
    pub name: String,
    /// The program and its arguments, placeholders as they are.
    pub words: Vec<String>,
}

impl FromStr for NamedCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedCommand, String> {
        let (name, line) = text
            .split_once('=')
            .ok_or("expected NAME=COMMAND, as in 'gnu=cp {from} {to}'")?;
        let words = shlex::split(line).ok_or("a quote is not closed")?;
        if name.is_empty() || words.is_empty() {
            return Err("both a name and a command are needed".into());
        }
        Ok(NamedCommand {
            name: name.to_owned(),
            words,
        })
    }
}

impl NamedCommand {
    /// The program, with each placeholder replaced by its value wherever it stands in a word.
    pub(crate) fn program(&self, values: &[(&str, &str)]) -> CommandSpec {
        let fill = |word: &String| {
            let filled = values.iter().fold(word.clone(), |word, (name, value)| {
                word.replace(name, value)
            });
            OsString::from(filled)
        };
        CommandSpec {
            name: self.name.clone(),
            version: String::new(),
            command: self.words.iter().map(fill).collect(),
            environment: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_first_and_words_are_those_of_a_shell() {
        let named: NamedCommand = "a b=cp '--x=y z' {from} {to}/in".parse().unwrap();
        assert_eq!(named.name, "a b");
        assert_eq!(named.words, ["cp", "--x=y z", "{from}", "{to}/in"]);
        let program = named.program(&[("{from}", "/f"), ("{to}", "/t")]);
        assert_eq!(program.command, ["cp", "--x=y z", "/f", "/t/in"]);
    }

    #[test]
    fn what_is_no_named_command_is_refused() {
        for text in ["cp", "=cp", "cp=", "cp='x"] {
            assert!(text.parse::<NamedCommand>().is_err(), "{text}");
        }
    }
}
