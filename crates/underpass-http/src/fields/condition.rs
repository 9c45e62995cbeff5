//! Conditional requests: RFC 9110, section 13. Evaluates five fields against a file's validators.
//!
//! ```text
//!  If-Match, else If-Unmodified-Since ─► failed: 412
//!  If-None-Match, else If-Modified-Since ─► failed: 304
//!  If-Range ─► whether Range counts
//! ```

use std::borrow::Cow;

use crate::fields::validator::{EntityTag, LastModified, TagStrength, Validators};

/// The unparsed values of the fields.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Conditions<'b> {
    /// `If-Match`, its lines joined.
    pub if_match: Option<Cow<'b, [u8]>>,
    /// `If-None-Match`, its lines joined.
    pub if_none_match: Option<Cow<'b, [u8]>>,
    /// `If-Modified-Since`
    pub if_modified_since: Option<&'b [u8]>,
    /// `If-Unmodified-Since`
    pub if_unmodified_since: Option<&'b [u8]>,
    /// `If-Range`
    pub if_range: Option<&'b [u8]>,
}

/// The result of the conditions, for GET and HEAD.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConditionResult {
    /// The request is answered as if it had no conditions.
    Proceed,
    /// 304: the client has the current state.
    NotModified,
    /// 412: the file has another state than the client requires.
    Failed,
}

impl Conditions<'_> {
    /// Evaluates the conditions on the whole file.
    pub fn judge(&self, file: &Validators) -> ConditionResult {
        if !self.is_expected_state(file) {
            return ConditionResult::Failed;
        }
        match self.is_known_state(file) {
            true => ConditionResult::NotModified,
            false => ConditionResult::Proceed,
        }
    }

    /// Evaluates If-Match, compared strongly, else If-Unmodified-Since.
    fn is_expected_state(&self, file: &Validators) -> bool {
        match (&self.if_match, self.if_unmodified_since) {
            (Some(tags), _) => names(tags, &file.tag, TagComparison::Strong),
            (None, Some(date)) => match (LastModified::parse(date), file.modified) {
                (Some(date), Some(modified)) => modified <= date,
                _ => true,
            },
            (None, None) => true,
        }
    }

    /// Evaluates If-None-Match, compared weakly, else If-Modified-Since.
    fn is_known_state(&self, file: &Validators) -> bool {
        match (&self.if_none_match, self.if_modified_since) {
            (Some(tags), _) => names(tags, &file.tag, TagComparison::Weak),
            (None, Some(date)) => match (LastModified::parse(date), file.modified) {
                (Some(date), Some(modified)) => modified <= date,
                _ => false,
            },
            (None, None) => false,
        }
    }

    /// Whether `Range` applies: always without If-Range, otherwise if the client's part has this
    /// state.
    pub fn allow_range(&self, file: &Validators) -> bool {
        match self.if_range {
            None => true,
            Some(value) => {
                let strong = file.tag.strength() == TagStrength::Strong;
                strong && value == file.tag.as_bytes()
                    || (file.modified.is_some() && LastModified::parse(value) == file.modified)
            }
        }
    }
}

/// The comparison of entity-tags: RFC 9110, section 8.8.3.2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TagComparison {
    /// Both tags have to be strong.
    Strong,
    /// Tags may be weak.
    Weak,
}

/// Whether a list of tags contains `tag`, or is `*`. A list is read up to its first malformed tag.
fn names(list: &[u8], tag: &EntityTag, comparison: TagComparison) -> bool {
    if list == b"*" {
        return true;
    }
    let mut rest = list;
    while let Some((listed, after)) = next_tag(rest) {
        let strong = [listed.strength, tag.strength()] == [TagStrength::Strong; 2];
        if listed.opaque == tag.opaque() && (strong || comparison == TagComparison::Weak) {
            return true;
        }
        rest = after;
    }
    false
}

struct ListedTag<'l> {
    opaque: &'l [u8],
    strength: TagStrength,
}

