//! The code of a waiting side: a proof of knowing it gets the ticket, and a wrong guess ends it.
//!
//! ```text
//!  code ── wrong guess ──► none ── delay, longer each time ──► next code
//! ```

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use blake3::Hash;
use underpass_http::status::Status;
use underpass_net::{ClientKey, PeerAddress};

use crate::code::TransferCode;
use crate::code::pake::{self, PAKE_BYTES, PakeKey};
use crate::error::Error;
use crate::listen::exchange::{Notice, RoleContext};
use crate::listen::request::{Request, ShortResponse};
use crate::profile;
use crate::progress::{TransferEvent, TransferProgress};
use crate::secret::{Prover, hex_of, hex_text};
use crate::ticket::Ticket;

/// The delay after the first wrong guess. It doubles with each one.
const DELAY_MIN: Duration = Duration::from_secs(1);

/// The longest delay: a year of guesses finds a code with a probability of 1 in 40,000.
const DELAY_MAX: Duration = Duration::from_secs(600);

/// The time for which an address is refused after its second wrong guess; four times as long after
/// each further one.
const BLOCKED_MIN: Duration = Duration::from_secs(10);

/// The longest time for which an address is refused.
const BLOCKED_MAX: Duration = Duration::from_secs(3600);

/// Addresses whose wrong guesses are remembered. The delays let no more arise within hours.
const ADDRESSES_MAX: usize = 256;

/// The code of a waiting side.
pub(super) struct CodeGuard {
    key_sha256: [u8; 32],
    /// The ticket, once the port is known.
    ticket: OnceLock<Ticket>,
    state: Mutex<GuardState>,
}

#[derive(Default)]
struct GuardState {
    /// The code; none after a wrong guess, until the delay is over.
    code: Option<TransferCode>,
    /// The number of codes so far.
    number: u32,
    wrong_guesses: u32,
    /// The end of the delay.
    renewed_at: Option<Instant>,
    offenders: VecDeque<Offender>,
}

/// An address that has guessed wrongly.
struct Offender {
    client: ClientKey,
    guesses: u32,
    blocked_until: Instant,
}

/// The exchange of one connection.
#[derive(Default)]
pub(super) enum CodeExchange {
    /// Nothing was said yet.
    #[default]
    New,
    /// The other side's confirmation is due, of a key for the code with this number.
    Unconfirmed(u32, PakeKey),
    /// A connection has one guess.
    Over,
}

