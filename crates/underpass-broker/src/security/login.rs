//! The login of a connection by SASL, and its repetition (KIP-368).
//!
//! ```text
//!  handshake ─► exchange ─► done ─► handshake ─► exchange ─► done, as the same user
//!      └───────────┴─► failed: the connection is closed
//! ```

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::security::plain;
use crate::security::principal::Principal;
use crate::security::scram::{ScramExchange, ScramMechanism, client_first};
use crate::security::users::Users;
use crate::security::verifier::PlainVerifier;

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SaslMechanism {
    Plain,
    Scram(ScramMechanism),
}

/// The logins of a listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LoginSettings {
    pub(crate) mechanisms: Vec<SaslMechanism>,
    /// The time after which clients must log in again, if there is one.
    pub(crate) lifetime: Option<Duration>,
    /// The time between a failed login and its response.
    pub(crate) failure_delay: Duration,
}

/// The login of a connection.
pub(crate) struct SaslLogin {
    settings: Arc<LoginSettings>,
    state: RefCell<LoginState>,
    deadline: Instant,
}

enum LoginState {
    Handshake,
    Exchange(SaslExchange),
    /// A message is being verified.
    Busy,
    Done(LoginSession),
    Failed,
}

/// A login that has begun.
struct SaslExchange {
    mechanism: SaslMechanism,
    form: TokenForm,
    scram: Option<ScramExchange>,
    /// The session that the login is to continue.
    earlier: Option<LoginSession>,
}

/// The result of a login.
#[derive(Clone, Debug)]
struct LoginSession {
    principal: Principal,
    mechanism: SaslMechanism,
    since: Instant,
    until: Option<Instant>,
}

/// The form of a mechanism's messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TokenForm {
    /// In SaslAuthenticate requests.
    Request,
    /// Without a header, after version 0 of SaslHandshake.
    Bare,
}

/// The reason why a login does not begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HandshakeRefused {
    UnknownMechanism,
    /// Another login has begun, or ended just now.
    IllegalState,
}

/// The result of a message.
#[derive(Debug)]
pub(crate) enum LoginStep {
    /// The exchange continues with this message.
    Continue(Vec<u8>),
    /// The client is who it claims to be. The last message, and the lifetime of the session.
    Done(Vec<u8>, Option<Duration>),
    /// The login has failed: the reason for the log, which may name the user.
    Failed(String),
    /// No login has begun.
    IllegalState,
}

/// The time limit for a login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The least time between two logins of a connection, as in Kafka.
const LOGIN_INTERVAL_MIN: Duration = Duration::from_secs(1);

impl SaslMechanism {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::Scram(mechanism) => mechanism.name(),
        }
    }
}

impl SaslLogin {
    pub(crate) fn new(settings: Arc<LoginSettings>) -> SaslLogin {
        SaslLogin {
            settings,
            state: RefCell::new(LoginState::Handshake),
            deadline: Instant::now() + LOGIN_TIMEOUT,
        }
    }

    pub(crate) fn settings(&self) -> &LoginSettings {
        &self.settings
    }

    /// Returns the user of the connection, if it is logged in and the session has not ended.
    pub(crate) fn principal(&self, now: Instant) -> Option<Principal> {
        match &*self.state.borrow() {
            LoginState::Done(session) => {
                let is_present = session.until.is_none_or(|until| now < until);
                is_present.then(|| session.principal.clone())
            }
            _ => None,
        }
    }

