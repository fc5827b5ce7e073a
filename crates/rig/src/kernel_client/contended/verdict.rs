//! What the logs of all who contended say together, and the numbers in the files at the end.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The file that is locked as a whole, and to write only.
const WHOLE: usize = 0;

/// One that had a write lock.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Of [`Verdict::names`].
    who: usize,
    /// When it began to wait; 0 if it did not.
    asked_ns: u64,
    granted_ns: u64,
    freed_ns: u64,
}

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Of the cells of each file, at the end.
    numbers: Vec<Vec<u64>>,
    /// What these have to be.
    expected: Vec<Vec<u64>>,
    /// `MACHINE.KIND-NUMBER`
    names: Vec<String>,
    /// By file, first cell, and the number that it got.
    turns: HashMap<(usize, usize, u64), Turn>,
    faults: Vec<String>,
    /// By kind: locks, reads, denied, waited, interrupted.
    sums: BTreeMap<String, [u64; 5]>,
}

impl Verdict {
    /// `numbers`: lines of a file's number and those of its cells.
    pub(super) fn new(numbers: &str) -> Result<Self> {
        let line = |line: &str| {
            line.split(' ').skip(1).map(|word| word.parse().context("a number")).collect()
        };
        let numbers: Vec<Vec<u64>> = numbers.lines().map(line).collect::<Result<_>>()?;
        let expected = numbers.iter().map(|cells| vec![0; cells.len()]).collect();
        Ok(Self { numbers, expected, ..Self::default() })
    }

    /// Reads all logs of a directory.
    pub(super) fn read(&mut self, directory: &Path) -> Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(name) = name.strip_suffix(".log") {
                let text = std::fs::read_to_string(&path)?;
                self.take(name, &text).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }

    fn take(&mut self, name: &str, log: &str) -> Result<()> {
        let who = self.names.len();
        self.names.push(name.to_owned());
        let mut is_whole = false;
        for line in log.lines() {
            let (kind, rest) = line.split_once(' ').context("a line without words")?;
            let words: Vec<u64> = rest
                .split(' ')
                .map(|word| word.parse().context(line.to_owned()))
                .collect::<Result<_>>()?;
            match (kind, words.as_slice()) {
                ("w", &[file, first, last, number, asked_ns, granted_ns, freed_ns]) => {
                    let turn = Turn { who, asked_ns, granted_ns, freed_ns };
                    self.had((file as usize, first as usize, last as usize), number, turn)?;
                }
                ("sum", sums) => {
                    let all = self.sums.entry(kind_of(name).to_owned()).or_default();
                    all.iter_mut().zip(sums).for_each(|(all, one)| *all += one);
                    is_whole = true;
                }
                _ => bail!("the line {line:?}"),
            }
        }
        ensure!(is_whole, "the log has no end");
        Ok(())
    }

    fn had(
        &mut self,
        (file, first, last): (usize, usize, usize),
        number: u64,
        turn: Turn,
    ) -> Result<()> {
        let cells = self.expected.get_mut(file).and_then(|cells| cells.get_mut(first..=last));
        cells.context("cells that there are not")?.iter_mut().for_each(|cell| *cell += 1);
        if let Some(other) = self.turns.insert((file, first, number), turn) {
            let (one, two) = (&self.names[other.who], &self.names[turn.who]);
            self.faults.push(format!(
                "two had the lock of cell {first} of file {file} at once, and made it {number}: {one} ({other:?}), {two} ({turn:?})"
            ));
        }
        Ok(())
    }

    /// Fails if exclusion was broken.
    pub(super) fn judge(mut self) -> Result<()> {
        for (file, (found, expected)) in self.numbers.iter().zip(&self.expected).enumerate() {
            if found != expected {
                self.faults.push(format!(
                    "file {file} was locked to write {expected:?} times by its cells, which say {found:?}"
                ));
            }
        }
        ensure!(self.sums.values().all(|sums| sums[0] > 0), "a kind has had no lock at all");
        match self.faults.first() {
            None => Ok(()),
            Some(fault) => bail!("{} faults, the first: {fault}", self.faults.len()),
        }
    }

