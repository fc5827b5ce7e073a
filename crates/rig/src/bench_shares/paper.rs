//! Table 1 of "The Management of NFS Performance With Solaris ZFS" (Sun Microsystems,
//! 2007): the time to share and to unshare so many file systems.

/// The numbers of shares that Sun had.
pub(super) const SIZES: [usize; 4] = [100, 2900, 5000, 15_150];

/// A row: seconds to share and to unshare, by number; none where it took more than a week.
pub(super) struct Row {
    pub(super) approach: &'static str,
    times: [Option<(f64, f64)>; 4],
}

impl Row {
    /// Seconds on and off at a number of shares, if Sun tried that many; the inner one is none
    /// where they gave up.
    #[allow(clippy::option_option, reason = "not tried, and given up, are two things")]
    pub(super) fn at(&self, shares: usize) -> Option<Option<(f64, f64)>> {
        let place = SIZES.iter().position(|size| *size == shares)?;
        self.times.get(place).copied()
    }
}

/// The rows.
pub(super) const ROWS: [Row; 3] = [
    Row {
        approach: "Sun: before",
        times: [Some((hms(0, 7, 35.0), hms(0, 12, 23.0))), None, None, None],
    },
    Row {
        approach: "Sun: share manager",
        times: [
            Some((7.0, 13.0)),
            Some((hms(0, 2, 55.0), hms(0, 5, 40.0))),
            Some((hms(0, 8, 41.0), hms(0, 33, 24.0))),
            Some((hms(1, 6, 36.0), hms(2, 35, 36.0))),
        ],
    },
    Row {
        approach: "Sun: share manager, table in memory",
        times: [
            Some((0.7, 0.4)),
            Some((54.0, hms(0, 3, 39.0))),
            Some((hms(0, 2, 37.0), hms(0, 12, 8.0))),
            Some((hms(0, 19, 40.0), hms(2, 12, 14.0))),
        ],
    },
];

const fn hms(hours: u32, minutes: u32, seconds: f64) -> f64 {
    (hours * 3600 + minutes * 60) as f64 + seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_paper_says() {
        assert_eq!(ROWS[0].at(100), Some(Some((455.0, 743.0))));
        assert_eq!(ROWS[0].at(2900), Some(None));
        assert_eq!(ROWS[2].at(15_150), Some(Some((1180.0, 7934.0))));
        assert_eq!(ROWS[2].at(100_000), None);
    }
}
