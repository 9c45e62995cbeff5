//! Password files: a user and a hash per line, as `htpasswd -B` and `underpass serve hash` write
//! them.
//!
//! ```text
//!  anna:$argon2id$v=19$m=19456,t=2,p=1$…$…
//!  ben:$2y$12$…
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use bcrypt::HashParts;

use crate::access::random::KeyedHasher;
use crate::limits::{
    ACCESS_ENTRIES_MAX, ARGON2_MEMORY_KIB_MAX, ARGON2_PASSES_MAX, BCRYPT_COST_MAX,
};

/// The users of a file and the hashes of their passwords.
#[derive(Debug)]
pub(crate) struct PasswordFile {
    users: Vec<(Arc<str>, StoredHash)>,
    /// The index of each user.
    numbers: HashMap<Arc<str>, usize>,
    hasher: KeyedHasher,
}

/// A password hash that is slow to compute.
#[derive(Clone, Debug)]
enum StoredHash {
    Argon2id(Box<PasswordHash>),
    Bcrypt(Box<str>),
}

impl PasswordFile {
    /// Parses the content of a file. Empty lines and lines that start with `#` are ignored.
    ///
    /// # Errors
    /// The number of the first wrong line, and the mistake.
    pub(crate) fn parse(text: &str) -> Result<PasswordFile, String> {
        let (mut users, mut numbers) = (Vec::new(), HashMap::new());
        for (number, line) in super::lines(text) {
            let wrong = |what: &str| format!("line {number}: {what}");
            let (user, hash) = line
                .split_once(':')
                .ok_or_else(|| wrong("expected a user, a colon and a hash"))?;
            check_name(user).map_err(|what| wrong(&what))?;
            let hash = StoredHash::parse(hash).map_err(|what| wrong(&what))?;
            let name = Arc::<str>::from(user);
            if numbers.insert(Arc::clone(&name), users.len()).is_some() {
                return Err(wrong(&format!(
                    "the user {} is listed twice",
                    super::shown(user)
                )));
            }
            if users.len() == ACCESS_ENTRIES_MAX {
                return Err(wrong(&format!("more than {ACCESS_ENTRIES_MAX} users")));
            }
            users.push((name, hash));
        }
        Ok(PasswordFile {
            users,
            numbers,
            hasher: KeyedHasher::new(),
        })
    }

    /// Whether verifying takes longer for some users than for others.
    pub(crate) fn has_mixed_costs(&self) -> bool {
        let mut costs = self.users.iter().map(|(_, hash)| hash.cost());
        let first = costs.next();
        costs.any(|cost| Some(cost) != first)
    }

    /// Returns the number of users.
    pub(crate) fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether the user exists.
    pub(crate) fn has(&self, user: &str) -> bool {
        self.numbers.contains_key(user)
    }

    /// Returns the key under which a verified login is remembered. Another file, or the same one
    /// read again, has other keys, so that logins verified by an earlier one are forgotten.
    pub(crate) fn login_key(&self, authorization: &[u8]) -> LoginKey {
        LoginKey(self.hasher.hash(authorization))
    }

    /// Returns the user by its name in the file if the password is right. Takes some hundredths of
    /// a second of processor time, also for users that do not exist.
    pub(crate) fn verify(&self, user: &str, password: &[u8]) -> Option<Arc<str>> {
        let known = self.numbers.get(user).copied();
        // For an unknown user, another user's hash is computed and the result ignored.
        let (name, hash) = self
            .users
            .get(known.unwrap_or_else(|| self.stand_in(user)))?;
        let matches = hash.matches(password);
        (matches && known.is_some()).then(|| Arc::clone(name))
    }

    /// Returns the same user for the same name, so that an unknown user takes as long each time as
    /// one of the known ones.
    fn stand_in(&self, user: &str) -> usize {
        let [a, b, c, d, ..] = self.hasher.hash(user.as_bytes());
        let number = u32::from_ne_bytes([a, b, c, d]) as usize;
        number.checked_rem(self.users.len()).unwrap_or(0)
    }
}

/// A login hashed with a key that only this process knows: reveals neither user nor password.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct LoginKey([u8; 32]);

