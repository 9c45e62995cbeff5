//! A connection to a waiting side, and the requests on it.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use underpass::{Piece, Policy};
use underpass_http::body::chunked::ChunkedReader;
use underpass_http::body::framing::Framing;
use underpass_http::error::MessageError;
use underpass_http::path::encode_path;
use underpass_http::persistence::Persistence;
use underpass_http::request::writer::RequestHeadWriter;
use underpass_http::response::framing::{ResponseFraming, ResponseTo};
use underpass_http::response::head::{ResponseProgress, ResponseScanner};
use underpass_net::{
    Address, Connection, ConnectionError, ConnectionLimits, Connector, HandshakeError, ReadOutcome,
    ServerKey, TlsConnector, WhileDraining,
};

use crate::body::{Body, BodyReadError};
use crate::connect::options::ConnectOptions;
use crate::error::{Error, shown};
use crate::profile;
use crate::secret::{Nonces, Prover, Secret, hex_of, hex_text, random};
use crate::ticket::Security;

/// The time that an attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Between the starts of attempts to several addresses (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// The time that a response may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that the response to a body may take: the receiver syncs the file first.
const STORED_TIMEOUT: Duration = Duration::from_secs(600);

/// The time to wait for a response after the peer has stopped taking the request.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);

const HEAD_BYTES_MAX: usize = 32 << 10;

/// Bytes of a response's text.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 10;

/// A connection to a waiting side.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    address: SocketAddr,
    /// The first name of paths.
    first: String,
    /// On connections without encryption, after both sides have proven that they know the secret.
    proofs: Option<Proofs>,
    is_spent: bool,
}

/// The content of a connection's proofs.
struct Proofs {
    secret: Secret,
    nonces: Nonces,
    /// Requests that were proven.
    proven: u64,
}

/// A request.
pub(crate) struct Ask<'r> {
    pub(crate) method: &'static str,
    /// The name of an item, none for the transfer itself.
    pub(crate) name: Option<&'r str>,
    /// The part after the name: a slash for a tree, or a query.
    pub(crate) suffix: &'static str,
    pub(crate) framing: Framing,
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// A response, whose body follows.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Body,
}

impl Reply {
    pub(crate) fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(one, _)| one.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &value[..])
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        str::from_utf8(self.field(name)?).ok()?.parse().ok()
    }
}

/// The result of one attempt to connect.
type DialAttempt = (SocketAddr, Result<Connection, Failure>);

enum Failure {
    Unreachable(String),
    WrongKey,
}

impl Peer {
    /// Connects to the first address that answers with the right key.
    pub(crate) async fn dial(options: &ConnectOptions) -> Result<Peer, Error> {
        let ticket = &options.ticket;
        let addresses = match options.to.is_empty() {
            true => ticket.sockets().collect(),
            false => options.to.clone(),
        };
        let (key, first) = match ticket.security {
            Security::Encrypted { key_sha256 } => {
                (Some(ServerKey::Pinned(key_sha256)), ticket.secret.token())
            }
            Security::Plain => (None, profile::PROVEN.to_owned()),
        };
        let mut peer = Peer::connect(addresses, key, first, &options.limits).await?;
        if ticket.security == Security::Plain {
            peer.prove(&ticket.secret).await?;
        }
        Ok(peer)
    }

    /// Connects to the first address that answers, with encryption, and with whatever key it has.
    pub(super) async fn unauthenticated(
        addresses: &[SocketAddr],
        limits: &ConnectionLimits,
    ) -> Result<Peer, Error> {
        let first = profile::PROVEN.to_owned();
        Peer::connect(addresses.to_vec(), Some(ServerKey::Any), first, limits).await
    }

