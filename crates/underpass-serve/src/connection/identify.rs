//! Identifies requesters.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use underpass_http::request::head::RequestHead;
use underpass_http::request::request_line::{HttpTarget, Method};
use underpass_http::scheme::Scheme;

use crate::access::credentials::{Credentials, Login};
use crate::access::grantee::Asker;
use crate::access::links::{LinkKey, PARAMETER, ShownLink, SignedParameter, cookies};
use crate::access::passwords::{LoginKey, PasswordFile};
use crate::access::permits::Permits;
use crate::access::store::SiteAccess;
use crate::access::verifier::LoginOutcome;
use crate::body::query::Query;
use crate::connection::worker::Worker;
use crate::record::exchange::Exchange;

/// The identification of a requester.
#[derive(Debug)]
pub(crate) enum Identified {
    /// Complete; `None` if everyone may read everything.
    Known(Option<Permits>),
    /// A password has to be verified first.
    Unverified(Box<UnverifiedLogin>),
}

/// A login that has to be verified, and the rest of the identity.
#[derive(Debug)]
pub(crate) struct UnverifiedLogin {
    site: usize,
    method: Method,
    asker: Asker,
    passwords: Arc<PasswordFile>,
    key: LoginKey,
    login: Login,
}

/// The delay before a retry when too many logins are waiting.
const BUSY_DELAY: Duration = Duration::from_secs(1);

impl Worker {
    /// Identifies the requester of an exchange, as far as possible without waiting. With `https`,
    /// the port that the request is redirected to, `Authorization` is ignored.
    pub(crate) fn identify(
        &self,
        (request, site): (&RequestHead<'_>, usize),
        exchange: &Exchange,
        https: Option<u16>,
    ) -> Identified {
        let sites = &self.shared.sites;
        let Some(access) = &sites.all[site].access else {
            return Identified::Known(None);
        };
        let mut logins = self.logins[site].borrow_mut();
        let present = logins.present(access);
        let (now, method) = (SystemTime::now(), request.method);
        let tls = exchange.tls.as_deref();
        let mut asker = Asker {
            certificate: tls.and_then(|tls| tls.client.as_deref()).map(Arc::from),
            ..Asker::at(exchange.client)
        };
        let signed;
        (asker.link, signed) = link(request, access, &present.link_keys, now);
        if let (Some(signed), None) = (signed, https) {
            let scheme = match tls {
                Some(_) => Scheme::Https,
                None => exchange.scheme,
            };
            let field = cookies::field(&signed, &asker.link, &request.target, scheme, now);
            asker.cookie = field.map(Arc::from);
        }
        let shown = request.fields.authorization.filter(|_| https.is_none());
        if let Some(value) = shown {
            let key = present.passwords.as_ref().map(|file| file.login_key(value));
            let known = key.and_then(|key| logins.verified.find(&key, Instant::now()));
            if known.is_some() {
                asker.user = known;
                return Identified::Known(Some(permits(access, asker, method)));
            }
            match Credentials::parse(value) {
                Some(Credentials::Bearer(token)) => {
                    asker.token = present.tokens.verify(token, now);
                }
                Some(Credentials::Basic(login)) => {
                    asker.token = present.tokens.verify(&login.password, now);
                    if let (None, Some(key), Some(file)) = (&asker.token, key, &present.passwords) {
                        return Identified::Unverified(Box::new(UnverifiedLogin {
                            site,
                            method,
                            asker,
                            passwords: Arc::clone(file),
                            key,
                            login,
                        }));
                    }
                }
                None => {}
            }
        }
        Identified::Known(Some(permits(access, asker, method)))
    }

    /// Verifies a login. Dropping the future cancels it.
    pub(crate) async fn verify(&self, login: UnverifiedLogin) -> Option<Permits> {
        let UnverifiedLogin {
            site,
            method,
            mut asker,
            passwords,
            key,
            login,
        } = login;
        let verifier = &self.shared.verifier;
        let outcome = verifier
            .verify(&passwords, login, key, asker.place.nearest())
            .await;
        self.metrics.logins[outcome.number()].add(1);
        match outcome {
            LoginOutcome::Verified(user) => {
                let mut logins = self.logins[site].borrow_mut();
                logins.verified.keep(key, Arc::clone(&user), Instant::now());
                asker.user = Some(user);
            }
            LoginOutcome::Wrong => {}
            LoginOutcome::Limited(delay) => asker.login_delay = Some(delay),
            LoginOutcome::Busy => asker.login_delay = Some(BUSY_DELAY),
        }
        let access = self.shared.sites.all[site].access.as_ref();
        access.map(|access| permits(access, asker, method))
    }
}

fn permits(access: &SiteAccess, asker: Asker, method: Method) -> Permits {
    Permits {
        rules: Arc::clone(&access.rules),
        asker: Arc::new(asker),
        method,
    }
}

/// Returns the link of a request, from its query or else the widest one of its cookies, and the
/// signature to set a cookie for. No cookie is set for a path that everyone may read: shared caches
/// may store that response with all its fields.
fn link(
    request: &RequestHead<'_>,
    access: &SiteAccess,
    keys: &[Arc<LinkKey>],
    now: SystemTime,
) -> (ShownLink, Option<SignedParameter>) {
    let HttpTarget::Path { path, query, .. } = &request.target else {
        return (ShownLink::None, None);
    };
    let verify = |signed: &SignedParameter| signed.verify(path, keys, now);
    let query = query.filter(|query| has_signature(query));
    let signed = query.and_then(|query| Query::parse(query).signed);
    let by_query = signed.as_ref().map_or(ShownLink::None, verify);
    if !access.options.link_cookies {
        return (by_query, None);
    }
    match (&by_query, request.fields.cookie.as_deref(), request.method) {
        (ShownLink::Valid(_), _, Method::Get | Method::Head) => (
            by_query,
            signed.filter(|_| !access.rules.is_open(path.bytes())),
        ),
        (ShownLink::None | ShownLink::Expired, Some(cookies), _) => {
            let by_cookies = cookies::shown(cookies).map(|signed| verify(&signed));
            let best = by_cookies.chain([by_query]).max_by_key(ShownLink::rank);
            (best.unwrap_or_default(), None)
        }
        _ => (by_query, None),
    }
}

/// Whether a query may hold a signature: most do not, and are not parsed twice.
fn has_signature(query: &[u8]) -> bool {
    query
        .windows(PARAMETER.len())
        .any(|window| window == PARAMETER.as_bytes())
}
