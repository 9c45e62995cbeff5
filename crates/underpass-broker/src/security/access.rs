//! The rights of a client: what its requests may do.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::security::acl::{AclOperation, AclTable, CLUSTER, Decision, Requester, ResourceType};
use crate::security::principal::Principal;

/// The rules of a broker, and its settings about them.
#[derive(Debug, Default)]
pub(crate) struct Authorizer(Mutex<Arc<AclRules>>);

/// The rules at a point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclRules {
    pub(crate) table: AclTable,
    /// The principals that may do everything.
    pub(crate) super_users: HashSet<String>,
    /// Whether everyone may do everything with resources that no rule is about.
    pub(crate) allows_without_rules: bool,
}

/// The rights of the client of a connection.
#[derive(Clone, Debug)]
pub(crate) struct ClientAccess {
    /// None if there are no rules: everyone may do everything.
    rules: Option<Arc<AclRules>>,
    principal: Principal,
    host: Arc<str>,
}

impl Authorizer {
    pub(crate) fn new(rules: AclRules) -> Authorizer {
        Authorizer(Mutex::new(Arc::new(rules)))
    }

    pub(crate) fn rules(&self) -> Arc<AclRules> {
        Arc::clone(&lock(&self.0))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut AclRules)) {
        change(Arc::make_mut(&mut *lock(&self.0)));
    }
}

impl ClientAccess {
    /// Returns the rights of a principal at an address, under the present rules.
    pub(crate) fn new(
        authorizer: Option<&Authorizer>,
        principal: Principal,
        host: Arc<str>,
    ) -> ClientAccess {
        ClientAccess {
            rules: authorizer.map(Authorizer::rules),
            principal,
            host,
        }
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Whether the client may do this with a resource.
    pub(crate) fn allows(
        &self,
        operation: AclOperation,
        resource: ResourceType,
        name: &str,
    ) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        if rules.super_users.contains(self.principal.as_str()) {
            return true;
        }
        match rules
            .table
            .decide(self.requester(), operation, (resource, name))
        {
            Decision::Allowed => true,
            Decision::Denied => false,
            Decision::NoRules => rules.allows_without_rules,
        }
    }

    pub(crate) fn allows_topic(&self, operation: AclOperation, name: &str) -> bool {
        self.allows(operation, ResourceType::Topic, name)
    }

    pub(crate) fn allows_group(&self, operation: AclOperation, name: &str) -> bool {
        self.allows(operation, ResourceType::Group, name)
    }

    pub(crate) fn allows_cluster(&self, operation: AclOperation) -> bool {
        self.allows(operation, ResourceType::Cluster, CLUSTER)
    }

    /// Whether the client may do this with any topic.
    pub(crate) fn allows_any_topic(&self, operation: AclOperation) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        rules.super_users.contains(self.principal.as_str())
            || rules.allows_without_rules
            || rules
                .table
                .allows_any(self.requester(), operation, ResourceType::Topic)
    }

    /// Removes the items of a request that the client may not use, and returns them.
    pub(crate) fn take_denied<T>(
        &self,
        items: &mut Vec<T>,
        is_allowed: impl Fn(&ClientAccess, &T) -> bool,
    ) -> Vec<T> {
        if self.rules.is_none() {
            return Vec::new();
        }
        items
            .extract_if(.., |item| !is_allowed(self, item))
            .collect()
    }

    fn requester(&self) -> Requester<'_> {
        Requester {
            principal: self.principal.as_str(),
            host: &self.host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::acl::{Acl, PatternType, Permission};

    fn rules(acls: &[Acl]) -> AclRules {
        AclRules {
            table: AclTable::of(acls),
            super_users: ["User:root".to_owned()].into(),
            allows_without_rules: false,
        }
    }

    fn of(authorizer: Option<&Authorizer>, user: &str) -> ClientAccess {
        ClientAccess::new(authorizer, Principal::user(user), "10.0.0.1".into())
    }

    #[test]
    fn without_rules_everything_is_allowed_or_nothing() {
        let read = |authorizer: Option<&Authorizer>, user| {
            let access = of(authorizer, user);
            let mut items = vec!["t"];
            let denied = access.take_denied(&mut items, |access, name| {
                access.allows_topic(AclOperation::Read, name)
            });
            assert_eq!(
                denied.is_empty(),
                access.allows_topic(AclOperation::Read, "t")
            );
            assert_eq!(
                denied.is_empty(),
                access.allows_any_topic(AclOperation::Read)
            );
            assert_eq!(denied.len() + items.len(), 1);
            denied.is_empty()
        };
        assert!(read(None, "anna"));
        let authorizer = Authorizer::new(rules(&[]));
        assert!(!read(Some(&authorizer), "anna"));
        assert!(read(Some(&authorizer), "root"));
        let deny = Acl {
            resource: ResourceType::Topic,
            pattern: PatternType::Literal,
            name: "*".to_owned(),
            principal: "User:*".to_owned(),
            host: "*".to_owned(),
            operation: AclOperation::All,
            permission: Permission::Deny,
        };
        authorizer.change(|rules| rules.allows_without_rules = true);
        assert!(read(Some(&authorizer), "anna"));
        authorizer.change(|rules| rules.table = AclTable::of(&[deny]));
        assert!(!of(Some(&authorizer), "anna").allows_topic(AclOperation::Read, "t"));
        assert!(
            read(Some(&authorizer), "root"),
            "denials are not for super users"
        );
    }
}
