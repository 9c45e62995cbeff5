//! One request: read, authenticated and answered.

use std::time::Duration;

use underpass::Piece;
use underpass_http::body::chunked::ChunkedReader;
use underpass_http::body::framing::Framing;
use underpass_http::path::PathForm;
use underpass_http::persistence::Persistence;
use underpass_http::request::field_lines::FieldLines;
use underpass_http::request::head::{Expectation, HeadProgress, HeadScanner};
use underpass_http::request::request_line::{HttpTarget, Method, WriteMethod};
use underpass_http::status::{HttpError, Status};
use underpass_net::{Connection, ConnectionError, ReadOutcome, WhileDraining};

use crate::body::Body;
use crate::profile;
use crate::secret::{Nonces, Prover, Secret, hex_of, hex_text, random};

/// The time that a head may take to arrive after its first byte.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The method of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verb {
    Get,
    Head,
    Put,
    Post,
    Other,
}

/// A request, without its body.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    /// The names of the path.
    names: Vec<String>,
    /// Whether the path ends with a slash.
    pub(crate) form: PathForm,
    pub(crate) query: Option<String>,
    pub(crate) framing: Framing,
    pub(crate) expects: bool,
    pub(crate) closes: bool,
    /// Fields by lower-case name.
    fields: Vec<(String, Vec<u8>)>,
    /// Method and target, which proofs are about.
    line: Vec<u8>,
    is_encrypted: bool,
}

/// How a request was authenticated.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It has these names after the token.
    Granted(Vec<String>),
    /// It asks for the proof of this side, which it gets.
    Proof(ShortResponse),
    Denied,
}

/// The state of authentication of a connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    nonces: Option<Nonces>,
    /// Requests that were proven: each proof is for one.
    proven: u64,
}

/// A response with a short text.
#[derive(Clone, Debug)]
pub(crate) struct ShortResponse {
    pub(crate) status: Status,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) text: String,
}

impl ShortResponse {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> ShortResponse {
        ShortResponse {
            status,
            fields: Vec::new(),
            text: text.into(),
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> ShortResponse {
        self.fields.push((name, value.to_string()));
        self
    }

    /// Returns the head of the response, with a body of `length` bytes or a chunked one.
    pub(crate) fn head(&self, length: Option<u64>, closes: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {}\r\n", self.status.line());
        let mut push = |name: &str, value: &str| {
            head.push_str(&format!("{name}: {value}\r\n"));
        };
        push(profile::VERSION, profile::SPOKEN);
        push("Cache-Control", "no-store");
        for (name, value) in &self.fields {
            push(name, value);
        }
        match length {
            _ if self.status == Status::NoContent => {}
            Some(length) => push("Content-Length", &length.to_string()),
            None => push("Transfer-Encoding", "chunked"),
        }
        if closes {
            push("Connection", "close");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Sends it. A response to HEAD has no text.
    pub(crate) async fn send(
        mut self,
        connection: &mut Connection,
        (verb, closes): (Verb, bool),
    ) -> Result<(), ConnectionError> {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        if !self.text.is_empty() {
            self.fields
                .push(("Content-Type", "text/plain; charset=utf-8".to_owned()));
        }
        let mut bytes = self.head(Some(self.text.len() as u64), closes);
        if verb != Verb::Head && self.status != Status::NoContent {
            bytes.extend_from_slice(self.text.as_bytes());
        }
        connection.outbox().push(Piece::Bytes(bytes));
        connection.flush().await
    }
}

impl From<HttpError> for ShortResponse {
    fn from(error: HttpError) -> ShortResponse {
        ShortResponse::new(error.status, error.why)
    }
}

/// The end of a connection's requests.
pub(crate) enum NoRequest {
    /// The peer has closed, or sent nothing for long.
    End,
    /// The request is invalid.
    Invalid(HttpError),
    Failed,
}

impl Request {
    /// Waits for a request and reads its head.
    pub(crate) async fn read(connection: &mut Connection) -> Result<Request, NoRequest> {
        let mut scanner = HeadScanner::default();
        connection.start_idle_deadline();
        loop {
            if !connection.input().is_empty() {
                match scanner.advance(connection.input()) {
                    Ok(HeadProgress::Complete) => break,
                    Ok(HeadProgress::Partial) => {}
                    Err(error) => return Err(NoRequest::Invalid(error)),
                }
                connection.start_request_deadline(HEAD_TIMEOUT);
            }
            match connection.fill(WhileDraining::Ends).await {
                Ok(ReadOutcome::Bytes(_)) => {}
                Ok(ReadOutcome::End) => return Err(NoRequest::End),
                Err(ConnectionError::TimedOut) => return Err(NoRequest::End),
                Err(_) => return Err(NoRequest::Failed),
            }
        }
        let is_encrypted = connection.tls().is_some();
        let length = scanner.length();
        let head = &connection.input()[..length];
        let request = Request::parse(&scanner, head, is_encrypted);
        connection.consume(length);
        request.map_err(NoRequest::Invalid)
    }

    fn parse(scanner: &HeadScanner, head: &[u8], is_encrypted: bool) -> Result<Request, HttpError> {
        let parsed = scanner.parse(head)?;
        let HttpTarget::Path {
            path,
            spelling,
            query,
        } = &parsed.target
        else {
            return Err(HttpError::bad("the target is not a path"));
        };
        let (verb, method) = match parsed.method {
            Method::Get => (Verb::Get, "GET"),
            Method::Head => (Verb::Head, "HEAD"),
            Method::Write(WriteMethod::Put) => (Verb::Put, "PUT"),
            Method::Write(WriteMethod::Post) => (Verb::Post, "POST"),
            _ => (Verb::Other, ""),
        };
        let names = path
            .names()
            .map(|name| str::from_utf8(name).map(str::to_owned));
        let names: Result<Vec<_>, _> = names.collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Request {
            verb,
            names: names.map_err(|_| HttpError::bad("the path is not UTF-8"))?,
            form: path.form(),
            query: query.map(text),
            framing: parsed.framing,
            expects: match parsed.expect {
                Expectation::Nothing => false,
                Expectation::Continue => true,
                Expectation::Unknown => {
                    let status = Status::ExpectationFailed;
                    return Err(HttpError::new(status, "unknown expectation"));
                }
            },
            closes: parsed.persistence == Persistence::Close,
            fields: FieldLines::of(head)
                .iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()))
                .collect(),
            line: [
                method.as_bytes(),
                b" ",
                spelling,
                b"?",
                query.unwrap_or_default(),
            ]
            .concat(),
            is_encrypted,
        })
    }

