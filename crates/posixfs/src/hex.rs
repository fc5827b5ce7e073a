//! Bytes as pairs of hexadecimal digits, in names of files and in tables.

/// Bytes as people write them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads what [`hex`] wrote, of one byte at least.
pub(crate) fn unhex(word: &str) -> Option<Vec<u8>> {
    let digits = word.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
