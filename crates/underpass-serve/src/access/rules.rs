//! Access rules: the first rule that matches path, method and network decides.
//!
//! ```text
//!  paths? ─► methods? ─► networks? ─► allow: is the asker one of these? ─► yes, or no
//!    └──────────┴────────────┴─ no: the next rule; behind the last one: no
//! ```

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use underpass_http::request::request_line::{Method, WriteMethod};
use underpass_net::Network;
use unicode_normalization::UnicodeNormalization;

use crate::access::forwarded::ClientPlace;
use crate::access::grantee::{Asker, Grantee};
use crate::access::links::ShownLink;
use crate::rules::Pattern;

/// A rule of a site.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRule {
    /// The paths it applies to, with everything beneath them; all if omitted.
    #[serde(default = "everything")]
    pub paths: Vec<TreePattern>,
    /// The methods it applies to; all if omitted.
    #[serde(default)]
    pub methods: Vec<AccessMethod>,
    /// The client networks it applies to; all if omitted.
    #[serde(default)]
    pub networks: Vec<Network>,
    /// The grantees that are let in; nobody if empty.
    pub allow: Vec<Grantee>,
}

/// A path pattern that also covers everything beneath each match: `/team`, `*.key`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct TreePattern(CoveredPaths);

#[derive(Clone, Debug)]
enum CoveredPaths {
    Everything,
    Beneath(Box<CoveredTree>),
}

#[derive(Clone, Debug)]
struct CoveredTree {
    /// Matches the pattern itself.
    itself: Pattern,
    below: Pattern,
    /// The path from the root, for a pattern without wildcards.
    path: Option<String>,
}

/// Returns a text with composed accents (NFC, Unicode Standard Annex 15): file systems and editors
/// store them in two ways, and a rule matches both.
fn composed(text: &str) -> String {
    text.nfc().collect()
}

/// A method of a rule.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "UPPERCASE")]
pub enum AccessMethod {
    /// GET and HEAD.
    Get,
    /// HEAD.
    Head,
    /// PUT, and whatever else makes files and folders or changes them: POST, PATCH, MKCOL, and COPY
    /// and MOVE of their destination.
    Put,
    /// DELETE, and MOVE of its source.
    Delete,
}

/// All rules of a site.
#[derive(Debug)]
pub(crate) struct AccessRules {
    rules: Vec<AccessRule>,
}

/// The decision of the rules on a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AccessVerdict {
    Granted,
    Refused(AccessRefusal),
}

/// The reason for a denial.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AccessRefusal {
    /// The time until passwords are verified again, if one was not because of too many wrong ones.
    pub(crate) retry_after: Option<Duration>,
    /// Whether a password could help, and neither a password nor a token was verified.
    pub(crate) takes_password: bool,
    /// Whether a token could help, and neither a password nor a token was verified.
    pub(crate) takes_token: bool,
    /// Whether a signed link was sent that would have helped had it not expired.
    pub(crate) link_expired: bool,
}

fn everything() -> Vec<TreePattern> {
    vec![TreePattern(CoveredPaths::Everything)]
}

impl TreePattern {
    /// Parses a pattern: with a slash it is matched from the root, without one against names in any
    /// folder, like other patterns. `/team`, `/team/` and `/team/**` are the same.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn parse(text: &str) -> Result<TreePattern, String> {
        let segments = text.strip_prefix('/').unwrap_or(text);
        let segments = segments.strip_suffix('/').unwrap_or(segments).split('/');
        if text != "/" && segments.clone().any(|name| ["", ".", ".."].contains(&name)) {
            return Err(format!(
                "the pattern {text:?} matches no path: expected no empty, `.` or `..` segments"
            ));
        }
        if has_escape(text) {
            return Err(format!(
                "the pattern {text:?} contains a percent-encoded byte; write names without encoding"
            ));
        }
        let mut tree = text;
        while let Some(shorter) = tree.strip_suffix("/**").or(tree.strip_suffix('/')) {
            tree = shorter;
        }
        let tree = &composed(tree);
        if tree.is_empty() && !text.is_empty() || tree == "**" {
            return Ok(TreePattern(CoveredPaths::Everything));
        }
        // The removed trailing slash had anchored the pattern.
        let anchor = match tree.len() < text.len() && !tree.contains('/') {
            true => "/",
            false => "",
        };
        let itself = Pattern::parse(&format!("{anchor}{tree}"))?;
        let below = match tree.contains('/') || !anchor.is_empty() {
            true => format!("{tree}/**"),
            false => format!("**/{tree}/**"),
        };
        let is_path = tree.starts_with('/') || !anchor.is_empty() || tree.contains('/');
        let is_path = is_path && !tree.contains(['*', '?', '[', ']', '{', '}', '\\']);
        Ok(TreePattern(CoveredPaths::Beneath(Box::new(CoveredTree {
            itself,
            below: Pattern::parse(&below)?,
            path: is_path.then(|| tree.trim_start_matches('/').to_owned()),
        }))))
    }

    /// Returns the path of a pattern that covers one path and everything beneath it.
    pub(crate) fn path(&self) -> Option<&str> {
        match &self.0 {
            CoveredPaths::Everything => None,
            CoveredPaths::Beneath(tree) => tree.path.as_deref(),
        }
    }

    fn covers(&self, path: &[u8]) -> bool {
        let CoveredPaths::Beneath(tree) = &self.0 else {
            return true;
        };
        let path = match std::str::from_utf8(path) {
            Ok(text) if !text.is_ascii() => Cow::Owned(composed(text).into_bytes()),
            _ => Cow::Borrowed(path),
        };
        // The root has no name that a star could match.
        !path.is_empty() && (tree.itself.matches(&path) || tree.below.matches(&path))
    }
}

