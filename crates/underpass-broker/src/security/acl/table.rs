//! The decision about an operation: one pure function over a table of rules.

use std::collections::{BTreeMap, BTreeSet};

use crate::security::acl::{Acl, AclOperation, PatternType, Permission, ResourceType};

/// The rules, by resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclTable {
    literal: BTreeMap<ResourceType, RulesByName>,
    prefixed: BTreeMap<ResourceType, RulesByName>,
    /// The length of the longest prefix.
    prefix_bytes_max: usize,
}

type RulesByName = BTreeMap<String, BTreeSet<AclRule>>;

/// A rule without its resource.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct AclRule {
    principal: String,
    host: String,
    operation: AclOperation,
    permission: Permission,
}

/// The client that asks for an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester<'a> {
    pub(crate) principal: &'a str,
    pub(crate) host: &'a str,
}

/// A decision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Decision {
    Allowed,
    Denied,
    /// No rule is about the resource: the configuration decides.
    NoRules,
}

/// The name in a rule that stands for all resources.
const ALL_RESOURCES: &str = "*";

/// The principal and the host that stand for all.
const ALL_USERS: &str = "User:*";
const ALL_HOSTS: &str = "*";

impl AclTable {
    pub(crate) fn of<'a>(acls: impl IntoIterator<Item = &'a Acl>) -> AclTable {
        let mut table = AclTable::default();
        for acl in acls {
            let by_resource = match acl.pattern {
                PatternType::Literal => &mut table.literal,
                PatternType::Prefixed => {
                    table.prefix_bytes_max = table.prefix_bytes_max.max(acl.name.len());
                    &mut table.prefixed
                }
            };
            let by_name = by_resource.entry(acl.resource).or_default();
            let rules = by_name.entry(acl.name.clone()).or_default();
            rules.insert(AclRule {
                principal: acl.principal.clone(),
                host: acl.host.clone(),
                operation: acl.operation,
                permission: acl.permission,
            });
        }
        table
    }

    /// Decides about an operation on a resource, as Kafka's StandardAuthorizer does: a rule that
    /// denies comes before all others, and without one that allows, the operation is denied.
    pub(crate) fn decide(
        &self,
        who: Requester<'_>,
        operation: AclOperation,
        (resource, name): (ResourceType, &str),
    ) -> Decision {
        let mut decision = Decision::NoRules;
        for rule in self.rules_of(resource, name).flatten() {
            if decision == Decision::NoRules {
                decision = Decision::Denied;
            }
            if rule.is_about(who) && rule.covers(operation) {
                match rule.permission {
                    Permission::Deny => return Decision::Denied,
                    Permission::Allow => decision = Decision::Allowed,
                }
            }
        }
        decision
    }

    /// Returns the rules about a resource, by their names.
    fn rules_of(
        &self,
        resource: ResourceType,
        name: &str,
    ) -> impl Iterator<Item = &BTreeSet<AclRule>> {
        let literal = self.literal.get(&resource);
        let literal = literal.into_iter().flat_map(move |by_name| {
            let others = by_name.get(ALL_RESOURCES).filter(|_| name != ALL_RESOURCES);
            by_name.get(name).into_iter().chain(others)
        });
        let prefixed = self.prefixed.get(&resource);
        let longest = self.prefix_bytes_max.min(name.len());
        let prefixed = prefixed.into_iter().flat_map(move |by_name| {
            let prefixes = (0..=longest).filter_map(|end| name.get(..end));
            prefixes.filter_map(|prefix| by_name.get(prefix))
        });
        literal.chain(prefixed)
    }

    /// Whether an operation is allowed on any resource of a type: one that a rule allows, and that
    /// no other rule denies as a whole. Like Kafka's `authorizeByResourceType`.
    pub(crate) fn allows_any(
        &self,
        who: Requester<'_>,
        operation: AclOperation,
        resource: ResourceType,
    ) -> bool {
        let names = |by_resource: &BTreeMap<ResourceType, RulesByName>, permission| {
            let by_name = by_resource.get(&resource).cloned().unwrap_or_default();
            let is_meant = |rule: &AclRule| {
                let is_same = rule.operation == operation || rule.operation == AclOperation::All;
                rule.permission == permission && is_same && rule.is_about(who)
            };
            let named = by_name.into_iter();
            let named = named.filter(|(_, rules)| rules.iter().any(is_meant));
            named.map(|(name, _)| name).collect::<BTreeSet<String>>()
        };
        let denied = names(&self.literal, Permission::Deny);
        if denied.contains(ALL_RESOURCES) {
            return false;
        }
        let denied_prefixes = names(&self.prefixed, Permission::Deny);
        let is_dominated = |name: &str| denied_prefixes.iter().any(|one| name.starts_with(one));
        let allowed = names(&self.literal, Permission::Allow);
        let is_free =
            |name: &String| name == ALL_RESOURCES || !denied.contains(name) && !is_dominated(name);
        let mut prefixes = names(&self.prefixed, Permission::Allow).into_iter();
        allowed.iter().any(is_free) || prefixes.any(|prefix| !is_dominated(&prefix))
    }
}

