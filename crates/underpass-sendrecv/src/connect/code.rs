//! Exchanges a code for the ticket of the waiting side.

use std::net::SocketAddr;

use blake3::Hash;
use underpass_http::body::framing::Framing;
use underpass_net::ConnectionLimits;

use crate::code::TransferCode;
use crate::code::pake::{self, PAKE_BYTES};
use crate::connect::link::block_on;
use crate::connect::peer::{Ask, Peer, Reply};
use crate::error::Error;
use crate::profile;
use crate::secret::{Prover, hex_of, hex_text};
use crate::ticket::{Security, Ticket};

/// Proves to the side that waits at one of the addresses that this side knows its code. Returns its
/// ticket and the address that it was reached at. Blocks.
///
/// # Errors
/// [`Error::WrongCode`], [`Error::CodeRefused`], [`Error::Unreachable`], [`Error::Lost`]. Only one
/// that knows the code has learnt more than whether a single guess was right.
pub fn redeem(
    code: &TransferCode,
    addresses: &[SocketAddr],
    limits: &ConnectionLimits,
) -> Result<(Ticket, SocketAddr), Error> {
    block_on(async {
        let mut peer = Peer::unauthenticated(addresses, limits).await?;
        let exchanged = exchange(code, &mut peer).await;
        let address = peer.address();
        peer.connection.close().await;
        exchanged.map(|ticket| (ticket, address))
    })
}

async fn exchange(code: &TransferCode, peer: &mut Peer) -> Result<Ticket, Error> {
    let tls = peer.connection.tls();
    let key_sha256 = tls.and_then(|tls| tls.server_key);
    let key_sha256 = key_sha256.ok_or(Error::WrongCode)?;
    let (exchange, message) = pake::begin(Prover::Connector, code, &key_sha256);
    let fields = vec![
        (profile::CODE, code.number().to_string()),
        (profile::PAKE, hex_text(&message)),
    ];
    let reply = post(peer, fields).await?;
    let answer = reply.field(profile::PAKE).and_then(hex_of::<PAKE_BYTES>);
    let key = answer.and_then(|answer| pake::finish(exchange, &answer));
    let key = key.ok_or(Error::WrongCode)?;
    let proof = key.confirmation(Prover::Connector, b"").to_hex();
    let reply = post(peer, vec![(profile::PROOF, proof.to_string())]).await?;
    let text = reply.field(profile::TICKET).unwrap_or_default();
    let proof = reply
        .field(profile::PROOF)
        .and_then(|proof| Hash::from_hex(proof).ok());
    if proof != Some(key.confirmation(Prover::Listener, text)) {
        return Err(Error::WrongCode);
    }
    let ticket = str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<Ticket>().ok());
    // A ticket for another key would lead to somebody else.
    let is_of_peer = |ticket: &Ticket| ticket.security == Security::Encrypted { key_sha256 };
    ticket.filter(is_of_peer).ok_or(Error::WrongCode)
}

/// Sends one request of the exchange.
async fn post(peer: &mut Peer, fields: Vec<(&'static str, String)>) -> Result<Reply, Error> {
    let ask = Ask {
        method: "POST",
        name: Some(profile::CODE_NAME),
        suffix: "",
        framing: Framing::Empty,
        fields,
    };
    let reply = peer.fetch(&ask).await?;
    if reply.status == 204 {
        return Ok(reply);
    }
    Err(match peer.refusal(reply).await {
        Error::Refused { status: 403, .. } => Error::WrongCode,
        Error::Refused { why, .. } => Error::CodeRefused { why },
        Error::WrongSecret => Error::CodeRefused {
            why: "it does not wait with --code, or its transfer is complete".to_owned(),
        },
        error => error,
    })
}
