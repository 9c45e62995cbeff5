//! How a relay of two sockets passes the end of each direction on.

use std::os::fd::AsFd;

use rustix::net::Shutdown;

use crate::vocabulary::account::Account;
use crate::vocabulary::error::Error;

/// What each direction of a relay came to: from the first socket to the second, and back.
pub type Relayed = (Result<Account, Error>, Result<Account, Error>);

/// Passes on that a direction of a relay has ended; one that failed takes the other one with it.
pub(crate) fn end_direction(relayed: &Result<Account, Error>, from: impl AsFd, to: impl AsFd) {
    // An error means that the peer has closed already.
    match relayed {
        Ok(_) => drop(rustix::net::shutdown(to, Shutdown::Write)),
        Err(_) => {
            let _gone = rustix::net::shutdown(from, Shutdown::Both);
            let _gone = rustix::net::shutdown(to, Shutdown::Both);
        }
    }
}
