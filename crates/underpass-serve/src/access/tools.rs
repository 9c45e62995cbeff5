//! Creates the lines of password and token files, and signed links.

use std::time::SystemTime;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordHasher};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use underpass_http::path::{PathForm, SitePath};

use crate::access::links::{PARAMETER, SignedParameter, redacted};
use crate::access::options::{AccessOptions, OneLogin};
use crate::access::passwords::check_name;
use crate::access::random::fill;
use crate::access::store::first_link_key;
use crate::access::tokens;
use crate::error::Error;

/// A token, and its line in a token file.
#[derive(Clone, Eq, PartialEq)]
pub struct NewToken {
    /// The secret that the client sends.
    pub token: String,
    /// The line of the token file on the server.
    pub line: String,
}

/// Returns the line of a password file for a user, hashed by argon2id.
///
/// # Errors
/// A description of why the user name is invalid.
pub fn password_line(user: &str, password: &[u8]) -> Result<String, String> {
    check_name(user)?;
    if user.contains(':') {
        return Err(format!("the name {user:?} contains a colon"));
    }
    if password.is_empty() {
        return Err(
            "the password is empty; it is asked for on a terminal, or read from standard input"
                .to_owned(),
        );
    }
    let mut salt = [0; SALT_BYTES];
    fill(&mut salt);
    let hash: PasswordHash = Argon2::default()
        .hash_password_with_salt(password, &salt)
        .map_err(|error| format!("the password cannot be hashed: {error}"))?;
    Ok(format!("{user}:{hash}"))
}

const SALT_BYTES: usize = 16;

/// Creates a random token and its line in a token file.
///
/// # Errors
/// A description of why the token name is invalid.
pub fn new_token(name: &str, expires: Option<SystemTime>) -> Result<NewToken, String> {
    check_name(name)?;
    if name.contains(':') {
        return Err(format!("the name {name:?} contains a colon"));
    }
    let mut random = [0; TOKEN_BYTES];
    fill(&mut random);
    let token = format!("{TOKEN_START}{}", BASE64_URL_SAFE_NO_PAD.encode(random));
    let line = tokens::line(name, token.as_bytes(), expires);
    Ok(NewToken { token, line })
}

const TOKEN_BYTES: usize = 32;

/// A fixed prefix by which scanners find tokens published by mistake.
const TOKEN_START: &str = "upt_";

/// Returns the path and query of a link, valid until `expires`, to the percent-encoded path in
/// `target`: a file, or with a trailing slash a folder and everything beneath it. A query in
/// `target` is kept, such as `download=tar`.
///
/// # Errors
/// [`Error::File`] for the first key, [`Error::Config`] for an invalid path or a missing key.
pub fn signed_link(
    access: &AccessOptions,
    target: &str,
    expires: SystemTime,
) -> Result<String, Error> {
    let key = first_link_key(access)?;
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let wrong = |why: &str| Error::Config(format!("{target}: {why}"));
    if redacted(target.as_bytes()) != target.as_bytes() {
        return Err(wrong("it is a signed link already; sign the path alone"));
    }
    if !path.starts_with('/') {
        return Err(wrong("a path in a URL has to begin with a slash"));
    }
    let parsed = SitePath::parse(path.as_bytes()).map_err(|error| wrong(error.why))?;
    let signature = SignedParameter::sign(&parsed, expires, &key);
    let mut link = Vec::new();
    parsed.encode_into(&mut link);
    if parsed.form() == PathForm::Folder && !parsed.bytes().is_empty() {
        link.push(b'/');
    }
    let link = String::from_utf8_lossy(&link);
    let query = query.map(|query| format!("{query}&")).unwrap_or_default();
    Ok(format!("{link}?{query}{PARAMETER}={signature}"))
}

impl OneLogin {
    /// Creates a user with a password.
    ///
    /// # Errors
    /// See [`password_line`].
    pub fn new(user: &str, password: &[u8]) -> Result<OneLogin, String> {
        let line = password_line(user, password)?.into();
        Ok(OneLogin { line })
    }
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewToken for {}", self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::passwords::PasswordFile;
    use crate::access::tokens::TokenFile;

    #[test]
    fn what_is_made_is_what_files_hold() {
        let line = password_line("anna", b"correct horse").unwrap();
        let file = PasswordFile::parse(&line).unwrap();
        assert!(file.verify("anna", b"correct horse").is_some());
        assert!(file.verify("anna", b"other").is_none());
        for (user, password) in [("a:b", "x"), ("", "x"), ("a", "")] {
            assert!(password_line(user, password.as_bytes()).is_err(), "{user}");
        }
        let made = new_token("ci", None).unwrap();
        let file = TokenFile::parse(&made.line).unwrap();
        let now = SystemTime::now();
        assert_eq!(
            file.verify(made.token.as_bytes(), now).as_deref(),
            Some("ci")
        );
        assert_ne!(made, new_token("ci", None).unwrap());
        assert!(!format!("{made:?}").contains(&made.token));
        assert!(new_token("a:b", None).is_err());
    }
}
