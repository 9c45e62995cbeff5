//! Handlers of requests by their kind.

mod admin;
mod fetch;
mod groups;
mod list_offsets;
mod login;
mod metadata;
mod offsets;
mod operations;
pub(crate) mod produce;
mod responder;
mod route;
mod topics;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use underpass_net::{Connection, LogThrottle};

use crate::broker::{BrokerWorker, KafkaService};
use crate::connection::Requests;
use crate::connection::frame::{RequestFrame, RequestMemory};
use crate::connection::response_queue::{PendingResponse, RequestOutcome};
use crate::counts::WorkerCounts;
use crate::fetch::asked::FetchScope;
use crate::limits::LARGE_FETCH_WAIT_MAX;
use crate::protocol::DecodeError;
use crate::protocol::apis::{APIS, Api, absent_name, find};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::header::{RequestHeader, RequestStart, read_header};
use crate::protocol::tables::api_versions::{ApiVersionsResponse, ApiVersionsResponseApiVersion};
use crate::protocol::tables::describe_client_quotas::DescribeClientQuotasRequest;
use crate::protocol::tables::fetch::{FetchRequest, FetchResponse};
use crate::protocol::tables::find_coordinator::FindCoordinatorRequest;
use crate::protocol::tables::init_producer_id::InitProducerIdRequest;
use crate::protocol::tables::list_offsets::ListOffsetsRequest;
use crate::protocol::tables::list_partition_reassignments::ListPartitionReassignmentsRequest;
use crate::protocol::tables::metadata::MetadataRequest;
use crate::protocol::tables::offset_for_leader_epoch::OffsetForLeaderEpochRequest;
use crate::protocol::tables::produce::ProduceRequest;
use crate::requests::admin::configs::InheritedConfigs;
use crate::requests::fetch::fetch;
use crate::requests::responder::{BegunResponse, Responder, Understood, begun, framed, write};
use crate::requests::route::ClientRoute;
use crate::security::access::ClientAccess;
use crate::security::login::SaslLogin;

/// The requests of group members, which are handled in order.
const OF_MEMBERS: [&str; 7] = [
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
];

/// The handler of the requests of a connection.
pub(crate) struct BrokerRequests {
    worker: Rc<BrokerWorker>,
    route: ClientRoute,
}

impl BrokerRequests {
    pub(crate) fn new(
        worker: Rc<BrokerWorker>,
        service: &KafkaService,
        connection: &Connection,
    ) -> BrokerRequests {
        let route = ClientRoute::of(service, connection);
        BrokerRequests { worker, route }
    }
}

impl Requests for BrokerRequests {
    fn counts(&self) -> &WorkerCounts {
        &self.worker.counts
    }

    fn memory(&self) -> &RequestMemory {
        &self.worker.broker.memory
    }

    fn disconnections(&self) -> &LogThrottle {
        &self.worker.disconnections
    }

    fn login_deadline(&self) -> Option<Instant> {
        self.route.login.as_ref().and_then(SaslLogin::deadline)
    }

    fn answer(self: &Rc<Self>, request: RequestFrame) -> PendingResponse {
        let requests = Rc::clone(self);
        Box::pin(async move {
            let BrokerRequests { worker, route } = &*requests;
            let request = Arc::new(request);
            let begun = worker.respond(&request, route).await;
            // Release the memory once the response is made or no longer needs it.
            drop(request);
            match begun {
                Ok(BegunResponse::Made(outcome)) => outcome,
                Ok(BegunResponse::Waits(response)) => response.await,
                Err(error) => {
                    let peer = route.peer;
                    worker
                        .disconnections
                        .warn(format_args!("{peer}: a request cannot be read: {error}"));
                    RequestOutcome::Close
                }
            }
        })
    }
}

/// Returns the reason why a request gets no response that the client would understand.
fn not_supported(header: &RequestHeader<'_>) -> String {
    let (key, version) = (header.key, header.version);
    match find(key) {
        Some(api) => {
            let (name, from, to) = (api.name, api.served_from, api.advertised.1);
            format!("{name} version {version} is not supported, versions {from} to {to} are")
        }
        None => match absent_name(key) {
            Some(name) => format!("{name} (request {key}) version {version} is not supported"),
            None => format!("request {key} version {version} is not supported"),
        },
    }
}

