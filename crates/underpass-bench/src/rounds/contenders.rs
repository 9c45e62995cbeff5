//! The contenders of an experiment, and which of them have failed.
//!
//! A contender that fails is left out from then on: its figures would belong to fewer rounds than
//! those of the others. The others go on.

use crate::error::{Error, Result};

/// The owner of an experiment's contenders.
pub(crate) trait ContenderSet {
    fn list(&mut self) -> &mut ContenderList;

    /// Ends a contender that has failed, so that its remaining work doesn't disturb the others.
    /// Errors while ending it are ignored.
    fn dismiss(&mut self, contender: usize) -> Result<()>;

    /// See [`ContenderList::leave_out`].
    fn leave_out(&mut self, contender: usize, when: &str, error: Error) -> Result<String> {
        let failure = self.list().leave_out(contender, when, error)?;
        self.dismiss(contender)?;
        Ok(failure)
    }
}

#[derive(Debug, Default)]
pub(crate) struct ContenderList {
    /// In the order of the document's contenders.
    names: Vec<String>,
    has_failed: Vec<bool>,
    failures: Vec<String>,
}

impl ContenderList {
    pub(crate) fn of(names: impl IntoIterator<Item = String>) -> ContenderList {
        let names: Vec<String> = names.into_iter().collect();
        ContenderList {
            has_failed: vec![false; names.len()],
            names,
            failures: Vec::new(),
        }
    }

    /// How many there are, including those that have failed.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, contender: usize) -> &str {
        &self.names[contender]
    }

    /// Those that have not failed, in their own order.
    pub(crate) fn standing(&self) -> Vec<usize> {
        let standing = (0..self.len()).filter(|&contender| !self.has_failed[contender]);
        standing.collect()
    }

    /// The notes on all that have failed.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Leaves a contender out from now on and returns the note on it. `when` continues the sentence
    /// "NAME failed …".
    ///
    /// Returns the error where no other contender is left, and where no contender is at fault.
    pub(crate) fn leave_out(
        &mut self,
        contender: usize,
        when: &str,
        error: Error,
    ) -> Result<String> {
        let name = &self.names[contender];
        if self.standing() == [contender] || matches!(error, Error::Setting(_)) {
            return Err(error.of(name));
        }
        let failure = format!("{name} failed {when} and is left out from there on: {error}");
        self.has_failed[contender] = true;
        self.failures.push(failure.clone());
        Ok(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_is_named_and_the_last_one_fails_for_all() {
        let mut list = ContenderList::of(["a", "b"].map(str::to_owned));
        let hung_up = || Error::Answer("it hung up".into());
        let reported = list.leave_out(0, "in round 2 of 6", hung_up()).unwrap();
        let expected =
            "a failed in round 2 of 6 and is left out from there on: wrong answer: it hung up";
        assert_eq!((reported.as_str(), list.standing()), (expected, vec![1]));
        assert_eq!(list.failures(), [expected]);
        let last = list.leave_out(1, "in round 3 of 6", hung_up());
        assert_eq!(last.unwrap_err().to_string(), "wrong answer: b: it hung up");
    }

    #[test]
    fn nobody_is_left_out_for_what_the_machine_lacks() {
        let mut list = ContenderList::of(["a", "b"].map(str::to_owned));
        let lacks = Error::Setting("no strace".into());
        assert!(list.leave_out(0, "in the warm-up", lacks).is_err());
        assert_eq!(list.standing(), [0, 1]);
    }
}
