//! Limits the number of wrong passwords per client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use underpass_net::ClientKey;

use crate::limits::{LOGIN_CLIENTS_MAX, LOGIN_FAILURE_INTERVAL, LOGIN_FAILURES_AT_ONCE};

/// The attempts of all clients. Clients without an address share one entry, as do clients for which
/// the table is full.
#[derive(Debug, Default)]
pub(crate) struct LoginFailures(Mutex<HashMap<Option<ClientKey>, Instant>>);

/// The time at which all used attempts are available again; each attempt takes one interval.
type UsedUntil = Instant;

impl LoginFailures {
    /// Takes one attempt of a client at the time `now`; give it back if the password is right.
    ///
    /// # Errors
    /// No attempt is left; the value is the time until the next one.
    pub(crate) fn take(&self, client: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let mut clients = self.lock();
        let key = Self::key(&mut clients, client, now);
        let until: &mut UsedUntil = clients.entry(key).or_insert(now);
        let used = until.saturating_duration_since(now);
        let allowed = LOGIN_FAILURE_INTERVAL * (LOGIN_FAILURES_AT_ONCE - 1);
        if used > allowed {
            return Err(used - allowed);
        }
        *until = now + used + LOGIN_FAILURE_INTERVAL;
        Ok(())
    }

    /// Gives an attempt back.
    pub(crate) fn give_back(&self, client: Option<IpAddr>, now: Instant) {
        let mut clients = self.lock();
        let key = Self::key(&mut clients, client, now);
        if let Some(until) = clients.get_mut(&key) {
            *until = until.checked_sub(LOGIN_FAILURE_INTERVAL).unwrap_or(now);
        }
    }

    fn key(
        clients: &mut HashMap<Option<ClientKey>, Instant>,
        client: Option<IpAddr>,
        now: Instant,
    ) -> Option<ClientKey> {
        let key = client.map(ClientKey::of);
        if clients.len() >= LOGIN_CLIENTS_MAX && !clients.contains_key(&key) {
            clients.retain(|_, until| *until > now);
            if clients.len() >= LOGIN_CLIENTS_MAX {
                return None;
            }
        }
        key
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Option<ClientKey>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn each_client_has_some_attempts_and_then_one_at_a_time() {
        let (failures, now) = (LoginFailures::default(), Instant::now());
        let one = ip("192.0.2.1");
        for _ in 0..LOGIN_FAILURES_AT_ONCE {
            assert_eq!(failures.take(one, now), Ok(()));
        }
        assert_eq!(failures.take(one, now), Err(LOGIN_FAILURE_INTERVAL));
        assert_eq!(failures.take(ip("192.0.2.2"), now), Ok(()));
        assert_eq!(failures.take(None, now), Ok(()));
        let later = now + LOGIN_FAILURE_INTERVAL;
        assert_eq!(failures.take(one, later), Ok(()));
        assert!(failures.take(one, later).is_err());
    }

    #[test]
    fn right_passwords_use_nothing_up() {
        let (failures, now) = (LoginFailures::default(), Instant::now());
        for _ in 0..100 {
            assert_eq!(failures.take(ip("192.0.2.1"), now), Ok(()));
            failures.give_back(ip("192.0.2.1"), now);
        }
    }

    #[test]
    fn many_clients_take_bounded_room() {
        let (failures, now) = (LoginFailures::default(), Instant::now());
        for number in 0..u32::try_from(LOGIN_CLIENTS_MAX).unwrap() + 100 {
            let _ = failures.take(Some(std::net::Ipv4Addr::from(number).into()), now);
        }
        assert!(failures.lock().len() <= LOGIN_CLIENTS_MAX + 1);
        let later = now + LOGIN_FAILURE_INTERVAL * LOGIN_FAILURES_AT_ONCE;
        assert_eq!(failures.take(ip("2001:db8::1"), later), Ok(()));
        assert!(failures.lock().len() < 10);
    }
}
