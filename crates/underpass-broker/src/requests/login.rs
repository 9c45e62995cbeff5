//! SaslHandshake and SaslAuthenticate.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use underpass::Piece;
use underpass_net::PeerAddress;

use crate::broker::BrokerWorker;
use crate::connection::response_queue::RequestOutcome;
use crate::protocol::DecodeError;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::tables::sasl_authenticate::{
    SaslAuthenticateRequest, SaslAuthenticateResponse,
};
use crate::protocol::tables::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use crate::requests::responder::{BegunResponse, Responder, Understood};
use crate::requests::route::ClientRoute;
use crate::security::login::{HandshakeRefused, LoginStep, SaslLogin, TokenForm};

/// The requests that clients send before they are logged in.
pub(super) const BEFORE_LOGIN: [&str; 3] = ["ApiVersions", "SaslHandshake", "SaslAuthenticate"];

/// The number of characters of an unknown mechanism that are logged.
const MECHANISM_CHARS_MAX: usize = 64;

const NO_LOGIN: &str = "this listener has no SASL; set security.protocol to PLAINTEXT or SSL";
const WRONG_ORDER: &str = "expected SaslHandshake before SaslAuthenticate";
/// Does not tell whether the user exists.
const FAILED: &str = "Authentication failed: invalid username or password";

impl BrokerWorker {
    /// Answers the requests of a login.
    pub(super) async fn respond_to_login(
        &self,
        request: Understood<'_>,
        route: &ClientRoute,
    ) -> Result<BegunResponse, DecodeError> {
        let responder = request.responder;
        let outcome = match (responder.api.name, &route.login) {
            ("SaslHandshake", Some(login)) => {
                let body: SaslHandshakeRequest<'_> = request.body()?;
                self.handshake(body.mechanism, login, (responder, route.peer))
            }
            ("SaslHandshake", None) => {
                let _body: SaslHandshakeRequest<'_> = request.body()?;
                self.report_unsupported((route, request.client_id), NO_LOGIN);
                let code = ErrorCode::IllegalSaslState;
                responder.whole(&handshake_response(code, Vec::new()))
            }
            (_, Some(login)) => {
                let body: SaslAuthenticateRequest<'_> = request.body()?;
                let step = self.step(login, body.auth_bytes, route.peer).await;
                authenticated(&step, responder)
            }
            (_, None) => {
                let _body: SaslAuthenticateRequest<'_> = request.body()?;
                let code = ErrorCode::IllegalSaslState;
                responder.whole(&refused(code, NO_LOGIN))
            }
        };
        Ok(BegunResponse::Made(outcome))
    }

    fn handshake(
        &self,
        mechanism: &str,
        login: &SaslLogin,
        (responder, peer): (Responder, PeerAddress),
    ) -> RequestOutcome {
        let form = match responder.version {
            0 => TokenForm::Bare,
            _ => TokenForm::Request,
        };
        let known = login.settings().mechanisms.iter();
        let known: Vec<_> = known.map(|mechanism| mechanism.name()).collect();
        let was_logged_in = login.principal(Instant::now()).is_some();
        match login.begin(mechanism, form, Instant::now()) {
            Ok(()) => responder.whole(&handshake_response(ErrorCode::None, known)),
            Err(HandshakeRefused::UnknownMechanism) => {
                let asked: String = mechanism.chars().take(MECHANISM_CHARS_MAX).collect();
                self.disconnections.warn(format_args!(
                    "{peer}: a login by {asked:?}; this listener has {}",
                    known.join(", ")
                ));
                let code = ErrorCode::UnsupportedSaslMechanism;
                responder.whole(&handshake_response(code, known)).last()
            }
            Err(HandshakeRefused::IllegalState) => {
                let code = ErrorCode::IllegalSaslState;
                let outcome = responder.whole(&handshake_response(code, Vec::new()));
                match was_logged_in && login.principal(Instant::now()).is_some() {
                    true => outcome,
                    false => outcome.last(),
                }
            }
        }
    }

    /// Takes a message of a mechanism. After a failure it waits, so that guesses are slow.
    async fn step(&self, login: &SaslLogin, token: &[u8], peer: PeerAddress) -> LoginStep {
        let by = (&self.broker.users, &self.broker.verifier);
        let step = login.step(token, Instant::now(), by).await;
        match &step {
            LoginStep::Failed(why) => {
                self.disconnections.warn(format_args!("{peer}: {why}"));
                sleep(login.settings().failure_delay).await;
            }
            LoginStep::IllegalState => {
                self.disconnections
                    .warn(format_args!("{peer}: {WRONG_ORDER}"));
            }
            LoginStep::Continue(_) | LoginStep::Done(..) => {}
        }
        step
    }

    /// Answers a message of a mechanism without a header, in the same form. Failures close the
    /// connection: there is no form for them.
    pub(super) async fn respond_to_bare_token(
        &self,
        token: &[u8],
        login: &SaslLogin,
        peer: PeerAddress,
    ) -> RequestOutcome {
        match self.step(login, token, peer).await {
            LoginStep::Continue(answer) | LoginStep::Done(answer, _) => {
                let length = u32::try_from(answer.len()).unwrap_or(u32::MAX);
                let frame = [&length.to_be_bytes()[..], &answer].concat();
                RequestOutcome::Frame(vec![Piece::Bytes(frame)])
            }
            LoginStep::Failed(_) | LoginStep::IllegalState => RequestOutcome::Close,
        }
    }
}

fn handshake_response(code: ErrorCode, mechanisms: Vec<&str>) -> SaslHandshakeResponse<'_> {
    SaslHandshakeResponse {
        error_code: code.number(),
        mechanisms,
    }
}

fn authenticated(step: &LoginStep, responder: Responder) -> RequestOutcome {
    let milliseconds = |lifetime: Duration| i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
    match step {
        LoginStep::Continue(answer) => responder.whole(&SaslAuthenticateResponse {
            auth_bytes: answer,
            ..SaslAuthenticateResponse::default()
        }),
        LoginStep::Done(answer, lifetime) => responder.whole(&SaslAuthenticateResponse {
            auth_bytes: answer,
            session_lifetime_ms: lifetime.map_or(0, milliseconds),
            ..SaslAuthenticateResponse::default()
        }),
        LoginStep::Failed(_) => {
            let code = ErrorCode::SaslAuthenticationFailed;
            responder.whole(&refused(code, FAILED)).last()
        }
        LoginStep::IllegalState => {
            let code = ErrorCode::IllegalSaslState;
            responder.whole(&refused(code, WRONG_ORDER)).last()
        }
    }
}

fn refused(code: ErrorCode, why: &str) -> SaslAuthenticateResponse<'_> {
    SaslAuthenticateResponse {
        error_code: code.number(),
        error_message: Some(why),
        ..SaslAuthenticateResponse::default()
    }
}
