//! The names of the kernel's errors.

use std::borrow::Cow;
use std::fmt;

use rustix::io::Errno;

/// An errno with its symbolic name, `EXDEV (Invalid cross-device link)`, as people search for it.
#[derive(Clone, Copy, Debug)]
pub struct Named(pub Errno);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", name(self.0), meaning(self.0))
    }
}

/// Returns the C library's message for an errno (`Invalid cross-device link`).
pub fn meaning(errno: Errno) -> String {
    let mut meaning = std::io::Error::from(errno).to_string();
    meaning.truncate(meaning.rfind(" (os error").unwrap_or(meaning.len()));
    meaning
}

macro_rules! names {
    ($($errno:ident),* $(,)?) => {
        /// The errors that moving bytes is known to meet, with their names.
        const NAMES: &[(Errno, &str)] = &[$((Errno::$errno, concat!("E", stringify!($errno)))),*];
    };
}

names! {
    ACCESS, ADDRINUSE, ADDRNOTAVAIL, AFNOSUPPORT, AGAIN, BADF, BADMSG, BUSY, CONNABORTED,
    CONNREFUSED, CONNRESET, DQUOT, EXIST, FAULT, FBIG, HOSTUNREACH, INTR, INVAL, IO, ISDIR,
    LOOP, MFILE, MLINK, MSGSIZE, NAMETOOLONG, NETDOWN, NETRESET, NETUNREACH, NFILE, NOBUFS,
    NODATA, NODEV, NOENT, NOMEM, NOPROTOOPT, NOSPC, NOSYS, NOTCONN, NOTDIR, NOTEMPTY, NOTSOCK,
    NOTTY, NXIO, OPNOTSUPP, OVERFLOW, PERM, PIPE, ROFS, SPIPE, STALE, TIMEDOUT, TXTBSY, XDEV,
}

/// Returns the symbolic name (`EXDEV`), or the number (`errno 524`) of an errno that moving bytes
/// is not known to meet.
pub fn name(errno: Errno) -> Cow<'static, str> {
    match NAMES.iter().find(|(known, _)| *known == errno) {
        // rustix spells it out.
        Some((Errno::ACCESS, _)) => "EACCES".into(),
        Some((_, name)) => (*name).into(),
        None => format!("errno {}", errno.raw_os_error()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels() {
        assert_eq!(name(Errno::XDEV), "EXDEV");
        assert_eq!(name(Errno::ACCESS), "EACCES");
        assert_eq!(name(Errno::IO), "EIO");
        assert_eq!(name(Errno::TXTBSY), "ETXTBSY");
        assert_eq!(name(Errno::from_raw_os_error(524)), "errno 524");
    }

    #[test]
    fn a_named_errno_says_what_it_means() {
        assert_eq!(
            Named(Errno::NOSPC).to_string(),
            "ENOSPC (No space left on device)"
        );
    }
}
