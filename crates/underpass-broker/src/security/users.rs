//! The users and their credentials: those of a file, which operators write, and those that clients
//! have added, which are in the metadata file.
//!
//! ```text
//!  anna:SCRAM-SHA-256$8192:SALT$STORED_KEY:SERVER_KEY
//!  anna:SCRAM-SHA-512$8192:SALT$STORED_KEY:SERVER_KEY
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::security::principal::NAME_BYTES_MAX;
use crate::security::random;
use crate::security::scram::{ITERATIONS, ScramCredential, ScramMechanism};

/// The largest number of users in a file, and of those that clients can add: the metadata file is
/// written as a whole.
pub(crate) const USERS_MAX: usize = 10_000;

/// Users with their credentials.
pub(crate) type UserCredentials = BTreeMap<String, BTreeMap<ScramMechanism, ScramCredential>>;

/// The users of a broker.
#[derive(Debug)]
pub(crate) struct Users {
    of_file: Mutex<Arc<UserCredentials>>,
    added: Mutex<Arc<UserCredentials>>,
    /// The key that makes up the salts of users that do not exist.
    secret: [u8; 32],
}

/// The credential of a user, or one that no password has.
#[derive(Debug)]
pub(crate) struct FoundCredential {
    pub(crate) mechanism: ScramMechanism,
    pub(crate) credential: ScramCredential,
}

impl Users {
    /// Makes the users from those of the file and those of the metadata. The key must be the same
    /// after a restart: otherwise the salts of users that exist would be the only ones that stay.
    pub(crate) fn new(of_file: UserCredentials, added: UserCredentials, secret: [u8; 32]) -> Users {
        Users {
            of_file: Mutex::new(Arc::new(of_file)),
            added: Mutex::new(Arc::new(added)),
            secret,
        }
    }

    /// Replaces the users of the file.
    pub(crate) fn set_file(&self, users: UserCredentials) {
        *lock(&self.of_file) = Arc::new(users);
    }

    /// Replaces the users that clients have added.
    pub(crate) fn set_added(&self, users: UserCredentials) {
        *lock(&self.added) = Arc::new(users);
    }

    /// Returns the users of the file.
    pub(crate) fn of_file(&self) -> Arc<UserCredentials> {
        Arc::clone(&lock(&self.of_file))
    }

    /// Returns the users that clients have added.
    pub(crate) fn added(&self) -> Arc<UserCredentials> {
        Arc::clone(&lock(&self.added))
    }

    /// Returns the credential of a user for one of these mechanisms, the first that it has. A user
    /// that does not exist gets one that looks like those of others, and that no password has.
    pub(crate) fn credential(&self, user: &str, mechanisms: &[ScramMechanism]) -> FoundCredential {
        let tables = [self.of_file(), self.added()];
        let found = tables.iter().find_map(|table| {
            let own = table.get(user)?;
            let mut found = mechanisms
                .iter()
                .filter_map(|one| Some((*one, own.get(one)?)));
            found.next()
        });
        if let Some((mechanism, credential)) = found {
            return FoundCredential {
                mechanism,
                credential: credential.clone(),
            };
        }
        let mechanism = mechanisms.first().copied();
        let mechanism = mechanism.unwrap_or(ScramMechanism::Sha256);
        let mut others = tables.iter().flat_map(|table| table.values());
        let iterations = others.find_map(|own| own.get(&mechanism));
        let iterations = iterations.map_or(ITERATIONS, |credential| credential.iterations);
        let salt = mechanism.hmac(
            &self.secret,
            &[mechanism.name(), ":", user].concat().into_bytes(),
        );
        FoundCredential {
            mechanism,
            credential: ScramCredential::unusable(mechanism, iterations, &salt),
        }
    }
}

/// Returns a new key for [`Users::new`].
pub(crate) fn new_secret() -> [u8; 32] {
    random::bytes()
}

/// Reads the users of a file.
///
/// # Errors
/// The file and the line, with what is wrong there.
pub(crate) fn read_file(path: &Path) -> Result<UserCredentials, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// Parses the content of a file. Empty lines and lines that start with `#` are ignored.
///
/// # Errors
/// The number of the first wrong line, and the mistake.
fn parse(text: &str) -> Result<UserCredentials, String> {
    let mut users = UserCredentials::new();
    // The byte order mark that some Windows editors write would belong to the first name.
    let text = text.trim_start_matches('\u{feff}');
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: String| format!("line {number}: {what}");
        let (user, mechanism, credential) = parse_line(line).map_err(wrong)?;
        let own = users.entry(user.clone()).or_default();
        if own.insert(mechanism, credential).is_some() {
            let name = mechanism.name();
            return Err(wrong(format!("the user {user:?} has {name} twice")));
        }
        if users.len() > USERS_MAX {
            return Err(wrong(format!("more than {USERS_MAX} users")));
        }
    }
    Ok(users)
}