/// Whether a text contains a percent escape such as `%20`.
fn has_escape(text: &str) -> bool {
    let is_escape = |three: &[u8]| match three {
        [b'%', one, two] => one.is_ascii_hexdigit() && two.is_ascii_hexdigit(),
        _ => false,
    };
    text.as_bytes().windows(3).any(is_escape)
}

deserialize_by_parse! { TreePattern }

impl AccessMethod {
    fn covers(self, method: Method) -> bool {
        match self {
            AccessMethod::Get => matches!(method, Method::Get | Method::Head),
            AccessMethod::Head => method == Method::Head,
            AccessMethod::Put => {
                matches!(method, Method::Write(method) if method != WriteMethod::Delete)
            }
            AccessMethod::Delete => method == Method::Write(WriteMethod::Delete),
        }
    }
}

impl AccessRule {
    /// Whether the rule applies to every request, so that later rules are never reached.
    pub(crate) fn is_about_all(&self) -> bool {
        let is_everything = |pattern: &TreePattern| matches!(pattern.0, CoveredPaths::Everything);
        self.methods.is_empty() && self.networks.is_empty() && self.paths.iter().any(is_everything)
    }

    /// Returns a rule for all paths, methods and networks.
    pub(crate) fn everywhere(allow: Vec<Grantee>) -> AccessRule {
        AccessRule {
            paths: everything(),
            methods: Vec::new(),
            networks: Vec::new(),
            allow,
        }
    }

    fn is_about(&self, path: &[u8], method: Method, asker: &Asker) -> bool {
        let contains = |network: &Network| match asker.place {
            ClientPlace::Address(address) => network.contains(address),
            ClientPlace::UnixSocket => *network == Network::Unix,
            ClientPlace::Unknown(_) => false,
        };
        self.covers(path, method)
            && (self.networks.is_empty() || self.networks.iter().any(contains))
    }

    /// Whether the rule applies to a path and a method, on some network at least.
    fn covers(&self, path: &[u8], method: Method) -> bool {
        self.paths.iter().any(|pattern| pattern.covers(path))
            && (self.methods.is_empty() || self.methods.iter().any(|one| one.covers(method)))
    }

    fn refusal(&self, asker: &Asker) -> AccessRefusal {
        let allows = |is_one: fn(&Grantee) -> bool| self.allow.iter().any(is_one);
        let is_known = asker.user.is_some() || asker.token.is_some();
        AccessRefusal {
            retry_after: asker.login_delay,
            takes_password: !is_known && allows(|one| matches!(one, Grantee::User(_))),
            takes_token: !is_known && allows(|one| matches!(one, Grantee::Token(_))),
            link_expired: asker.link == ShownLink::Expired
                && allows(|one| matches!(one, Grantee::Links)),
        }
    }
}

impl AccessRules {
    pub(crate) fn new(rules: Vec<AccessRule>) -> AccessRules {
        AccessRules { rules }
    }