    /// From the moment before the one unlocked until the next, who waited, had the lock, in µs; by the
    /// kinds of both. Only where both have one clock.
    fn latencies(&self) -> BTreeMap<(String, String), Vec<u64>> {
        let mut latencies: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for ((file, cell, number), turn) in &self.turns {
            let before = number.checked_sub(1).and_then(|it| self.turns.get(&(*file, *cell, it)));
            let Some(before) = before else { continue };
            let (from, to) = (&self.names[before.who], &self.names[turn.who]);
            let of_machine =
                |name: &str| name.split_once('.').map(|(machine, _)| machine.to_owned());
            if *file != WHOLE || turn.asked_ns == 0 || of_machine(from) != of_machine(to) {
                continue;
            }
            // Who began to wait when the lock was free already is asked about from then on.
            let since_ns = before.freed_ns.max(turn.asked_ns);
            let latency_us = turn.granted_ns.saturating_sub(since_ns) / 1000;
            let kinds = (kind_of(from).to_owned(), kind_of(to).to_owned());
            latencies.entry(kinds).or_default().push(latency_us);
        }
        latencies
    }

    /// For people.
    pub(super) fn report(&self) -> String {
        let mut text = String::new();
        let total = self.sums.values().fold([0; 5], |mut sum, one| {
            sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
            sum
        });
        // Writing to a string cannot fail.
        let mut row = |what: &str, [locks, reads, denied, waited, interrupted]: [u64; 5]| {
            let _ = writeln!(
                text,
                "     {what:<12} {locks:>8} locks, {reads:>7} of them to read; {denied:>7} denied, \
                 {waited:>7} waited, {interrupted:>6} interrupted"
            );
        };
        for (kind, sums) in &self.sums {
            row(kind, *sums);
        }
        row("all", total);
        for ((from, to), mut all) in self.latencies() {
            all.sort_unstable();
            let at = |part: usize| {
                let index = (all.len() * part / 1000).min(all.len().saturating_sub(1));
                all.get(index).map_or(0.0, |us| *us as f64 / 1e3)
            };
            let _ = writeln!(
                text,
                "     {:<20} {:>7} times, ms: {:>9.2} (p50) {:>9.2} (p99) {:>9.2} (max)",
                format!("{from} to {to}"),
                all.len(),
                at(500),
                at(990),
                at(1000)
            );
        }
        text
    }
}

/// `MACHINE.KIND` of `MACHINE.KIND-NUMBER`.
fn kind_of(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "sum 3 1 2 1 0\n";

    fn verdict(numbers: &str, logs: &[(&str, &str)]) -> Verdict {
        let mut verdict = Verdict::new(numbers).expect("numbers");
        for (name, log) in logs {
            verdict.take(name, &format!("{log}{SUM}")).expect("a log");
        }
        verdict
    }

    #[test]
    fn numbers_that_were_made_once_are_right() {
        let one = "w 0 0 0 1 0 10 1000\nw 1 0 1 1 0 1 2\n";
        let two = "w 0 0 0 2 500 5000 6000\nw 1 1 2 2 0 3 4\n";
        let verdict = verdict("0 2 0 0\n1 1 2 1\n", &[("one.v3-0", one), ("one.v3-1", two)]);
        let kinds = ("one.v3".to_owned(), "one.v3".to_owned());
        assert_eq!(verdict.latencies(), BTreeMap::from([(kinds, vec![4])]));
        assert!(verdict.report().contains("one.v3 to one.v3"), "{}", verdict.report());
        verdict.judge().expect("as it has to be");
    }

    #[test]
    fn clocks_of_two_machines_are_not_compared() {
        let (one, two) = ("w 0 0 0 1 0 10 1000\n", "w 0 0 0 2 500 5000 6000\n");
        let verdict = verdict("0 2\n", &[("one.v3-0", one), ("two.v3-1", two)]);
        assert!(verdict.latencies().is_empty());
    }

    #[test]
    fn a_number_that_two_made_and_one_that_is_lost_are_faults() {
        let turn = "w 0 0 0 1 0 10 20\n";
        let twice = verdict("0 2\n", &[("one.v3-0", turn), ("here.local-0", turn)]).judge();
        assert!(twice.expect_err("a fault").to_string().contains("at once"));
        let lost = verdict("0 2\n", &[("one.v3-0", turn)]).judge();
        assert!(lost.expect_err("a fault").to_string().contains("which say [2]"));
    }

    #[test]
    fn a_log_that_breaks_off_is_no_evidence() {
        let mut verdict = Verdict::new("0 1\n").expect("numbers");
        assert!(verdict.take("one.v3-0", "w 0 0 0 1 0 10 20\n").is_err());
        assert!(verdict.take("one.v3-0", "w 0 0 1 0 10 20\n").is_err());
    }
}