impl BrokerWorker {
    async fn respond(
        &self,
        frame: &Arc<RequestFrame>,
        route: &ClientRoute,
    ) -> Result<BegunResponse, DecodeError> {
        let closed = BegunResponse::Made(RequestOutcome::Close);
        if let Some(login) = &route.login
            && login.expects_bare_token()
        {
            let outcome = self.respond_to_bare_token((**frame).as_ref(), login, route.peer);
            return Ok(BegunResponse::Made(outcome.await));
        }
        match read_header((**frame).as_ref())? {
            RequestStart::Known(header, api, body) => {
                self.counts.request(api.key, (**frame).as_ref().len());
                let (version, correlation_id) = (header.version, header.correlation_id);
                let request = Understood {
                    responder: Responder {
                        api,
                        version,
                        correlation_id,
                    },
                    client_id: header.client_id.unwrap_or_default(),
                    body,
                };
                let response = match (
                    login::BEFORE_LOGIN.contains(&api.name),
                    route.access(&self.broker),
                ) {
                    (true, _) => self.respond_before_login(request, route).await,
                    (false, Some(access)) => {
                        self.respond_to(request, frame, (route, &access)).await
                    }
                    (false, None) => {
                        self.report_no_login(api, route);
                        return Ok(closed);
                    }
                };
                if let Err(error) = response {
                    let (peer, name) = (route.peer, api.name);
                    self.disconnections.warn(format_args!(
                        "{peer}: {name} {version} cannot be read: {error}"
                    ));
                    return Ok(closed);
                }
                response
            }
            RequestStart::UnknownApiVersions(header) => {
                let mut to = begun();
                to.put(&header.correlation_id.to_be_bytes());
                write(&versions(ErrorCode::UnsupportedVersion), 0, &mut to);
                Ok(BegunResponse::Made(framed(to, Vec::new())))
            }
            RequestStart::Unknown(header) => {
                let client_id = header.client_id.unwrap_or_default();
                self.report_unsupported((route, client_id), &not_supported(&header));
                Ok(closed)
            }
        }
    }

    /// Logs that a client must log in first, or again.
    fn report_no_login(&self, api: &Api, route: &ClientRoute) {
        let (peer, name) = (route.peer, api.name);
        self.disconnections.warn(format_args!(
            "{peer}: {name} of a client that is not logged in, which this listener expects; set \
             security.protocol to SASL_SSL or SASL_PLAINTEXT"
        ));
    }

    /// Answers the requests that need no login.
    async fn respond_before_login(
        &self,
        request: Understood<'_>,
        route: &ClientRoute,
    ) -> Result<BegunResponse, DecodeError> {
        match request.responder.api.name {
            "ApiVersions" => {
                let outcome = request.responder.whole(&versions(ErrorCode::None));
                Ok(BegunResponse::Made(outcome))
            }
            _ => self.respond_to_login(request, route).await,
        }
    }

    /// Logs that a client asked for an unsupported feature.
    fn report_unsupported(&self, (route, client_id): (&ClientRoute, &str), what: &str) {
        let (unsupported, client) = (&self.broker.unsupported, (route.peer, client_id));
        unsupported.report(client, what, &self.disconnections);
    }

    async fn fetch(
        &self,
        body: &FetchRequest<'_>,
        responder: Responder,
        frame: &RequestFrame,
        scope: FetchScope<'_>,
    ) -> RequestOutcome {
        let wait_max = match frame.share.is_none() {
            true => Duration::MAX,
            false => LARGE_FETCH_WAIT_MAX,
        };
        let respond = |response: &FetchResponse<'_>, ranges| responder.response(response, ranges);
        let version = responder.version;
        fetch(body, version, (scope, self), wait_max, respond).await
    }