    /// Decides whether `asker` may read `path`, relative to the root, whether or not it exists, and
    /// returns the number of the rule that decides, from 0.
    pub(crate) fn decide(
        &self,
        path: &[u8],
        method: Method,
        asker: &Asker,
    ) -> (AccessVerdict, Option<usize>) {
        let mut rules = self.rules.iter().enumerate();
        let Some((number, rule)) = rules.find(|(_, rule)| rule.is_about(path, method, asker))
        else {
            return (AccessVerdict::Refused(AccessRefusal::FINAL), None);
        };
        // A link is for reading, whatever the rule is about.
        let lets_in = |one: &Grantee| match (one, method) {
            (Grantee::Links, Method::Write(_)) => false,
            _ => one.includes(asker, path),
        };
        let verdict = match rule.allow.iter().any(lets_in) {
            true => AccessVerdict::Granted,
            false => AccessVerdict::Refused(rule.refusal(asker)),
        };
        (verdict, Some(number))
    }

    /// Whether the decision on a path depends on the client's network.
    pub(crate) fn ask_for_network(&self, path: &[u8], method: Method) -> bool {
        let mut rules = self.rules.iter();
        let first = rules.find(|rule| rule.covers(path, method));
        first.is_some_and(|rule| !rule.networks.is_empty())
    }

    /// Whether every client on every network may read `path` with every method: only then may
    /// shared caches store it.
    pub(crate) fn is_open(&self, path: &[u8]) -> bool {
        let mut rules = self.rules.iter();
        let is_about_reading = |rule: &AccessRule| {
            let mut methods = rule.methods.iter();
            rule.methods.is_empty()
                || methods.any(|one| matches!(one, AccessMethod::Get | AccessMethod::Head))
        };
        let first = rules.find(|rule| {
            is_about_reading(rule) && rule.paths.iter().any(|pattern| pattern.covers(path))
        });
        first.is_some_and(|rule| {
            rule.methods.is_empty()
                && rule.networks.is_empty()
                && rule.allow.contains(&Grantee::Everyone)
        })
    }
}

