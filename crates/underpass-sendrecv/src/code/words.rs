//! The words of codes: 1,296, so that three of them have 31 bits.
//!
//! They are common, spelled the same everywhere in the world, and told apart by their first four
//! letters. No typing error of one letter makes one of them into another.

use std::sync::LazyLock;

static WORDS: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("words.txt").split_ascii_whitespace().collect());

/// Returns all words, in their order.
pub(super) fn list() -> &'static [&'static str] {
    &WORDS
}

/// Returns whether codes use a word.
pub(super) fn contains(word: &str) -> bool {
    WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Returns the words that lack one letter of this one, and those with two neighbours swapped.
    fn variants(word: &str) -> (Vec<String>, Vec<String>) {
        let letters: Vec<_> = word.chars().collect();
        let shorter = (0..letters.len()).map(|left_out| {
            let kept = letters.iter().enumerate();
            kept.filter(|(index, _)| *index != left_out)
                .map(|(_, letter)| letter)
                .collect()
        });
        let swapped = (1..letters.len()).map(|index| {
            let mut letters = letters.clone();
            letters.swap(index - 1, index);
            letters.into_iter().collect()
        });
        (shorter.collect(), swapped.collect())
    }

    /// Returns the word with a hole at each place.
    fn with_holes(word: &str) -> impl Iterator<Item = String> {
        (0..word.len()).map(|at| format!("{}_{}", &word[..at], &word[at + 1..]))
    }

    #[test]
    fn no_slip_makes_one_word_into_another() {
        let words = list();
        assert!(words.len() == 1296 && words.is_sorted());
        let (mut starts, mut holes) = (HashSet::new(), HashSet::new());
        for word in words {
            assert!(word.bytes().all(|byte| byte.is_ascii_lowercase()), "{word}");
            assert!((3..=8).contains(&word.len()), "{word}");
            assert!(starts.insert(&word[..word.len().min(4)]), "{word}");
            for pattern in with_holes(word) {
                assert!(holes.insert(pattern), "{word}");
            }
            let (shorter, swapped) = variants(word);
            assert!(!shorter.iter().any(|other| contains(other)), "{word}");
            let is_other = |other: &String| other != word && contains(other);
            assert!(!swapped.iter().any(is_other), "{word}");
        }
    }
}