    /// Returns whether it belongs to the exchange of a code, which has no token yet.
    pub(crate) fn is_for_code(&self) -> bool {
        let is_path = self.names == [profile::PROVEN, profile::CODE_NAME];
        is_path && self.verb == Verb::Post && self.is_encrypted && self.framing == Framing::Empty
    }

    /// Returns whether it reports the end of a transfer, on the path of the transfer itself.
    pub(crate) fn is_completion(&self, names: &[String]) -> bool {
        let is_report = self.query.as_deref() == Some("complete");
        self.verb == Verb::Post && names.is_empty() && is_report
    }

    /// Returns the value of a field that is there once.
    pub(crate) fn field(&self, name: &str) -> Option<&[u8]> {
        let mut found = self.fields.iter();
        let mut named = || found.find(|(one, _)| one.eq_ignore_ascii_case(name));
        let first = named()?;
        named().is_none().then(|| first.1.trim_ascii())
    }

    /// Returns the number in a field.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let value = str::from_utf8(self.field(name)?).ok()?;
        value
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| value.parse().ok())?
    }

    /// Returns the body, which has not been asked for if the client waits for that.
    pub(crate) fn body(&self) -> Body {
        match self.framing {
            Framing::Empty => Body::Length(0),
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(ChunkedReader::new()),
        }
    }

    /// Asks for the body, if the client waits for that.
    pub(crate) async fn invite(&self, connection: &mut Connection) -> Result<(), ConnectionError> {
        if self.expects && connection.input().is_empty() {
            let line = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
            connection.outbox().push(Piece::Bytes(line));
            connection.flush().await?;
        }
        Ok(())
    }

    /// Checks the token, or the proof of a connection without encryption.
    pub(crate) fn admit(&self, secret: &Secret, session: &mut Session) -> Admission {
        let Some((first, names)) = self.names.split_first() else {
            return Admission::Denied;
        };
        let is_same = |one: &[u8], other: &[u8]| blake3::hash(one) == blake3::hash(other);
        if is_same(first.as_bytes(), secret.token().as_bytes()) {
            return Admission::Granted(names.to_vec());
        }
        if first != profile::PROVEN || self.is_encrypted {
            return Admission::Denied;
        }
        if let Some(nonce) = self.field(profile::NONCE) {
            return prove(secret, session, nonce);
        }
        let Some(nonces) = &session.nonces else {
            return Admission::Denied;
        };
        let about = [&session.proven.to_be_bytes()[..], &self.line].concat();
        let expected = secret.proof(Prover::Connector, nonces, &about);
        let proof = self.field(profile::PROOF).unwrap_or_default();
        match blake3::Hash::from_hex(proof) {
            Ok(proof) if proof == expected => {
                session.proven += 1;
                Admission::Granted(names.to_vec())
            }
            _ => Admission::Denied,
        }
    }
}

/// Answers the nonce of the connecting side with our own, and the proof for both.
fn prove(secret: &Secret, session: &mut Session, nonce: &[u8]) -> Admission {
    let (Some(connector), Ok(listener)) = (hex_of(nonce), random()) else {
        return Admission::Denied;
    };
    let nonces = Nonces {
        connector,
        listener,
    };
    *session = Session {
        nonces: Some(nonces),
        proven: 0,
    };
    let proof = secret.proof(Prover::Listener, &nonces, b"");
    Admission::Proof(
        ShortResponse::new(Status::NoContent, "")
            .with(profile::NONCE, hex_text(&listener))
            .with(profile::PROOF, proof.to_hex()),
    )
}
