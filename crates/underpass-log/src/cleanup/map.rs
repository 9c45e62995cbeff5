//! The latest offset of each key, in a fixed amount of memory.

use std::hash::{BuildHasher, RandomState};

/// A hash table from keys to offsets. It stores hashes of 128 bits instead of keys; their seeds are
/// random, so that clients cannot make two keys collide.
#[derive(Debug)]
pub(crate) struct OffsetMap {
    slots: Vec<Slot>,
    used: usize,
    seeds: [RandomState; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: [u64; 2],
    /// The offset after the latest record; 0 in an unused slot.
    next_offset: i64,
}

/// The part of the slots that may be used: searches in a full table are slow.
const USED_OF_8: usize = 6;

impl OffsetMap {
    /// Makes a map for up to `keys` keys, which takes at most `bytes_max` bytes, but has room for
    /// one key.
    pub(crate) fn new(keys: u64, bytes_max: usize) -> OffsetMap {
        let wanted = usize::try_from(keys).unwrap_or(usize::MAX);
        let wanted = wanted.saturating_mul(8) / USED_OF_8 + 1;
        let most = bytes_max / size_of::<Slot>();
        OffsetMap {
            slots: vec![Slot::default(); wanted.min(most).max(2)],
            used: 0,
            seeds: [RandomState::new(), RandomState::new()],
        }
    }

    /// Records a key of a later record. Returns whether there was room.
    pub(crate) fn insert(&mut self, key: &[u8], offset: i64) -> bool {
        let hash = self.hash(key);
        let at = self.find(hash);
        let is_new = self.slots[at].next_offset == 0;
        if is_new && (self.used + 1) * 8 > (self.slots.len() * USED_OF_8).max(8) {
            return false;
        }
        self.used += usize::from(is_new);
        self.slots[at] = Slot {
            hash,
            next_offset: offset + 1,
        };
        true
    }

    /// Returns the latest offset of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<i64> {
        let found = self.slots[self.find(self.hash(key))].next_offset;
        found.checked_sub(1).filter(|offset| *offset >= 0)
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.seeds[0].hash_one(key), self.seeds[1].hash_one(key)]
    }

    /// Returns the slot of a hash, or the free one where it belongs. One slot is always free.
    fn find(&self, hash: [u64; 2]) -> usize {
        let mut at = ((u128::from(hash[0]) * self.slots.len() as u128) >> 64) as usize;
        loop {
            let slot = &self.slots[at];
            if slot.next_offset == 0 || slot.hash == hash {
                return at;
            }
            at = (at + 1) % self.slots.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_map_has_the_latest_offset_of_each_key(
            keys in prop::collection::vec(0u16..300, 1..2000),
            bytes_max in 0usize..8000,
        ) {
            let mut map = OffsetMap::new(keys.len() as u64, bytes_max);
            let slot_bytes = size_of::<Slot>();
            prop_assert!(map.slots.len() * slot_bytes <= bytes_max.max(2 * slot_bytes));
            let mut model = HashMap::new();
            for (offset, key) in (0..).zip(&keys) {
                if !map.insert(&key.to_be_bytes(), offset) {
                    prop_assert!(!model.contains_key(key) && !model.is_empty());
                    break;
                }
                model.insert(*key, offset);
            }
            for key in 0..300u16 {
                prop_assert_eq!(map.get(&key.to_be_bytes()), model.get(&key).copied());
            }
        }
    }

    #[test]
    fn a_map_is_as_large_as_it_may_become() {
        let map = OffsetMap::new(u64::MAX, 1 << 20);
        assert_eq!(map.slots.len(), (1 << 20) / 24);
        let mut map = OffsetMap::new(10, 1 << 20);
        assert_eq!(map.slots.len(), 14);
        assert!((0..10u8).all(|key| map.insert(&[key], 7)));
    }
}
