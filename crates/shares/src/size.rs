//! How much a share may have of its file system.

use std::fmt;
use std::str::FromStr;

use crate::quoted::shown;

/// A number of bytes that a share may have, at least [`Size::BYTES_MIN`]. Written with a unit of
/// 1024: `500M`, `10G`; without one in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError {
    /// What is wrong with it.
    pub what: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// What a unit, by its place in [`UNITS`], has bytes of, as a power of two.
fn shift(unit: usize) -> u32 {
    (unit as u32 + 1) * 10
}

impl Size {
    /// The least size: below it a file system has no room for what it keeps of an empty directory.
    pub const BYTES_MIN: u64 = 1 << 20;

    /// A size of so many bytes; `None` below [`Size::BYTES_MIN`].
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        (bytes >= Self::BYTES_MIN).then_some(Self(bytes))
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    /// In the largest unit of which it is a multiple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |unit: &usize| self.0.trailing_zeros() >= shift(*unit);
        match (0..UNITS.len()).rev().find(exact).and_then(|unit| Some((unit, UNITS.get(unit)?))) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 >> shift(unit)),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let refused = |what: String, suggestion: Option<String>| SizeError { what, suggestion };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let no_number = || {
            let what =
                "a size is a number of bytes, with K, M, G, T, P or E of 1024 of the one before";
            refused(what.to_owned(), Some("10G".to_owned()))
        };
        let number: u64 = number.parse().map_err(|_| no_number())?;
        let is_unit = |name: &char| unit.eq_ignore_ascii_case(name.encode_utf8(&mut [0; 4]));
        let shift = match UNITS.iter().position(is_unit) {
            Some(place) => shift(place),
            None if unit.is_empty() => 0,
            None => {
                let first = unit.chars().next().map(|c| c.to_ascii_uppercase());
                let meant = first.filter(|c| UNITS.contains(c));
                let what = format!("{} is no unit: K, M, G, T, P or E", shown(unit));
                return Err(refused(what, meant.map(|unit| format!("{number}{unit}"))));
            }
        };
        let bytes = number.checked_mul(1 << shift);
        // The file system takes the largest number for "no limit".
        let Some(bytes) = bytes.filter(|bytes| i64::try_from(*bytes).is_ok()) else {
            return Err(refused("a size is less than 8E".to_owned(), None));
        };
        Self::of_bytes(bytes).ok_or_else(|| refused("a size is at least 1M".to_owned(), None))
    }
}

/// A number of bytes for people: `12.3G`.
pub fn shown_bytes(bytes: u64) -> String {
    let unit = (0..UNITS.len()).rev().find(|unit| bytes >> shift(*unit) > 0);
    match unit.and_then(|unit| Some((unit, UNITS.get(unit)?))) {
        Some((unit, name)) => {
            let tenths = (u128::from(bytes) * 10) >> shift(unit);
            format!("{}.{}{name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Result<u64, SizeError> {
        text.parse().map(Size::bytes)
    }

    #[test]
    fn sizes_have_units_of_1024() {
        for (text, expected) in [
            ("1048576", 1 << 20),
            ("1M", 1 << 20),
            ("500m", 500 << 20),
            ("10G", 10 << 30),
            ("3T", 3 << 40),
            ("7E", 7 << 60),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_was_meant() {
        for (text, part, suggestion) in [
            ("", "a number of bytes", Some("10G")),
            ("G", "a number of bytes", Some("10G")),
            ("-1G", "a number of bytes", Some("10G")),
            ("1.5G", "no unit", None),
            ("10GB", "no unit", Some("10G")),
            ("10GiB", "no unit", Some("10G")),
            ("10 G", "no unit", None),
            ("1048575", "at least 1M", None),
            ("0", "at least 1M", None),
            ("8E", "less than 8E", None),
            ("16E", "less than 8E", None),
            ("99999999999999999999", "a number of bytes", Some("10G")),
        ] {
            let error = bytes(text).expect_err(text);
            assert!(error.what.contains(part), "{text}: {error:?}");
            assert_eq!(error.suggestion.as_deref(), suggestion, "{text}");
        }
    }

    #[test]
    fn bytes_are_shown_with_a_tenth() {
        for (bytes, expected) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            ((12 << 30) + (1 << 30) / 3, "12.3G"),
            (u64::MAX, "15.9E"),
        ] {
            assert_eq!(shown_bytes(bytes), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_told_is_read_as_the_same(bytes in Size::BYTES_MIN..=i64::MAX as u64, zeros in 0..40_u32) {
            let bytes = bytes >> zeros << zeros;
            if let Some(size) = Size::of_bytes(bytes) {
                prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
        }

        #[test]
        fn no_text_breaks_it(text in "[0-9]{0,21}.{0,3}") {
            let _ = text.parse::<Size>();
        }
    }
}
