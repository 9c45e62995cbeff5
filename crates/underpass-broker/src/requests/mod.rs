//! Handlers of requests by their kind.

mod admin;
mod groups;
mod list_offsets;
mod metadata;
mod operations;
pub(crate) mod produce;
mod topics;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use underpass::{FileRange, Piece};
use underpass_net::{Address, Connection, LogThrottle, PeerAddress};

use crate::broker::BrokerWorker;
use crate::connection::Requests;
use crate::connection::frame::{RequestFrame, RequestMemory};
use crate::connection::response_queue::{PendingResponse, RequestOutcome};
use crate::counts::WorkerCounts;
use crate::fetch::fetch;
use crate::limits::LARGE_FETCH_WAIT_MAX;
use crate::options::{AdvertisedAddress, PORT};
use crate::protocol::apis::{APIS, Api, absent_name, find};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::header::{RequestHeader, RequestStart, read_header, write_header};
use crate::protocol::tables::api_versions::{ApiVersionsResponse, ApiVersionsResponseApiVersion};
use crate::protocol::tables::fetch::FetchRequest;
use crate::protocol::tables::find_coordinator::FindCoordinatorRequest;
use crate::protocol::tables::init_producer_id::InitProducerIdRequest;
use crate::protocol::tables::list_offsets::ListOffsetsRequest;
use crate::protocol::tables::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};
use crate::protocol::tables::metadata::MetadataRequest;
use crate::protocol::tables::offset_for_leader_epoch::OffsetForLeaderEpochRequest;
use crate::protocol::tables::produce::ProduceRequest;
use crate::protocol::wire::{Message, Wire};
use crate::protocol::{DecodeError, DecodeFault, Reader, Writer};
use crate::requests::admin::configs::InheritedConfigs;

/// An unsupported request, sent by clients with settings that a broker without SASL cannot satisfy.
const SASL_HANDSHAKE: i16 = 17;
const SASL_AUTHENTICATE: i16 = 36;

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

/// The address by which a client reached the broker, for directing others to it.
#[derive(Debug)]
struct ClientRoute {
    host: String,
    port: u16,
    /// The address of the client, and its form in Kafka's tools.
    peer: PeerAddress,
    client: String,
    /// Held by one group request at a time, in order: a commit waits before it reaches the
    /// coordinator.
    group_turn: Mutex<()>,
    /// Held by one Produce request at a time, in order, until its batches are queued: decompression
    /// comes before.
    produce_turn: Mutex<()>,
}

/// A request whose header was read.
struct Understood<'a> {
    /// The data that the response needs.
    responder: Responder,
    client_id: &'a str,
    body: Reader<'a>,
}

/// The data of a request that its response needs.
#[derive(Clone, Copy)]
struct Responder {
    api: &'static Api,
    version: i16,
    correlation_id: i32,
}

/// The outcome of a request after its body was read.
enum BegunResponse {
    Made(RequestOutcome),
    /// The response waits for other events and no longer needs the request.
    Waits(PendingResponse),
}

