//! The first steps of a client, one by one: for operators who want to know why clients cannot reach
//! a broker, this one or Kafka.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::options::{AdvertisedAddress, PORT};
use crate::protocol::apis::{API_VERSIONS, Api, find};
use crate::protocol::header::{read_response_header, write_request_header};
use crate::protocol::tables::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use crate::protocol::tables::metadata::{MetadataRequest, MetadataResponse};
use crate::protocol::wire::Message;
use crate::protocol::{Reader, Writer};

/// A failed step.
#[derive(Debug)]
pub struct CheckFailure {
    /// The step, in words.
    pub step: String,
    /// The cause of the failure.
    pub why: String,
    /// A suggestion, if any.
    pub advice: Option<String>,
}

/// The longest response that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

const METADATA: i16 = 3;
/// A version that names the cluster and that every broker supports that this program can talk to.
const METADATA_VERSION: i16 = 4;
const API_VERSIONS_VERSION: i16 = 0;

/// Asks the broker at `bootstrap`, `HOST:PORT` or `HOST`, for its cluster and connects to it. Calls
/// `report` after each successful step. No step takes longer than about `timeout`.
///
/// # Errors
/// [`CheckFailure`], for the first step that fails.
pub fn check(
    bootstrap: &str,
    timeout: Duration,
    report: &mut dyn FnMut(&str),
) -> Result<(), CheckFailure> {
    let address = bootstrap.parse::<AdvertisedAddress>();
    let address = address.map_err(|why| CheckFailure {
        step: format!("reading the address {bootstrap:?}"),
        why,
        advice: None,
    })?;
    let (host, port) = (address.host, address.port.unwrap_or(PORT));
    let (mut client, peer) = Client::connect(&host, port, timeout, None, report)?;
    let brokers = client.metadata(&host, port)?;
    report(&format!("Metadata: the cluster {brokers}"));
    for (node, advertised, port) in &brokers.nodes {
        let route = Advertised {
            node: *node,
            bootstrap: &host,
            peer,
        };
        let (mut there, _) = Client::connect(advertised, *port, timeout, Some(&route), report)?;
        let seen = there.metadata(advertised, *port)?;
        if seen.cluster_id != brokers.cluster_id {
            return Err(CheckFailure {
                step: format!("comparing {host} with {advertised}:{port}"),
                why: format!("that address leads to another cluster: {seen}"),
                advice: Some(format!(
                    "advertise an address that leads to broker {node}, not to another one"
                )),
            });
        }
        report(&format!("broker {node} is reached as {advertised}:{port}"));
    }
    Ok(())
}

/// An address from the metadata, with the node that it belongs to.
struct Advertised<'a> {
    node: i32,
    bootstrap: &'a str,
    peer: IpAddr,
}

/// The cluster as described by its metadata.
struct Cluster {
    cluster_id: Option<String>,
    nodes: Vec<(i32, String, u16)>,
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.cluster_id.as_deref().unwrap_or("without id");
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|(node, host, port)| format!("broker {node} at {host}:{port}"));
        write!(f, "{id} has {}", Vec::from_iter(nodes).join(", "))
    }
}

struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

