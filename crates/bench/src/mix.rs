//! How often which operation: presets, mix files, what `nfsstat -s` and `steadfast statistics`
//! print.

use serde::{Deserialize, Serialize};
use steadfast_client::{NFS3, procedure};

use crate::random::Random;

/// Operations of NFSv3; their numbers are the procedures'.
pub const OPERATIONS: usize = 22;
/// Longest mix file in bytes. A server's statistics, with every latency that there was, may be a
/// few MiB.
pub const MIX_BYTES_MAX: usize = 8 << 20;

/// The operations' names, by procedure number.
pub const NAMES: [&str; OPERATIONS] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];

/// Operations whose reply promises that a change is stable (RFC 1813 §4.8), WRITE and COMMIT
/// apart, which say so themselves.
const CHANGING: [&str; 9] =
    ["setattr", "create", "mkdir", "symlink", "mknod", "remove", "rmdir", "rename", "link"];

/// Of NFSv2, where they did nothing; taken in mix files, not called.
const OBSOLETE: [&str; 2] = ["root", "wrcache"];

/// Percents that a mix file adds up to, at least and at most, where it says `%`: rounding.
const PERCENT_MIN: f64 = 95.0;
const PERCENT_MAX: f64 = 105.0;

/// The number of an operation.
pub fn operation(name: &str) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    let name = match name.as_str() {
        // As Oleinick's table and others have it.
        "statfs" | "fstat" => "fsstat",
        other => other,
    };
    NAMES.iter().position(|known| *known == name)
}

/// Why a mix file makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// A line.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The whole.
    #[error("{0}")]
    Whole(String),
}

/// How often which operation is called.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mix {
    /// Percent of calls, by procedure number; 100 in all.
    percent: [f64; OPERATIONS],
}

impl Mix {
    /// The mix of diskless clients in Legato's Figure 1, which Oleinick's run of nhfsstone has
    /// too (Table 1; its second getattr is setattr misprinted).
    pub fn legato() -> Self {
        let mut percent = [0.0; OPERATIONS];
        for (name, value) in [
            ("getattr", 13.0),
            ("setattr", 1.0),
            ("lookup", 34.0),
            ("readlink", 8.0),
            ("read", 22.0),
            ("write", 15.0),
            ("create", 2.0),
            ("remove", 1.0),
            ("readdir", 3.0),
            ("fsstat", 1.0),
        ] {
            if let Some(place) = operation(name).and_then(|number| percent.get_mut(number)) {
                *place = value;
            }
        }
        Self { percent }
    }

    /// A preset by its name.
    pub fn preset(name: &str) -> Option<Self> {
        matches!(name, "legato" | "oleinick").then(Self::legato)
    }

    /// From weights by procedure number; `None` when there is nothing to call.
    fn from_weights(weights: &[f64; OPERATIONS]) -> Option<Self> {
        let sum: f64 = weights.iter().sum();
        (sum.is_finite() && sum > 0.0)
            .then(|| Self { percent: weights.map(|weight| weight / sum * 100.0) })
    }

    /// Percent of calls that are this operation.
    pub fn percent(&self, number: usize) -> f64 {
        self.percent.get(number).copied().unwrap_or(0.0)
    }

    /// Without some operations; the others keep their proportions.
    ///
    /// # Errors
    /// When a name is none, or nothing is left.
    pub fn without(&self, names: &[impl AsRef<str>]) -> Result<Self, MixError> {
        let mut weights = self.percent;
        for name in names {
            let place = operation(name.as_ref()).and_then(|number| weights.get_mut(number));
            *place.ok_or_else(|| MixError::Whole(unknown(name.as_ref())))? = 0.0;
        }
        Self::from_weights(&weights)
            .ok_or_else(|| MixError::Whole("no operation is left in the mix".to_owned()))
    }

    /// Without the operations whose reply has to wait for a disk.
    ///
    /// # Errors
    /// When nothing is left.
    pub fn without_changes(&self) -> Result<Self, MixError> {
        self.without(&CHANGING)
    }

    /// With so many percent of the calls changing something (COMMIT counts as a change: it waits for
    /// the disk too); changes, and the other operations, keep their proportions among themselves.
    ///
    /// # Errors
    /// When it is not a percentage, or the mix has nothing of what is wanted.
    pub fn with_changes(&self, percent: f64) -> Result<Self, MixError> {
        if !(0.0..=100.0).contains(&percent) {
            return Err(MixError::Whole(format!("{percent} is not a percentage of the calls")));
        }
        let is_change = |number: usize| {
            let name = NAMES.get(number).copied().unwrap_or_default();
            matches!(name, "write" | "commit") || CHANGING.contains(&name)
        };
        let sum: f64 = (0..OPERATIONS).filter(|n| is_change(*n)).map(|n| self.percent(n)).sum();
        let lacks = |what| MixError::Whole(format!("the mix has no operation that {what}"));
        if percent > 0.0 && sum <= 0.0 {
            return Err(lacks("changes something"));
        }
        if percent < 100.0 && sum >= 100.0 {
            return Err(lacks("changes nothing"));
        }
        let mut weights = self.percent;
        for (number, weight) in weights.iter_mut().enumerate() {
            let (wanted, there) =
                if is_change(number) { (percent, sum) } else { (100.0 - percent, 100.0 - sum) };
            *weight = if *weight > 0.0 { *weight * wanted / there } else { 0.0 };
        }
        Self::from_weights(&weights)
            .ok_or_else(|| MixError::Whole("no operation is left in the mix".to_owned()))
    }