    async fn respond_to(
        &self,
        request: Understood<'_>,
        frame: &Arc<RequestFrame>,
        (route, access): (&ClientRoute, &ClientAccess),
    ) -> Result<BegunResponse, DecodeError> {
        let (broker, responder) = (&self.broker, request.responder);
        let _turn = route.topics_turn(responder.api.name).await;
        let (version, topics) = (responder.version, broker.topics.present());
        let outcome = match responder.api.name {
            "Produce" => {
                let body: ProduceRequest<'_> = request.body()?;
                let turn = &route.produce_turn;
                let to = (&*topics, &**broker, access);
                match produce::produce(&body, frame, version, to, (turn, &self.refusals)).await {
                    Ok(Some(response)) => responder.whole(&response),
                    Ok(None) => RequestOutcome::Nothing,
                    Err(()) => RequestOutcome::Close,
                }
            }
            "Fetch" => {
                let body: FetchRequest<'_> = request.body()?;
                let topics = &topics;
                let scope = FetchScope { topics, access };
                self.fetch(&body, responder, frame, scope).await
            }
            "ListOffsets" => {
                let body: ListOffsetsRequest<'_> = request.body()?;
                let response = list_offsets::list_offsets(body, version, &topics, access).await;
                responder.whole(&response)
            }
            "OffsetForLeaderEpoch" => {
                let body: OffsetForLeaderEpochRequest<'_> = request.body()?;
                responder.whole(&list_offsets::ends_of_epochs(&body, &topics, access))
            }
            "Metadata" => {
                let body: MetadataRequest<'_> = request.body()?;
                metadata::create_missing(&body, broker, access).await;
                let (topics, place) = (broker.topics.present(), (&*route.host, route.port));
                let response = metadata::metadata(&body, version, broker, (&topics, access), place);
                responder.whole(&response)
            }
            "CreateTopics" => {
                let body = request.body()?;
                let outcomes = topics::create(&body, broker, access).await;
                responder.whole(&topics::created(&outcomes, broker, access))
            }
            "DeleteTopics" => {
                responder.whole(&topics::delete(&request.body()?, broker, access).await)
            }
            "InitProducerId" => {
                let body: InitProducerIdRequest<'_> = request.body()?;
                if body.transactional_id.is_some() {
                    self.report_unsupported((route, request.client_id), groups::NO_TRANSACTIONS);
                }
                let response = topics::init_producer_id(&body, broker, access).await;
                responder.whole(&response)
            }
            name if OF_MEMBERS.contains(&name) => {
                return self.respond_to_group(request, (route, access)).await;
            }
            _ => {
                self.respond_with_description(request, (route, access))
                    .await?
            }
        };
        Ok(BegunResponse::Made(outcome))
    }

    /// Answers requests that describe the cluster.
    async fn respond_with_description(
        &self,
        request: Understood<'_>,
        (route, access): (&ClientRoute, &ClientAccess),
    ) -> Result<RequestOutcome, DecodeError> {
        let (broker, responder) = (&self.broker, request.responder);
        let (version, node) = (responder.version, broker.options.node_id);
        let topics = broker.topics.present();
        Ok(match responder.api.name {
            "DescribeCluster" => {
                let place = (&*route.host, route.port);
                let response = admin::cluster::describe(&request.body()?, (broker, access), place);
                responder.whole(&response)
            }
            "DescribeTopicPartitions" => {
                let body = request.body()?;
                let to = (&*topics, access);
                responder.whole(&admin::cluster::describe_partitions(&body, to, node))
            }
            "ListGroups" => {
                let listed = admin::groups::listed(&request.body()?, broker, access);
                responder.whole(&admin::groups::list_response(&listed))
            }
            "DescribeGroups" => {
                let body = request.body()?;
                let described = admin::groups::described(&body, broker, access);
                let response = admin::groups::describe_response(&body, version, &described, access);
                responder.whole(&response)
            }
            "DescribeConfigs" => {
                let (body, inherited) = (request.body()?, InheritedConfigs::of(broker));
                let response =
                    admin::configs::describe(&body, broker, (&topics, access), &inherited);
                responder.whole(&response)
            }
            "DescribeLogDirs" => {
                let (body, folder) = (request.body()?, admin::replicas::log_folder(broker));
                let response = admin::replicas::log_dirs(&body, broker, (&topics, access), &folder);
                responder.whole(&response)
            }
            "DescribeClientQuotas" => {
                let _body: DescribeClientQuotasRequest<'_> = request.body()?;
                responder.whole(&admin::users::quotas(access))
            }
            "DescribeUserScramCredentials" => {
                let users = admin::users::all(broker);
                responder.whole(&admin::users::describe(&request.body()?, &users, access))
            }
            "ListPartitionReassignments" => {
                let _body: ListPartitionReassignmentsRequest<'_> = request.body()?;
                responder.whole(&admin::replicas::reassignments(access))
            }
            "DescribeAcls" => {
                let found = admin::acls::found(&request.body()?, broker, access);
                responder.whole(&admin::acls::describe(&found))
            }
            _ => return self.respond_with_change(request, access).await,
        })
    }

