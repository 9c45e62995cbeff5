//! Access options of a site.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::access::grantee::Grantee;
use crate::access::rules::AccessRule;
use crate::rules::FieldValue;

/// The access options of a site. Without any of them, everyone may read it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AccessOptions {
    /// The password file: lines of `NAME:HASH`, as `underpass serve hash` and `htpasswd -B` write
    /// them.
    pub users: Option<PathBuf>,
    /// The token file: lines of `NAME:sha256:HASH`, as `underpass serve hash --token` writes them.
    pub tokens: Option<PathBuf>,
    /// The keys of signed links, a file each: the first signs, all verify.
    pub link_keys: Vec<PathBuf>,
    /// Whether a signed link to a folder sets a cookie, so that the parts of a page in the folder
    /// load without a signature.
    pub link_cookies: bool,
    /// The rules; the first that applies to a request decides, and a request without one is denied.
    /// Without rules, every holder of a password, a token or a link may read everything.
    #[serde(rename = "rule")]
    pub rules: Vec<AccessRule>,
    /// The realm that browsers show in the password prompt and store passwords by; `underpass` by
    /// default.
    pub realm: Option<FieldValue>,
    /// Whether refused requests get 404, as if nothing existed, instead of 401 or 403.
    pub conceal: bool,
    /// The cache policy of responses that not everyone may read.
    pub cache: AccessCache,
    /// A single user, in place of a password file.
    #[serde(skip)]
    pub login: Option<OneLogin>,
}

/// A cache policy for responses that not everyone may read.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum AccessCache {
    /// Only the reader's private cache may store them.
    #[default]
    Private,
    /// No cache may store them.
    NoStore,
}

/// A user and the hash of the password, as a line of a password file.
#[derive(Clone, Debug)]
pub struct OneLogin {
    pub(crate) line: Arc<str>,
}

impl AccessOptions {
    /// Whether anything is restricted.
    pub(crate) fn is_configured(&self) -> bool {
        self.has_credentials() || self.link_cookies || !self.rules.is_empty()
    }

    fn has_credentials(&self) -> bool {
        self.has_users() || self.tokens.is_some() || !self.link_keys.is_empty()
    }

    /// Whether a password file is configured, or a single user.
    pub fn has_users(&self) -> bool {
        self.users.is_some() || self.login.is_some()
    }

    /// Returns the rules; without any, one that lets in every holder of credentials.
    pub(crate) fn effective_rules(&self) -> Vec<AccessRule> {
        if !self.rules.is_empty() {
            return self.rules.clone();
        }
        let kinds = [
            (self.has_users(), Grantee::User(None)),
            (self.tokens.is_some(), Grantee::Token(None)),
            (!self.link_keys.is_empty(), Grantee::Links),
        ];
        let configured = kinds.into_iter().filter(|(is_there, _)| *is_there);
        let allow = configured.map(|(_, grantee)| grantee).collect();
        vec![AccessRule::everywhere(allow)]
    }

    /// Resolves relative paths against `folder`.
    pub(crate) fn relative_to(&mut self, folder: &Path) {
        let single = self.users.iter_mut().chain(&mut self.tokens);
        for path in single.chain(&mut self.link_keys) {
            *path = folder.join(&*path);
        }
    }

    /// Returns all files that the options name.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let single = self.users.iter().chain(&self.tokens);
        single.chain(&self.link_keys)
    }

    /// Checks that all grantees in rules can be identified and that all rules can apply.
    ///
    /// # Errors
    /// A description of the first mistake.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.users.is_some() && self.login.is_some() {
            return Err(
                "access: there is a password file and a single user; choose one".to_owned(),
            );
        }
        if self.link_cookies && self.link_keys.is_empty() {
            return Err("access: `link-cookies` needs `link-keys` to verify them by".to_owned());
        }
        for grantee in self.rules.iter().flat_map(|rule| &rule.allow) {
            let (is_known, named, missing) = match grantee {
                Grantee::User(_) => (self.has_users(), "users", "users"),
                Grantee::Token(_) => (self.tokens.is_some(), "tokens", "tokens"),
                Grantee::Links => (!self.link_keys.is_empty(), "links", "link-keys"),
                Grantee::Everyone | Grantee::Certificate(_) => continue,
            };
            if !is_known {
                return Err(format!(
                    "access: a rule allows {named}, and there is no `{missing}` file"
                ));
            }
        }
        if let Some(number) = self.rules.iter().position(|rule| rule.paths.is_empty()) {
            return Err(format!(
                "access: rule {} has no `paths`, so that it is about nothing; leave `paths` out \
                 for all",
                number + 1
            ));
        }
        let last = self.rules.iter().position(AccessRule::is_about_all);
        if let Some(number) = last.filter(|number| number + 1 < self.rules.len()) {
            return Err(format!(
                "access: rule {} is about every request, so that the rules behind it are never \
                 asked; put it last",
                number + 1
            ));
        }
        let realm = self.realm.as_ref().map(FieldValue::as_str);
        match realm.is_some_and(|realm| realm.contains(['"', '\\'])) {
            true => Err("access: `realm` must not contain quotes or backslashes".to_owned()),
            false => Ok(()),
        }
    }
}