    /// Reads a mix: lines of an operation and its weight (a count or a percentage), with `#`
    /// comments, or what `nfsstat -s` or `steadfast statistics --json` prints, of which the
    /// server's NFSv3 counts are taken.
    ///
    /// # Errors
    /// Says what is wrong, and in which line.
    pub fn parse(text: &str) -> Result<Self, MixError> {
        if text.len() > MIX_BYTES_MAX {
            return Err(MixError::Whole(format!("longer than {MIX_BYTES_MAX} bytes: no mix")));
        }
        let weights = if text.trim_start().starts_with('{') {
            parse_statistics(text)?
        } else if text.lines().any(|line| section(line).is_some()) {
            parse_nfsstat(text)?
        } else {
            parse_lines(text)?
        };
        Self::from_weights(&weights)
            .ok_or_else(|| MixError::Whole("there is no operation with a weight".to_owned()))
    }

    /// A deck to draw operations from.
    pub(crate) fn deck(&self, seed: u64) -> Deck {
        // The fewest cards that hold the percentages exactly, so that short runs have the mix.
        let is_whole = |factor: f64| {
            self.percent.iter().all(|percent| ((percent * factor).fract() - 0.5).abs() > 0.499_999)
        };
        let count = if is_whole(1.0) {
            100
        } else if is_whole(10.0) {
            1000
        } else {
            10_000
        };
        let cards = apportion(&self.percent, count);
        Deck { at: cards.len(), cards, random: Random::new(seed) }
    }
}

/// So many cards, in proportion to the weights (the largest remainders are rounded up), at least
/// one of each operation with a weight.
fn apportion(percent: &[f64; OPERATIONS], count: usize) -> Vec<u8> {
    let exact = percent.map(|percent| percent / 100.0 * count as f64);
    let mut counts = exact.map(|exact| (exact + 1e-6).floor() as usize);
    let mut order: Vec<usize> = (0..OPERATIONS).collect();
    let remainder = |number: &usize| {
        exact.get(*number).unwrap_or(&0.0) - *counts.get(*number).unwrap_or(&0) as f64
    };
    order.sort_by(|a, b| remainder(b).total_cmp(&remainder(a)));
    let missing = count.saturating_sub(counts.iter().sum());
    for number in order.into_iter().take(missing) {
        if let Some(count) = counts.get_mut(number) {
            *count += 1;
        }
    }
    for (count, exact) in counts.iter_mut().zip(exact) {
        *count = if exact > 0.0 { (*count).max(1) } else { 0 };
    }
    let card = |(number, count): (usize, &usize)| std::iter::repeat_n(number as u8, *count);
    counts.iter().enumerate().flat_map(card).collect()
}

/// Draws operations: in each pass through the deck every operation comes exactly as often as the
/// mix says, in an order by chance.
#[derive(Clone, Debug)]
pub(crate) struct Deck {
    cards: Vec<u8>,
    at: usize,
    random: Random,
}

impl Deck {
    /// The next operation's number.
    pub(crate) fn draw(&mut self) -> usize {
        if self.at >= self.cards.len() {
            self.at = 0;
            for index in (1..self.cards.len()).rev() {
                self.cards.swap(index, self.random.below(index + 1));
            }
        }
        self.at += 1;
        self.cards.get(self.at - 1).map_or(0, |card| usize::from(*card))
    }
}

fn unknown(name: &str) -> String {
    format!("{name:?} is not an operation: {}", NAMES.join(", "))
}

fn parse_lines(text: &str) -> Result<[f64; OPERATIONS], MixError> {
    let mut weights: [Option<f64>; OPERATIONS] = [None; OPERATIONS];
    let (mut lines, mut percents, mut sum) = (0, 0, 0.0);
    for (index, line) in text.lines().enumerate() {
        let fault = |what: String| MixError::Line { line: index + 1, what };
        let line = line.split('#').next().unwrap_or_default();
        let is_separator = |c: char| c.is_whitespace() || c == ':' || c == '=';
        let mut words = line.split(is_separator).filter(|word| !word.is_empty());
        let Some(name) = words.next() else { continue };
        let (weight, is_percent) = match (words.next(), words.next(), words.next()) {
            (Some(weight), Some("%"), None) => (weight, true),
            (Some(weight), None, None) => match weight.strip_suffix('%') {
                Some(number) => (number, true),
                None => (weight, false),
            },
            _ => return Err(fault("write an operation and its weight: lookup 34".to_owned())),
        };
        let weight: f64 = weight
            .parse()
            .ok()
            .filter(|weight: &f64| weight.is_finite() && *weight >= 0.0)
            .ok_or_else(|| fault(format!("{weight:?} is not a count or a percentage")))?;
        lines += 1;
        percents += usize::from(is_percent);
        sum += weight;
        if OBSOLETE.contains(&name.to_ascii_lowercase().as_str()) {
            continue;
        }
        let number = operation(name).ok_or_else(|| fault(unknown(name)))?;
        let place = weights.get_mut(number).filter(|place| place.is_none());
        *place.ok_or_else(|| fault(format!("{name} was told before")))? = Some(weight);
    }
    if lines > 0 && percents == lines && !(PERCENT_MIN..=PERCENT_MAX).contains(&sum) {
        return Err(MixError::Whole(format!("the percentages add up to {sum:.1}")));
    }
    Ok(weights.map(|weight| weight.unwrap_or(0.0)))
}

