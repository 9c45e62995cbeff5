//! Differences from nginx 1.22, with reasons. Every row is documented in docs/serve.md, and every
//! row occurs.

use super::exchange::Seen;
use super::requests::Asked;

/// An intended difference.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The difference, in one sentence.
    pub(crate) what: &'static str,
    /// The clause that decides, or whose choice it is.
    pub(crate) why: &'static str,
    /// Oddities of a request that cause it: all of one of these lists.
    pub(crate) asked: &'static [&'static [&'static str]],
    /// The responses of nginx and of this server; `*` matches anything.
    pub(crate) verdicts: &'static [(&'static str, &'static str)],
    /// Details that may differ if the status is the same.
    pub(crate) details: &'static [&'static str],
}

impl Rule {
    /// Returns whether a request causes the difference and the responses show it.
    fn applies(&self, asked: &Asked, theirs: &Seen, ours: &Seen) -> bool {
        let is_asked = |list: &&[&str]| list.iter().all(|one| asked.oddities.contains(one));
        let is_seen = |&(nginx, here): &(&str, &str)| {
            fits(nginx, &theirs.verdict) && fits(here, &ours.verdict)
        };
        self.asked.iter().any(is_asked) && self.verdicts.iter().any(is_seen)
    }
}

/// Returns the rules that together explain all differences; none if a difference is left.
pub(crate) fn explaining(asked: &Asked, theirs: &Seen, ours: &Seen) -> Vec<usize> {
    let applies = |number: &usize| RULES[*number].applies(asked, theirs, ours);
    let applying = (0..RULES.len()).filter(applies);
    let status = |seen: &Seen| seen.verdict.split(' ').next().map(str::to_owned);
    let mut left = differing(theirs, ours);
    if status(theirs) != status(ours) || left.is_empty() {
        return applying.take(1).collect();
    }
    let mut explaining = Vec::new();
    for number in applying {
        let before = left.len();
        left.retain(|name| !RULES[number].details.contains(name));
        if left.len() < before {
            explaining.push(number);
        }
        if left.is_empty() {
            return explaining;
        }
    }
    Vec::new()
}

fn fits(pattern: &str, verdict: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == verdict,
        Some((before, after)) => verdict.starts_with(before) && verdict.ends_with(after),
    }
}

