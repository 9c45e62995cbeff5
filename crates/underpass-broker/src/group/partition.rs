//! The partition of `__consumer_offsets` that holds a group.

/// The number of partitions with which this broker creates `__consumer_offsets` (Kafka's
/// `offsets.topic.num.partitions`).
pub const OFFSETS_PARTITIONS: u32 = 50;

/// Returns the partition of `__consumer_offsets` that holds the records of a group, out of
/// `partitions`; 0 if `partitions` is 0.
pub fn partition_of(group_id: &str, partitions: u32) -> u32 {
    let hash = positive(java_hash_code(group_id));
    hash.checked_rem(partitions).unwrap_or(0)
}

/// Returns Java's `String.hashCode`: over UTF-16 code units, wrapping.
pub fn java_hash_code(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// Returns the absolute value, and 0 for the lowest integer, as Kafka does.
fn positive(hash: i32) -> u32 {
    hash.checked_abs().map_or(0, i32::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_java() {
        let known = [
            ("", 0),
            ("a", 97),
            ("abc", 96_354),
            ("hello", 99_162_322),
            ("Aa", 2112),
            ("BB", 2112),
            ("é", 233),
            // U+1F600 is the surrogate pair D83D DE00: 0xD83D * 31 + 0xDE00.
            ("😀", 1_772_899),
            ("polygenelubricants", i32::MIN),
            ("GydZG_", i32::MIN),
            ("DESIGNING WORKHOUSES", i32::MIN),
        ];
        for (text, hash) in known {
            assert_eq!(java_hash_code(text), hash, "{text}");
        }
    }

    #[test]
    fn the_partition_is_the_absolute_hash_modulo_the_partitions() {
        for (group_id, of_fifty, of_four) in [
            ("", 0, 0),
            ("a", 47, 1),
            ("abc", 4, 2),
            ("hello", 22, 2),
            ("polygenelubricants", 0, 0),
        ] {
            assert_eq!(partition_of(group_id, 50), of_fifty, "{group_id}");
            assert_eq!(partition_of(group_id, 4), of_four, "{group_id}");
            assert_eq!(partition_of(group_id, 1), 0, "{group_id}");
            assert_eq!(partition_of(group_id, 0), 0, "{group_id}");
        }
        // A negative hash, like that of "consumer-group".
        let negative = "zzzzzz";
        assert!(java_hash_code(negative) < 0);
        assert_eq!(
            partition_of(negative, 50),
            java_hash_code(negative).unsigned_abs() % 50
        );
    }
}
