//! Complaints of rules, and exceptions from rules.

use std::fmt;

/// A complaint of a rule: the place, and what to do about it.
#[derive(Debug, PartialEq)]
pub(crate) struct Complaint {
    pub(super) place: String,
    text: String,
}

/// Places where a rule does not apply, with reasons.
pub(super) type Exceptions<'a> = &'a [(&'a str, &'a str)];

impl Complaint {
    pub(super) fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            text: text.into(),
        }
    }

    pub(super) fn at(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self::new(format!("{path}:{line}"), text)
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// Returns the complaints about places without an exception, and a complaint about each unneeded
/// exception.
pub(super) fn excused(complaints: Vec<Complaint>, exceptions: Exceptions) -> Vec<Complaint> {
    let is_needed = |place: &str| complaints.iter().any(|complaint| complaint.place == place);
    let stale = exceptions.iter().filter(|(place, _)| !is_needed(place));
    let stale = stale.map(|(place, _)| Complaint::new(*place, "is excepted without need"));
    let stale: Vec<_> = stale.collect();
    let is_excepted = |it: &Complaint| exceptions.iter().any(|(place, _)| it.place == *place);
    let kept = complaints.into_iter().filter(|it| !is_excepted(it));
    kept.chain(stale).collect()
}
