//! The contenders of an experiment, and which of them have failed.
//!
//! A contender that fails is left out from then on: its figures would belong to fewer rounds than
//! those of the others. The others continue.

use crate::error::{Error, Result};

/// The owner of an experiment's contenders.
pub(crate) trait ContenderSet {
    fn list(&mut self) -> &mut ContenderList;

    /// Ends a contender that has failed, so that its remaining work doesn't disturb the others.
    /// Errors while ending it are ignored.
    fn dismiss(&mut self, contender: usize) -> Result<()>;

    fn leave_out(&mut self, contender: usize, when: &str, error: Error) -> Result<()> {
        self.list().leave_out(contender, when, error)?;
        self.dismiss(contender)
    }
}

#[derive(Debug, Default)]
pub(crate) struct ContenderList {
    /// In the order of the document's contenders.
    names: Vec<String>,
    has_failed: Vec<bool>,
    failures: Vec<String>,
    /// Number of failures that are already in the notes on a case.
    reported: usize,
    rejections: Vec<String>,
    left_out: Vec<String>,
}

impl ContenderList {
    pub(crate) fn admit(&mut self, name: &str) {
        self.names.push(name.to_owned());
        self.has_failed.push(false);
    }

    /// Notes why a contender is not measured. Returns the error where no contender is at fault.
    pub(crate) fn reject(&mut self, name: &str, error: Error) -> Result<()> {
        match error {
            Error::Contender(why) | Error::Answer(why) => {
                self.left_out.push(name.to_owned());
                self.rejections.push(format!("not measured: {why}"));
                Ok(())
            }
            other => Err(other),
        }
    }

    /// The number of contenders, including failed ones.
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

    pub(crate) fn left_out(&self) -> Vec<String> {
        self.left_out.clone()
    }

    /// The notes on all that were rejected or have failed so far.
    pub(crate) fn missing(&self) -> Vec<String> {
        [&self.rejections[..], &self.failures[..]].concat()
    }

    /// The notes on those that have failed since the last call.
    pub(crate) fn new_failures(&mut self) -> Vec<String> {
        let new = self.failures[self.reported..].to_vec();
        self.reported = self.failures.len();
        new
    }

    /// Leaves a contender out from now on, and notes it. `when` continues the sentence "NAME failed
    /// …". Returns the error where no contender is at fault.
    fn leave_out(&mut self, contender: usize, when: &str, error: Error) -> Result<()> {
        let name = &self.names[contender];
        if matches!(error, Error::Setting(_)) {
            return Err(error.of(name));
        }
        let failure = format!("{name} failed {when} and is left out from there on: {error}");
        self.has_failed[contender] = true;
        self.left_out.push(name.clone());
        self.failures.push(failure);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn list_of(names: &[&str]) -> ContenderList {
        let mut list = ContenderList::default();
        names.iter().for_each(|name| list.admit(name));
        list
    }

    #[test]
    fn those_that_fail_are_named_once_up_to_the_last_one() {
        let mut list = list_of(&["a", "b"]);
        let hung_up = || Error::Answer("it hung up".into());
        list.leave_out(0, "in round 2 of 6", hung_up()).unwrap();
        let expected =
            "a failed in round 2 of 6 and is left out from there on: wrong answer: it hung up";
        assert_eq!(
            (list.missing(), list.standing()),
            (vec![expected.into()], vec![1])
        );
        assert_eq!(list.new_failures(), [expected]);
        assert!(list.new_failures().is_empty());
        list.leave_out(1, "in round 3 of 6", hung_up()).unwrap();
        assert!(list.standing().is_empty());
        assert_eq!(list.left_out(), ["a", "b"]);
        let expected =
            "b failed in round 3 of 6 and is left out from there on: wrong answer: it hung up";
        assert_eq!(list.new_failures(), [expected]);
    }

    #[test]
    fn nobody_is_left_out_for_what_the_machine_lacks() {
        let mut list = list_of(&["a", "b"]);
        let lacks = Error::Setting("no strace".into());
        assert!(list.leave_out(0, "in the warm-up", lacks).is_err());
        assert_eq!(list.standing(), [0, 1]);
    }
}