    /// Returns the end of the time for the first login, unless it is done.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &*self.state.borrow() {
            LoginState::Done(_) => None,
            LoginState::Exchange(exchange) if exchange.earlier.is_some() => None,
            _ => Some(self.deadline),
        }
    }

    /// Whether the next frame is a message of the mechanism without a header.
    pub(crate) fn expects_bare_token(&self) -> bool {
        match &*self.state.borrow() {
            LoginState::Exchange(exchange) => exchange.form == TokenForm::Bare,
            _ => false,
        }
    }

    /// Begins a login by a mechanism, or its repetition.
    ///
    /// # Errors
    /// [`HandshakeRefused`]: the login has failed, unless the client is logged in.
    pub(crate) fn begin(
        &self,
        mechanism: &str,
        form: TokenForm,
        now: Instant,
    ) -> Result<(), HandshakeRefused> {
        let mut state = self.state.borrow_mut();
        let earlier = match mem::replace(&mut *state, LoginState::Failed) {
            LoginState::Handshake => None,
            LoginState::Done(session) if now < session.since + LOGIN_INTERVAL_MIN => {
                *state = LoginState::Done(session);
                return Err(HandshakeRefused::IllegalState);
            }
            LoginState::Done(session) => Some(session),
            _ => return Err(HandshakeRefused::IllegalState),
        };
        let mut known = self.settings.mechanisms.iter();
        let mechanism = known.find(|known| known.name() == mechanism);
        let mechanism = *mechanism.ok_or(HandshakeRefused::UnknownMechanism)?;
        *state = LoginState::Exchange(SaslExchange {
            mechanism,
            form,
            scram: None,
            earlier,
        });
        Ok(())
    }

    /// Takes the next message of the mechanism.
    pub(crate) async fn step(
        &self,
        token: &[u8],
        now: Instant,
        (users, verifier): (&Users, &PlainVerifier),
    ) -> LoginStep {
        let before = self.state.replace(LoginState::Busy);
        let LoginState::Exchange(exchange) = before else {
            self.state.replace(LoginState::Failed);
            return LoginStep::IllegalState;
        };
        let name = exchange.mechanism.name();
        let taken = match exchange.mechanism {
            SaslMechanism::Plain => exchange.plain(token, users, verifier).await,
            SaslMechanism::Scram(mechanism) => exchange.scram(token, mechanism, users),
        };
        let taken = taken.and_then(|taken| self.taken(taken, now));
        let (state, step) = taken.unwrap_or_else(|why| {
            let why = format!("a login by {name} has failed: {why}");
            (LoginState::Failed, LoginStep::Failed(why))
        });
        let mut present = self.state.borrow_mut();
        // A message that has come meanwhile has ended the login.
        match &*present {
            LoginState::Busy => {
                *present = state;
                step
            }
            _ => LoginStep::IllegalState,
        }
    }

    /// Returns the state and the step that follow from a message.
    fn taken(&self, taken: Taken, now: Instant) -> Result<(LoginState, LoginStep), String> {
        let (exchange, user, answer) = match taken {
            Taken::Challenge(exchange, challenge) => {
                let state = LoginState::Exchange(exchange);
                return Ok((state, LoginStep::Continue(challenge)));
            }
            Taken::User(exchange, user, answer) => (exchange, user, answer),
        };
        let principal = Principal::user(&user);
        if let Some(earlier) = &exchange.earlier
            && (earlier.principal != principal || earlier.mechanism != exchange.mechanism)
        {
            let earlier = &earlier.principal;
            return Err(format!(
                "{user:?} cannot continue the session of {earlier:?}"
            ));
        }
        let (since, lifetime) = (now, self.settings.lifetime);
        let session = LoginSession {
            principal,
            mechanism: exchange.mechanism,
            since,
            until: lifetime.map(|lifetime| since + lifetime),
        };
        Ok((LoginState::Done(session), LoginStep::Done(answer, lifetime)))
    }
}

/// A message that was accepted.
enum Taken {
    Challenge(SaslExchange, Vec<u8>),
    /// The client is this user; the last message to it.
    User(SaslExchange, String, Vec<u8>),
}

impl SaslExchange {
    async fn plain(
        self,
        token: &[u8],
        users: &Users,
        verifier: &PlainVerifier,
    ) -> Result<Taken, String> {
        let login = plain::read(token)?;
        let found = users.credential(login.user, &ScramMechanism::ALL);
        match verifier.verify(found, login.password).await {
            true => Ok(Taken::User(self, login.user.to_owned(), Vec::new())),
            false => Err(format!(
                "wrong password of {:?}, or no such user",
                login.user
            )),
        }
    }

