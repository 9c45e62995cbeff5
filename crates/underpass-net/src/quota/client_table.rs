//! The connections and the rate limiter of each client.
//!
//! Workers share one table if a limit is configured; otherwise each has its own. It is locked for a
//! lookup when a connection starts and when it ends. It has an entry for each connected client, so
//! the connection limit bounds it, and for a bounded number of departed ones.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::limits::{CLIENT_CONNECTIONS_MIN, CLIENT_SHARE, ConnectionLimits, DEPARTED_CLIENTS_MAX};
use crate::quota::rate_limiter::RateLimiter;

pub(crate) struct ClientTable {
    each: PerClientLimits,
    table: Mutex<ClientEntries>,
}

/// The limits of each client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PerClientLimits {
    connections_max: usize,
    rate_max: Option<NonZeroU64>,
}

/// Whether the connection limit applies to a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionLimit {
    Holds,
    /// The peer is this machine, or a proxy, and no limit is configured.
    Lifted,
}

/// The count of one connection of a client, released on drop.
pub(crate) struct ClientPermit {
    table: Arc<ClientTable>,
    client: ClientKey,
    rate_limiter: Option<Arc<RateLimiter>>,
}

#[derive(Default)]
struct ClientEntries {
    clients: HashMap<ClientKey, ClientUsage>,
    /// Departed clients whose rate is reserved ahead, with the end of the reservation. A client
    /// that has reconnected meanwhile may be listed several times.
    departed: VecDeque<(ClientKey, Instant)>,
}

/// The resources that a client uses.
#[derive(Default)]
struct ClientUsage {
    connections: usize,
    rate_limiter: Option<Arc<RateLimiter>>,
}

