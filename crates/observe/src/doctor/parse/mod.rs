//! Readers of what the kernel and others tell as text. Each is a function of the text alone.
//!
//! Kernels add columns and lines, and containers hide some: what is missing or odd is left out, never an
//! error. A reader takes memory in proportion to the text, and [`LINES_MAX`] lines at the most.

pub mod host;
pub mod mountstats;
pub mod network;
pub mod rpc;
pub mod system;

use std::collections::BTreeMap;

/// Lines of one text that are read: 100,000 sockets or mounts are more than a report can use.
pub const LINES_MAX: usize = 100_000;

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// The lines of a text, bounded.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take(LINES_MAX)
}

/// A path as the kernel and exportfs(8) write it: blanks, tabs, ends of lines and `\\` are `\\` and three octal digits.
pub(crate) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = behind.get(3..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The next word as a number.
pub(crate) fn number<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u64> {
    words.next()?.parse().ok()
}

/// The next word as a number, or 0.
pub(crate) fn number_or_zero<'a>(words: &mut impl Iterator<Item = &'a str>) -> u64 {
    number(words).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn paths_are_as_they_were_named() {
        for (written, path) in [
            (r"/my\040share\134x", r"/my share\x"),
            (r"/a\012b", "/a\nb"),
            (r"/\303\244", "/ä"),
            (r"\", r"\"),
            (r"\04", r"\04"),
            (r"\999 \777", r"\999 \777"),
            ("", ""),
        ] {
            assert_eq!(unescaped(written), path);
        }
    }
}