/// Splits off the first tag of a list. The quoted part of a tag may contain a comma.
fn next_tag(list: &[u8]) -> Option<(ListedTag<'_>, &[u8])> {
    let start = list
        .iter()
        .position(|byte| !matches!(byte, b',' | b' ' | b'\t'))?;
    let list = &list[start..];
    let (strength, tag) = match list.strip_prefix(b"W/") {
        Some(tag) => (TagStrength::Weak, tag),
        None => (TagStrength::Strong, list),
    };
    let inner = tag.strip_prefix(b"\"")?;
    let length = inner.iter().position(|&byte| byte == b'"')? + 2;
    let (opaque, after) = tag.split_at(length);
    let ends = after
        .trim_ascii_start()
        .first()
        .is_none_or(|&byte| byte == b',');
    ends.then_some((ListedTag { opaque, strength }, after))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;
    use crate::fields::coding::Coding;
    use crate::fields::validator::FileTime;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const TAG: &str = "\"2ebcb3e1-7-3e8-9\"";
    const WEAK: &str = "W/\"2ebcb3e1-7-3e8-9\"";

    fn file(now: u64) -> Validators {
        let changed = FileTime {
            seconds: 784_118_753,
            nanoseconds: 7,
        };
        let now = UNIX_EPOCH + Duration::from_secs(now);
        Validators::new(changed, 1000, Some(9), None, now)
    }

    fn settled() -> Validators {
        let mut file = file(2_000_000_000);
        file.modified = LastModified::parse(DATE.as_bytes());
        assert_eq!(file.tag.as_bytes(), TAG.as_bytes());
        file
    }

    /// Parses conditions from the form `name: value; name: value`.
    fn conditions(fields: &str) -> Conditions<'_> {
        let mut conditions = Conditions::default();
        for field in fields.split("; ") {
            let (name, value) = field.split_once(": ").unwrap();
            let value = Some(value.as_bytes());
            match name {
                "match" => conditions.if_match = value.map(Cow::Borrowed),
                "none" => conditions.if_none_match = value.map(Cow::Borrowed),
                "since" => conditions.if_modified_since = value,
                "until" => conditions.if_unmodified_since = value,
                "range" => conditions.if_range = value,
                _ => panic!("{name}"),
            }
        }
        conditions
    }

    #[test]
    fn verdicts() {
        use ConditionResult::{Failed, NotModified, Proceed};
        for (fields, verdict) in [
            (format!("none: {TAG}"), NotModified),
            (format!("none: {WEAK}"), NotModified),
            (format!("none: \"x\", \"a,b\" ,{TAG}"), NotModified),
            ("none: *".into(), NotModified),
            (format!("none: \"x\"; since: {DATE}"), Proceed),
            (format!("none: {}", TAG.trim_matches('"')), Proceed),
            (format!("none: {TAG}; since: {EARLIER}"), NotModified),
            (format!("since: {DATE}"), NotModified),
            (format!("since: {LATER}"), NotModified),
            (format!("since: {EARLIER}"), Proceed),
            ("since: garbage".into(), Proceed),
            (format!("since: {DATE}, {DATE}"), Proceed),
            ("match: \"x\"".into(), Failed),
            (format!("match: {WEAK}"), Failed),
            (format!("match: \"x\"; until: {DATE}"), Failed),
            (format!("match: {TAG}"), Proceed),
            ("match: *".into(), Proceed),
            (format!("match: {TAG}; until: {EARLIER}"), Proceed),
            (format!("until: {EARLIER}"), Failed),
            (format!("until: {DATE}"), Proceed),
            ("until: garbage".into(), Proceed),
            (format!("match: {TAG}; none: {TAG}"), NotModified),
        ] {
            assert_eq!(conditions(&fields).judge(&settled()), verdict, "{fields}");
        }
    }

    #[test]
    fn a_weak_tag_is_never_equal_enough_to_be_changed_or_joined() {
        let weak = settled().compressed(Coding::Gzip);
        let (tag, opaque) = (weak.tag.as_bytes(), weak.tag.opaque());
        for tag in [tag, opaque] {
            let tag = String::from_utf8(tag.to_vec()).unwrap();
            let judged = |field| conditions(&format!("{field}: {tag}")).judge(&weak);
            assert_eq!(judged("none"), ConditionResult::NotModified, "{tag}");
            assert_eq!(judged("match"), ConditionResult::Failed, "{tag}");
            assert!(
                !conditions(&format!("range: {tag}")).allow_range(&weak),
                "{tag}"
            );
        }
        assert_eq!(
            conditions("match: *").judge(&weak),
            ConditionResult::Proceed
        );
    }

    #[test]
    fn a_range_counts_only_for_the_same_state() {
        for (value, allowed) in [
            (TAG, true),
            (DATE, true),
            ("\"x\"", false),
            (WEAK, false),
            ("*", false),
            (LATER, false),
            (EARLIER, false),
            ("junk", false),
        ] {
            let fields = format!("range: {value}");
            let verdict = conditions(&fields).allow_range(&settled());
            assert_eq!(verdict, allowed, "{value}");
        }
        let list = format!("range: {TAG}, {TAG}");
        assert!(!conditions(&list).allow_range(&settled()));
    }

    #[test]
    fn dates_mean_nothing_before_the_file_has_one() {
        let young = file(784_118_753);
        assert_eq!(young.modified, None);
        let judged = |fields: &str| conditions(fields).judge(&young);
        assert_eq!(judged(&format!("since: {LATER}")), ConditionResult::Proceed);
        assert_eq!(
            judged(&format!("until: {EARLIER}")),
            ConditionResult::Proceed
        );
        assert!(!conditions(&format!("range: {DATE}")).allow_range(&young));
        assert!(!conditions("range: junk").allow_range(&young));
    }

    proptest! {
        #[test]
        fn a_tag_is_found_in_any_list(
            before in proptest::collection::vec("(W/)?\"[!#-~]{0,6}\"", 0..5),
            gap in "[ \t]{0,2},[ \t,]{0,3}",
        ) {
            let mut tags = before;
            tags.push(TAG.into());
            let list = tags.join(&gap);
            let fields = format!("none: {list}");
            prop_assert_eq!(conditions(&fields).judge(&settled()), ConditionResult::NotModified);
        }

        #[test]
        fn no_list_panics(list in "[W/\"*, a]{0,24}") {
            let fields = format!("none: {list}");
            let _ = conditions(&fields).judge(&settled());
        }
    }
}
