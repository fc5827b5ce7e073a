//! The manifest: what is pending, in a text that a person can read. It is never needed, and says
//! what is lost when the ring is damaged.
//!
//! ```text
//! # steadfast journal manifest 1
//! # SHARE of SERVER, journal UUID
//! # sequence, time, change, offset, length, BLAKE3, path[, new path]; bytes that do not print: \xNN
//! 17  2026-11-27T18:00:00.000000000Z  write  0  4096  af13…  /src/main.rs
//! # 1 records, BLAKE3 of all above: 03c2…
//! ```
//!
//! Fields are separated by tabs. What a change does not have is `-`.

use std::fmt::Write as _;

use crate::format::Sequence;
use crate::pending::Pending;
use crate::record::Kind;

const HEAD: &str = "# steadfast journal manifest 1\n";

/// A line of a manifest, as far as it can be compared with the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The record.
    pub sequence: Sequence,
    /// The whole line, without its end.
    pub text: String,
}

/// What a manifest says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Its lines, as far as they can be read.
    pub lines: Vec<Line>,
    /// Whether it is whole, as its last line says.
    pub is_whole: bool,
}

/// Bytes as a person can read them, in one line: what does not print, and the backslash, is `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Controls, and what changes the order in which others are shown.
            let is_command = c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if c == '\\' || is_command {
                escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(c);
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// A time in UTC as ISO 8601 writes it.
pub fn utc(time_ns: u64) -> String {
    let (seconds, nanoseconds) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let (days, of_day) = (seconds / 86400, seconds % 86400);
    // Days to a date in the Gregorian calendar, by eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

/// A hash, or another number, in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The line of a record.
pub fn line(pending: &Pending) -> Line {
    let mut text = format!("{}\t{}", pending.sequence, utc(pending.time_ns));
    let _ = write!(text, "\t{}", pending.kind.word());
    if pending.kind == Kind::Write {
        let hash = hex(&pending.hash);
        let _ = write!(text, "\t{}\t{}\t{hash}", pending.offset, pending.length);
    } else {
        text.push_str("\t-\t-\t-");
    }
    for path in std::iter::once(&pending.path).chain(&pending.to_path) {
        text.push('\t');
        text.push_str(&escape(path));
    }
    Line { sequence: pending.sequence, text }
}

/// The manifest of a journal.
pub(crate) fn write(server: &[u8], share: &[u8], uuid: &[u8], pending: &[Pending]) -> String {
    let mut text = String::from(HEAD);
    let (server, share, uuid) = (escape(server), escape(share), hex(uuid));
    let _ = writeln!(text, "# {share} of {server}, journal {uuid}");
    text.push_str(
        "# sequence, time, change, offset, length, BLAKE3, path[, new path]; \
         bytes that do not print: \\xNN\n",
    );
    for pending in pending {
        text.push_str(&line(pending).text);
        text.push('\n');
    }
    let hash = blake3::hash(text.as_bytes());
    let _ = writeln!(text, "# {} records, BLAKE3 of all above: {hash}", pending.len());
    text
}

/// Reads a manifest. Damage does not stop it.
pub fn read(bytes: &[u8]) -> Manifest {
    let before_end = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let last = before_end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (above, end) = bytes.split_at_checked(last).unwrap_or_default();
    let mut lines = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(text) = str::from_utf8(line) else { continue };
        let Some((sequence, _)) = text.split_once('\t') else { continue };
        if let Ok(sequence) = sequence.parse() {
            lines.push(Line { sequence: Sequence(sequence), text: text.to_owned() });
        }
    }
    let hash = blake3::hash(above);
    let expected = format!("# {} records, BLAKE3 of all above: {hash}\n", lines.len());
    let is_whole = above.starts_with(HEAD.as_bytes()) && end == expected.as_bytes();
    Manifest { lines, is_whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Pending> {
        let pending = |sequence, path: &[u8]| Pending {
            sequence: Sequence(sequence),
            kind: Kind::Write,
            time_ns: 1_700_000_000_000_000_001,
            uid: 0,
            gid: 0,
            groups: [].into(),
            path: path.into(),
            to_path: None,
            objects: [None, None],
            offset: 7,
            length: 9,
            hash: [0xab; 32],
            ranges: Vec::new(),
            outcome: None,
            handles: Vec::new(),
            may_be_superseded: false,
        };
        let mut rename = pending(9, b"/a");
        (rename.kind, rename.to_path) = (Kind::Rename, Some(b"/b".as_slice().into()));
        vec![pending(4, b"/n\xff\n\t\\\x1b[31m"), rename]
    }

    #[test]
    fn lines_are_read_back_and_every_flipped_byte_is_noticed() {
        let pending = sample();
        let text = write(b"server", b"/share", &[1; 16], &pending);
        let lines: Vec<Line> = pending.iter().map(line).collect();
        assert_eq!(read(text.as_bytes()), Manifest { lines, is_whole: true });
        assert!(text.contains("\t/n\\xff\\x0a\\x09\\x5c\\x1b[31m\n"), "{text}");
        assert!(text.contains("\trename\t-\t-\t-\t/a\t/b\n"), "{text}");
        for at in 0..text.len() {
            assert!(!read(&text.as_bytes()[..at]).is_whole, "cut at {at}");
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                assert!(!read(&bytes).is_whole, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(utc(951_782_400_000_000_005), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(utc(1_709_251_199_000_000_000), "2024-02-29T23:59:59.000000000Z");
        assert_eq!(utc(1_735_689_600_000_000_000), "2025-01-01T00:00:00.000000000Z");
    }
}