impl AccessRefusal {
    /// A denial that neither a password nor a token could change.
    pub(crate) const FINAL: AccessRefusal = AccessRefusal {
        retry_after: None,
        takes_password: false,
        takes_token: false,
        link_expired: false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accents_are_the_same_however_they_are_stored() {
        let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
        for pattern in [composed, decomposed] {
            let pattern = TreePattern::parse(&format!("/{pattern}/*.key")).unwrap();
            for name in [composed, decomposed] {
                assert!(pattern.covers(format!("{name}/a.key").as_bytes()));
            }
            assert!(!pattern.covers(b"cafe/a.key"));
            assert!(!pattern.covers(b"caf\xe9/a.key"));
        }
        let path = |text: &str| TreePattern::parse(text).unwrap().path().map(str::to_owned);
        assert_eq!(path("/a/b/"), Some("a/b".to_owned()));
        assert_eq!(path("/a"), Some("a".to_owned()));
        assert_eq!(path("/a/*"), None);
        assert_eq!(path("secret"), None);
        assert_eq!(path("/"), None);
    }

    fn rules(text: &str) -> AccessRules {
        #[derive(Deserialize)]
        struct Rules {
            rule: Vec<AccessRule>,
        }
        AccessRules::new(toml::from_str::<Rules>(text).unwrap().rule)
    }

    fn user(name: &str) -> Asker {
        Asker {
            user: (!name.is_empty()).then(|| name.into()),
            ..Asker::at("192.0.2.1".parse().unwrap())
        }
    }

    fn granted(rules: &AccessRules, path: &str, asker: &Asker) -> bool {
        rules.decide(path.as_bytes(), Method::Get, asker).0 == AccessVerdict::Granted
    }

    #[test]
    fn a_pattern_covers_what_it_matches_and_everything_beneath() {
        for (pattern, covered, other) in [
            (
                "/team",
                &["team", "team/a", "team/a/b"][..],
                &["teams", "x/team", ""][..],
            ),
            ("/team/", &["team", "team/a"], &["teams"]),
            ("/team/**", &["team", "team/a"], &["teams"]),
            ("team/**", &["team", "team/a"], &["x/team"]),
            ("/", &["", "a", "a/b"], &[]),
            ("/**", &["", "a", "a/b"], &[]),
            ("**", &["", "a"], &[]),
            (
                "*.key",
                &["a.key", "b/a.key", "a.key/b", "b/a.key/c"],
                &["a.keys", "key"],
            ),
            (
                "/*/private",
                &["a/private", "a/private/b"],
                &["private", "a/b/private"],
            ),
            ("/*", &["a", "a/b"], &[""]),
            (
                "secret",
                &["secret", "a/secret", "a/secret/b"],
                &["secrets"],
            ),
        ] {
            let compiled = TreePattern::parse(pattern).unwrap();
            for path in covered {
                assert!(compiled.covers(path.as_bytes()), "{pattern} {path}");
            }
            for path in other {
                assert!(!compiled.covers(path.as_bytes()), "{pattern} {path}");
            }
        }
        for wrong in ["", "[", "/a/{b", "/a//b", "/../a", "/a/./b", "/my%20file"] {
            assert!(TreePattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_rule_about_a_request_decides_and_behind_the_last_is_nobody() {
        let rules = rules(
            "rule = [{paths = ['/team/open'], allow = ['everyone']},\n\
                     {paths = ['/team'], allow = ['user:anna', 'tokens']},\n\
                     {networks = ['10.0.0.0/8', 'unix'], allow = ['everyone']},\n\
                     {methods = ['HEAD'], allow = ['everyone']},\n\
                     {paths = ['/never'], allow = []}]",
        );
        let (anna, nobody) = (user("anna"), user(""));
        let within = Asker {
            ..Asker::at("10.1.2.3".parse().unwrap())
        };
        for (path, of_anna, of_nobody, of_within, of_unix) in [
            ("team/open/a", true, true, true, true),
            ("team/a", true, false, false, false),
            ("team", true, false, false, false),
            ("a", false, false, true, true),
            ("never", false, false, true, true),
            ("", false, false, true, true),
        ] {
            assert_eq!(granted(&rules, path, &anna), of_anna, "{path} anna");
            assert_eq!(granted(&rules, path, &nobody), of_nobody, "{path} nobody");
            assert_eq!(granted(&rules, path, &within), of_within, "{path} within");
            assert_eq!(
                granted(&rules, path, &Asker::at(ClientPlace::UnixSocket)),
                of_unix,
                "{path} unix"
            );
        }
        let head = rules.decide(b"a", Method::Head, &nobody);
        assert_eq!(head, (AccessVerdict::Granted, Some(3)));
        assert_eq!(rules.decide(b"never", Method::Get, &nobody).1, Some(4));
        assert_eq!(rules.decide(b"a", Method::Get, &nobody).1, None);
    }

    #[test]
    fn what_could_help_is_asked_for_unless_it_was_given() {
        let rules = rules(
            "rule = [{paths = ['/a'], allow = ['users', 'token:ci']},\n\
                     {paths = ['/b'], allow = ['certificates']}]",
        );
        let refused =
            |path: &str, asker: &Asker| match rules.decide(path.as_bytes(), Method::Get, asker).0 {
                AccessVerdict::Refused(refusal) => Some(refusal),
                AccessVerdict::Granted => None,
            };
        let both = AccessRefusal {
            retry_after: None,
            takes_password: true,
            takes_token: true,
            link_expired: false,
        };
        assert_eq!(refused("a", &user("")), Some(both));
        let other = Asker {
            token: Some("other".into()),
            ..user("")
        };
        assert_eq!(refused("a", &other), Some(AccessRefusal::FINAL));
        assert_eq!(refused("a", &user("anna")), None);
        assert_eq!(refused("b", &user("anna")), Some(AccessRefusal::FINAL));
        assert_eq!(refused("c", &user("anna")), Some(AccessRefusal::FINAL));
    }

    #[test]
    fn only_what_everyone_may_always_read_is_open() {
        let rules = rules(
            "rule = [{paths = ['/a'], allow = ['everyone']},\n\
                     {paths = ['/b'], networks = ['10.0.0.0/8'], allow = ['everyone']},\n\
                     {paths = ['/c'], methods = ['GET'], allow = ['everyone']},\n\
                     {paths = ['/d'], allow = ['users', 'everyone']},\n\
                     {allow = ['users']}]",
        );
        for (path, open) in [
            ("a/x", true),
            ("b", false),
            ("c", false),
            ("d", true),
            ("e", false),
        ] {
            assert_eq!(rules.is_open(path.as_bytes()), open, "{path}");
        }
    }

    #[test]
    fn rules_that_say_nothing_known_are_refused() {
        for text in [
            "rule = [{paths = ['/a']}]",
            "rule = [{allow = ['anna']}]",
            "rule = [{allow = [], methods = ['get']}]",
            "rule = [{allow = [], network = ['::1']}]",
        ] {
            #[derive(Deserialize)]
            #[expect(dead_code, reason = "it is not read")]
            struct Rules {
                rule: Vec<AccessRule>,
            }
            assert!(toml::from_str::<Rules>(text).is_err(), "{text}");
        }
    }
}