/// The identity of a client: an IPv4 address, or the first 64 bits of an IPv6 address, since one
/// customer of a provider can choose the rest.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ClientKey(ClientPrefix);

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum ClientPrefix {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl PerClientLimits {
    /// Returns the limits of each client of `workers`; `limits` are those of one worker.
    pub(crate) fn by(limits: &ConnectionLimits, workers: usize) -> PerClientLimits {
        let share = limits.connections_max.saturating_mul(workers) / CLIENT_SHARE;
        let configured = limits.connections_per_client_max.map(NonZeroUsize::get);
        PerClientLimits {
            connections_max: configured.unwrap_or(share.max(CLIENT_CONNECTIONS_MIN)),
            rate_max: limits.rate_per_client_max,
        }
    }
}

impl ClientTable {
    pub(crate) fn new(each: PerClientLimits) -> ClientTable {
        ClientTable {
            each,
            table: Mutex::default(),
        }
    }

    pub(crate) fn each(&self) -> PerClientLimits {
        self.each
    }

    /// Returns a permit for another connection of `address`; none if the limit is reached.
    pub(crate) fn permit(
        self: &Arc<ClientTable>,
        address: IpAddr,
        limit: ConnectionLimit,
    ) -> Option<ClientPermit> {
        let client = ClientKey::of(address);
        let mut table = self.lock();
        table.forget(Instant::now());
        let usage = table.clients.entry(client).or_default();
        if limit == ConnectionLimit::Holds && usage.connections >= self.each.connections_max {
            return None;
        }
        usage.connections += 1;
        let rate_limiter = self.each.rate_max.map(|rate| {
            let new = || Arc::new(RateLimiter::new(rate));
            Arc::clone(usage.rate_limiter.get_or_insert_with(new))
        });
        Some(ClientPermit {
            table: Arc::clone(self),
            client,
            rate_limiter,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ClientEntries> {
        // Nothing panics while it is locked; the counts are consistent after every step.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientPermit {
    /// Returns the rate limiter of the client, if its rate is limited.
    pub(crate) fn rate_limiter(&self) -> Option<&Arc<RateLimiter>> {
        self.rate_limiter.as_ref()
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        self.table.lock().leave(self.client, Instant::now());
    }
}

impl ClientEntries {
    /// Removes one connection of a client.
    fn leave(&mut self, client: ClientKey, now: Instant) {
        if let Entry::Occupied(mut entry) = self.clients.entry(client) {
            let usage = entry.get_mut();
            usage.connections = usage.connections.saturating_sub(1);
            match (usage.connections, usage.reserved_until()) {
                (0, Some(until)) if until > now => self.departed.push_back((client, until)),
                (0, _) => drop(entry.remove()),
                _ => {}
            }
        }
        self.forget(now);
    }

    /// Removes departed clients whose reservations are over, and the oldest if there are too many.
    /// Checks each entry once.
    fn forget(&mut self, now: Instant) {
        while let Some((client, until)) = self.departed.front().copied()
            && (until <= now || self.departed.len() > DEPARTED_CLIENTS_MAX)
        {
            self.departed.pop_front();
            if let Entry::Occupied(entry) = self.clients.entry(client)
                && entry.get().connections == 0
                // A client that has reconnected and departed again has a later entry.
                && entry.get().reserved_until().is_none_or(|reserved| reserved <= until)
            {
                entry.remove();
            }
        }
    }
}

impl ClientUsage {
    fn reserved_until(&self) -> Option<Instant> {
        self.rate_limiter
            .as_deref()
            .map(RateLimiter::reserved_until)
    }
}

impl ClientKey {
    /// Returns the client that an address belongs to.
    pub fn of(address: IpAddr) -> ClientKey {
        ClientKey(match address.to_canonical() {
            IpAddr::V4(address) => ClientPrefix::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                ClientPrefix::V6([a, b, c, d])
            }
        })
    }
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ClientPrefix::V4(address) => address.fmt(f),
            ClientPrefix::V6([a, b, c, d]) => {
                write!(f, "{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::rate_limiter::Reservation;

    fn table(each_max: usize) -> Arc<ClientTable> {
        Arc::new(ClientTable::new(PerClientLimits {
            connections_max: each_max,
            rate_max: None,
        }))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn permit_of(table: &Arc<ClientTable>, text: &str) -> Option<ClientPermit> {
        table.permit(ip(text), ConnectionLimit::Holds)
    }

    #[test]
    fn each_client_has_its_permits_and_no_more() {
        let table = table(2);
        let one = permit_of(&table, "192.0.2.1");
        let _two = permit_of(&table, "192.0.2.1").unwrap();
        assert!(permit_of(&table, "192.0.2.1").is_none());
        assert!(permit_of(&table, "192.0.2.2").is_some());
        drop(one);
        assert!(permit_of(&table, "192.0.2.1").is_some());
    }

    #[test]
    fn who_has_no_limit_is_counted_and_admitted() {
        let table = table(1);
        let lifted = || table.permit(ip("127.0.0.1"), ConnectionLimit::Lifted);
        let kept = [lifted(), lifted()];
        assert!(kept.iter().all(Option::is_some));
        assert!(permit_of(&table, "127.0.0.1").is_none());
    }

    #[test]
    fn half_of_the_connections_are_left_to_others_unless_a_limit_is_configured() {
        let each = |connections_max, configured| {
            let limits = ConnectionLimits {
                connections_max,
                connections_per_client_max: NonZeroUsize::new(configured),
                ..ConnectionLimits::default()
            };
            PerClientLimits::by(&limits, 2).connections_max
        };
        assert_eq!(each(480, 0), 480);
        assert_eq!(each(3, 0), CLIENT_CONNECTIONS_MIN);
        assert_eq!(each(480, 3), 3);
    }

    #[test]
    fn ipv6_counts_by_its_first_64_bits_and_ipv4_within_ipv6_as_ipv4() {
        let table = table(1);
        let _six = permit_of(&table, "2001:db8:0:1::1").unwrap();
        assert!(permit_of(&table, "2001:db8:0:1:ffff::2").is_none());
        assert!(permit_of(&table, "2001:db8:0:2::1").is_some());
        let _four = permit_of(&table, "192.0.2.1").unwrap();
        assert!(permit_of(&table, "::ffff:192.0.2.1").is_none());
        assert!(permit_of(&table, "::ffff:192.0.2.2").is_some());
    }

    #[test]
    fn a_departed_client_leaves_nothing_behind() {
        let table = table(3);
        let usage: Vec<_> = (0..3).map(|_| permit_of(&table, "192.0.2.1")).collect();
        assert!(permit_of(&table, "192.0.2.1").is_none());
        drop(usage);
        assert!(table.lock().clients.is_empty());
    }

    fn limited(rate: u64) -> Arc<ClientTable> {
        Arc::new(ClientTable::new(PerClientLimits {
            connections_max: usize::MAX,
            rate_max: NonZeroU64::new(rate),
        }))
    }

    #[test]
    fn a_client_that_departs_with_a_reservation_is_remembered_as_long_as_that_lasts() {
        let table = limited(1000);
        let hour = Duration::from_secs(3_600);
        let permit = permit_of(&table, "192.0.2.1").unwrap();
        let _wait = permit
            .rate_limiter()
            .unwrap()
            .reserve(1000 * 3_600, Reservation::First);
        drop(permit);
        assert_eq!(table.lock().clients.len(), 1);
        let again = permit_of(&table, "192.0.2.1").unwrap();
        let wait = again
            .rate_limiter()
            .unwrap()
            .reserve(1000, Reservation::First);
        assert!(wait > hour - Duration::from_secs(60), "{wait:?}");
        let other = permit_of(&table, "192.0.2.2").unwrap();
        let wait = other
            .rate_limiter()
            .unwrap()
            .reserve(1000, Reservation::First);
        assert_eq!(wait, Duration::ZERO);
        drop(other);
        drop(again);
        // The first reservation is over, the second is not.
        let now = Instant::now();
        table.lock().forget(now + hour);
        assert_eq!(table.lock().clients.len(), 1);
        table.lock().forget(now + hour * 2);
        assert!(table.lock().clients.is_empty());
        assert!(table.lock().departed.is_empty());
    }

    #[test]
    fn connections_of_one_client_have_one_rate_limiter() {
        let table = limited(1000);
        let permit = |text: &str| permit_of(&table, text).unwrap();
        let (one, two) = (permit("2001:db8:0:1::1"), permit("2001:db8:0:1:ffff::2"));
        let other = permit("2001:db8:0:2::1");
        let address = |permit: &ClientPermit| Arc::as_ptr(permit.rate_limiter().unwrap());
        assert_eq!(address(&one), address(&two));
        assert_ne!(address(&one), address(&other));
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let table = limited(1);
        for number in 0..DEPARTED_CLIENTS_MAX as u32 + 100 {
            let permit = table
                .permit(IpAddr::from(number.to_be_bytes()), ConnectionLimit::Holds)
                .unwrap();
            let _wait = permit
                .rate_limiter()
                .unwrap()
                .reserve(1000, Reservation::First);
        }
        assert_eq!(table.lock().clients.len(), DEPARTED_CLIENTS_MAX);
        assert_eq!(table.lock().departed.len(), DEPARTED_CLIENTS_MAX);
    }
}
