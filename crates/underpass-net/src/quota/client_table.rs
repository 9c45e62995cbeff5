//! What each client has, over all workers: how many connections, and which bandwidth.
//!
//! The one table that workers share. It is locked when a connection begins and when it ends, for
//! the time of a look-up, and does not exist unless a limit is set. It has an entry for each client
//! that is connected, so connections bound it, and for a bounded number of those that have left.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::limits::{Limits, REMEMBERED_MAX};
use crate::quota::rate_limiter::Bandwidth;

pub(crate) struct Addresses {
    each: Allowed,
    table: Mutex<Table>,
}

/// What a client may have, if anything of it is limited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Allowed {
    connections_max: Option<NonZeroUsize>,
    rate_max: Option<NonZeroU64>,
}

/// A connection that is counted. It no longer is when this is dropped.
pub(crate) struct Seat {
    addresses: Arc<Addresses>,
    client: Client,
    bandwidth: Option<Arc<Bandwidth>>,
}

#[derive(Default)]
struct Table {
    clients: HashMap<Client, Seats>,
    /// Who has left with bandwidth that is sold, and until when that is. Somebody may have come
    /// back, and stand here several times.
    left: VecDeque<(Client, Instant)>,
}

/// What a client has.
#[derive(Default)]
struct Seats {
    connections: usize,
    bandwidth: Option<Arc<Bandwidth>>,
}

/// Who counts as one client: an IPv4 address, or the 64 bits of an IPv6 address that one customer
/// of a provider has to himself, and changes the rest of at will.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Client {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl Allowed {
    /// None where nothing is limited.
    pub(crate) fn by(limits: &Limits) -> Option<Allowed> {
        let allowed = Allowed {
            connections_max: limits.connections_per_client_max,
            rate_max: limits.rate_per_client_max,
        };
        (allowed.connections_max.is_some() || allowed.rate_max.is_some()).then_some(allowed)
    }
}

impl Addresses {
    pub(crate) fn new(each: Allowed) -> Addresses {
        Addresses {
            each,
            table: Mutex::default(),
        }
    }

    pub(crate) fn each(&self) -> Allowed {
        self.each
    }

