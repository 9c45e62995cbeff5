//! Sealed records that have not left yet: pure.
//!
//! A driver that encrypts reads an outbox into a buffer ([`Outbox::gather`]), seals records from it
//! here, and sends these. A sealed record belongs to the connection: it leaves first and is never
//! sealed again, since the same nonce might then be used for other bytes.
//!
//! [`Outbox::gather`]: crate::Outbox::gather

use std::collections::VecDeque;

/// Sealed records in sending order, and the number of outbox bytes in each.
#[derive(Debug, Default)]
pub struct SealedRecords {
    /// The first `len` bytes are records. The rest is left as it was: clearing it would cost as
    /// much as a copy.
    bytes: Vec<u8>,
    len: usize,
    sent: usize,
    /// The end of each record, and the number of outbox bytes in it.
    ends: VecDeque<(usize, u64)>,
}

impl SealedRecords {
    /// Returns whether all have left.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether a record contains bytes of the outbox.
    pub fn owe(&self) -> bool {
        self.ends.iter().any(|(_, owed)| *owed > 0)
    }

    /// Appends a record of `len` bytes, which `seal` writes, with `owed` bytes of the outbox.
    ///
    /// # Errors
    /// The errors of `seal`; nothing is appended.
    pub fn push<E>(
        &mut self,
        len: usize,
        owed: u64,
        seal: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (start, end) = (self.len, self.len + len);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        seal(&mut self.bytes[start..end])?;
        self.len = end;
        self.ends.push_back((end, owed));
        Ok(())
    }

    /// Returns the bytes to send.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.len]
    }

    /// Records that the socket has taken `count` more bytes. Returns the number of outbox bytes in
    /// the records that this completes.
    pub fn advance(&mut self, count: usize) -> u64 {
        self.sent = self.sent.saturating_add(count).min(self.len);
        let mut owed = 0;
        while let Some((end, bytes)) = self.ends.front()
            && *end <= self.sent
        {
            owed += bytes;
            self.ends.pop_front();
        }
        if self.sent == self.len {
            (self.len, self.sent) = (0, 0);
        }
        owed
    }

    /// Takes the memory of an empty queue.
    pub fn lend(&mut self) -> Option<Vec<u8>> {
        let is_lent = self.is_empty() && !self.bytes.is_empty();
        is_lent.then(|| std::mem::take(&mut self.bytes))
    }

    /// Gives an empty queue memory to work with.
    pub fn borrow(&mut self, buffer: Vec<u8>) {
        if self.is_empty() && self.bytes.len() < buffer.len() {
            self.bytes = buffer;
        }
    }

    /// Keeps the unsent bytes in as little memory as they need, and returns the rest of the memory:
    /// a connection whose socket is full may wait for long.
    pub fn shrink(&mut self) -> Vec<u8> {
        let rest = self.unsent().to_vec();
        for (end, _) in &mut self.ends {
            *end -= self.sent;
        }
        (self.len, self.sent) = (rest.len(), 0);
        std::mem::replace(&mut self.bytes, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn push(records: &mut SealedRecords, byte: u8, len: usize, owed: u64) {
        let sealed = records.push(len, owed, |record| {
            record.fill(byte);
            Ok::<_, Infallible>(())
        });
        sealed.expect("never fails");
    }

    #[test]
    fn a_record_that_cannot_be_sealed_leaves_nothing() {
        let mut records = SealedRecords::default();
        push(&mut records, 1, 3, 2);
        assert_eq!(records.push(5, 4, |_| Err("no")), Err("no"));
        assert_eq!(records.unsent(), [1; 3]);
        assert!(records.owe());
        assert_eq!(records.advance(3), 2);
        assert!(records.is_empty() && !records.owe());
    }

    #[test]
    fn memory_is_lent_while_nothing_waits() {
        let mut records = SealedRecords::default();
        records.borrow(vec![9; 100]);
        push(&mut records, 1, 50, 30);
        push(&mut records, 2, 50, 0);
        assert_eq!(records.lend(), None);
        assert_eq!(records.advance(40), 0);
        assert_eq!(records.shrink().len(), 100);
        assert_eq!(records.unsent().len(), 60);
        assert_eq!(records.advance(10), 30);
        assert!(!records.owe());
        assert_eq!(records.advance(50), 0);
        assert!(records.lend().is_some() && records.lend().is_none());
    }

    proptest! {
        /// However much a socket takes at a time: every byte once and in order, and bytes of the
        /// outbox count with the last byte of their record.
        #[test]
        fn records_leave_whole_and_in_order(
            lens in prop::collection::vec((1_usize..40, 0_u64..40), 1..20),
            takes in prop::collection::vec((1_usize..60, any::<bool>()), 1..60),
        ) {
            let mut records = SealedRecords::default();
            let (mut expected, mut ends, mut owed) = (Vec::new(), Vec::new(), 0);
            for (number, (len, bytes)) in lens.iter().enumerate() {
                push(&mut records, number as u8, *len, *bytes);
                expected.extend(vec![number as u8; *len]);
                owed += bytes;
                ends.push((expected.len(), owed));
            }
            let (mut got, mut counted) = (Vec::new(), 0);
            for (most, is_shrunk) in takes {
                let taken = records.unsent().len().min(most);
                got.extend_from_slice(&records.unsent()[..taken]);
                counted += records.advance(taken);
                let whole = ends.iter().rev().find(|(end, _)| *end <= got.len());
                prop_assert_eq!(counted, whole.map_or(0, |(_, owed)| *owed));
                if is_shrunk {
                    records.shrink();
                }
            }
            prop_assert_eq!(&got[..], &expected[..got.len()]);
            prop_assert_eq!(records.is_empty(), got.len() == expected.len());
        }
    }
}