/// Checks the name of a user or a token, which appears in logs and configurations.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    match name {
        "" => Err("the name is empty".to_owned()),
        name if name.trim() != name || name.starts_with('#') => Err(format!(
            "the name {} begins with # or begins or ends with a space",
            super::shown(name)
        )),
        name if name.chars().any(char::is_control) => Err(format!(
            "the name {} contains a control character",
            super::shown(name)
        )),
        _ => Ok(()),
    }
}

impl StoredHash {
    fn parse(text: &str) -> Result<StoredHash, String> {
        const HINT: &str = "expected $argon2id$ or $2y$ (htpasswd -B); \
                            `underpass serve hash USER` prints a line";
        match text {
            text if text.starts_with("$argon2id$") => argon2id(text),
            text if ["$2y$", "$2b$", "$2a$"]
                .iter()
                .any(|start| text.starts_with(start)) =>
            {
                bcrypt_hash(text)
            }
            text if text.starts_with("{SHA}") || text.starts_with("{SSHA}") => {
                Err(format!("a SHA-1 hash can be broken within hours: {HINT}"))
            }
            text if text.starts_with("$apr1$") || text.starts_with("$1$") => {
                Err(format!("an MD5 hash can be broken within hours: {HINT}"))
            }
            text if text.starts_with('$') => Err(format!("this kind of hash is not known: {HINT}")),
            _ => Err(format!(
                "this is a hash of crypt or a password in plain text, and neither is safe: {HINT}"
            )),
        }
    }

    /// Returns the cost of verifying, in a form that compares equal for equal costs.
    fn cost(&self) -> (&'static str, String) {
        match self {
            StoredHash::Argon2id(hash) => ("argon2id", hash.params.to_string()),
            StoredHash::Bcrypt(hash) => {
                let cost = hash.split('$').nth(2).unwrap_or_default();
                ("bcrypt", cost.to_owned())
            }
        }
    }

    fn matches(&self, password: &[u8]) -> bool {
        match self {
            StoredHash::Argon2id(hash) => {
                let computed = argon2id_output(hash, password);
                computed.is_some() && computed == hash.hash
            }
            StoredHash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
        }
    }
}

/// Parses an argon2id hash, with a bounded cost: others could exhaust memory or processor.
fn argon2id(text: &str) -> Result<StoredHash, String> {
    let malformed = || "the argon2id hash is malformed".to_owned();
    let parsed = PasswordHash::new(text).map_err(|_| malformed())?;
    let costs = Params::try_from(&parsed).map_err(|_| malformed())?;
    let hash = parsed.hash.as_ref().ok_or_else(malformed)?;
    if parsed.salt.is_none() || hash.as_bytes().len() < ARGON2_BYTES_MIN {
        return Err(malformed());
    }
    if costs.m_cost() > ARGON2_MEMORY_KIB_MAX || costs.t_cost() > ARGON2_PASSES_MAX {
        return Err(format!(
            "verifying the argon2id hash takes too much: at most m={ARGON2_MEMORY_KIB_MAX} and \
             t={ARGON2_PASSES_MAX} are allowed"
        ));
    }
    Ok(StoredHash::Argon2id(Box::new(parsed)))
}

/// Computes the output for a password with the algorithm, costs and salt of a hash. Outputs are
/// compared in constant time.
fn argon2id_output(hash: &PasswordHash, password: &[u8]) -> Option<Output> {
    let params = Params::try_from(hash).ok()?;
    let version = hash.version.map(Version::try_from);
    let version = version.transpose().ok()?.unwrap_or_default();
    let blocks = params.block_count();
    let mut memory: Vec<Block> = Vec::new();
    memory
        .try_reserve_exact(blocks.max(MAPPED_BYTES_MIN / size_of::<Block>()))
        .ok()?;
    memory.resize(blocks, Block::new());
    let argon2 = Argon2::new(Algorithm::Argon2id, version, params);
    let mut output = [0; Output::MAX_LENGTH];
    let output = output.get_mut(..hash.hash.as_ref()?.len())?;
    let computed =
        argon2.hash_password_into_with_memory(password, hash.salt.as_ref()?, output, &mut memory);
    computed.ok().and_then(|()| Output::new(output).ok())
}

/// The minimum amount of memory to reserve. Unused pages take no memory, and all of it returns to
/// the system: glibc maps larger blocks individually, and keeps smaller ones in its heaps once the
/// first has been freed, with everything allocated in between (mallopt(3), `M_MMAP_THRESHOLD`).
const MAPPED_BYTES_MIN: usize = (32 << 20) + 1024;

