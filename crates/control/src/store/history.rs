//! The history: one line of JSON a batch, on disk before the batch is answered.
//!
//! A record has the texts that its batch changed, before and after ([`Edit`]): those that are not
//! yet in the groups' files are put into them when the server starts, and a state is gone back to
//! by putting in what was before. Each line has a checksum. The last may be torn by a crash: then
//! its batch was never acknowledged. Zeros may follow: room for lines to come. Pure; the file
//! itself is `log.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadfast_catalog::Edit;
use steadfast_catalog::manage::Operation;

/// Operations of a batch that are kept for people; what it did is kept whole.
pub const OPERATIONS_KEPT: usize = 100;

/// A batch that was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Counts the states, from 1.
    pub sequence: u64,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// Who did it.
    pub who: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The state that was gone back to, if that is what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<u64>,
    /// Whether somebody edited the files: they had it before the history did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// What was asked for: the first [`OPERATIONS_KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
    /// How many operations there were.
    #[serde(default)]
    pub operations_total: usize,
    /// What it did.
    pub edits: Vec<Edit>,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// A batch.
    Record(Record),
    /// The groups' files have what the records up to this one did.
    Written(u64),
    /// Files of these groups have what the records up to these did, though others do not.
    WrittenGroups(BTreeMap<String, u64>),
}

/// What a line begins with, up to its checksum.
const HEAD: &str = "{\"crc\":\"";
/// What is between the checksum and what it is of.
const MIDDLE: &str = "\",\"line\":";

impl Line {
    /// The line with its newline.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let json = serde_json::to_string(self)?;
        let crc = crc32c::crc32c(json.as_bytes());
        Ok(format!("{HEAD}{crc:08x}{MIDDLE}{json}}}\n").into_bytes())
    }

    /// Reads a line, without its newline.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(line: &[u8]) -> Result<Self, String> {
        let damaged = || "the line is damaged".to_owned();
        let text = std::str::from_utf8(line).map_err(|_| damaged())?;
        let rest = text.strip_prefix(HEAD).ok_or_else(damaged)?;
        let (crc, rest) = rest.split_once(MIDDLE).ok_or_else(damaged)?;
        let json = rest.strip_suffix('}').ok_or_else(damaged)?;
        let expected = u32::from_str_radix(crc, 16).map_err(|_| damaged())?;
        if crc.len() != 8 || crc32c::crc32c(json.as_bytes()) != expected {
            return Err(damaged());
        }
        serde_json::from_str(json).map_err(|error| format!("another version wrote it: {error}"))
    }
}

/// A record's place in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Where its line begins.
    pub offset: u64,
    /// How long it is, with its newline.
    pub bytes: u64,
    /// What it says.
    pub line: Line,
}

/// What a file's bytes say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scanned {
    /// The lines that are right.
    pub lines: Vec<Found>,
    /// How much of the file to keep: without a torn last line.
    pub valid_bytes: u64,
    /// What is damaged otherwise, by line number.
    pub damaged: Vec<(usize, String)>,
}

/// Reads the lines of a file.
pub fn scan(bytes: &[u8]) -> Scanned {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let bytes = bytes.get(..used).unwrap_or(bytes);
    let mut scanned = Scanned::default();
    let mut offset = 0;
    let mut torn: Option<(usize, String)> = None;
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // Only the last may be damaged without anything being said.
        scanned.damaged.extend(torn.take());
        let read = match line.strip_suffix(b"\n") {
            Some(line) => Line::decode(line),
            None => Err("the line has no end".to_owned()),
        };
        let end = offset + line.len() as u64;
        match read {
            Ok(line_read) => {
                scanned.lines.push(Found { offset, bytes: line.len() as u64, line: line_read });
                scanned.valid_bytes = end;
            }
            Err(what) => torn = Some((index + 1, what)),
        }
        offset = end;
    }
    if !scanned.damaged.is_empty() && torn.is_none() {
        scanned.valid_bytes = offset;
    }
    scanned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(sequence: u64) -> Line {
        let who = format!("uid 0 \"ä\" {sequence}");
        Line::Record(Record { sequence, who, ..Record::default() })
    }

    fn lines(scanned: &Scanned) -> Vec<Line> {
        scanned.lines.iter().map(|found| found.line.clone()).collect()
    }

    #[test]
    fn damage_before_the_last_line_is_told() {
        let [first, mut second, third] = [1, 2, 3].map(|n| record(n).encode().expect("a line"));
        second[30] ^= 1;
        let scanned = scan(&[&first[..], &second, &third].concat());
        assert_eq!(lines(&scanned), [record(1), record(3)]);
        assert_eq!(scanned.damaged, [(2, "the line is damaged".to_owned())]);
        assert_eq!(scanned.valid_bytes as usize, first.len() + second.len() + third.len());
        let scanned = scan(&[&first[..], &second].concat());
        assert_eq!((scanned.damaged, scanned.valid_bytes as usize), (vec![], first.len()));
    }

    proptest! {
        /// Wherever the last line is torn, it alone is lost, and nothing is made a fuss of.
        #[test]
        fn a_torn_tail_is_left_out(
            count in 1..5_u64,
            cut in 0..1000_usize,
            zeros in any::<bool>(),
            room in 0..100_usize,
        ) {
            let all: Vec<Vec<u8>> = (0..count).map(|n| record(n).encode().expect("a line")).collect();
            let last = all.last().expect("a line").len();
            let mut bytes = all.concat();
            // Of the last line something is missing that is not put back below.
            let cut = bytes.len() - last + cut % (last - 1);
            if zeros { bytes[cut..].fill(0) } else { bytes.truncate(cut) }
            // A block in the middle may be the one that is missing.
            if zeros && last > 40 {
                bytes.truncate(bytes.len() - 1);
                bytes.push(b'\n');
            }
            bytes.resize(bytes.len() + room, 0);
            let scanned = scan(&bytes);
            prop_assert_eq!(lines(&scanned), (0..count - 1).map(record).collect::<Vec<_>>());
            prop_assert_eq!(scanned.damaged, vec![]);
            prop_assert_eq!(scanned.valid_bytes as usize, all.concat().len() - last);
        }

        #[test]
        fn any_bytes_are_scanned(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let scanned = scan(&bytes);
            prop_assert!(scanned.valid_bytes as usize <= bytes.len());
        }
    }
}
