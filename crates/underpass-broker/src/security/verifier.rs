//! Verifies the passwords of PLAIN on a thread of low priority: hashing one takes milliseconds, and
//! whoever reaches the port may cause it.
//!
//! ```text
//!  login ─► verified before? ── yes ─► done
//!              │ no
//!              └► queue ─► thread ─► login
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use tokio::sync::{Semaphore, oneshot};

use crate::lock::lock;
use crate::security::random;
use crate::security::scram::ScramMechanism;
use crate::security::users::FoundCredential;

/// See nice(2): a tenth of a contended processor.
const LOW_PRIORITY: i32 = 10;

/// The number of passwords in the queue; further logins wait for room.
const QUEUED_MAX: usize = 64;

/// The number of logins that are remembered, and the time since their last use.
const REMEMBERED_MAX: usize = 1000;
const REMEMBERED: Duration = Duration::from_secs(600);

/// A keyed hash of a user, a password and a credential.
type PasswordKey = Vec<u8>;

/// The verifier of a broker. Its thread starts with the first password.
#[derive(Debug)]
pub(crate) struct PlainVerifier {
    queue: OnceLock<Sender<PasswordJob>>,
    room: Semaphore,
    /// The times of the last uses.
    verified: Mutex<HashMap<PasswordKey, Instant>>,
    key: [u8; 32],
}

#[derive(Debug)]
struct PasswordJob {
    found: FoundCredential,
    password: Vec<u8>,
    done: oneshot::Sender<bool>,
}

impl PlainVerifier {
    pub(crate) fn new() -> PlainVerifier {
        PlainVerifier {
            queue: OnceLock::new(),
            room: Semaphore::new(QUEUED_MAX),
            verified: Mutex::default(),
            key: random::bytes(),
        }
    }

    /// Whether the password is that of the credential. Dropping the future cancels the wait.
    pub(crate) async fn verify(&self, found: FoundCredential, password: &[u8]) -> bool {
        let key = self.login_key(&found, password);
        if self.is_remembered(&key, Instant::now()) {
            return true;
        }
        // The semaphore is never closed.
        let _permit = self.room.acquire().await;
        let (done, verified) = oneshot::channel();
        let password = password.to_vec();
        let job = PasswordJob {
            found,
            password,
            done,
        };
        let is_queued = self.queue().is_some_and(|queue| queue.send(job).is_ok());
        let is_right = is_queued && verified.await == Ok(true);
        if is_right {
            self.remember(key, Instant::now());
        }
        is_right
    }

    fn login_key(&self, found: &FoundCredential, password: &[u8]) -> PasswordKey {
        let mechanism = ScramMechanism::Sha256;
        let identity = mechanism.hash(found.credential.identity());
        mechanism.hmac(&self.key, &[&identity, password].concat())
    }

    fn is_remembered(&self, key: &PasswordKey, now: Instant) -> bool {
        let mut verified = lock(&self.verified);
        let used = verified
            .get_mut(key)
            .filter(|used| now < **used + REMEMBERED);
        used.map(|used| *used = now).is_some()
    }

    /// Remembers a login, replacing expired ones, or all if there are too many.
    fn remember(&self, key: PasswordKey, now: Instant) {
        let mut verified = lock(&self.verified);
        if verified.len() >= REMEMBERED_MAX {
            verified.retain(|_, used| now < *used + REMEMBERED);
        }
        if verified.len() >= REMEMBERED_MAX {
            verified.clear();
        }
        verified.insert(key, now);
    }

    /// Returns the queue; starts the thread before the first use.
    fn queue(&self) -> Option<&Sender<PasswordJob>> {
        if self.queue.get().is_none() {
            match start_thread() {
                // Another worker may have started one: this one ends with its sender.
                Ok(sender) => drop(self.queue.set(sender)),
                Err(error) => tracing::error!("no thread verifies passwords: {error}"),
            }
        }
        self.queue.get()
    }
}

fn start_thread() -> io::Result<Sender<PasswordJob>> {
    let (sender, queue) = channel();
    thread::Builder::new()
        .name("passwords".into())
        .spawn(move || verify_all(&queue))?;
    Ok(sender)
}

fn verify_all(queue: &Receiver<PasswordJob>) {
    // On Linux, this applies to the calling thread only.
    if let Err(error) = setpriority_process(None, LOW_PRIORITY) {
        tracing::warn!("passwords are verified with the priority of all other work: {error}");
    }
    for job in queue {
        if job.done.is_closed() {
            continue;
        }
        let FoundCredential {
            mechanism,
            credential,
        } = &job.found;
        let is_right = credential.verify_password(*mechanism, &job.password);
        // The connection may be gone.
        let _ = job.done.send(is_right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::scram::ScramCredential;

    const MECHANISM: ScramMechanism = ScramMechanism::Sha256;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    fn found(credential: &ScramCredential) -> FoundCredential {
        FoundCredential {
            mechanism: MECHANISM,
            credential: credential.clone(),
        }
    }

    #[test]
    fn right_passwords_are_remembered_until_the_credential_changes() {
        let verifier = PlainVerifier::new();
        let credential = ScramCredential::of_password(MECHANISM, b"right");
        let verify =
            |of: &ScramCredential, password: &[u8]| block_on(verifier.verify(found(of), password));
        assert!(!verify(&credential, b"wrong"));
        assert!(lock(&verifier.verified).is_empty());
        assert!(verify(&credential, b"right"));
        assert_eq!(lock(&verifier.verified).len(), 1);
        let key = verifier.login_key(&found(&credential), b"right");
        let now = Instant::now();
        assert!(verifier.is_remembered(&key, now));
        assert!(!verifier.is_remembered(&key, now + 2 * REMEMBERED));
        let changed = ScramCredential::of_password(MECHANISM, b"other");
        assert!(!verify(&changed, b"right"));
    }

    #[test]
    fn not_too_many_logins_are_remembered() {
        let verifier = PlainVerifier::new();
        let now = Instant::now();
        for number in 0..3 * REMEMBERED_MAX {
            verifier.remember(number.to_be_bytes().to_vec(), now);
            assert!(lock(&verifier.verified).len() <= REMEMBERED_MAX);
        }
    }
}
