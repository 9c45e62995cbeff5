//! DescribeAcls, CreateAcls and DeleteAcls.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::broker::Broker;
use crate::metadata::security::AclsFull;
use crate::protocol::error_code::{ErrorCode, Refused};
use crate::protocol::tables::create_acls::{
    CreateAclsAclCreation, CreateAclsRequest, CreateAclsResponse,
    CreateAclsResponseAclCreationResult,
};
use crate::protocol::tables::delete_acls::{
    DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest,
    DeleteAclsResponse,
};
use crate::protocol::tables::describe_acls::{
    DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse,
    DescribeAclsResponseAclDescription,
};
use crate::security::access::{Authorizer, ClientAccess};
use crate::security::acl::{
    Acl, AclFilter, AclOperation, AclTable, FilterFields, PatternType, Permission, ResourceType,
};

const DISABLED: &str = "there is no authorizer; add [authorizer] to the configuration";
const DENIED: &str = "the client may not do this with access rules";

/// The largest number of filters in a request: each is compared with all rules.
const FILTERS_MAX: usize = 1000;

/// Checks that there are rules, and that the client may do this with them.
fn check<'b>(
    broker: &'b Broker,
    access: &ClientAccess,
    operation: AclOperation,
) -> Result<&'b Authorizer, Refused> {
    let disabled = || (ErrorCode::SecurityDisabled, DISABLED.to_owned());
    match access.allows_cluster(operation) {
        true => broker.authorizer.as_ref().ok_or_else(disabled),
        false => Err((ErrorCode::ClusterAuthorizationFailed, DENIED.to_owned())),
    }
}

/// Returns the rules that a filter matches, sorted by resource.
pub(crate) fn found(
    request: &DescribeAclsRequest<'_>,
    broker: &Broker,
    access: &ClientAccess,
) -> Result<Vec<Acl>, Refused> {
    check(broker, access, AclOperation::Describe)?;
    let filter = AclFilter::of(FilterFields {
        resource: request.resource_type_filter,
        name: request.resource_name_filter,
        pattern: request.pattern_type_filter,
        principal: request.principal_filter,
        host: request.host_filter,
        operation: request.operation,
        permission: request.permission_type,
    });
    let filter = filter.map_err(invalid)?;
    Ok(broker.topics.acls_matching(&filter))
}

fn invalid(why: &str) -> Refused {
    (ErrorCode::InvalidRequest, why.to_owned())
}

pub(crate) fn describe(found: &Result<Vec<Acl>, Refused>) -> DescribeAclsResponse<'_> {
    let acls = match found {
        Ok(acls) => acls,
        Err((code, why)) => {
            return DescribeAclsResponse {
                error_code: code.number(),
                error_message: Some(why),
                ..DescribeAclsResponse::default()
            };
        }
    };
    let resource = |acl: &Acl| (acl.resource, acl.pattern, acl.name.clone());
    let resources = acls.chunk_by(|one, next| resource(one) == resource(next));
    let resources = resources.filter_map(|acls| {
        let first = acls.first()?;
        let rules = acls.iter().map(|acl| DescribeAclsResponseAclDescription {
            principal: &acl.principal,
            host: &acl.host,
            operation: acl.operation.number(),
            permission_type: acl.permission.number(),
        });
        Some(DescribeAclsResource {
            resource_type: first.resource.number(),
            resource_name: &first.name,
            pattern_type: first.pattern.number(),
            acls: rules.collect(),
        })
    });
    DescribeAclsResponse {
        resources: resources.collect(),
        ..DescribeAclsResponse::default()
    }
}

/// Adds rules, and answers when they are written. Returns a result for each.
pub(crate) async fn create(
    request: &CreateAclsRequest<'_>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> Vec<Result<(), Refused>> {
    let count = request.creations.len();
    if let Err(refused) = check(broker, access, AclOperation::Alter) {
        return vec![Err(refused); count];
    }
    let acls: Vec<_> = request.creations.iter().map(acl).collect();
    let added: Vec<Acl> = acls.iter().flatten().cloned().collect();
    let added = change(broker, move |acls| {
        acls.extend(added);
    });
    match added.await {
        Ok(()) => acls.into_iter().map(|acl| acl.map(drop)).collect(),
        Err(refused) => {
            let results = acls.into_iter();
            results
                .map(|acl| acl.and_then(|_| Err(refused.clone())))
                .collect()
        }
    }
}

/// Reads a rule.
fn acl(asked: &CreateAclsAclCreation<'_>) -> Result<Acl, Refused> {
    let resource = ResourceType::numbered(asked.resource_type);
    let pattern = PatternType::numbered(asked.resource_pattern_type);
    let operation = AclOperation::numbered(asked.operation);
    let permission = Permission::numbered(asked.permission_type);
    let acl = Acl {
        resource: resource.ok_or_else(|| invalid("unknown type of a resource"))?,
        pattern: pattern.ok_or_else(|| invalid("unknown type of a pattern"))?,
        name: asked.resource_name.to_owned(),
        principal: asked.principal.to_owned(),
        host: asked.host.to_owned(),
        operation: operation.ok_or_else(|| invalid("unknown operation"))?,
        permission: permission.ok_or_else(|| invalid("unknown type of a permission"))?,
    };
    match acl.check() {
        Ok(()) => Ok(acl),
        Err(why) => Err(invalid(&why)),
    }
}