fn parse_line(line: &str) -> Result<(String, ScramMechanism, ScramCredential), String> {
    let parts = line.split_once(':');
    let parts = parts.and_then(|(user, rest)| Some((user, rest.split_once('$')?)));
    let (user, (name, credential)) = parts.ok_or(
        "expected a user, a colon and a hash, as `underpass broker hash` prints them".to_owned(),
    )?;
    check_name(user)?;
    let mut known = ScramMechanism::ALL.into_iter();
    let mechanism = known.find(|mechanism| mechanism.name() == name);
    let mechanism = mechanism.ok_or_else(|| format!("{name:?} is no mechanism"))?;
    let credential = ScramCredential::try_from(credential.to_owned())?;
    match credential.is_of(mechanism) {
        true => Ok((user.to_owned(), mechanism, credential)),
        false => Err(format!("the keys are not those of {name}")),
    }
}

fn check_name(user: &str) -> Result<(), String> {
    match user.is_empty() || user.len() > NAME_BYTES_MAX || user.contains([':', '\n', '\0']) {
        true => Err(format!(
            "{user:?} is no name: expected 1 to {NAME_BYTES_MAX} bytes without a colon"
        )),
        false => Ok(()),
    }
}

/// Returns the lines of a user for a file, one for each mechanism. Takes some milliseconds.
///
/// # Errors
/// The name or the password cannot be used.
pub fn user_lines(user: &str, password: &[u8]) -> Result<String, String> {
    check_name(user)?;
    if user.starts_with('#') || user.trim() != user {
        return Err("the name starts with # or a space, or ends with one".to_owned());
    }
    if password.is_empty() {
        return Err("the password is empty".to_owned());
    }
    let lines = ScramMechanism::ALL.map(|mechanism| {
        let credential = String::from(ScramCredential::of_password(mechanism, password));
        format!("{user}:{}${credential}", mechanism.name())
    });
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [ScramMechanism; 2] = ScramMechanism::ALL;

    #[test]
    fn the_lines_of_a_user_are_read_and_those_of_the_file_come_first() {
        let lines = user_lines("anna", b"one").unwrap();
        let file = parse(&format!("# users\n\n{lines}\n")).unwrap();
        let added = parse(
            &[
                lines.replace("anna", "ben"),
                user_lines("anna", b"two").unwrap(),
            ]
            .join("\n"),
        );
        let users = Users::new(file, added.unwrap(), new_secret());
        for mechanism in BOTH {
            for (user, password) in [("anna", b"one"), ("ben", b"one")] {
                let found = users.credential(user, &[mechanism]);
                assert_eq!(found.mechanism, mechanism);
                assert!(found.credential.verify_password(mechanism, password));
            }
        }
        users.set_file(UserCredentials::new());
        let found = users.credential("anna", &BOTH);
        assert!(found.credential.verify_password(found.mechanism, b"two"));
    }

    #[test]
    fn users_that_do_not_exist_look_like_others() {
        let secret = new_secret();
        let file = || parse(&user_lines("anna", b"one").unwrap()).unwrap();
        let users = Users::new(file(), UserCredentials::new(), secret);
        let known = users.credential("anna", &BOTH);
        let unknown = users.credential("ben", &BOTH);
        assert_eq!(unknown.mechanism, known.mechanism);
        let (known, unknown) = (known.credential, unknown.credential);
        assert_eq!(unknown.iterations, known.iterations);
        assert_eq!(unknown.salt.len(), known.salt.len());
        let salt = |users: &Users, user| users.credential(user, &BOTH).credential.salt;
        assert_ne!(salt(&users, "ben"), salt(&users, "carl"));
        let restarted = Users::new(file(), UserCredentials::new(), secret);
        assert_eq!(salt(&restarted, "ben"), salt(&users, "ben"));
        let other = Users::new(file(), UserCredentials::new(), new_secret());
        assert_ne!(salt(&other, "ben"), salt(&users, "ben"));
    }

    #[test]
    fn mistakes_in_a_file_are_named_with_their_line() {
        let good = user_lines("anna", b"one").unwrap();
        let first = good.lines().next().unwrap();
        for (line, why) in [
            ("anna", "expected a user"),
            ("anna:secret", "expected a user"),
            ("anna:SCRAM-SHA-1$4096:eA==$eA==:eA==", "no mechanism"),
            ("anna:SCRAM-SHA-256$4096:eA==$eA==:eA==", "the keys"),
            ("anna:SCRAM-SHA-256$1:eA==$eA==:eA==", "iterations"),
            (":SCRAM-SHA-256$4096:eA==$eA==:eA==", "no name"),
            (first, "twice"),
        ] {
            let error = parse(&format!("{good}\n{line}")).unwrap_err();
            assert!(
                error.starts_with("line 3: ") && error.contains(why),
                "{error}"
            );
        }
        for (user, password) in [("", "x"), ("a:b", "x"), ("#a", "x"), (" a", "x"), ("a", "")] {
            user_lines(user, password.as_bytes()).unwrap_err();
        }
    }
}
