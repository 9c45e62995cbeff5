//! Filters by which clients look for rules.

use crate::security::acl::{Acl, AclOperation, PatternType, Permission, ResourceType};

/// A filter; `None` matches everything.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AclFilter {
    resource: Option<ResourceType>,
    name: Option<String>,
    pattern: PatternFilter,
    principal: Option<String>,
    host: Option<String>,
    operation: Option<AclOperation>,
    permission: Option<Permission>,
}

/// The rules that match a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PatternFilter {
    /// Those that have this name.
    Any,
    /// Those that apply to a resource with this name.
    Match,
    /// Those of this type that have this name.
    One(PatternType),
}

/// The number for anything, in all fields of a filter.
const ANY: i8 = 1;

/// The number of the pattern type for rules that apply to a resource.
const MATCH: i8 = 2;

/// The fields of a filter in a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterFields<'a> {
    pub(crate) resource: i8,
    pub(crate) name: Option<&'a str>,
    pub(crate) pattern: i8,
    pub(crate) principal: Option<&'a str>,
    pub(crate) host: Option<&'a str>,
    pub(crate) operation: i8,
    pub(crate) permission: i8,
}

impl AclFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// The field with an unknown number.
    pub(crate) fn of(fields: FilterFields<'_>) -> Result<AclFilter, &'static str> {
        let any = |number: i8| number == ANY;
        let resource = ResourceType::numbered(fields.resource);
        let operation = AclOperation::numbered(fields.operation);
        let permission = Permission::numbered(fields.permission);
        if resource.is_none() && !any(fields.resource) {
            return Err("unknown type of a resource");
        }
        if operation.is_none() && !any(fields.operation) {
            return Err("unknown operation");
        }
        if permission.is_none() && !any(fields.permission) {
            return Err("unknown type of a permission");
        }
        let pattern = match (fields.pattern, PatternType::numbered(fields.pattern)) {
            (ANY, _) => PatternFilter::Any,
            (MATCH, _) => PatternFilter::Match,
            (_, Some(pattern)) => PatternFilter::One(pattern),
            _ => return Err("unknown type of a pattern"),
        };
        Ok(AclFilter {
            resource,
            name: fields.name.map(str::to_owned),
            pattern,
            principal: fields.principal.map(str::to_owned),
            host: fields.host.map(str::to_owned),
            operation,
            permission,
        })
    }

    pub(crate) fn matches(&self, acl: &Acl) -> bool {
        let is_same = |wanted: &Option<String>, text: &String| {
            wanted.as_ref().is_none_or(|wanted| wanted == text)
        };
        self.resource
            .is_none_or(|resource| resource == acl.resource)
            && is_same(&self.principal, &acl.principal)
            && is_same(&self.host, &acl.host)
            && self
                .operation
                .is_none_or(|operation| operation == acl.operation)
            && self
                .permission
                .is_none_or(|permission| permission == acl.permission)
            && self.matches_name(acl)
    }

    fn matches_name(&self, acl: &Acl) -> bool {
        if let PatternFilter::One(pattern) = self.pattern
            && pattern != acl.pattern
        {
            return false;
        }
        let Some(name) = self.name.as_deref() else {
            return true;
        };
        match (self.pattern, acl.pattern) {
            (PatternFilter::Match, PatternType::Literal) => acl.name == name || acl.name == "*",
            (PatternFilter::Match, PatternType::Prefixed) => name.starts_with(&acl.name),
            _ => acl.name == name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(pattern: PatternType, name: &str) -> Acl {
        Acl {
            resource: ResourceType::Topic,
            pattern,
            name: name.to_owned(),
            principal: "User:anna".to_owned(),
            host: "*".to_owned(),
            operation: AclOperation::Read,
            permission: Permission::Allow,
        }
    }

    const ALL: FilterFields<'_> = FilterFields {
        resource: ANY,
        name: None,
        pattern: ANY,
        principal: None,
        host: None,
        operation: ANY,
        permission: ANY,
    };

    #[test]
    fn names_match_by_the_type_of_the_pattern() {
        let acls = [
            acl(PatternType::Literal, "orders"),
            acl(PatternType::Literal, "*"),
            acl(PatternType::Prefixed, "ord"),
            acl(PatternType::Prefixed, "orders"),
            acl(PatternType::Literal, "other"),
        ];
        for (pattern, name, expected) in [
            (ANY, None, &[0, 1, 2, 3, 4][..]),
            (ANY, Some("orders"), &[0, 3]),
            (MATCH, Some("orders"), &[0, 1, 2, 3]),
            (MATCH, None, &[0, 1, 2, 3, 4]),
            (3, Some("orders"), &[0]),
            (3, Some("*"), &[1]),
            (3, None, &[0, 1, 4]),
            (4, Some("orders"), &[3]),
            (4, None, &[2, 3]),
        ] {
            let fields = FilterFields {
                name,
                pattern,
                ..ALL
            };
            let filter = AclFilter::of(fields).unwrap();
            let found = (0..acls.len()).filter(|number| filter.matches(&acls[*number]));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{pattern} {name:?}");
        }
    }

    #[test]
    fn every_other_field_matches_exactly_or_anything() {
        let acl = acl(PatternType::Literal, "orders");
        for (fields, expected) in [
            (ALL, true),
            (FilterFields { resource: 2, ..ALL }, true),
            (FilterFields { resource: 3, ..ALL }, false),
            (
                FilterFields {
                    principal: Some("User:anna"),
                    ..ALL
                },
                true,
            ),
            (
                FilterFields {
                    principal: Some("User:*"),
                    ..ALL
                },
                false,
            ),
            (
                FilterFields {
                    host: Some("*"),
                    ..ALL
                },
                true,
            ),
            (
                FilterFields {
                    host: Some("10.0.0.1"),
                    ..ALL
                },
                false,
            ),
            (
                FilterFields {
                    operation: 3,
                    ..ALL
                },
                true,
            ),
            (
                FilterFields {
                    operation: 2,
                    ..ALL
                },
                false,
            ),
            (
                FilterFields {
                    permission: 3,
                    ..ALL
                },
                true,
            ),
            (
                FilterFields {
                    permission: 2,
                    ..ALL
                },
                false,
            ),
        ] {
            assert_eq!(
                AclFilter::of(fields).unwrap().matches(&acl),
                expected,
                "{fields:?}"
            );
        }
        for fields in [
            FilterFields { resource: 0, ..ALL },
            FilterFields { pattern: 0, ..ALL },
            FilterFields { pattern: 5, ..ALL },
            FilterFields {
                operation: 16,
                ..ALL
            },
            FilterFields {
                permission: -1,
                ..ALL
            },
        ] {
            assert!(AclFilter::of(fields).is_err());
        }
    }
}
