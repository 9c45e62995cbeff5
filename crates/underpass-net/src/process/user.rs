//! Switches the process to a user with fewer privileges, permanently.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use nix::errno::Errno;
use nix::unistd::{
    self, Gid, Group, Uid, getgrouplist, getresgid, getresuid, setgid, setgroups, setuid,
};
use serde::Deserialize;

use crate::error::Error;

/// The user that a server runs as: `NAME` or `NAME:GROUP`, each a name or a number.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct User {
    name: String,
    group: Option<String>,
}

/// The numeric IDs of a user.
struct UserIds {
    user: Uid,
    group: Gid,
    /// All groups, including the one above.
    groups: Vec<Gid>,
}

impl User {
    /// Switches the whole process, with all threads, to this user; it cannot switch back. With a
    /// group, the process has only that group; without one, it has the groups of the user. Does
    /// nothing if it already runs as the user. May block while it reads the databases of users and
    /// groups.
    ///
    /// # Errors
    /// [`Error::User`]. The process may have switched in part and must not continue.
    pub fn assume(&self) -> Result<(), Error> {
        let failed = |why: String| Error::User {
            name: self.to_string(),
            why,
        };
        let identity = self.identity().map_err(failed)?;
        if identity.user.is_root() {
            return Err(failed("root has all privileges; name another user".into()));
        }
        if identity.is_ours() {
            return Ok(());
        }
        if !unistd::geteuid().is_root() {
            return Err(failed("only root can switch to another user".into()));
        }
        identity.assume().map_err(|why| failed(why.to_owned()))
    }

    /// Returns the numeric ID of this user.
    ///
    /// # Errors
    /// [`Error::User`]: there is no such user.
    pub fn number(&self) -> Result<u32, Error> {
        let identity = self.identity().map_err(|why| Error::User {
            name: self.to_string(),
            why,
        })?;
        Ok(identity.user.as_raw())
    }

    /// Returns whether this user may write a file, or create files in a folder, by the permission
    /// bits of `there`; access control lists are ignored. An unknown user has no permissions.
    pub fn may_write(&self, there: &Metadata) -> bool {
        self.may(if there.is_dir() { 0o3 } else { 0o2 }, there)
    }

    /// Returns whether this user may read a file, as [`User::may_write`].
    pub fn may_read(&self, there: &Metadata) -> bool {
        self.may(0o4, there)
    }

    /// Returns whether this user may open files in a folder, as [`User::may_write`].
    pub fn may_search(&self, there: &Metadata) -> bool {
        self.may(0o1, there)
    }

    fn may(&self, needed: u32, there: &Metadata) -> bool {
        let Ok(identity) = self.identity() else {
            return false;
        };
        let group = Gid::from_raw(there.gid());
        let bits = if identity.user.as_raw() == there.uid() {
            there.mode() >> 6
        } else if identity.groups.contains(&group) {
            there.mode() >> 3
        } else {
            there.mode()
        };
        bits & needed == needed
    }

    fn identity(&self) -> Result<UserIds, String> {
        // Numbers need no database, which may be missing, or need libraries that a static binary
        // cannot load.
        if let (Ok(number), Some(Ok(group))) = (
            self.name.parse(),
            self.group.as_ref().map(|group| group.parse()),
        ) {
            return Ok(UserIds::alone(Uid::from_raw(number), Gid::from_raw(group)));
        }
        let known = match self.name.parse() {
            _ if !may_ask("/etc/passwd", &self.name) => Ok(None),
            Ok(number) => unistd::User::from_uid(Uid::from_raw(number)),
            Err(_) => unistd::User::from_name(&self.name),
        };
        let known = known.map_err(|errno| unread("users", errno))?;
        let group = self.group.as_deref().map(group).transpose()?;
        match (known, group) {
            (Some(known), Some(group)) => Ok(UserIds::alone(known.uid, group)),
            (Some(known), None) => UserIds::with_groups(&known),
            (None, group) => {
                let number = self.name.parse().map_err(|_| "there is no such user")?;
                let group = group.ok_or("there is no such user, and no group is given")?;
                Ok(UserIds::alone(Uid::from_raw(number), group))
            }
        }
    }
}

fn group(name: &str) -> Result<Gid, String> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    let known = match may_ask("/etc/group", name) {
        true => Group::from_name(name),
        false => Ok(None),
    };
    match known {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(format!("there is no group {name}")),
        Err(errno) => Err(unread("groups", errno)),
    }
}