impl BrokerRequests {
    pub(crate) fn new(
        worker: Rc<BrokerWorker>,
        advertised: Option<&AdvertisedAddress>,
        connection: &Connection,
    ) -> BrokerRequests {
        let route = ClientRoute::of(advertised, connection);
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

impl ClientRoute {
    /// Determines the address by which clients of this connection find the broker.
    fn of(advertised: Option<&AdvertisedAddress>, connection: &Connection) -> ClientRoute {
        let port = match connection.listener().map(|listener| listener.address()) {
            Some(Address::Tcp(address)) => address.port(),
            _ => PORT,
        };
        let ip = connection.client().ip();
        let client = format!("/{}", ip.map_or_else(String::new, |ip| ip.to_string()));
        let local = connection.local_address();
        let local = local.unwrap_or(SocketAddr::from(([127, 0, 0, 1], port)));
        let name = connection.tls().and_then(|tls| tls.server_name.clone());
        let (host, port) = match (advertised, name) {
            (Some(address), _) => (address.host.clone(), address.port.unwrap_or(port)),
            (None, Some(name)) => (name.into(), local.port()),
            (None, None) => (local.ip().to_canonical().to_string(), local.port()),
        };
        ClientRoute {
            host,
            port,
            peer: connection.client(),
            client,
            group_turn: Mutex::new(()),
            produce_turn: Mutex::new(()),
        }
    }
}

/// Returns the reason why a request gets no response that the client would understand.
fn not_supported(header: &RequestHeader<'_>) -> String {
    let (key, version) = (header.key, header.version);
    match (find(key), key) {
        (Some(api), _) => {
            let (name, from, to) = (api.name, api.served_from, api.advertised.1);
            format!("{name} version {version} is not supported, versions {from} to {to} are")
        }
        (None, SASL_HANDSHAKE | SASL_AUTHENTICATE) => format!(
            "request {key} version {version} is not supported: there is no SASL here; set \
             security.protocol to PLAINTEXT or SSL"
        ),
        (None, _) => match absent_name(key) {
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
                let response = self.respond_to(request, frame, route).await;
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

    /// Logs that a client asked for an unsupported feature.
    fn report_unsupported(&self, (route, client_id): (&ClientRoute, &str), what: &str) {
        let (unsupported, client) = (&self.broker.unsupported, (route.peer, client_id));
        unsupported.report(client, what, &self.disconnections);
    }

    async fn respond_to(
        &self,
        request: Understood<'_>,
        frame: &Arc<RequestFrame>,
        route: &ClientRoute,
    ) -> Result<BegunResponse, DecodeError> {
        let (broker, responder) = (&self.broker, request.responder);
        let (version, topics) = (responder.version, broker.topics.present());
        let outcome = match responder.api.name {
            "Produce" => {
                let body: ProduceRequest<'_> = request.body()?;
                let turn = &route.produce_turn;
                let to = (&*topics, &**broker);
                match produce::produce(&body, frame, version, to, (turn, &self.refusals)).await {
                    Ok(Some(response)) => responder.whole(&response),
                    Ok(None) => RequestOutcome::Nothing,
                    Err(()) => RequestOutcome::Close,
                }
            }
            "Fetch" => {
                let body: FetchRequest<'_> = request.body()?;
                let wait_max = match frame.share.is_none() {
                    true => Duration::MAX,
                    false => LARGE_FETCH_WAIT_MAX,
                };
                let fetched = fetch(&body, version, (&topics, self), wait_max).await;
                responder.response(&fetched.response, fetched.ranges)
            }
            "ListOffsets" => {
                let body: ListOffsetsRequest<'_> = request.body()?;
                let response = list_offsets::list_offsets(&body, version, &topics).await;
                responder.whole(&response)
            }
            "OffsetForLeaderEpoch" => {
                let body: OffsetForLeaderEpochRequest<'_> = request.body()?;
                let response = list_offsets::ends_of_epochs(&body, &topics);
                responder.whole(&response)
            }
            "Metadata" => {
                let body: MetadataRequest<'_> = request.body()?;
                metadata::create_missing(&body, broker).await;
                let (topics, place) = (broker.topics.present(), (&*route.host, route.port));
                let response = metadata::metadata(&body, version, broker, &topics, place);
                responder.whole(&response)
            }
            "CreateTopics" => {
                let body = request.body()?;
                let outcomes = topics::create(&body, broker).await;
                responder.whole(&topics::created(&outcomes, broker))
            }
            "DeleteTopics" => {
                let response = topics::delete(&request.body()?, broker).await;
                responder.whole(&response)
            }
            "InitProducerId" => {
                let body: InitProducerIdRequest<'_> = request.body()?;
                if body.transactional_id.is_some() {
                    self.report_unsupported((route, request.client_id), groups::NO_TRANSACTIONS);
                }
                let response = topics::init_producer_id(&body, broker).await;
                responder.whole(&response)
            }
            "ApiVersions" => responder.whole(&versions(ErrorCode::None)),
            name if OF_MEMBERS.contains(&name) => {
                return self.respond_to_group(request, route).await;
            }
            _ => self.respond_with_description(request, route).await?,
        };
        Ok(BegunResponse::Made(outcome))
    }

    /// Answers requests that describe the cluster.
    async fn respond_with_description(
        &self,
        request: Understood<'_>,
        route: &ClientRoute,
    ) -> Result<RequestOutcome, DecodeError> {
        let (broker, responder) = (&self.broker, request.responder);
        let (version, node) = (responder.version, broker.options.node_id);
        let topics = broker.topics.present();
        Ok(match responder.api.name {
            "DescribeCluster" => {
                let place = (&*route.host, route.port);
                let response = admin::cluster::describe(&request.body()?, broker, place);
                responder.whole(&response)
            }
            "DescribeTopicPartitions" => {
                let body = request.body()?;
                responder.whole(&admin::cluster::describe_partitions(&body, &topics, node))
            }
            "ListGroups" => {
                let listed = admin::groups::listed(&request.body()?, broker);
                responder.whole(&admin::groups::list_response(&listed))
            }
            "DescribeGroups" => {
                let body = request.body()?;
                let described = admin::groups::described(&body, broker);
                let response = admin::groups::describe_response(&body, version, &described);
                responder.whole(&response)
            }
            "DescribeConfigs" => {
                let (body, inherited) = (request.body()?, InheritedConfigs::of(broker));
                let response = admin::configs::describe(&body, broker, &topics, &inherited);
                responder.whole(&response)
            }
            "DescribeLogDirs" => {
                let (body, folder) = (request.body()?, admin::replicas::log_folder(broker));
                let response = admin::replicas::log_dirs(&body, broker, &topics, &folder);
                responder.whole(&response)
            }
            "ListPartitionReassignments" => {
                let _body: ListPartitionReassignmentsRequest<'_> = request.body()?;
                responder.whole(&ListPartitionReassignmentsResponse::default())
            }
            _ => return self.respond_with_change(request).await,
        })
    }

    /// Answers requests that change the cluster.
    async fn respond_with_change(
        &self,
        request: Understood<'_>,
    ) -> Result<RequestOutcome, DecodeError> {
        let (broker, responder) = (&self.broker, request.responder);
        let topics = broker.topics.present();
        Ok(match responder.api.name {
            "DeleteGroups" => {
                responder.whole(&admin::groups::delete(&request.body()?, broker).await)
            }
            "OffsetDelete" => {
                let body = request.body()?;
                responder.whole(&admin::groups::delete_offsets(&body, broker, &topics).await)
            }
            "IncrementalAlterConfigs" => {
                let body = request.body()?;
                let altered = admin::configs::update(&body, broker).await;
                responder.whole(&admin::configs::updated(&altered))
            }
            "AlterConfigs" => {
                let body = request.body()?;
                let altered = admin::configs::replace(&body, broker).await;
                responder.whole(&admin::configs::replaced(&altered))
            }
            "CreatePartitions" => {
                let body = request.body()?;
                let outcomes = admin::partitions::create(&body, broker).await;
                responder.whole(&admin::partitions::created(&outcomes))
            }
            "DeleteRecords" => {
                let body = request.body()?;
                let response = admin::partitions::delete_records(&body, broker, &topics).await;
                responder.whole(&response)
            }
            "ElectLeaders" => {
                let body = request.body()?;
                responder.whole(&admin::replicas::elect_leaders(&body, &topics))
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
        route: &ClientRoute,
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
                let response = groups::find_coordinator(&body, version, broker, place).await;
                responder.whole(&response)
            }
            "JoinGroup" => {
                let client = (request.client_id, &*route.client);
                let joining = groups::join_request(&request.body()?, version, client);
                let broker = Arc::clone(broker);
                return Ok(BegunResponse::Waits(Box::pin(async move {
                    let joined = groups::join(joining, &broker).await;
                    responder.whole(&groups::join_response(&joined, version))
                })));
            }
            "SyncGroup" => {
                let syncing = groups::sync_request(&request.body()?);
                let broker = Arc::clone(broker);
                return Ok(BegunResponse::Waits(Box::pin(async move {
                    let synced = groups::sync(syncing, &broker).await;
                    responder.whole(&groups::sync_response(&synced))
                })));
            }
            "Heartbeat" => {
                let response = groups::heartbeat(&request.body()?, broker);
                responder.whole(&response)
            }
            "LeaveGroup" => {
                let response = groups::leave(&request.body()?, version, broker);
                responder.whole(&response)
            }
            "OffsetCommit" => {
                let (body, topics) = (request.body()?, broker.topics.present());
                let response = groups::commit(&body, turn, broker, &topics).await;
                responder.whole(&response)
            }
            "OffsetFetch" => {
                let body = request.body()?;
                let fetched = groups::fetched(&body, version, broker);
                let response = groups::fetch_response(&body, version, &fetched);
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

impl<'a> Understood<'a> {
    /// Decodes the body. Ignores bytes after it, as Kafka does: librdkafka 2.12 leaves some after
    /// Metadata 13.
    fn body<M: Message<'a>>(&self) -> Result<M, DecodeError> {
        let mut from = self.body.clone();
        match M::version(self.responder.version) {
            Some(version) => M::read(&mut from, version),
            None => Err(from.error(DecodeFault::Version)),
        }
    }
}

impl Responder {
    /// Returns the frame of a response without gaps.
    fn whole<'r, M: Message<'r>>(self, response: &M) -> RequestOutcome {
        self.response(response, Vec::new())
    }

    /// Returns the frame of a response, with the file ranges that fill its gaps.
    fn response<'r, M: Message<'r>>(self, response: &M, ranges: Vec<FileRange>) -> RequestOutcome {
        let mut to = begun();
        write_header(&mut to, self.api, self.version, self.correlation_id);
        write(response, self.version, &mut to);
        framed(to, ranges)
    }
}

/// Starts a frame, with space for its length.
fn begun() -> Writer {
    let mut to = Writer::default();
    to.put(&[0; 4]);
    to
}

fn write<'r, M: Message<'r>>(response: &M, version: i16, to: &mut Writer) {
    if let Some(version) = M::version(version) {
        Wire::write(response, to, version);
    }
}

/// Returns the pieces of a frame: bytes, and file ranges between them.
fn framed(to: Writer, ranges: Vec<FileRange>) -> RequestOutcome {
    let Ok(length) = i32::try_from(to.length() - 4) else {
        tracing::warn!(
            "a response of {} bytes is not sent; the longest has 2 GiB",
            to.length()
        );
        return RequestOutcome::Close;
    };
    let (mut bytes, gaps) = to.into_parts();
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    let mut pieces = Vec::with_capacity(2 * gaps.len() + 1);
    let mut behind = bytes.split_off(0);
    let mut cut = 0;
    for (gap, range) in gaps.iter().zip(ranges) {
        let rest = behind.split_off(gap.at - cut);
        cut = gap.at;
        pieces.push(Piece::Bytes(std::mem::replace(&mut behind, rest)));
        pieces.push(Piece::Range(range));
    }
    if !behind.is_empty() {
        pieces.push(Piece::Bytes(behind));
    }
    RequestOutcome::Frame(pieces)
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
