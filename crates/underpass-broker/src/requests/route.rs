//! The client of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use underpass_net::{Address, Connection, PeerAddress};

use crate::broker::{Broker, KafkaService};
use crate::options::PORT;
use crate::security::access::ClientAccess;
use crate::security::login::SaslLogin;
use crate::security::principal::Principal;

/// The client of a connection, and the address by which it has reached the broker, for directing
/// others to it.
pub(crate) struct ClientRoute {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The address of the client, and its form in Kafka's tools.
    pub(crate) peer: PeerAddress,
    pub(crate) client: String,
    /// The address of the client without a port, as access rules name it.
    ip: Arc<str>,
    /// The user, unless the client must log in.
    principal: Principal,
    pub(crate) login: Option<SaslLogin>,
    /// Held by one group request at a time, in order: a commit waits before it reaches the
    /// coordinator.
    pub(crate) group_turn: Mutex<()>,
    /// Held by one Produce request at a time, in order, until its batches are queued: decompression
    /// comes before.
    pub(crate) produce_turn: Mutex<()>,
    /// Held by one request of [`OF_TOPICS`] at a time, in order.
    topics_turn: Mutex<()>,
}

/// The requests that create, delete and list topics. A response must not be older than the one
/// before it: librdkafka would take a topic that was just created for deleted.
const OF_TOPICS: [&str; 5] = [
    "Metadata",
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "DescribeTopicPartitions",
];

impl ClientRoute {
    /// Determines the address by which clients of this connection find the broker.
    pub(crate) fn of(service: &KafkaService, connection: &Connection) -> ClientRoute {
        let port = match connection.listener().map(|listener| listener.address()) {
            Some(Address::Tcp(address)) => address.port(),
            _ => PORT,
        };
        let ip = connection.client().ip();
        let ip = ip.map_or_else(String::new, |ip| ip.to_canonical().to_string());
        let local = connection.local_address();
        let local = local.unwrap_or(SocketAddr::from(([127, 0, 0, 1], port)));
        let name = connection.tls().and_then(|tls| tls.server_name.clone());
        let (host, port) = match (&service.advertised, name) {
            (Some(address), _) => (address.host.clone(), address.port.unwrap_or(port)),
            (None, Some(name)) => (name.into(), local.port()),
            (None, None) => (local.ip().to_canonical().to_string(), local.port()),
        };
        ClientRoute {
            host,
            port,
            peer: connection.client(),
            client: format!("/{ip}"),
            ip: ip.into(),
            principal: principal_of(connection),
            login: service.login.clone().map(SaslLogin::new),
            group_turn: Mutex::new(()),
            produce_turn: Mutex::new(()),
            topics_turn: Mutex::new(()),
        }
    }

    /// Waits for the earlier requests about topics, if this is one.
    pub(crate) async fn topics_turn(&self, api: &str) -> Option<MutexGuard<'_, ()>> {
        match OF_TOPICS.contains(&api) {
            true => Some(self.topics_turn.lock().await),
            false => None,
        }
    }

    /// Returns the rights of the client under the present rules; none if it must log in first, or
    /// again.
    pub(crate) fn access(&self, broker: &Broker) -> Option<ClientAccess> {
        let principal = self.principal()?;
        let host = Arc::clone(&self.ip);
        Some(ClientAccess::new(
            broker.authorizer.as_ref(),
            principal,
            host,
        ))
    }

    /// Returns the user of the connection; none if the client must log in first, or again.
    fn principal(&self) -> Option<Principal> {
        match &self.login {
            Some(login) => login.principal(Instant::now()),
            None => Some(self.principal.clone()),
        }
    }
}

/// Returns the user of a connection without a login: the subject of the certificate that the client
/// has presented, if any, as in Kafka.
fn principal_of(connection: &Connection) -> Principal {
    let subject = connection.tls().and_then(|tls| tls.client.clone());
    subject.map_or_else(Principal::anonymous, |subject| Principal::user(&subject))
}