impl Client {
    fn connect(
        host: &str,
        port: u16,
        timeout: Duration,
        advertised: Option<&Advertised<'_>>,
        report: &mut dyn FnMut(&str),
    ) -> Result<(Client, IpAddr), CheckFailure> {
        let whose = match advertised {
            Some(route) => format!(
                "the address {host}:{port} that broker {} advertises",
                route.node
            ),
            None => format!("{host}:{port}"),
        };
        let advice = |reason: ConnectAdvice| reason.text(advertised);
        let found = (host, port).to_socket_addrs();
        let found: Vec<SocketAddr> = match found {
            Ok(found) => found.collect(),
            Err(error) => {
                return Err(CheckFailure {
                    step: format!("looking up {whose}"),
                    why: error.to_string(),
                    advice: advice(ConnectAdvice::Name),
                });
            }
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in found {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    let set = stream
                        .set_read_timeout(Some(timeout))
                        .and_then(|()| stream.set_write_timeout(Some(timeout)));
                    set.map_err(|error| failure("connecting", &error, None))?;
                    if advertised.is_none() {
                        report(&format!("connected to {address}"));
                    }
                    let mut client = Client {
                        stream,
                        correlation_id: 0,
                    };
                    client.api_versions(host, port, report, advertised.is_none())?;
                    return Ok((client, address.ip()));
                }
                Err(error) => last = error,
            }
        }
        Err(CheckFailure {
            step: format!("connecting to {whose}"),
            why: last.to_string(),
            advice: advice(ConnectAdvice::Unreachable),
        })
    }

    fn api_versions(
        &mut self,
        host: &str,
        port: u16,
        report: &mut dyn FnMut(&str),
        is_first: bool,
    ) -> Result<(), CheckFailure> {
        let step = format!("asking {host}:{port} for ApiVersions");
        let request = ApiVersionsRequest::default();
        let answer = self.exchange(API_VERSIONS, API_VERSIONS_VERSION, &request);
        let answer = answer.map_err(|error| {
            let advice = "what listens there may speak TLS, or another protocol than Kafka's";
            failure(&step, &error, Some(advice))
        })?;
        let answer: ApiVersionsResponse<'_> = decoded(
            &answer,
            API_VERSIONS,
            API_VERSIONS_VERSION,
            self.correlation_id,
        )
        .map_err(|error| failure(&step, &error, Some("what listens there is no Kafka broker")))?;
        if is_first {
            report(&format!(
                "ApiVersions: {} kinds of requests",
                answer.api_keys.len()
            ));
        }
        Ok(())
    }

    fn metadata(&mut self, host: &str, port: u16) -> Result<Cluster, CheckFailure> {
        let step = format!("asking {host}:{port} for Metadata");
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            ..MetadataRequest::default()
        };
        let answer = self
            .exchange(METADATA, METADATA_VERSION, &request)
            .map_err(|error| {
                let advice = "a listener with SASL closes connections that do not authenticate";
                failure(&step, &error, Some(advice))
            })?;
        let answer: MetadataResponse<'_> =
            decoded(&answer, METADATA, METADATA_VERSION, self.correlation_id)
                .map_err(|error| failure(&step, &error, None))?;
        let nodes = answer.brokers.iter().map(|broker| {
            let port = u16::try_from(broker.port).unwrap_or(0);
            (broker.node_id, broker.host.to_owned(), port)
        });
        Ok(Cluster {
            cluster_id: answer.cluster_id.map(str::to_owned),
            nodes: nodes.collect(),
        })
    }

    /// Sends a request and returns the frame of its response.
    fn exchange<'m, M: Message<'m>>(
        &mut self,
        key: i16,
        version: i16,
        request: &M,
    ) -> io::Result<Vec<u8>> {
        self.correlation_id += 1;
        let api = api(key)?;
        let mut to = Writer::default();
        to.put(&[0; 4]);
        write_request_header(
            &mut to,
            api,
            version,
            self.correlation_id,
            "underpass-check",
        );
        let encoding = M::version(version).ok_or(io::ErrorKind::Unsupported)?;
        request.write(&mut to, encoding);
        let (mut frame, _) = to.into_parts();
        let length = i32::try_from(frame.len() - 4).unwrap_or(i32::MAX);
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > ANSWER_BYTES_MAX {
            let why = "the answer does not begin as one of Kafka's";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

fn api(key: i16) -> io::Result<&'static Api> {
    find(key).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn decoded<'a, M: Message<'a>>(
    answer: &'a [u8],
    key: i16,
    version: i16,
    correlation_id: i32,
) -> io::Result<M> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut from = Reader::new(answer);
    let shown = read_response_header(&mut from, api(key)?, version);
    let shown = shown.map_err(|error| invalid(error.to_string()))?;
    if shown != correlation_id {
        return Err(invalid("the answer is to another request".to_owned()));
    }
    let encoding = M::version(version).ok_or(io::ErrorKind::Unsupported)?;
    M::read(&mut from, encoding).map_err(|error| invalid(error.to_string()))
}

fn failure(step: &str, error: &io::Error, advice: Option<&str>) -> CheckFailure {
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => error.to_string(),
    };
    CheckFailure {
        step: step.to_owned(),
        why,
        advice: advice.map(str::to_owned),
    }
}

#[derive(Clone, Copy)]
enum ConnectAdvice {
    Name,
    Unreachable,
}

impl ConnectAdvice {
    /// Returns a suggestion for an operator.
    fn text(self, advertised: Option<&Advertised<'_>>) -> Option<String> {
        Some(match (self, advertised) {
            (_, Some(route)) => {
                let Advertised {
                    bootstrap, peer, ..
                } = route;
                format!(
                    "clients go where the broker sends them: have it advertise an address that \
                     works from here, such as {bootstrap} ({peer}); underpass broker takes \
                     --advertised HOST:PORT, Kafka advertised.listeners"
                )
            }
            (ConnectAdvice::Name, None) => "check the name, or use an address".to_owned(),
            (ConnectAdvice::Unreachable, None) => {
                "check that the broker runs, that it listens on this interface (underpass broker \
                 --listen :9092), and that no firewall is between"
                    .to_owned()
            }
        })
    }
}
