//! How many connections each client has, over all workers.
//!
//! The one table that workers share. It is locked when a connection begins and when it ends, for
//! the time of a look-up, and does not exist unless a limit is set. It has an entry for each client
//! that is connected, so connections bound it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Addresses {
    each_max: NonZeroUsize,
    connected: Mutex<HashMap<Client, usize>>,
}

/// A connection that is counted. It no longer is when this is dropped.
pub(crate) struct Seat {
    addresses: Arc<Addresses>,
    client: Client,
}

/// Who counts as one client: an IPv4 address, or the 64 bits of an IPv6 address that one customer
/// of a provider has to himself, and changes the rest of at will.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Client {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl Addresses {
    pub(crate) fn new(each_max: NonZeroUsize) -> Addresses {
        Addresses {
            each_max,
            connected: Mutex::default(),
        }
    }

    pub(crate) fn each_max(&self) -> NonZeroUsize {
        self.each_max
    }

    /// A seat for one more connection of `address`, if it may have one.
    pub(crate) fn seat(self: &Arc<Addresses>, address: IpAddr) -> Option<Seat> {
        let client = Client::of(address);
        let mut connected = self.lock();
        let count = connected.entry(client).or_default();
        if *count >= self.each_max.get() {
            return None;
        }
        *count += 1;
        Some(Seat {
            addresses: Arc::clone(self),
            client,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Client, usize>> {
        // Nothing panics while it is locked; a count is right after every step.
        self.connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut connected = self.addresses.lock();
        if let Entry::Occupied(mut entry) = connected.entry(self.client) {
            match *entry.get() {
                0 | 1 => drop(entry.remove()),
                _ => *entry.get_mut() -= 1,
            }
        }
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
    use super::*;

    fn addresses(each_max: usize) -> Arc<Addresses> {
        Arc::new(Addresses::new(NonZeroUsize::new(each_max).unwrap()))
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
        assert!(addresses.lock().is_empty());
    }
}
