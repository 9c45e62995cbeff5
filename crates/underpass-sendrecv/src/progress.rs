//! The progress of a transfer, read by the thread that shows it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use underpass::Account;

use crate::code::TransferCode;

/// Events that wait to be shown; more are dropped, the oldest first.
const EVENTS_MAX: usize = 1000;

/// The progress of a transfer.
#[derive(Debug, Default)]
pub struct TransferProgress {
    /// Bytes of content that have arrived, or that the peer has acknowledged.
    pub bytes: AtomicU64,
    /// Bytes of all items as far as they are known.
    pub total: AtomicU64,
    /// Files and members of trees that are complete.
    pub files: AtomicU64,
    events: Mutex<VecDeque<TransferEvent>>,
    account: Mutex<Account>,
}

/// Something that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TransferEvent {
    /// A connection was made, to or from this address.
    Connected(String),
    /// An item continues after so many bytes.
    Continued {
        /// Its name.
        name: String,
        /// Bytes that are not sent again.
        bytes: u64,
    },
    /// An item is complete.
    Complete {
        /// Its name.
        name: String,
        /// Its bytes.
        bytes: u64,
    },
    /// All of an item has left, and the receiver has not said yet that it is stored.
    Sent {
        /// Its name.
        name: String,
        /// Its bytes.
        bytes: u64,
    },
    /// The connection was lost, and is made again.
    Lost(String),
    /// A request was rejected.
    Rejected(String),
    /// This is the code now.
    Code(TransferCode),
    /// The code is used up by a wrong guess.
    WrongCode {
        /// The address that it came from.
        peer: String,
        /// The time until the next code.
        delay: Duration,
    },
    /// Something that the user should know.
    Warning(String),
}

impl TransferProgress {
    /// Records an event.
    pub fn record(&self, event: TransferEvent) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Takes the events since the last call.
    pub fn take_events(&self) -> Vec<TransferEvent> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.drain(..).collect()
    }

    /// Returns how the bytes were moved, by calls that are complete.
    pub fn account(&self) -> Account {
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.clone()
    }

    pub(crate) fn moved(&self, account: &Account) {
        let mut all = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(account);
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}