/// The shortest accepted hash; 32 bytes are usual.
const ARGON2_BYTES_MIN: usize = 20;

fn bcrypt_hash(text: &str) -> Result<StoredHash, String> {
    let parts: HashParts = text
        .parse()
        .map_err(|_| "the bcrypt hash is malformed".to_owned())?;
    match parts.get_cost() {
        4..=BCRYPT_COST_MAX => Ok(StoredHash::Bcrypt(text.into())),
        cost => Err(format!(
            "the bcrypt hash has a cost of {cost}; expected 4 to {BCRYPT_COST_MAX}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `correct horse`, at the lowest costs.
    const BCRYPT: &str = "$2y$04$abcdefghijklmnopqrstuuJ0SCBxa1qgyYLZ1cUgD0BcqZcAHPPzO";

    fn argon2id_of(password: &str) -> String {
        use argon2::password_hash::CustomizedPasswordHasher;
        let params = Params::new(64, 1, 1, None).unwrap();
        let hasher = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        let hash: PasswordHash = hasher
            .hash_password_customized(
                password.as_bytes(),
                b"0123456789abcdef",
                None,
                None,
                hasher.params().clone(),
            )
            .unwrap();
        hash.to_string()
    }

    fn bcrypt_of(password: &str) -> String {
        bcrypt::hash_with_salt(password, 4, *b"0123456789abcdef")
            .unwrap()
            .format_for_version(bcrypt::Version::TwoY)
    }

    #[test]
    fn right_passwords_are_right_and_no_others_are() {
        let text = format!(
            "# people\n\nanna:{}\r\nben:{}\n",
            argon2id_of("correct horse"),
            bcrypt_of("battery staple")
        );
        let file = PasswordFile::parse(&text).unwrap();
        for (user, password, expected) in [
            ("anna", "correct horse", true),
            ("ben", "battery staple", true),
            ("anna", "battery staple", false),
            ("ben", "", false),
            ("carl", "correct horse", false),
            ("", "", false),
        ] {
            let verified = file.verify(user, password.as_bytes());
            assert_eq!(verified.is_some(), expected, "{user} {password}");
            assert!(verified.is_none_or(|name| *name == *user));
        }
        assert!(file.has("anna") && !file.has("carl"));
    }

    #[test]
    fn logins_of_another_reading_have_other_names() {
        let text = format!("anna:{}", bcrypt_of("a"));
        let files = [&text, &text].map(|text| PasswordFile::parse(text).unwrap());
        let keys = files.each_ref().map(|file| file.login_key(b"Basic x"));
        assert_ne!(keys[0], keys[1]);
        assert_eq!(keys[0], files[0].login_key(b"Basic x"));
        assert_ne!(keys[0], files[0].login_key(b"Basic y"));
    }

    #[test]
    fn what_is_unsafe_or_wrong_is_refused_with_its_line() {
        let hash = bcrypt_of("a");
        for (text, expected) in [
            ("anna", "line 1: expected a user"),
            ("\n:x", "line 2: the name is empty"),
            ("a\u{7}b:x", "control character"),
            ("anna:secret", "plain text"),
            ("anna:rl8YPoQvRqgHg", "crypt"),
            ("anna:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "SHA-1"),
            ("anna:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/", "MD5"),
            ("anna:$6$abc$def", "not known"),
            (
                "anna:$2y$31$abcdefghijklmnopqrstuuJ0SCBxa1qgyYLZ1cUgD0BcqZcAHPPzO",
                "cost of 31",
            ),
            ("anna:$2y$04$short", "malformed"),
            ("anna:$argon2id$v=19$m=64", "malformed"),
            (
                &format!("anna:{}", argon2id_of("a").replace("m=64", "m=4194304")),
                "too much",
            ),
            (
                &format!("a:{hash}\na:{hash}"),
                "line 2: the user \"a\" is listed twice",
            ),
        ] {
            let told = PasswordFile::parse(text).expect_err(text);
            assert!(told.contains(expected), "{text}: {told}");
            assert!(!told.contains("secret"), "{told}");
        }
        assert!(StoredHash::parse(BCRYPT).is_ok());
    }

    #[test]
    fn a_file_without_users_lets_nobody_in() {
        let file = PasswordFile::parse("# nobody yet\n").unwrap();
        assert_eq!(file.verify("anna", b""), None);
    }
}