    async fn connect(
        addresses: Vec<SocketAddr>,
        key: Option<ServerKey>,
        first: String,
        limits: &ConnectionLimits,
    ) -> Result<Peer, Error> {
        let connector = Connector::new(Policy::default(), limits);
        let (address, connection) = first_of(&connector, key, addresses).await?;
        Ok(Peer {
            connection,
            address,
            first,
            proofs: None,
            is_spent: false,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether no further request can be sent.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Exchanges nonces and checks that the peer knows the secret.
    async fn prove(&mut self, secret: &Secret) -> Result<(), Error> {
        let connector = random().map_err(|errno| Error::Local {
            doing: "making a nonce",
            errno,
        })?;
        let ask = Ask {
            method: "GET",
            name: None,
            suffix: "",
            framing: Framing::Empty,
            fields: vec![(profile::NONCE, hex_text(&connector))],
        };
        self.ask(&ask)?;
        self.connection.flush().await?;
        let reply = self.reply(ResponseTo::Other).await?;
        let listener = reply.field(profile::NONCE).and_then(hex_of);
        let listener = listener.ok_or(Error::WrongSecret)?;
        let nonces = Nonces {
            connector,
            listener,
        };
        let expected = secret.proof(Prover::Listener, &nonces, b"");
        let found = reply.field(profile::PROOF);
        let found = found.and_then(|text| blake3::Hash::from_hex(text).ok());
        if found != Some(expected) {
            return Err(Error::WrongSecret);
        }
        self.proofs = Some(Proofs {
            secret: secret.clone(),
            nonces,
            proven: 0,
        });
        Ok(())
    }

    /// Puts the head of a request into the outbox.
    pub(crate) fn ask(&mut self, ask: &Ask<'_>) -> Result<(), Error> {
        let mut target = format!("/{}/", self.first).into_bytes();
        encode_path(ask.name.unwrap_or_default().as_bytes(), &mut target);
        target.extend_from_slice(ask.suffix.as_bytes());
        let target = String::from_utf8_lossy(&target).into_owned();
        let authority = self.address.to_string();
        let framing = ask.framing;
        let head = RequestHeadWriter::new(ask.method, &target, &authority, framing);
        let mut head = head.map_err(invalid)?;
        let mut push = |name: &str, value: &str| head.field(name, value.as_bytes());
        push(profile::VERSION, profile::SPOKEN).map_err(invalid)?;
        for (name, value) in &ask.fields {
            push(name, value).map_err(invalid)?;
        }
        if let Some(proofs) = &mut self.proofs {
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let line = format!("{} {path}?{query}", ask.method);
            let about = [&proofs.proven.to_be_bytes()[..], line.as_bytes()].concat();
            let nonces = &proofs.nonces;
            let proof = proofs.secret.proof(Prover::Connector, nonces, &about);
            push(profile::PROOF, &proof.to_hex()).map_err(invalid)?;
            proofs.proven += 1;
        }
        self.connection.outbox().push(Piece::Bytes(head.finish()));
        Ok(())
    }

    /// Sends a request without a body, and reads the head of its response.
    pub(crate) async fn fetch(&mut self, ask: &Ask<'_>) -> Result<Reply, Error> {
        self.ask(ask)?;
        self.connection.flush().await?;
        let to = match ask.method {
            "HEAD" => ResponseTo::Head,
            _ => ResponseTo::Other,
        };
        self.next_reply(to, REPLY_TIMEOUT, Interim::Skipped).await
    }

    /// Reports that everything is stored, and that this side knows it.
    pub(crate) async fn complete(&mut self) -> Result<(), Error> {
        let ask = Ask {
            method: "POST",
            name: None,
            suffix: "?complete",
            framing: Framing::Empty,
            fields: Vec::new(),
        };
        let reply = self.fetch(&ask).await?;
        match reply.status {
            204 => Ok(()),
            _ => Err(self.refusal(reply).await),
        }
    }

    /// Reads the head of the response to a body.
    pub(crate) async fn reply(&mut self, to: ResponseTo) -> Result<Reply, Error> {
        self.next_reply(to, STORED_TIMEOUT, Interim::Skipped).await
    }

    /// Waits until the peer asks for the body, by an interim response or by silence; returns its
    /// response if it does not want the body.
    pub(crate) async fn invitation(&mut self) -> Result<Option<Reply>, Error> {
        let to = ResponseTo::Other;
        let reply = self
            .next_reply(to, LAST_WORDS_TIMEOUT, Interim::Awaited)
            .await;
        match reply {
            Ok(reply) if reply.status == 100 => Ok(None),
            Ok(reply) => Ok(Some(reply)),
            Err(Error::Lost { .. }) if !self.is_spent => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the response to a request whose body the peer has stopped taking, if it has sent
    /// one.
    pub(crate) async fn last_words(&mut self) -> Option<Reply> {
        let to = ResponseTo::Other;
        let reply = self
            .next_reply(to, LAST_WORDS_TIMEOUT, Interim::Skipped)
            .await;
        self.is_spent = true;
        reply.ok()
    }

    async fn next_reply(
        &mut self,
        to: ResponseTo,
        timeout: Duration,
        interim: Interim,
    ) -> Result<Reply, Error> {
        let mut scanner = ResponseScanner::new(HEAD_BYTES_MAX);
        self.connection.start_deadline(timeout);
        loop {
            match scanner.advance(self.connection.input()) {
                Ok(ResponseProgress::Partial) => match self.fill().await {
                    Err(ConnectionError::TimedOut) => {
                        return Err(Error::Lost {
                            why: "the other side does not answer".to_owned(),
                        });
                    }
                    filled => filled.map_err(|error| {
                        self.is_spent = true;
                        Error::from(error)
                    })?,
                },
                Ok(ResponseProgress::Complete) => {
                    let length = scanner.length();
                    let head = &self.connection.input()[..length];
                    let parsed = scanner.parse(head).map_err(invalid)?;
                    let is_interim = parsed.is_interim();
                    let (reply, persistence) = reply_of(&parsed, to)?;
                    self.connection.consume(length);
                    if is_interim && interim == Interim::Skipped {
                        scanner.restart().map_err(invalid)?;
                        continue;
                    }
                    self.is_spent |= persistence == Persistence::Close;
                    return known(reply);
                }
                Err(error) => return Err(invalid(error)),
            }
        }
    }

    async fn fill(&mut self) -> Result<(), ConnectionError> {
        match self.connection.fill(WhileDraining::Continues).await? {
            ReadOutcome::Bytes(_) => Ok(()),
            ReadOutcome::End => Err(ConnectionError::PeerGone),
        }
    }

    /// Reads the text of a response, and returns it as a refusal.
    pub(crate) async fn refusal(&mut self, mut reply: Reply) -> Error {
        let text = reply.body.text(&mut self.connection, TEXT_BYTES_MAX).await;
        let text = text.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let why = shown(text.trim());
        self.is_spent = true;
        match reply.status {
            404 => Error::WrongSecret,
            412 => Error::Version {
                version: reply
                    .field(profile::VERSION)
                    .map_or("another".to_owned(), |version| {
                        String::from_utf8_lossy(version).escape_debug().to_string()
                    }),
            },
            status => Error::Refused { status, why },
        }
    }

    /// Reads the whole text of a successful response.
    pub(crate) async fn text(
        &mut self,
        mut reply: Reply,
        bytes_max: usize,
    ) -> Result<String, Error> {
        let text = reply.body.text(&mut self.connection, bytes_max).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Whether interim responses are returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Interim {
    Skipped,
    Awaited,
}

fn reply_of(
    head: &underpass_http::response::head::ResponseHead<'_>,
    to: ResponseTo,
) -> Result<(Reply, Persistence), Error> {
    let framing = ResponseFraming::of(head, to).map_err(invalid)?;
    let names = [
        profile::VERSION,
        profile::SOURCE,
        profile::OFFSET,
        profile::POSITION,
        profile::NONCE,
        profile::PROOF,
        profile::PAKE,
        profile::TICKET,
        "Content-Range",
        "Content-Length",
    ];
    let mut fields = Vec::new();
    for name in names {
        if let Some(value) = head.all(name).next() {
            fields.push((name.to_owned(), value.to_vec()));
        }
    }
    let body = match framing {
        ResponseFraming::None => Body::Length(0),
        ResponseFraming::Length(length) => Body::Length(length),
        ResponseFraming::Chunked => Body::Chunked(ChunkedReader::new()),
        ResponseFraming::UntilClose => return Err(invalid(MessageError::ContentLength)),
    };
    let reply = Reply {
        status: head.status,
        fields,
        body,
    };
    Ok((reply, head.persistence()))
}

/// Refuses responses of another version of the profile, and of servers that do not know it.
fn known(reply: Reply) -> Result<Reply, Error> {
    match reply.field(profile::VERSION) {
        _ if reply.status < 200 => Ok(reply),
        Some(version) if version == profile::SPOKEN.as_bytes() => Ok(reply),
        Some(version) => Err(Error::Version {
            version: String::from_utf8_lossy(version).escape_debug().to_string(),
        }),
        None => Err(Error::Refused {
            status: reply.status,
            why: "it is another HTTP server".to_owned(),
        }),
    }
}

pub(crate) fn invalid(error: MessageError) -> Error {
    Error::Refused {
        status: 0,
        why: format!("its response is invalid: {error}"),
    }
}

impl From<BodyReadError> for Error {
    fn from(error: BodyReadError) -> Error {
        match error {
            BodyReadError::Invalid(error) => Error::Refused {
                status: 0,
                why: format!("its body is invalid: {}", error.why),
            },
            BodyReadError::Connection(error) => error.into(),
        }
    }
}

/// Returns the first connection that is made; attempts start one after another and then run at the
/// same time.
async fn first_of(
    connector: &Connector,
    key: Option<ServerKey>,
    addresses: Vec<SocketAddr>,
) -> Result<(SocketAddr, Connection), Error> {
    let mut attempts: Vec<Pin<Box<dyn Future<Output = DialAttempt> + '_>>> = Vec::new();
    for (index, address) in addresses.into_iter().enumerate() {
        attempts.push(Box::pin(async move {
            tokio::time::sleep(STAGGER * u32::try_from(index).unwrap_or(u32::MAX)).await;
            (address, attempt(connector, key, address).await)
        }));
    }
    let (mut tried, mut wrong) = (Vec::new(), None);
    while !attempts.is_empty() {
        let next = poll_fn(|task| {
            for (index, attempt) in attempts.iter_mut().enumerate() {
                if let Poll::Ready(done) = attempt.as_mut().poll(task) {
                    return Poll::Ready((index, done));
                }
            }
            Poll::Pending
        });
        let (index, (address, done)) = next.await;
        drop(attempts.swap_remove(index));
        match done {
            Ok(connection) => return Ok((address, connection)),
            Err(Failure::WrongKey) => wrong = Some(address),
            Err(Failure::Unreachable(why)) => tried.push((address, why)),
        }
    }
    match wrong {
        Some(peer) => Err(Error::WrongKey { peer }),
        None => Err(Error::Unreachable { tried }),
    }
}

async fn attempt(
    connector: &Connector,
    key: Option<ServerKey>,
    address: SocketAddr,
) -> Result<Connection, Failure> {
    let to = Address::Tcp(address);
    let connected = connector.connect(&to, CONNECT_TIMEOUT).await;
    let mut connection = connected.map_err(|error| match error {
        ConnectionError::TimedOut => Failure::Unreachable("no answer".to_owned()),
        error => Failure::Unreachable(error.to_string()),
    })?;
    let Some(key) = key else {
        return Ok(connection);
    };
    let client = TlsConnector::new(key);
    let client = client.map_err(|error| Failure::Unreachable(error.to_string()))?;
    match connection.start_tls(&client).await {
        Ok(()) => Ok(connection),
        Err(HandshakeError::WrongKey) => {
            connection.close().await;
            Err(Failure::WrongKey)
        }
        Err(error) => Err(Failure::Unreachable(format!("no TLS: {error}"))),
    }
}
