//! Numbers in a file, each with who wrote it, so that half of one is seen.
//!
//! A cell is four words of 8 bytes, the most significant byte first: the number, the stamp of who wrote it, the two
//! by exclusive or, and the number with all bits turned.

use anyhow::{Result, ensure};

/// Bytes of a cell.
pub(super) const BYTES: usize = 32;
/// Cells of a file.
pub(super) const COUNT: u64 = 16;

/// The bytes of these numbers, by one writer.
pub(super) fn written(numbers: &[u64], stamp: u64) -> Vec<u8> {
    let words = numbers.iter().flat_map(|number| [*number, stamp, number ^ stamp, !number]);
    words.flat_map(u64::to_be_bytes).collect()
}

/// The numbers.
///
/// # Errors
/// When a cell is cut short or torn.
pub(super) fn numbers(bytes: &[u8]) -> Result<Vec<u64>> {
    ensure!(bytes.len().is_multiple_of(BYTES), "{} bytes are no cells", bytes.len());
    let cells = bytes.chunks(BYTES).map(|cell| {
        let words = words(cell);
        let (number, stamp) = (words[0], words[1]);
        let is_whole = words[2] == number ^ stamp && words[3] == !number;
        ensure!(is_whole, "a cell is torn: {words:x?}");
        Ok(number)
    });
    cells.collect()
}

/// For people: number and stamp of each.
pub(super) fn told(bytes: &[u8]) -> String {
    let cells = bytes.chunks(BYTES).map(words);
    let cells: Vec<String> =
        cells.map(|words| format!("{:x?}", words.get(..2).unwrap_or_default())).collect();
    cells.join(" ")
}

fn words(cell: &[u8]) -> Vec<u64> {
    cell.chunks(8)
        .map(|word| word.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_torn_ones_found() {
        let bytes = written(&[0, 7, u64::MAX], 0x1234);
        assert_eq!(numbers(&bytes).expect("whole"), [0, 7, u64::MAX]);
        let other = written(&[0, 8, u64::MAX], 0x4321);
        for at in BYTES + 1..2 * BYTES {
            let torn = [&bytes[..at], &other[at..]].concat();
            let cell = BYTES..2 * BYTES;
            let is_one = [&bytes, &other].iter().any(|one| torn[cell.clone()] == one[cell.clone()]);
            assert_eq!(numbers(&torn).is_ok(), is_one, "{at}");
        }
        assert!(numbers(&bytes[1..]).is_err());
        assert!(told(&bytes).starts_with("[0, 1234] [7, 1234]"));
    }
}
