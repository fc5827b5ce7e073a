//! Words of a file in messages about it.

/// A word of the file, quoted, escaped and bounded.
pub fn shown(word: &str) -> String {
    const CHARS_MAX: usize = 100;
    if word.chars().count() <= CHARS_MAX {
        return format!("{word:?}");
    }
    let start: String = word.chars().take(CHARS_MAX).collect();
    format!("{start:?}…")
}