impl AclRule {
    fn is_about(&self, who: Requester<'_>) -> bool {
        (self.principal == who.principal || self.principal == ALL_USERS)
            && (self.host == who.host || self.host == ALL_HOSTS)
    }

    /// Whether the rule is about an operation. A rule that allows also allows what the operation
    /// implies.
    fn covers(&self, operation: AclOperation) -> bool {
        use AclOperation::*;
        let is_named = self.operation == operation || self.operation == All;
        let is_implied = match operation {
            Describe => matches!(self.operation, Read | Write | Delete | Alter),
            DescribeConfigs => self.operation == AlterConfigs,
            _ => false,
        };
        is_named || self.permission == Permission::Allow && is_implied
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn acl(
        (pattern, name): (PatternType, &str),
        (principal, host): (&str, &str),
        operation: AclOperation,
        permission: Permission,
    ) -> Acl {
        Acl {
            resource: ResourceType::Topic,
            pattern,
            name: name.to_owned(),
            principal: principal.to_owned(),
            host: host.to_owned(),
            operation,
            permission,
        }
    }

    const ANNA: Requester<'_> = Requester {
        principal: "User:anna",
        host: "10.0.0.1",
    };

    fn decided(acls: &[Acl], operation: AclOperation, name: &str) -> Decision {
        AclTable::of(acls).decide(ANNA, operation, (ResourceType::Topic, name))
    }

    use AclOperation::*;
    use Decision::*;
    use PatternType::*;
    use Permission::*;

    #[test]
    fn rules_are_about_resources_users_and_hosts() {
        let anna = ("User:anna", "*");
        for (pattern, who, name, expected) in [
            ((Literal, "orders"), anna, "orders", Allowed),
            ((Literal, "orders"), anna, "orders2", NoRules),
            ((Literal, "*"), anna, "orders", Allowed),
            ((Literal, "ord*"), anna, "orders", NoRules),
            ((Prefixed, "ord"), anna, "orders", Allowed),
            ((Prefixed, "orders"), anna, "orders", Allowed),
            ((Prefixed, "orders2"), anna, "orders", NoRules),
            ((Prefixed, "*"), anna, "orders", NoRules),
            ((Literal, "orders"), ("User:*", "*"), "orders", Allowed),
            ((Literal, "orders"), ("User:ben", "*"), "orders", Denied),
            ((Literal, "orders"), ("Group:anna", "*"), "orders", Denied),
            (
                (Literal, "orders"),
                ("User:anna", "10.0.0.1"),
                "orders",
                Allowed,
            ),
            (
                (Literal, "orders"),
                ("User:anna", "10.0.0.2"),
                "orders",
                Denied,
            ),
        ] {
            let rule = acl(pattern, who, Read, Allow);
            assert_eq!(
                decided(std::slice::from_ref(&rule), Read, name),
                expected,
                "{rule:?}"
            );
        }
    }

    #[test]
    fn allowed_operations_imply_others_and_denied_ones_do_not() {
        let orders = (Literal, "orders");
        let anna = ("User:anna", "*");
        for allowed in AclOperation::ALL {
            for asked in AclOperation::ALL {
                let implied = match asked {
                    Describe => &[Read, Write, Delete, Alter, Describe, All][..],
                    DescribeConfigs => &[AlterConfigs, DescribeConfigs, All],
                    asked => &[*asked, All],
                };
                let expected = if implied.contains(allowed) {
                    Allowed
                } else {
                    Denied
                };
                let rule = acl(orders, anna, *allowed, Allow);
                assert_eq!(
                    decided(&[rule], *asked, "orders"),
                    expected,
                    "{allowed:?} {asked:?}"
                );
                let everything = acl(orders, anna, All, Allow);
                let deny = acl(orders, anna, *allowed, Deny);
                let is_denied = allowed == asked || *allowed == All;
                let expected = if is_denied { Denied } else { Allowed };
                assert_eq!(decided(&[everything, deny], *asked, "orders"), expected);
            }
        }
    }