    /// A seat for one more connection of `address`, if it may have one.
    pub(crate) fn seat(self: &Arc<Addresses>, address: IpAddr) -> Option<Seat> {
        let client = Client::of(address);
        let mut table = self.lock();
        table.forget(Instant::now());
        let seats = table.clients.entry(client).or_default();
        let connections_max = self.each.connections_max.map_or(usize::MAX, usize::from);
        if seats.connections >= connections_max {
            return None;
        }
        seats.connections += 1;
        let bandwidth = self.each.rate_max.map(|rate| {
            let new = || Arc::new(Bandwidth::new(rate));
            Arc::clone(seats.bandwidth.get_or_insert_with(new))
        });
        Some(Seat {
            addresses: Arc::clone(self),
            client,
            bandwidth,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // Nothing panics while it is locked; a count is right after every step.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// What the client's connections may send together, where that is limited.
    pub(crate) fn bandwidth(&self) -> Option<&Bandwidth> {
        self.bandwidth.as_deref()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.addresses.lock().leave(self.client, Instant::now());
    }
}

impl Table {
    /// One connection of a client less.
    fn leave(&mut self, client: Client, now: Instant) {
        if let Entry::Occupied(mut entry) = self.clients.entry(client) {
            let seats = entry.get_mut();
            seats.connections = seats.connections.saturating_sub(1);
            match (seats.connections, seats.sold_until()) {
                (0, Some(until)) if until > now => self.left.push_back((client, until)),
                (0, _) => drop(entry.remove()),
                _ => {}
            }
        }
        self.forget(now);
    }

    /// Forgets who has left and owes nothing, one after the other, and whoever is too many. Each is
    /// looked at once for each time it has left.
    fn forget(&mut self, now: Instant) {
        while let Some((client, until)) = self.left.front().copied()
            && (until <= now || self.left.len() > REMEMBERED_MAX)
        {
            self.left.pop_front();
            if let Entry::Occupied(entry) = self.clients.entry(client)
                && entry.get().connections == 0
                // Whoever has come back and left again stands further behind.
                && entry.get().sold_until().is_none_or(|sold| sold <= until)
            {
                entry.remove();
            }
        }
    }
}

impl Seats {
    fn sold_until(&self) -> Option<Instant> {
        self.bandwidth.as_deref().map(Bandwidth::sold_until)
    }
}

impl Client {
    fn of(address: IpAddr) -> Client {
        match address.to_canonical() {
            IpAddr::V4(address) => Client::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Client::V6([a, b, c, d])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::rate_limiter::Claim;

    fn addresses(each_max: usize) -> Arc<Addresses> {
        Arc::new(Addresses::new(Allowed {
            connections_max: NonZeroUsize::new(each_max),
            rate_max: None,
        }))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_client_has_its_seats_and_no_more() {
        let addresses = addresses(2);
        let one = addresses.seat(ip("192.0.2.1"));
        let _two = addresses.seat(ip("192.0.2.1")).unwrap();
        assert!(addresses.seat(ip("192.0.2.1")).is_none());
        assert!(addresses.seat(ip("192.0.2.2")).is_some());
        drop(one);
        assert!(addresses.seat(ip("192.0.2.1")).is_some());
    }

    #[test]
    fn ipv6_counts_by_its_first_64_bits_and_ipv4_within_ipv6_as_ipv4() {
        let addresses = addresses(1);
        let _six = addresses.seat(ip("2001:db8:0:1::1")).unwrap();
        assert!(addresses.seat(ip("2001:db8:0:1:ffff::2")).is_none());
        assert!(addresses.seat(ip("2001:db8:0:2::1")).is_some());
        let _four = addresses.seat(ip("192.0.2.1")).unwrap();
        assert!(addresses.seat(ip("::ffff:192.0.2.1")).is_none());
        assert!(addresses.seat(ip("::ffff:192.0.2.2")).is_some());
    }

    #[test]
    fn who_has_left_leaves_nothing_behind() {
        let addresses = addresses(3);
        let seats: Vec<_> = (0..3).map(|_| addresses.seat(ip("192.0.2.1"))).collect();
        assert!(addresses.seat(ip("192.0.2.1")).is_none());
        drop(seats);
        assert!(addresses.lock().clients.is_empty());
    }

    fn limited(rate: u64) -> Arc<Addresses> {
        Arc::new(Addresses::new(Allowed {
            connections_max: None,
            rate_max: NonZeroU64::new(rate),
        }))
    }

    #[test]
    fn who_leaves_with_bandwidth_sold_is_remembered_as_long_as_that_lasts() {
        let addresses = limited(1000);
        let hour = Duration::from_secs(3_600);
        let seat = addresses.seat(ip("192.0.2.1")).unwrap();
        let _wait = seat.bandwidth().unwrap().sell(1000 * 3_600, Claim::First);
        drop(seat);
        assert_eq!(addresses.lock().clients.len(), 1);
        let again = addresses.seat(ip("192.0.2.1")).unwrap();
        let wait = again.bandwidth().unwrap().sell(1000, Claim::First);
        assert!(wait > hour - Duration::from_secs(60), "{wait:?}");
        let other = addresses.seat(ip("192.0.2.2")).unwrap();
        let wait = other.bandwidth().unwrap().sell(1000, Claim::First);
        assert_eq!(wait, Duration::ZERO);
        drop(other);
        drop(again);
        // The first time it left is over, the second is not.
        let now = Instant::now();
        addresses.lock().forget(now + hour);
        assert_eq!(addresses.lock().clients.len(), 1);
        addresses.lock().forget(now + hour * 2);
        assert!(addresses.lock().clients.is_empty());
        assert!(addresses.lock().left.is_empty());
    }

    #[test]
    fn connections_of_one_client_have_one_bandwidth() {
        let addresses = limited(1000);
        let seat = |text: &str| addresses.seat(ip(text)).unwrap();
        let (one, two) = (seat("2001:db8:0:1::1"), seat("2001:db8:0:1:ffff::2"));
        let other = seat("2001:db8:0:2::1");
        let address = |seat: &Seat| std::ptr::from_ref(seat.bandwidth().unwrap());
        assert_eq!(address(&one), address(&two));
        assert_ne!(address(&one), address(&other));
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let addresses = limited(1);
        for number in 0..REMEMBERED_MAX as u32 + 100 {
            let seat = addresses.seat(IpAddr::from(number.to_be_bytes())).unwrap();
            let _wait = seat.bandwidth().unwrap().sell(1000, Claim::First);
        }
        assert_eq!(addresses.lock().clients.len(), REMEMBERED_MAX);
        assert_eq!(addresses.lock().left.len(), REMEMBERED_MAX);
    }
}