    /// Answers requests that change the cluster.
    async fn respond_with_change(
        &self,
        request: Understood<'_>,
        access: &ClientAccess,
    ) -> Result<RequestOutcome, DecodeError> {
        let (broker, responder) = (&self.broker, request.responder);
        let topics = broker.topics.present();
        Ok(match responder.api.name {
            "DeleteGroups" => {
                responder.whole(&admin::groups::delete(&request.body()?, broker, access).await)
            }
            "OffsetDelete" => {
                let body = request.body()?;
                let to = (&*topics, access);
                responder.whole(&admin::groups::delete_offsets(&body, broker, to).await)
            }
            "IncrementalAlterConfigs" => {
                let body = request.body()?;
                let altered = admin::configs::update(&body, broker, access).await;
                responder.whole(&admin::configs::updated(&altered))
            }
            "AlterConfigs" => {
                let body = request.body()?;
                let altered = admin::configs::replace(&body, broker, access).await;
                responder.whole(&admin::configs::replaced(&altered))
            }
            "AlterUserScramCredentials" => {
                let altered = admin::users::alter(&request.body()?, broker, access).await;
                responder.whole(&admin::users::altered(&altered))
            }
            "CreateAcls" => {
                let created = admin::acls::create(&request.body()?, broker, access).await;
                responder.whole(&admin::acls::created(&created))
            }
            "DeleteAcls" => {
                let deleted = admin::acls::delete(&request.body()?, broker, access).await;
                responder.whole(&admin::acls::deleted(&deleted))
            }
            "CreatePartitions" => {
                let body = request.body()?;
                let outcomes = admin::partitions::create(&body, broker, access).await;
                responder.whole(&admin::partitions::created(&outcomes))
            }
            "DeleteRecords" => {
                let body = request.body()?;
                let response =
                    admin::partitions::delete_records(&body, broker, (&topics, access)).await;
                responder.whole(&response)
            }
            "ElectLeaders" => {
                let body = request.body()?;
                responder.whole(&admin::replicas::elect_leaders(&body, &topics, access))
            }
            other => {
                tracing::warn!("{other} is not answered");
                RequestOutcome::Close
            }
        })
    }

    /// Answers requests of group members.
    async fn respond_to_group(
        &self,
        request: Understood<'_>,
        (route, access): (&ClientRoute, &ClientAccess),
    ) -> Result<BegunResponse, DecodeError> {
        let (broker, version) = (&self.broker, request.responder.version);
        let responder = request.responder;
        let turn = route.group_turn.lock().await;
        let outcome = match responder.api.name {
            "FindCoordinator" => {
                let body: FindCoordinatorRequest<'_> = request.body()?;
                if groups::asks_for_transaction(&body) {
                    self.report_unsupported((route, request.client_id), groups::NO_TRANSACTIONS);
                }
                let place = (&*route.host, route.port);
                let response =
                    groups::find_coordinator(&body, version, (broker, access), place).await;
                responder.whole(&response)
            }
            "JoinGroup" => {
                let client = (request.client_id, &*route.client);
                let joining = groups::join_request(&request.body()?, version, client);
                let (broker, access) = (Arc::clone(broker), access.clone());
                return Ok(BegunResponse::Waits(Box::pin(async move {
                    let joined = groups::join(joining, &broker, &access).await;
                    responder.whole(&groups::join_response(&joined, version))
                })));
            }
            "SyncGroup" => {
                let syncing = groups::sync_request(&request.body()?);
                let (broker, access) = (Arc::clone(broker), access.clone());
                return Ok(BegunResponse::Waits(Box::pin(async move {
                    let synced = groups::sync(syncing, &broker, &access).await;
                    responder.whole(&groups::sync_response(&synced))
                })));
            }
            "Heartbeat" => {
                let response = groups::heartbeat(&request.body()?, broker, access);
                responder.whole(&response)
            }
            "LeaveGroup" => {
                let response = groups::leave(&request.body()?, version, (broker, access));
                responder.whole(&response)
            }
            "OffsetCommit" => {
                let (body, topics) = (request.body()?, broker.topics.present());
                let response = offsets::commit(&body, turn, broker, (&topics, access)).await;
                responder.whole(&response)
            }
            "OffsetFetch" => {
                let body = request.body()?;
                let fetched = offsets::fetched(&body, version, broker, access);
                let response = offsets::fetch_response(&body, version, &fetched);
                responder.whole(&response)
            }
            other => {
                tracing::warn!("{other} is not answered");
                RequestOutcome::Close
            }
        };
        Ok(BegunResponse::Made(outcome))
    }
}

fn versions<'a>(error: ErrorCode) -> ApiVersionsResponse<'a> {
    let api_keys = APIS.iter().map(|api| ApiVersionsResponseApiVersion {
        api_key: api.key,
        min_version: api.advertised.0,
        max_version: api.advertised.1,
    });
    ApiVersionsResponse {
        error_code: error.number(),
        api_keys: api_keys.collect(),
        ..ApiVersionsResponse::default()
    }
}