    fn scram(
        mut self,
        token: &[u8],
        mechanism: ScramMechanism,
        users: &Users,
    ) -> Result<Taken, String> {
        if let Some(scram) = self.scram.take() {
            let answer = scram.finish(token);
            let answer = answer.map_err(|why| format!("{:?}: {why}", scram.user))?;
            return Ok(Taken::User(self, scram.user, answer));
        }
        let first = client_first(token)?;
        let found = users.credential(&first.user, &[mechanism]);
        let (scram, challenge) = ScramExchange::begin(&first, mechanism, found.credential);
        self.scram = Some(scram);
        Ok(Taken::Challenge(self, challenge))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::scram::ScramCredential;
    use crate::security::users::UserCredentials;

    const PLAIN: SaslMechanism = SaslMechanism::Plain;
    const SCRAM: SaslMechanism = SaslMechanism::Scram(ScramMechanism::Sha256);

    struct Fixture {
        login: SaslLogin,
        users: Users,
        verifier: PlainVerifier,
    }

    fn fixture(lifetime: Option<Duration>) -> Fixture {
        let credential = |password: &[u8]| {
            let mechanism = ScramMechanism::Sha256;
            [(mechanism, ScramCredential::of_password(mechanism, password))].into()
        };
        let users = UserCredentials::from([
            ("anna".to_owned(), credential(b"secret")),
            ("ben".to_owned(), credential(b"other")),
        ]);
        let settings = LoginSettings {
            mechanisms: vec![PLAIN, SCRAM],
            lifetime,
            failure_delay: Duration::ZERO,
        };
        Fixture {
            login: SaslLogin::new(Arc::new(settings)),
            users: Users::new(users, UserCredentials::new(), [7; 32]),
            verifier: PlainVerifier::new(),
        }
    }

    impl Fixture {
        fn begin(&self, name: &str) -> Result<(), HandshakeRefused> {
            self.login.begin(name, TokenForm::Request, Instant::now())
        }

        async fn step(&self, token: &[u8]) -> LoginStep {
            let by = (&self.users, &self.verifier);
            self.login.step(token, Instant::now(), by).await
        }

        async fn plain(&self, token: &[u8], now: Instant) -> LoginStep {
            let begun = self.login.begin("PLAIN", TokenForm::Request, now);
            begun.unwrap();
            self.login
                .step(token, now, (&self.users, &self.verifier))
                .await
        }

        fn principal(&self) -> Option<Principal> {
            self.login.principal(Instant::now())
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn a_login_takes_a_handshake_and_a_right_password() {
        run(async {
            let one = fixture(None);
            assert_eq!(one.principal(), None);
            assert!(one.login.deadline().is_some());
            let step = one.plain(b"\0anna\0secret", Instant::now()).await;
            assert!(matches!(step, LoginStep::Done(last, None) if last.is_empty()));
            assert_eq!(one.principal(), Some(Principal::user("anna")));
            assert_eq!(one.login.deadline(), None);
            for token in [&b"\0anna\0guess"[..], b"\0carl\0secret", b"\0anna\0", b""] {
                let one = fixture(None);
                let step = one.plain(token, Instant::now()).await;
                let LoginStep::Failed(why) = step else {
                    panic!("{step:?}");
                };
                assert!(!why.contains("secret") && !why.contains("guess"), "{why}");
                assert_eq!(one.principal(), None);
                let again = one.begin("PLAIN");
                assert_eq!(again, Err(HandshakeRefused::IllegalState));
            }
        });
    }

    #[test]
    fn messages_out_of_turn_end_the_login() {
        run(async {
            let one = fixture(None);
            let step = one.step(b"\0anna\0secret").await;
            assert!(matches!(step, LoginStep::IllegalState));
            assert_eq!(one.begin("PLAIN"), Err(HandshakeRefused::IllegalState));
            let one = fixture(None);
            assert_eq!(one.begin("GSSAPI"), Err(HandshakeRefused::UnknownMechanism));
            assert_eq!(one.begin("PLAIN"), Err(HandshakeRefused::IllegalState));
            let one = fixture(None);
            assert_eq!(one.begin("PLAIN"), Ok(()));
            assert_eq!(one.begin("PLAIN"), Err(HandshakeRefused::IllegalState));
            let step = one.step(b"\0anna\0secret").await;
            assert!(matches!(step, LoginStep::IllegalState));
            // A second message while the first one is verified.
            let one = fixture(None);
            assert_eq!(one.begin("PLAIN"), Ok(()));
            let token = b"\0anna\0secret";
            let (first, second) = tokio::join!(one.step(token), one.step(token));
            assert!(matches!(first, LoginStep::IllegalState));
            assert!(matches!(second, LoginStep::IllegalState));
            assert_eq!(one.principal(), None);
        });
    }

    #[test]
    fn a_session_ends_unless_the_same_user_logs_in_again() {
        run(async {
            let (hour, start) = (Duration::from_secs(3600), Instant::now());
            let one = fixture(Some(hour));
            let at = |hours: f64| start + hour.mul_f64(hours);
            let step = one.plain(b"\0anna\0secret", at(0.0)).await;
            assert!(matches!(step, LoginStep::Done(_, Some(lifetime)) if lifetime == hour));
            let early = one.begin("PLAIN");
            assert_eq!(early, Err(HandshakeRefused::IllegalState));
            assert!(one.principal().is_some(), "that changes nothing");
            let step = one.plain(b"\0anna\0secret", at(0.5)).await;
            assert!(matches!(step, LoginStep::Done(..)));
            assert!(one.login.principal(at(1.2)).is_some());
            assert_eq!(one.login.principal(at(1.6)), None);
            let step = one.plain(b"\0anna\0secret", at(1.7)).await;
            assert!(
                matches!(step, LoginStep::Done(..)),
                "late, but it is the first request"
            );
            let step = one.plain(b"\0ben\0other", at(2.0)).await;
            assert!(matches!(step, LoginStep::Failed(_)), "{step:?}");
            assert_eq!(one.principal(), None);
        });
    }
}