/// Returns the names of the details that differ.
pub(crate) fn differing(theirs: &Seen, ours: &Seen) -> Vec<&'static str> {
    let names = theirs.details.keys().chain(ours.details.keys());
    let mut names: Vec<_> = names
        .filter(|name| theirs.details.get(*name) != ours.details.get(*name))
        .copied()
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        what: "POST, PUT, DELETE, PATCH, TRACE and CONNECT get 405 with `Allow`, whatever the path",
        why: "RFC 9110, section 15.5.6",
        asked: &[&["method not allowed"]],
        verdicts: &[("*", "405 open"), ("*", "405 closed")],
        details: &["allow", "announced"],
    },
    Rule {
        what: "OPTIONS is answered, with 204 and `Allow`",
        why: "RFC 9110, section 9.3.7",
        asked: &[&["OPTIONS"]],
        verdicts: &[("40*", "204 *")],
        details: &[],
    },
    Rule {
        what: "a method nobody knows gets 501",
        why: "RFC 9110, section 9.1",
        asked: &[&["unknown method"]],
        verdicts: &[("4*", "501 *")],
        details: &[],
    },
    Rule {
        what: "HEAD ignores `Range`",
        why: "RFC 9110, section 14.2",
        asked: &[&["HEAD", "Range"]],
        verdicts: &[("206 *", "200 *"), ("416 *", "200 *")],
        details: &[],
    },
    Rule {
        what: "beside `If-None-Match` the date of `If-Modified-Since` is ignored",
        why: "RFC 9110, section 13.2.2",
        asked: &[
            &["If-None-Match", "If-Modified-Since"],
            &["If-None-Match", "later date"],
        ],
        verdicts: &[("2*", "304 *"), ("416 *", "304 *")],
        details: &[],
    },
    Rule {
        what: "beside `If-Match` the date of `If-Unmodified-Since` is ignored",
        why: "RFC 9110, section 13.2.2",
        asked: &[&["If-Match", "If-Unmodified-Since"]],
        verdicts: &[("412 *", "2*"), ("412 *", "304 *"), ("412 *", "416 *")],
        details: &[],
    },
    Rule {
        what: "`If-Modified-Since` with a later date than the file's gets 304",
        why: "RFC 9110, section 13.1.3",
        asked: &[&["later date"]],
        verdicts: &[("2*", "304 *"), ("416 *", "304 *")],
        details: &[],
    },
    Rule {
        what: "`If-Unmodified-Since` without a valid date is ignored",
        why: "RFC 9110, section 13.1.4",
        asked: &[&["no date"]],
        verdicts: &[("412 *", "2*"), ("412 *", "304 *"), ("412 *", "416 *")],
        details: &[],
    },
    Rule {
        what: "several lines of `If-None-Match` are one list",
        why: "RFC 9110, section 5.3",
        asked: &[&["two lines of tags"]],
        verdicts: &[("400 closed", "*")],
        details: &[],
    },
    Rule {
        what: "412 leaves the connection open",
        why: "nothing says that it has to end",
        asked: &[&["If-Match"], &["If-Unmodified-Since"]],
        verdicts: &[("412 closed", "412 open")],
        details: &["announced"],
    },
    Rule {
        what: "a target with `https://` gets 421 where TLS is not spoken",
        why: "RFC 9110, section 7.4",
        asked: &[&["https"]],
        verdicts: &[("*", "421 closed")],
        details: &[],
    },
    Rule {
        what: "a target of any other scheme than `http` gets 400",
        why: "RFC 9110, section 4.2",
        asked: &[&["other scheme"]],
        verdicts: &[("*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "a host with user information, a port that is no number up to 65535, a malformed \
               escape or brackets around no address gets 400",
        why: "RFC 9112, section 3.2; RFC 3986, section 3.2.2",
        asked: &[&["host"]],
        verdicts: &[("*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "a host in a URL may have `_`, `,`, `;` and escapes, as one in `Host` may",
        why: "RFC 3986, section 3.2.2",
        asked: &[&["host of odd letters"]],
        verdicts: &[("400 closed", "*")],
        details: &[],
    },
    Rule {
        what: "a host with empty labels is a name that no site has",
        why: "RFC 3986, section 3.2.2, allows it",
        asked: &[&["host of empty labels"]],
        verdicts: &[("400 closed", "*")],
        details: &[],
    },
    Rule {
        what: "a version is `HTTP/`, a digit, a dot and a digit; other majors than 1 get 505",
        why: "RFC 9112, section 2.3; RFC 9110, section 15.6.6",
        asked: &[&["version"]],
        verdicts: &[("*", "400 closed"), ("*", "505 closed")],
        details: &[],
    },
    Rule {
        what: "HTTP/0.9 is not spoken",
        why: "RFC 9112 has no such version",
        asked: &[&["no head"]],
        verdicts: &[("*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "lines that end without CR, more than two empty lines before a request and more than \
               one space in its line get 400",
        why: "RFC 9112, sections 2.2 and 3: read in one way only",
        asked: &[&["blanks"], &["bare LF"]],
        verdicts: &[("*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "a request line may have 16 KiB, a head 32 KiB",
        why: "a choice; RFC 9112, section 3, asks for 8,000 bytes",
        asked: &[&["long line"]],
        verdicts: &[("414 closed", "*"), ("400 closed", "*")],
        details: &[],
    },
    Rule {
        what: "more than 100 fields get 431",
        why: "RFC 6585, section 5",
        asked: &[&["many fields"]],
        verdicts: &[("*", "431 closed")],
        details: &[],
    },
    Rule {
        what: "a transfer coding that leaves the length unknown gets 400",
        why: "RFC 9112, section 6.3",
        asked: &[&["framing"]],
        verdicts: &[("501 closed", "400 closed"), ("40*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "a coding that is not known before `chunked` gets 501, whatever else is wrong",
        why: "RFC 9112, section 6.1",
        asked: &[&["framing"]],
        verdicts: &[("40*", "501 closed")],
        details: &[],
    },
    Rule {
        what: "a malformed chunk gets 400, whatever the path leads to",
        why: "RFC 9112, section 7.1",
        asked: &[&["chunks"]],
        verdicts: &[("*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "a field whose name is no token or whose value has a control byte gets 400",
        why: "RFC 9110, sections 5.1 and 5.5",
        asked: &[&["field"]],
        verdicts: &[("*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "an expectation that is not known gets 417",
        why: "RFC 9110, section 10.1.1",
        asked: &[&["Expect"]],
        verdicts: &[("*", "417 closed")],
        details: &[],
    },
    Rule {
        what: "100 is sent where a body follows only",
        why: "RFC 9110, section 10.1.1",
        asked: &[&["Expect"]],
        verdicts: &[
            ("2*", "2*"),
            ("301 *", "301 *"),
            ("304 *", "304 *"),
            // The malformed body arrived together with its head.
            ("400 *", "400 *"),
            ("403 *", "403 *"),
            ("404 *", "404 *"),
            ("412 *", "412 *"),
            ("416 *", "416 *"),
        ],
        details: &["interim"],
    },
    Rule {
        what: "a target with a fragment gets 400",
        why: "RFC 9112, section 3.2",
        asked: &[&["fragment"]],
        verdicts: &[("*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "names that begin with a dot are hidden, but for `.well-known`",
        why: "a choice",
        asked: &[&["hidden"]],
        verdicts: &[("*", "404 *")],
        details: &[],
    },
    Rule {
        what: "links that lead out of the folder are not there",
        why: "a choice",
        asked: &[&["link out"]],
        verdicts: &[("*", "404 *")],
        details: &[],
    },
    Rule {
        what: "a set with an invalid range is ignored",
        why: "RFC 9110, section 14.2, allows either",
        asked: &[&["invalid range"]],
        verdicts: &[("206 *", "200 *"), ("416 *", "200 *")],
        details: &[],
    },
    Rule {
        what: "empty members of a set of ranges are skipped",
        why: "RFC 9110, section 5.6.1",
        asked: &[&["invalid range"]],
        verdicts: &[("416 *", "206 *")],
        details: &[],
    },
    Rule {
        what: "an end of a range beyond all numbers is the end of the file",
        why: "RFC 9110, section 14.1.2",
        asked: &[&["large end"]],
        verdicts: &[("416 *", "206 *"), ("416 *", "200 *")],
        details: &[],
    },
    Rule {
        what: "ranges that overlap are merged",
        why: "RFC 9110, section 14.2",
        asked: &[&["overlap"], &["many ranges"]],
        verdicts: &[("206 *", "206 *")],
        details: &["range", "body", "type", "length"],
    },
    Rule {
        what: "more than 128 ranges, or more than 16 that do not ascend, are ignored",
        why: "RFC 9110, section 14.2",
        asked: &[&["many ranges"]],
        verdicts: &[("206 *", "200 *"), ("416 *", "200 *")],
        details: &[],
    },
    Rule {
        what: "two lines of `Range`, `Origin`, `Content-Type` or `Proxy-Authorization` get 400, as \
               those of `Host`, `Content-Length`, `If-Modified-Since` and the like do",
        why: "RFC 9110, section 5.3: they are not lists",
        asked: &[&["two lines"]],
        verdicts: &[("*", "400 closed")],
        details: &[],
    },
    Rule {
        what: "any range of an empty file is ignored",
        why: "a choice: there is nothing to leave out",
        asked: &[&["range of nothing"]],
        verdicts: &[("416 *", "200 *")],
        details: &[],
    },
    Rule {
        what: "a redirect keeps an empty query",
        why: "RFC 3986, section 6.2.3",
        asked: &[&["empty query"]],
        verdicts: &[("301 *", "301 *")],
        details: &["location"],
    },
    Rule {
        what: "`close` is looked for among the connection's options, not within them",
        why: "RFC 9110, section 7.6.1",
        asked: &[&["connection option"]],
        verdicts: &[("* closed", "* open")],
        details: &["announced"],
    },
];