/// Returns whether to query the databases for a name or a number. For one that no file has, glibc
/// loads the modules of other databases, and in a static program `libnss_systemd` then crashes.
fn may_ask(file: &str, key: &str) -> bool {
    let loads_safely = cfg!(not(all(target_env = "gnu", target_feature = "crt-static")));
    loads_safely || fs::read_to_string(file).map_or(true, |entries| lists(&entries, key))
}

/// Returns whether a file in the format of passwd(5) or group(5) has a name or a number.
fn lists(entries: &str, key: &str) -> bool {
    entries.lines().any(|entry| {
        let mut fields = entry.split(':');
        fields.next() == Some(key) || fields.nth(1) == Some(key)
    })
}

/// Explains why a name was not found. Containers often have no databases; numbers work there.
fn unread(whose: &str, errno: Errno) -> String {
    match errno {
        Errno::ENOENT => format!("there is no database of {whose} here; use numbers, UID:GID"),
        errno => format!("the database of {whose}: {errno}"),
    }
}

impl UserIds {
    fn alone(user: Uid, group: Gid) -> UserIds {
        UserIds {
            user,
            group,
            groups: vec![group],
        }
    }

    fn with_groups(known: &unistd::User) -> Result<UserIds, String> {
        let name = CString::new(known.name.as_str()).map_err(|_| "its name has a NUL")?;
        let groups = getgrouplist(&name, known.gid).map_err(|errno| unread("groups", errno))?;
        Ok(UserIds {
            user: known.uid,
            group: known.gid,
            groups,
        })
    }

    /// Returns whether the real, effective and saved IDs are these.
    fn is_ours(&self) -> bool {
        let users = getresuid().is_ok_and(|ids| {
            [ids.real, ids.effective, ids.saved] == [self.user, self.user, self.user]
        });
        let groups = getresgid().is_ok_and(|ids| {
            [ids.real, ids.effective, ids.saved] == [self.group, self.group, self.group]
        });
        users && groups
    }

    /// Groups first: after the switch the process may not change them.
    fn assume(&self) -> Result<(), &'static str> {
        let refused = |_: Errno| "the kernel does not allow it; are capabilities missing?";
        setgroups(&self.groups).map_err(refused)?;
        setgid(self.group).map_err(refused)?;
        setuid(self.user).map_err(refused)?;
        if !self.is_ours() {
            return Err("the switch had no effect");
        }
        match setuid(Uid::from_raw(0)) {
            Ok(()) => Err("the process could switch back to root"),
            Err(_) => Ok(()),
        }
    }
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<User, String> {
        let (name, group) = match text.split_once(':') {
            Some((name, group)) => (name, Some(group)),
            None => (text, None),
        };
        if name.is_empty() || group.is_some_and(str::is_empty) {
            return Err(format!(
                "{text:?} is not a user; expected NAME or NAME:GROUP"
            ));
        }
        Ok(User {
            name: name.to_owned(),
            group: group.map(str::to_owned),
        })
    }
}

impl TryFrom<String> for User {
    type Error = String;

    fn try_from(text: String) -> Result<User, String> {
        text.parse()
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.group {
            Some(group) => write!(f, ":{group}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(user: &str) -> String {
        let user: User = user.parse().unwrap();
        user.assume().unwrap_err().to_string()
    }

    #[test]
    fn entries_have_a_name_and_a_number() {
        let entries = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/:/bin/sh\nshort\n";
        for key in ["root", "0", "web", "33", "short"] {
            assert!(lists(entries, key), "{key}");
        }
        for key in ["x", "34", "we", "nobody", "3"] {
            assert!(!lists(entries, key), "{key}");
        }
    }

    #[test]
    fn users_are_written_with_or_without_a_group() {
        for right in ["www-data", "www-data:adm", "33", "33:33"] {
            assert_eq!(right.parse::<User>().unwrap().to_string(), right);
        }
        for wrong in ["", ":adm", "www-data:"] {
            assert!(wrong.parse::<User>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_does_not_exist_or_is_root_is_refused_by_name() {
        let reported = refused("nobody-of-that-name");
        assert!(reported.contains("nobody-of-that-name") && reported.contains("no such user"));
        assert!(refused("0").contains("root has all privileges"));
        assert!(refused("0:no-group-of-that-name").contains("no group"));
    }
}
