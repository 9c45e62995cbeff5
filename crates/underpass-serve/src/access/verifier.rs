//! Verifies passwords on low-priority threads.
//!
//! ```text
//!  worker ─► known? waited for? ─► an attempt of the client ─► queue ─► thread (nice 10) ─► worker
//!                                     none: come back later     full: come back later
//! ```
//!
//! A hash is slow to compute, so that stolen files are useless; an attacker can exploit that cost.
//! A flood of wrong passwords is therefore limited to idle processor time, a queue of bounded
//! length, and a bounded number of attempts per client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::process::setpriority_process;
use tokio::sync::oneshot;

use crate::access::credentials::Login;
use crate::access::failures::LoginFailures;
use crate::access::passwords::{LoginKey, PasswordFile};
use crate::error::{Error, start_thread};
use crate::limits::{LOGIN_KEPT, LOGIN_THREADS_MAX, LOGINS_KEPT_MAX, LOGINS_WAITING_MAX};

/// The result of a login attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum LoginOutcome {
    /// The password belongs to this user.
    Verified(Arc<str>),
    Wrong,
    /// Not verified: the client has sent too many wrong passwords. The time until the next attempt.
    Limited(Duration),
    /// Not verified: the queue is full.
    Busy,
}

impl LoginOutcome {
    /// The names in metrics.
    pub(crate) const NAMES: [&str; 4] = ["verified", "wrong", "limited", "busy"];

    /// Returns the index into [`LoginOutcome::NAMES`].
    pub(crate) fn number(&self) -> usize {
        match self {
            LoginOutcome::Verified(_) => 0,
            LoginOutcome::Wrong => 1,
            LoginOutcome::Limited(_) => 2,
            LoginOutcome::Busy => 3,
        }
    }
}

/// Recently verified logins.
#[derive(Debug, Default)]
pub(crate) struct VerifiedLogins(HashMap<LoginKey, (Arc<str>, Instant)>);

/// The password verification threads of a server; none until started.
#[derive(Debug, Default)]
pub(crate) struct PasswordVerifier {
    queue: Mutex<Option<Sender<LoginJob>>>,
    shared: Arc<VerifierState>,
}

#[derive(Debug, Default)]
struct VerifierState {
    logins: Mutex<PendingLogins>,
    failures: LoginFailures,
}

/// Recently verified logins, and the requests that wait for others.
#[derive(Debug, Default)]
struct PendingLogins {
    verified: VerifiedLogins,
    waiting: HashMap<LoginKey, Vec<oneshot::Sender<Option<Arc<str>>>>>,
}

#[derive(Debug)]
struct LoginJob {
    passwords: Arc<PasswordFile>,
    login: Login,
    key: LoginKey,
    client: Option<IpAddr>,
}

impl VerifiedLogins {
    /// Returns the user of a login that was verified or found shortly before `now`. Each use renews
    /// it, so that active users stay logged in while others guess passwords.
    pub(crate) fn find(&mut self, key: &LoginKey, now: Instant) -> Option<Arc<str>> {
        let (user, until) = self.0.get_mut(key)?;
        if *until <= now {
            return None;
        }
        *until = now + LOGIN_KEPT;
        Some(Arc::clone(user))
    }