/// Changes the rules on a thread that may wait for the disk.
async fn change<T: Send + 'static>(
    broker: &Arc<Broker>,
    change: impl FnOnce(&mut BTreeSet<Acl>) -> T + Send + 'static,
) -> Result<T, Refused> {
    let worker = Arc::clone(broker);
    let write = move || {
        worker.topics.change_acls(change, |acls| {
            if let Some(authorizer) = &worker.authorizer {
                let table = AclTable::of(acls);
                authorizer.change(|rules| rules.table = table);
            }
        })
    };
    match tokio::task::spawn_blocking(write).await {
        Ok(Ok(changed)) => Ok(changed),
        Ok(Err(AclsFull::TooMany(max))) => Err((
            ErrorCode::PolicyViolation,
            format!("there would be more than {max} rules"),
        )),
        Ok(Err(AclsFull::Disk(error))) => {
            tracing::warn!("access rules cannot be changed: {error}");
            Err((ErrorCode::KafkaStorageError, error.to_string()))
        }
        Err(_) => Err((ErrorCode::UnknownServerError, String::new())),
    }
}

pub(crate) fn created(results: &[Result<(), Refused>]) -> CreateAclsResponse<'_> {
    let results = results.iter().map(|result| {
        let refused = result.as_ref().err();
        CreateAclsResponseAclCreationResult {
            error_code: refused.map_or(0, |(code, _)| code.number()),
            error_message: refused.map(|(_, why)| &**why),
        }
    });
    CreateAclsResponse {
        results: results.collect(),
        ..CreateAclsResponse::default()
    }
}

/// Removes the rules that filters match, and answers when that is written. Returns the removed ones
/// of each filter; one that several match is of the first.
pub(crate) async fn delete(
    request: &DeleteAclsRequest<'_>,
    broker: &Arc<Broker>,
    access: &ClientAccess,
) -> Vec<Result<Vec<Acl>, Refused>> {
    let count = request.filters.len();
    let checked = check(broker, access, AclOperation::Alter);
    if let Err(refused) = checked {
        return vec![Err(refused); count];
    }
    if count > FILTERS_MAX {
        let why = format!("{count} filters; expected {FILTERS_MAX} at most");
        return vec![Err((ErrorCode::PolicyViolation, why)); count];
    }
    let filters = request
        .filters
        .iter()
        .map(|filter| AclFilter::of(fields(filter)));
    let filters: Vec<_> = filters.map(|filter| filter.map_err(invalid)).collect();
    let deleted = change(broker, move |acls| {
        let filters = filters.into_iter();
        let removed = filters.map(|filter| filter.map(|filter| removed(acls, &filter)));
        removed.collect::<Vec<_>>()
    });
    match deleted.await {
        Ok(deleted) => deleted,
        Err(refused) => vec![Err(refused); count],
    }
}

fn removed(acls: &mut BTreeSet<Acl>, filter: &AclFilter) -> Vec<Acl> {
    let found: Vec<_> = acls
        .iter()
        .filter(|acl| filter.matches(acl))
        .cloned()
        .collect();
    acls.retain(|acl| !filter.matches(acl));
    found
}

fn fields<'a>(filter: &DeleteAclsFilter<'a>) -> FilterFields<'a> {
    FilterFields {
        resource: filter.resource_type_filter,
        name: filter.resource_name_filter,
        pattern: filter.pattern_type_filter,
        principal: filter.principal_filter,
        host: filter.host_filter,
        operation: filter.operation,
        permission: filter.permission_type,
    }
}

pub(crate) fn deleted(results: &[Result<Vec<Acl>, Refused>]) -> DeleteAclsResponse<'_> {
    let results = results.iter().map(|result| match result {
        Ok(acls) => DeleteAclsFilterResult {
            matching_acls: acls.iter().map(matching).collect(),
            ..DeleteAclsFilterResult::default()
        },
        Err((code, why)) => DeleteAclsFilterResult {
            error_code: code.number(),
            error_message: Some(why),
            ..DeleteAclsFilterResult::default()
        },
    });
    DeleteAclsResponse {
        filter_results: results.collect(),
        ..DeleteAclsResponse::default()
    }
}

fn matching(acl: &Acl) -> DeleteAclsMatchingAcl<'_> {
    DeleteAclsMatchingAcl {
        error_code: 0,
        error_message: None,
        resource_type: acl.resource.number(),
        resource_name: &acl.name,
        pattern_type: acl.pattern.number(),
        principal: &acl.principal,
        host: &acl.host,
        operation: acl.operation.number(),
        permission_type: acl.permission.number(),
    }
}
