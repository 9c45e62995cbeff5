//! SASL PLAIN (RFC 4616): a name and a password in one message.

use std::fmt;

use crate::security::principal::NAME_BYTES_MAX;

/// The longest password, in bytes: a longer one is no password, and takes time to hash.
const PASSWORD_BYTES_MAX: usize = 4096;

/// A name and a password that a client has sent.
pub(crate) struct PlainLogin<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a [u8],
}

impl fmt::Debug for PlainLogin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainLogin({:?})", self.user)
    }
}

/// Reads a message: an optional identity to act as, a name and a password, separated by NUL.
///
/// # Errors
/// The fault. As in Kafka, the identity to act as must be empty or the name.
pub(crate) fn read(message: &[u8]) -> Result<PlainLogin<'_>, &'static str> {
    let mut parts = message.split(|byte| *byte == 0);
    let (Some(identity), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("expected an identity, a name and a password, separated by NUL");
    };
    let user = str::from_utf8(user).map_err(|_| "the name is not UTF-8")?;
    if user.is_empty() || user.len() > NAME_BYTES_MAX {
        return Err("the name is empty or too long");
    }
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err("the password is empty or too long");
    }
    if !identity.is_empty() && identity != user.as_bytes() {
        return Err("the client asks to act as another user");
    }
    Ok(PlainLogin { user, password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_name_and_a_password() {
        for message in [&b"\0anna\0secret"[..], b"anna\0anna\0secret"] {
            let login = read(message).unwrap();
            assert_eq!((login.user, login.password), ("anna", &b"secret"[..]));
            assert!(!format!("{login:?}").contains("secret"));
        }
        for message in [
            &b""[..],
            b"anna",
            b"\0anna",
            b"\0\0secret",
            b"\0anna\0",
            b"\0anna\0secret\0",
            b"ben\0anna\0secret",
            b"\0\xff\0secret",
        ] {
            assert!(read(message).is_err(), "{message:?}");
        }
        let long = vec![b'x'; PASSWORD_BYTES_MAX + 1];
        assert!(read(&[b"\0anna\0", &long[..]].concat()).is_err());
        assert!(read(&[b"\0", &long[..], b"\0secret"].concat()).is_err());
    }
}