impl CodeGuard {
    pub(super) fn new(key_sha256: [u8; 32]) -> CodeGuard {
        CodeGuard {
            key_sha256,
            ticket: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Makes a new code, and from now on gives this ticket to those who know it.
    pub(super) fn open(&self, ticket: &Ticket, progress: &TransferProgress) -> Result<(), Error> {
        self.ticket.get_or_init(|| ticket.clone());
        self.renew(progress)
    }

    /// Replaces the code, after the delay for a wrong guess.
    pub(super) fn renew(&self, progress: &TransferProgress) -> Result<(), Error> {
        let mut state = self.state();
        let number = state.number + 1;
        let code = TransferCode::random(number).map_err(|errno| Error::Local {
            doing: "making a code",
            errno,
        })?;
        (state.number, state.renewed_at) = (number, None);
        progress.record(TransferEvent::Code(code.clone()));
        state.code = Some(code);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one of the two requests of an exchange.
    pub(super) fn answer(
        &self,
        worker: &RoleContext,
        request: &Request,
        peer: PeerAddress,
        exchange: &mut CodeExchange,
    ) -> ShortResponse {
        let answered = match std::mem::replace(exchange, CodeExchange::Over) {
            CodeExchange::New => self.begin(request, peer).map(|(response, begun)| {
                *exchange = begun;
                response
            }),
            CodeExchange::Unconfirmed(number, key) => {
                self.confirm(worker, request, peer, (number, &key))
            }
            CodeExchange::Over => Err(bad("a connection has one exchange")),
        };
        answered.unwrap_or_else(|refusal| refusal)
    }

    /// Answers the first message of the exchange with the second one. Neither reveals anything
    /// about the code.
    fn begin(
        &self,
        request: &Request,
        peer: PeerAddress,
    ) -> Result<(ShortResponse, CodeExchange), ShortResponse> {
        let now = Instant::now();
        let (code, number) = {
            let state = self.state();
            if let Some(until) = client_of(peer).and_then(|client| state.blocked(client, now)) {
                let text = "too many wrong codes from this address";
                return Err(later(Status::TooManyRequests, text, until - now));
            }
            let Some(code) = state.code.clone() else {
                let left = state.renewed_at.map(|at| at.saturating_duration_since(now));
                let text = "the code is used up by a wrong one; the other side will show another";
                return Err(later(
                    Status::ServiceUnavailable,
                    text,
                    left.unwrap_or_default(),
                ));
            };
            (code, state.number)
        };
        if request.number(profile::CODE) != Some(u64::from(number)) {
            return Err(spent());
        }
        let malformed = || bad("the message of the exchange is malformed");
        let message = request.field(profile::PAKE).and_then(hex_of::<PAKE_BYTES>);
        let message = message.ok_or_else(malformed)?;
        let (exchange, answer) = pake::begin(Prover::Listener, &code, &self.key_sha256);
        let key = pake::finish(exchange, &message).ok_or_else(malformed)?;
        let response = ShortResponse::new(Status::NoContent, "");
        let response = response.with(profile::PAKE, hex_text(&answer));
        Ok((response, CodeExchange::Unconfirmed(number, key)))
    }

    /// Compares the other side's confirmation. The right one gets the ticket, a wrong one ends the
    /// code.
    fn confirm(
        &self,
        worker: &RoleContext,
        request: &Request,
        peer: PeerAddress,
        (number, key): (u32, &PakeKey),
    ) -> Result<ShortResponse, ShortResponse> {
        let proof = request.field(profile::PROOF).unwrap_or_default();
        let proof = Hash::from_hex(proof).map_err(|_| bad("the proof is malformed"))?;
        let mut state = self.state();
        // Another connection may have guessed meanwhile: a code has one guess in all.
        if state.code.is_none() || state.number != number {
            return Err(spent());
        }
        if proof != key.confirmation(Prover::Connector, b"") {
            let delay = state.burn(client_of(peer));
            let peer = peer.to_string();
            let progress = &worker.progress;
            progress.record(TransferEvent::WrongCode { peer, delay });
            // Nobody waits any more where the server stops anyway.
            let _ = worker.notices.send(Notice::CodeSpent(delay));
            let text = "the code is wrong; it is used up, and the other side will show another";
            return Err(ShortResponse::new(Status::Forbidden, text));
        }
        let ticket = self.ticket.get().map(Ticket::to_string).unwrap_or_default();
        let confirmation = key.confirmation(Prover::Listener, ticket.as_bytes());
        Ok(ShortResponse::new(Status::NoContent, "")
            .with(profile::PROOF, confirmation.to_hex())
            .with(profile::TICKET, ticket))
    }
}

impl GuardState {
    /// Ends the code after a wrong guess, and returns the time until the next one.
    fn burn(&mut self, client: Option<ClientKey>) -> Duration {
        let now = Instant::now();
        self.code = None;
        let delay = grown(DELAY_MIN, 2, self.wrong_guesses).min(DELAY_MAX);
        self.wrong_guesses = self.wrong_guesses.saturating_add(1);
        self.renewed_at = Some(now + delay);
        if let Some(client) = client {
            self.blame(client, now);
        }
        delay
    }

    /// Returns until when a client is refused.
    fn blocked(&self, client: ClientKey, now: Instant) -> Option<Instant> {
        let mut offenders = self.offenders.iter();
        let offender = offenders.find(|offender| offender.client == client)?;
        Some(offender.blocked_until).filter(|until| *until > now)
    }

    /// Counts a wrong guess of a client.
    fn blame(&mut self, client: ClientKey, now: Instant) {
        let known = self.offenders.iter().position(|one| one.client == client);
        let guesses = known
            .and_then(|index| self.offenders.remove(index))
            .map_or(0, |offender| offender.guesses);
        // The first one may be a mistake.
        let blocked = match guesses {
            0 => Duration::ZERO,
            before => grown(BLOCKED_MIN, 4, before - 1).min(BLOCKED_MAX),
        };
        if self.offenders.len() == ADDRESSES_MAX {
            self.offenders.pop_front();
        }
        self.offenders.push_back(Offender {
            client,
            guesses: guesses + 1,
            blocked_until: now + blocked,
        });
    }
}

fn client_of(peer: PeerAddress) -> Option<ClientKey> {
    match peer {
        PeerAddress::Tcp(address) => Some(ClientKey::of(address.ip())),
        PeerAddress::Unix => None,
    }
}

/// Returns `span` after it has grown so many times.
fn grown(span: Duration, factor: u32, times: u32) -> Duration {
    span.saturating_mul(factor.saturating_pow(times))
}

fn bad(text: &str) -> ShortResponse {
    ShortResponse::new(Status::BadRequest, text)
}

fn spent() -> ShortResponse {
    let text = "the code is used up; the other side shows another";
    ShortResponse::new(Status::Gone, text)
}

fn later(status: Status, text: &str, span: Duration) -> ShortResponse {
    let seconds = span.as_secs() + 1;
    let text = format!("{text}, in {seconds} s");
    ShortResponse::new(status, text).with("Retry-After", seconds)
}