    #[test]
    fn any_topic_suffices_unless_all_that_is_allowed_is_denied() {
        let anna = ("User:anna", "*");
        let allows = |acls: &[Acl]| AclTable::of(acls).allows_any(ANNA, Write, ResourceType::Topic);
        let allow = |pattern, name| acl((pattern, name), anna, Write, Allow);
        let deny = |pattern, name| acl((pattern, name), anna, Write, Deny);
        assert!(!allows(&[]));
        assert!(allows(&[allow(Literal, "a")]));
        assert!(!allows(&[acl((Literal, "a"), anna, Read, Allow)]));
        assert!(allows(&[acl((Literal, "a"), anna, All, Allow)]));
        assert!(!allows(&[allow(Literal, "a"), deny(Literal, "a")]));
        assert!(!allows(&[allow(Literal, "ab"), deny(Prefixed, "a")]));
        assert!(!allows(&[allow(Literal, "*"), deny(Literal, "*")]));
        assert!(allows(&[allow(Literal, "*"), deny(Prefixed, "a")]));
        assert!(!allows(&[allow(Prefixed, "ab"), deny(Prefixed, "a")]));
        assert!(allows(&[allow(Prefixed, "a"), deny(Prefixed, "ab")]));
        assert!(!allows(&[acl(
            (Literal, "a"),
            ("User:ben", "*"),
            Write,
            Allow
        )]));
    }

    /// The decision, by going through all rules.
    fn plainly(acls: &[Acl], who: Requester<'_>, asked: AclOperation, name: &str) -> Decision {
        let about = |acl: &&Acl| match acl.pattern {
            Literal => acl.name == name || acl.name == "*",
            Prefixed => name.starts_with(&acl.name),
        };
        let rules: Vec<_> = acls.iter().filter(about).collect();
        let applies = |acl: &&&Acl| {
            (acl.principal == who.principal || acl.principal == "User:*")
                && (acl.host == who.host || acl.host == "*")
        };
        let mine: Vec<_> = rules.iter().filter(applies).collect();
        let has = |permission, operations: &[AclOperation]| {
            let mut mine = mine.iter();
            mine.any(|acl| acl.permission == permission && operations.contains(&acl.operation))
        };
        let implied: &[AclOperation] = match asked {
            Describe => &[Read, Write, Delete, Alter],
            DescribeConfigs => &[AlterConfigs],
            _ => &[],
        };
        match rules.is_empty() {
            true => NoRules,
            false if has(Deny, &[asked, All]) => Denied,
            false if has(Allow, &[asked, All]) || has(Allow, implied) => Allowed,
            false => Denied,
        }
    }

    /// Decisions of Kafka 4.3's StandardAuthorizer about random rules: the decision, the operation,
    /// the name and the host, and then rules.
    const OF_KAFKA: &str = include_str!("of_kafka.tsv");

    fn of_kafka(line: &str) -> (Vec<Acl>, AclOperation, &str, &str, Decision) {
        let mut fields = line.split('\t');
        let asked: Vec<_> = fields.next().unwrap().split(' ').collect();
        let number = |text: &str| text.parse::<i8>().unwrap();
        let decision = match asked[0] {
            "A" => Allowed,
            "D" => Denied,
            _ => NoRules,
        };
        let rules = fields.map(|rule| {
            let rule: Vec<_> = rule.split(' ').collect();
            let pattern = PatternType::numbered(number(rule[0])).unwrap();
            let operation = AclOperation::numbered(number(rule[4])).unwrap();
            let permission = Permission::numbered(number(rule[5])).unwrap();
            acl(
                (pattern, rule[1]),
                (rule[2], rule[3]),
                operation,
                permission,
            )
        });
        let operation = AclOperation::numbered(number(asked[1])).unwrap();
        (rules.collect(), operation, asked[2], asked[3], decision)
    }

    #[test]
    fn the_decisions_are_those_of_kafka() {
        for line in OF_KAFKA.lines() {
            let (rules, operation, name, host, expected) = of_kafka(line);
            let who = Requester { host, ..ANNA };
            let table = AclTable::of(&rules);
            let decision = table.decide(who, operation, (ResourceType::Topic, name));
            assert_eq!(decision, expected, "{line}");
        }
        assert!(OF_KAFKA.lines().count() >= 500);
    }

    proptest! {
        #[test]
        fn the_table_decides_as_the_list_of_rules_does(
            rules in proptest::collection::vec((
                (select(PatternType::ALL), select(vec!["*", "a", "ab", "abc", "\u{e4}"])),
                (
                    select(vec!["User:anna", "User:ben", "User:*"]),
                    select(vec!["*", "10.0.0.1", "h"]),
                ),
                select(AclOperation::ALL),
                select(Permission::ALL),
            ), 0..12),
            asked in select(AclOperation::ALL),
            name in select(vec!["a", "ab", "abc", "abcd", "b", "*", "\u{e4}\u{e4}"]),
        ) {
            let rules = rules.into_iter();
            let rules = rules.map(|(name, who, operation, allow)| acl(name, who, operation, allow));
            let rules: Vec<_> = rules.collect();
            prop_assert_eq!(decided(&rules, asked, name), plainly(&rules, ANNA, asked, name));
        }
    }
}
