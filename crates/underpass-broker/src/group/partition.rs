//! The partition of `__consumer_offsets` that holds a group.

/// The number of partitions of `__consumer_offsets` (Kafka's `offsets.topic.num.partitions`).
pub const OFFSETS_PARTITIONS: u32 = 50;

/// Returns the partition of `__consumer_offsets` that holds the records of a group.
pub fn partition_of(group_id: &str) -> u32 {
    positive(java_hash_code(group_id)) % OFFSETS_PARTITIONS
}

/// Returns Java's `String.hashCode`: over UTF-16 code units, wrapping.
pub fn java_hash_code(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// The absolute value. Kafka maps the lowest integer, which has none, to 0.
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
        assert_eq!(partition_of(""), 0);
        assert_eq!(partition_of("abc"), 4);
        assert_eq!(partition_of("polygenelubricants"), 0);
        // A negative hash: "consumer-group" would do as well.
        let negative = "zzzzzz";
        assert!(java_hash_code(negative) < 0);
        assert_eq!(
            partition_of(negative),
            java_hash_code(negative).unsigned_abs() % OFFSETS_PARTITIONS
        );
    }
}
