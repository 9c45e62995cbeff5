//! `NAME=COMMAND LINE`: a contender as the user names it.

use std::str::FromStr;

use super::process::CommandSpec;

/// A command with a name. Words are split like a shell does, with quotes; nothing is expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedCommand {
    pub(crate) name: String,
    /// The program and its arguments, placeholders as they are.
    pub(crate) words: Vec<String>,
}

impl FromStr for NamedCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedCommand, String> {
        let (name, line) = text
            .split_once('=')
            .ok_or("expected NAME=COMMAND, as in 'gnu=cp {from} {to}'")?;
        let words = shlex::split(line).ok_or("a quote is not closed")?;
        if name.is_empty() || words.is_empty() {
            return Err("expected both a name and a command".into());
        }
        Ok(NamedCommand {
            name: name.to_owned(),
            words,
        })
    }
}

impl NamedCommand {
    /// The command, with each placeholder replaced by its value wherever it occurs in a word.
    pub(crate) fn command(&self, values: &[(&str, &str)]) -> CommandSpec {
        let fill = |word: &String| {
            let replace = |word: String, (name, value): &(&str, &str)| word.replace(name, value);
            values.iter().fold(word.clone(), replace).into()
        };
        CommandSpec {
            name: self.name.clone(),
            version: String::new(),
            command: self.words.iter().map(fill).collect(),
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
        let program = named.command(&[("{from}", "/f"), ("{to}", "/t")]);
        assert_eq!(program.command, ["cp", "--x=y z", "/f", "/t/in"]);
    }

    #[test]
    fn what_is_no_named_command_is_rejected() {
        for text in ["cp", "=cp", "cp=", "cp='x"] {
            assert!(text.parse::<NamedCommand>().is_err(), "{text}");
        }
    }
}
