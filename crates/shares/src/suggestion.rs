//! "Did you mean": the word nearest to one that was mistyped.

/// Longer words get no suggestion; it bounds the work that a hostile file can cause.
const WORD_CHARS_MAX: usize = 64;

/// The candidate nearest to `word`, if any is near enough to be what was meant.
///
/// The distance is that of insertions, deletions, replacements and swaps of neighbours; letter
/// case counts for nothing. Near enough is one edit for each three characters, at least one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> =
        word.chars().take(WORD_CHARS_MAX + 1).flat_map(char::to_lowercase).collect();
    if word.is_empty() || word.len() > WORD_CHARS_MAX {
        return None;
    }
    let edits_max = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| {
            let letters: Vec<char> = candidate.chars().flat_map(char::to_lowercase).collect();
            (edits(&word, &letters), candidate)
        })
        .filter(|(edits, _)| *edits <= edits_max)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// How many edits lead from `a` to `b` (optimal string alignment).
fn edits(a: &[char], b: &[char]) -> usize {
    // Rows of the usual table: the one before last, the last, and the one being made.
    let mut earlier: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replaced = at(&last, j) + usize::from(from != to);
            let mut best = replaced.min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let is_swap = i > 0 && j > 0 && a.get(i - 1) == Some(to) && b.get(j - 1) == Some(from);
            if is_swap {
                best = best.min(at(&earlier, j - 1) + 1);
            }
            row.push(best);
        }
        earlier = std::mem::replace(&mut last, row);
    }
    at(&last, b.len())
}

fn at(row: &[usize], index: usize) -> usize {
    row.get(index).copied().unwrap_or(usize::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::{edits, nearest};

    fn distance(a: &str, b: &str) -> usize {
        edits(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("listen", "listen"), 0);
        assert_eq!(distance("lisetn", "listen"), 1);
        assert_eq!(distance("litsne", "listen"), 2);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn only_near_words_are_suggested() {
        let words = ["listen", "udp", "rpcbind", "root_squash", "no_root_squash"];
        assert_eq!(nearest("Lisen", words), Some("listen"));
        assert_eq!(nearest("root-squash", words), Some("root_squash"));
        assert_eq!(nearest("no_rootsquash", words), Some("no_root_squash"));
        assert_eq!(nearest("xyz", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest(&"l".repeat(10_000), words), None);
    }
}