/// What of `steadfast statistics --json` makes a mix.
#[derive(Deserialize)]
struct Statistics {
    version: u32,
    operations: Vec<Counted>,
}

#[derive(Deserialize)]
struct Counted {
    program: u32,
    version: u32,
    procedure: usize,
    calls: u64,
}

fn parse_statistics(text: &str) -> Result<[f64; OPERATIONS], MixError> {
    let statistics: Statistics = serde_json::from_str(text).map_err(|error| {
        let what = format!("not what `steadfast statistics --json` prints: {error}");
        MixError::Line { line: error.line(), what }
    })?;
    if statistics.version != 1 {
        let version = statistics.version;
        return Err(MixError::Whole(format!("statistics of version {version}, not 1")));
    }
    let mut weights = [0.0; OPERATIONS];
    let is_nfs3 = |counted: &&Counted| (counted.program, counted.version) == (NFS3, 3);
    for counted in statistics.operations.iter().filter(is_nfs3) {
        if let Some(weight) = weights.get_mut(counted.procedure) {
            *weight += counted.calls as f64;
        }
    }
    Ok(weights)
}

/// A section of nfsstat's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    is_server: bool,
    version: u32,
    has_operations_of_compounds: bool,
}

/// Reads the head of a section: `Server nfs v3:`.
fn section(line: &str) -> Option<Section> {
    let line = line.trim().to_ascii_lowercase();
    let title = line.strip_suffix(':')?;
    let mut words = title.split_whitespace();
    let is_server = match words.next()? {
        "server" => true,
        "client" => false,
        _ => return None,
    };
    if words.next()? != "nfs" {
        return None;
    }
    let version = words.next()?.strip_prefix('v')?.parse().ok()?;
    Some(Section { is_server, version, has_operations_of_compounds: words.next().is_some() })
}

/// How much a section is worth: the server's before a client's, version 3 before 2.
fn rank(section: Section) -> Option<u32> {
    if section.has_operations_of_compounds || !(2..=3).contains(&section.version) {
        return None;
    }
    Some(u32::from(section.is_server) * 2 + u32::from(section.version == 3))
}

fn parse_nfsstat(text: &str) -> Result<[f64; OPERATIONS], MixError> {
    let mut best: Option<(u32, [f64; OPERATIONS])> = None;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((_, line)) = lines.next() {
        let Some(rank) = section(line).and_then(rank) else { continue };
        let mut counts = [0.0; OPERATIONS];
        // Two lines each, of names and of their counts with percentages, up to the next title.
        while let Some((_, next)) = lines.peek()
            && !next.trim_end().ends_with(':')
        {
            let Some((index, names)) = lines.next() else { break };
            if names.trim().is_empty() {
                continue;
            }
            let fault = |what: String| MixError::Line { line: index + 1, what };
            let (_, values) = lines
                .next()
                .ok_or_else(|| fault("names of operations without their counts".to_owned()))?;
            take_counts(names, values, &mut counts).map_err(fault)?;
        }
        if best.as_ref().is_none_or(|(known, _)| rank > *known) && counts.iter().sum::<f64>() > 0.0
        {
            best = Some((rank, counts));
        }
    }
    best.map(|(_, counts)| counts).ok_or_else(|| {
        MixError::Whole("nfsstat tells no calls of NFSv3 or NFSv2 (only those can be made)".into())
    })
}

fn take_counts(names: &str, values: &str, counts: &mut [f64; OPERATIONS]) -> Result<(), String> {
    let mut values = values.split_whitespace().filter(|value| !value.ends_with('%'));
    for name in names.split_whitespace() {
        let value = values.next().ok_or_else(|| format!("{name} has no count below it"))?;
        let count: u64 =
            value.parse().map_err(|_| format!("{value:?} below {name} is not a count"))?;
        if OBSOLETE.contains(&name) {
            continue;
        }
        let place = operation(name).and_then(|number| counts.get_mut(number));
        *place.ok_or_else(|| unknown(name))? += count as f64;
    }
    match values.next() {
        Some(value) => Err(format!("{value:?} has no operation above it")),
        None => Ok(()),
    }
}

// Names and procedures are one list.
const _: () = assert!(NAMES.len() == procedure::ALL.len());

#[cfg(test)]
#[path = "mix_tests.rs"]
mod tests;