    /// Remembers a login, replacing expired ones, or all if the table is full.
    pub(crate) fn keep(&mut self, key: LoginKey, user: Arc<str>, now: Instant) {
        if self.0.len() >= LOGINS_KEPT_MAX {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() >= LOGINS_KEPT_MAX {
            self.0.clear();
        }
        self.0.insert(key, (user, now + LOGIN_KEPT));
    }
}

impl PasswordVerifier {
    /// Starts the threads unless they are running.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub(crate) fn start(&self) -> Result<(), Error> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.is_some() {
            return Ok(());
        }
        let (sender, receiver) = bounded(LOGINS_WAITING_MAX);
        for _ in 0..(underpass_net::cores() / 2).clamp(1, LOGIN_THREADS_MAX) {
            let (receiver, shared) = (receiver.clone(), Arc::clone(&self.shared));
            let doing = "start a thread that verifies passwords";
            start_thread("passwords", doing, move || shared.run(&receiver))?;
        }
        *queue = Some(sender);
        Ok(())
    }

    /// Verifies a login of a client; if the same login is already being verified, waits for that
    /// result. Dropping the future stops waiting.
    pub(crate) async fn verify(
        &self,
        passwords: &Arc<PasswordFile>,
        login: Login,
        key: LoginKey,
        client: Option<IpAddr>,
    ) -> LoginOutcome {
        let job = LoginJob {
            passwords: Arc::clone(passwords),
            login,
            key,
            client,
        };
        let answer = match self.submit(job) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        match answer.await {
            Ok(Some(user)) => LoginOutcome::Verified(user),
            Ok(None) => LoginOutcome::Wrong,
            Err(_) => LoginOutcome::Busy,
        }
    }

    /// Queues a login and returns the receiver of its result, or an outcome known already.
    fn submit(&self, job: LoginJob) -> Result<oneshot::Receiver<Option<Arc<str>>>, LoginOutcome> {
        let (now, key, client) = (Instant::now(), job.key, job.client);
        let mut logins = self.shared.lock();
        if let Some(user) = logins.verified.find(&key, now) {
            return Err(LoginOutcome::Verified(user));
        }
        let (reply, answer) = oneshot::channel();
        if let Some(waiting) = logins.waiting.get_mut(&key) {
            waiting.push(reply);
            return Ok(answer);
        }
        let failures = &self.shared.failures;
        failures.take(client, now).map_err(LoginOutcome::Limited)?;
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let is_queued = |queue: &Sender<LoginJob>| queue.try_send(job).is_ok();
        if !queue.as_ref().is_some_and(is_queued) {
            failures.give_back(client, now);
            return Err(LoginOutcome::Busy);
        }
        logins.waiting.insert(key, vec![reply]);
        Ok(answer)
    }
}

impl VerifierState {
    fn lock(&self) -> MutexGuard<'_, PendingLogins> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, queue: &Receiver<LoginJob>) {
        // On Linux, this applies to the calling thread only.
        if let Err(error) = setpriority_process(None, LOW_PRIORITY) {
            tracing::warn!("passwords are verified with the priority of all other work: {error}");
        }
        for job in queue {
            if self.is_given_up(&job.key) {
                continue;
            }
            let user = job.passwords.verify(&job.login.user, &job.login.password);
            let mut logins = self.lock();
            if let Some(user) = &user {
                let now = Instant::now();
                logins.verified.keep(job.key, Arc::clone(user), now);
                self.failures.give_back(job.client, now);
            }
            for reply in logins.waiting.remove(&job.key).unwrap_or_default() {
                // The requester may be gone.
                let _ = reply.send(user.clone());
            }
        }
    }

    /// Whether no request waits for the login; if so, removes its entry.
    fn is_given_up(&self, key: &LoginKey) -> bool {
        let mut logins = self.lock();
        let waiting = logins.waiting.get(key);
        let is_given_up = waiting.is_none_or(|all| all.iter().all(oneshot::Sender::is_closed));
        if is_given_up {
            logins.waiting.remove(key);
        }
        is_given_up
    }
}

