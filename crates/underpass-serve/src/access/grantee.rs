//! Grantees in rules, and the identity of a requester.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::access::forwarded::ClientPlace;
use crate::access::links::ShownLink;
use crate::access::passwords::check_name;

/// A grantee of a rule: `user:anna`, `tokens`, `everyone`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum Grantee {
    /// Every client.
    Everyone,
    /// A user of the password file, or all of them.
    User(Option<Arc<str>>),
    /// A token of the token file, or all of them.
    Token(Option<Arc<str>>),
    /// The holder of a verified client certificate with this name, or of any.
    Certificate(Option<Arc<str>>),
    /// The holder of a signed link to the path.
    Links,
}

impl Grantee {
    /// Parses a grantee.
    ///
    /// # Errors
    /// A description of the mistake.
    ///
    /// # Examples
    /// ```
    /// use underpass_serve::Grantee;
    ///
    /// assert_eq!(Grantee::parse("users")?, Grantee::User(None));
    /// assert_eq!(Grantee::parse("token:ci")?, Grantee::Token(Some("ci".into())));
    /// assert!(Grantee::parse("anna").is_err());
    /// # Ok::<(), String>(())
    /// ```
    pub fn parse(text: &str) -> Result<Grantee, String> {
        let (kind, name) = match text.split_once(':') {
            Some((kind, name)) => (kind, Some(name)),
            None => (text, None),
        };
        name.map_or(Ok(()), check_name)?;
        let name = name.map(Arc::from);
        match (kind, &name) {
            ("everyone", None) => Ok(Grantee::Everyone),
            ("links", None) => Ok(Grantee::Links),
            ("users", None) | ("user", Some(_)) => Ok(Grantee::User(name)),
            ("tokens", None) | ("token", Some(_)) => Ok(Grantee::Token(name)),
            ("certificates", None) | ("certificate", Some(_)) => Ok(Grantee::Certificate(name)),
            _ => Err(format!(
                "{text:?} is not known; expected everyone, users, user:NAME, tokens, token:NAME, \
                 certificates, certificate:NAME or links"
            )),
        }
    }

    /// Whether `asker`, requesting `path`, is included.
    pub(crate) fn includes(&self, asker: &Asker, path: &[u8]) -> bool {
        let is_one = |wanted: &Option<Arc<str>>, known: &Option<Arc<str>>| match (wanted, known) {
            (None, known) => known.is_some(),
            (wanted, known) => wanted == known,
        };
        match self {
            Grantee::Everyone => true,
            Grantee::User(name) => is_one(name, &asker.user),
            Grantee::Token(name) => is_one(name, &asker.token),
            Grantee::Certificate(name) => is_one(name, &asker.certificate),
            Grantee::Links => asker.link.covers(path),
        }
    }
}

/// The verified identity of a requester.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Asker {
    pub(crate) place: ClientPlace,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) token: Option<Arc<str>>,
    pub(crate) certificate: Option<Arc<str>>,
    pub(crate) link: ShownLink,
    /// The `Set-Cookie` field for the link, preceded by a line break.
    pub(crate) cookie: Option<Arc<str>>,
    /// A password was sent but not verified: the time until a retry is accepted.
    pub(crate) login_delay: Option<Duration>,
}

deserialize_by_parse! { Grantee }

impl Asker {
    /// Returns a requester known only by location.
    pub(crate) fn at(place: ClientPlace) -> Asker {
        Asker {
            place,
            user: None,
            token: None,
            certificate: None,
            link: ShownLink::None,
            cookie: None,
            login_delay: None,
        }
    }

    /// Whether more than the location is known.
    pub(crate) fn is_known(&self) -> bool {
        self.user.is_some()
            || self.token.is_some()
            || self.certificate.is_some()
            || matches!(self.link, ShownLink::Valid(_))
    }
}

/// The first known identity of user, token, certificate and link, as rules name them.
impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.user, &self.token, &self.certificate, &self.link) {
            (Some(user), ..) => write!(f, "user:{user}"),
            (_, Some(token), ..) => write!(f, "token:{token}"),
            (_, _, Some(name), _) => write!(f, "certificate:{name}"),
            (_, _, _, ShownLink::Valid(_)) => f.write_str("link"),
            (None, None, None, ShownLink::None | ShownLink::Expired) => f.write_str("nobody known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::links::LinkScope;

    fn asker(user: Option<&str>, token: Option<&str>, certificate: Option<&str>) -> Asker {
        Asker {
            user: user.map(Arc::from),
            token: token.map(Arc::from),
            certificate: certificate.map(Arc::from),
            ..Asker::at(ClientPlace::UnixSocket)
        }
    }

    #[test]
    fn each_is_let_in_by_its_own_kind_alone() {
        let all = [
            asker(None, None, None),
            asker(Some("a"), None, None),
            asker(Some("b"), None, None),
            asker(None, Some("a"), None),
            asker(None, None, Some("a")),
        ];
        for (grantee, expected) in [
            ("everyone", [true, true, true, true, true]),
            ("users", [false, true, true, false, false]),
            ("user:a", [false, true, false, false, false]),
            ("tokens", [false, false, false, true, false]),
            ("token:b", [false; 5]),
            ("certificates", [false, false, false, false, true]),
            ("certificate:a", [false, false, false, false, true]),
            ("links", [false; 5]),
        ] {
            let one = Grantee::parse(grantee).unwrap();
            let included = all.each_ref().map(|asker| one.includes(asker, b"x"));
            assert_eq!(included, expected, "{grantee}");
        }
    }

    #[test]
    fn a_link_lets_in_where_it_leads() {
        let asker = Asker {
            link: ShownLink::Valid(LinkScope::Folder(b"a".to_vec())),
            ..Asker::at(ClientPlace::UnixSocket)
        };
        assert!(Grantee::Links.includes(&asker, b"a/b"));
        assert!(!Grantee::Links.includes(&asker, b"b"));
    }

    #[test]
    fn others_are_nobody() {
        for text in [
            "",
            "anna",
            "user",
            "user:",
            "users:a",
            "everyone:a",
            "links:x",
            "token:\n",
        ] {
            assert!(Grantee::parse(text).is_err(), "{text:?}");
        }
    }
}
