//! Those measured in an experiment, and who of them has failed.
//!
//! One that fails in the middle is left out from there on: its figures would belong to fewer rounds
//! than those of the others, and what it does next is anybody's guess. The others go on.

use crate::error::{Error, Result};

/// Whoever has the contenders of an experiment.
pub(crate) trait ContenderSet {
    fn lineup(&mut self) -> &mut ContenderList;

    /// Ends one that has failed, so that what it still does is no part of the others' figures. How
    /// it ends is of no interest any more.
    fn dismiss(&mut self, contender: usize) -> Result<()>;

    /// See [`ContenderList::leave_out`].
    fn leave_out(&mut self, contender: usize, when: &str, error: Error) -> Result<String> {
        let failure = self.lineup().leave_out(contender, when, error)?;
        self.dismiss(contender)?;
        Ok(failure)
    }
}

#[derive(Debug, Default)]
pub(crate) struct ContenderList {
    /// In the order of the document's contenders.
    members: Vec<ListedContender>,
    failures: Vec<String>,
}

#[derive(Debug)]
struct ListedContender {
    name: String,
    has_failed: bool,
}

impl ContenderList {
    pub(crate) fn of(names: impl IntoIterator<Item = String>) -> ContenderList {
        let members = names.into_iter().map(|name| ListedContender {
            name,
            has_failed: false,
        });
        ContenderList {
            members: members.collect(),
            failures: Vec::new(),
        }
    }

    /// How many there are, with those that have failed.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn name(&self, contender: usize) -> &str {
        &self.members[contender].name
    }

    /// Those that have not failed, in their own order.
    pub(crate) fn standing(&self) -> Vec<usize> {
        let all = self.members.iter().enumerate();
        let standing = all.filter(|(_, member)| !member.has_failed);
        standing.map(|(contender, _)| contender).collect()
    }

    /// What was said of all that have failed.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Leaves one out from here on; what is to be said of it. `when` goes on a sentence that begins
    /// with its name.
    ///
    /// The error comes back where nobody would be left, and where none of them is to blame.
    pub(crate) fn leave_out(
        &mut self,
        contender: usize,
        when: &str,
        error: Error,
    ) -> Result<String> {
        let is_last = self.standing() == [contender];
        let member = &mut self.members[contender];
        if is_last || matches!(error, Error::Setting(_)) {
            return Err(error.of(&member.name));
        }
        member.has_failed = true;
        let name = &member.name;
        let failure = format!("{name} failed {when} and is left out from there on: {error}");
        self.failures.push(failure.clone());
        Ok(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_is_named_and_the_last_one_fails_for_all() {
        let mut lineup = ContenderList::of(["a", "b"].map(str::to_owned));
        let hung_up = || Error::Answer("it hung up".into());
        let told = lineup.leave_out(0, "in round 2 of 6", hung_up()).unwrap();
        let expected =
            "a failed in round 2 of 6 and is left out from there on: wrong answer: it hung up";
        assert_eq!((told.as_str(), lineup.standing()), (expected, vec![1]));
        assert_eq!(lineup.failures(), [expected]);
        let last = lineup.leave_out(1, "in round 3 of 6", hung_up());
        assert_eq!(last.unwrap_err().to_string(), "wrong answer: b: it hung up");
    }

    #[test]
    fn nobody_is_left_out_for_what_the_machine_lacks() {
        let mut lineup = ContenderList::of(["a", "b"].map(str::to_owned));
        let lacks = Error::Setting("no strace".into());
        assert!(lineup.leave_out(0, "in the warm-up", lacks).is_err());
        assert_eq!(lineup.standing(), [0, 1]);
    }
}
