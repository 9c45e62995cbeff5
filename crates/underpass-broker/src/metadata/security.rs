//! The users and the rules that clients have added, in the metadata file.

use std::collections::BTreeSet;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::lock::lock;
use crate::metadata::topics::Topics;
use crate::security::acl::{Acl, AclFilter, AclTable};
use crate::security::users::{UserCredentials, new_secret};

/// The largest number of rules: the file is written as a whole.
const ACLS_MAX: usize = 10_000;

/// The reason why rules cannot be changed.
#[derive(Debug)]
pub(crate) enum AclsFull {
    /// There would be more than this number.
    TooMany(usize),
    Disk(io::Error),
}

impl Topics {
    /// Returns the key for [`Users::new`](crate::security::users::Users::new). Creates it before
    /// the first use, which blocks for some syncs.
    ///
    /// # Errors
    /// Errors of the file.
    pub(crate) fn login_secret(&self) -> io::Result<[u8; 32]> {
        let mut record = lock(&self.record);
        let written = record.written.login_secret.as_ref();
        let written = written.and_then(|text| STANDARD.decode(text).ok()?.try_into().ok());
        if let Some(secret) = written {
            return Ok(secret);
        }
        let secret = new_secret();
        self.write(&mut record, |next| {
            next.login_secret = Some(STANDARD.encode(secret));
        })?;
        Ok(secret)
    }

    /// Returns the users that clients have added.
    pub(crate) fn users(&self) -> UserCredentials {
        lock(&self.record).written.users.clone()
    }

    /// Changes the users that clients have added, and calls `publish` with them. Returns the result
    /// of `change`, which says whether there is anything to write. Blocks for some syncs.
    ///
    /// # Errors
    /// Errors of the file; nothing is published.
    pub(crate) fn change_users<T>(
        &self,
        change: impl FnOnce(&mut UserCredentials) -> T,
        publish: impl FnOnce(UserCredentials),
    ) -> io::Result<T> {
        let mut record = lock(&self.record);
        let mut users = record.written.users.clone();
        let changed = change(&mut users);
        if users != record.written.users {
            self.write(&mut record, |next| next.users.clone_from(&users))?;
            publish(users);
        }
        Ok(changed)
    }

    /// Returns the table of all rules.
    pub(crate) fn acl_table(&self) -> AclTable {
        AclTable::of(&lock(&self.record).written.acls)
    }

    /// Returns the rules that a filter matches, sorted by resource.
    pub(crate) fn acls_matching(&self, filter: &AclFilter) -> Vec<Acl> {
        let record = lock(&self.record);
        let acls = record.written.acls.iter();
        acls.filter(|acl| filter.matches(acl)).cloned().collect()
    }

    /// Changes the rules, and calls `publish` with them. Returns the result of `change`. Blocks for
    /// some syncs.
    ///
    /// # Errors
    /// [`AclsFull`]; nothing is changed or published.
    pub(crate) fn change_acls<T>(
        &self,
        change: impl FnOnce(&mut BTreeSet<Acl>) -> T,
        publish: impl FnOnce(&BTreeSet<Acl>),
    ) -> Result<T, AclsFull> {
        let mut record = lock(&self.record);
        let mut acls = record.written.acls.clone();
        let before = acls.len();
        let changed = change(&mut acls);
        if acls.len() > ACLS_MAX.max(before) {
            return Err(AclsFull::TooMany(ACLS_MAX));
        }
        if acls != record.written.acls {
            let written = self.write(&mut record, |next| next.acls.clone_from(&acls));
            written.map_err(AclsFull::Disk)?;
            publish(&acls);
        }
        Ok(changed)
    }
}