/// See nice(2): a tenth of a contended processor, so that logins still proceed on a busy machine.
const LOW_PRIORITY: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LOGIN_FAILURES_AT_ONCE;

    fn passwords() -> Arc<PasswordFile> {
        let hash = bcrypt::hash_with_salt("right", 4, *b"0123456789abcdef").unwrap();
        let line = format!("anna:{}", hash.format_for_version(bcrypt::Version::TwoY));
        Arc::new(PasswordFile::parse(&line).unwrap())
    }

    fn login(password: &str) -> Login {
        Login {
            user: "anna".to_owned(),
            password: password.as_bytes().to_vec().into(),
        }
    }

    #[test]
    fn the_same_login_many_times_at_once_is_one_attempt() {
        let verifier = PasswordVerifier::default();
        let passwords = passwords();
        let submit = |password: &str| {
            let job = LoginJob {
                passwords: Arc::clone(&passwords),
                login: login(password),
                key: passwords.login_key(password.as_bytes()),
                client: None,
            };
            verifier.submit(job)
        };
        let (sender, queue) = bounded(LOGINS_WAITING_MAX);
        *verifier.queue.lock().unwrap() = Some(sender);
        let right: Vec<_> = (0..3 * LOGIN_FAILURES_AT_ONCE)
            .map(|_| submit("right").unwrap())
            .collect();
        let wrong: Vec<_> = (0..3).map(|_| submit("wrong").unwrap()).collect();
        drop(submit("given up").unwrap());
        assert_eq!(queue.len(), 3);
        *verifier.queue.lock().unwrap() = None;
        verifier.shared.run(&queue);
        for answer in right {
            assert_eq!(block_on(answer).unwrap().as_deref(), Some("anna"));
        }
        for answer in wrong {
            assert_eq!(block_on(answer).unwrap(), None);
        }
        assert!(verifier.shared.lock().waiting.is_empty());
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn right_and_wrong_passwords_are_told_apart() {
        let verifier = PasswordVerifier::default();
        verifier.start().unwrap();
        let passwords = passwords();
        let verify = |password: &str| {
            let key = passwords.login_key(password.as_bytes());
            block_on(verifier.verify(&passwords, login(password), key, None))
        };
        for _ in 0..3 * LOGIN_FAILURES_AT_ONCE {
            let right = LoginOutcome::Verified("anna".into());
            assert_eq!(verify("right"), right);
        }
        assert_eq!(verify("wrong"), LoginOutcome::Wrong);
    }

    #[test]
    fn each_client_has_a_bounded_number_of_attempts() {
        let verifier = PasswordVerifier::default();
        let passwords = passwords();
        let (sender, _queue) = bounded(LOGINS_WAITING_MAX);
        *verifier.queue.lock().unwrap() = Some(sender);
        let submit = |password: &str, client: &str| {
            verifier.submit(LoginJob {
                passwords: Arc::clone(&passwords),
                login: login(password),
                key: passwords.login_key(password.as_bytes()),
                client: Some(client.parse().unwrap()),
            })
        };
        for number in 0..LOGIN_FAILURES_AT_ONCE {
            assert!(submit(&number.to_string(), "192.0.2.1").is_ok());
        }
        let limited = submit("one more", "192.0.2.1");
        assert!(matches!(limited, Err(LoginOutcome::Limited(_))));
        assert!(submit("another client's", "192.0.2.2").is_ok());
    }

    #[test]
    fn without_threads_nothing_is_verified_and_nothing_used_up() {
        let verifier = PasswordVerifier::default();
        let passwords = passwords();
        for _ in 0..3 * LOGIN_FAILURES_AT_ONCE {
            let key = passwords.login_key(b"x");
            let outcome = block_on(verifier.verify(&passwords, login("right"), key, None));
            assert_eq!(outcome, LoginOutcome::Busy);
        }
    }

    #[test]
    fn logins_are_kept_for_a_while_and_not_too_many() {
        let passwords = passwords();
        let key = |number: usize| passwords.login_key(&number.to_ne_bytes());
        let (mut known, now) = (VerifiedLogins::default(), Instant::now());
        for number in 0..3 * LOGINS_KEPT_MAX {
            known.keep(key(number), "anna".into(), now);
            assert!(known.find(&key(number), now).is_some());
            assert!(known.0.len() <= LOGINS_KEPT_MAX);
        }
        let last = key(3 * LOGINS_KEPT_MAX - 1);
        for number in 1..10 {
            let later = now + LOGIN_KEPT / 2 * number;
            assert!(known.find(&last, later).is_some(), "it is in use");
        }
        assert_eq!(known.find(&last, now + LOGIN_KEPT * 10), None);
        assert_eq!(known.find(&key(0), now), None);
    }
}
